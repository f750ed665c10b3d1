"""External tools: carried out elsewhere, so a call waits for its result, and nothing here ever runs it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from drivers import Driver
from places import Place
from pydantic import BaseModel, Field
from tables import each

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    Defer,
    ExternalTool,
    Reject,
    Respond,
    Skip,
    Tool,
    to_wire,
    tool,
)
from phronomy.errors import (
    AgentChanged,
    ApprovalExpired,
    ApprovalHandlerError,
    ConfigurationError,
    InvalidDecision,
    NotAuthorized,
    NothingDecided,
    ToolDefinitionError,
    UnknownPending,
)
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import JsonSchemaOutput, Pass, Refuse, guardrail
from phronomy.observability.timeline import timeline
from phronomy.records.calls import Decided
from phronomy.records.decisions import Decision
from phronomy.rules.authorization import authorize
from phronomy.rules.transitions import apply
from phronomy.testing import ScriptedModel, call, say
from phronomy.tools.context import InvalidArguments
from phronomy.tools.json_schema.answers import misfit, misfits

pytestmark = pytest.mark.worlds(2)


class Spot(BaseModel):
    """Where somebody is."""

    lat: float
    lon: Annotated[float, Field(ge=-180, le=180)]


class Query(BaseModel):
    """What is asked of a device."""

    accuracy: int = 10


HERE = {"lat": 47.0, "lon": 15.4}


def locate(accuracy: int = 10) -> Spot:
    """Ask the device where it is.

    Args:
        accuracy: In metres.
    """
    ...


class Locate(Tool):
    """Ask the device where it is."""

    external = True

    def execute(self, accuracy: int = 10) -> Spot: ...


SAME: dict[str, Any] = {
    "function": lambda: tool(external=True)(locate),
    "class": Locate,
    "model": lambda: ExternalTool(name="locate", description="Ask.", parameters=Query, returns=Spot),
    "schema": lambda: ExternalTool(
        name="locate", parameters={"type": "object", "properties": {"accuracy": {"type": "integer", "default": 10}}},
        returns={"type": "object", "required": ["lat", "lon"]},
    ),
}  # fmt: skip
"""One tool, in each way to declare it."""


class App:
    """An agent that asks a device, built anew for each process."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.now = 1_700_000_000.0

    def open(self) -> Any:
        return self.place.open(clock=lambda: self.now)

    def agent(self, *replies: Any, tools: Any = None, **options: Any) -> Agent[Any, str]:
        options.setdefault("store", self.open())
        return Agent(
            name="app", model=ScriptedModel([*replies]), tools=tools or [tool(external=True)(locate)], **options
        )

    def asked(self, agent: Any, **options: Any) -> Checkpoint:
        checkpoint: Checkpoint = self.driver.invoke(agent, "Where am I?", **options).checkpoint
        assert checkpoint.status == "suspended"
        return checkpoint

    def refused(self, error: Any, method: str, agent: Any, *given: Any, **options: Any) -> str:
        """What the error says, with nothing changed."""
        before = self.place.lines()
        with pytest.raises(error) as refused:
            self.driver.call(agent, method, *given, **options)
        assert self.place.lines() == before
        return str(refused.value)


@pytest.fixture
def app(driver: Driver, place: Place) -> App:
    return App(driver, place)


WANTS = call("locate", {}, id="loc")


# It waits, and is answered


@pytest.mark.product
@pytest.mark.parametrize("way", SAME)
def test_a_call_waits_for_its_result_which_another_process_brings(app: App, way: str) -> None:
    asked = app.asked(app.agent(WANTS, tools=[SAME[way]()]))
    [pending] = asked.pending
    assert (pending.external, pending.why, pending.tool.source, pending.args) == (
        True,
        "approval",
        "external",
        {"accuracy": 10},
    )
    assert [each.approval.external for each in app.open().pending()] == [True]
    result = app.driver.resume(
        app.agent("In Graz.", tools=[SAME[way]()]), asked, decisions={"loc": Respond(content=HERE)}, by="phone"
    )
    assert (result.output, result.messages[2].settlement) == ("In Graz.", "responded")
    assert json.loads(result.messages[2].text) == HERE
    [record] = [record for record in app.open().audit() if record.pending_id == pending.id]
    assert (record.kind, record.by.id) == ("respond", "phone")


