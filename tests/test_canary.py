"""A secret that is followed everywhere: deps, redacted arguments, keys in the environment and passwords in URLs are in no log, repr,
error or screen, and in the rows of no store but for the arguments, which are what runs. Each capture is shown to catch.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from drivers import Driver
from places import Place, place_of
from servers import postgres_url
from test_failures_once import reachable
from test_failures_stores import HOUR, PowerCut, lose

from phronomy import (
    Agent,
    AgentChanged,
    Announcements,
    ApprovalExpired,
    ApprovalHandlerError,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    CheckpointUntrusted,
    Hooks,
    InstructionsError,
    InvalidDecision,
    MemoryStore,
    ModelError,
    NothingDecided,
    PhronomyError,
    Principal,
    Reject,
    Respond,
    RunBusy,
    StoreError,
    ThreadBusy,
    ToolContext,
    UnknownPending,
    open_store,
    tool,
    validate_checkpoint,
)
from phronomy.observability.events import replay
from phronomy.records.diff import diff
from phronomy.stores import CheckpointFilter, Store
from phronomy.testing import ScriptedModel, call

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]

DEPS = "sk-canary-deps-31337"
CARD = 'canary-card-4711-"quoted"-ü'
KEY = "sk-canary-key-5Yb2"
PASSWORD = "canary-password-9Kx1"
CANARIES = ("canary-deps", "canary-card", "canary-key", "canary-password")
"""What each of them has in every form that it may be written in: quoted, escaped, as JSON, percent-encoded."""


@dataclass
class Deps:
    """As people write them: a repr shows it all."""

    key: str = DEPS


class Own(Exception):
    """What user code raises: its text is the user's, wherever it is carried along."""


class Spy(logging.Handler):
    """Keeps all that is logged, at every level, and what is shown to it, as text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.logged: list[str] = []
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append(f"{record.name} {record.getMessage()} {record.args!r} {record.__dict__!r}")
        if record.exc_info and record.exc_info[1] is not None:
            self.logged.append("".join(traceback.format_exception(record.exc_info[1])))

    def see(self, *things: Any) -> Any:
        """The last thing; each, and every record that can be reached from it, is written out as `repr` and `str` do."""
        for thing in things:
            self.seen += [repr(thing), str(thing), f"{thing}"]
            for part in reachable(thing, set()):
                if type(part).__module__.startswith("phronomy"):
                    self.seen += [repr(part), str(part)]
        return things[-1]

    def raises(self, error: type[BaseException], act: Callable[[], Any]) -> Any:
        """The error that `act` raises; it is seen, with its chain as a traceback shows it, its attributes and its notes."""
        with pytest.raises(error) as caught:
            act()
        self.failed(caught.value)
        return caught.value

    def failed(self, error: BaseException) -> None:
        at: BaseException | None = error
        while at is not None:
            if not isinstance(at, Own):
                self.seen += [repr(at), str(at), *getattr(at, "__notes__", ()), repr(at.args)]
                for value in vars(at).values():
                    self.see(value)
            at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)

    def leaks(self) -> list[str]:
        """What of it holds a canary."""
        return [text[:2000] for text in (*self.logged, *self.seen) if any(canary in text for canary in CANARIES)]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spy]:
    """Hears every logger, while keys and URLs with passwords are in the environment."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PGPASSWORD", "REDIS_PASSWORD"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("DATABASE_URL", f"postgresql://app:{PASSWORD}@db.example/app")
    found, root = Spy(), logging.getLogger()
    before = {
        logger: logger.level
        for logger in map(logging.getLogger, ["", "phronomy", "psycopg", "psycopg.pool", "asyncio"])
    }
    for logger in before:
        logger.setLevel(logging.DEBUG)
    root.addHandler(found)
    yield found
    root.removeHandler(found)
    for logger, level in before.items():
        logger.setLevel(level)


@contextmanager
def secret_url(place: Place) -> Iterator[str]:
    """The place's URL with a password in it that the server accepts."""
    with ExitStack() as stack:
        url = place.url
        if place.kind == "postgres":  # it trusts whoever comes by its socket
            url = url.replace("postgres@/", f"postgres:{PASSWORD}@/")
            assert PASSWORD in url
        elif place.kind == "redis":
            admin = stack.enter_context(redis_py.Redis.from_url(place.where))
            admin.acl_setuser("app", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], categories=["+@all"])
            stack.callback(admin.acl_deluser, "app")
            url = url.replace("redis://", f"redis://app:{PASSWORD}@")
        yield url


