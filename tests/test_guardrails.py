"""Guardrails: what they may say, how they are asked, what becomes of it, and those that are there."""

from __future__ import annotations

import asyncio
import functools
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phronomy.concurrency import retries
from phronomy.errors import AsyncRequired, ConfigurationError, GuardrailFailed, RunFailed
from phronomy.foundation.json_text import canonical, plain
from phronomy.guardrails.guardrail import (
    AllowedTools,
    FunctionGuardrail,
    Guardrail,
    GuardrailContext,
    JsonSchemaOutput,
    MaxLength,
    Pass,
    RedactPatterns,
    Refuse,
    RefusePatterns,
    Transform,
    as_guardrails,
    guardrail,
)
from phronomy.guardrails.verdict import Verdict, acheck, check
from phronomy.records.messages import Message


def context(stage: Any = "input", **changes: Any) -> GuardrailContext[Any]:
    usual: dict[str, Any] = {"run_id": "run-1", "thread_id": None, "agent": "desk", "deps": None}
    return GuardrailContext(stage=stage, **(usual | changes))


def either(guardrails: Any, value: Any, stage: Any = "input", **changes: Any) -> Verdict:
    """What both ways of asking say, or raise, which must be the same."""
    listed = as_guardrails(f"{stage}_guardrails", guardrails)
    given, about = canonical(value), context(stage, **changes)
    said = _said(lambda: asyncio.run(acheck(listed, given, about)))
    if not any(each.is_async for each in listed):
        assert _shown(_said(lambda: check(listed, given, about))) == _shown(said)
    if isinstance(said, Exception):
        raise said
    return said


def _said(ask: Callable[[], Verdict]) -> Verdict | GuardrailFailed:
    try:
        return ask()
    except GuardrailFailed as error:
        return error


def _shown(said: Verdict | GuardrailFailed) -> Any:
    return (str(said), said.guardrail, said.stage) if isinstance(said, GuardrailFailed) else said


def new_value(verdict: Verdict) -> Any:
    """What takes the place of the value; the text `unchanged` where nothing does."""
    return "unchanged" if verdict.value is None else plain(verdict.value)


def refusal(verdict: Verdict) -> tuple[str, str]:
    """The code and the message of a refusal, which must be there."""
    assert verdict.refusal is not None
    assert verdict.value is None
    return verdict.refusal.code, verdict.refusal.message


def saying(name: str, answer: Any) -> FunctionGuardrail[Any, Any]:
    """A guardrail that always says this."""
    return guardrail(name=name)(lambda value: answer)


# Making them


def test_a_function_is_a_guardrail_and_stays_a_function() -> None:
    @guardrail
    def no_cards(text: str) -> Refuse | None:
        """No card numbers."""
        return Refuse("No cards, please.") if "4111" in text else None

    assert isinstance(no_cards, Guardrail)
    assert (no_cards.name, no_cards.is_async, no_cards.retries, no_cards.retry_wait) == ("no_cards", False, 0, 0.1)
    assert no_cards.__doc__ == "No card numbers."
    assert no_cards("hello") is None
    assert no_cards.check("my 4111") == no_cards("my 4111") == Refuse("No cards, please.")
    assert repr(no_cards) == "<FunctionGuardrail 'no_cards'>"


def test_options_go_with_the_decorator() -> None:
    @guardrail(name="cards", retries=2, retry_wait=0.5)
    async def no_cards(text: str) -> None: ...

    assert (no_cards.name, no_cards.is_async, no_cards.retries, no_cards.retry_wait) == ("cards", True, 2, 0.5)


class Sync:
    def __call__(self, value: Any) -> None: ...


class Async:
    async def __call__(self, value: Any, context: Any) -> None: ...

    async def look(self, value: Any) -> None: ...


class NoCards(Guardrail):
    def check(self, value: Any) -> Any:
        return Refuse("no")


class HTTPCheck(Guardrail):
    retries = 3

    async def check(self, value: Any, context: Any) -> Any:
        return Pass()


async def slow(value: Any, extra: Any = 1, *, more: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("made", "name", "is_async"),
    [
        (Sync(), "sync", False),
        (Async(), "async", True),
        (Async().look, "look", True),
        (slow, "slow", True),
        (functools.partial(slow, more=3), "slow", True),
        (functools.partial(Async(), context=None), "async", True),
        (NoCards, "no_cards", False),
        (NoCards(), "no_cards", False),
        (HTTPCheck, "http_check", True),
        (MaxLength(5), "max_length", False),
        (MaxLength(5, name="short"), "short", False),
    ],
)
def test_what_may_stand_in_a_list_and_what_it_is_called(made: Any, name: str, is_async: bool) -> None:
    [found] = as_guardrails("input_guardrails", [made])
    assert (found.name, found.is_async) == (name, is_async)


