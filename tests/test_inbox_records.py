"""The pages of what was: runs, what was said and happened in them, what people decided, and standing grants."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from inbox_scenes import FOUR, RITA, ByHeader, Visitor
from page_reader import Element, read
from page_scenes import MIA, Pages
from pydantic import BaseModel

from phronomy import Agent, Approval, Approve, Breakpoint, Grant, Principal, Reject, tool
from phronomy.debugger.debugger import Debugger
from phronomy.errors import ModelError, NotAnApprover
from phronomy.graph import END, START, StateGraph
from phronomy.inbox.pages.deciding.given import new_key
from phronomy.inbox.pages.records import history, runs
from phronomy.inbox.service import allows_grants
from phronomy.testing import ScriptedModel, call
from phronomy.workers.worker import leave

DAY = 86_400.0


@pytest.fixture
def pages() -> Pages:
    return Pages()


def rows(page: Element) -> list[str]:
    """The headings of the rows."""
    return [row.one("h2").text for row in page.all("li", class_="row")]


def facts(page: Element) -> list[str]:
    return [" ".join(each.text for each in row.all("p", class_="facts")) for row in page.all("li", class_="row")]


# Who may


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/runs", "read"),
        ("/runs/{run}", "read"),
        ("/history", ("audit", "decide")),
        ("/audit", "audit"),
        ("/audit.csv", "audit"),
        ("/audit.ndjson", "audit"),
        ("/grants", "grant"),
        ("/requests/{item}/grant", "grant"),
    ],
)
def test_each_page_needs_its_scope_and_shows_one_tenant(pages: Pages, path: str, scope: Any) -> None:
    item = pages.asked()
    run = pages.store.request(item.id).run_id
    path = path.format(run=run, item=item.id)
    assert pages.visitor().get(path).status_code == 200
    assert pages.visitor(None).get(path).status_code in (303, 401)
    without = Pages(pages.store, auth=ByHeader(RITA, scopes=FOUR - ({scope} if isinstance(scope, str) else {*scope})))
    assert without.visitor().get(path).status_code == 403
    other = Pages(pages.store, auth=ByHeader(RITA, tenant="other"))
    answer = other.visitor().get(path)
    assert answer.status_code == (404 if run in path or item.id in path else 200)
    assert item.id not in answer.text and run not in answer.text


def test_the_header_leads_to_what_somebody_may_see(pages: Pages) -> None:
    def places(scopes: Any) -> list[str]:
        inbox = Pages(pages.store, auth=ByHeader(RITA, scopes=scopes))
        nav = read(inbox.visitor().get("/help").text).one("nav", aria_label="Main")
        return [each.text for each in nav.all("a")]

    assert places(FOUR) == ["Waiting", "Runs", "History", "Grants", "Help"]
    assert places({"read", "decide"}) == ["Waiting", "Runs", "History", "Help"]
    assert places({"read"}) == ["Waiting", "Runs", "Help"]


# Runs


def failing(pages: Pages) -> Agent[Any, str]:
    def reply(request: Any) -> Any:
        raise OSError("secret of the model")

    agent: Agent[Any, str] = Agent(name="broken", model=ScriptedModel.by_turn([reply]), store=pages.store)
    with pytest.raises(ModelError):
        agent.invoke("Go")
    return agent


def test_runs_are_listed_by_how_they_stand(pages: Pages) -> None:
    assert "There is no run yet" in pages.page("/runs").text
    item = pages.asked(name="asks")
    broken = failing(pages)
    plain: Agent[Any, str] = Agent(name="plain", model=ScriptedModel.by_turn(["Done."]), store=pages.store)
    plain.invoke("Go", thread_id="t1")
    gone = pages.asked(name="gone")
    pages.agents["gone"].cancel(pages.store.request(gone.id).run_id, reason="enough")
    page = pages.page("/runs")
    assert rows(page) == ["The user wrote: Refund it", "The user wrote: Go", "The user wrote: Go", "Run refund?"]
    assert [re.findall(r"agent (\w+)", each) for each in facts(page)] == [["gone"], ["plain"], ["broken"], ["asks"]]
    tabs = [each.text for each in page.one("nav", class_="tabs").all("a")]
    assert tabs == ["All 4", "Running 0", "Waiting 1", "Failed 1", "Ended 1", "Cancelled 1"]
    for state, expected in (("waiting", "asks"), ("failed", "broken"), ("ended", "plain"), ("set_aside", "gone")):
        assert f"agent {expected}" in " ".join(facts(pages.page(f"/runs?state={state}")))
    assert "Waits for a person" in facts(pages.page("/runs?state=waiting"))[0]
    empty = pages.page("/runs?state=running&agent=asks")
    assert rows(empty) == [] and "with these filters" in empty.text and "4 runs in all" in empty.text
    assert "agent plain" in " ".join(facts(pages.page("/runs?thread=t1")))
    assert pages.visitor().get("/runs?state=odd").status_code == 422
    waits = pages.page(f"/runs/{pages.store.request(item.id).run_id}")
    assert [each.attributes["href"] for each in waits.one("section", id="state").all("a")] == [f"/requests/{item.id}"]
    (failed,) = [each for each in pages.store.branches() if each.status == "failed"]
    # Its caller was told of the error, so no worker takes it; what failed in the hands of a worker is tried again.
    assert "No worker tries it again" in pages.page(f"/runs/{failed.id}").text
    assert broken.recover_all() == []
    leave(pages.store, (failed.run_id, failed.id), final=True)
    assert "A worker tries it again by itself" in pages.page(f"/runs/{failed.id}").text
    assert [each.branch_id for each in broken.recover_all()] == [failed.id]
    assert "secret of the model" not in pages.page(f"/runs/{failed.id}").text


def test_a_long_list_of_runs_has_pages(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "ROWS", 2)
    agent: Agent[Any, str] = Agent(name="plain", model=ScriptedModel.by_turn(["Done."]), store=pages.store)
    for n in range(5):
        agent.invoke("Go", label=f"run {n}")
        pages.clock.now += 1
    found, path = [], "/runs?agent=plain"
    while path:
        page = pages.page(path)
        found += rows(page)
        path = next((each.attributes["href"] for each in page.all("a", rel="next")), "")
        assert not path or "after=" in path
    assert found == [f"run {n}" for n in reversed(range(5))]
    forged = page.all("a")[0].attributes["href"]
    assert forged and pages.visitor().get("/runs?agent=plain&after=AAAA").status_code == 400
    other = pages.page("/runs?agent=plain").one("a", rel="next").attributes["href"].replace("plain", "other")
    assert pages.visitor().get(other).status_code == 400, "a place counts for the list that it is of"


def talk(pages: Pages, *, secret: bool = False) -> str:
    """A run that says much, and calls a tool with a text that has marks in it: its id."""

    @tool(redact={"note"} if secret else ())
    def look(order: int, note: str) -> str:
        """Look it up."""
        return f"result {order} <script>alert(1)</script>"

    turns = [call("look", {"order": n, "note": "hush\u202e"}) for n in range(25)]
    agent: Agent[Any, str] = Agent(
        name="talker", model=ScriptedModel.by_turn([*turns, "All <b>done</b>."]), tools=[look], store=pages.store
    )
    pages.agents["talker"] = agent
    return agent.invoke("Look <i>all</i> up", requester=Principal(id="ann", name="Ann")).checkpoint.run_id


def test_a_run_shows_what_was_said_its_end_first(pages: Pages) -> None:
    run_id = talk(pages)
    total = len(pages.store.head(run_id)[1].messages)
    inbox = Pages(pages.store, agents=[pages.agents["talker"]])
    page = inbox.page(f"/runs/{run_id}")
    said = page.one("section", class_="said")
    shown = (
        said.one("ol").attributes["start"],
        len([each for each in said.one("ol").children if not isinstance(each, str)]),
    )
    assert shown == (str(total - runs.MESSAGES + 1), runs.MESSAGES)
    assert "All <b>done</b>." in said.text and "result 24 <script>alert(1)</script>" in said.text
    assert page.all("script") == [] and page.all("b") == [] and "U+202E" in said.text
    assert "Completed" in page.text and "On whose behalf Ann" in page.text.replace("behalfAnn", "behalf Ann")
    seen, path = [], f"/runs/{run_id}"
    while path:
        said = inbox.page(path).one("section", class_="said")
        seen = [each.text for each in said.all("blockquote")] + seen
        before = said.all("a", rel="prev")
        path = before[0].attributes["href"].removesuffix("#said") if before else ""
    assert seen[0] == "Look <i>all</i> up" and len([each for each in seen if each.startswith("result")]) == 25
    story = [each.text for each in page.one("section", aria_labelledby="story").all("tr")]
    assert any("talker began" in each for each in story) and any("look ended" in each for each in story)
    assert "The run ended: completed" in story[-1]
    assert pages.visitor().get("/runs/run_none").status_code == 404
    assert pages.visitor().get(f"/runs/{run_id}?before=-1").status_code == 422


def test_what_a_tool_marks_as_secret_is_in_no_conversation(pages: Pages) -> None:
    run_id = talk(pages, secret=True)
    known = Pages(pages.store, agents=[pages.agents["talker"]]).page(f"/runs/{run_id}").text
    assert "hush" not in known and '"order":24' in known.replace(" ", "")
    unknown = pages.page(f"/runs/{run_id}").text
    assert (
        "hush" not in unknown and '"order":24' not in unknown.replace(" ", "") and "does not have the agent" in unknown
    )


def test_a_fork_leads_to_its_run_and_back(pages: Pages) -> None:
    item = pages.asked()
    found = pages.store.request(item.id)
    fork = pages.store.fork(found.checkpoint_id, label="second try")
    (branch,) = [each for each in pages.store.branches() if each.parent_branch is not None]
    assert fork.run_id == found.run_id
    links = [each.attributes["href"] for each in pages.page(f"/runs/{found.run_id}").all("a")]
    assert f"/runs/{branch.id}" in links
    page = pages.page(f"/runs/{branch.id}")
    assert page.one("h1").text == "second try" and f"/runs/{found.run_id}" in [
        each.attributes["href"] for each in page.all("a")
    ]


def test_every_link_holds_under_a_prefix(pages: Pages) -> None:
    item = pages.asked()
    pages.decided(item, "reject", reason="no")
    run_id = pages.store.request(item.id).run_id
    pages.store.grant(Grant(agent="desk", tool="refund", scope="run", run_id=run_id), by=RITA)
    visitor = Visitor(pages.inbox, "rita", prefix="/approvals")
    for path in (
        "/runs",
        f"/runs/{run_id}",
        "/history?tool=refund",
        "/audit",
        "/grants?tool=refund",
        f"/requests/{item.id}/grant",
    ):
        page = read(visitor.get(path).text)
        links = [
            each.attributes[name]
            for name in ("href", "action", "formaction")
            for each in page.all()
            if name in each.attributes
        ]
        assert [each for each in links if not each.startswith(("/approvals", "#"))] == [], path


# History


def decide_all(pages: Pages) -> None:
    """Rita approves twice and rejects once, Mia approves once, and Otto tries."""
    gate = Approval(by="lead", title="Refund")
    for who, answer in (
        (RITA, Approve()),
        (RITA, Approve()),
        (RITA, Reject(reason="=1+1 too <b>late</b>")),
        (MIA, Approve()),
    ):
        item = pages.asked(gate)
        pages.store.decide(item.id, answer, by=who, digest=item.digest, channel="slack")
        pages.clock.now += 60
    item = pages.asked(gate)
    with pytest.raises(NotAnApprover):
        pages.store.decide(item.id, Approve(), by="otto", digest=item.digest, channel="page")


def test_the_history_says_who_decided_what_on_which_evidence(pages: Pages) -> None:
    assert "Nothing was decided yet" in pages.page("/history").text
    decide_all(pages)
    page = pages.page("/history")
    assert rows(page) == [
        "Tried to decide: refund",
        "Approved: refund",
        "Rejected: refund",
        "Approved: refund",
        "Approved: refund",
    ]
    refused, mia, rejected, *_ = page.all("li", class_="row")
    assert "did not count" in refused.text and "by otto" in refused.text
    assert "by Mia" in mia.text and "by way of slack" in mia.text and "25 November 2026, 09:03 UTC" in mia.text
    assert "=1+1 too <b>late</b>" in rejected.text and page.all("b") == []
    (record,) = [each for each in pages.store.audit() if each.by == MIA.without_claims()]
    evidence = mia.one("details", class_="evidence").text
    assert (
        record.digest in evidence and record.policy in evidence and "lead" in evidence and record.branch_id in evidence
    )
    assert f"/requests/{record.pending_id}" in [each.attributes["href"] for each in mia.all("a")]


def test_a_vote_is_told_from_a_decision(pages: Pages) -> None:
    item = pages.asked(Approval(by="lead", needed=2))
    pages.decided(item, "approve", "mia")
    pages.decided(item, "approve")
    page = pages.page("/history")
    assert rows(page) == ["Approved: refund", "Voted for: refund"]
    assert "one vote of several" in facts(page)[1] and rows(pages.page("/history?what=votes")) == ["Voted for: refund"]


def links(page: Element, text: str) -> list[str | None]:
    return [each.attributes.get("href") for each in page.all("a") if each.text == text]


BEFORE = "What was asked before the change"


@pytest.mark.parametrize("alone", [True, False])
def test_an_edit_is_one_row_and_is_found(pages: Pages, alone: bool) -> None:
    """Whether the store alone decides it and a worker checks it, or the agent decides it at once."""
    pages.decided(pages.asked(), "approve")
    item = pages.asked()
    changed = Approve(args={"order": 1043, "amount": 4.0})
    if alone:
        pages.store.decide(item.id, changed, by=RITA, digest=item.digest)
        pages.carry_out()
    else:
        pages.agents["desk"].decide(item.id, changed, by=RITA)
    assert len([*pages.store.audit(pending_id=item.id)]) == 1 + alone
    assert rows(pages.page("/history")) == ["Approved with changes: refund", "Approved: refund"]
    page = pages.page("/history?kind=edited")
    assert (
        rows(page) == ["Approved with changes: refund"]
        and "Approved with changes" in page.one("p", class_="chips").text
    )
    row = page.one("li", class_="row")
    assert ("checked by a worker" in row.text) == alone and "nothing ran" not in row.text
    assert row.one("h2").one("a").attributes["href"] == f"/requests/{item.id}"
    assert "before: 1042 now: 1043" in pages.page(f"/requests/{item.id}").text
    assert rows(pages.page("/history?kind=edit")) == []
    options = page.one("select", id="kind").all("option")
    assert len({each.text for each in options}) == len(options) and "Edited" not in {each.text for each in options}
    lines = pages.visitor().get("/audit.ndjson?kind=edited").text.splitlines()
    assert {json.loads(each)["pending_id"] for each in lines} == {item.id} and len(lines) == 1 + alone


@pytest.mark.parametrize("alone", [True, False])
def test_an_edit_on_which_others_vote_leads_to_what_was_asked_before(pages: Pages, alone: bool) -> None:
    """One row of who edits, one of who decides. Both are found; neither the vote nor the worker's check stands there twice."""
    item = pages.asked(Approval(by="lead", needed=2))
    changed, there = Approve(args={"order": 1043, "amount": 4.0}), f"/requests/{item.id}"
    if alone:
        pages.store.decide(item.id, changed, by=RITA, digest=item.digest)
        pages.carry_out()
    else:
        pages.agents["desk"].decide(item.id, changed, by=RITA)
    (waiting,) = pages.store.pending()
    now = waiting.approval
    assert links(pages.page(f"/requests/{now.id}"), BEFORE) == [there] and links(pages.page(there), BEFORE) == []
    pages.clock.now += 60
    pages.decided(now, "approve", "mia")
    assert len([*pages.store.audit()]) == 3 + alone
    both = ["Approved with changes: refund", "Voted for, with changes: refund"]
    for path in ("/history", "/history?kind=edited", f"/history?request={now.id}"):
        page = pages.page(path)
        assert rows(page) == both and links(page, BEFORE) == [there, there], path
        heads = [each.one("h2").one("a").attributes["href"] for each in page.all("li", class_="row")]
        assert heads == [f"/requests/{now.id}"] * 2
    assert rows(pages.page(f"/history?request={item.id}")) == ["Approved with changes: refund"]
    section = pages.page("/history").one("section", aria_labelledby="counts").one("tbody")
    assert [[each.text for each in line.all("td")][1:3] for line in section.all("tr")] == [
        ["Mia (mia)", "1"],
        ["Rita (rita)", "1"],
    ]
    assert links(pages.page(f"/requests/{now.id}"), BEFORE) == [there]


