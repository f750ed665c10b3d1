"""A redacted argument is shown by no repr of anything that a run gives out, nor by what is sent of it with `redact`."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from drivers import Driver
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tables import each

import phronomy
from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    BreakpointContext,
    Hold,
    MemoryStore,
    OutcomeUnknown,
    Respond,
    Tool,
    ToolContext,
    interrupt,
    to_wire,
    tool,
)
from phronomy.debugger.debugger import Debugger
from phronomy.foundation.quoting import without
from phronomy.graph import END, START, StateGraph
from phronomy.models.base import ToolCallDelta
from phronomy.observability.events import replay
from phronomy.observability.timeline import timeline
from phronomy.records.diff import diff
from phronomy.records.record import Record
from phronomy.testing import ScriptedModel, call

SECRET = "DE00 SECRET 1234"

SAID = {
    "args",
    "arguments",
    "content",
    "facts",
    "input",
    "memory",
    "new_input",
    "original_input",
    "output",
    "result",
    "state",
}
SAID |= {"update", "value"}
"""Names of fields that hold what was said."""

RECORDS = {
    ("Call", "result"),
    ("RowCall", "result"),
    ("CallSettled", "result"),
    ("Judgement", "result"),
    ("Recovery", "result"),
    ("CheckpointDiff", "state"),
    ("TimelineEntry", "facts"),  # none of them is anything that was said
    ("Shown", "content"),  # whether it is exported
    *(("AgentSpec", "output"), ("BodySpec", "output")),  # its type
    *(("GraphSpec", "update"), ("TeamSpec", "update")),  # functions, as the next two
    ("PatternSpec", "update"),
    ("OrchestratorSpec", "update"),
    ("AgentSpec", "memory"),  # how much is shown of a conversation
    ("GraphSpec", "memory"),
    ("PatternSpec", "memory"),
    ("OrchestratorSpec", "memory"),
    ("_Open", "facts"),  # attributes of a span
    # A word for how something stands, and a number of characters.
    *(("Card", "state"), ("RequestsQuery", "state"), ("RunsQuery", "state"), ("WaitingFilter", "state")),
    *(("WaitingQuery", "state"), ("FormLimits", "value")),
}
"""Fields of such a name that hold records, which leave it out themselves, or that hold something else."""


def classes() -> Iterator[type]:
    """Every record, model and dataclass of the package, but for the command line's and the rows as they are written."""
    found: dict[type, None] = {}
    for module in pkgutil.walk_packages(phronomy.__path__, "phronomy."):
        if not module.name.startswith(
            (
                "phronomy.cli",
                "phronomy.testing",
                "phronomy.cli.commands.demo_desk",
                "phronomy.__",
                "phronomy.stores.log.row_delta",
            )
        ):
            found |= {
                each: None for each in vars(importlib.import_module(module.name)).values() if isinstance(each, type)
            }
    for kind in found:
        ours = kind.__module__.startswith("phronomy.") and kind.__module__ != "phronomy.stores.log.row_delta"
        if ours and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
            yield kind


def shown(kind: Any) -> set[str]:
    """The fields that a repr of this class shows."""
    if issubclass(kind, BaseModel):
        return {name for name, field in kind.model_fields.items() if field.repr}
    return {field.name for field in dataclasses.fields(kind) if field.repr}


def test_no_class_shows_what_was_said_in_its_repr() -> None:
    """A field that holds it has `repr=False`, and `to_wire(redact=...)` goes by that too where it knows no better."""
    wrong = {(kind.__name__, name) for kind in classes() for name in shown(kind) & SAID}
    assert wrong <= RECORDS, sorted(wrong - RECORDS)


# A run with a redacted argument, and all that it gives out


@tool(requires_approval=True, redact={"iban"})
def pay(iban: str, amount: int = 1) -> str:
    """Pay."""
    return "paid"


@tool(redact={"iban"})
def check(iban: str, context: ToolContext) -> str:
    """Check."""
    seen.append(context)
    raise ValueError(f"bad {iban}")


@tool(redact={"iban"})
def ask(iban: str) -> str:
    """Ask."""
    return str(interrupt({"pay to": f"the account {iban}"}, key="sure"))


seen: list[Any] = []