@pytest.mark.product
def test_no_approval_carries_it_out(app: App) -> None:
    agent = app.agent(WANTS, "There.")
    asked = app.asked(agent)
    id = asked.pending[0].id
    for options in (
        {"approved": True},
        {"decisions": {id: Approve()}},
        {"decisions": {"loc": Approve(args={"accuracy": 5})}},
    ):
        told = app.refused(InvalidDecision, "resume", agent, asked, **options)
        assert id in told and "Respond(content=...)" in told
    assert "Respond" in app.refused(InvalidDecision, "decide", agent, id, Approve())
    assert f"{id} (external)" in app.refused(UnknownPending, "approve_all", agent, asked)
    app.refused(InvalidDecision, "resume", agent, asked, decisions={id: Skip()})
    told = app.refused(NothingDecided, "resume", agent, asked)
    assert f"Respond(content=...) for what is external ({id})" in told and "approved=" not in told
    assert app.driver.resume(agent, asked, decisions={id: Respond(content=HERE)}, input="Thanks").output == "There."


def test_approve_all_approves_the_others(app: App) -> None:
    paid: list[str] = []

    def pay(who: str) -> str:
        """Pay."""
        paid.append(who)
        return "paid"

    gated = tool(requires_approval=True)(app.driver.function(pay))
    agent = app.agent(say("", WANTS, call("pay", {"who": "ann"})), tools=[tool(external=True)(locate), gated])
    left = app.driver.call(agent, "approve_all", app.asked(agent)).checkpoint
    assert (paid, [item.tool_name for item in left.pending]) == (["ann"], ["locate"])


def test_whoever_forges_an_approval_runs_nothing(app: App) -> None:
    """The record says that it was approved: the gate does not let it run for all that."""
    made = tool(external=True)(locate)
    asked = app.asked(app.agent(WANTS, tools=[made]))
    [pending] = asked.pending
    said = Decision(pending_id=pending.id, digest=pending.digest, kind="approve", at=pending.requested_at)
    forged = apply(asked, Decided(decision=said))
    assert forged.calls[0].status == "ready"
    with pytest.raises(NotAuthorized, match="its tool is external"):
        authorize(forged, forged.calls[0], made.identity())


@pytest.mark.parametrize(
    ("answer", "settled", "status"),
    [
        (Reject(reason="no GPS"), "rejected", "completed"),
        (Reject(then="end"), "rejected", "rejected"),
    ],
    ids=["reject", "end"],
)
def test_it_is_rejected_as_any_other(app: App, answer: Any, settled: str, status: str) -> None:
    agent = app.agent(WANTS, "Nowhere.")
    result = app.driver.resume(agent, app.asked(agent), decisions={"loc": answer})
    assert (result.status, result.messages[2].settlement) == (status, settled)


def test_of_one_that_was_given_up_nobody_says_that_it_was_not_carried_out(app: App) -> None:
    agent = app.agent(WANTS, lambda request: request.messages[-1].text, approval_timeout=60.0)
    asked = app.asked(agent)
    cancelled = app.driver.cancel(agent, app.driver.fork(agent, asked))
    assert "nobody here knows whether it was" in cancelled.messages[2].text
    app.now += 61
    with pytest.raises(ApprovalExpired) as late:
        app.driver.resume(agent, asked, decisions={"loc": Respond(content=HERE)})
    assert late.value.result.output.startswith("This call was to be carried out elsewhere")


# What it returns


def test_a_result_of_another_type_is_refused(app: App) -> None:
    agent = app.agent(WANTS, "There.")
    asked = app.asked(agent)
    for wrong in ("Graz", None, {"lat": 47.0}, {**HERE, "lon": "15"}, {**HERE, "lon": 400.5}):
        told = app.refused(InvalidDecision, "resume", agent, asked, decisions={"loc": Respond(content=wrong)})
        assert asked.pending[0].id in told and "Graz" not in told and "400.5" not in told
    assert app.driver.resume(agent, asked, decisions={"loc": Respond(content=HERE)}).output == "There."


def test_a_result_that_is_a_model_is_told_how_it_is_json() -> None:
    with pytest.raises(InvalidDecision, match=r"a value of type Spot is not JSON; its model_dump\(mode='json'\) is"):
        Respond(content=Spot(**HERE))
    assert Respond(content=Spot(**HERE).model_dump(mode="json")).content == HERE


def test_a_result_has_the_size_of_any(app: App) -> None:
    def read(path: str) -> str:
        """Read a file there."""
        ...

    agent = app.agent(call("read", {"path": "x"}), "Read.", tools=[tool(external=True, max_result_size=10)(read)])
    asked = app.asked(agent)
    assert "max_result_size=10" in app.refused(
        InvalidDecision, "decide", agent, asked.pending[0].id, Respond(content="x" * 11)
    )
    assert app.driver.resume(agent, asked, decisions={asked.pending[0].id: Respond(content="x" * 10)}).output == "Read."


