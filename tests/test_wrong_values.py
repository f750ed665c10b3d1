"""What a user constructs of wrong values is refused by an error of phronomy's, which names the field and quotes nothing."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest
from drivers import Driver
from pydantic import BaseModel, ValidationError
from tables import each

import phronomy
import phronomy.drawing
import phronomy.events
import phronomy.graph
import phronomy.models
import phronomy.stores
import phronomy.testing
import phronomy.testing.crash
import phronomy.testing.store_contract
import phronomy.timeline
import phronomy.wire
from phronomy import (
    Agent,
    AllowedTools,
    Approval,
    Approve,
    Breakpoint,
    Breakpoints,
    ChatCompletionsModel,
    ConfigurationError,
    DagNode,
    Debugger,
    Defer,
    Escalate,
    ExternalTool,
    GoalNode,
    Guardrail,
    Handoff,
    Hold,
    Image,
    InvalidDecision,
    JsonSchemaOutput,
    KeyValueStore,
    Labels,
    Limits,
    LiteLLMModel,
    MaxLength,
    MCPServer,
    Memory,
    MemoryStore,
    Message,
    MessagesModel,
    ModelReply,
    ModelSettings,
    Orchestrator,
    PhronomyError,
    PostgresStore,
    Principal,
    PromptTemplate,
    RedactPatterns,
    RedisStore,
    Refuse,
    RefusePatterns,
    Reject,
    Relaxation,
    Respond,
    ResponsesModel,
    Skip,
    SQLiteStore,
    StateGraph,
    Step,
    Telemetry,
    Tool,
    ToolCall,
    Usage,
    dag,
    goal,
    sequential,
    tool,
)
from phronomy.observability.timeline import Timeline, TimelineRecorder
from phronomy.records.record import Record
from phronomy.testing import ScriptedModel

CANARY = "canary-7f3a"
HUGE = 10**400
"""A whole number that is beyond every float."""


class Job(BaseModel):
    said: str = ""


def twice(text: str) -> str:
    return text * 2


def agent(**options: Any) -> Any:
    return Agent(**{"name": "desk", "model": ScriptedModel(["Done."]), **options}).spec


def tool_with(**body: Any) -> Any:
    def execute(self: Any) -> str:
        """Wipe."""
        return "wiped"

    return type("Wipe", (Tool,), {"execute": execute, **body})()


def guardrail_with(**body: Any) -> Any:
    return type("Looks", (Guardrail,), {"check": lambda self, value: None, **body})()


def team(**options: Any) -> Any:
    return Orchestrator([Agent(name="clerk", model=ScriptedModel(["Done."]))], **options)


TABLE: list[tuple[Any, list[dict[str, Any]]]] = [
    (
        agent,
        [
            *({"approval_policy": given} for given in ([[CANARY]], [{}], {1: True}, [3], 3, CANARY, {"x": CANARY})),
            *({"approval_timeout": given} for given in (CANARY, HUGE, 0, [3], float("inf"))),
            {"limits": CANARY},
            {"settings": {"temperature": 1}},
            {"tools": CANARY},
            {"handoffs": 3},
            {"breakpoints": [CANARY]},
            {"hooks": [CANARY]},
            {"memory": CANARY},
            {"store": CANARY},
            {"model": [CANARY]},
            {"input_guardrails": [[CANARY]]},
        ],
    ),
    (tool_with, [{"timeout": HUGE}, {"retry_wait": HUGE}, {"approval_timeout": HUGE}, {"redact": 3}, {"name": [CANARY]}]),
    (guardrail_with, [{"retry_wait": HUGE}, {"retries": CANARY}, {"stages": [CANARY]}, {"name": 3}]),
    (team, [{"approval_timeout": HUGE}, {"approval_policy": [[CANARY]]}, {"memory": CANARY}, {"pools": [CANARY]}]),
    (lambda **given: tool(**given)(twice), [{"timeout": HUGE}, {"retries": CANARY}]),
    (lambda **given: sequential(Step(twice, **given)), [{"timeout": HUGE}, {"retry_wait": HUGE}, {"transform": CANARY}]),
    (lambda **given: dag({"a": DagNode(twice, **given)}), [{"needs": 3}, {"when": CANARY}, {"priority": CANARY}]),
    (
        lambda **given: goal({"a": GoalNode(twice, **{"produces": ["x"], **given})}, until=lambda facts: "x" in facts),
        [{"produces": CANARY}, {"produces": []}, {"requires": 3}, {"priority": CANARY}],
    ),
    (
        lambda **given: goal(
            {"a": GoalNode(twice, produces=["x"])}, until=lambda facts: "x" in facts, relax=[Relaxation(**{"facts": {}, **given})]
        ),
        [{"facts": {"x": object()}}, {"rerun": 3}],
    ),
    (Labels, [{"every": 0}, {"every": CANARY}, {"prefix": [CANARY]}, {"when": 3}]),
    (KeyValueStore, [{"kv": 3}, {"kv": CANARY}]),
    (lambda **given: agent(handoffs=[Handoff("x", **given)]), [{"input": CANARY}, {"approval_timeout": HUGE}]),
    (lambda **given: StateGraph(Job, **given), [{"name": [CANARY]}]),
    (StateGraph, [{"state": CANARY}]),
    (Approval, [{"when": 1}, {"title": 3}, {"title": ""}, {"context": [CANARY]}, {"answers": [CANARY]}, {"answers": 3}]),
    (
        Approval,
        [
            *({"by": 3}, {"by": []}, {"by": [b"x"]}, {"by": ""}, {"needed": 0}, {"needed": CANARY}, {"rejections": True}),
            *({"not_requester": 1}, {"escalate": CANARY}, {"escalate": 3}, {"expires": HUGE}, {"expires": -1}),
            *({"on_expiry": CANARY}, {"on_expiry": [CANARY]}, {"remind": HUGE}, {"remind": [CANARY]}, {"remind": 0}),
            *({"handler": 1}, {"handler": True, "by": "x"}, {"standing": 1}, {"standing": {CANARY: 3}}),
            *({"standing": [CANARY]}, {"expires": 5, "remind": 6}, {"by": [Principal(id="x")], "needed": 2}),
        ],
    ),
    (
        lambda **given: Escalate(**{"after": 1, "by": "x", **given}),
        [{"after": HUGE}, {"after": 0}, {"after": CANARY}, {"by": 3}, {"by": None}, {"instead": 1}, {"needed": 0}],
    ),
    (
        lambda **given: phronomy.stores.Answered(**{"pending_id": "p", "digest": "d", "answer": Approve(), **given}),
        [{"pending_id": 3}, {"digest": 3}, {"answer": CANARY}, {"key": 3}, {"key": ""}],
    ),
    (Hold, [{"timeout": HUGE}, {"timeout": CANARY}, {"history": HUGE}, {"on_breakpoint": CANARY}, {"resume_event": 3}]),
    (lambda **given: Breakpoint("tool", **given), [{"agents": CANARY}, {"tools": [3]}, {"when": 3}, {"label": [CANARY]}]),
    (Breakpoints, [{"breakpoints": [CANARY]}, {"breakpoints": 3}]),
    (ExternalTool, [{"name": [CANARY]}, {"name": "x", "parameters": [CANARY]}, {"name": "x", "returns": CANARY}]),
    (MCPServer, [{"name": "a", "url": "http://localhost", "timeout": HUGE}, {"name": [CANARY]}]),
    (Memory, [{"max_tokens": CANARY}, {"max_messages": 0}, {"max_tokens": 3, "count": CANARY}]),
    (PromptTemplate, [{"template": [CANARY]}, {"template": "x", "defaults": [CANARY]}]),
    (MaxLength, [{"characters": CANARY}]),
    (RedactPatterns, [{"patterns": [[CANARY]]}, {"patterns": 3}]),
    (RefusePatterns, [{"patterns": [[CANARY]]}, {"patterns": 3}]),
    (AllowedTools, [{"names": [[CANARY]]}, {"names": 3}]),
    (JsonSchemaOutput, [{"schema": [CANARY]}]),
    (Refuse, [{"message": [CANARY]}, {"message": "x", "then": CANARY}]),
    *(
        (
            direct,
            [
                {"model": "x", "api_key": [CANARY]},
                {"model": "x", "base_url": [CANARY]},
                {"model": "x", "settings": CANARY},
                {"model": "x", "max_attempts": CANARY},
                {"model": "x", "retry_wait": HUGE},
                {"model": [CANARY]},
            ],
        )
        for direct in (ChatCompletionsModel, MessagesModel, ResponsesModel)
    ),
    (LiteLLMModel, [{"model": "x", "api_key": [CANARY]}, {"model": "x", "base_url": 3}, {"model": 3}]),
    (ModelReply, [{"message": CANARY}, {"message": Message(role="assistant"), "usage": CANARY}]),
    (Image, [{"data": CANARY}, {"data": CANARY.encode()}, {"data": b"", "media_type": CANARY}]),
    (MemoryStore, [{"lease": HUGE}, {"ttl": CANARY}, {"tenant": [CANARY]}]),
    (SQLiteStore, [{"path": [CANARY]}, {"path": "x", "timeout": HUGE}, {"path": "x", "timeout": CANARY}]),
    (PostgresStore, [{"conninfo": [CANARY]}, {"conninfo": "x", "timeout": HUGE}, {"conninfo": "x", "timeout": CANARY}]),
    (RedisStore, [{"url": [CANARY]}, {"url": "x", "timeout": HUGE}, {"url": "x", "timeout": CANARY}]),
    (Telemetry, [{"tracer_provider": CANARY}, {"meter_provider": CANARY}, {"redact": CANARY}, {"traces": CANARY}]),
    (Timeline, [{"run_id": "r", "branch_id": "b", "entries": [CANARY]}, {"run_id": "r", "branch_id": "b", "entries": 3}]),
    (TimelineRecorder, [{"listeners": 3}, {"listeners": [CANARY]}, {"store": CANARY}, {"onto": CANARY}, {"max_events": 0}]),
    (Debugger, [{"agent": CANARY, "at": CANARY}]),
    (ScriptedModel, [{"replies": 3}]),
    # Records
    (Limits, [{"seconds": CANARY}, {"seconds": HUGE}, {"turns": 0}, {"turn": 3}, {"cost": float("nan")}]),
    (ModelSettings, [{"temperature": CANARY}, {"timeout": HUGE}, {"stop": [3]}, {"extra": [CANARY]}, {"top": 1}]),
    (Usage, [{"cost": HUGE}, {"requests": CANARY}]),
    (Message, [{"role": CANARY}, {"role": "user", "content": 3}, {}, {"role": "tool", "content": CANARY}]),
    (ToolCall, [{"id": "x", "name": [CANARY], "arguments": "{}"}, {"id": "x"}]),
    (Approve, [{"args": CANARY}, {"args": {"a": object()}}, {"arg": {}}]),
    (Reject, [{"then": CANARY}, {"reason": [CANARY]}]),
    (Respond, [{}, {"content": object()}, {"content": float("nan")}]),
    (Principal, [{}, {"id": ""}, {"id": [CANARY]}, {"id": "ada", "kind": CANARY}]),
    (Skip, [{"reason": "x"}]),
    (Defer, [{"reason": "x"}]),
]  # fmt: skip
"""What makes one, and arguments that it refuses."""


@each(("make", "given"), [(make, given) for make, wrong in TABLE for given in wrong])
def test_wrong_values_are_refused_by_an_error_of_phronomys(make: Any, given: dict[str, Any]) -> None:
    with pytest.raises(PhronomyError) as caught:
        make(**given)
    assert CANARY not in str(caught.value) and str(HUGE)[:99] not in str(caught.value)
    assert caught.value.__suppress_context__ or not isinstance(caught.value.__context__, ValidationError)


def public_classes() -> set[type]:
    modules = [
        *(
            phronomy,
            phronomy.graph,
            phronomy.models,
            phronomy.stores,
            phronomy.events,
            phronomy.timeline,
            phronomy.wire,
        ),
        *(
            phronomy.testing,
            phronomy.testing.crash,
            phronomy.testing.store_contract,
            phronomy.drawing,
        ),
    ]
    found = {getattr(module, name) for module in modules for name in module.__all__}
    return {kind for kind in found if inspect.isclass(kind) and not issubclass(kind, BaseException)}


FOR_USERS: set[Any] = {
    *(Agent, Tool, Guardrail, Orchestrator, Step, DagNode, Handoff, StateGraph, Breakpoint, Escalate),
    *(GoalNode, Relaxation),
    phronomy.stores.Answered,
}
"""Those that the table makes by a function."""

NOT_MADE_BY_USERS = {
    "AsyncStream",
    "BatchDecision",
    "BreakpointContext",
    "BreakpointHit",
    "Drift",
    "DryRun",
    "Graph",
    "GraphStop",
    "GuardrailContext",
    "HandoffState",
    "InstructionsContext",
    "Interruption",
    "LabelContext",
    "LocalState",
    "MemberState",
    "ModelRequest",
    "Pattern",
    "PatternDiff",
    "PatternProgress",
    "PatternState",
    "Recovery",
    "Request",
    "Result",
    "StopItem",
    "Stream",
    "TeamState",
    "ToolContext",
    "Waiting",
    "ReasoningDelta",
    "TextDelta",
    "ToolCallDelta",
    "Append",
    "AuditFilter",
    "AuditRow",
    "Branch",
    "BranchFilter",
    "CheckpointFilter",
    "CheckpointInfo",
    "CheckpointRow",
    "Claim",
    "Document",
    "Entry",
    "Lineage",
    "Page",
    "PendingFilter",
    "PendingRow",
}
"""Given to users, to functions of theirs, or to stores."""

CHECKED_WHERE_USED = {"Abort", "Continue", "Pass", "Pause", "Replan", "Send", "Transform"}
"""What a node or a guardrail returns: it holds any value, and is looked at there."""

HOLD_NOTHING = {
    "Announcements",
    "Dispatch",
    "Hooks",
    "KeyValue",
    "LocalDispatch",
    "Model",
    "StreamingModel",
    "Store",
    "GraphOptions",
    "NodeOptions",
}

OF_TESTS = {"ChatServer", "Clock", "Entered", "Fault", "ModelContract", "Report", "Scene", "StoreContract"}


def test_every_public_class_is_in_the_table_or_is_none_that_users_make() -> None:
    inside = {make for make, _ in TABLE if inspect.isclass(make)} | FOR_USERS
    rest = {kind.__name__ for kind in public_classes() - inside if not issubclass(kind, Record)}
    assert rest == NOT_MADE_BY_USERS | CHECKED_WHERE_USED | HOLD_NOTHING | OF_TESTS


def test_every_record_refuses_what_it_has_no_field_for_and_says_which_it_has() -> None:
    records = {kind for kind in public_classes() if issubclass(kind, Record)}
    assert len(records) > 25
    for kind in records:
        with pytest.raises((phronomy.InvalidField, InvalidDecision), match=f"^{kind.__name__}: ") as caught:
            kind(canary=CANARY)
        assert isinstance(caught.value, ValueError) and CANARY not in str(caught.value)


def test_a_field_is_named_with_what_it_takes_and_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Limits(seconds="x", turn=1)  # type: ignore[arg-type, call-arg]
    assert str(caught.value) == (
        "Limits: seconds: Input should be a valid number; there is no field turn (did you mean turns?); there are "
        + ", ".join(Limits.model_fields)
    )
    with pytest.raises(
        InvalidDecision, match=r"^Reject: then: Input should be 'continue', 'block', 'block_tool' or 'end'$"
    ):
        Reject(then="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidDecision, match=r"^Skip: there is no field reason; there are kind$"):
        Skip(reason="x")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"^Message: content is text, a list of content parts, or null$"):
        Message(role="user", content=3)


def test_reading_a_record_keeps_its_own_errors() -> None:
    """It is read without the constructor, strictly as JSON, with what is in it as well."""
    for text in ('{"then":"x"}', '{"reason":3}', "[]"):
        with pytest.raises(ValidationError):
            Reject.model_validate_json(text)
    with pytest.raises(ValidationError, match=r"tool_calls\.0\.name"):
        Message.model_validate_json('{"role":"assistant","tool_calls":[{"id":"a","name":3,"arguments":"{}"}]}')
    with pytest.raises(ValidationError):
        Message.model_validate({"role": CANARY})
    assert Limits.model_validate_json('{"seconds":3}') == Limits(seconds=3)
    assert not any(kind.__pydantic_custom_init__ for kind in public_classes() if issubclass(kind, Record))


def test_a_record_of_yours_is_made_as_before() -> None:
    class Clerk(Principal):
        desk: int

    assert Clerk(id="ada", desk=3).model_dump() == {"id": "ada", "name": None, "kind": "human", "desk": 3}
    with pytest.raises(InvalidDecision, match=r"^Clerk: desk: "):
        Clerk(id="ada", desk="x")  # type: ignore[arg-type]
    assert list(inspect.signature(Reject).parameters) == ["kind", "reason", "then", "metadata"]


def test_the_arguments_of_a_dry_run_are_a_mapping(driver: Driver) -> None:
    @tool
    def first(a: int) -> str:
        """First."""
        return str(a)

    desk: Agent[Any, str] = Agent(model=ScriptedModel(["Done."]), tools=[first])
    for given in ("x", 3, [CANARY]):
        with pytest.raises(ConfigurationError, match=f"a mapping by name, not {type(given).__name__}"):
            driver.call(desk, "dry_run", "first", given)
    assert driver.call(desk, "dry_run", "first", {"a": "x"}).verdict == "invalid"


def test_an_agent_whose_constructor_does_not_build_it_says_so(driver: Driver) -> None:
    @dataclass
    class Desk(Agent[Any, str]):
        name: str = "desk"
        floor: int = 3

    @dataclass
    class Way(Handoff):
        colour: str = "red"

    model = ScriptedModel(["Done."])
    for ask in (
        lambda: driver.invoke(Desk(), "x"),
        lambda: Desk().spec,
        lambda: driver.resume(Desk(), "ckpt_1"),
        lambda: Desk().as_tool(),
        lambda: Orchestrator([Desk()]),
        lambda: Agent(model=model, handoffs=[Way()]).spec,  # type: ignore[call-arg]
    ):
        with pytest.raises(ConfigurationError, match=r"(Desk|Way) is not built: call super\(\).__init__\(\)"):
            ask()
    with pytest.raises(AttributeError, match="'Way' object has no attribute 'shade'"):
        _ = Way().shade  # type: ignore[call-arg, attr-defined]