def desk(name: str = "desk", **options: Any) -> Agent[Any, Any]:
    calls = [call(name, {"iban": SECRET}) for name in ("pay", "check", "ask")]
    script = ScriptedModel.by_turn([calls, "Done."])
    return Agent(name=name, model=script, tools=[pay, check, ask], store=MemoryStore(), description="d", **options)


class State(BaseModel):
    said: str = ""


def graph() -> Any:
    inside = StateGraph(State, name="g").add_node(
        "one", desk("inner"), input=lambda s: "hi", output=lambda r: {"said": "x"}
    )
    return inside.add_edge(START, "one").add_edge("one", END).compile(store=MemoryStore())


def outer() -> Agent[Any, Any]:
    script = ScriptedModel.by_turn([call("inner", {"input": "hi"}), "Done."])
    return Agent(name="outer", model=script, tools=[desk("inner").as_tool()], store=MemoryStore())


STOPS = [
    Breakpoint(point, lambda context: bool(seen.append(context)) or True)
    for point in ("pre_tool_call", "post_tool_call")
]


def given_out(app: Any, driver: Driver, input: Any, edit: dict[str, Any] | None) -> Iterator[Any]:
    """Everything that a run gives to whoever drives it, looks at it or decides."""
    result = driver.invoke(app, input, breakpoints=STOPS)
    first = result.checkpoint
    while result.status == "suspended":
        checkpoint = result.checkpoint
        yield from (result, checkpoint, *checkpoint.pending, *app.store.pending(), *app.stopped_at(checkpoint))
        if app.spec.kind == "graph":
            yield app.stop_of(checkpoint)
        answers = {item.id: _answer(item, edit) for item in checkpoint.pending}
        yield from answers.values()
        result = driver.resume(app, checkpoint, decisions=answers, breakpoints=STOPS)
    assert result.status == "completed"
    debugger = Debugger(app).attach(first) and Debugger(app)
    debugger.attach(first)
    yield from (debugger, debugger.context, *debugger.hits, *debugger.where())
    told = timeline(app.store, result.run_id)
    yield from (result, *result.messages, *replay(app.store, result.run_id), *app.store.audit(), told, *told)
    yield from (*result.checkpoint.decisions, *app.store.history(result.checkpoint.id), diff(first, result.checkpoint))
    yield from seen


def _answer(item: Any, edit: dict[str, Any] | None) -> Any:
    if item.why == "question":
        return Respond(content="yes")
    return Approve(args=edit if item.why == "approval" else None)


@each(
    ("made", "input", "edit"),
    [(desk, "hi", None), (desk, "hi", {"iban": SECRET, "amount": 2}), (outer, "hi", None), (graph, {}, None)],
)
def test_a_redacted_argument_is_shown_by_nothing_that_a_run_gives_out(
    driver: Driver, made: Any, input: Any, edit: dict[str, Any] | None
) -> None:
    """R20."""
    seen.clear()
    app = made()
    everything = list(given_out(app, driver, input, edit))
    kinds = {type(each).__name__ for each in everything}
    assert kinds >= {"BreakpointHit", "BreakpointContext", "PendingApproval", "Waiting", "Result", "Checkpoint"}
    assert [type(each).__name__ for each in everything if SECRET in repr(each)] == []
    sent = [each for each in everything if isinstance(each, Record) or dataclasses.is_dataclass(each)]
    sent = [each for each in sent if not isinstance(each, ToolContext)]
    assert [type(each).__name__ for each in sent if SECRET in json.dumps(to_wire(each, redact=app))] == []
    assert [type(each).__name__ for each in sent if SECRET in json.dumps(to_wire(each, redact=desk("other")))] == []


def test_a_held_stop_and_how_it_was_settled_show_none(driver: Driver) -> None:
    hold = Hold(timeout=60, on_breakpoint=lambda hit: Approve())
    driver.invoke(desk(), "hi", breakpoints=[Breakpoint("pre_tool_call")], hold=hold)
    assert hold.settled and SECRET not in repr([hold, hold.settled, hold.pending])