class Desk:
    """A desk whose tool has a secret argument, and whose deps hold a key."""

    def __init__(self, driver: Driver, spy: Spy, url: str, place: Place) -> None:
        self.driver, self.spy, self.url, self.place = driver, spy, url, place
        self.later = 0.0
        self.done: list[Any] = []
        self.stores: list[Store] = []
        self.raises: Callable[[str], BaseException | None] = lambda card: None

    def store(self) -> Store:
        for store in self.stores:
            store.close()
        store = self.place.open() if self.place.kind == "memory" else open_store(self.url)
        store.clock = lambda: time.time() + self.later
        self.stores = [store]
        return store

    def pay(self, **options: Any) -> Any:
        """The tool."""

        def pay(order: int, card: str, ctx: ToolContext[Deps]) -> str:
            """Pay."""
            self.done.append((card, ctx.deps.key))
            self.spy.see(ctx)
            if (error := self.raises(card)) is not None:
                raise error
            return "paid"

        return tool(**{"requires_approval": True, "redact": ["card"], **options})(self.driver.function(pay))

    def agent(self, *replies: Any, gated: Any = None, **options: Any) -> Agent[Any, str]:
        script = replies or ([call("pay", {"order": 1, "card": CARD})], "end")
        made = {"store": self.store(), "tools": [gated or self.pay()], **options}
        agent: Agent[Any, str] = Agent(name="clerk", model=ScriptedModel.by_turn(script), **made)
        self.spy.see(agent, agent.store, agent.model, agent.spec, agent.tools[0])
        return agent

    def begin(self, agent: Agent[Any, str] | None = None, **options: Any) -> Checkpoint:
        """A run that waits."""
        result = self.driver.invoke(agent or self.agent(), "go", deps=Deps(), **options)
        self.spy.see(result)
        assert result.suspended
        return result.checkpoint

    def resume(self, at: Any, agent: Agent[Any, str] | None = None, **options: Any) -> Any:
        return self.spy.see(self.driver.resume(agent or self.agent(), at, deps=Deps(), **options))

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.fixture
def desk(driver: Driver, spy: Spy, place: Place) -> Iterator[Desk]:
    with secret_url(place) as url:
        made = Desk(driver, spy, url, place)
        yield made
        made.close()


def clean(desk: Desk) -> None:
    """That no canary is anywhere, though all was looked at; and that the rows hold the argument and nothing else of them."""
    spy, rows = desk.spy, desk.place.text()
    assert spy.leaks() == []
    assert any("run_" in text and "phronomy" in text for text in spy.logged)
    assert any("Checkpoint(" in text for text in spy.seen)
    assert "canary-card" in rows
    assert [canary for canary in ("canary-deps", "canary-key", "canary-password") if canary in rows] == []


# That what follows would catch it


def test_each_capture_catches(spy: Spy) -> None:
    """A canary in a message, its arguments, a traceback, a repr, an attribute, a cause or a note is found."""

    @dataclass
    class Holder:
        value: Any

    def chained() -> None:
        try:
            raise LookupError(DEPS)
        except LookupError as error:
            raise StoreError("clean") from error

    def hidden() -> None:
        try:
            raise LookupError(DEPS)
        except LookupError:
            raise StoreError("clean") from None

    def noted() -> None:
        error = StoreError("clean")
        error.add_note(CARD)
        raise error

    def carried() -> None:
        error = StoreError("clean")
        error.extra = Holder(KEY)  # type: ignore[attr-defined]
        raise error

    def logs(*line: Any, **options: Any) -> Callable[[], Any]:
        return lambda: logging.getLogger("psycopg.pool").debug(*line, **options)

    finds: list[Callable[[], Any]] = [
        logs(PASSWORD),
        logs("%s", KEY),
        logs("%.3s", PASSWORD),
        logs("failed", exc_info=LookupError(DEPS)),
        lambda: spy.see(Deps()),
        lambda: spy.see([Holder(Holder(CARD))]),
        *(partial(spy.raises, StoreError, act) for act in (chained, noted, carried)),
    ]
    for act in finds:
        act()
        assert spy.leaks(), act
        spy.logged.clear()
        spy.seen.clear()
    spy.raises(StoreError, hidden)
    assert spy.leaks() == []
    assert KEY in os.environ["OPENAI_API_KEY"]


