"""Random scripts of replies, decisions, faults and restarts against the laws; and ten thousand damaged checkpoint texts."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from drivers import decide_first
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from selection import scaled

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    InvalidDecision,
    LeaseLost,
    MemoryStore,
    NothingDecided,
    PhronomyError,
    Reject,
    Respond,
    RunBusy,
    RunFailed,
    SQLiteStore,
    Store,
    StoreError,
    ThreadBusy,
    ToolContext,
    UnknownPending,
    tool,
)
from phronomy.records.checkpoint import _digest as checkpoint_digest
from phronomy.records.checkpoint import decode, encode
from phronomy.rules.transitions import plan
from phronomy.stores.rows import OPEN, Append, Branch
from phronomy.testing import ScriptedModel, call, check_history

HOUR = 3600.0


class Faults:
    """What goes wrong next, and what the tools have done so far."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.write: str | None = None
        self.tool: type[BaseException] | None = None
        self.model: type[Exception] | None = None
        self.effects: list[tuple[str, int, str, str | None]] = []

    def clock(self) -> float:
        return self.now


class LossyMixin:
    """A store whose next write may fail before it is made, or after it: then only the answer is lost."""

    faults: Faults

    def append(self, change: Append) -> Branch:
        fault, self.faults.write = self.faults.write, None
        if fault == "before":
            raise StoreError("the disk is full")
        branch: Branch = super().append(change)  # type: ignore[misc]
        if fault == "after":
            raise StoreError("the answer was lost")
        return branch


class LossyMemory(LossyMixin, MemoryStore):
    pass


class LossySQLite(LossyMixin, SQLiteStore):
    pass


TOOLS = ("look", "pay", "wire", "flaky", "safe")
CALLS = st.tuples(st.sampled_from(TOOLS), st.integers(0, 9))
ODD = st.sampled_from(
    [("pay", "{"), ("pay", '{"n": "x"}'), ("nope", "{}"), ("look", '{"n": 1, "n": 2}'), ("pay", '{"n": NaN}')]
)
TURN = st.lists(st.one_of(CALLS, CALLS, CALLS, ODD), min_size=1, max_size=4)
SCRIPT = st.lists(TURN, max_size=3)


def make_tools(faults: Faults, is_async: bool) -> list[Any]:
    def act(name: str, n: int, context: ToolContext[Any]) -> str:
        faults.effects.append((name, n, context.idempotency_key, context.pending_id))
        if faults.tool is not None:
            error, faults.tool = faults.tool, None
            raise error("in a tool")
        return f"{name} {n}"

    options: dict[str, dict[str, Any]] = {
        "look": {},
        "pay": {"requires_approval": True},
        "wire": {
            "requires_approval": lambda args: args["n"] > 4 or Reject(reason="too little") if args["n"] else False
        },
        "flaky": {"requires_approval": True, "on_failure": "human"},
        "safe": {"idempotent": True, "retries": 1, "retry_wait": 0.0},
    }

    def define(name: str) -> Any:
        if is_async:

            @tool(name=name, **options[name])
            async def body(n: int, ctx: ToolContext[Any]) -> str:
                """Do it."""
                return act(name, n, ctx)
        else:

            @tool(name=name, **options[name])
            def body(n: int, ctx: ToolContext[Any]) -> str:
                """Do it."""
                return act(name, n, ctx)

        return body

    return [define(name) for name in TOOLS]


