"""What the inbox says of what went wrong: at its field, with what to do, and to somebody who stays signed in."""

from __future__ import annotations

from typing import Annotated

import pytest
from inbox_scenes import RITA, ByHeader
from page_reader import read
from page_scenes import Pages
from pydantic import AfterValidator, BaseModel, model_validator

from phronomy import Principal, interrupt, tool
from phronomy.foundation.json_text import JsonDict
from phronomy.inbox.auth.limits import slow_down
from phronomy.inbox.pages.forms.fields import form_of
from phronomy.inbox.pages.words import called
from phronomy.tools.context import InvalidArguments


def _at_most_100(amount: float) -> float:
    if amount > 100:
        raise ValueError("no more than 100 euros")
    return amount


class Address(BaseModel):
    street: str


class Line(BaseModel):
    text: str
    cents: int

    @model_validator(mode="after")
    def _worth(self) -> Line:
        if self.cents == 0:
            raise ValueError("a line is worth money")
        return self


@tool(requires_approval=True, redact={"pin"})
def refund(
    amount: Annotated[float, AfterValidator(_at_most_100)], lines: list[Line] | None = None, pin: int = 1
) -> str:
    """Refund."""
    return "done"


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ('{"amount": 500}', (("/amount", "No more than 100 euros"),)),
        ("{}", (("/amount", "Field required"),)),
        ('{"amount": 1, "lines": [{"text": "a", "cents": 1}, {"text": "b", "cents": 0}]}', (("/lines/1", "A line is worth money"),)),
        ('{"amount": 1, "lines": [{"text": "a"}]}', (("/lines/0/cents", "Field required"),)),
        ('{"amount": 1, "pin": "secret"}', (("/pin", "not valid (int_parsing)"),)),
    ],
)  # fmt: skip
def test_a_tool_says_what_is_wrong_where(arguments: str, places: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        refund.read(arguments)
    assert caught.value.places == places


def test_what_only_the_tool_refuses_is_told_at_its_field(pages: Pages) -> None:
    agent = pages.of(refund, {"amount": 5.0})
    pages = Pages(pages.store, agents=[agent])
    item = pages.waits(agent)
    page = pages.sent(pages.form(item, "edit"), status=422, **{"f/amount": "500"})
    link = page.one(role="alert").one("a")
    assert link.text == "amount: No more than 100 euros"
    assert page.one(id=link.attributes["href"][1:]).attributes["name"] == "f/amount"
    assert "Value error" not in page.text


def test_what_is_no_json_is_told_once(pages: Pages) -> None:
    form = pages.shown(pages.asked()).one("details", data_way="edit").all("form")[1]
    assert "This is no JSON: Expecting" in pages.sent(form, status=422, args="{").one(role="alert").text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/batch", 405)])
def test_who_meets_no_page_stays_signed_in(pages: Pages, method: str, path: str, status: int) -> None:
    answer = pages.visitor().get(path, headers={"accept": "text/html"})
    assert answer.status_code == status
    page = read(answer.text)
    assert page.one(class_="who-name").text == "Signed in as Rita"
    assert page.one("nav", class_="nav").one("a", href="/runs")
    stranger = read(pages.visitor(None).get(path, headers={"accept": "text/html"}).text)
    assert not stranger.all(class_="who-name") and not stranger.all("nav")


def test_a_program_with_a_cookie_is_told_which_header_is_missing(pages: Pages) -> None:
    item = pages.asked()
    visitor = pages.visitor()
    path = f"/api/v1/requests/{item.id}/decision"
    answer = visitor.post(path, json={"answer": "approve"})
    assert answer.status_code == 403 and "X-CSRF-Token" in answer.json()["detail"]
    assert pages.store.request(item.id).status == "pending"


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "Wait 1 second, and"), (41.2, "Wait 42 seconds, and")])
def test_who_is_too_fast_reads_how_long_to_wait(seconds: float, words: str) -> None:
    class Busy(ByHeader):
        async def identify(self, request: object) -> None:
            raise slow_down(seconds)

    answer = Pages(auth=Busy(RITA)).visitor().get("/")
    page = read(answer.text).one("main").text
    assert answer.status_code == 429 and words in page and "Retry-After" not in page


# People and questions


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (Principal(id="rita"), "rita"),
        (Principal(id="rita", name="Rita"), "Rita"),
        (Principal(id="oidc:http://localhost:5556/dex#rita"), "rita (localhost:5556)"),
        (Principal(id="oidc:https://id.example#rita", name="Rita"), "Rita"),
    ],
)
def test_people_are_called_by_their_name(who: Principal, words: str) -> None:
    assert called(who) == words


def test_the_whole_id_of_who_asked_stands_on_the_page_since_names_are_chosen_by_their_owners(pages: Pages) -> None:
    who = Principal(id="oidc:https://id.example#rita")
    item = pages.agent().invoke("Refund it", requester=who).checkpoint.pending[0]
    page = pages.shown(item)
    assert who.id in page.text
    (record,) = [each for each in page.all("details") if each.all("summary")[0].text == "For the record"]
    assert who.id in record.text
    assert who.id in pages.page("/").text


@pytest.mark.parametrize(
    ("answer", "ways"),
    [
        (Address, ["respond", "reject"]),
        (bool, ["approve", "reject", "respond"]),
        (None, ["respond", "reject", "approve"]),
    ],
)
def test_a_question_shows_itself_and_the_answers_that_it_can_take(
    pages: Pages, answer: type | None, ways: list[str]
) -> None:
    @tool
    def ask(order: int) -> str:
        """Ask."""
        question = {"two": ["Baker Street", "Elm Row"]}
        return str(interrupt(question) if answer is None else interrupt(question, answer=answer))

    page = pages.shown(pages.waits(pages.of(ask, {"order": 1})))
    assert [each.one("dt").text for each in page.one("dl", class_="values").all("div")] == ["two"]
    assert "payload" in page.one("pre", class_="raw").text
    bar = page.one("div", class_="bar")
    assert [
        each.attributes.get("data-way") or each.attributes["data-open"]
        for each in bar.all(class_="choice") + bar.all("a")
    ] == ways[:2]
    there = [each.attributes["data-way"] for each in page.all(class_="choice")]
    assert there == ways


def test_a_change_is_told_in_words(pages: Pages) -> None:
    item = pages.asked()
    form = pages.shown(item).one("details", data_way="edit").all("form")[1]
    change = pages.sent(form, args='{"order": 7, "amount": 5.0}').one("dl", class_="diff")
    assert [each.text for each in change.all("span", class_="side")] == ["before:", "now:", "before:"]
    assert "left out: the tool takes its default" in change.text
    assert not change.all(class_="sr")


@pytest.mark.parametrize(
    ("told", "hint"),
    [
        ("Euros, at most 500.", "Euros, at most 500. At least 5."),
        ("Euros.", "Euros. At least 5 and at most 500."),
        ("", "A number. At least 5 and at most 500."),
    ],
)
def test_a_hint_says_nothing_twice(told: str, hint: str) -> None:
    described: JsonDict = {"type": "number", "minimum": 5, "maximum": 500, **({"description": told} if told else {})}
    assert form_of(described, None).hint == hint
