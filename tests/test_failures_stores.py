"""What went wrong in other systems, 92 to 117, where a database is asked: filters, ids, growth, lists, scopes, races and rounds.

Each is told on every store, and by both drivers where a run is driven. Formats and versions are in `test_failures_formats.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, Driver
from places import Place
from test_failures_authority import Desk, posted, unchanged
from test_failures_once import HOUR, PowerCut, at_once, pay_once, pays

from phronomy import (
    Agent,
    Announcements,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    LeaseLost,
    PhronomyError,
    RunBusy,
    StoreError,
    ToolContext,
    tool,
)
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Claim, PendingFilter
from phronomy.testing import ScriptedModel

pytestmark = pytest.mark.unmeasured


class Shop(Desk):
    """The refund desk, over any kind of database."""

    def __init__(self, driver: Driver, place: Place) -> None:
        super().__init__(driver, place.folder)
        self.place = place

    def store(self, **options: Any) -> Any:
        self.place.close()  # one process at a time, unless a test opens more by itself
        return self.beside(**options)

    def beside(self, **options: Any) -> Any:
        """A store that is opened while others are open."""
        return self.place.open(clock=lambda: time.time() + self.later, **options)

    def worker(self, **options: Any) -> Agent[Any, str]:
        """The agent as a process makes it that works beside others."""
        return self.agent(store=self.beside(), **options)

    def rows(self) -> str:
        return self.place.text()


@pytest.fixture
def desk(driver: Driver, place: Place) -> Shop:
    return Shop(driver, place)


def bare(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as it was sealed, without what was journaled after it."""
    return checkpoint.evolve(journal=(), nested=())


# Who works on a run


def lose(store: Store, strikes: Callable[[Append], bool]) -> Store:
    """Have the power of this store's process cut at the first write that strikes: it writes nothing more, and lets go of nothing."""
    append, release, renew, off = store.append, store.release, store.renew, [False]

    def cut_append(change: Append) -> Any:
        off[0] = off[0] or strikes(change)
        if off[0]:
            raise PowerCut
        return append(change)

    def cut_renew(claim: Claim) -> Any:
        if off[0]:
            raise LeaseLost("the power is off", run_id=claim.run_id, branch_id=claim.branch_id)
        return renew(claim)

    store.append = cut_append  # type: ignore[method-assign]
    store.release = lambda claim, status=None: None if off[0] else release(claim, status)  # type: ignore[method-assign]
    store.renew = cut_renew  # type: ignore[method-assign]
    return store


def lost_run(desk: Shop, **options: Any) -> Checkpoint:
    """A run that was approved, and whose worker was lost once the tool had run; its lease has not expired."""

    def pay(order: int, ctx: ToolContext[Any]) -> str:
        """Pay."""
        desk.done.append(f"pay {order}")
        desk.keys.append(ctx.idempotency_key)
        return f"paid by worker {len(desk.done)}"

    gated = tool(requires_approval=True, **options)(desk.driver.function(pay))
    desk.script([], gated)
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    checkpoint = desk.invoke(thread_id="t").checkpoint
    lost = desk.agent(store=lose(desk.beside(), lambda change: bool(desk.done)))
    with pytest.raises(PowerCut):
        desk.driver.resume(lost, checkpoint, approved=True)
    assert desk.done == ["pay 1"]
    return checkpoint


@pytest.mark.few(8)
@pytest.mark.product
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_of_those_that_recover_a_run_at_once_one_does(desk: Shop, idempotent: bool) -> None:
    """Nobody before the lease is over; then one of eight, and all that are told anything are told the same. field failure 41"""
    checkpoint = lost_run(desk, idempotent=idempotent)
    unchanged(desk, partial(desk.recover, checkpoint), RunBusy)
    assert desk.driver.call(desk.agent(), "recover_all") == []
    fence = desk.store().head(checkpoint.branch_id)[0].fence

    desk.later = HOUR
    ones, alls = [desk.worker() for _ in range(4)], [desk.worker() for _ in range(4)]
    found = at_once(
        [
            *(partial(desk.driver.recover, one, checkpoint) for one in ones),
            *(partial(desk.driver.call, each, "recover_all") for each in alls),
        ]
    )

    said = [each for each in found[:4] if not isinstance(each, RunBusy)]
    said += [recovery.result for each in found[4:] for recovery in each]
    assert len(said) > 0
    assert {result.checkpoint.id for result in said} == {desk.store().head(checkpoint.branch_id)[0].head}
    assert len(desk.done) == 1 + idempotent
    assert len(set(desk.keys)) == 1
    branch, last = desk.store().head(checkpoint.branch_id)
    assert (branch.fence, branch.owner) == (fence + 1, None)
    assert {result.status for result in said} == {last.status}
    assert (last.status, len(last.pending)) == (("completed", 0) if idempotent else ("suspended", 1))