class Life(RuleBasedStateMachine):
    """One thread of conversation, with everything that can happen to it."""

    is_async = False
    sqlite = False

    @initialize()
    def begin(self) -> None:
        self.faults = Faults()
        self.folder = tempfile.TemporaryDirectory()
        self.memory: Store | None = None
        self.script: list[list[tuple[str, Any]]] = []
        self.known: list[Checkpoint] = []
        self.store = self.open_store()
        self.agent = self.make_agent("clerk")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    def open_store(self) -> Store:
        kind = LossySQLite if self.sqlite else LossyMemory
        if self.sqlite:
            store: Any = LossySQLite(str(Path(self.folder.name) / "runs.db"), clock=self.faults.clock)
        else:
            self.memory = self.memory or LossyMemory(clock=self.faults.clock)
            store = self.memory
        assert isinstance(store, kind)
        store.faults = self.faults
        return store

    def make_agent(self, name: str) -> Agent[Any, str]:
        def reply(request: Any) -> Any:
            if self.faults.model is not None:
                error, self.faults.model = self.faults.model, None
                raise error("no answer")
            turns = 0
            for message in reversed(request.messages):
                if message.role == "user":
                    break
                turns += message.role == "assistant"
            if turns >= len(self.script):
                return "done"
            return [
                call(tool_name, args if isinstance(args, str) else {"n": args}, id="same")
                for tool_name, args in self.script[turns]
            ]

        return Agent(
            name=name, model=ScriptedModel(reply), tools=make_tools(self.faults, self.is_async), store=self.store
        )

    def do(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the method, sync or async, and note the checkpoint; a fault that we set is expected to come out."""
        try:
            if self.is_async:
                result = asyncio.run(getattr(self.agent, f"a{method}")(*args, **kwargs))
            else:
                result = getattr(self.agent, method)(*args, **kwargs)
        except (RunFailed, StoreError, KeyboardInterrupt, LeaseLost) as error:
            return error
        except RunBusy as error:
            self.faults.now += HOUR
            return error
        self.known.append(result.checkpoint)
        return result

    def head(self) -> Checkpoint | None:
        branches = self.store.branches(thread_id="t")
        return self.store.head(branches[-1].id)[1] if branches else None

    @rule(script=SCRIPT, on_pending=st.sampled_from(["refuse", "supersede_failed", "supersede"]))
    def say(self, script: list[list[tuple[str, Any]]], on_pending: Any) -> None:
        before = self.script
        open_branch = [b for b in self.store.branches(thread_id="t") if b.status in OPEN]
        stays = [b for b in open_branch if on_pending == "refuse" or b.status != "failed"]
        self.script = script if not stays or on_pending == "supersede" else before
        try:
            self.do("invoke", "go", thread_id="t", on_pending=on_pending)
        except ThreadBusy as error:
            assert stays and on_pending != "supersede"
            assert error.run_id == open_branch[0].run_id

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        """Decide some of what a checkpoint, fresh or stale, waits for."""
        checkpoint = data.draw(st.sampled_from(self.known[-4:]))
        kinds = st.sampled_from(["approve", "edit", "reject", "block", "end", "respond", "skip"])
        decisions: dict[str, Any] = {}
        for item in checkpoint.pending:
            match data.draw(kinds):
                case "approve":
                    decisions[item.id] = Approve()
                case "edit":
                    decisions[item.id] = Approve(args={"n": data.draw(st.integers(1, 9))})
                case "reject":
                    decisions[item.id] = Reject(reason="no")
                case "block":
                    decisions[item.id] = Reject(then="block")
                case "end":
                    decisions[item.id] = Reject(then="end")
                case "respond":
                    decisions[item.id] = Respond(content={"by": "hand"})
                case _:
                    pass
        effects = list(self.faults.effects)
        try:
            self.do("resume", data.draw(st.sampled_from([checkpoint, checkpoint.id])), decisions=decisions, by="ann")
        except (CheckpointAlreadyResumed, NothingDecided, UnknownPending, InvalidDecision):
            assert self.faults.effects == effects, "a refused decision has run something"

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def another_agent(self, data: st.DataObject) -> None:
        checkpoint = data.draw(st.sampled_from(self.known[-4:]))
        if not checkpoint.pending:
            return
        agent, self.agent = self.agent, self.make_agent("somebody else")
        effects, rows = list(self.faults.effects), self.rows()
        try:
            with pytest.raises((AgentChanged, CheckpointAlreadyResumed)):
                self.do("resume", checkpoint, decisions=decide_first(checkpoint))
        finally:
            self.agent = agent
        assert (self.faults.effects, self.rows()) == (effects, rows)

    @rule()
    def recover(self) -> None:
        head = self.head()
        if head is not None:
            self.do("recover", head.run_id)

    @rule()
    def cancel(self) -> None:
        head = self.head()
        if head is not None:
            try:
                self.do("cancel", head.run_id, reason="enough")
            except CheckpointAlreadyResumed:
                assert head.ended

    @rule()
    def restart(self) -> None:
        """Another process: nothing is left but what the store has and what was exported."""
        if self.sqlite:
            self.store.close()
        self.store = self.open_store()
        self.agent = self.make_agent("clerk")
        self.known = [decode(encode(checkpoint)) for checkpoint in self.known]

    @rule(fault=st.sampled_from(["before", "after"]))
    def lose_a_write(self, fault: str) -> None:
        self.faults.write = fault

    @rule(error=st.sampled_from([KeyboardInterrupt, ValueError]))
    def break_a_tool(self, error: type[BaseException]) -> None:
        if error is KeyboardInterrupt and self.is_async:
            error = ValueError  # an interrupt inside a loop is asyncio's to deliver; that has tests of its own
        self.faults.tool = error

    @rule()
    def break_the_model(self) -> None:
        self.faults.model = ValueError

    def rows(self) -> list[tuple[Any, ...]]:
        return [
            (branch.id, entry.seq, entry.body)
            for branch in self.store.branches(thread_id="t")
            for entry in self.store.lineage(branch_id=branch.id).entries
        ]

    @invariant()
    def the_laws_hold(self) -> None:
        if not hasattr(self, "store"):
            return
        heads = [self.store.head(branch.id) for branch in self.store.branches(thread_id="t")]
        decisions = {item.pending_id: item for _, head in heads for item in now(self.agent, head).decisions}
        taken = [item.pending_id for _, head in heads for item in now(self.agent, head).decisions]
        assert max(Counter(taken).values(), default=1) == 1, "law 3: a pending approval was decided twice"
        approved = Counter()
        for name, n, key, pending_id in self.faults.effects:
            if name in ("pay", "flaky") or (name == "wire" and n):
                assert pending_id is not None, f"law 1: {name} ran without an approval"
                decision = decisions[pending_id]
                assert decision.kind == "approve" and decision.by is not None
                assert decision.args is None or decision.args == {"n": n}, "law 2: other arguments ran"
                approved[pending_id] += 1
            if name != "safe":
                runs = [item for item in self.faults.effects if item[2] == key]
                assert len({item[3] for item in runs}) == len(runs), "law 4: a call ran twice on one authority"
        assert max(approved.values(), default=1) == 1, "one approval has run two calls"
        for branch, head in heads:
            state = now(self.agent, head)
            if branch.status not in ("running",) and not state.calls:
                check_history(state.messages)
            assert decode(encode(head)) == head, "law 9"
            assert self.store.load(head.id) == head
            if branch.owner is None:
                listed = [item.approval.id for item in self.store.pending(run_id=branch.run_id)]
                assert sorted(listed) == sorted(item.id for item in state.pending), "law 8"


def now(agent: Agent[Any, str], head: Checkpoint) -> Checkpoint:
    from phronomy.rules.transitions import current

    return current(head)


class AsyncLife(Life):
    is_async = True


class SQLiteLife(Life):
    sqlite = True


class AsyncSQLiteLife(Life):
    is_async = True
    sqlite = True


def machine(life: type[Life], examples: int) -> Any:
    case = life.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return case


TestLife = machine(Life, scaled(10, sweep=80))
TestAsyncLife = machine(AsyncLife, scaled(5, sweep=40))
TestSQLiteLife = machine(SQLiteLife, scaled(5, sweep=40))
TestAsyncSQLiteLife = machine(AsyncSQLiteLife, scaled(5, sweep=20))


def sample_texts() -> list[str]:
    """Exports of every sort: fresh, suspended with a journal, forked, ended; with odd text and provider fields."""
    faults = Faults()
    model = ScriptedModel(
        [[call("look", {"n": 1}), call("pay", {"n": 2}), call("wire", {"n": 7})], "d\u00f6ne \ud83d\ude00", "more"]
    )
    agent = Agent(name="clerk", model=model, tools=make_tools(faults, False), instructions="x")
    first = agent.invoke({"amount": 5.0, "who": "Zo\u00eb"}, thread_id="t", metadata={"k": [1, None, True]})
    fork = agent.fork(first.checkpoint, label="try")
    second = agent.resume(first.checkpoint, decisions=decide_first(first.checkpoint), by="ann")
    third = agent.resume(second.checkpoint, approved=False, reason="no")
    texts = [encode(item) for item in (first.checkpoint, fork, second.checkpoint, third.checkpoint)]
    return texts + [encode(item) for item in agent.store.history(third.checkpoint.id)]


def damaged(text: str, chance: random.Random) -> str | bytes:
    """The text with something done to it, by hand or by accident."""
    kind = chance.randrange(9)
    at, other = chance.randrange(len(text)), chance.randrange(len(text))
    data: Any
    match kind:
        case 0:
            return text[:at]
        case 1:
            return text[:at] + chance.choice('{}[]",:0159truefalsenull\\\ud800\x00') + text[at + 1 :]
        case 2:
            return text[: min(at, other)] + text[max(at, other) :]
        case 3:
            return text[:at] + text[other : other + 20] + text[at:]
        case 4:
            raw = bytearray(text.encode())
            raw[at] ^= 1 << chance.randrange(8)
            return bytes(raw)
        case 5:
            return text.replace('"', "'", 1) if chance.random() < 0.1 else "[" * chance.randrange(1, 5000) + text
        case _:
            data = json.loads(text)
            for _ in range(chance.randrange(1, 4)):
                vandalise(data, chance)
            if kind == 8 and "digest" in data:
                with suppress(UnicodeEncodeError):
                    data["digest"] = checkpoint_digest(data)
            return json.dumps(data, ensure_ascii=chance.random() < 0.5)


ODD_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    10**40,
    1.5,
    "",
    "x",
    "{}",
    "[]",
    "null",
    '"\ud800"',
    [],
    {},
    [[]],
    {"a": {}},
    "9" * 5000,
]


def vandalise(data: Any, chance: random.Random) -> None:
    """Change one value somewhere in the document."""
    here = data
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(here[key], (dict, list)) and here[key] and chance.random() < 0.7:
            here = here[key]
            continue
        match chance.randrange(4):
            case 0:
                del here[key]
            case 1 if isinstance(here, dict):
                here[chance.choice(["__class__", "extra", "id", "status", "args"])] = deepcopy(
                    chance.choice(ODD_VALUES)
                )
            case _:
                here[key] = deepcopy(chance.choice(ODD_VALUES))
        return


def test_thousands_of_damaged_texts_give_a_checkpoint_or_a_checkpoint_error() -> None:
    """Law 15: whatever is handed to the loader, nothing else comes out; and what loads is whole. field failure 113"""
    chance = random.Random(20)
    texts = sample_texts()
    read = refused = forged = 0
    agent = Agent(model=ScriptedModel([]))
    many = scaled(2_000, sweep=10_000)
    for number in range(many):
        text = damaged(texts[number % len(texts)], chance)
        try:
            checkpoint = Checkpoint.model_validate_json(text)
        except CheckpointError as error:
            refused += 1
            assert len(str(error)) < 2000
        else:
            read += 1
            assert decode(encode(checkpoint)) == checkpoint
            if encode(checkpoint) not in texts:  # the digest was made anew: then it is a checkpoint, and can be read
                forged += 1
                with suppress(PhronomyError):
                    plan(checkpoint, agent.spec)
    assert refused > 0.9 * many
    assert forged > many / 1000
    assert read + refused == many


def test_without_a_digest_made_anew_no_edit_is_missed() -> None:
    """Every value of an export is changed in turn: each change is noticed."""
    for text in sample_texts()[:2]:
        paths = list(places(json.loads(text)))
        assert len(paths) > 60
        for path in paths:
            data = json.loads(text)
            here = data
            for key in path[:-1]:
                here = here[key]
            here[path[-1]] = "other" if here[path[-1]] != "other" else "another"
            with pytest.raises(CheckpointError):
                Checkpoint.model_validate_json(json.dumps(data))


def places(data: Any, path: tuple[Any, ...] = ()) -> Any:
    """The path of every value in a document."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))