def test_the_context_is_given_to_whoever_takes_it() -> None:
    seen: list[Any] = []

    class Looks(Guardrail):
        def check(self, value: Any, context: GuardrailContext[Any]) -> None:
            seen.append((value, context.stage, context.tool_name, context.deps))

    @guardrail
    def alone(value: Any) -> None:
        seen.append(value)

    @guardrail
    def with_default(value: Any, limit: int = 3) -> None:
        seen.append((value, limit))

    @guardrail
    async def by_name(value: Any, ctx: Any = None) -> None:
        seen.append((value, ctx.run_id, ctx.agent, ctx.path, [message.text for message in ctx.messages]))

    said = (Message(role="user", content="hello"),)
    either([Looks, alone, with_default, by_name], {"a": 1}, "tool", tool_name="refund", deps=7, messages=said)
    assert seen == [
        ({"a": 1}, "tool", "refund", 7),
        {"a": 1},
        ({"a": 1}, 3),
        ({"a": 1}, "run-1", "desk", "", ["hello"]),
    ]


def test_a_context_shows_nothing_secret() -> None:
    shown = repr(context("tool", deps="password", tool_name="refund", messages=(Message(role="user", content="4111"),)))
    assert shown == (
        "GuardrailContext(stage='tool', run_id='run-1', thread_id=None, agent='desk', path='', tool_name='refund')"
    )
    assert "4111" not in repr(Transform("4111"))
    assert "4111" not in repr(either([saying("hides", Transform("4111"))], "x"))


def generates(value: Any) -> Any:
    yield Pass()


async def generates_async(value: Any) -> Any:
    yield Pass()


class Unbuilt(Guardrail):
    def __init__(self) -> None:
        """Forgets to call the one above."""

    def check(self, value: Any) -> None: ...


class NeedsMore(Guardrail):
    def __init__(self, limit: int) -> None:
        super().__init__()

    def check(self, value: Any) -> None: ...


class Bare(Guardrail):
    """Has no check."""


class NotCallable(Guardrail):
    check = 5  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (MaxLength(5), "input_guardrails is a list of guardrails, not MaxLength: write input_guardrails="),
        ("no_cards", "input_guardrails is a list of guardrails, not str"),
        (None, "is a list of guardrails, not NoneType"),
        ([5], ": 5 is no guardrail; pass a Guardrail, or a function of what to look at"),
        ([Sync], "is no guardrail; pass a Guardrail, or a function"),
        ([int], ": the class int is no guardrail"),
        ([lambda value: None], "'<lambda>' cannot name a guardrail; give a name of 1 to 64 letters"),
        ([lambda: None], "cannot name a guardrail"),
        ([generates], "guardrail generates is a generator; return one Pass, Transform or Refuse"),
        ([generates_async], "guardrail generates_async is a generator"),
        ([Async.look], "guardrail look is a method that is bound to nothing; pass the bound one"),
        ([Unbuilt()], r"Unbuilt is not built: call super\(\).__init__\(\)"),
        ([NeedsMore], "NeedsMore needs arguments; pass an instance"),
        ([Bare], "Bare has no check method; write one, or put @guardrail on a function"),
        ([NotCallable], "guardrail not_callable: 5 is not a function"),
        ([MaxLength(5), MaxLength(6)], r"two guardrails are named 'max_length'; give one of them another, as in name="),
        ([AllowedTools([])], "'allowed_tools' does not look at inputs; it goes into tool_guardrails"),
        ([JsonSchemaOutput({})], "'json_schema_output' does not look at inputs; it goes into output_guardrails"),
    ],
)
def test_what_is_no_list_of_guardrails_is_refused_with_the_remedy(given: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        as_guardrails("input_guardrails", given)


def test_no_guardrails_are_none() -> None:
    assert as_guardrails("input_guardrails", ()) == ()
    assert either([], "hello") == Verdict()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"retries": -1}, "guardrail looks: retries is 0 or a whole number"),
        ({"retries": True}, "retries is 0 or a whole number"),
        ({"retry_wait": -0.1}, "retry_wait is a number of seconds"),
        ({"retry_wait": float("nan")}, "retry_wait is a number of seconds"),
        ({"name": "no cards"}, "'no cards' cannot name a guardrail"),
        ({"name": 5}, "5 cannot name a guardrail"),
        ({"timeout": 3}, r"a guardrail has no option timeout \(write .*\); it has name, retries, retry_wait"),
    ],
)
def test_options_are_checked(options: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):

        @guardrail(**options)
        def looks(value: Any) -> None: ...


