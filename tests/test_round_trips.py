"""A value is stored only if the same value is read back: answers of runs, and typed channels."""

from __future__ import annotations

import collections
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from drivers import DRIVERS, Driver
from pydantic import AfterValidator, BaseModel, Field, PlainSerializer, SecretBytes, SecretStr, create_model
from tables import each

from phronomy import Agent, ConfigurationError, MemoryStore, OutputError, RunFailed, tool
from phronomy.conversation.output import InvalidOutput, OutputType, is_kept
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel, call


class Secret(BaseModel):
    token: SecretStr


class Hidden(BaseModel):
    checksum: int = Field(default=0, exclude=True)


class Needed(BaseModel):
    checksum: int = Field(exclude=True)


class Rounded(BaseModel):
    price: Annotated[float, PlainSerializer(round)]


class ReadAs(BaseModel):
    count: int = Field(validation_alias="num")


class WrittenAs(BaseModel):
    count: int = Field(serialization_alias="num")


class Cents(BaseModel):
    cents: Annotated[int, AfterValidator(lambda euros: euros * 100)]


class Around(BaseModel):
    inner: list[Secret]


LOSSY = [
    Secret,
    list[SecretBytes],
    Hidden,
    Needed,
    Rounded,
    ReadAs,
    WrittenAs,
    Cents,
    Around,
    dict[str, Secret],
    Secret | Cents,
]


@each("hint", LOSSY)
def test_a_type_of_answers_that_json_does_not_hold_is_refused_when_the_agent_is_made(hint: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"agent 'desk': output_type .*does not survive JSON"):
        Agent(name="desk", model="openai/gpt-4o-mini", output_type=hint)


class Kept(BaseModel):
    amount: float = Field(alias="amountInEuros")
    tags: set[int] = set()
    at: datetime | None = None
    name: Annotated[str, AfterValidator(str.upper)] = ""


def test_a_type_that_json_holds_is_an_answer_as_before(driver: Driver) -> None:
    said = '{"amountInEuros": 9.99, "tags": [1], "at": "2026-01-01T00:00:00Z", "name": "ann"}'
    result = driver.invoke(Agent(name="desk", model=ScriptedModel([said]), output_type=Kept), "Go")
    assert result.output == Kept(amountInEuros=9.99, tags={1}, at=datetime(2026, 1, 1, tzinfo=UTC), name="ANN")


def test_a_class_is_looked_at_once_and_refused_for_each_agent() -> None:
    is_kept.cache_clear()
    for name in ("desk", "clerk"):
        assert Agent(name=name, model="openai/gpt-4o-mini", output_type=Kept).spec.output is not None
        with pytest.raises(ConfigurationError, match=rf"agent '{name}': output_type .*does not survive JSON"):
            Agent(name=name, model="openai/gpt-4o-mini", output_type=Secret)
    assert is_kept.cache_info().misses == 2


@each(("kind", "told"), [("int", None), ("SecretBytes", "agent 'desk': output_type .*does not survive JSON")])
def test_a_class_that_is_completed_later_is_looked_at_then(kind: str, told: str | None) -> None:
    late: Any = create_model("Late", inner=("Inner", ...))
    agent = Agent(name="desk", model="openai/gpt-4o-mini", output_type=late)
    late.model_rebuild(_types_namespace={"Inner": {"int": int, "SecretBytes": SecretBytes}[kind]})
    if told is None:
        assert agent.spec.output is not None
    else:
        with pytest.raises(ConfigurationError, match=told):
            _ = agent.spec


def _shortened(value: str) -> str:
    return value.removesuffix(" 1042")


def test_a_value_that_no_sample_has_shown_is_refused_when_it_is_said(driver: Driver) -> None:
    late = Annotated[str, PlainSerializer(_shortened)]
    agent = Agent(name="desk", model=ScriptedModel(['{"answer": "order 1042"}']), output_type=late, output_retries=0)
    with pytest.raises(OutputError):
        driver.invoke(agent, "Go")
    with pytest.raises(InvalidOutput, match="changes when it is written"):
        OutputType(late).read('{"answer": "order 1042"}')
    assert OutputType(late).read('{"answer": "order"}') == '"order"'


