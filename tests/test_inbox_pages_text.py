"""Text from outside on the pages: it is shown for what it is, and never leaves its frame. And what all templates hold to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inbox_scenes import RITA, ByHeader
from page_reader import Element, read
from page_scenes import Pages

import phronomy.inbox.pages
from phronomy import Approval, Principal, Reject, tool
from phronomy.foundation.in_brief import in_brief
from phronomy.foundation.json_text import canonical
from phronomy.foundation.json_tree import read_tree
from phronomy.foundation.suspicious_letters import suspicious_places
from phronomy.inbox.pages.assets import assets
from phronomy.inbox.pages.forms.fields import form_of
from phronomy.inbox.pages.letters import MOST_BOXES, MOST_OF_PAGE, boxes_of_a_page, lettered
from phronomy.inbox.pages.values import raw, values_of
from phronomy.inbox.pages.view import environment
from phronomy.records.decisions import ShownMessage

FOLDER = Path(phronomy.inbox.pages.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))

ATTACK = "\"'><script>alert(1)</script><img src=x onerror=alert(1)></textarea></option></bdi>{{ 7 * 7 }}&lt;b&gt;\u202e"


# Letters


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("plain text, with lines\nand\ttabs", []),
        ("schöne Grüße, 東京, Москва, שלום, مرحبا", []),
        ("a\u202eb\u2066c", ["U+202E", "U+2066"]),
        ("zero\u200bwidth\ufeff", ["U+200B", "U+FEFF"]),
        ("tag\U000e0041", ["U+E0041"]),
        ("p\u0430ypal", ["U+0430"]),
        ("p\\\u0430ypal\\n", ["U+0430"]),
        ("bell\x07 escape\x1b[31m\r", ["U+0007", "U+001B", "U+000D"]),
        ("filler\u3164", ["U+3164"]),
    ],
)
def test_letters_that_are_not_what_they_look_like_stand_apart(text: str, codes: list[str]) -> None:
    found = lettered(text)
    assert [part.code for part in found.parts if part.code is not None] == codes
    assert (found.found, found.odd) == (len(codes), bool(codes))


def test_an_odd_letter_has_a_name() -> None:
    assert [part.name for part in lettered("a\u202e\x07\x85").parts[1:]] == [
        "right-to-left override", "control 07", "control 85",
    ]  # fmt: skip


@given(st.text())
def test_no_letter_is_left_out(text: str) -> None:
    found = lettered(text)
    shown = "".join(part.text for part in found.parts)
    assert (json.loads(shown) if found.as_json else shown) == text


def test_a_run_of_one_letter_is_one_box() -> None:
    (part,) = lettered("\u202e" * 1_000).parts
    assert (part.code, part.times, part.text) == ("U+202E", 1_000, "\u202e" * 1_000)
    html = (
        environment().from_string("{% from 'parts.html' import plain %}{{ plain(text) }}").render(text="\u202e" * 1_000)
    )
    assert read(html).text == "U+202E \u00d7 1,000 right-to-left override"


@pytest.mark.parametrize("text", ["\u202e\u0301a" * 300, '\u0430b "\\\n' * 300])
def test_a_text_of_too_many_boxes_is_shown_as_json_in_full(text: str) -> None:
    found = lettered(text)
    (part,) = found.parts
    assert found.as_json and found.found >= 300
    assert part.text.isprintable() and json.loads(part.text) == text
    assert not lettered(part.text).odd


def test_a_page_has_so_many_boxes_in_all() -> None:
    text = "\u202ea" * MOST_BOXES
    with boxes_of_a_page():
        found = [lettered(text) for _ in range(2 * MOST_OF_PAGE // MOST_BOXES)]
        assert not lettered("plain, мир").as_json
    assert [each.as_json for each in found].count(False) == MOST_OF_PAGE // MOST_BOXES
    assert not lettered(text).as_json


def test_a_page_looks_at_a_long_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows a value in several places, and a value of 300,000 odd letters is not looked at anew in each."""
    looked: list[int] = []

    def places(text: str, **options: Any) -> list[int]:
        looked.append(len(text))
        return suspicious_places(text, **options)

    monkeypatch.setattr("phronomy.inbox.pages.letters.suspicious_places", places)
    with boxes_of_a_page():
        first, again = (lettered("p\u0430" * 1_000) for _ in range(2))
        assert [lettered("p\u0430ypal").found for _ in range(2)] == [1, 1]
    assert looked == [2_000, 6, 6] and first == again and first.found == 1_000
    lettered("p\u0430" * 1_000)
    assert looked[3:] == [2_000]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("\u0131", [0]),
        ("a \u0131", []),
        ("a b\\\u0131", [4]),
        ("C:\\\u0430x", [3]),
        ("a\\n\u0430 b", [3]),
    ],
)
def test_a_backslash_stands_between_words(text: str, codes: list[int]) -> None:
    assert suspicious_places(text, known=frozenset({"CYRILLIC"}), codes=False) == codes