def test_what_a_class_says_of_itself_is_checked() -> None:
    class Wrong(NoCards):
        stages = ("inputs",)  # type: ignore[assignment]

    with pytest.raises(ConfigurationError, match="stages are some of 'input', 'output' and 'tool'"):
        Wrong()


@pytest.mark.parametrize("wrong", [Sync, NoCards, NoCards(), 5])
def test_only_functions_are_decorated(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be made a guardrail: @guardrail goes on a function"):
        guardrail(wrong)


def test_three_parameters_are_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"guardrail looks must take \(value\) or \(value, context\), but it"):

        @guardrail
        def looks(a: Any, b: Any, c: Any) -> None: ...


def test_a_guardrail_is_fixed_once_it_is_built() -> None:
    built = NoCards()
    for name, value in {"name": "other", "retries": 5, "is_async": True, "check": print, "stages": ("tool",)}.items():
        with pytest.raises(ConfigurationError, match=f"guardrail no_cards: {name} is fixed once it is built"):
            setattr(built, name, value)
    built.counted = 1  # type: ignore[attr-defined]  # what is its own, it may keep
    NoCards.retries = 9
    try:
        assert built.retries == 0
    finally:
        del NoCards.retries
    assert refusal(either([built], "x")) == ("refused", "no")


# What they say


@pytest.mark.parametrize("is_async", [False, True])
def test_each_looks_at_what_the_one_before_it_left(is_async: bool) -> None:
    def louder(text: str) -> Transform:
        return Transform(text.upper())

    def twice(text: str) -> Transform:
        return Transform(text * 2)

    async def atwice(text: str) -> Transform:
        return twice(text)

    last = guardrail(name="twice")(atwice if is_async else twice)
    verdict = either([saying("looks", Pass()), louder, saying("nods", None), last], "ab")
    assert new_value(verdict) == "ABAB"
    assert verdict.passed == (
        ("looks", "passed"),
        ("louder", "transformed"),
        ("nods", "passed"),
        ("twice", "transformed"),
    )
    assert verdict.refusal is None


def test_the_first_that_refuses_is_the_last_that_is_asked() -> None:
    asked: list[str] = []

    @guardrail
    def never(value: Any) -> None:
        asked.append(value)

    refuse = Refuse("Not today.", code="closed", then="block")
    verdict = either([saying("changes", Transform({"a": 2})), saying("closed", refuse), never], {"a": 1}, "tool")
    assert verdict.passed == (("changes", "transformed"), ("closed", "refused"))
    assert verdict.value is None
    assert verdict.refusal is not None
    assert verdict.refusal.model_dump() == {
        "stage": "tool",
        "guardrail": "closed",
        "code": "closed",
        "message": "Not today.",
        "then": "block",
    }
    assert asked == []


@pytest.mark.parametrize("stage", ["input", "output"])
def test_a_refused_input_or_answer_is_the_end_whatever_was_said(stage: Any) -> None:
    for then in ("continue", "block", "block_tool", "end"):
        verdict = either([saying("closed", Refuse("no", then=then))], "x", stage)  # type: ignore[arg-type]
        assert verdict.refusal is not None
        assert (verdict.refusal.stage, verdict.refusal.then) == (stage, "end")


def test_a_value_that_is_left_as_it_was_has_not_been_changed() -> None:
    same = either([saying("same", Transform({"a": 5.0}))], {"a": 5.0}, "tool")
    assert same == Verdict(passed=(("same", "passed"),))
    back = either([saying("away", Transform("y")), saying("back", Transform("x"))], "x")
    assert back == Verdict(passed=(("away", "transformed"), ("back", "transformed")))
    assert new_value(either([saying("whole", Transform({"a": 5}))], {"a": 5.0}, "tool")) == {"a": 5}


def test_nobody_can_change_what_another_looks_at() -> None:
    seen = []

    @guardrail(retries=1, retry_wait=0)
    def scribbles(value: dict[str, Any]) -> None:
        seen.append(dict(value))
        value.clear()
        if len(seen) % 2:
            raise ValueError("once more")

    @guardrail
    def looks(value: dict[str, Any]) -> None:
        seen.append(value)
        seen.append(value)

    assert either([scribbles, looks], {"a": [1]}, "tool").value is None
    assert seen == [{"a": [1]}] * 8