def test_a_worker_that_was_taken_for_lost_cannot_change_what_its_successor_did(desk: Shop) -> None:
    """It comes back late, with another result: its fence has moved, and the successor's stands. field failure 41"""
    entered, leave = threading.Event(), threading.Event()
    came: list[Any] = []

    def pay(order: int) -> str:
        """Pay."""
        desk.done.append(threading.current_thread().name)
        if len(desk.done) == 1:
            entered.set()
            assert leave.wait(PATIENCE)
            return "late"
        return "in time"

    desk.script([], tool(requires_approval=True, idempotent=True)(desk.driver.function(pay)))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    checkpoint = desk.invoke().checkpoint
    first = desk.worker()

    def work() -> None:
        try:
            came.append(desk.driver.resume(first, checkpoint, approved=True))
        except Exception as error:
            came.append(error)

    late = threading.Thread(target=work, name="late")
    late.start()
    assert entered.wait(PATIENCE)
    held = desk.beside().head(checkpoint.branch_id)[0]
    with pytest.raises(RunBusy) as busy:
        desk.driver.recover(desk.worker(), checkpoint)
    assert busy.value.owner == held.owner

    desk.later = HOUR
    result = desk.driver.recover(desk.worker(), checkpoint)
    leave.set()
    late.join(PATIENCE)

    assert (result.status, result.messages[2].text) == ("completed", "in time")
    [error] = came
    assert isinstance(error, LeaseLost)
    assert (error.run_id, error.branch_id) == (checkpoint.run_id, checkpoint.branch_id)
    branch, last = desk.store().head(checkpoint.branch_id)
    assert (last, branch.status, branch.owner) == (result.checkpoint, "completed", None)
    assert branch.fence > held.fence


def test_whoever_is_told_of_a_request_can_answer_it_at_once(desk: Shop) -> None:
    """From within the announcement, before the caller has heard of it: the answer counts. field failure 40"""
    heard: list[Any] = []

    class Fast(Announcements):
        def on_suspended(self, event: Any) -> None:
            def answer() -> None:
                listed = [item.approval for item in desk.beside().pending()]
                heard.append(listed == list(event.pending))
                heard.append(desk.driver.resume(desk.worker(), event.checkpoint_id, approved=True))

            clicker = threading.Thread(target=answer)
            clicker.start()
            clicker.join(PATIENCE)

    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    asked = desk.driver.invoke(desk.worker(announcements=[Fast()]), "go")

    listed, answered = heard
    assert (listed, asked.status, answered.status, desk.done) == (True, "suspended", "completed", ["pay 1 10"])
    unchanged(desk, partial(desk.approve, asked.checkpoint), CheckpointAlreadyResumed)


@pytest.mark.product
def test_of_simultaneous_clicks_one_counts_on_every_store(desk: Shop) -> None:
    """Eight processes decide one request: one decision is in the record and in the trail. field failure 46"""
    desk.script(pay_once, desk.tool("pay"))
    for _ in range(3):
        desk.done.clear()
        checkpoint = desk.invoke().checkpoint
        clicks = [
            partial(desk.driver.resume, desk.worker(), posted(checkpoint), approved=n % 2 == 0, by=f"person {n}")
            for n in range(8)
        ]

        found = at_once(clicks)

        [winner] = [each for each in found if not isinstance(each, CheckpointAlreadyResumed)]
        [decision] = winner.checkpoint.decisions
        assert {each.decision for each in found if each is not winner} == {decision}
        assert desk.done == ["pay 1 10"] * (decision.kind == "approve")
        [line] = desk.store().audit(run_id=checkpoint.run_id)
        assert (line.by, line.kind) == (decision.by, decision.kind)


# Filters and ids


INJECTIONS = (
    *(
        "' OR '1'='1",
        "'; DROP TABLE phronomy_log; --",
        "x' UNION SELECT body FROM phronomy_log --",
        '" OR ""="',
        "\\",
        "\\'",
    ),
    *(
        "%",
        "_",
        "*",
        "?",
        "[a-z]*",
        "t*",
        "$1",
        "%s",
        "%(tenant)s",
        ":a",
        "{x}",
        "<log>",
        "}:",
        "{phronomy:}:",
        "\n",
        "",
        " ",
    ),
    *(
        '"]] redis.call("FLUSHALL") --',
        '") redis.call("FLUSHALL") --',
        "]] .. redis.call('FLUSHALL') .. [[",
        "\r\nFLUSHALL\r\n",
    ),
    *(
        "+inf",
        "-inf",
        "(0",
        "-",
        "0",
        "null",
        "nil",
        "None",
        "false",
        '{"$ne": null}',
        '{"$gt": ""}',
        "$(id)",
        "`id`",
        "\ud800",
    ),
)
"""What is text of somebody's, and code to a database that is asked carelessly."""