def test_what_else_may_hold_one_hides_it() -> None:
    app = desk()
    assert to_wire(app.dry_run("pay", {"iban": SECRET}), redact=app)["args"] == {"iban": "[redacted]", "amount": 1}
    assert to_wire(outer().dry_run("inner/pay", {"iban": SECRET}), redact=outer())["args"]["iban"] == "[redacted]"
    assert to_wire(Approve(args={"iban": SECRET}), redact=app)["args"] == {"iban": "[redacted]"}
    for name, arguments in (("pay", "[redacted]"), ("", "[redacted]")):
        piece = ToolCallDelta(index=0, name=name, arguments=SECRET)
        assert SECRET not in repr(piece) and to_wire(piece, redact=app)["arguments"] == arguments
        assert to_wire(piece)["arguments"] == SECRET
    here = BreakpointContext(type="pre_tool_call", agent="desk", tool="pay", args={"iban": SECRET, "amount": 3})
    assert to_wire(here, redact=app)["args"] == {"iban": "[redacted]", "amount": 3}
    assert to_wire(here)["args"] == {"iban": SECRET, "amount": 3}
    graphs = BreakpointContext(type="post_run", agent="g", state={"said": SECRET})
    assert to_wire(graphs, redact=app)["state"] == "[redacted]" and to_wire(graphs, redact=graph())["state"] == {
        "said": SECRET
    }


def test_the_question_of_a_tool_that_redacts_nothing_is_sent_as_it_is(driver: Driver) -> None:
    @tool
    def sure(order: int) -> str:
        """Ask."""
        return str(interrupt({"order": order}))

    script = ScriptedModel.by_turn([[call("sure", {"order": 7}), call("ask", {"iban": SECRET})], "Done."])
    agent = Agent(model=script, tools=[sure, ask], store=MemoryStore())
    plain, hidden = driver.invoke(agent, "hi").checkpoint.pending
    assert to_wire(plain, redact=agent)["args"]["payload"] == {"order": 7}
    assert to_wire(hidden, redact=agent)["args"] == {"key": "sure", "payload": "[redacted]", "answer": None}
    assert to_wire(hidden)["args"]["payload"] == {"pay to": f"the account {SECRET}"}


@each(
    ("values", "text", "told"),
    [
        ({"pin": {"a": "hunter22"}}, "pin hunter22", "ValueError: pin [redacted]"),
        ({"pin": {"a": "red"}}, "a red car", "ValueError: [redacted] [redacted] c[redacted]r"),
        ({"pin": {}}, "a car", "ValueError: a car"),
    ],
)
def test_nothing_is_hidden_inside_of_what_stands_for_a_hidden_value(values: Any, text: str, told: str) -> None:
    @tool(redact={"pin"})
    def pay(pin: dict[str, str]) -> str:
        """Pay."""
        return ""

    assert pay.describe_error(ValueError(text), values) == told


@each(
    ("secrets", "text", "told"),
    [
        ({"red"}, "red [redacted] redder", "[redacted] [redacted] [redacted]der"),
        ({"abc", "cde"}, "abcde", "[redacted]"),
        ({"aa"}, "aaaaa b", "[redacted] b"),
        ({"ab", "abab"}, "abababx", "[redacted]x"),
        ({"a[redacted]b"}, "xa[redacted]by", "x[redacted]y"),
        ({"S", "]y"}, "a Sy z", "[redacted]"),
        ({""}, "a", "a"),
        (set(), "a [redacted]", "a [redacted]"),
    ],
)
def test_what_was_hidden_is_not_hidden_again(secrets: set[str], text: str, told: str) -> None:
    assert (without(text, secrets), without(told, secrets)) == (told, told)


LETTERS = st.text("ab[]redct", max_size=12)


@given(
    st.sets(st.one_of(LETTERS, st.sampled_from(["[redacted]", "red", "]a"])), max_size=4), st.lists(LETTERS), LETTERS
)
def test_nothing_of_a_secret_stays_and_hiding_it_again_changes_nothing(
    secrets: set[str], parts: list[str], between: str
) -> None:
    text = between.join([*secrets, *parts, "[redacted]", *secrets])
    told = without(text, secrets)
    assert without(told, secrets) == told
    shown = told.split("[redacted]")
    assert not any(secret in part for part in shown for secret in secrets if secret)
    inside: set[int] = set()
    for secret in secrets:
        for start in (place for place in range(len(text)) if text.startswith(secret, place)):
            inside |= set(range(start, start + len(secret)))
    kept = iter("".join(letter for place, letter in enumerate(text) if place not in inside))
    assert all(letter in kept for letter in "".join(shown)), (
        "what stays was in the text, in this order, and in no secret"
    )