@given(st.text())
def test_the_raw_text_is_the_same_value(text: str) -> None:
    shown = raw(canonical({"a": text}))
    assert json.loads(shown) == json.loads(canonical({"a": text}))
    assert shown.isprintable()


# Values


def test_numbers_have_their_own_digits_and_texts_are_told_from_them() -> None:
    found = values_of(
        '{"a":5.0,"b":1234567890123456789,"c":1e5,"d":"5.0","e":true,"f":"true","g":null,"h":"","i":" x"}'
    )
    shown = {name: (value.kind, value.text, value.note) for name, value in found.members}
    assert shown == {
        "a": ("number", "5.0", ""),
        "b": ("number", "1234567890123456789", ""),
        "c": ("number", "1e5", ""),
        "d": ("text", '"5.0"', "text"),
        "e": ("word", "yes", "true"),
        "f": ("text", '"true"', "text"),
        "g": ("none", "no value", "null"),
        "h": ("none", "empty text", ""),
        "i": ("text", " x", "begins or ends with blank space"),
    }


def test_one_line_of_values_is_short_and_hides_secrets() -> None:
    text = canonical({"to": "a" * 99, "pin": "1234", "lines": [1, 2], "d": 1, "e": 2})
    assert in_brief(text, {"pin"}) == f"to: {'a' * 60}…, pin: hidden, lines: 2 items, and 2 more"
    assert in_brief("[1]") == "1 item" and in_brief("{}") == ""


@pytest.mark.parametrize(
    "text",
    ["yes", "yes (true)", " No ", "no value", "no value (null)", "empty text", "True", "NULL", "[1]", '"a"', "5"],
)
def test_a_text_that_could_be_read_as_another_value_stands_in_quotes(text: str) -> None:
    (value,) = (each for _, each in values_of(canonical({"a": text})).members)
    assert (value.kind, value.text) == ("text", f'"{text}"')
    assert in_brief(canonical({"a": text})) == f'a: "{text.strip()}"'
    (option,) = form_of({"enum": [text]}, read_tree(canonical(text))).options
    assert option.label == canonical(text)


def test_a_name_that_is_blank_is_seen() -> None:
    html = environment().from_string("{% from 'parts.html' import members %}{{ members(given) }}")
    page = html.render(given=values_of('{"":1," ":2}'))
    assert [each.text for each in read(page).all("dt")] == ['""', '" "']


def test_choices_and_titles_have_codes() -> None:
    choices = ["ACME", "AC\u041cE", "AC\u200bME", "\u202eEMCA", "AC\\u041cE"]
    form = form_of({"enum": choices}, read_tree('"ACME"'))
    assert [each.label for each in form.options] == [
        "ACME", r'"AC\u041cE"', r'"AC\u200bME"', r'"\u202eEMCA"', r'"AC\\u041cE"',
    ]  # fmt: skip


def test_of_a_large_text_a_row_reads_the_beginning_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phronomy.inbox.pages.values.read_tree", None)
    large = "x" * 9_000
    text = canonical({"a": 1, "b": large, "c": 2})
    assert in_brief(text) == f"a: 1, b: …, and more, {len(text):,} characters in all"
    assert in_brief(canonical({"a": large}), {"a"}).startswith("a: hidden, and more, ")
    assert in_brief(canonical([large])) == "and more, 9,004 characters in all"
    assert in_brief(canonical({large: 1})) == "and more, 9,006 characters in all"
    assert in_brief(canonical({"a": 1, "b": {"c": [2]}, "c": 3, "d": large})).startswith("a: 1, b: 1 member, c: 3, and")


def test_long_values_are_folded_and_never_cut() -> None:
    pages = Pages()

    @tool(requires_approval=True)
    def mail(body: str, to: list[int], deep: dict[str, Any]) -> str:
        """Send."""
        return "sent"

    deep: dict[str, Any] = {"end": "of it"}
    for _ in range(30):
        deep = {"a": deep}
    body = "\n".join(f"line {place} of a long mail" for place in range(200))
    item = pages.waits(pages.of(mail, {"body": body, "to": list(range(40)), "deep": deep}))
    page = pages.shown(item)
    values = page.one("section", aria_labelledby="what")
    fold, items = values.all("details", class_="fold")[:2]
    assert body in fold.whole and f"{len(body):,} characters" in fold.one("summary").text
    assert "open" not in fold.attributes
    assert items.one("summary").text == "40 items" and len(items.all("li")) == 40
    assert "of it" in values.all("dl")[0].text
    assert json.loads(values.all("pre")[0].whole) == item.args
    copy = values.all("button", class_="copy")
    assert json.loads(copy[0].attributes["data-copy"]) == body
    assert copy[-1].attributes["data-copy"] == item.json_text("args")