def test_without_a_declared_type_any_json_value_will_do(app: App) -> None:
    for returns in (None, Any):
        thing = ExternalTool(name="thing", returns=returns)
        assert thing.check_response(None) is None  # type: ignore[func-returns-value]
    with pytest.raises(InvalidArguments):
        ExternalTool(name="thing", returns=int).check_response("7")


DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


@each(
    ("schema", "good", "bad"),
    [
        ({**DRAFT_4, "minimum": 0, "exclusiveMinimum": True}, 1, 0),
        ({**DRAFT_7, "type": "array", "items": [{"type": "integer"}], "additionalItems": False}, [1], [1, 2]),
        ({**DRAFT_7, "definitions": {"P": {"type": "integer"}}, "$ref": "#/definitions/P", "maximum": 3}, 5, "x"),
    ],
)
def test_a_schema_is_read_by_the_draft_that_it_names(schema: dict[str, Any], good: Any, bad: Any) -> None:
    """As a result, as an edit with the store alone, in a form, and as an answer."""
    thing = ExternalTool(name="thing", returns=schema)
    thing.check_response(good)
    with pytest.raises(InvalidArguments, match="the result is not of the type"):
        thing.check_response(bad)
    around = {key: schema[key] for key in ("$schema", "definitions") if key in schema}
    whole = {**around, "type": "object", "properties": {"a": schema}}
    assert (misfit({"a": good}, whole, declared=True), misfits({"a": good}, whole)) == (None, [])
    assert misfit({"a": bad}, whole, declared=True) is not None
    assert misfits({"a": bad}, whole) != []
    assert JsonSchemaOutput(schema).check(good) == Pass()
    assert isinstance(JsonSchemaOutput(schema).check(bad), Refuse)


# A handler, a policy, guardrails


def test_a_handler_gives_the_result_or_leaves_it(app: App) -> None:
    answers: list[Any] = [Respond(content=HERE), False, Defer()]
    handler = app.driver.function(lambda name, args: answers[0])
    for answer, status, settled in zip(
        list(answers), ("completed", "completed", "suspended"), ("responded", "rejected", None), strict=True
    ):
        answers[0] = answer
        agent = app.agent(WANTS, "Done.", on_approval_required=handler)
        result = app.driver.invoke(agent, "Where?")
        assert result.status == status
        assert [each.settlement for each in result.messages[2:3]] == ([settled] if settled else [])


@pytest.mark.parametrize("answer", [True, Approve(), Approve(args={"accuracy": 1}), Respond(content="Graz")], ids=repr)
def test_a_handler_that_approves_it_is_in_error(app: App, answer: Any) -> None:
    agent = app.agent(WANTS, on_approval_required=app.driver.function(lambda name, args: answer))
    with pytest.raises(ApprovalHandlerError, match="gave no result"):
        app.driver.invoke(agent, "Where?")


def test_a_policy_makes_it_no_laxer_and_may_reject_it(app: App) -> None:
    for verdict in (False, True):
        agent = app.agent(WANTS, approval_policy={"locate": lambda args, verdict=verdict: verdict})
        assert app.asked(agent).pending[0].external
    reject = app.agent(WANTS, "No.", approval_policy={"locate": lambda args: Reject(reason="private")})
    assert app.driver.invoke(reject, "Where?").messages[2].settlement == "rejected"
    dry = app.driver.call(app.agent(), "dry_run", "locate", {"accuracy": 3})
    assert (dry.verdict, dry.reason, dry.args) == (
        "ask",
        "it is external: the call waits for its result",
        {"accuracy": 3},
    )


def test_guardrails_look_at_its_calls(app: App) -> None:
    @guardrail
    def coarse(args: Any) -> Any:
        return Refuse("Too fine.", code="fine") if args["accuracy"] < 5 else None

    wants = say("", call("locate", {"accuracy": 1}), WANTS)
    asked = app.asked(app.agent(wants, tool_guardrails=[coarse]))
    assert [item.call_id for item in asked.pending] == ["loc"]


