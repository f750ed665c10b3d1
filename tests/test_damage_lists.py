"""A damaged row costs the list that it is in nothing but itself: the others are listed, and whoever lists is told which is missing.

What authorizes fails closed: a damaged request is decided by nobody, and a damaged grant, person or deputy permits nothing.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from damaged import DAMAGE, Damaged
from drivers import SYNC, Driver, run
from inbox_api_scenes import api_of
from page_scenes import Pages
from places import Place

from phronomy import (
    Agent,
    Approval,
    Approve,
    NotAnApprover,
    Principal,
    SQLiteStore,
    StoreError,
    UnreadableRow,
    cli,
    tool,
)
from phronomy.inbox.api import schemas
from phronomy.inbox.auth.api_tokens import ApiTokens
from phronomy.inbox.client import asks
from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store
from phronomy.stores.derived.people import represented_by
from phronomy.stores.rows import AuditFilter, PendingFilter
from phronomy.testing import ScriptedModel, call


class Desk:
    """An agent that pays once it is approved, and a store in which rows are damaged."""

    def __init__(self, driver: Driver, store: Store, how: str = "cut off", **approval: Any) -> None:
        self.driver, self.store = driver, Damaged(store, how)
        self.paid: list[int] = []

        def pay(order: int) -> str:
            """Pay for an order."""
            self.paid.append(order)
            return "paid"

        gated = tool(requires_approval=Approval(**approval))(driver.function(pay))
        model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
        self.agent: Agent[Any, str] = Agent(name="desk", tools=[gated], model=model, store=self.store)

    def asks(self, count: int) -> list[str]:
        """The ids of so many requests."""
        return [self.driver.invoke(self.agent, "Pay").checkpoint.pending[0].id for _ in range(count)]


@pytest.mark.parametrize("how", DAMAGE)
def test_requests_are_listed_without_a_damaged_one_which_is_named(driver: Driver, store: Store, how: str) -> None:
    desk = Desk(driver, store, how)
    first, second, third = desk.asks(3)
    row = desk.store.select_pending(PendingFilter(pending_id=second))[0]
    desk.store.ids.add(second)
    asked: list[dict[str, Any]] = [{}, {"asks_human": True}, {"agent": "desk"}, {"newest": True}]
    for wanted in asked:
        page = desk.store.pending(**wanted)
        assert [each.approval.id for each in page] == ([third, first] if "newest" in wanted else [first, third])
        (missing,) = page.unreadable
        assert (missing.kind, missing.id, missing.run_id) == ("request", second, row.run_id)
        assert missing.branch_id == row.branch_id and second in str(missing) and "order" not in str(missing)
    assert desk.store.count() == 3 and len(desk.store.pending_rows()) == 3
    assert [each.id for each in run(desk.store.apending()).unreadable] == [second]
    # Nobody decides it: not by the store, and not by a resume.
    for ask in (
        lambda: desk.store.request(second),
        lambda: desk.store.decide(second, Approve(), by="ada", digest="x"),
        lambda: driver.call(desk.agent, "decide", second, Approve()),
    ):
        with pytest.raises(UnreadableRow, match=second):
            ask()
    assert desk.paid == []


def test_pages_go_on_past_damaged_rows(driver: Driver, place: Place) -> None:
    desk = Desk(driver, place.open())
    ids = desk.asks(7)
    desk.store.ids |= {ids[0], ids[1], ids[4]}
    listed, missing, after, pages = [], [], None, 0
    while pages == 0 or after is not None:
        page = desk.store.pending(limit=2, after=after)
        assert len(page) + len(page.unreadable) <= 2
        listed += [each.approval.id for each in page]
        missing += [each.id for each in page.unreadable]
        after, pages = page.next, pages + 1
    assert (pages, listed, missing) == (4, [ids[2], ids[3], ids[5], ids[6]], [ids[0], ids[1], ids[4]])


def test_checkpoints_and_the_audit_trail_are_listed_around_damage(driver: Driver, place: Place) -> None:
    desk = Desk(driver, place.open())
    ids = desk.asks(3)
    for id in ids:
        item = desk.store.request(id).approval
        desk.store.decide(id, Approve(), by="ada", digest=item.digest)
    every = desk.store.list()
    desk.store.ids.add(every[1].id)
    page = desk.store.list(limit=3)
    assert [each.id for each in page] == [every[0].id, every[2].id] and page.next is not None
    assert [(each.kind, each.id, each.run_id) for each in page.unreadable] == [
        ("checkpoint", every[1].id, every[1].run_id)
    ]
    assert [each.id for each in desk.store.list(after=page.next)] == [each.id for each in every[3:]]

    line = desk.store.select_audit(AuditFilter())[1]
    desk.store.ids = {line.n}

    async def read() -> list[Any]:
        return [each async for each in desk.store.aaudit()]

    for records in (list(desk.store.audit()), run(read())):
        assert [each.kind for each in records] == ["approve", "unreadable", "approve"]
        lost = records[1]
        assert (lost.run_id, lost.pending_id, lost.by) == (line.run_id, ids[1], None)
        assert lost.at == datetime.fromtimestamp(line.at, UTC) and f"line {line.n} " in (lost.reason or "")
        assert type(lost).model_validate_json(lost.model_dump_json()) == lost
    # The other request was decided, and by whom nobody knows: it is not said that nothing is known of it.
    with pytest.raises(StoreError, match=f"nobody knows whether pending {ids[1]} was decided: line {line.n} "):
        desk.store.request(ids[1])
    assert desk.store.request(ids[0]).decision is not None
    # The decision is carried out all the same.
    assert len(driver.call(desk.agent, "recover_all")) == 3 and desk.paid == [1, 1, 1]


def test_a_damaged_grant_permits_nothing_and_hinders_nobody(driver: Driver, place: Place) -> None:
    desk = Desk(driver, place.open(), standing=True)
    (id,) = desk.asks(1)
    item = desk.store.request(id).approval
    lost = desk.store.grant_like(id, digest=item.digest, by="ada", scope="tenant", uses=9)
    (document,) = desk.store.select_documents("grant")
    desk.store.ids.add(("grant", document.key))
    assert desk.driver.invoke(desk.agent, "Pay").suspended and desk.paid == []
    found = desk.store.grants()
    assert found == () and [(each.kind, each.id) for each in found.unreadable] == [("grant", lost.id)]
    # Another one for the same tool counts.
    well = desk.store.grant_like(id, digest=item.digest, by="ada", scope="tenant", uses=9)
    assert [each.id for each in desk.store.grants()] == [well.id]
    assert desk.driver.invoke(desk.agent, "Pay").status == "completed" and desk.paid == [1]
    with pytest.raises(UnreadableRow, match=lost.id):
        desk.store.use_grant(lost, "pend_1")
    assert desk.store.revoke(lost.id, by="ada")
    assert [*desk.store.grants().unreadable] == []


def test_damaged_people_are_nobody_and_the_others_are_listed(store: Store) -> None:
    damaged = Damaged(store)
    people = StoreDirectory(damaged)
    for id in ("ann", "bea", "cid", "dan", "eve"):
        people.add(Person(id=id, roles=("boss",)))
    people.name_deputy("bea", "ann")
    people.name_deputy("cid", "ann")
    people.name_deputy("dan", "ann")
    row = next(each for each in damaged.select_documents("deputy") if '"cid"' in each.text)
    damaged.ids |= {("person", "bea"), ("person", "eve"), ("deputy", row.key)}

    found = people.list()
    assert [each.id for each in found] == ["ann", "cid", "dan"]
    assert [(each.kind, each.id) for each in found.unreadable] == [("person", "bea"), ("person", "eve")]
    # A page has as many people as it may, and the next begins after the last of them.
    page = people.list(limit=2)
    assert ([each.id for each in page], [each.id for each in page.unreadable]) == (["ann", "cid"], ["bea"])
    assert [each.id for each in people.list(after="cid", limit=2)] == ["dan"]
    deputies = people.deputies()
    assert [each.principal for each in deputies] == ["bea", "dan"]
    assert [(each.kind, each.id) for each in deputies.unreadable] == [("deputy", row.key)]
    # They stand for nobody, and ann may still act for dan, and for herself.
    assert [each.principal for each in represented_by(damaged, "ann")] == ["dan"]
    with pytest.raises(UnreadableRow, match="person bea"):
        people.get("bea")


def test_a_vote_of_a_damaged_person_counts_no_more_and_keeps_nobody_from_voting(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store, by="boss", needed=2)
    people = StoreDirectory(desk.store)
    for id in ("ann", "bea", "cid"):
        people.add(Person(id=id, roles=("boss",)))
    (id,) = desk.asks(1)
    digest = desk.store.request(id).approval.digest
    desk.store.decide(id, Approve(), by="ann", digest=digest)
    desk.store.ids.add(("person", "ann"))
    assert desk.store.decide(id, Approve(), by="bea", digest=digest).status == "pending"
    with pytest.raises(UnreadableRow, match="person ann"):
        desk.store.decide(id, Approve(), by="ann", digest=digest)
    assert desk.store.decide(id, Approve(), by="cid", digest=digest).status == "decided"


def test_nobody_approves_where_who_asked_cannot_be_read(driver: Driver, store: Store) -> None:
    """They may come under another id, of which the row would say."""
    desk = Desk(driver, store, by="boss", not_requester=True)
    people = StoreDirectory(desk.store)
    for id in ("ann", "bea"):
        people.add(Person(id=id, roles=("boss",), aliases=(f"chat:{id}",)))
    item = driver.invoke(desk.agent, "Pay", requester=Principal(id="chat:ann")).checkpoint.pending[0]
    desk.store.ids.add(("person", "ann"))
    with pytest.raises(NotAnApprover):
        desk.store.decide(item.id, Approve(), by="bea", digest=item.digest)
    desk.store.ids.clear()
    assert desk.store.decide(item.id, Approve(), by="bea", digest=item.digest).status == "decided"


def test_a_damaged_api_token_lets_nobody_in_and_the_others_are_listed(store: Store) -> None:
    damaged = Damaged(store)
    tokens = ApiTokens(damaged)

    async def look() -> None:
        lost = await tokens.issue("lost", Principal(id="ada"), scopes=("read",), seconds=None)
        well = await tokens.issue("well", Principal(id="ada"), scopes=("read",), seconds=None)
        damaged.ids.add(("inbox-token", lost.token.id))
        found = await tokens.list()
        assert [each.id for each in found] == [well.token.id]
        assert [(each.kind, each.id) for each in found.unreadable] == [("token", lost.token.id)]

    run(look())


# The inbox, and the command line


def test_the_inbox_lists_the_others_and_says_which_it_cannot(store: Store) -> None:
    damaged = Damaged(store)
    pages = Pages(damaged)
    first, second, third = (pages.asked() for _ in range(3))
    damaged.ids.add(second.id)
    text = " ".join(pages.page("/?view=all").text.split())
    assert f"pending {second.id}" in text and "1 request cannot be read, and is not in this list" in text
    assert [pages.visitor().get(f"/requests/{each.id}").status_code for each in (first, third)] == [200, 200]
    assert pages.visitor().get("/readyz").status_code == 200

    api = api_of(damaged)
    found: list[str] = []
    missing: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = api.read("/requests", limit=1, **cursor)
        found += [each["id"] for each in page["items"]]
        missing += [each["id"] for each in page["unreadable"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert (found, missing) == ([first.id, third.id], [second.id])
    page = api.read("/requests", limit=3)
    assert [each["id"] for each in page["items"]] == [first.id, third.id]
    (told,) = page["unreadable"]
    assert (told["kind"], told["id"]) == ("request", second.id) and second.id in told["detail"]


def test_the_inbox_shows_damaged_lines_of_the_trail_and_damaged_grants(store: Store) -> None:
    damaged = Damaged(store)
    pages = Pages(damaged)
    items = [pages.asked(Approval(standing=True)) for _ in range(2)]
    for item in items:
        damaged.decide(item.id, Approve(), by="rita", digest=item.digest)
    grant = damaged.grant_like(items[0].id, digest=items[0].digest, by="rita", scope="tenant", uses=2)
    line = damaged.select_audit(AuditFilter())[0]
    (document,) = damaged.select_documents("grant")
    damaged.ids |= {line.n, ("grant", document.key)}
    api = api_of(damaged)
    assert [each["kind"] for each in api.read("/audit")["items"]] == ["unreadable", "approve"]
    csv = api.get("/api/v1/audit", params={"format": "csv"}).text
    assert f"line {line.n} of the audit trail cannot be read" in csv
    assert "Cannot be read" in pages.page("/history").text
    grants = api.read("/grants")
    assert grants["items"] == [] and [each["id"] for each in grants["unreadable"]] == [grant.id]
    assert grant.id in pages.page("/grants").text


def test_the_client_of_the_inbox_tells_the_log_which_rows_are_missing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    page = schemas.RequestsPage(
        items=(), unreadable=(schemas.Unreadable(kind="request", id="pend_1", detail="pending pend_1 cannot be read"),)
    )
    asks.tell_unread(page)
    asks.tell_unread(schemas.AuditPage(items=()))
    assert [each.getMessage() for each in caplog.records] == [
        "not in the list of the inbox: pending pend_1 cannot be read"
    ]


def spoil(path: str, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement, values).rowcount == 1


def test_the_command_line_lists_the_others_and_says_which_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "runs.db")
    with SQLiteStore(path) as store:
        desk = Desk(SYNC, store)
        desk.agent.store = store
        first, second = desk.asks(2)
        runs = [each.run_id for each in store.pending()]
        kept = store.list()
        grant = store.grant_like(
            first, digest=store.request(first).approval.digest, by="ada", scope="tenant", uses=9, exactly=False
        )
        StoreDirectory(store).add(Person(id="ann"))
        store.decide(first, Approve(), by="ada", digest=store.request(first).approval.digest)
    spoil(path, "UPDATE phronomy_pending SET body = substr(body, 2) WHERE pending_id = ?", second)
    spoil(path, "UPDATE phronomy_log SET body = substr(body, 2) WHERE checkpoint_id = ?", kept[0].id)
    spoil(path, "UPDATE phronomy_documents SET body = '{' WHERE kind = 'grant'")
    spoil(path, "UPDATE phronomy_documents SET body = '{' WHERE kind = 'person'")
    spoil(path, "UPDATE phronomy_audit SET body = '{'")

    def printed(*words: str) -> tuple[str, str]:
        assert cli.run([*words, "--store", f"sqlite:///{path}"]) == 0
        return capsys.readouterr()

    for words, id in (
        (("pending",), second),
        (("list",), kept[0].id),
        (("grants",), grant.id),
        (("people", "list"), "ann"),
        (("runs",), runs[0]),
    ):
        assert id in printed(*words)[1], words
        document = json.loads(printed(*words, "--json")[0])
        told = [each["id"] for each in document.get("unreadable", ())]
        told += [each["branch_id"] for each in document["items"] if "unreadable" in each]
        assert told == [id], words
    assert '"kind": "unreadable"' in printed("audit")[0].replace('"kind":"unreadable"', '"kind": "unreadable"')
    assert "unreadable" in printed("audit", "--table")[0]