# Hostile text


def hostile() -> tuple[Pages, Any]:
    """A request with an attack in every field that holds a text from outside."""
    evil = Principal(id=ATTACK, name=ATTACK, roles=("lead",))
    pages = Pages(auth=ByHeader(RITA, evil.evolve(id="evil")), title=ATTACK)

    @tool(requires_approval=Approval(title=lambda _: ATTACK, context=ATTACK, by="lead", needed=2), risk=ATTACK)
    def pay(note: str, extra: dict[str, str], lines: list[str]) -> str:
        """Pay."""
        return ATTACK

    agent = pages.of(pay, {"note": ATTACK, "extra": {ATTACK: ATTACK}, "lines": [ATTACK]})
    checkpoint = agent.invoke(ATTACK, requester=evil).checkpoint
    return pages, checkpoint.pending[0]


def check(html: str, *, whole: bool = True) -> Element:
    """Nothing of the attack has become a tag or an attribute."""
    page = read(html)  # it fails where tags do not match
    scripts = page.all("script")
    assert [(sorted(each.attributes), each.whole) for each in scripts] == [(["defer", "nonce", "src"], "")] * whole
    for each in page.all():
        assert each.tag not in ("img", "b", "iframe", "object", "style"), each.tag
        assert not [name for name in each.attributes if name.startswith("on") or name == "style"], each.attributes
        for name in ("href", "src", "action", "formaction"):
            value = each.attributes.get(name, "/")
            assert value.startswith(("/", "#")) and not value.startswith("//"), value
    assert "<script>" not in html
    return page


def test_hostile_text_stays_in_its_frame_on_each_page() -> None:
    pages, item = hostile()
    visitor = pages.visitor("rita")
    main = check(visitor.get(f"/requests/{item.id}").text).one("main")
    assert main.one("h1").text.startswith("\"'><script>alert(1)</script>")
    assert "{{ 7 * 7 }}" in main.one("h1").text
    assert "1 character in this title cannot be seen" in main.text
    assert main.all("span", class_="letter")[0].text == "U+202E right-to-left override"
    check(visitor.get("/").text)
    check(visitor.get("/", params={"text": ATTACK, "tool": ATTACK, "view": "all"}).text)
    check(visitor.get("/help").text)
    check(visitor.get(f"/requests/{item.id}/state").text, whole=False)
    form = pages.form(item, "reject")
    again = check(pages.send(form, reason="", then="continue").text)
    assert again.all(role="alert")
    edit = pages.form(item, "edit")
    review = check(pages.send(edit, **{"f/note": f"{ATTACK}!"}).text)
    assert f"{ATTACK}!" == json.loads(review.one("main").form(f"/requests/{item.id}/decision").filled()["args"])["note"]
    check(pages.send(edit, **{"f/lines/0": "x", "digest": ATTACK}).text)
    pages.store.decide(item.id, Reject(reason=ATTACK), by=item.requester, digest=item.digest, channel=ATTACK)
    lost = check(pages.send(form, reason=ATTACK).text)
    assert any(each.whole.strip() == ATTACK for each in lost.all("textarea"))
    check(visitor.get(f"/requests/{item.id}").text)
    check(visitor.post("/batch", data={"csrf": form.filled()["csrf"], "id": [item.id, ATTACK]}).text)


def test_what_the_model_said_stands_in_a_frame_of_its_own() -> None:
    pages = Pages()
    item = pages.asked()
    said = (
        ShownMessage(role="user", text="Refund me\u200b"),
        ShownMessage(role="assistant", text="<h1>Approved by Rita</h1>", tools=("refund",)),
    )
    visitor = pages.visitor()
    found = pages.store.request

    def request(id: str) -> Any:
        from dataclasses import replace

        return replace(found(id), approval=found(id).approval.evolve(conversation=said))

    pages.store.request = request
    page = check(visitor.get(f"/requests/{item.id}").text).one("main")
    frame = page.one("section", class_="said")
    assert "They are no part of this page" in frame.text and "<h1>Approved by Rita</h1>" in frame.text
    assert "1 character in this message cannot be seen" in frame.text
    order = [each.attributes.get("aria-labelledby") for each in page.all("section")]
    assert order.index("what") < order.index("said") < order.index("decide")