def test_steps_of_one_moment_are_told_apart(pages: Pages) -> None:
    """A person edits two requests at once, and others have to follow: each row leads to its own request before the change."""
    gate = Approval(by="lead", needed=2)
    pairs: dict[str, str] = {}
    for order in (1, 2):
        item = pages.asked(gate)
        pages.agents["desk"].decide(item.id, Approve(args={"order": order, "amount": 4.0}), by=RITA)
        (now,) = [each.approval.id for each in pages.store.pending() if each.approval.id not in pairs]
        pairs[now] = item.id
    page = pages.page("/history")
    assert {row.one("h2").one("a").attributes["href"]: links(row, BEFORE) for row in page.all("li", class_="row")} == {
        f"/requests/{now}": [f"/requests/{before}"] for now, before in pairs.items()
    }


class Sum(BaseModel):
    n: int = 0


def test_an_edit_of_a_state_leads_to_its_run(pages: Pages) -> None:
    graph = StateGraph(Sum, name="sums").add_node("add", lambda state: {"n": state.n + 1}, requires_approval=True)
    built = graph.add_edge(START, "add").add_edge("add", END).compile(store=pages.store)
    stopped = built.invoke({"n": 1}).checkpoint
    built.resume(stopped, approved=True, modify_state=lambda path, state: Sum(n=5), by="rita")
    page = pages.page("/history?kind=edit")
    assert rows(page) == ["Changed the state: the run of sums"]
    row = page.one("li", class_="row")
    assert [each.attributes["href"] for each in row.one("h2").all("a")] == [f"/runs/{stopped.branch_id}"]


