"""The list of what waits, and several requests decided at once."""

from __future__ import annotations

from typing import Any

import pytest
from inbox_api_scenes import api_of
from inbox_scenes import OTTO
from page_reader import Element, read
from page_scenes import Pages

from phronomy import Agent, Approval, Approve, tool
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, Question, Timer, wait_for_first


@pytest.fixture
def pages() -> Pages:
    return Pages()


def rows(page: Element) -> list[str]:
    """The headings of the rows."""
    return [row.one("h2").text for row in page.all("li", class_="row")]


def test_a_row_says_what_is_asked_by_whom_and_until_when(pages: Pages) -> None:
    pages.asked(
        Approval(title="Refund order 1042", context="The parcel\nis lost.", by="lead", needed=2, expires=1800),
        risk="high",
    )
    page = pages.page("/")
    (row,) = page.all("li", class_="row")
    assert row.one("h2").text == "Refund order 1042"
    assert row.one("p", class_="line").text == "The parcel is lost."
    facts = row.one("p", class_="facts").text
    for part in ("high risk", "0 of 2 votes", "in 30 minutes", "asked just now", "for Ann", "desk", "refund"):
        assert part in facts, part
    times = [each.attributes["datetime"] for each in row.all("time")]
    assert times == ["2026-11-25T09:30:00Z", "2026-11-25T09:00:00Z", "2026-11-25T09:00:00Z"]
    assert row.all("input") == [] and "1 request for you, oldest first" in page.text


def test_without_words_of_the_code_a_row_has_the_tool_and_its_values(pages: Pages) -> None:
    pages.asked()
    (row,) = pages.page("/").all("li", class_="row")
    assert row.one("h2").text == "Run refund?"
    assert row.one("p", class_="line").text == "order: 1042, amount: 5.0, note: no value"


def test_what_its_tool_marks_as_secret_is_in_no_row_and_folded_on_the_page(pages: Pages) -> None:
    agent = pages.agent(redact={"note"})
    agent2 = Pages(pages.store, agents=[agent])
    item = pages.waits(agent)
    assert "note: hidden" in agent2.page("/").text
    values = agent2.shown(item).one("dl", class_="values")
    assert "Marked as secret by its tool" in values.all("summary")[0].text


def test_a_list_for_me_and_a_list_of_all(pages: Pages) -> None:
    pages.asked(Approval(title="For leads", by="lead"))
    pages.asked(Approval(title="For clerks", by="clerk"), name="other")
    assert rows(pages.page("/")) == ["For leads"]
    assert rows(pages.page("/", "otto")) == ["For clerks"]
    page = pages.page("/?view=all")
    assert rows(page) == ["For leads", "For clerks"]
    assert [each.text for each in page.one("nav", class_="tabs").all("a", aria_current="page")] == ["All"]
    assert "2 requests" in page.text and "1 of clerk" in page.all("li", class_="row")[1].text


def test_what_no_person_answers_is_not_among_what_waits_for_people(pages: Pages) -> None:
    """Nor is it counted. The page of the run says what the run waits for, and the API has it on request."""

    @tool
    def ship() -> str:
        """Ship."""
        asked = {"paid": ExternalEvent("payment", senders="bank"), "late": Timer(after=60)}
        return wait_for_first({**asked, "stop": Question("Stop it?", answer=str)}).name

    agent: Agent[Any, str] = Agent(
        name="shop", model=ScriptedModel.by_turn([call("ship")]), tools=[ship], store=pages.store
    )
    at = agent.invoke("Go").checkpoint
    for path in ("/", "/?view=all"):
        page = pages.page(path)
        assert rows(page) == ["Stop it?"] and "1 request" in page.text
    assert "1 request waits in all" in pages.page("/?tool=none").one("div", class_="empty").text
    run_page = pages.page(f"/runs/{at.run_id}").one("section", id="state")
    assert len(run_page.all("li")) == 3 and "Waits for the event 'payment'" in run_page.text
    api = api_of(pages.store)
    for wanted, found in (({}, 1), ({"triggers": "true"}, 3), ({"triggers": "true", "mine": "true"}, 3)):
        assert len(api.read("/requests", **wanted)["items"]) == found
        assert api.read("/requests/count", **wanted)["count"] == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tool=refund", 2), ("tool=pay", 0), ("agent=other", 1), ("risk=high", 1), ("requester=ann", 2), ("requester=bob", 0),
        ("text=order+Second", 1), ("text=1042", 2), ("older=1h", 1), ("expiring=1d", 1), ("expiring=7d&risk=high", 0), ("tool=", 2),
    ],
)  # fmt: skip
def test_filters_stand_in_the_address(pages: Pages, query: str, found: int) -> None:
    pages.asked(Approval(title="First", expires=7200))
    pages.clock.now += 3700
    pages.asked(Approval(title="Second"), name="other", risk="high")
    pages.clock.now += 10
    page = pages.page(f"/?{query}")
    assert len(rows(page)) == found
    for chip in page.all("a", class_="chip"):
        assert chip.attributes["href"].startswith("/")
    if found == 0:
        assert "2 requests wait in all" in page.text
        assert page.all("a", href="/")[-1].text == "Remove all filters"