NOT_TEXT: tuple[Any, ...] = ({"$ne": None}, {"$gt": ""}, ["t"], ("t",), 0, True, b"t", 1.5, object())


def questions(store: Store, value: Any) -> Iterator[Callable[[], Any]]:
    """Everything that can be asked of a store with a value of somebody's; nothing of it finds anything."""
    for name in ("run_id", "thread_id", "agent", "tool", "label", "risk"):
        yield partial(store.pending, **{name: value})
        yield lambda name=name: [None] * store.count(**{name: value})
    for name in ("run_id", "thread_id", "agent", "label"):
        yield partial(store.list, **{name: value})
    for name in ("run_id", "thread_id", "pending_id"):
        yield lambda name=name: list(store.audit(**{name: value}))
    for name in ("run_id", "thread_id"):
        yield partial(store.branches, **{name: value})
        yield partial(store.pending_rows, **{name: value})
    yield partial(store.select_pending, PendingFilter(pending_id=value))
    yield partial(store.child_ids, value)
    yield lambda: [found] if (found := store.kept_text(value)) is not None else []
    yield lambda: [found] if (found := store.get_document("person", value)) is not None else []
    yield lambda: [found] if (found := store.get_document(value, "ann")) is not None else []
    yield lambda: [found] if (found := store.latest(value)) is not None else []
    yield lambda: [value] * store.delete(value)


def test_what_is_looked_for_is_a_value_and_never_a_question(desk: Shop) -> None:
    """In no filter, id or cursor is anything read but the text that it is, and nothing is changed by asking. field failure 96"""
    desk.script([*pays(1), *pays(2), *pays(3)], desk.tool("pay", risk="high"))
    for thread, label in (("t", "l"), (None, None)):
        desk.invoke(thread_id=thread, label=label)
    desk.driver.invoke(desk.agent(store=desk.store(tenant="other")), "go", thread_id="t")
    before, store = desk.rows(), desk.store()
    assert len(store.pending(thread_id="t", label="l", risk="high", tool="pay", agent="clerk")) == 1

    for text in INJECTIONS:
        for ask in questions(store, text):
            assert list(ask()) == [], text
        for look in (store.load, store.head, store.history, store.fork, store.wait):
            with pytest.raises(CheckpointNotFound):
                look(text)
        assert list(store.select_pending(PendingFilter(facets={text or "x": "pay"}))) == []
        assert store.count_pending(PendingFilter(facets={text or "x": "", "tool": "pay"})) == 0
        for method in (store.pending, store.list, store.count, store.audit):
            with pytest.raises(TypeError):
                method(**{text or "x": "t"})
        for ask in (partial(store.pending, after=text), partial(store.list, after=text)):
            with pytest.raises(StoreError, match="and nothing else"):
                ask()
    assert desk.rows() == before


def test_what_is_no_text_finds_nothing_and_changes_nothing(desk: Shop) -> None:
    """An object where an id belongs is no operator: it is refused, or is nobody's id. field failure 96"""
    desk.script([*pays(1)], desk.tool("pay"))
    desk.invoke(thread_id="t")
    before, store = desk.rows(), desk.store()
    for value in NOT_TEXT:
        for ask in questions(store, value):
            with suppress(PhronomyError, TypeError, AttributeError):
                assert list(ask()) == [], value
    assert desk.rows() == before