def test_lone_surrogates_are_replaced() -> None:
    assert new_value(either([saying("odd", Transform("a\ud800"))], "x")) == "a\ufffd"
    assert refusal(either([saying("odd", Refuse("a\ud800"))], "x")) == ("refused", "a\ufffd")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"message": ""}, "message is a text that is not empty"),
        ({"message": None}, "message is a text"),
        ({"message": "no", "code": " "}, "code is a text"),
        ({"message": "no", "then": "retry"}, "then is 'continue', 'block', 'block_tool' or 'end'"),
    ],
)
def test_a_refusal_is_checked(wrong: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Refuse(**wrong)


# What is no answer


class Truthy:
    def __bool__(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (False, "bool"),
        (True, "bool"),
        (0, "int"),
        ("refuse", "str"),
        ([], "list"),
        (Pass, "the class Pass"),
        (Truthy(), "Truthy"),
        (ConfigurationError("no"), "ConfigurationError"),
    ],
)
def test_what_is_no_answer_lets_nothing_through(answer: Any, named: str) -> None:
    with pytest.raises(GuardrailFailed) as caught:
        either([saying("odd", answer)], "secret")
    assert str(caught.value) == (
        f"input guardrail 'odd' of 'desk' returned {named}: return Pass(), Transform(value) or Refuse(message), or None to "
        "let it pass. Nothing was let through; resume the run to have it asked again"
    )
    assert (caught.value.guardrail, caught.value.stage) == ("odd", "input")
    assert isinstance(caught.value, RunFailed)


@pytest.mark.parametrize(
    ("stage", "value", "made", "why"),
    [
        ("input", "x", {1, 2}, "returned a Transform of what is not JSON"),
        ("input", "x", float("nan"), "returned a Transform of what is not JSON"),
        ("input", "x", {"k": {4: "secret"}}, "returned a Transform of what is not JSON"),
        ("tool", {}, ["secret"], "returned a Transform of what are no arguments: give them all, in a dict"),
        ("tool", {}, "{}", "returned a Transform of what are no arguments"),
        ("tool", {}, None, "returned a Transform of what are no arguments"),
        ("output", "x", {"a": "secret"}, "returned a Transform of what is no text"),
        ("output", "x", None, "returned a Transform of what is no text"),
    ],
)
def test_what_cannot_take_the_place_of_the_value_lets_nothing_through(
    stage: Any, value: Any, made: Any, why: str
) -> None:
    with pytest.raises(GuardrailFailed, match=why) as caught:
        either([saying("odd", Transform(made))], value, stage)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_an_input_may_become_any_json() -> None:
    assert new_value(either([saying("parts", Transform([{"type": "text", "text": "x"}]))], "x")) == [
        {"type": "text", "text": "x"}
    ]
    assert new_value(either([saying("mapping", Transform({"a": (1, 2)}))], "x")) == {"a": [1, 2]}


def test_an_awaitable_from_a_sync_function_lets_nothing_through() -> None:
    @guardrail
    def forgets(value: Any) -> Any:
        return slow(value)

    with pytest.raises(
        GuardrailFailed, match="returned an awaitable from a sync function: declare it with 'async def'"
    ):
        either([forgets], "x")


def test_a_sync_call_refuses_an_async_guardrail() -> None:
    asked = []

    @guardrail
    async def looks(value: Any) -> None:
        asked.append(value)

    with pytest.raises(AsyncRequired, match="guardrail 'looks' is async, and nobody awaited it"):
        check(as_guardrails("input_guardrails", [looks]), canonical("x"), context())
    assert asked == []


# What fails