# A life of runs


def test_deciding_tells_nobody(desk: Desk) -> None:
    """Asked, listed, edited, approved, rejected, answered, cancelled, replaced, branched. field failure 100"""
    first = desk.begin(thread_id="t", metadata={"a": 1}, label="l")
    store = desk.store()
    desk.spy.see(store.pending(), store.list(), store.branches(), store.head(first.branch_id), store.history(first.id))
    desk.spy.see(list(replay(store, first.branch_id)), validate_checkpoint(first.model_dump_json()))
    [item] = first.pending
    for args in (
        {"order": "x", "card": CARD},
        {"order": 1, "card": [CARD]},
        {"card": {CARD: CARD}},
    ):
        desk.spy.raises(InvalidDecision, lambda args=args: desk.resume(first, decisions={item.id: Approve(args=args)}))
    for wrong in ({"decisions": {item.id: CARD}}, {"approved": CARD}, {"decisions": CARD}):
        desk.spy.raises(PhronomyError, partial(desk.resume, first, **wrong))
    desk.spy.raises(NothingDecided, partial(desk.resume, first))
    desk.spy.raises(UnknownPending, partial(desk.resume, first, decisions={"pend_0": Approve()}))
    desk.spy.raises(ThreadBusy, partial(desk.begin, thread_id="t"))

    edited = desk.resume(first, decisions={item.id: Approve(args={"order": 2, "card": f"{CARD}2"})}, by="ann")
    assert (edited.status, desk.done) == ("completed", [(f"{CARD}2", DEPS)])
    desk.spy.see(diff(first, edited.checkpoint), desk.agent().drift(first))
    error = desk.spy.raises(CheckpointAlreadyResumed, partial(desk.resume, first, approved=False))
    assert error.decision.args == {"order": 2, "card": f"{CARD}2"}
    desk.resume(desk.begin(), approved=True)
    for answer in (Reject(reason="no", then="block"), Reject(then="end"), Respond(content={"a": 1})):
        waits = desk.begin()
        desk.resume(waits, decisions={waits.pending[0].id: answer})
    waits = desk.begin()
    desk.spy.see(desk.driver.cancel(desk.agent(), waits, reason="no"))
    waits = desk.begin(thread_id="u")
    desk.begin(thread_id="u", on_pending="supersede")
    desk.spy.see(desk.driver.fork(desk.agent(), waits.parent_id or ""))
    desk.spy.see(list(desk.store().audit()), desk.store().latest("t"))
    clean(desk)


def test_failing_tells_nobody(desk: Desk) -> None:
    """The tool, the model, a handler, a predicate, instructions, a hook and a listener raise, and quote what they know."""
    secrets = f"{CARD} {CARD!r} {DEPS}"

    def fails(*_: Any, **__: Any) -> Any:
        raise Own(secrets)

    class Loud(Hooks):
        on_event = fails

    class Broken(Announcements):
        on_suspended = on_decided = on_completed = fails

    desk.raises = lambda card: Own(f"declined: {card} {card!r} {[card]}")
    told = desk.resume(desk.begin(), approved=True).messages
    assert told[2].settlement == "failed"
    assert "[redacted]" in told[2].text
    assert "canary" not in told[2].text
    asked = desk.resume(desk.begin(), desk.agent(gated=desk.pay(on_failure="human")), approved=True).checkpoint
    assert (asked.pending[0].why, "canary" in str(asked.pending[0].reason)) == ("failed", False)
    desk.raises = lambda card: None

    bad = [
        call("pay", {"order": "x", "card": CARD}),
        call("pay", f'{{"card": "{CARD[:20]}'),
        call("pay", {"order": 1, "card": {CARD: CARD}}),
    ]
    refused = desk.driver.invoke(desk.agent(bad, "end"), "go", deps=Deps())
    desk.spy.see(refused)
    assert (refused.status, len(refused.messages)) == ("completed", 6)
    assert not any("canary" in message.text for message in refused.messages if message.role == "tool")

    function = desk.driver.function
    waits = desk.begin(desk.agent(gated=desk.pay(requires_approval=function(lambda args: fails()))))
    assert len(waits.pending) == 1
    loud = desk.begin(desk.agent(hooks=[Loud()], announcements=[Broken()]))
    desk.resume(loud, desk.agent(hooks=[Loud()], announcements=[Broken()]), approved=True)
    desk.spy.see(desk.driver.call(desk.agent(announcements=[Broken()]), "recover_all"))
    desk.spy.raises(ModelError, lambda: desk.driver.invoke(desk.agent(Own(secrets)), "go", deps=Deps()))
    handler = function(lambda name, args: fails())
    desk.spy.raises(ApprovalHandlerError, lambda: desk.begin(desk.agent(on_approval_required=handler)))
    odd = function(lambda name, args: {"card": args["card"]})
    desk.spy.raises(ApprovalHandlerError, lambda: desk.begin(desk.agent(on_approval_required=odd)))
    desk.spy.raises(InstructionsError, lambda: desk.begin(desk.agent(instructions=function(lambda text: fails()))))

    def instructions(text: Any, context: Any) -> str:
        desk.spy.see(context)
        return "Be exact."

    desk.begin(desk.agent(instructions=function(instructions)))
    clean(desk)


