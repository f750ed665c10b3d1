"""A damaged row is told of by a type and its id wherever somebody looks, and costs nobody else: pages, API, chats, command line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from chat_scenes import RITA as U_RITA
from chat_scenes import approvals_of, emptied, with_people
from damaged import DAMAGE, Damaged
from drivers import Driver, run
from inbox_api_scenes import api_of
from inbox_scenes import RITA, ByHeader, Visitor, inbox_of
from page_scenes import Pages
from tables import each

from phronomy import (
    AgentChanged,
    Approve,
    CheckpointError,
    MemoryStore,
    Principal,
    SQLiteStore,
    StoreError,
    UnreadableRow,
    cli,
    tool,
)
from phronomy.chat.deciding import person_behind
from phronomy.errors import CheckpointEdited
from phronomy.inbox.auth.api_tokens import ApiTokens
from phronomy.inbox.problems import problem_of
from phronomy.people import Person, StoreDirectory
from phronomy.records.long_term_entries import read_entries
from phronomy.stores.base import Store
from phronomy.stores.derived.people import writers_of
from phronomy.stores.rows import AuditFilter, Document
from phronomy.testing.chat import FakeSlack

DECIDED = ("entry", "line")
"""Rows that are read once a request is decided; the row of the request itself is read as long as it waits."""


def spoil(damaged: Damaged, what: str, item: Any, run_id: str) -> str:
    """Damage a row of a request; returns what a problem about it names."""
    if what == "entry":
        damaged.ids.add(run_id)
        return run_id
    if what == "line":
        (line,) = damaged.select_audit(AuditFilter(pending_id=item.id))
        damaged.ids.add(line.n)
        return f"line {line.n} of the audit trail"
    damaged.ids.add(item.id)
    return str(item.id)


@pytest.mark.parametrize("what", ["request", *DECIDED])
def test_its_own_pages_and_answers_name_the_row_and_the_others_are_as_before(store: Store, what: str) -> None:
    damaged = Damaged(store)
    pages = Pages(damaged)
    hurt, well = pages.asked(), pages.asked()
    run_id, other = (damaged.request(each.id).run_id for each in (hurt, well))
    if what in DECIDED:
        damaged.decide(hurt.id, Approve(), by="rita", digest=hurt.digest)
    row = spoil(damaged, what, hurt, run_id)

    api = api_of(damaged)
    addresses = [f"/requests/{hurt.id}", *([f"/runs/{run_id}"] if what == "entry" else [])]
    for address in addresses:
        answer = api.get(f"/api/v1{address}")
        told = answer.json()
        assert (answer.status_code, told["type"]) == (500, "/problems/unreadable")
        assert row in told["detail"] and told["title"] == "A stored row cannot be read"
        text = " ".join(pages.page(address, status=500).text.split())
        assert "A stored row cannot be read" in text and row in text and "1042" not in text
    for path in ("/", "/runs", "/history", f"/requests/{well.id}", f"/runs/{other}"):
        pages.page(path)
    for path in ("/requests", "/runs", "/audit", f"/requests/{well.id}", f"/runs/{other}"):
        api.read(path)
    # Mended, it is shown again.
    damaged.ids.clear()
    pages.shown(hurt)


def test_nobody_decides_by_the_api_what_cannot_be_read(store: Store) -> None:
    damaged = Damaged(store)
    pages = Pages(damaged)
    hurt, well = pages.asked(), pages.asked()
    damaged.ids.add(hurt.id)
    api = api_of(damaged)
    answer = api.decide(hurt, "approve")
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/unreadable")
    assert api.decide(well, "approve").status_code == 200
    damaged.ids.clear()
    assert damaged.request(hurt.id).status == "pending"


def test_a_damaged_line_of_a_decision_has_an_error_of_its_own(driver: Driver, store: Store) -> None:
    damaged = Damaged(store)
    pages = Pages(damaged)
    item = pages.asked()
    found = damaged.decide(item.id, Approve(), by="rita", digest=item.digest)
    spoil(damaged, "line", item, found.run_id)
    looks: list[Callable[[], Any]] = [
        lambda: damaged.request(item.id),
        lambda: run(damaged.arequest(item.id)),
        lambda: damaged.decide(item.id, Approve(), by="otto", digest=item.digest),
        lambda: driver.call(pages.agents["desk"], "decide", item.id, Approve()),
    ]
    for look in looks:
        with pytest.raises(UnreadableRow, match=f"nobody knows whether pending {item.id} was decided: line") as told:
            look()
        assert (told.value.kind, told.value.id, told.value.run_id) == ("decision", item.id, found.run_id)
    # The decision is carried out all the same.
    pages.carry_out()
    assert damaged.head(found.branch_id)[1].status == "completed"


def test_a_log_that_does_not_hold_what_was_decided_has_a_typed_error(store: Store, monkeypatch: Any) -> None:
    pages = Pages(store)
    item = pages.asked()
    found = store.decide(item.id, Approve(), by="rita", digest=item.digest)
    monkeypatch.setattr("phronomy.stores.derived.requests.items_of", lambda entries, kept: [])
    with pytest.raises(UnreadableRow, match=f"does not hold pending {item.id}") as told:
        store.request(item.id)
    assert (told.value.kind, told.value.id, told.value.branch_id) == ("request", item.id, found.branch_id)


@each(
    "error, type",
    [
        (UnreadableRow("person ann cannot be read", kind="person", id="ann"), "unreadable"),
        (CheckpointError("the row of branch run_1 cannot be read"), "unreadable"),
        (CheckpointEdited("checkpoint ckpt_1 is not what was stored", checkpoint_id="ckpt_1"), "unreadable"),
        (AgentChanged("the agent has changed", checkpoint_id="ckpt_1", changes=("a tool",)), "failed"),
        (StoreError("the database is gone"), "unavailable"),
    ],
)
def test_the_problem_of_an_error_of_a_store(error: Exception, type: str) -> None:
    problem = problem_of(error)
    assert problem.type == type and (str(error) == problem.detail) == (type == "unreadable")


# People


def staffed(how: str = "cut off", store: Store | None = None) -> Damaged:
    """A store whose person rita is damaged, and otto is not."""
    damaged = Damaged(store or MemoryStore(), how)
    for id in ("rita", "otto"):
        StoreDirectory(damaged).add(Person(id=id, roles=("boss",), aliases=(f"slack:{id}",)))
    damaged.ids.add(("person", "rita"))
    return damaged


@pytest.mark.parametrize("who", ["rita", "slack:rita"])
def test_a_damaged_person_is_nobody_in_the_inbox_and_the_log_names_the_row(
    store: Store, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = staffed(store=store)
    people = [RITA.evolve(id=each) for each in ("rita", "slack:rita", "otto")]
    pages = Pages(damaged, auth=ByHeader(*people))
    item = pages.asked()
    with caplog.at_level(logging.WARNING, logger="phronomy"):
        for path in ("/", "/runs", "/history", "/me", f"/requests/{item.id}"):
            answer = pages.visitor(who).get(path)
            assert (answer.status_code, answer.headers["location"].split("?")[0]) == (303, "/login"), path
            assert pages.visitor("otto").get(path).status_code == 200
        answer = pages.visitor(who).get("/api/v1/requests")
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/not-signed-in")
    assert "person rita cannot be read" in caplog.text
    damaged.ids.clear()
    assert pages.visitor(who).get("/").status_code == 200


def test_a_damaged_person_has_no_session_and_no_token_while_they_are_damaged(store: Store) -> None:
    damaged = staffed(store=store)
    damaged.ids.clear()
    inbox = inbox_of(damaged)
    sessions, tokens = inbox.site.sessions, ApiTokens(damaged)

    async def begin(id: str) -> tuple[str, str]:
        issued = await tokens.issue("ci", Principal(id=id), scopes=("read",), seconds=None)
        return await sessions.begin(Principal(id=id)), issued.secret

    def sees(cookie: str, secret: str) -> list[int]:
        by_cookie, by_token = Visitor(inbox, None), Visitor(inbox, None, authorization=f"Bearer {secret}")
        by_cookie.cookies = {sessions.cookie: cookie}
        return [each.get("/api/v1/me").status_code for each in (by_cookie, by_token)]

    rita, otto = run(begin("rita")), run(begin("otto"))
    damaged.ids.add(("person", "rita"))
    assert (sees(*rita), sees(*otto)) == ([401, 401], [200, 200])
    # Who signs in while the row is damaged is nobody as well, and no error keeps the page of signing in from them.
    again = run(sessions.begin(Principal(id="rita")))
    assert sees(again, rita[1]) == [401, 401]
    damaged.ids.clear()
    assert (sees(*rita), sees(run(begin("rita"))[0], rita[1])) == ([401, 200], [200, 200])


@each("how", [each for each in DAMAGE if each != "another version"])  # of two versions in a text, the last one counts
def test_a_chat_knows_nobody_by_the_alias_of_a_damaged_person(caplog: pytest.LogCaptureFixture, how: str) -> None:
    people = StoreDirectory(staffed(how))
    assert person_behind(people, "slack:rita") is None and "person rita cannot be read" in caplog.text
    otto = person_behind(people, "slack:otto")
    assert otto is not None and otto.id == "otto"


def test_a_damaged_person_may_do_nothing_and_an_error_names_the_row(driver: Driver, store: Store) -> None:
    damaged = staffed(store=store)
    pages = Pages(damaged)
    item = pages.asked()
    with pytest.raises(UnreadableRow, match="person rita"):
        damaged.decide(item.id, Approve(), by=Principal(id="rita", listed=True), digest=item.digest)
    with pytest.raises(UnreadableRow, match="person rita"):
        driver.invoke(pages.agent(), "Refund it", requester=Principal(id="rita", listed=True))
    assert damaged.decide(item.id, Approve(), by="otto", digest=item.digest).status == "decided"


def test_nobody_knows_whether_a_damaged_person_is_the_only_writer_of_a_thread(store: Store) -> None:
    damaged = staffed(store=store)
    damaged.ids.clear()
    agent = Pages(damaged).agent()
    found = agent.invoke("Refund it", requester=Principal(id="slack:rita")).checkpoint
    assert writers_of(damaged, found) == {"rita"}
    damaged.ids.add(("person", "rita"))
    assert writers_of(damaged, found) == {None}


@pytest.mark.parametrize("how", ["empty", "of a later release", "bytes"])
def test_a_damaged_person_is_replaced_or_removed_with_all_aliases(store: Store, how: str) -> None:
    for mend in ("replace", "remove"):
        damaged = staffed(how, store=store.for_tenant(mend))
        people = StoreDirectory(damaged)
        if mend == "replace":
            people.add(Person(id="rita", aliases=("slack:new",)), replace=True)
        else:
            assert people.remove("rita")
        damaged.ids.clear()
        left = [document.key for document in damaged.select_documents("person-alias")]
        assert left == (["slack:new"] if mend == "replace" else []) + ["slack:otto"]
        assert [each.id for each in people.list()] == (["otto", "rita"] if mend == "replace" else ["otto"])


def test_the_command_line_mends_a_damaged_person(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:

    place = f"sqlite:///{tmp_path / 'runs.db'}"
    with SQLiteStore(tmp_path / "runs.db") as store:
        StoreDirectory(store).add(Person(id="rita", aliases=("slack:rita",)))
        (row,) = store.select_documents("person")
        store.put_document(Document(kind="person", key="rita", text="{", version=row.version))
    assert cli.run(["people", "add", "rita", "--replace", "--store", place]) == 0
    assert cli.run(["people", "list", "--store", place]) == 0
    assert "rita" in capsys.readouterr().out


def test_damaged_entries_of_a_long_term_store_have_a_typed_error() -> None:
    with pytest.raises(UnreadableRow, match=r"document k/n cannot be read: .*delete_all deletes it") as told:
        read_entries("k/n", "{")
    assert (told.value.kind, told.value.id) == ("long-term", "k/n")


@tool(requires_approval=True)
def charge(order: int) -> str:
    """Pay for an order."""
    return "paid"


@pytest.mark.parametrize("what", ["request", *DECIDED])
def test_a_click_on_what_cannot_be_read_is_told_so_and_is_not_sent_again(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    slack: Any
    with FakeSlack() as slack:
        damaged = Damaged(MemoryStore(clock=slack.clock))
        approvals = approvals_of(with_people(damaged, slack), slack)
        pages = Pages(damaged)
        item, well = (
            pages.of(charge, {"order": order}, announcements=[approvals]).invoke("Pay").checkpoint.pending[0]
            for order in (1, 2)
        )
        emptied(approvals, slack.clock)
        run_id = damaged.request(item.id).run_id
        if what in DECIDED:
            damaged.decide(item.id, Approve(), by="otto", digest=item.digest)
        row = spoil(damaged, what, item, run_id)
        first, second = sorted(slack.messages(), key=lambda each: each.text)  # by the order that is paid for
        slack.click(first, "approve", U_RITA)
        assert "cannot be read: a stored row is damaged" in slack.told(U_RITA)[-1]
        assert any(row in each.getMessage() for each in caplog.records if each.levelno == logging.ERROR)
        slack.click(second, "approve", U_RITA)
        assert damaged.request(well.id).status == "decided"
