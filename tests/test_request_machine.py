"""Random runs, with everything that can happen to them: what was last told of each request is what the store says of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pydantic import AfterValidator
from request_laws import check_told
from selection import scaled
from test_properties import LossyMemory, LossySQLite

from phronomy import (
    Agent,
    Announcements,
    Approve,
    Breakpoint,
    Checkpoint,
    OutcomeUnknown,
    PhronomyError,
    Reject,
    Respond,
    Skip,
    ToolContext,
    interrupt,
    tool,
)
from phronomy.events import RequestChanged
from phronomy.observability.announcements import announce
from phronomy.testing import ScriptedModel, call

NAMES = ("look", "pay", "flaky", "soft", "wire", "ask", "clerk")
SCRIPT = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), min_size=1, max_size=2)
INSIDE = st.lists(st.sampled_from(("look", "pay", "flaky", "ask")), min_size=1, max_size=2)


def small(n: int) -> int:
    """What no schema says."""
    if n > 7:
        raise ValueError("no more than 7")
    return n


class Chat(Announcements):
    """Keeps what it is told of requests."""

    def __init__(self) -> None:
        self.events: list[RequestChanged] = []
        self.away = 0

    def on_request(self, event: RequestChanged) -> None:
        if self.away:
            self.away -= 1
            raise OSError("the chat is away")
        self.events.append(event)


class Faults:
    """What goes wrong next, and what the tools have done."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.write: str | None = None
        self.tool: BaseException | None = None
        self.effects: Counter[str | None] = Counter()

    def clock(self) -> float:
        return self.now