def events_of(desk: Desk, agent: Agent[Any, str], at: Any, **options: Any) -> list[Any]:
    """The events of a stream, whether it fails or not."""
    found: list[Any] = []
    try:
        if not desk.driver.is_async:
            for event in agent.stream(at, deps=Deps(), **options):
                found.append(event)
            return found

        async def main() -> None:
            async for event in agent.astream(at, deps=Deps(), **options):
                found.append(event)

        asyncio.run(main())
    except PhronomyError as error:
        desk.spy.failed(error)
    return found


def test_streaming_tells_nobody(desk: Desk) -> None:
    """Every event, pieces of arguments and failures included."""
    events = events_of(desk, desk.agent(), "go", thread_id="t")
    desk.raises = lambda card: Own(f"declined: {card}")
    [waits] = desk.store().pending()
    stopped = desk.store().load(waits.checkpoint_id)
    events += events_of(desk, desk.agent(), stopped, approved=True)
    events += events_of(desk, desk.agent(Own(CARD)), "go")
    desk.spy.see(*events)
    assert {event.type for event in events} >= {
        "tool_call_delta",
        "suspended",
        "decided",
        "tool_call_settled",
        "failed",
        "completed",
    }
    assert any(
        "canary-card" in event.model_dump_json() for event in events
    )  # events are given the conversation as it is
    clean(desk)


def test_being_late_lost_or_changed_tells_nobody(desk: Desk) -> None:
    """Expired, held by another, lost and recovered, put to a human, another agent, an edited text, another store."""
    first = desk.begin(desk.agent(approval_timeout=60.0))
    desk.later = HOUR
    late = desk.spy.raises(ApprovalExpired, partial(desk.resume, first, approved=True))
    assert late.result.status == "completed"
    desk.begin(desk.agent(approval_timeout=60.0))
    desk.later += HOUR
    desk.spy.see(desk.driver.call(desk.agent(), "recover_all", deps=Deps()))
    assert desk.done == []

    lost = desk.begin()
    cut = desk.agent()
    lose(cut.store, lambda change: bool(desk.done))
    with pytest.raises(PowerCut):
        desk.resume(lost, cut, approved=True)
    desk.spy.raises(RunBusy, lambda: desk.driver.recover(desk.agent(), lost))
    desk.later += HOUR
    unknown = desk.spy.see(desk.driver.recover(desk.agent(), lost, deps=Deps())).checkpoint
    assert unknown.pending[0].why == "outcome_unknown"
    desk.resume(unknown, decisions={unknown.pending[0].id: Respond(content="paid")})

    waits = desk.begin()

    def pay(order: int, card: int) -> str:
        """Pay."""
        return "paid"

    narrowed = tool(requires_approval=True, redact=["card"])(desk.driver.function(pay))
    desk.spy.raises(AgentChanged, partial(desk.resume, waits, desk.agent(gated=narrowed), approved=True))
    desk.spy.see(desk.agent(gated=narrowed).drift(waits))
    text = waits.model_dump_json()
    for edited in (
        text[:-9],
        text.replace("canary-card", "canary-card2"),
        text.replace('"order', f'"{DEPS}'),
        f'{{"{CARD}": NaN}}',
    ):
        desk.spy.raises(CheckpointError, partial(Checkpoint.model_validate_json, edited))
        desk.spy.see(validate_checkpoint(edited))
    forged = waits.model_copy(update={"metadata": waits.evolve(label=CARD).__dict__["metadata"], "step": 99})
    desk.spy.raises((CheckpointEdited, CheckpointUntrusted), partial(desk.resume, forged, approved=True))
    elsewhere = desk.agent(store=MemoryStore())
    desk.spy.raises(CheckpointUntrusted, partial(desk.resume, waits, elsewhere, approved=True))
    clean(desk)