@pytest.mark.parametrize("timeout", [None, 60.0], ids=["no timeout", "a timeout"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_a_tool_returns_is_in_no_repr_of_a_task(is_async: bool, timeout: float | None) -> None:
    """asyncio writes the reprs of tasks to logs, with what they wait for and what that holds."""
    if is_async:

        @tool(timeout=timeout, redact=["iban"])
        async def pay(iban: str) -> str:
            """Pay."""
            await asyncio.sleep(0)
            return f"paid to {iban}"
    else:

        @tool(timeout=timeout, redact=["iban"])
        def pay(iban: str) -> str:
            """Pay."""
            return f"paid to {iban}"

    async def main() -> set[str]:
        agent = Agent(model=ScriptedModel.by_turn([call("pay", {"iban": SECRET}), "Done."]), tools=[pay])
        run = asyncio.ensure_future(agent.ainvoke("Pay."))
        seen: set[str] = set()
        while not run.done():
            seen |= {repr(task) for task in asyncio.all_tasks()}
            await asyncio.sleep(0)
        assert (await run).messages[-2].text == f"paid to {SECRET}"
        return seen | {repr(run)}

    seen = asyncio.run(main())
    assert len(seen) > 1
    assert not [each for each in seen if SECRET in each]


# The stand-ins of a tool


class Stand(Tool):
    """Pays by other means."""

    def execute(self, card: str) -> str:
        raise ValueError(f"no {card}")


def stand(card: str) -> str:
    """Pay by other means."""
    raise ValueError(f"no {card}")


def narrow(card: Annotated[str, Field(max_length=3)]) -> str:
    """Pay by other means."""
    return card


def doubtful(card: str) -> str:
    """Pay by other means."""
    raise OutcomeUnknown(f"no {card}")


@each(
    ("other", "options", "told"),
    [
        (tool(stand), {}, "ValueError: no [redacted]"),
        (Stand, {}, "ValueError: no [redacted]"),
        (Stand(), {}, "ValueError: no [redacted]"),
        (stand, {}, "ValueError: no [redacted]"),
        (stand, {"requires_approval": False}, "ValueError: no [redacted]"),
        (tool(redact=["card"])(stand), {}, "ValueError: no [redacted]"),
        (tool(stand), {"on_failure": "human"}, "ValueError: no [redacted]"),
        (tool(requires_approval=True)(stand), {}, "ValueError: no [redacted]"),
        (tool(doubtful), {}, "OutcomeUnknown: no [redacted]"),
        (narrow, {}, "card: not valid (string_too_long)"),
    ],
)
def test_what_stands_in_for_a_tool_hides_what_the_tool_hides(
    driver: Driver, other: Any, options: dict[str, Any], told: str
) -> None:
    def pay(card: str) -> str:
        """Pay."""
        raise ValueError(f"bad {card}")

    options = {"requires_approval": True, "redact": ["card"], "fallback": [other], **options}
    shown: list[str] = []
    secret = "4111-1111"
    made = tool(**options)(driver.function(pay))
    agent = Agent(
        name="till",
        model=ScriptedModel([call("pay", {"card": secret}), "Done."]),
        tools=[made],
        store=MemoryStore(),
    )
    result = driver.invoke(agent, "Go")
    while result.suspended and not result.checkpoint.pending[0].reason:
        shown.append(repr(result.checkpoint.pending))
        result = driver.resume(agent, result.checkpoint, approved=True)
    shown += [item.reason or "" for item in result.checkpoint.pending]
    shown += [message.text for message in result.messages if message.role == "tool"]
    assert told in " | ".join(shown)
    assert secret not in " | ".join(shown)


def test_a_tool_that_stands_in_for_another_is_elsewhere_as_it_was() -> None:
    alone = tool(stand)
    around = tool(redact=["card"], fallback=[alone])(narrow)
    assert (around.fallback[0].redact, alone.redact) == (frozenset({"card"}), frozenset())
    assert around.fallback[0].schema_hash == alone.schema_hash
    kept = tool(redact=["card"])(stand)
    assert tool(redact=["card"], fallback=[kept])(narrow).fallback[0] is kept