def forged(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def test_a_cursor_is_a_place_and_carries_no_question(desk: Shop) -> None:
    """A forged one shows nothing that its list would not show, and what is no place is refused. field failure 96"""
    desk.script([*pays(1), *pays(2), *pays(3)], desk.tool("pay"))
    for thread in ("a", "b"):
        desk.invoke(thread_id=thread)
    desk.driver.invoke(desk.agent(store=desk.store(tenant="other")), "go", thread_id="a")
    store = desk.store()
    page = store.pending(limit=1)
    assert page.next is not None
    [second] = store.pending(after=page.next)
    assert [item.thread_id for item in (*page, second)] == ["a", "b"]
    assert desk.store(tenant="third").pending(after=page.next) == []

    store = desk.store()
    for cursor in (forged("p", -1.0, -1), forged("p", 0.0, 0), forged("p", -1e18, 2**62)):
        assert {item.thread_id for item in store.pending(after=cursor)} <= {"a", "b"}
        assert [item.thread_id for item in store.pending(after=cursor, thread_id="b")] == ["b"]
    for parts in (
        ("p", "0' OR 1=1", 0),
        ("p", 0.0, "0); DROP TABLE x"),
        ("p", 0.0),
        ("p", 0, 0),
        ("c", 0.0, 0),
        ("p", 0.0, 0, 0),
        ("p", 1e400, 0),
        ("p", 0.0, 2**63),
        ({"p": 1}, 0.0, 0),
        (),
    ):
        with pytest.raises(StoreError, match="and nothing else"):
            store.pending(after=forged(*parts))
    with pytest.raises(StoreError, match="and nothing else"):
        store.list(after=page.next)


NAMES = tuple(text for text in INJECTIONS if text and text.isprintable())


@pytest.mark.few(2)
def test_whatever_text_something_is_called_by_is_its_name_alone(desk: Shop) -> None:
    """Threads, labels, risks, agents and tenants of those names live beside each other. field failure 96"""
    for text in NAMES[:: 3 if desk.place.kind in ("postgres", "redis") else 1]:
        desk.script([*pays(1), "end"], desk.tool("pay", risk=text), name=text)
        agent = desk.agent(store=desk.store(tenant=text))
        checkpoint = desk.driver.invoke(agent, "go", thread_id=text, label=text).checkpoint
        store = desk.store(tenant=text)
        for filters in ({"thread_id": text}, {"label": text}, {"risk": text}, {"agent": text}, {}):
            assert [item.checkpoint_id for item in store.pending(**filters)] == [checkpoint.id]
            assert store.count(**filters) == 1
        assert {info.branch_id for info in store.list(thread_id=text, agent=text)} == {checkpoint.branch_id}
        assert desk.driver.resume(desk.agent(store=store), checkpoint.id, approved=True).status == "completed"
        assert [line.agent for line in desk.store(tenant=text).audit(thread_id=text)] == [text]
    assert desk.store().branches() == []


LONG = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(2000))
HOSTILE = (
    *("../../../../tmp/x", "..\\..\\x", "/etc/passwd", "C:\\x", "file:///etc/passwd", "%2e%2e%2f", "~root", ".", ".."),
    *("a\0b", "\0", "'", '"', "`", "\n", "\r\n", "\x1b[2J", "\u202e", "\ud800", "x" * 10_000, LONG),
)
"""Ids that mean something to a file system, a shell, a terminal, or a database with a limit."""


def tree(place: Place) -> list[str]:
    """The files beside the database, and where the process stands."""
    beside = [path for path in place.folder.parent.glob("*") if not path.name.startswith("test_")]  # of other tests
    found = [*beside, *place.folder.rglob("*"), *Path.cwd().glob("*"), Path("/etc/passwd")]
    own = {f"runs.db{end}" for end in ("", "-wal", "-shm", "-journal")}
    theirs = [path for path in found if path.name not in own and not path.name.startswith(".coverage")]
    return sorted(f"{path} {path.stat().st_size if path.is_file() else ''}" for path in theirs)


@pytest.mark.few(2)
def test_an_id_is_text_and_never_a_path(desk: Shop) -> None:
    """As an id of a thread it is kept as it is or refused whole; as that of a checkpoint it is unknown. field failure 99"""
    desk.store()
    before, kept = tree(desk.place), 0
    for number, id in enumerate(HOSTILE):
        desk.script([*pays(number), "end"], desk.tool("pay"))
        rows = desk.rows()
        try:
            checkpoint = desk.invoke(thread_id=id).checkpoint
        except ConfigurationError as error:
            assert len(str(error)) < 300
            assert desk.rows() == rows, id
        else:
            kept += 1
            assert [item.checkpoint_id for item in desk.store().pending(thread_id=checkpoint.thread_id)] == [
                checkpoint.id
            ]
            assert desk.approve(checkpoint.id).status == "completed"
        rows, store = desk.rows(), desk.store()
        agent = desk.agent(store=store)
        for method in ("resume", "recover", "cancel", "fork"):
            with pytest.raises(CheckpointNotFound):
                desk.driver.call(agent, method, id)
        for look in (store.load, store.history, store.head):
            with pytest.raises(CheckpointNotFound):
                look(id)
        assert desk.rows() == rows
    assert kept == len(HOSTILE) - 4
    assert tree(desk.place) == before
    assert len(desk.store().branches()) == kept