class Told(RuleBasedStateMachine):
    """One thread, forks of it, and an agent in a tool; humans answer by the agent or by the store, or too late."""

    is_async = False
    sqlite = False

    @initialize(stops=st.sampled_from([None, None, None, None, "pre_tool_call", "pre_model_call"]))
    def begin(self, stops: Any) -> None:
        self.stops = stops
        self.faults, self.chat = Faults(), Chat()
        self.folder = tempfile.TemporaryDirectory()
        self.memory: Any = None
        self.script: list[list[str]] = []
        self.inside: list[str] = []
        self.known: list[Checkpoint] = []
        self.listed: set[str] = set()
        self.start()

    def start(self) -> None:
        """A process: its store and its agent."""
        if self.sqlite:
            self.store: Any = LossySQLite(str(Path(self.folder.name) / "runs.db"), clock=self.faults.clock)
        else:
            self.store = self.memory = self.memory or LossyMemory(clock=self.faults.clock)
        self.store.faults = self.faults
        clerk = Agent(name="clerk", model=ScriptedModel(lambda request: self.reply(request, [self.inside])))
        clerk.tools = self.tools()
        points = [Breakpoint(self.stops)] if self.stops else []
        self.agent: Agent[Any, str] = Agent(
            name="office",
            model=ScriptedModel(lambda request: self.reply(request, self.script)),
            tools=[*self.tools(), clerk.as_tool(description="Does it.")],
            store=self.store,
            announcements=[self.chat],
            breakpoints=points,
        )

    def reply(self, request: Any, script: list[list[str]]) -> Any:
        turns = 0
        for message in reversed(request.messages):
            if message.role == "user":
                break
            turns += message.role == "assistant"
        if turns >= len(script):
            return "done"
        return [
            call(name, {"input": "go"} if name == "clerk" else {"n": place}) for place, name in enumerate(script[turns])
        ]

    def tools(self) -> list[Any]:
        def act(n: int, context: ToolContext[Any]) -> str:
            self.faults.effects[context.pending_id] += 1
            error, self.faults.tool = self.faults.tool, None
            if error is not None:
                raise error
            return f"did {n}"

        options: dict[str, dict[str, Any]] = {
            "look": {},
            "pay": {"requires_approval": True, "approval_timeout": 600.0},
            "flaky": {"requires_approval": True, "on_failure": "human"},
            "soft": {
                "requires_approval": True,
                "on_failure": "model",
                "approval_timeout": 600.0,
                "on_expiry": "cancel",
            },
            "ask": {},
            "cash": {},
        }

        def define(name: str, **more: Any) -> Any:
            def body(n: Annotated[int, AfterValidator(small)], ctx: ToolContext[Any]) -> str:
                """Do it."""
                return f"{interrupt('Really?')}: {act(n, ctx)}" if name == "ask" else act(n, ctx)

            async def twin(n: Annotated[int, AfterValidator(small)], ctx: ToolContext[Any]) -> str:
                """Do it."""
                return body(n, ctx)

            return tool(name=name, **options.get(name, {}), **more)(twin if self.is_async else body)

        wire = define("wire", requires_approval=True, fallback=(define("cash"),), on_failure="human")
        return [*map(define, ("look", "pay", "flaky", "soft", "ask")), wire]

    def do(self, method: str, *args: Any, **options: Any) -> None:
        """What the method comes to; whatever is refused, or breaks by a fault of ours, has its own tests."""
        with suppress(PhronomyError, KeyboardInterrupt):
            if self.is_async:
                result = asyncio.run(getattr(self.agent, f"a{method}")(*args, **options))
            else:
                result = getattr(self.agent, method)(*args, **options)
            if isinstance(result, list):
                return
            self.known.append(getattr(result, "checkpoint", result))
        self.listed |= {row.pending_id for row in self.store.pending_rows()}

    @rule(script=SCRIPT, inside=INSIDE, supersede=st.sampled_from([False, False, False, False, True]))
    def say(self, script: list[list[str]], inside: list[str], supersede: bool) -> None:
        if supersede or not self.store.pending_rows():
            self.script, self.inside = script, inside
            self.do("invoke", "go", thread_id="t", on_pending="supersede" if supersede else "supersede_failed")

    def answer(self, data: st.DataObject, item: Any) -> Any:
        kinds: dict[str, Any] = {
            "approve": Approve(),
            "edit": Approve(args={"n": data.draw(st.integers(1, 9))}),
            "reject": Reject(reason="no"),
            "end": Reject(then="end"),
            "respond": Respond(content="by hand"),
            "skip": Skip(),
        }
        likely = (
            ["respond", "reject"]
            if item.why == "question"
            else ["approve"] * 5 + ["edit", "edit", "respond", "reject", "end"]
        )
        return kinds[data.draw(st.sampled_from([*likely, "approve", "skip"] if item.why == "breakpoint" else likely))]

    @precondition(lambda self: self.store.pending_rows())
    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        """Somebody with the agent decides some of what a run waits for."""
        row = data.draw(st.sampled_from(self.store.pending_rows()))
        items = [each.approval for each in self.store.pending() if each.branch_id == row.branch_id]
        given = {item.id: self.answer(data, item) for item in items if data.draw(st.integers(0, 2))}
        self.do("resume", row.branch_id, decisions=given, by="ann")

    @precondition(lambda self: self.store.pending_rows())
    @rule(data=st.data(), carried_out=st.sampled_from([False, True, True]))
    def decide_outside(self, data: st.DataObject, carried_out: bool) -> None:
        """Somebody decides who has the store alone."""
        item = data.draw(st.sampled_from(self.store.pending())).approval
        with suppress(PhronomyError):
            self.store.decide(item.id, self.answer(data, item), by="rita", digest=item.digest)
        if carried_out:
            self.do("recover_all")

    @rule()
    def work(self) -> None:
        self.do("recover_all")

    @precondition(lambda self: self.known)
    @rule(data=st.data(), what=st.sampled_from(["late", "cancel", "fork", "restart", "restart"]))
    def disturb(self, data: st.DataObject, what: str) -> None:
        """Nobody is there for a while; somebody ends a run, or forks it; the process ends, and nothing is left but the store."""
        if what == "late":
            self.faults.now += 700.0  # leases end after a minute, and what `pay` and `soft` ask expires after ten
        elif what == "cancel":
            self.do("cancel", data.draw(st.sampled_from(self.known[-3:])).branch_id, reason="enough")
        elif what == "fork":
            with suppress(PhronomyError):
                self.known.append(self.store.fork(data.draw(st.sampled_from(self.known[-3:])).id))
            self.listed |= {row.pending_id for row in self.store.pending_rows()}
        else:
            if self.sqlite:
                self.store.close()
            self.start()

    @rule(
        what=st.sampled_from(
            ["before", "after", "chat", ConnectionError, ConnectionError, OutcomeUnknown, KeyboardInterrupt]
        )
    )
    def break_something(self, what: Any) -> None:
        """A write is lost, or its answer is; the chat is away; a tool fails, or its worker is told to go."""
        if isinstance(what, str) and what != "chat":
            self.faults.write = what
        elif what == "chat":
            self.chat.away = 2
        elif what is not KeyboardInterrupt or not self.is_async:  # in a loop it is asyncio's to deliver
            self.faults.tool = what("the line went dead")

    @rule()
    def look(self) -> None:
        """Tell the rest, and compare."""
        self.chat.away, self.faults.write = 0, None
        self.faults.now += 60.0
        for branch in self.store.branches():
            announce(self.store, branch.id, [self.chat])
        told = check_told(self.store, self.chat.events)
        assert self.listed <= told.keys(), "somebody could decide, and nobody was told"
        for pending_id, events in told.items():
            last, done = events[-1], self.faults.effects[pending_id]
            says = last.decision.kind if last.decision is not None else None
            if last.what != "failed" and says != "approve" and last.request.why != "question":
                assert done == 0, f"{pending_id} was {last.what}, and its body ran"
            if last.what == "withdrawn":
                assert done == 0, f"{pending_id} was withdrawn, and its body ran"

    def teardown(self) -> None:
        if hasattr(self, "store"):
            try:
                self.look()
            finally:
                self.store.close()
                self.folder.cleanup()


class AsyncTold(Told):
    is_async = True


class SQLiteTold(Told):
    sqlite = True


class AsyncSQLiteTold(Told):
    is_async = True
    sqlite = True


def machine(told: type[Told], examples: int) -> Any:
    case = told.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return case


TestTold = machine(Told, scaled(20, sweep=200))
TestAsyncTold = machine(AsyncTold, scaled(10, sweep=60))
TestSQLiteTold = machine(SQLiteTold, scaled(10, sweep=60))
TestAsyncSQLiteTold = machine(AsyncSQLiteTold, scaled(10, sweep=40))