def test_approvals_are_counted_for_each_tool_and_person(pages: Pages) -> None:
    decide_all(pages)

    def counts(path: str) -> list[list[str]]:
        section = pages.page(path).one("section", aria_labelledby="counts")
        return [[each.text for each in line.all("td")] for line in section.one("tbody").all("tr")]

    assert counts("/history") == [["refund", "Rita (rita)", "2", "0", "1"], ["refund", "Mia (mia)", "1", "0", "0"]]
    assert counts("/history?person=mia") == [["refund", "Mia (mia)", "1", "0", "0"]]
    granted = pages.agent(Approval(by="lead", standing=True), name="granted")
    pages.store.grant(Grant(agent="granted", tool="refund", scope="tenant", uses=1), by=MIA)
    granted.invoke("Refund it")
    assert ["refund", "Mia (mia)", "1", "1", "0"] in counts("/history")
    assert rows(pages.page("/history?what=grants")) == ["Approved: refund"]
    pages.clock.now += 31 * DAY
    assert pages.page("/history").all("section", aria_labelledby="counts") == []
    assert len(rows(pages.page("/history"))) == 6


def test_stops_of_a_debugger_are_no_approvals(pages: Pages) -> None:
    stepped = Debugger(pages.agent(name="stepped"), by=RITA)
    stepped.start("Refund it")
    while stepped.pending is None or stepped.pending.why == "breakpoint":
        stepped.step()
    stepped.approve()
    halted = pages.agent(name="halted")
    stopped = halted.invoke("Refund it", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    halted.resume(stopped, by=RITA, channel="inbox")
    page = pages.page("/history")
    assert rows(page) == ["Let go on: pre_agent_run", "Approved: refund"]
    section = page.one("section", aria_labelledby="counts").one("tbody")
    assert [[each.text for each in line.all("td")] for line in section.all("tr")] == [
        ["refund", "Rita (rita)", "1", "0", "0"]
    ]
    stops = rows(pages.page("/history?what=stops"))
    assert stops == ["Let go on: pre_agent_run"]
    trail = pages.visitor().get("/audit.ndjson").text.splitlines()
    assert len(trail) == len(stops) + 2


def test_filters_of_the_history(pages: Pages) -> None:
    decide_all(pages)
    run_id = next(iter(pages.store.audit())).run_id
    for query, expected in (
        ("person=mia", 1),
        ("person=otto", 1),
        ("tool=refund", 5),
        ("tool=other", 0),
        ("kind=reject", 1),
        ("what=refused", 1),
        ("what=votes", 0),
        (f"run={run_id}", 1),
        ("since=2026-11-25", 5),
        ("until=2026-11-24", 0),
        ("since=2026-11-26", 0),
        ("kind=approve&person=rita&until=2026-11-25", 2),
    ):
        page = pages.page(f"/history?{query}")
        assert len(rows(page)) == expected, query
        assert len(page.one("p", class_="chips").all("a")) == query.count("=")
        assert expected or "with these filters" in page.text
    for query in ("kind=odd", "since=yesterday", "what=odd"):
        assert pages.visitor().get(f"/history?{query}").status_code == 422


@pytest.mark.parametrize("path", ["/history", "/audit", "/audit.csv", "/audit.ndjson", "/runs", "/grants"])
def test_an_unknown_filter_is_refused_by_its_name(pages: Pages, path: str) -> None:
    """Who exports a trail must not take all of it for the part that they asked for."""
    answer = pages.visitor().get(f"{path}?text=ACME")
    assert answer.status_code == 422 and "/text" in read(answer.text).one("main").text and "ACME" not in answer.text


def test_a_long_history_has_pages_and_looks_at_so_many(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROWS", 3)
    for n in range(8):
        item = pages.asked()
        pages.store.decide(item.id, Reject(reason=f"reason {n}"), by=RITA if n else MIA, digest=item.digest)
        pages.clock.now += (0, 1, 7200, 400 * DAY)[n % 4]

    def walk(path: str) -> list[str]:
        found: list[str] = []
        while path:
            page = pages.page(path)
            found += [each.text for row in page.all("li", class_="row") for each in row.all("bdi", class_="lines")]
            path = next((each.attributes["href"] for each in page.all("a", rel="next")), "")
        return found

    assert walk("/history") == [f"reason {n}" for n in reversed(range(8))]
    monkeypatch.setattr(history, "LOOKED", 4)
    page = pages.page("/history?person=mia")
    assert rows(page) == [] and "Older decisions have not been looked at" in page.text and "back to" in page.text
    assert walk("/history?person=mia") == ["reason 0"]
    assert pages.visitor().get("/history?after=AAAA").status_code == 400


def test_decisions_after_now_are_found_as_a_clock_may_be_set_back(pages: Pages) -> None:
    decide_all(pages)
    pages.clock.now -= 10 * DAY
    assert len(rows(pages.page("/history"))) == 5


# Export


def test_the_trail_as_a_table_and_as_lines(pages: Pages) -> None:
    decide_all(pages)
    page = pages.page("/audit?person=rita")
    form = page.one("form")
    assert form.filled()["person"] == "rita"
    buttons = [each.attributes.get("formaction", form.attributes["action"]) for each in form.all("button")]
    assert buttons == ["/audit.csv", "/audit.ndjson"]
    answer = pages.visitor().get("/audit.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert [each["by"] for each in table] == ["rita", "rita", "rita", "mia", "otto"]
    assert table[2]["reason"] == "'=1+1 too <b>late</b>"
    answer = pages.visitor().get("/audit.ndjson?person=rita&kind=reject")
    (line,) = [json.loads(each) for each in answer.text.splitlines()]
    assert (line["by"]["id"], line["reason"]) == ("rita", "=1+1 too <b>late</b>")
    assert pages.visitor().get("/audit.ndjson?tool=other").text == ""


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t"])
def test_no_cell_is_a_formula(pages: Pages, begin: str) -> None:
    item = pages.asked()
    text = f"{begin}HYPERLINK()"
    pages.store.decide(item.id, Reject(reason=text), by=RITA, digest=item.digest, channel=text)
    (row,) = csv.DictReader(io.StringIO(pages.visitor().get("/audit.csv").text))
    assert (row["reason"], row["channel"]) == (f"'{text}", f"'{text}")


# Grants


STANDING = Approval(by="lead", standing={"small": lambda args: args["amount"] < 100})


def grant_form(pages: Pages, item: Any) -> Element:
    link = [each for each in pages.shown(item).all("a") if each.text == "Let such calls pass without asking"]
    assert [each.attributes["href"] for each in link] == [f"/requests/{item.id}/grant"]
    return pages.page(f"/requests/{item.id}/grant").one("form")


def test_a_grant_is_given_from_a_request_and_counts_once_it_is(pages: Pages) -> None:
    agent = pages.agent(STANDING)
    item = pages.waits(agent)
    form = grant_form(pages, item)
    assert [each.text for each in form.one("select", id="scope").all("option")] == [
        "This run", "All runs of the same requester", "All runs",
    ]  # fmt: skip
    fields = {"scope": "principal", "uses": "2", "until": "2026-11-30", "reason": "month\nend"}
    answer = pages.send(form, **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/grants?said=given")
    again = pages.visitor().post(form.attributes["action"], data=form.filled(**fields))
    assert again.status_code == 303
    (grant,) = pages.store.grants()
    assert (grant.scope, grant.requester, grant.uses, grant.args) == ("principal", "ann", 2, item.args)
    assert (grant.givers[0].principal.id, grant.givers[0].channel) == ("rita", "inbox")
    assert grant.until == datetime(2026, 11, 30, 23, 59, 59, 999999, UTC)
    assert agent.invoke("Refund it", requester="ann").status == "completed"
    page = pages.page("/grants?said=given")
    assert rows(page) == ["refund of desk"] and "The grant is given" in page.text
    for part in ("1 of 2 uses left", "one requester", "these values", "30 November 2026", "given by Rita", "in 5 days"):
        assert part in facts(page)[0], part
    assert "month end" in page.text and pages.store.request(item.id).status == "pending"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"scope": "tenant"}, "A grant for more than one run ends"),
        ({"scope": "odd"}, "Say what it is for"),
        ({"exactly": "maybe"}, "for which values"),
        ({"exactly": "condition"}, "Name the condition"),
        ({"uses": "0"}, "A whole number from 1 to 1,000"),
        ({"uses": "1001"}, "A whole number"),
        ({"uses": "1e3"}, "A whole number"),
        ({"until": "2026-11-24"}, "This day is over"),
        ({"until": "soon"}, "A day, as in"),
        ({"scope": "thread", "uses": "1"}, "has no thread_id"),
    ],
)
def test_what_is_wrong_with_a_grant_is_told_and_what_was_typed_stays(
    pages: Pages, fields: dict[str, str], told: str
) -> None:
    item = pages.asked(STANDING)
    page = pages.sent(grant_form(pages, item), status=422, reason="kept <b>", **fields)
    assert told in page.one("div", class_="summary").text
    assert page.one("textarea", id="reason").text == "kept <b>" and pages.store.grants() == ()