def test_a_filter_goes_away_by_its_own_link(pages: Pages) -> None:
    page = pages.page("/?view=all&tool=a%26b&risk=high")
    links = {each.attributes["href"] for each in page.all("a", class_="chip")}
    assert {"/?view=all&risk=high", "/?view=all&tool=a%26b"} <= links
    assert [each.attributes["href"] for each in page.one("nav", class_="tabs").all("a")] == [
        "/?tool=a%26b&risk=high",
        "/?view=all&tool=a%26b&risk=high",
    ]


def test_what_is_no_filter_is_refused_by_name(pages: Pages) -> None:
    assert pages.visitor().get("/?older=2h").status_code == 422
    answer = pages.visitor().get("/?after=e30")
    assert answer.status_code == 400 and "This is no cursor of this list" in answer.text


def test_the_empty_lists_say_what_else_there_is(pages: Pages) -> None:
    assert "Nothing waits" in pages.page("/").text
    pages.asked(Approval(by="clerk"))
    page = pages.page("/")
    assert "Nothing waits for you" in page.text and "1 request waits for other people" in page.text
    assert page.one("div", class_="empty").one("a", href="/?view=all").text == "See all"
    assert "Nothing waits with these filters" in pages.page("/?tool=x").text


def test_many_rows_are_paged_and_counted_up_to_a_thousand(pages: Pages) -> None:
    agent = pages.agent()
    for _ in range(60):
        pages.waits(agent)
    page = pages.page("/?tool=refund")
    assert len(rows(page)) == 50 and "60 requests for you" in page.text
    link = page.one("a", rel="next").attributes["href"]
    assert link.startswith("/?tool=refund&after=")
    second = pages.page(link)
    assert len(rows(second)) == 10 and not second.all("a", rel="next")
    assert second.one("a", href="/?tool=refund", class_="button").text == "First page"
    for waiting in pages.store.pending():
        pages.store.decide(waiting.approval.id, Approve(), by=OTTO, digest=waiting.approval.digest)
    assert "This page is empty" in pages.page(link).text


def test_a_request_leads_back_to_its_list_and_on_to_the_next_one(pages: Pages) -> None:
    first, second = pages.asked(), pages.asked(name="other")
    pages.asked(Approval(by="clerk"), name="third")
    path = pages.page("/?tool=refund").all("li", class_="row")[0].one("a").attributes["href"]
    assert path == f"/requests/{first.id}?list=tool%3Drefund"
    page = pages.page(path)
    assert page.attributes["data-back"] == "/?tool=refund"
    answer = pages.send(page.one("form", data_way="approve"))
    there = answer.headers["location"]
    assert there == f"{path}#result"
    after = pages.page(there.partition("#")[0])
    assert after.one("a", id="next").attributes["href"] == f"/requests/{second.id}?list=tool%3Drefund"
    last = pages.page(after.one("a", id="next").attributes["href"])
    pages.send(last.one("form", data_way="approve"))
    assert not pages.page(f"/requests/{second.id}?list=tool%3Drefund").all("a", id="next")


@pytest.mark.parametrize(
    "listed", ["tool=x&older=no", "//evil.example", "a" * 9_000, "&".join("a=b" for _ in range(40))]
)
def test_a_list_that_is_none_leads_to_the_whole_one(pages: Pages, listed: str) -> None:
    item = pages.asked()
    answer = pages.visitor().get(f"/requests/{item.id}", params={"list": listed})
    assert read(answer.text).one("main").attributes["data-back"] == "/"


# Several at once


def ticked(pages: Pages, *items: Any, who: str = "rita") -> Element:
    """The page on which the ticked requests are reviewed."""
    form = pages.page("/?view=all", who).form("/batch")
    boxes = {each.attributes["value"] for each in form.all("input", type="checkbox")}
    sent = [(name, value) for name, value in form.sent() if name != "id"] + [("id", item.id) for item in items]
    assert {item.id for item in items} <= boxes | {item.id for item in items if item.tool.risk == "high"}
    answer = pages.visitor(who).post("/batch", data=_fields(sent))
    assert answer.status_code == 200, answer.text
    return read(answer.text).one("main")