def test_two_handlers_do_not_speak_for_each_other(app: App) -> None:
    """The agent inside would give the result; the one around it asks as well, and a human decides."""
    inner = app.agent(WANTS, "There.", on_approval_required=app.driver.function(lambda *_: Respond(content=HERE)))
    outer: Agent[Any, str] = Agent(
        name="around",
        model=ScriptedModel([call("app", {"input": "x"}), "Done."]),
        tools=[inner.as_tool()],
        approval_policy=["locate"],
        on_approval_required=app.driver.function(lambda *_: True),
        store=app.open(),
    )
    asked = app.asked(outer)
    [pending] = asked.pending
    assert (pending.external, pending.path) == (True, "1.0")
    assert app.driver.resume(outer, asked, decisions={pending.id: Respond(content=HERE)}).output == "Done."


# Where a run stops, and inside others


def test_at_a_breakpoint_it_is_let_on_and_then_waits(app: App) -> None:
    stops = [Breakpoint("pre_tool_call")]
    handler = app.driver.function(lambda *_: Defer())
    agent = app.agent(WANTS, "There.", breakpoints=stops, on_approval_required=handler)
    stopped = app.asked(agent)
    assert (stopped.pending[0].why, stopped.pending[0].external) == ("breakpoint", False)
    asked = app.driver.resume(agent, stopped, decisions={"loc": Approve(args={"accuracy": 99})}).checkpoint
    assert (asked.pending[0].external, asked.pending[0].args) == (True, {"accuracy": 99})
    result = app.driver.resume(agent, asked, decisions={"loc": Respond(content=HERE)})
    assert result.messages[2].text.startswith("A human changed the arguments")

    together = app.asked(app.agent(WANTS, breakpoints=stops))  # nobody else is asked: that is one stop
    assert (together.pending[0].point, together.pending[0].external) == ("pre_tool_call", True)


def test_inside_a_graph_it_waits_where_it_is(app: App) -> None:
    class Job(BaseModel):
        log: str = ""

    builder = StateGraph(Job, name="works")
    builder.add_node("app", app.agent(WANTS, "There."), input=lambda state: "Where?", output="log")
    builder.add_edge(START, "app")
    builder.add_edge("app", END)
    graph: Any = builder.compile(store=app.open())
    asked = app.driver.call(graph, "invoke", {}).checkpoint
    assert [item.external for item in asked.pending] == [True]
    result = app.driver.call(graph, "resume", asked, decisions={"loc": Respond(content=HERE)})
    assert result.output.log == "There."


def test_as_a_fallback_it_asks_for_the_result(app: App) -> None:
    def sense(accuracy: int = 10) -> str:
        """Sense it here."""
        raise OSError("no antenna")

    agent = app.agent(
        call("sense", {}, id="loc"),
        "There.",
        tools=[tool(fallback=[tool(external=True)(locate)])(app.driver.function(sense))],
    )
    asked = app.asked(agent)
    assert (asked.pending[0].tool_name, asked.pending[0].external) == ("locate", True)
    app.refused(InvalidDecision, "resume", agent, asked, approved=True)
    assert app.driver.resume(agent, asked, decisions={"loc": Respond(content=HERE)}).output == "There."


# A changed agent


def test_a_tool_that_was_a_body_and_is_external_now_is_another_and_the_other_way_round(app: App) -> None:
    ran: list[int] = []

    def body(accuracy: int = 10) -> str:
        """Ask the device where it is."""
        ran.append(accuracy)
        return "here"

    here = tool(name="locate", requires_approval=True)(app.driver.function(body))
    there = tool(external=True)(locate)
    for was, now in ((here, there), (there, here)):
        asked = app.asked(app.agent(WANTS, tools=[was]))
        agent = app.agent("Done.", tools=[now])
        answer = Approve() if was is here else Respond(content=HERE)
        assert "is another one now" in app.refused(AgentChanged, "resume", agent, asked, decisions={"loc": answer})
        app.refused(
            InvalidDecision, "resume", agent, asked, decisions={"loc": Approve()}, accept_changes=True
        )  # an approval of one is none of the other
        result = app.driver.resume(agent, asked, decisions={"loc": Respond(content=HERE)}, accept_changes=True)
        assert (result.output, ran) == ("Done.", [])
    ended = app.driver.invoke(app.agent("Nothing.", tools=[here]), "Hi").checkpoint
    assert "tool 'locate' changed" in app.agent(tools=[there]).drift(ended).compatible


def test_an_approved_call_whose_tool_became_external_is_not_run(app: App) -> None:
    def body(accuracy: int = 10) -> str:
        """Ask the device where it is."""
        raise AssertionError("it is entered")

    here = tool(name="locate", requires_approval=True)(app.driver.function(body))
    agent = app.agent(WANTS, tools=[here])
    asked = app.asked(agent)
    assert app.driver.watched(agent, asked, 1, approved=True)  # left before it ran
    with pytest.raises(NotAuthorized, match="external"):
        app.driver.call(
            app.agent("x", tools=[tool(external=True)(locate)]), "recover", asked.run_id, accept_changes=True
        )