def test_a_grant_for_any_values_or_for_a_condition(pages: Pages) -> None:
    agent = pages.agent(STANDING)
    item = pages.waits(agent)
    pages.send(grant_form(pages, item), exactly="no")
    known = Pages(pages.store, agents=[agent])
    form = grant_form(known, item)
    assert [each.text for each in form.one("select", id="condition").all("option")] == ["none", "small"]
    known.send(form, exactly="condition", condition="small", scope="tenant", uses="3")
    assert sorted((each.scope, each.condition, each.args) for each in pages.store.grants()) == [
        ("run", None, None),
        ("tenant", "small", None),
    ]
    assert "while small holds" in pages.page("/grants").text and "any values" in pages.page("/grants").text


def test_who_gives_what_the_tool_does_not_allow_is_told(pages: Pages) -> None:
    agent = pages.agent(Approval(by="lead"))
    item = pages.waits(agent)
    known = Pages(pages.store, agents=[agent])
    for inbox in (known, pages):  # with the agent's code, and without it
        assert "/grant" not in [each.attributes["href"][-6:] for each in inbox.page(f"/requests/{item.id}").all("a")]
        page = inbox.page(f"/requests/{item.id}/grant")
        assert "allows none, so people are asked each time" in page.text and page.all("form") == []
        visitor = inbox.visitor()
        form = {"scope": "run", "exactly": "yes", "digest": item.digest, "key": new_key()}
        form["csrf"] = visitor.get("/api/v1/me").json()["csrf"]
        refused = visitor.post(f"/requests/{item.id}/grant", data=form)
        assert refused.status_code == 422 and "allows none, so people are asked each time" in read(refused.text).text
    assert pages.store.grants(all=True) == ()


