"""Tools: what can be one, how the model's arguments are read, when a human is asked, and what the model is told."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import inspect
import json
import logging
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, computed_field

from phronomy.concurrency.superfluous import Signal
from phronomy.errors import AsyncRequired, ConfigurationError, ToolDefinitionError
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import CallResult
from phronomy.records.decisions import Reject, ToolIdentity
from phronomy.tools.context import InvalidArguments, ToolContext
from phronomy.tools.tool import FunctionTool, Tool, ToolCancelled, as_tool, tool


def context(**changes: Any) -> ToolContext[Any]:
    usual: dict[str, Any] = {"run_id": "run-1", "thread_id": "chat-7", "call_id": "call-1", "pending_id": None}
    usual |= {"tool_name": "refund", "idempotency_key": "key-1", "attempt": 1, "deps": None}
    return ToolContext(**(usual | changes))


def taking(*hints: Any, **options: Any) -> FunctionTool[Any, Any]:
    """A tool with one parameter for each hint: a, b, c, ..."""

    def body(**values: Any) -> Any:
        return values

    names = "abcdefgh"[: len(hints)]
    kind = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(name, kind, annotation=hint) for name, hint in zip(names, hints, strict=True)]
    body.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return FunctionTool(body, **options)


def refused(definition: Callable[[], Any]) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        definition()
    return str(caught.value)


@tool(requires_approval=True)
def refund(order_id: int, amount: float, note: str = "none") -> str:
    """Refund an order, in euros.

    Money moves at once.

    Args:
        order_id: The number on the invoice.
        amount: How much to pay back.
        currency: Told, but not taken.
    """
    return f"refunded {amount} on {order_id} ({note})"


# What the model is told


def test_a_function_is_described_by_its_signature_hints_and_docstring() -> None:
    assert refund.definition() == {
        "type": "function",
        "function": {
            "name": "refund",
            "description": "Refund an order, in euros.\n\nMoney moves at once.",
            "parameters": {
                "type": "object",
                "properties": {
                    "order_id": {"type": "integer", "description": "The number on the invoice."},
                    "amount": {"type": "number", "description": "How much to pay back."},
                    "note": {"type": "string", "default": "none"},
                },
                "required": ["order_id", "amount"],
                "additionalProperties": False,
            },
        },
    }
    assert (refund.gate, refund.is_async, refund.predicate_is_async) == ("always", False, False)
    assert repr(refund) == "<FunctionTool 'refund', approval: always>"


def test_a_decorated_function_can_still_be_called() -> None:
    assert refund(1, 2.5) == refund.execute(1, 2.5) == "refunded 2.5 on 1 (none)"
    assert refund.__name__ == "refund"
    assert list(inspect.signature(refund).parameters) == ["order_id", "amount", "note"]


def test_the_schema_handed_out_is_a_copy() -> None:
    refund.parameters["properties"].clear()
    assert list(refund.parameters["properties"]) == ["order_id", "amount", "note"]


def test_a_class_is_a_tool_with_its_name_in_snake_case() -> None:
    class WipeHTTPCache(Tool):
        """Wipe the cache."""

        requires_approval = True

        async def execute(self, path: Path, ctx: ToolContext[str] | None = None) -> str:
            """Do it.

            :param path: Which one.
            """
            assert ctx is not None
            return f"{ctx.deps} wiped {path}"

    wipe = as_tool(WipeHTTPCache)
    assert (wipe.name, wipe.description, wipe.gate, wipe.is_async) == (
        "wipe_http_cache",
        "Wipe the cache.",
        "always",
        True,
    )
    assert wipe.parameters["properties"] == {"path": {"type": "string", "format": "path", "description": "Which one."}}
    values = wipe.bind(wipe.read('{"path": "a/b"}'))
    assert asyncio.run(wipe.acall(values, context(deps="Ada"))) == "Ada wiped a/b"


def test_a_class_without_a_docstring_is_described_by_execute_and_one_without_any_by_nothing() -> None:
    class Wipe(Tool):
        name = "wipe-2"

        def execute(self) -> str:
            """Wipe all."""
            return "wiped"

    class Bare(Tool):
        def execute(self) -> None: ...

    assert (Wipe().name, Wipe().description, Wipe().call({}, context())) == ("wipe-2", "Wipe all.", "wiped")
    assert (Bare().description, Bare().parameters["properties"]) == ("", {})


def test_titles_go_but_a_property_called_title_stays() -> None:
    class Book(BaseModel):
        title: str
        default: int

    schema = taking(Book).parameters
    assert schema["$defs"]["Book"] == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "default": {"type": "integer"}},
        "required": ["title", "default"],
    }


def test_a_description_in_the_hint_stands_before_that_of_the_docstring() -> None:
    @tool(name="pay", description="Pay somebody.")
    def transfer(amount: Annotated[int, Field(description="In cents.", ge=1, alias="sum", exclude=True)]) -> None:
        """Transfer.

        Args:
            amount: Ignored.
        """

    assert (transfer.name, transfer.description) == ("pay", "Pay somebody.")
    assert transfer.parameters["properties"] == {
        "amount": {"type": "integer", "minimum": 1, "description": "In cents."}
    }
    assert transfer.read('{"amount": 5}') == '{"amount":5}'


def test_the_identity_follows_the_schema_and_not_the_order_of_its_keys() -> None:
    def one(a: int = 1, b: str = "") -> None: ...
    def two(b: str = "", a: int = 1) -> None: ...
    def three(a: int = 1, b: int = 1) -> None: ...

    first, second, third = (FunctionTool(each, name="same") for each in (one, two, three))
    assert first.schema_hash == second.schema_hash != third.schema_hash
    assert re.fullmatch("[0-9a-f]{64}", first.schema_hash)
    assert first.identity("billing") == ToolIdentity(
        path="billing", source="local", name="same", schema_hash=first.schema_hash, gate="never"
    )


# What cannot be a tool


def test_what_no_tool_can_be_made_of_is_refused_with_the_remedy() -> None:
    class NoBody(Tool):
        pass

    class Forgetful(Tool):
        def __init__(self) -> None:
            self.client = "client"

        def execute(self) -> None: ...

    class Demanding(Tool):
        def __init__(self, client: str) -> None:
            super().__init__()

        def execute(self) -> None: ...

    class Computed(Forgetful):
        name = property(lambda self: "computed")  # type: ignore[assignment]
        __init__ = Tool.__init__

    assert "write one, or put @tool on a function" in refused(lambda: as_tool(NoBody))
    with pytest.raises(NotImplementedError):
        Tool.execute(refund)
    assert "call super().__init__()" in refused(lambda: as_tool(Forgetful()))
    assert "pass an instance" in refused(lambda: as_tool(Demanding))
    assert as_tool(Demanding("c")).name == "demanding"
    assert "name is a property" in refused(Computed)
    assert "pass a function" in refused(lambda: as_tool("refund"))  # type: ignore[arg-type]
    assert "wrap it in one" in refused(lambda: tool(functools.partial(print)))
    assert "has no option colour" in refused(lambda: tool(colour="red")(refund.function))  # type: ignore[call-overload]
    assert as_tool(refund) is refund


def test_a_bound_method_is_a_tool() -> None:
    class Desk:
        till = 5

        def look(self, scale: int) -> int:
            return self.till * scale

    look = as_tool(Desk().look)
    assert look.call(look.bind('{"scale":2}'), context()) == 10
    assert "pass the bound one" in refused(lambda: as_tool(Desk.look))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"name": "re fund"}, "1 to 64 letters"),
        ({"name": "x" * 65}, "1 to 64 letters"),
        ({"name": 5}, "1 to 64 letters"),
        ({"description": 5}, "a text"),
        ({"source": ""}, "a text that is not empty"),
        ({"requires_approval": 1}, "exactly True, exactly False, a function"),
        ({"requires_approval": "false"}, "exactly True, exactly False, a function"),
        ({"requires_approval": None}, "exactly True, exactly False, a function"),
        ({"requires_approval": lambda: True}, "must take (args) or (args, context)"),
        ({"requires_approval": lambda a, b, c: True}, "must take (args) or (args, context)"),
        ({"requires_approval": lambda a, *, b: True}, "must take (args) or (args, context)"),
        ({"requires_approval": dict.fromkeys}, None),
        ({"requires_approval": type}, "its signature cannot be read"),
        ({"idempotent": 1}, "True or False"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": True}, "above 0"),
        ({"timeout": math.inf}, "above 0"),
        ({"max_result_size": 0}, "above 0"),
        ({"retries": -1}, "whole number"),
        ({"retries": True}, "whole number"),
        ({"retries": 2}, "retries need idempotent=True, or retry_on="),
        ({"retries": 2, "idempotent": True}, None),
        ({"retries": 2, "retry_on": [OSError]}, None),
        ({"retry_on": OSError}, "a tuple of exception classes"),
        ({"retry_on": (KeyboardInterrupt,)}, "a tuple of exception classes"),
        ({"retry_wait": -0.1}, "0 or more"),
        ({"on_failure": "ask"}, "'model', 'human' or 'stop'"),
        ({"fallback": len}, "a tuple of tools"),
        ({"fallback": [5]}, "5 is not a tool"),
        ({"redact": "a"}, "a set of parameter names"),
        ({"redact": {"b"}}, "redact names 'b', but the parameters are: a"),
    ],
)
def test_options_are_checked_when_the_tool_is_built(options: dict[str, Any], remedy: str | None) -> None:
    if remedy is None:
        assert taking(int, **({"name": "ok"} | options)).name == "ok"
    else:
        assert remedy in refused(lambda: taking(int, **({"name": "ok"} | options)))


def test_options_are_fixed_once_the_tool_is_built() -> None:
    def other(a: int) -> int:
        return a

    class Pay(Tool):
        requires_approval = True

        def execute(self, a: int) -> None: ...

    built = taking(int, fallback=[other, Pay], redact=["a"], retry_on=[OSError], name="ok")
    assert ([each.name for each in built.fallback], built.redact, built.retry_on) == (
        ["other", "pay"],
        frozenset({"a"}),
        (OSError,),
    )
    with pytest.raises(ConfigurationError, match="requires_approval is fixed"):
        built.requires_approval = True
    assert built.gate == "never"

    pay = Pay()
    Pay.requires_approval = False
    Pay.timeout = 5
    assert (pay.gate, pay.timeout, Pay().gate, Pay().timeout) == ("always", None, "never", 5)


# What a model may get wrong


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"order_id": 1, "amo', "not JSON: Unterminated string starting at at character 16"),
        ("order_id=1", "not JSON: Expecting value at character 0"),
        ("[1]", "they must be a JSON object"),
        ("null", "they must be a JSON object"),
        ("{}", "order_id: Field required; amount: Field required"),
        ('{"order_id":1,"amount":2,"currency":"EUR"}', "currency: Extra inputs are not permitted"),
        ('{"order_id":"one","amount":2}', "order_id: Input should be a valid integer, unable to parse"),
        ('{"order_id":1,"order_id":2,"amount":2}', "the key 'order_id' stands twice"),
        ('{"order_id":1,"amount":NaN}', "NaN is not JSON"),
        ('{"order_id":1,"amount":1e999}', "out of range"),
        ('{"order_id":1,"amount":"inf"}', "amount: Input should be a finite number"),
        ('{"order_id":1,"amount":2,"__class__":"x"}', "keys that begin and end with two underscores"),
        ('{"order_id":1,"amount":{"x":[{"__proto__":1}]}}', "keys that begin and end with two underscores"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "nested deeper than 64"),
    ],
)
def test_wrong_arguments_are_explained_to_the_model(arguments: str, why: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        refund.read(arguments)
    assert str(caught.value).startswith("The arguments of refund are not valid: ")
    assert why in str(caught.value)
    assert caught.value.__cause__ is None


def test_lone_surrogates_are_replaced_before_a_human_sees_them() -> None:
    assert (
        refund.read('{"order_id":1,"amount":1,"note":"a\\ud800b"}') == '{"order_id":1,"amount":1.0,"note":"a\ufffdb"}'
    )


def test_values_of_redacted_parameters_show_in_no_message() -> None:
    def strict(value: dict[str, str]) -> dict[str, str]:
        raise ValueError(f"no such login: {value}")

    hint = Annotated[dict[str, Literal["x"]], AfterValidator(strict)]
    built = taking(hint, int, redact={"a"})
    told = []
    for value in ('{"hunter2":"hunter2"}', '{"hunter2":"x"}', '"hunter2"', "hunter2", '{"hunter2":1,"hunter2":2}'):
        with pytest.raises(InvalidArguments) as caught:
            built.read(f'{{"a":{value},"b":"two"}}')
        told.append(str(caught.value).removeprefix("The arguments of body are not valid: "))
    number = "b: Input should be a valid integer, unable to parse string as an integer"
    assert told == [
        f"a: not valid (literal_error); {number}",
        f"a: not valid (value_error); {number}",
        f"a: not valid (dict_type); {number}",
        "they are not strict JSON",
        "they are not strict JSON",
    ]


# When a human is asked


def test_a_gate_that_is_no_predicate_answers_for_every_call() -> None:
    assert refund.ask_gate({"order_id": 1, "amount": 2.0}, context()) is True
    assert asyncio.run(taking(int).aask_gate({"a": 1}, context())) is False


def test_a_predicate_sees_fresh_values_and_the_context_if_it_asks_for_it() -> None:
    seen: list[Any] = []

    def large(args: Mapping[str, Any]) -> bool:
        args["a"].append(99)
        seen.append(dict(args))
        return args["a"][0] > 10

    async def stranger(args: Mapping[str, Any], context: ToolContext[str]) -> bool | Reject:
        return Reject(reason="not here") if context.deps == "guest" else args["a"] == [1]

    sync, slow = taking(list[int], requires_approval=large), taking(list[int], requires_approval=stranger)
    assert (sync.gate, sync.predicate_is_async, slow.predicate_is_async) == ("predicate", False, True)
    values = sync.bind('{"a":[11]}')
    assert sync.ask_gate(values, context()) is True
    assert (seen, values) == ([{"a": [11, 99]}], {"a": [11]})
    assert asyncio.run(sync.aask_gate({"a": [1]}, context())) is False

    assert asyncio.run(slow.aask_gate({"a": [2]}, context(deps="guest"))) == Reject(reason="not here")
    assert asyncio.run(slow.aask_gate({"a": [1]}, context(deps="clerk"))) is True
    with pytest.raises(AsyncRequired, match="the approval predicate of tool body is async"):
        slow.ask_gate({"a": [1]}, context())


def test_in_a_class_body_a_predicate_may_be_a_method_or_a_plain_function() -> None:
    class Limited(Tool):
        limit = 10

        def execute(self, a: int) -> None: ...

    class Method(Limited):
        def requires_approval(self, args: Mapping[str, Any]) -> bool:  # type: ignore[override]
            return bool(args["a"] > self.limit)

    class Plain(Limited):
        requires_approval = lambda args: args["a"] > 10  # noqa: E731

    class Static(Limited):
        requires_approval = staticmethod(lambda args: args["a"] > 10)

    for built in (Method(), Plain(), Static()):
        assert built.gate == "predicate"
        assert [built.ask_gate({"a": a}, context()) for a in (10, 11)] == [False, True]


@pytest.mark.parametrize("answer", [None, 0, 1, "false", "", [], Reject, {"approved": False}, NotImplemented])
def test_only_true_false_and_reject_are_answers_and_all_else_asks(answer: Any, caplog: Any) -> None:
    async def slow(args: Any) -> Any:
        return answer

    for built in (taking(str, requires_approval=lambda args: answer), taking(str, requires_approval=slow)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="phronomy"):
            assert asyncio.run(built.aask_gate({"a": "hunter2"}, context())) is True
        kind = type(answer).__name__
        assert caplog.messages == [f"the approval predicate of tool body answered with {kind}, so a human is asked"]


def test_a_predicate_that_raises_asks_and_its_words_are_not_logged(caplog: Any) -> None:
    def broken(args: Mapping[str, Any]) -> bool:
        raise ValueError(args["a"])

    async def slow(args: Mapping[str, Any]) -> bool:
        raise ValueError(args["a"])

    async def awaited(args: Mapping[str, Any]) -> bool:
        return False

    def forgot_to_await(args: Mapping[str, Any]) -> Any:
        return awaited(args)

    for predicate in (broken, slow, forgot_to_await):
        built = taking(str, requires_approval=predicate)
        assert asyncio.run(built.aask_gate({"a": "hunter2"}, context())) is True
    assert "hunter2" not in caplog.text
    assert [message.split(" body ")[1].split(",")[0] for message in caplog.messages] == [
        "raised ValueError",
        "raised ValueError",
        "answered with coroutine",
    ]


def test_an_interrupt_in_a_predicate_is_not_swallowed() -> None:
    def interrupted(args: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taking(int, requires_approval=interrupted).ask_gate({"a": 1}, context())


# Running it


def test_the_context_is_handed_in_and_not_shown_to_the_model() -> None:
    @tool
    def pay(cents: int, where: Annotated[ToolContext[dict[str, str]], "injected"]) -> str:
        where.raise_if_cancelled()
        return f"{where.idempotency_key} {where.deps['till']} {cents} {where.cancelled}"

    stop = Signal()
    here = context(deps={"till": "open", "password": "hunter2"}, tool_name="pay", _cancel=stop)
    assert list(pay.parameters["properties"]) == ["cents"]
    assert pay.call(pay.bind('{"cents":5}'), here) == "key-1 open 5 False"
    assert "hunter2" not in repr(here)
    assert "_cancel" not in repr(here)
    with pytest.raises(dataclasses.FrozenInstanceError):
        here.attempt = 2  # type: ignore[misc]

    stop.set()
    assert here.cancelled
    with pytest.raises(ToolCancelled, match="the call of pay was cancelled"):
        pay.call({"cents": 5}, here)


def test_sync_and_async_bodies_are_not_mixed_up() -> None:
    async def slow(a: int) -> int:
        return a

    @tool
    def forgot(a: int) -> Any:
        return slow(a)

    built = as_tool(slow)
    assert (built.is_async, asyncio.run(built.acall({"a": 1}, context()))) == (True, 1)
    with pytest.raises(AsyncRequired, match="tool slow is async"):
        built.call({"a": 1}, context())
    with pytest.raises(ConfigurationError, match="tool forgot is sync"):
        asyncio.run(forgot.acall({"a": 1}, context()))
    with pytest.raises(TypeError, match="declare it with 'async def'"):
        forgot.call({"a": 1}, context())


# What comes back


class Colour(enum.Enum):
    RED = "red"


class Word(str, enum.Enum):  # noqa: UP042 - the older way, whose str() is not its value
    YES = "yes"


@dataclasses.dataclass
class Span:
    start: date


class Shelf(BaseModel):
    books: list[str]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.books)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (Word.YES, "yes"),
        ("a\ud800b", "a\ufffdb"),
        (None, "null"),
        (True, "true"),
        (5.0, "5.0"),
        ({"é": [1, "\ud800"]}, '{"é":[1,"\ufffd"]}'),
        ((1, Colour.RED, Decimal("1.50")), '[1,"red","1.50"]'),
        ({1: date(2024, 2, 29)}, '{"1":"2024-02-29"}'),
        (Span(date(2024, 2, 29)), '{"start":"2024-02-29"}'),
        (Shelf(books=["x"]), '{"books":["x"],"size":1}'),
    ],
)
def test_a_result_is_told_as_text(value: Any, content: str) -> None:
    assert refund.render(value) == CallResult(kind="completed", content=content)


def test_a_result_that_is_no_json_says_that_the_tool_ran() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (object(), math.nan, [math.inf], b"\xff", loop, {"x": threading.Lock()}):
        result = refund.render(value)
        assert result.kind == "failed"
        assert result.content.startswith(
            f"The tool ran, but its result of type {type(value).__name__} cannot be turned into JSON ("
        )
        assert result.content.endswith(". Its effect may have happened.")


def test_a_huge_result_is_cut_and_says_by_how_much() -> None:
    small = taking(int, max_result_size=5)
    assert small.render("12345").content == "12345"
    assert small.render("1234567").content == "12345\n[2 more characters were left out]"
    assert small.render([1, 2, 3, 4]).content == "[1,2,\n[4 more characters were left out]"


def test_redacted_values_are_hidden_from_whoever_need_not_see_them() -> None:
    built = taking(str, list[str], date, int, redact={"a", "b", "c"})
    values = {"a": "hunter\n2", "b": ["s3cret", "t0ken"], "c": date(2024, 2, 29), "d": 7}
    assert built.redacted(values) == {"a": "[redacted]", "b": "[redacted]", "c": "[redacted]", "d": 7}
    assert values["d"] == 7
    assert values["a"] == "hunter\n2"

    a, b, c = values["a"], values["b"], values["c"]
    said = built.describe_error(ValueError(f"no {a} {a!r} {b} {json.dumps(b)} t0ken {c} {c!r} 7"), values)
    hidden = "[redacted]"
    assert said == f'ValueError: no {hidden} {hidden} {hidden} ["{hidden}", "{hidden}"] {hidden} {hidden} {hidden} 7'
    assert built.describe_error(KeyError("t0ken"), {"b": ["t0ken"], "a": object()}) == "KeyError: '[redacted]'"
    assert taking(dict[str, str], redact={"a"}).describe_error(OSError("k v"), {"a": {"k": "v"}}) == (
        "OSError: [redacted] [redacted]"
    )


def test_an_error_is_told_by_its_kind_and_words() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert refund.describe_error(ValueError("bad \ud800"), {}) == "ValueError: bad \ufffd"
    assert refund.describe_error(TimeoutError(), {}) == "TimeoutError"
    assert refund.describe_error(Mute(), {}) == "Mute"
    assert taking(int, max_result_size=12).describe_error(OSError("123"), {}) == "OSError: 123"
    assert taking(int, max_result_size=12).describe_error(OSError("1234"), {}).startswith("OSError: 123\n[1 more")


def test_importing_tools_loads_no_docstring_parser() -> None:
    command = [sys.executable, "-c", "import sys, phronomy.tools.tool; print('docstring_parser' in sys.modules)"]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "False\n"


def test_tools_of_plain_types_share_a_model_where_all_of_it_is_the_same() -> None:
    def first(size: int | str, kind: Literal["a", "b"] = "a", of: list[int] | None = None) -> str: ...
    def second(size: str | int, kind: Literal["b", "a"] = "a", of: list[int] | None = None) -> str: ...
    def zero(at: float = 0.0) -> str: ...
    def minus_zero(at: float = -0.0) -> str: ...
    def wrong(kind: Literal["a", "b"] = "c") -> str: ...  # type: ignore[assignment]

    made = [tool(each) for each in (first, second, first)]
    assert made[0]._arguments._form._model is made[2]._arguments._form._model
    described = [each.parameters["properties"] for each in made]
    assert described[0] == described[2]
    assert described[0]["size"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert described[1]["size"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert (described[0]["kind"]["enum"], described[1]["kind"]["enum"]) == (["a", "b"], ["b", "a"])
    assert [tool(each)._arguments.read(canonical({})) for each in (zero, minus_zero)] == ['{"at":0.0}', '{"at":-0.0}']
    for name in ("one", "other"):  # what is refused is refused each time, by the name of its tool
        with pytest.raises(ToolDefinitionError, match=f"tool {name}: parameter 'kind'"):
            tool(name=name)(wrong)


@pytest.mark.parametrize("arguments", ["", " ", "null", " null\n", "{}"])
def test_a_call_without_arguments_is_one_whatever_stands_in_their_place(arguments: str) -> None:
    @tool(requires_approval=True)
    def ping(times: int = 1) -> str:
        """Ping."""
        return "pong"

    assert ping.read(arguments) == '{"times":1}'
