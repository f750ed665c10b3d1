"""Instructions: templates, callables, and what becomes of them when they cannot be made."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from phronomy.conversation.instructions import InstructionsContext, PromptTemplate, compile_instructions
from phronomy.errors import AsyncRequired, ConfigurationError, InstructionsError
from phronomy.foundation.json_text import canonical
from phronomy.records.messages import Message


def context(**changes: Any) -> InstructionsContext[Any]:
    usual: dict[str, Any] = {"run_id": "run-1", "thread_id": None, "deps": None, "messages": ()}
    return InstructionsContext(**(usual | changes))


def render(instructions: Any, input: Any = "hello", **changes: Any) -> str | None:
    """What both ways of making the instructions give, which must be the same."""
    compiled = compile_instructions(instructions)
    made = asyncio.run(compiled.arender(input, context(**changes)))
    if not compiled.is_async:
        assert compiled.render(input, context(**changes)) == made
    return made


# Templates


def test_a_template_is_filled_from_a_mapping() -> None:
    template = PromptTemplate(
        "Help {customer} ({age}, {tags}) in a {tone} tone. {{{customer}}} {{}}", defaults={"tone": "kind"}
    )
    assert template.fields == ("customer", "age", "tags", "tone")
    assert template.render({"customer": "{age} {{x}}", "age": 5.0, "tags": ["é", None], "more": 1}) == (
        'Help {age} {{x}} (5.0, ["é",null]) in a kind tone. {{age} {{x}}} {}'
    )
    assert template.render({"customer": "Ada", "age": True, "tags": {}, "tone": ""}).endswith("in a  tone. {Ada} {}")
    assert repr(PromptTemplate("Help {x}")) == "PromptTemplate('Help {x}')"


def test_a_template_takes_a_pydantic_model() -> None:
    class Request(BaseModel):
        customer: str
        order: int = 7

    assert PromptTemplate("{customer}: {order}").render(Request(customer="Ada")) == "Ada: 7"


def test_a_text_input_fills_the_field_input_and_no_other() -> None:
    assert PromptTemplate("Answer {input}, only {input}").render("why?") == "Answer why?, only why?"
    assert (
        PromptTemplate("Answer {input}").render([{"type": "text", "text": "x"}])
        == 'Answer [{"type":"text","text":"x"}]'
    )
    assert PromptTemplate("Be kind").render("why?") == "Be kind"
    with pytest.raises(
        InstructionsError, match=r"has the fields \['input', 'customer'\], so its input must be a mapping"
    ):
        PromptTemplate("{input} {customer}", defaults={"customer": "Ada"}).render("why?")


def test_fields_without_a_value_are_named() -> None:
    with pytest.raises(InstructionsError, match=r"no value for the fields \['order', 'tone'\]"):
        PromptTemplate("{customer} {order} {tone}").render({"customer": "Ada"})


@pytest.mark.parametrize(
    "template",
    [
        "{a.b}",
        "{a[0]}",
        "{a.__class__}",
        "{}",
        "{0}",
        "{ a }",
        "{a!r}",
        "{a:>5}",
        "{a:{b}}",
        '{"json": 1}',
        "open {",
        "close }",
        5,
    ],
)
def test_a_template_can_only_name_fields(template: Any) -> None:
    with pytest.raises(ConfigurationError):
        PromptTemplate(template)


def test_a_refused_template_says_what_to_write_instead() -> None:
    with pytest.raises(ConfigurationError) as caught:
        PromptTemplate("{a.b!r:>{w}}")
    assert str(caught.value) == (
        "the prompt template has {a.b!r:>{w}}, but a field is a bare name such as {customer}; "
        "put the value itself into the input, and write {{ and }} for braces"
    )
    with pytest.raises(ConfigurationError, match=r"write \{\{ and \}\} for braces"):
        PromptTemplate("{")


def test_defaults_are_checked_and_cannot_change_afterwards() -> None:
    tags = ["a"]
    template = PromptTemplate("{tags}", defaults={"tags": tags})
    tags.append("b")
    assert template.render({}) == '["a"]'
    with pytest.raises(ConfigurationError, match=r"no field for the defaults \['tone'\]; it has \['tags'\]"):
        PromptTemplate("{tags}", defaults={"tone": "kind"})
    with pytest.raises(ConfigurationError, match="not JSON"):
        PromptTemplate("{tags}", defaults={"tags": object()})


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text()), st.lists(st.text() | st.sampled_from("abc")))
def test_what_is_filled_in_is_never_read_as_a_template(values: dict[str, str], pieces: list[str]) -> None:
    escaped = ["{" + each + "}" if each in values else each.replace("{", "{{").replace("}", "}}") for each in pieces]
    assert PromptTemplate("".join(escaped)).render(values) == "".join(values.get(each, each) for each in pieces)


# What instructions may be


def test_text_a_template_or_nothing() -> None:
    assert render("Be kind") == "Be kind"
    assert render("a\ud800") == "a\ufffd"
    assert render(None) is None
    assert render(PromptTemplate("Help {input}"), "me") == "Help me"


def test_a_callable_takes_the_input_and_the_context_if_it_asks_for_it() -> None:
    class Desk:
        def method(self, input: dict[str, Any]) -> str:
            return f"method {input['n']}"

        async def __call__(self, input: dict[str, Any], where: InstructionsContext[str]) -> str:
            return f"object {input['n']} {where.deps} {where.messages[0].text}"

    def named(input: dict[str, Any], context: InstructionsContext[str] | None = None) -> str | None:
        return None if context is None else f"named {input['n']} {context.run_id}"

    async def slow(input: dict[str, Any], style: str = "slow") -> str:
        return f"{style} {input['n']}\ud800"

    said = (Message(role="user", content="hi"),)
    assert render(Desk().method, {"n": 1}) == "method 1"
    assert render(Desk(), {"n": 1}, deps="Ada", messages=said) == "object 1 Ada hi"
    assert render(named, {"n": 1}) == "named 1 run-1"
    assert render(slow, {"n": 1}) == "slow 1\ufffd"
    assert render(functools.partial(slow, style="quick"), {"n": 1}) == "quick 1\ufffd"
    assert render(lambda input: None) is None
    assert "Ada" not in repr(context(deps="Ada"))


def test_a_callable_gets_a_copy_of_the_input() -> None:
    class Request(BaseModel):
        lines: list[int]

    def greedy(input: dict[str, list[int]]) -> str:
        input["lines"].append(9)
        return str(input["lines"])

    kept = {"lines": [1]}
    for given_input in (kept, Request(lines=[1]), canonical({"lines": [1]})):
        assert render(greedy, given_input) == render(greedy, given_input) == "[1, 9]"
    assert kept == {"lines": [1]}


def test_async_instructions_are_refused_in_a_sync_call_before_they_run() -> None:
    async def slow(input: str) -> str:
        raise AssertionError("must not run")

    compiled = compile_instructions(slow)
    assert compiled.is_async
    with pytest.raises(AsyncRequired, match=r"slow are async; use the agent's async methods"):
        compiled.render("hello", context())


def test_what_cannot_be_instructions_is_refused() -> None:
    def steps(input: str) -> Any:
        yield input

    async def asteps(input: str) -> Any:
        yield input

    refused: dict[Any, str] = {5: "not 5", str: "not the class str", steps: "a generator", asteps: "a generator"}
    refused |= {(lambda: "x"): "must take", (lambda a, b, c: "x"): "must take", min: "its signature cannot be read"}
    for instructions, why in refused.items():
        with pytest.raises(ConfigurationError, match=why):
            compile_instructions(instructions)


def test_instructions_that_cannot_be_made_are_a_typed_error_without_the_words() -> None:
    def broken(input: str) -> str:
        raise KeyError("hunter2")

    async def slow(input: str) -> str:
        raise KeyError("hunter2")

    for instructions in (broken, slow):
        with pytest.raises(InstructionsError) as caught:
            render(instructions)
        assert str(caught.value) == "the instructions raised KeyError"
        assert isinstance(caught.value.__cause__, KeyError)

    for answer, why in ((5, "not int"), (b"text", "not bytes"), (["text"], "not list")):
        with pytest.raises(InstructionsError, match=f"must be a text or None, {why}"):
            render(lambda input, answer=answer: answer)
    with pytest.raises(InstructionsError, match="declare it with 'async def'"):
        render(lambda input: slow(str(input)))
    with pytest.raises(InstructionsError, match="the input is not JSON"):
        render(lambda input: "x", object())


# Fingerprints


def test_the_fingerprint_follows_what_the_instructions_say() -> None:
    def make(code: str) -> Callable[[str], str]:
        known: dict[str, Any] = {"__name__": "prompts"}
        exec(code, known)
        made: Callable[[str], str] = known["prompt"]
        return made

    same = "def prompt(input):\n    inner = lambda: {word}\n    return 'a' if input in {{'x', 'y', 1}} else inner()"
    first, again, other = (make(same.format(word=word)) for word in ("'b'", "'b'", "'c'"))
    kinds = [
        None,
        "a",
        "b",
        "{a}",
        PromptTemplate("{a}"),
        PromptTemplate("{a}", defaults={"a": 1}),
        first,
        other,
        print,
    ]
    found = [compile_instructions(each).fingerprint for each in kinds]
    assert len(set(found)) == len(kinds)
    assert compile_instructions(again).fingerprint == compile_instructions(first).fingerprint
    orders = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert len({compile_instructions(PromptTemplate("{a}{b}", defaults=each)).fingerprint for each in orders}) == 1
    assert compile_instructions(functools.partial(again)).fingerprint == compile_instructions(first).fingerprint


SAME_EVERYWHERE = """
from phronomy.conversation.instructions import PromptTemplate, compile_instructions
class Prompt:
    def __call__(self, input):
        return [word for word in input if word in {"a", "b", "c", "d"}] and "text" or None
def prompt(input):
    return (lambda: input if input in {"a", "b", "c", "d"} else "other")()
template = PromptTemplate("{a} {b}", defaults={"b": 1, "a": 2})
print(*(compile_instructions(each).fingerprint for each in (Prompt(), prompt, template, "text")))
"""


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    said = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SAME_EVERYWHERE]
        said.add(subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout)
    (line,) = said
    assert len(set(line.split())) == 4