class Sleeps:
    """Stands in for the modules that sleep, and keeps how long they were to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        monkeypatch.setattr(retries, "time", SimpleNamespace(sleep=self.slept.append))
        monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=self.sleep))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    return Sleeps(monkeypatch)


def failing(times: int, *, is_async: bool, **options: Any) -> tuple[list[Any], FunctionGuardrail[Any, Any]]:
    """A guardrail that raises so many times before it refuses, and what it has been asked."""
    asked: list[Any] = []

    def shaky(value: Any) -> Refuse:
        asked.append(value)
        if len(asked) <= times:
            raise TimeoutError(f"no answer on {value}")
        return Refuse("no")

    async def ashaky(value: Any) -> Refuse:
        return shaky(value)

    return asked, guardrail(name="shaky", **options)(ashaky if is_async else shaky)


def ask_one(guardrail: Guardrail, driver: str, value: Any = "secret", stage: Any = "input") -> Verdict:
    listed, about = as_guardrails(f"{stage}_guardrails", [guardrail]), context(stage)
    if driver == "sync":
        return check(listed, canonical(value), about)
    return asyncio.run(acheck(listed, canonical(value), about))


WAYS = pytest.mark.parametrize(
    ("driver", "is_async"), [("sync", False), ("async", False), ("async", True)], ids=["sync", "thread", "async"]
)


@WAYS
def test_one_that_raises_is_asked_again(driver: str, is_async: bool, sleeps: Sleeps) -> None:
    asked, shaky = failing(2, is_async=is_async, retries=2)
    assert refusal(ask_one(shaky, driver)) == ("refused", "no")
    assert asked == ["secret"] * 3
    assert sleeps.slept == [0.1, 0.2]


@WAYS
def test_one_that_goes_on_raising_lets_nothing_through(driver: str, is_async: bool, sleeps: Sleeps) -> None:
    asked, shaky = failing(99, is_async=is_async, retries=8)
    with pytest.raises(GuardrailFailed) as caught:
        ask_one(shaky, driver, stage="output")
    assert str(caught.value) == (
        "output guardrail 'shaky' of 'desk' raised 9 times, in the end TimeoutError. Nothing was let through; resume the run "
        "to have it asked again"
    )
    assert (caught.value.guardrail, caught.value.stage) == ("shaky", "output")
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert len(asked) == 9
    assert sleeps.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


@WAYS
def test_without_retries_it_is_asked_once(driver: str, is_async: bool, sleeps: Sleeps) -> None:
    asked, shaky = failing(1, is_async=is_async)
    with pytest.raises(GuardrailFailed, match="input guardrail 'shaky' of 'desk' raised TimeoutError"):
        ask_one(shaky, driver)
    assert (len(asked), sleeps.slept) == (1, [])


def test_what_is_no_answer_is_not_asked_for_again(sleeps: Sleeps) -> None:
    asked = []

    @guardrail(retries=5)
    def odd(value: Any) -> bool:
        asked.append(value)
        return False

    with pytest.raises(GuardrailFailed, match="returned bool"):
        either([odd], "x")
    assert (asked, sleeps.slept) == (["x", "x"], [])  # once in each way


def test_retries_without_end_do_not_overflow(sleeps: Sleeps) -> None:
    asked, shaky = failing(3000, is_async=False, retries=3000, retry_wait=0)
    assert refusal(ask_one(shaky, "sync")) == ("refused", "no")
    assert set(sleeps.slept) == {0.0}
    asked, shaky = failing(3000, is_async=False, retries=3000)
    assert refusal(ask_one(shaky, "sync")) == ("refused", "no")
    assert len(asked) == 3001
    assert max(sleeps.slept) == 5.0


class Stop(BaseException):
    """Somebody wants to stop, and no guardrail can be asked again."""


@WAYS
def test_what_interrupts_goes_through_and_is_not_retried(driver: str, is_async: bool, sleeps: Sleeps) -> None:
    asked = []

    def stops(value: Any) -> None:
        asked.append(value)
        raise Stop

    async def astops(value: Any) -> None:
        stops(value)

    with pytest.raises(Stop):
        ask_one(guardrail(name="stops", retries=3)(astops if is_async else stops), driver)
    assert (asked, sleeps.slept) == (["secret"], [])


def test_a_cancelled_task_stops_asking() -> None:
    asked = []

    @guardrail(retries=3, retry_wait=0)
    async def hangs(value: Any) -> None:
        asked.append(value)
        reached.set()
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(acheck(as_guardrails("input_guardrails", [hangs]), canonical("x"), context()))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    reached = asyncio.Event()
    asyncio.run(main())
    assert asked == ["x"]


def test_a_sync_guardrail_does_not_hold_up_the_event_loop() -> None:
    threads = []

    @guardrail
    def looks(value: Any) -> None:
        threads.append(threading.get_ident())

    either([looks], "x")
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [False, True]  # the async way first


@pytest.mark.parametrize("error", [RuntimeError("4111 secret"), KeyError("4111 secret"), RecursionError()])
def test_what_a_guardrail_raised_is_named_and_not_quoted(error: Exception) -> None:
    @guardrail
    def raises(value: Any) -> None:
        raise error

    with pytest.raises(GuardrailFailed) as caught:
        either([raises], {"card": "4111"}, "tool", tool_name="pay")
    assert str(caught.value).startswith(f"tool guardrail 'raises' of 'desk' raised {type(error).__name__}. ")
    assert "4111" not in str(caught.value)


ANSWERS = st.one_of(
    st.none(),
    st.builds(Pass),
    st.builds(Transform, st.text(max_size=5)),
    st.builds(Refuse, st.sampled_from(["no", "never"])),
)


@given(st.lists(ANSWERS, max_size=6), st.text(max_size=5))
def test_a_list_of_guardrails_is_a_fold(answers: list[Any], value: str) -> None:
    verdict = either([saying(f"g{number}", answer) for number, answer in enumerate(answers)], value)
    first = next((number for number, answer in enumerate(answers) if isinstance(answer, Refuse)), None)
    said = answers if first is None else answers[: first + 1]
    changes = [answer.value for answer in said if isinstance(answer, Transform)]
    assert [name for name, _ in verdict.passed] == [f"g{number}" for number in range(len(said))]
    if first is None:
        assert verdict.refusal is None
        assert (value if verdict.value is None else plain(verdict.value)) == ([value, *changes][-1])
    else:
        assert refusal(verdict) == ("refused", answers[first].message)
        assert verdict.passed[-1] == (f"g{first}", "refused")


# Maximum length


def test_what_is_too_long_is_refused() -> None:
    assert either([MaxLength(5)], "hellö").refusal is None
    assert refusal(either([MaxLength(5)], "hello!")) == ("too_long", "This is longer than 5 characters.")
    assert refusal(either([MaxLength(5, message="Too much.")], "hello!", "output")) == ("too_long", "Too much.")


def test_of_what_is_no_text_the_json_is_measured() -> None:
    value = {"a": [1, 2], "é": None}
    size = len('{"a":[1,2],"é":null}')
    assert either([MaxLength(size)], value, "tool").refusal is None
    verdict = either([MaxLength(size - 1, then="end")], value, "tool")
    assert refusal(verdict) == ("too_long", f"This is longer than {size - 1} characters.")
    assert verdict.refusal is not None
    assert verdict.refusal.then == "end"


@pytest.mark.parametrize("characters", [0, -1, True, 5.0, "5", None])
def test_a_maximum_length_is_a_whole_number(characters: Any) -> None:
    with pytest.raises(ConfigurationError, match="MaxLength: characters is a whole number above 0"):
        MaxLength(characters)


def test_a_maximum_length_spares_the_patterns_behind_it() -> None:
    pathological = RefusePatterns([r"(a|a)*$"])
    assert refusal(either([MaxLength(100), pathological], "a" * 5000 + "b"))[0] == "too_long"


# Redaction

CARD = r"\b\d{4}(?: ?\d{4}){3}\b"
MAIL = r"[\w.]+@[\w.]+"


def test_what_is_found_is_replaced() -> None:
    redact = RedactPatterns([CARD, re.compile("SECRET", re.IGNORECASE)])
    assert new_value(either([redact], "card 4111 1111 1111 1111, the secret")) == "card [redacted], the [redacted]"
    assert either([redact], "nothing of it") == Verdict(passed=(("redact_patterns", "passed"),))
    assert new_value(either([RedactPatterns(["b"], r"\1\g<0>")], "abc", "output")) == r"a\1\g<0>c"


def test_patterns_look_at_the_text_as_it_was() -> None:
    assert new_value(either([RedactPatterns(["a+", "red"])], "aaa")) == "[redacted]"
    assert new_value(either([RedactPatterns(["abc", "bcd"], "_")], "xabcdx")) == "x_x"
    assert new_value(either([RedactPatterns(["bcd", "abc", "b"], "_")], "xabcdx")) == "x_x"
    assert new_value(either([RedactPatterns(["abcd", "b"], "_")], "xabcdx")) == "x_x"
    assert new_value(either([RedactPatterns(["ab", "cd"], "_")], "abcd")) == "__"


def test_what_another_has_replaced_is_not_replaced_again() -> None:
    rails = [
        RedactPatterns([r"\d{4}"]),
        RedactPatterns(["red", "act"], name="words"),
        RedactPatterns([r"\w+"], name="all"),
    ]
    assert new_value(either(rails[:2], "1234 is a red card")) == "[redacted] is a [redacted] card"
    assert new_value(either(rails[1:2], "[redacted] 1234 [redacted]red")) == "[redacted] 1234 [redacted][redacted]"
    assert new_value(either(rails, "1234 is")) == "[redacted] [redacted]"
    assert either(rails[1:], "[redacted]").value is None
    assert either(rails[1:], canonical({"[redacted]": "[redacted]"}), "tool").refusal is None


def test_every_text_and_number_inside_is_looked_at() -> None:
    value = {
        "to": "ada@example.org",
        "cards": ["4111 1111 1111 1111", 4111111111111111, 7],
        "more": {"note": "x", "ok": True, "none": None, "ratio": 0.5},
    }
    assert new_value(either([RedactPatterns([CARD, MAIL])], value, "tool")) == {
        "to": "[redacted]",
        "cards": ["[redacted]", "[redacted]", 7],
        "more": {"note": "x", "ok": True, "none": None, "ratio": 0.5},
    }
    assert new_value(either([RedactPatterns(["True|None|true|null", "5"], "_")], {"a": [True, None, 0.5]})) == {
        "a": [True, None, "0._"]
    }


def test_what_stands_in_a_key_is_refused() -> None:
    verdict = either([RedactPatterns([MAIL], then="block")], {"by": {"ada@example.org": 1}}, "tool")
    assert refusal(verdict) == ("in_a_key", "A key of an object holds what must not be in it.")
    assert verdict.refusal is not None
    assert verdict.refusal.then == "block"


PARTS = [
    {"type": "text", "text": "text of ada@example.org"},
    {"type": "image_url", "image_url": {"url": "https://x/?by=ada@example.org"}},
]


def test_the_keys_and_types_of_content_parts_are_left_alone() -> None:
    assert new_value(either([RedactPatterns(["type|text|image", MAIL], "_")], PARTS)) == [
        {"type": "text", "text": "_ of _"},
        {"type": "image_url", "image_url": {"url": "https://x/?by=_"}},
    ]
    assert either([RefusePatterns(["type|image_url$"])], PARTS[:1]).refusal is None
    assert refusal(either([RefusePatterns(["ada"])], PARTS[1:]))[0] == "refused"
    assert refusal(either([RefusePatterns(["type"])], PARTS, "output"))[0] == "refused"


@pytest.mark.parametrize("shipped", [RedactPatterns, RefusePatterns])
@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        ("abc", "patterns is a list of one regular expression or more"),
        ([], "patterns is a list of one regular expression or more"),
        (None, "patterns is a list"),
        ([b"abc"], "a pattern is a text, or one that was compiled from a text"),
        ([re.compile(b"abc")], "a pattern is a text"),
        (["(open"], "a pattern cannot be compiled: missing"),
    ],
)
def test_patterns_are_compiled_when_it_is_made(shipped: Any, patterns: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{shipped.__name__}: {why}"):
        shipped(patterns)


def test_nothing_can_be_hidden_by_a_pattern_of_nothing() -> None:
    with pytest.raises(ConfigurationError, match="matches the empty text"):
        RedactPatterns(["x*"])
    with pytest.raises(ConfigurationError, match="with_ is a text that is not empty"):
        RedactPatterns(["x"], "")
    assert refusal(either([RefusePatterns([r"^\s*$"], "Say something.", code="empty")], " ")) == (
        "empty",
        "Say something.",
    )
    assert either([RedactPatterns([r"(?<=a)(?=b)|c"], "_")], "abab").value is None  # a match of no characters


SOME = [["a+b"], ["ab", "ba"], [r"\d{2}", "x."], ["a", "aa", "b.b"]]
LETTERS = st.text("abx12 ", max_size=12)
VALUES = st.recursive(
    st.one_of(LETTERS, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(LETTERS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.sampled_from(SOME), LETTERS)
def test_what_no_pattern_finds_is_kept_and_nothing_else_is(patterns: list[str], text: str) -> None:
    found = {place for each in patterns for match in re.finditer(each, text) for place in range(*match.span())}
    verdict = check([RedactPatterns(patterns, "#")], canonical(text), context())
    kept = "".join(letter for place, letter in enumerate(text) if place not in found)
    made = text if verdict.value is None else plain(verdict.value)
    assert made.replace("#", "") == kept
    assert ("#" in made) == bool(found)


@given(st.sampled_from(SOME), VALUES)
def test_what_is_redacted_or_refused_is_what_the_other_one_refuses(patterns: list[str], value: Any) -> None:
    args = canonical({"value": value})
    redacted = check([RedactPatterns(patterns, "#")], args, context("tool"))
    refused = check([RefusePatterns(patterns)], args, context("tool"))
    assert (redacted.value is not None or redacted.refusal is not None) == (refused.refusal is not None)


# Refusal by patterns


def test_what_a_pattern_finds_something_in_is_refused() -> None:
    refuse = RefusePatterns(["(?i)drop table", CARD], "No such queries.", code="query", then="block")
    assert either([refuse], "please drop the table").refusal is None
    for value in ("Drop Table orders", {"q": ["x", {"y": "DROP TABLE x"}]}, {"n": 4111111111111111}, {"drop table": 1}):
        assert refusal(either([refuse], value, "input")) == ("query", "No such queries.")
    assert refusal(either([RefusePatterns(["a"])], "a", "output")) == (
        "refused",
        "This holds what is not allowed here.",
    )
    assert either([RefusePatterns(["True|true|None|null"])], {"a": [True, None]}, "tool").refusal is None


# Allowed tools


def test_only_the_tools_that_are_listed_may_be_called() -> None:
    allowed = AllowedTools(["look_up", "search"], then="block")
    assert either([allowed], {}, "tool", tool_name="search").refusal is None
    verdict = either([allowed], {}, "tool", tool_name="refund")
    assert refusal(verdict) == ("tool_not_allowed", "This tool is not allowed here.")
    assert verdict.refusal is not None
    assert verdict.refusal.then == "block"
    assert refusal(either([AllowedTools(())], {}, "tool", tool_name="look_up"))[0] == "tool_not_allowed"
    assert refusal(either([AllowedTools(["x"])], {}, "tool", tool_name=None))[0] == "tool_not_allowed"


@pytest.mark.parametrize("names", ["look_up", None, [5], [""]])
def test_the_names_of_tools_are_a_list(names: Any) -> None:
    with pytest.raises(ConfigurationError, match="AllowedTools: names are the names of tools, in a list"):
        AllowedTools(names)


# The JSON Schema of an answer

ORDER = {
    "type": "object",
    "properties": {"order": {"$ref": "#/$defs/id"}, "when": {"type": "string", "format": "date"}},
    "required": ["order"],
    "additionalProperties": False,
    "$defs": {"id": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"order": 1042}', None),
        (' {"order": 1042, "when": "2026-01-31"}\n', None),
        ("Order 1042.", "The answer is not as it must be: it is not JSON alone."),
        ('```json\n{"order": 1042}\n```', "The answer is not as it must be: it is not JSON alone."),
        ('{"order": 1, "order": 2}', "The answer is not as it must be: it is not JSON alone."),
        ('{"order": NaN}', "The answer is not as it must be: it is not JSON alone."),
        ("", "The answer is not as it must be: it is not JSON alone."),
        ('{"order": "secret"}', "The answer is not as it must be: order does not fit 'type'."),
        ('{"order": 1, "when": "secret"}', "The answer is not as it must be: when does not fit 'format'."),
        ('{"order": 1, "secret": 2}', "The answer is not as it must be: it does not fit 'additionalProperties'."),
        ("[]", "The answer is not as it must be: it does not fit 'type'."),
    ],
)
def test_an_answer_is_json_that_is_valid_by_the_schema(answer: str, message: str | None) -> None:
    verdict = either([JsonSchemaOutput(ORDER)], answer, "output")
    if message is None:
        assert verdict == Verdict(passed=(("json_schema_output", "passed"),))
    else:
        assert refusal(verdict) == ("not_by_schema", message)


def test_a_message_of_ones_own_is_all_that_is_said() -> None:
    mine = JsonSchemaOutput(ORDER, message="I could not find it.", name="order")
    for answer in ("no", '{"order": "x"}'):
        assert refusal(either([mine], answer, "output")) == ("not_by_schema", "I could not find it.")


def test_an_answer_that_is_a_value_already_is_taken_as_one() -> None:
    assert JsonSchemaOutput(ORDER).check({"order": 5}) == Pass()


def test_the_schema_is_checked_and_cannot_change_afterwards() -> None:
    schema = {"type": "object"}
    mine = JsonSchemaOutput(schema)
    schema["type"] = "string"
    assert either([mine], "{}", "output").refusal is None
    with pytest.raises(ConfigurationError, match="the schema is none: type does not fit 'anyOf'"):
        JsonSchemaOutput({"type": "objekt"})
    for unknown in ([], "http://[", "http://example.com/none"):
        with pytest.raises(ConfigurationError, match="the schema is none"):
            JsonSchemaOutput({"$schema": unknown, "type": "objekt"})
    with pytest.raises(ConfigurationError, match="the schema is a mapping, not str"):
        JsonSchemaOutput("{}")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the schema is not JSON"):
        JsonSchemaOutput({"const": {1, 2}})


@pytest.mark.filterwarnings("ignore")  # the library warns of what it fetches, and an error would hide that it does
def test_nothing_is_fetched_and_a_reference_that_leads_away_lets_nothing_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "schema.json"
    elsewhere.write_text('{"type": "integer"}')
    for reference in (elsewhere.as_uri(), "#/$defs/nothing"):
        leads_away = JsonSchemaOutput({"properties": {"a": {"$ref": reference}}})
        assert either([leads_away], "{}", "output").refusal is None
        with pytest.raises(GuardrailFailed, match="output guardrail 'json_schema_output' of 'desk' raised _Wrapped"):
            either([leads_away], '{"a": 1}', "output")


def test_the_schema_library_is_loaded_where_a_schema_is() -> None:
    script = (
        "import sys; from phronomy.guardrails.guardrail import JsonSchemaOutput, MaxLength; MaxLength(5);"
        "print('jsonschema' in sys.modules); JsonSchemaOutput({}); print('jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