def test_a_policy_that_asks_and_allows_no_grants_is_enough(pages: Pages) -> None:
    @tool(requires_approval=Approval(standing=True))
    def refund(order: int) -> str:
        """Refund."""
        return "done"

    def allowed(**options: Any) -> bool:
        item = pages.waits(pages.of(refund, {"order": 1}, **options))
        given = asyncio.run(allows_grants(pages.store, pages.store.request(item.id)))
        pages.decided(item, "approve")
        assert asyncio.run(allows_grants(pages.store, pages.store.request(item.id))) == given
        return given

    assert allowed() and allowed(approval_policy={"refund": Approval(standing=True)})
    assert not allowed(approval_policy={"refund": True})
    assert not allowed(approval_policy={"refund": Approval(by="lead")})


def test_nothing_is_granted_that_was_rejected_or_shown_otherwise(pages: Pages) -> None:
    item = pages.asked(STANDING)
    form = grant_form(pages, item)
    assert pages.send(form, digest="0" * 64).status_code == 409
    pages.decided(item, "reject", reason="no")
    assert "rejected" in pages.sent(form, status=422).one("div", class_="summary").text
    assert pages.visitor().get("/requests/pend_none/grant").status_code == 404
    assert pages.visitor().post("/requests/pend_none/grant", data=form.filled()).status_code == 404
    assert pages.store.grants() == ()