def _fields(sent: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in sent:
        found.setdefault(name, []).append(value)
    return found


def confirmed(pages: Pages, page: Element, way: str, **changes: str) -> Any:
    form = page.one("form", data_way="approve") if way == "approve" else page.one("details", data_way=way).one("form")
    return pages.visitor().post("/batch", data={**_fields(form.sent()), **changes})


def test_ticked_requests_are_shown_in_full_and_approved(pages: Pages) -> None:
    items = [pages.asked(name=f"desk{place}") for place in range(3)]
    page = ticked(pages, *items[:2])
    assert page.one("h1").text == "2 requests, each in full"
    assert [each.text for each in page.all("p", class_="digest")] == [f"Digest {item.digest}" for item in items[:2]]
    answer = confirmed(pages, page, "approve")
    done = read(answer.text).one("main")
    assert "2 of 2 recorded" in done.text and done.text.count("Approved by you") == 2
    kinds = [pages.store.request(item.id).decision for item in items]
    assert [each is not None and each.kind for each in kinds] == ["approve", "approve", False]
    again = read(confirmed(pages, page, "approve").text).one("main")
    assert "2 of 2 recorded" in again.text
    assert len([each for each in pages.store.audit() if each.pending_id == items[0].id]) == 1


def test_a_rejection_of_several_needs_a_reason(pages: Pages) -> None:
    items = [pages.asked(name=f"desk{place}") for place in range(2)]
    page = ticked(pages, *items)
    answer = confirmed(pages, page, "reject", reason=" ")
    assert answer.status_code == 422 and "Say why" in answer.text
    assert confirmed(pages, page, "reject", reason="Closed today.").status_code == 200
    for item in items:
        decision = pages.store.request(item.id).decision
        assert decision is not None and decision.reason == "Closed today."


def test_risky_ones_and_what_is_no_plain_approval_are_left_out(pages: Pages) -> None:
    plain, risky = pages.asked(), pages.asked(name="bank", risk="high")
    clerks = pages.asked(Approval(by="clerk"), name="other")
    assert len(pages.page("/?view=all").all("input", name="id")) == 1
    form = pages.page("/?view=all").form("/batch")
    ids = [plain.id, risky.id, clerks.id, "pend_none"]
    page = read(pages.visitor().post("/batch", data={**_fields(form.sent()), "id": ids}).text).one("main")
    assert page.one("h1").text == "1 request, each in full"
    left = page.one("section", class_="notice").text
    assert "of high risk" in left and "1 of clerk" in left and "pend_none" in left
    # Nor does it help to confirm them without that page.
    sent = _fields(page.one("form", data_way="approve").sent())
    answer = pages.visitor().post("/batch", data={**sent, "id": [risky.id], "digest": [risky.digest]})
    assert "0 of 1 recorded" in answer.text and pages.store.request(risky.id).status == "pending"


def test_in_a_batch_each_says_what_came_of_it(pages: Pages) -> None:
    items = [pages.asked(name=f"desk{place}") for place in range(3)]
    page = ticked(pages, *items)
    pages.store.decide(items[0].id, Approve(), by=OTTO, digest=items[0].digest)
    sent = _fields(page.one("form", data_way="approve").sent())
    sent["digest"][1] = "0" * 64
    done = read(pages.visitor().post("/batch", data=sent).text).one("main")
    texts = [each.one("p").text for each in done.all("li", class_="row")]
    assert "1 of 3 recorded" in done.text
    assert (
        "not recorded" in texts[0] and "not the one that you were shown" in texts[1] and "Approved by you" in texts[2]
    )
    assert pages.store.request(items[1].id).status == "pending"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"answer": ["respond"]}, 400),
        ({"digest": []}, 400),
        ({"key": []}, 400),
        ({"csrf": ["x"]}, 403),
        ({"id": ["a"] * 60}, 400),
    ],
)
def test_a_batch_that_is_none_is_refused(pages: Pages, changes: dict[str, list[str]], status: int) -> None:
    item = pages.asked()
    sent = _fields(ticked(pages, item).one("form", data_way="approve").sent())
    changes = {**changes, "id": [f"pend_{place}" for place in range(60)]} if len(changes.get("id", [])) > 1 else changes
    assert pages.visitor().post("/batch", data={**sent, **changes}).status_code == status
    assert pages.store.request(item.id).status == "pending"


def test_nothing_ticked_is_no_batch(pages: Pages) -> None:
    pages.asked()
    assert "Tick some requests" in ticked(pages).text