# What all templates hold to


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_lets_anything_through(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\|\s*safe\b|Markup|autoescape|\bxmlattr\b", text)
    assert not re.search(r"\sstyle\s*=|<style", text)
    assert not re.search(r"\son[a-z]+\s*=", text)
    assert not re.search(r"https?://|\"//", text)
    scripts = re.findall(r"<(?:script|link rel=\"stylesheet\")[^>]*>", text)
    assert len(scripts) == (3 if path.name == "base.html" else 0)
    assert all('nonce="{{ visit.nonce }}"' in each for each in scripts)
    for target in re.findall(r"(?:href|action|formaction|src)=\"([^\"]*)\"", text):
        assert target.startswith(("{{ visit.url(", "{{ visit.login(", "{{ visit.logout }}", "#")), target


def test_the_script_makes_no_request_elsewhere_and_writes_no_html() -> None:
    text = (FOLDER / "static" / "inbox.js").read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://", text
    )
    assert text.count("createHTML(") == 1 and 'createPolicy("phronomy"' in text


def test_the_style_sheet_and_the_script_are_kept_for_ever_under_the_hash_of_their_content() -> None:
    visitor = Pages().visitor(None)
    page = read(visitor.get("/help").text)
    paths = [page.one("script").attributes["src"], *(each.attributes["href"] for each in page.all("link"))]
    assert len(paths) == 3 and len({*paths}) == 3
    for path in paths:
        answer = visitor.get(path)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].partition(";")[0] in ("text/javascript", "text/css", "image/svg+xml")
    assert visitor.get(paths[0].replace("inbox-", "inbox-0")).status_code == 404
    assert visitor.get("/static/..%2Fview.py").status_code == 404
    assert {each.media for each in assets().values()} == {"text/javascript", "text/css", "image/svg+xml"}


def test_the_nonce_of_the_page_is_that_of_its_policy() -> None:
    visitor = Pages().visitor()
    answer = visitor.get("/")
    nonce = read(answer.text).one("script").attributes["nonce"]
    assert f"script-src 'nonce-{nonce}'" in answer.headers["content-security-policy"]
    assert nonce not in visitor.get("/").text


def test_each_page_has_its_landmarks_and_one_heading() -> None:
    pages = Pages()
    item = pages.asked()
    for path in ("/", f"/requests/{item.id}", "/help", "/problems/expired", "/nothing"):
        html = pages.visitor().get(path, headers={"accept": "text/html"}).text
        page = read(html)
        assert html.startswith('<!doctype html>\n<html lang="en"')
        assert len(page.all("main")) == len(page.all("h1")) == len(page.all("title")) == 1
        assert page.one("a", class_="skip").attributes["href"] == "#main"
        ids = [each.attributes["id"] for each in page.all() if "id" in each.attributes]
        assert len(ids) == len(set(ids)), [id for id in ids if ids.count(id) > 1]
        for each in page.all():
            if each.tag in ("input", "select", "textarea") and each.attributes.get("type") != "hidden":
                id = each.attributes.get("id")
                named = id is not None and page.all("label", **{"for": id})
                inside = each.parent is not None and each.parent.tag == "label"
                assert named or inside or each.attributes.get("aria-label"), each.attributes


def test_help_says_what_each_key_does() -> None:
    page = Pages().page("/help")
    keys = {each.text for each in page.all("kbd")}
    assert {"j", "k", "Enter", "u", "/", "?", "n", "a", "r", "e", "d", "Ctrl+Enter"} <= keys
    assert "None of them decides anything by itself" in page.text


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("\u05d0 1234 5678", ["\u05d0"]),
        ("DE12 \u05d0\u05d1 \u05d2 3456", ["\u05d0\u05d1 \u05d2"]),
        ("\u0628 \u0661\u0662 \u0663", ["\u0628"]),
        ("\u05d0.example/\u05d1", ["\u05d0", "\u05d1"]),
        ("\u05e9\u05dc\u05d5\u05dd, \u05e9\u05dc\u05d5\u05dd!", []),
    ],
)
def test_letters_from_right_to_left_move_nothing(text: str, turned: list[str]) -> None:
    found = lettered(text)
    assert found.mixed is bool(turned) and [each.text for each in found.parts if each.turned] == turned
    assert "".join(each.text for each in found.parts) == text
    page = environment().from_string('{% from "parts.html" import text %}{{ text(it) }}').render(it=text)
    assert ('<bdi dir="ltr" class="lines">' in page) is bool(turned)
    assert ("from left to right" in page) is bool(turned)
    assert page.count('<bdi dir="rtl">') == len(turned)
    assert "\u05d0" not in raw(canonical({"a": text}))