# Typed channels

VIENNA = ZoneInfo("Europe/Vienna")
NEVER = collections.defaultdict(lambda: 7)


class Holder(BaseModel):
    at: datetime


LOST: list[tuple[Any, Any]] = [
    (collections.deque[int], collections.deque([1], maxlen=1)),
    (list[collections.deque[int]], [collections.deque([1], maxlen=1)]),
    (datetime, datetime(2026, 1, 1, tzinfo=VIENNA)),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1)),  # noqa: DTZ001
    (time, time(2, 30, tzinfo=VIENNA)),
    (time, time(2, 30, fold=1)),
    (collections.defaultdict[str, int], NEVER),
    (collections.defaultdict[str, int], collections.defaultdict(None)),
    (dict[str, collections.defaultdict[str, int]], {"a": NEVER}),
    (list[datetime], [datetime(2026, 1, 1, tzinfo=VIENNA)]),
    (set[datetime], {datetime(2026, 1, 1, tzinfo=VIENNA)}),
    (collections.deque[datetime], collections.deque([datetime(2026, 1, 1, tzinfo=VIENNA)])),
    (Holder, Holder(at=datetime(2026, 1, 1, tzinfo=VIENNA))),
]
HELD: list[tuple[Any, Any]] = [
    (collections.deque[int], collections.deque([1])),
    (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001
    (time, time(2, 30, tzinfo=UTC)),
    (set[datetime], {datetime(2026, 1, 1, tzinfo=UTC)}),
    (collections.defaultdict[str, int], collections.defaultdict(int, a=1)),
    (collections.defaultdict[str, list[int]], collections.defaultdict(list, a=[1])),
    (float, -0.0),
]


def passed_on(hint: Any, value: Any, driver: Driver) -> Any:
    """The value as the next node reads it."""
    read: list[Any] = []

    fields: dict[str, Any] = {"v": (hint | None, None)}
    state_type: Any = create_model("State", **fields)
    graph = (
        StateGraph(state_type)
        .add_node("put", lambda state: {"v": value})
        .add_node("look", lambda state: read.append(state.v))
    )
    graph = graph.add_edge(START, "put").add_edge("put", "look").add_edge("look", END)
    compiled: Any = graph.compile(name="g", store=MemoryStore())
    driver.invoke(compiled, {})
    return read[0]


@pytest.mark.parametrize(("hint", "value"), LOST)
def test_a_value_that_is_equal_and_not_the_same_is_refused(driver: Driver, hint: Any, value: Any) -> None:
    with pytest.raises(RunFailed, match="lost when it is written and read back"):
        passed_on(hint, value, driver)


@pytest.mark.parametrize(("hint", "value"), HELD)
def test_a_value_that_json_holds_is_read_as_it_was(driver: Driver, hint: Any, value: Any) -> None:
    found = passed_on(hint, value, driver)
    assert (type(found), found, repr(value == found)) == (type(value), value, "True")


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


# An input that is an id


def test_the_id_of_a_checkpoint_or_a_request_is_no_input(driver: Driver) -> None:

    @tool(requires_approval=True)
    def refund(order: int) -> str:
        """Refund an order."""
        return "refunded"

    store = MemoryStore()
    agent = Agent(
        name="desk", model=ScriptedModel([call("refund", {"order": 1}), "Hello."]), tools=[refund], store=store
    )
    stopped = driver.invoke(agent, "Go").checkpoint
    for given in (stopped.id, stopped.pending[0].id):
        with pytest.raises(ConfigurationError, match=f"{given} is the id of a"):
            driver.invoke(agent, given)
        with pytest.raises(ConfigurationError, match="call resume"):
            list(agent.stream(given))
    assert len(store.branches()) == 1
    assert driver.invoke(agent, "ckpt_" + "0" * 24).output == "Hello."