def test_what_a_store_hands_out_shows_no_body(desk: Desk) -> None:
    """Rows, entries and changes are public: they hold what runs, and their reprs do not show it."""
    first = desk.begin(thread_id="t")
    store = desk.store()
    desk.spy.see(*store.pending_rows(), *store.lineage(branch_id=first.branch_id).entries)
    desk.spy.see(*store.select_checkpoints(CheckpointFilter(thread_id="t")))
    assert any("canary-card" in row.body for row in store.pending_rows())
    clean(desk)


def test_an_answer_that_cannot_be_built_is_not_quoted(spy: Spy, driver: Driver) -> None:
    """Where a decision is made of what somebody sent: the error says what is wrong, and not with what."""
    for build in (
        lambda: Approve(args={"card": CARD, "amount": float("nan")}),
        lambda: Approve(args=CARD),  # type: ignore[arg-type]
        lambda: Respond(content={"card": CARD, "at": object()}),
        lambda: Reject(reason=[CARD]),  # type: ignore[arg-type]
        lambda: Principal(id="", name=KEY),
    ):
        with pytest.raises(InvalidDecision, match=r"^(Approve|Respond|Reject|Principal): ") as refused:
            build()
        spy.see(refused.value)
    assert spy.seen
    assert spy.leaks() == []


# A store that is away


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://app:{PASSWORD}@127.0.0.1:1/app?timeout=0.2",
        f"postgresql://app:{PASSWORD}@127.0.0.1:1/app?timeout=0.2&password={PASSWORD}",
        f"postgresql://app:{PASSWORD}@127.0.0.1:nine/app",
        f"postgresql://app:{PASSWORD}@127.0.0.1:1/app?unknown={PASSWORD}",
        f"redis://app:{PASSWORD}@127.0.0.1:1/0?timeout=0.2",
        f"redis://app:{PASSWORD}@127.0.0.1:nine/0",
        f"redis://app:{PASSWORD}@127.0.0.1:1/0?unknown={PASSWORD}",
        f"redis://app:{PASSWORD}@127.0.0.1:1/0?timeout={PASSWORD}",
        f"mysql://app:{PASSWORD}@127.0.0.1/app",
        f"{PASSWORD}",
        f"sqlite:///x.db?{PASSWORD}=1",
        f"sqlite://app:{PASSWORD}@host/x.db",
    ],
    ids=lambda url: url.replace(PASSWORD, "..."),
)
def test_a_store_that_cannot_be_had_is_said_without_its_url(spy: Spy, driver: Driver, url: str) -> None:
    """Down, misspelt or unknown: neither the error, its chain, the store's repr nor a log line of the driver holds the password."""

    def use() -> None:
        with open_store(url) as store:
            spy.see(store)
            driver.invoke(Agent(name="clerk", model=ScriptedModel(["x"]), store=store), "go", deps=Deps())

    spy.raises(StoreError, use)
    assert spy.leaks() == []


def test_a_server_that_refuses_the_password_is_said_without_it(spy: Spy, driver: Driver, tmp_path: Path) -> None:
    """Wrong, or not wanted at all."""
    with place_of("redis", tmp_path) as place:
        for user in ("default", "nobody"):
            url = place.where.replace("redis://", f"redis://{user}:{PASSWORD}@")
            with open_store(url) as store:
                agent: Agent[Any, str] = Agent(name="clerk", model=ScriptedModel(["x"]), store=store)
                spy.see(store, agent)
                if user == "nobody":
                    spy.raises(StoreError, partial(driver.invoke, agent, "go"))
    url = re.sub(r"postgres@/[^?]*", f"postgres:{PASSWORD}@/nobody", postgres_url())
    with open_store(url) as store:
        spy.raises(
            StoreError, partial(driver.invoke, Agent(name="clerk", model=ScriptedModel(["x"]), store=store), "go")
        )
    assert spy.seen
    assert spy.leaks() == []