def test_a_grant_is_revoked_with_a_reason(pages: Pages) -> None:
    assert "There is no standing grant" in pages.page("/grants").text
    given = pages.store.grant(Grant(agent="desk", tool="refund", scope="tenant", uses=3, reason="<b>"), by=MIA)
    page = pages.page("/grants")
    form = page.form(f"/grants/{given.id}/revoke")
    assert pages.visitor(csrf="x").post(form.attributes["action"], data={"reason": "no token"}).status_code == 403
    assert len(pages.store.grants()) == 1
    for location in ("revoked", "was_over"):
        answer = pages.send(form, reason="too many")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/grants?show=all&said={location}")
    (grant,) = pages.store.grants(all=True)
    assert grant.revoked is not None
    assert (grant.revoked.principal.id, grant.revoked.reason) == ("rita", "too many")
    assert "There is no standing grant" in pages.page("/grants").text
    page = pages.page("/grants?show=all&said=revoked")
    assert "Revoked by Rita" in page.text and "too many" in page.text and page.all("form", method="post") == []
    assert (
        pages.send(form.__class__("form", {"action": "/grants/grant_none/revoke"}, None, form.children)).status_code
        == 404
    )


def test_filters_of_the_grants(pages: Pages) -> None:
    for name in ("refund", "pay"):
        pages.store.grant(Grant(agent="desk", tool=name, scope="tenant", uses=3), by=MIA)
        pages.clock.now += 1
    assert rows(pages.page("/grants")) == ["pay of desk", "refund of desk"]
    assert rows(pages.page("/grants?tool=pay&agent=desk")) == ["pay of desk"]
    page = pages.page("/grants?tool=other")
    assert rows(page) == [] and "No grant with these filters" in page.text and "2 grants that count in all" in page.text
