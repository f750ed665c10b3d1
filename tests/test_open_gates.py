"""Configuration by which a gate would be open in silence: each is refused where it is made, with the remedy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from drivers import DRIVERS, Driver
from pydantic import BaseModel
from tables import each
from typing_extensions import TypedDict

from phronomy import (
    END,
    START,
    Agent,
    Approval,
    Breakpoint,
    ConfigurationError,
    Escalate,
    Labels,
    Principal,
    StateGraph,
    Step,
    Telemetry,
    Tool,
    ToolDefinitionError,
    parallel,
    sequential,
    tool,
)
from phronomy.testing import ScriptedModel, call

MODEL = ScriptedModel(["Done."])


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver: Driver = request.param
    return driver


@tool(requires_approval=True)
def wipe(path: str) -> str:
    """Wipe."""
    return path


def passing(function: Any) -> Any:
    @functools.wraps(function, updated=())
    def inner(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return inner


def of_tool(**body: Any) -> Any:
    def execute(self: Any) -> str:
        """Wipe."""
        return ""

    return type("Own", (Tool,), {"execute": execute, **body})


def of_agent(**body: Any) -> Any:
    return type("Own", (Agent,), {"model": MODEL, **body})


# Options in other words, and without a value


@each(
    ("make", "name", "value"),
    [
        *(
            (of_tool, f"{first}_{last}", True)
            for first in ("requires", "require")
            for last in ("confirmation", "consent")
        ),
        *((of_tool, f"requires_{last}", True) for last in ("human", "review", "permission", "authorization")),
        *((of_tool, name, True) for name in ("human_in_the_loop", "interrupt_on", "confirm", "needs_approval")),
        (of_tool, "requires_confirmation", lambda self, args: True),
        (of_tool, "interrupt_on", ["path"]),
        (of_agent, "policies", ["wipe"]),
        (of_agent, "interrupt_on", {"wipe": True}),
        (of_agent, "gated_tools", ("wipe",)),
        (of_agent, "gated_tools", frozenset({"wipe"})),
        (of_agent, "require_confirmation", True),
        (of_agent, "human_in_the_loop", True),
        (of_tool, "_requires_approval", True),
        (of_agent, "_approval_policy", ["wipe"]),
        (of_agent, "_tool_guardrails", ()),
    ],
)
def test_a_gate_in_the_words_of_others_is_refused(make: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"class Own: {name} .*would be ignored"):
        make(**{name: value})


@each(
    ("make", "name", "annotation"),
    [
        (of_tool, "requires_approval", True),
        (of_tool, "requires_approval", "True"),
        (of_tool, "redact", "['path']"),
        (of_tool, "timeout", "float | None"),
        (of_agent, "approval_policy", ["wipe"]),
        (of_agent, "approval_policy", "['wipe']"),
        (of_agent, "tool_guardrails", "[check]"),
        (of_tool, "confirm", True),
        (of_tool, "confirm", "True"),
        (of_agent, "interrupt_on", "{'wipe': True}"),
    ],
)
def test_an_option_that_is_only_annotated_is_refused(make: Any, name: str, annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"class Own: {name} .*would be ignored"):
        make(__annotations__={name: annotation})


def test_what_has_another_form_is_the_class_s_own() -> None:
    class Own(Tool):
        limit = 3
        greeting = "Good morning"
        hours: tuple[int, int] = (9, 17)
        rate: float | None = None
        verbose: ClassVar[bool] = True
        currencies: ClassVar[list[str]] = ["EUR"]
        client: object

        def confirm(self) -> bool:
            return True

        def execute(self) -> str:
            """Do it."""
            return ""

    assert Own().gate == "never"


# Wrappers


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def run(self, path: str) -> str:
        """Run it."""
        return str(self.held(path))


def closing(over: Any) -> Any:
    def inner(path: str) -> str:
        """Run it."""
        return str(over(path))

    return inner


WRAPPERS: dict[str, Callable[[], Any]] = {
    "a wrapper": lambda: passing(wipe),
    "two wrappers": lambda: passing(passing(wipe)),
    "its execute": lambda: wipe.execute,
    "its __call__": lambda: wipe.__call__,
    "a partial": lambda: functools.partial(wipe, "x"),
    "a closure": lambda: closing(wipe),
    "a method of what holds it": lambda: Holder(wipe).run,
}


@each("make", WRAPPERS.values(), ids=WRAPPERS)
def test_what_wraps_a_gated_tool_is_no_tool(make: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        Agent(model=MODEL, tools=[make()]).spec  # noqa: B018
    with pytest.raises(ToolDefinitionError):
        tool(make())


def test_what_holds_a_gated_tool_may_have_a_gate_of_its_own() -> None:
    @tool
    def free(path: str) -> str:
        """Look."""
        return path

    assert tool(requires_approval=True)(closing(wipe)).gate == "always"
    assert tool(requires_approval=True)(Holder(wipe).run).gate == "always"
    assert tool(calls=[wipe])(closing(wipe)).gate == "never"  # what it calls is asked about by itself
    assert tool(closing(free)).gate == "never"
    assert tool(Holder(free).run).gate == "never"
    with pytest.raises(ToolDefinitionError, match="put @tool on the outermost function"):
        tool(requires_approval=True)(passing(wipe))


# A tool where a function is wanted


class Job(BaseModel):
    said: str = ""


def graph(**routes: Any) -> Any:
    made = StateGraph(Job).add_node("a", lambda state: {}).add_edge(START, "a")
    return made.add_conditional_edges("a", routes["path"], [END]).compile()


def reduced(by: Any) -> Any:
    from typing import Annotated

    state = TypedDict("state", {"said": Annotated[str, by]})  # type: ignore[misc]  # noqa: UP013
    return StateGraph(state)


def agent() -> Any:
    return Agent(name="a", model=MODEL)


PLACES: dict[str, Callable[[Any], Any]] = {
    "as_tool(input=)": lambda given: agent().as_tool(input=given),
    "instructions": lambda given: Agent(model=MODEL, instructions=given).spec,
    "a handler": lambda given: Agent(model=MODEL, on_approval_required=given).spec,
    "a guardrail": lambda given: Agent(model=MODEL, input_guardrails=[given]).spec,
    "a condition": lambda given: named(requires_approval=given),
    "Approval.when": lambda given: named(requires_approval=Approval(when=given)),
    "Approval.title": lambda given: named(requires_approval=Approval(title=given)),
    "Approval.by": lambda given: named(requires_approval=Approval(by=given)),
    "Approval.standing": lambda given: named(requires_approval=Approval(standing={"small": given})),
    "a policy": lambda given: Agent(model=MODEL, tools=[named()], approval_policy={"named": given}).spec,
    "a transform": lambda given: sequential(Step(agent(), transform=given), agent()),
    "a merge": lambda given: parallel(agent(), agent(), merge=given),
    "a step": lambda given: sequential(given, agent()),
    "a node": lambda given: StateGraph(Job).add_node("a", given),
    "a route": lambda given: graph(path=given),
    "a reducer": reduced,
    "a breakpoint": lambda given: Breakpoint("pre_tool_call", when=given),
    "telemetry": lambda given: Telemetry(redact=given),
    "labels": lambda given: Labels(when=given),
}


def named(**options: Any) -> Any:
    def body(path: str) -> str:
        """Do it."""
        return path

    return tool(name="named", **options)(body)


@each(
    ("place", "given"),
    [(place, given) for place in PLACES for given in (wipe, passing(wipe), functools.partial(wipe, "x"), wipe.execute)],
)
def test_a_tool_is_no_function(place: str, given: Any) -> None:
    with pytest.raises(ConfigurationError):
        PLACES[place](given)


# Approvals that let everybody in


@each("by", [None, "", " ", "\t", [], (), [None], ["lead", None], ["lead", ""], [" "]])
def test_nobody_is_named_by_nothing(by: Any) -> None:
    with pytest.raises(ConfigurationError, match="Approval: by is"):
        Approval(by=by)
    with pytest.raises(ConfigurationError, match="Escalate: by is"):
        Escalate(after=5, by=by)


def test_by_is_left_out_for_anybody() -> None:
    assert named(requires_approval=Approval()).review.people.approvers.roles == ()
    assert named(requires_approval=Approval(by=["lead", Principal(id="rita")])).review.people.approvers.roles == (
        "lead",
    )


def test_an_empty_mapping_of_conditions_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="standing is an empty mapping, so any grant would count"):
        Approval(standing={})


# Fallbacks


def broken(path: str) -> str:
    """Wipe."""
    raise ValueError("no")


def by_hand(path: str) -> str:
    """Wipe by hand."""
    RAN.append(path)
    return f"by hand: {path}"


RAN: list[str] = []


@pytest.mark.parametrize("how", ["a policy", "a gate", "a predicate", "an Approval", "a policy about a tool"])
def test_what_stands_in_for_a_gated_tool_is_gated(driver: Driver, how: str) -> None:
    def large(args: Mapping[str, Any]) -> bool:
        return True

    RAN.clear()
    gate: Any = {"a gate": True, "a predicate": large, "an Approval": Approval(title="Wipe")}.get(how, False)
    stands_in = tool(driver.function(by_hand)) if how == "a policy about a tool" else driver.function(by_hand)
    made = tool(name="wipe", requires_approval=gate, fallback=[stands_in])(driver.function(broken))
    policy = ["wipe"] if how.startswith("a policy") else []
    model = ScriptedModel.by_turn([call("wipe", {"path": "/"}), "Done."])
    desk = Agent(name="desk", model=model, tools=[made], approval_policy=policy)

    first = driver.invoke(desk, "go").checkpoint
    assert first.pending_tool_name == "wipe"
    second = driver.resume(desk, first, approved=True).checkpoint
    assert (second.pending_tool_name, RAN) == ("by_hand", [])
    result = driver.resume(desk, second, approved=True)
    assert (result.status, RAN) == ("completed", ["/"])


def test_what_stands_in_for_a_tool_says_for_itself_whether_it_asks() -> None:
    free = tool(by_hand)
    [kept] = tool(name="wipe", requires_approval=True, fallback=[free])(broken).fallback
    assert (kept, kept.gate) == (free, "never")
    [made] = tool(name="wipe", fallback=[by_hand])(broken).fallback
    assert made.gate == "never"


# Async functions in plain wrappers


async def slow(path: str) -> str:
    """Do it slowly."""
    return path


async def pieces(path: str) -> Any:
    """Do it in pieces."""
    yield path


def some(path: str) -> Any:
    """Do it in pieces."""
    yield path


class Slow:
    async def run(self, path: str) -> str:
        """Do it slowly."""
        return path


@each(
    "body",
    [
        passing(slow),
        passing(passing(slow)),
        passing(Slow().run),
        passing(pieces),
        passing(some),
        pieces,
        some,
    ],
)
def test_a_plain_wrapper_of_an_async_function_is_refused_before_anybody_is_asked(body: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        tool(requires_approval=True)(body)


@each("given", [passing(slow), functools.partial(passing(slow))])
def test_a_plain_wrapper_of_an_async_function_is_no_predicate_and_no_instructions(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="wraps an async one"):
        named(requires_approval=given)
    with pytest.raises(ConfigurationError, match="wraps an async one"):
        Agent(model=MODEL, instructions=given).spec  # noqa: B018


def test_an_async_wrapper_and_an_async_method_are_async() -> None:
    @functools.wraps(slow)
    async def traced(path: str) -> str:
        return await slow(path)

    assert tool(traced).is_async
    assert tool(Slow().run).is_async
    assert not tool(passing(by_hand)).is_async