# How it is declared


class Desk:
    """What no JSON Schema is made of."""


def nothing(x: int) -> None:
    """Do nothing."""


def something(x: int) -> int:
    """Do something."""
    return x + 1


def constant(x: int) -> str:
    """Say something."""
    return "done"


def number(x: int) -> int:
    """Give a number."""
    return 1


async def later(x: int) -> int:
    """Do something later."""
    ...


WRONG: dict[str, Any] = {
    "a body": lambda: tool(external=True)(something),
    "a body that gives a constant": lambda: tool(external=True)(constant),
    "a body that gives a small number": lambda: tool(external=True)(number),
    "an async body": lambda: tool(external=True)(later),
    "no truth value": lambda: tool(external=1)(nothing),  # type: ignore[call-overload]
    "a source that is taken": lambda: tool(source="external")(nothing),
    "a source that is taken, with more": lambda: tool(source="external:page")(nothing),
    "retries": lambda: tool(external=True, retries=1, idempotent=True)(nothing),
    "a timeout": lambda: tool(external=True, timeout=1.0)(nothing),
    "a fallback": lambda: tool(external=True, fallback=[something])(nothing),
    "what follows a failure": lambda: tool(external=True, on_failure="human")(nothing),
    "a predicate": lambda: tool(external=True, requires_approval=lambda args: False)(nothing),
    "no schema": lambda: ExternalTool(name="x", parameters=7),  # type: ignore[arg-type]
    "a schema of no object": lambda: ExternalTool(name="x", parameters={"type": "string"}),
    "a type without a schema": lambda: ExternalTool(name="x", returns=Desk),
    "a schema of a result that is none": lambda: ExternalTool(name="x", returns={"type": "spot"}),
    "an option of a body": lambda: ExternalTool(name="x", retries=1),  # type: ignore[call-arg]
    "a hint that leads nowhere": lambda: tool(external=True)(hinted),
    "no name": lambda: ExternalTool(name=""),
}


def hinted(x: int) -> int: ...


hinted.__annotations__["return"] = "Missing"


@each("wrong", WRONG)
def test_what_would_say_nothing_is_refused(wrong: str) -> None:
    with pytest.raises(ToolDefinitionError):
        WRONG[wrong]()


def test_a_body_may_say_that_there_is_none() -> None:
    def bare(x: int) -> int:
        raise NotImplementedError

    def told(x: int) -> int:
        """Docstrings are fine."""
        raise NotImplementedError("the page does it")

    def other(x: int) -> int:
        raise ValueError("not this one")

    assert [tool(external=True)(each).external for each in (bare, told)] == [True, True]
    with pytest.raises(ToolDefinitionError, match="never run"):
        tool(external=True)(other)


def test_nothing_here_runs_it(driver: Driver) -> None:
    made = tool(external=True, source="page")(nothing)
    assert (made.source, made.gate, made.external) == ("external:page", "always", True)
    for run in (
        lambda: made(1),
        lambda: made.call({"x": 1}, None),  # type: ignore[arg-type]
        lambda: ExternalTool(name="x").execute(),
    ):
        with pytest.raises(ConfigurationError, match="nothing here runs it"):
            run()
    with pytest.raises(ConfigurationError, match="fixed"):
        made.external = False
    assert tool(external=True, requires_approval=True)(nothing).external


def test_arguments_are_validated_and_filled_as_declared(app: App) -> None:
    made = ExternalTool(name="ask", parameters=Query, redact=frozenset({"accuracy"}), risk="low")
    assert (made.parameters["properties"]["accuracy"]["default"], made.read("{}")) == (10, '{"accuracy":10}')
    with pytest.raises(InvalidArguments) as refused:
        made.read('{"accuracy": "secret"}')
    assert "secret" not in str(refused.value)
    agent = app.agent(say("", call("ask", {"accuracy": "x"}), call("ask", {})), tools=[made])
    asked = app.asked(agent)
    assert [call.status for call in asked.calls] == ["settled", "pending"]
    sent: Any = to_wire(asked.pending[0], redact=agent)
    assert (sent["external"], sent["args"]) == (True, {"accuracy": "[redacted]"})


def test_a_timeline_says_what_it_is(app: App) -> None:
    agent = app.agent(WANTS)
    told = timeline(agent.store, app.asked(agent)).entries
    assert [entry.facts["external"] for entry in told if entry.type == "approval_requested"] == [True]
