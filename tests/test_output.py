"""Structured output: an answer of a type, or an error; nothing in between."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from drivers import Driver, open_kind
from pydantic import AfterValidator, BaseModel, Field, PlainSerializer
from typing_extensions import TypedDict

from phronomy import Agent, ConfigurationError, MemoryStore, OutputError, tool
from phronomy.conversation.output import InvalidOutput, OutputType
from phronomy.testing import ScriptedModel, call


class Refund(BaseModel):
    """What was paid back."""

    order_id: int
    amount: Decimal = Field(ge=0)
    when: date | None = None


class Refused(BaseModel):
    kind: Literal["refused"]
    why: str


@dataclass
class Point:
    x: int
    y: int = 0


class Movie(TypedDict):
    title: str
    year: int


class Colour(enum.Enum):
    RED = "red"


GOOD = '{"order_id": 7, "amount": "49.90"}'


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (Refund, GOOD, Refund(order_id=7, amount=Decimal("49.90"))),
        (Refund, f"```json\n{GOOD}\n```", Refund(order_id=7, amount=Decimal("49.90"))),
        (Refund, f"  ```\n{GOOD}\n```  ", Refund(order_id=7, amount=Decimal("49.90"))),
        (Refund | Refused, '{"answer": {"kind": "refused", "why": "late"}}', Refused(kind="refused", why="late")),
        (Point, '{"x": 1}', Point(1, 0)),
        (Movie, '{"title": "Heat", "year": 1995}', {"title": "Heat", "year": 1995}),
        (list[Point], '{"answer": [{"x": 1}]}', [Point(1)]),
        (int, '{"answer": 5}', 5),
        (bool, '{"answer": false}', False),
        (Colour, '{"answer": "red"}', Colour.RED),
        (int | None, '{"answer": null}', None),
    ],
)
def test_the_answer_is_a_value_of_the_type(driver: Driver, tmp_path: Path, hint: Any, text: str, value: Any) -> None:
    with open_kind("sqlite", tmp_path) as store:
        agent = Agent(name="a", model=ScriptedModel([text]), output_type=hint, store=store)
        result = driver.invoke(agent, "go")
        assert (result.status, result.output, type(result.output)) == ("completed", value, type(value))
        assert store.load(result.checkpoint.id) == result.checkpoint


def test_an_answer_that_is_not_of_the_type_goes_back_to_the_model_a_bounded_number_of_times(driver: Driver) -> None:
    bad = ["No JSON at all.", '{"order_id": "x"}', '{"order_id": 7, "amount": -1}']
    model = ScriptedModel([*bad, GOOD])
    with pytest.raises(OutputError, match="3 answers were not of the output type, and output_retries is 2") as failed:
        driver.invoke(Agent(name="a", model=model, output_type=Refund), "go")
    assert failed.value.checkpoint is not None
    assert (len(model.requests), failed.value.checkpoint.refused) == (3, 3)
    told = [message.text for message in failed.value.checkpoint.messages if message.role == "user"][1:]
    assert [text.partition(". Answer again")[0] for text in told] == [
        "That answer cannot be used: it is not JSON: not JSON: Expecting value at character 0",
        "That answer cannot be used: order_id: Input should be a valid integer, unable to parse string as an integer; "
        "amount: Field required",
        "That answer cannot be used: amount: Input should be greater than or equal to 0",
    ]
    patient = Agent(name="a", model=model, output_type=Refund, output_retries=3, store=MemoryStore(), trust="bearer")
    result = driver.resume(patient, failed.value.checkpoint)
    assert (result.output, result.checkpoint.refused) == (Refund(order_id=7, amount=Decimal("49.90")), 3)


def test_tools_and_approvals_go_on_as_ever_before_the_answer(driver: Driver) -> None:
    done: list[int] = []

    @tool(requires_approval=True)
    def refund(order_id: int) -> str:
        """Refund."""
        done.append(order_id)
        return "refunded"

    agent = Agent(
        model=ScriptedModel([call("refund", {"order_id": 7}), "oops", GOOD]), tools=[refund], output_type=Refund
    )
    waiting = driver.invoke(agent, "go")
    assert (waiting.status, waiting.output) == ("suspended", None)
    result = driver.resume(agent, waiting.checkpoint, approved=True)
    assert (result.output, done) == (Refund(order_id=7, amount=Decimal("49.90")), [7])
    assert [message.role for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


def test_a_run_that_is_rejected_has_no_output(driver: Driver) -> None:
    @tool(requires_approval=True)
    def refund() -> str:
        """Refund."""
        return "refunded"

    from phronomy import Reject

    agent = Agent(model=ScriptedModel([call("refund")]), tools=[refund], output_type=Refund)
    waiting = driver.invoke(agent, "go").checkpoint
    result = driver.resume(agent, waiting, decisions={waiting.pending[0].id: Reject(then="end")})
    assert (result.status, result.output) == ("rejected", None)


def test_the_model_is_asked_by_schema_or_in_words(driver: Driver) -> None:
    model = ScriptedModel([GOOD, GOOD, "text"])
    driver.invoke(Agent(name="a", model=model, output_type=Refund, instructions="Be brief."), "go")
    driver.invoke(
        Agent(name="a", model=model, output_type=Refund, output_mode="prompt", instructions="Be brief."), "go"
    )
    driver.invoke(Agent(name="a", model=model, instructions="Be brief."), "go")
    by_schema, in_words, plain = model.requests
    asked = by_schema.settings.extra["response_format"]
    assert (asked["type"], asked["json_schema"]["name"]) == ("json_schema", "Refund")
    assert set(asked["json_schema"]["schema"]["properties"]) == {"order_id", "amount", "when"}
    assert by_schema.system == plain.system == "Be brief."
    assert in_words.system is not None
    assert in_words.system.startswith("Be brief.\n\nGive your final answer as JSON alone")
    assert "response_format" not in in_words.settings.extra | plain.settings.extra


def test_the_type_is_part_of_what_drift_lists(driver: Driver) -> None:
    @tool(requires_approval=True)
    def refund() -> str:
        """Refund."""
        return "refunded"

    def agent(hint: Any) -> Agent[Any, Any]:
        return Agent(name="a", model=ScriptedModel([call("refund")]), tools=[refund], output_type=hint)

    waiting = driver.invoke(agent(Refund), "go").checkpoint
    assert agent(Refund).drift(waiting).compatible == ()
    assert agent(Point).drift(waiting).compatible == ("the output type changed",)
    assert agent(None).drift(waiting).compatible == ("the output type changed",)


def test_an_output_of_another_type_than_it_was_is_an_error_and_no_wrong_value(driver: Driver) -> None:
    first = Agent(name="a", model=ScriptedModel([GOOD]), output_type=Refund, store=MemoryStore())
    done = driver.invoke(first, "go").checkpoint
    other = Agent(name="a", model=ScriptedModel([]), output_type=Point, store=first.store)
    with pytest.raises(OutputError, match="which was another then: x: Field required"):
        driver.recover(other, done)


def test_a_reading_that_would_not_survive_is_refused() -> None:
    grows = OutputType(Annotated[str, AfterValidator(lambda value: value + "!")])
    with pytest.raises(InvalidOutput, match="it changes when it is written"):
        grows.read('{"answer": "a"}')
    breaks = OutputType(Annotated[int, AfterValidator(lambda value: 1 // value)])
    with pytest.raises(InvalidOutput, match=r"it could not be read \(ZeroDivisionError\)"):
        breaks.read('{"answer": 0}')
    writes = OutputType(Annotated[int, PlainSerializer(lambda value: float("nan"))])
    with pytest.raises(InvalidOutput, match="nan is not a finite number"):
        writes.read('{"answer": 1}')
    for text in ("{}", '{"answer": 1, "more": 2}', "[]", "5", '{"answer": 1, "answer": 1}', '{"answer": NaN}', ""):
        with pytest.raises(InvalidOutput):
            OutputType(int).read(text)


def test_what_a_refused_answer_said_is_in_no_message_about_it() -> None:
    with pytest.raises(InvalidOutput) as refused:
        OutputType(Refund).read('{"order_id": "hunter2", "amount": 1}')
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("hint", [type("Plain", (), {}), "Nowhere"], ids=str)
def test_a_type_that_cannot_be_described_is_refused_when_the_agent_first_runs(hint: Any) -> None:
    agent = Agent(model=ScriptedModel(["x"]), output_type=hint)
    with pytest.raises(ConfigurationError, match="cannot be described to a model"):
        agent.invoke("go")


@pytest.mark.parametrize("wrong", [{"output_mode": "shout"}, {"output_retries": -1}], ids=str)
def test_options_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="output_mode is 'schema' or 'prompt', output_retries 0 or more"):
        Agent(model=ScriptedModel(["x"]), output_type=int, **wrong).invoke("go")


def test_text_as_the_type_is_text(driver: Driver) -> None:
    agent = Agent(model=ScriptedModel(["plain words"]), output_type=str)
    assert driver.invoke(agent, "go").output == "plain words"
