"""The steps of a pattern as nodes of its graph: what each is given, and what it gives, is one JSON value."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from phronomy.errors import ConfigurationError, GraphError, InvalidUpdate
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_async
from phronomy.foundation.json_text import JsonError, JsonText, canonical
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.flow.node import Inside, Node, check_options, is_name
from phronomy.graph.signals import Abort, Continue, Pause, Replan
from phronomy.graph.state.state import StateSchema
from phronomy.graph.state.streams import is_generator
from phronomy.runs.runs import Runs
from phronomy.tools.tool import Tool

OPTIONS: Final = (
    "requires_approval", "idempotent", "retries", "retry_wait", "retry_on", "timeout", "on_failure", "approval_timeout",
    "on_expiry", "risk",
)  # fmt: skip
"""What a step may be given of the options of a node."""


def as_json(value: object, what: str) -> JsonText:
    """A value as the steps pass it on. Raises `ConfigurationError` for what has no JSON form."""
    try:
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else to_jsonable_python(value)
        return canonical(plain)
    except (JsonError, ValueError, TypeError, RecursionError):
        kind = type(value).__name__
        raise ConfigurationError(
            f"{what} is a {kind}, which is no JSON: give text, numbers, lists, dicts or models"
        ) from None


class _Step:
    """The common part of both kinds of step: a `transform` makes the step's input of the value that comes to it."""

    name: str
    transform: Callable[[Any], object] | None = None

    def given(self, value: object, original: object) -> object:
        """Makes the input of the step. Raises what the transform raises, and `ConfigurationError`."""
        if self.transform is None:
            return value
        return self.transform(value)

    def check_response(self, content: object) -> None:
        """Checks that a human's response for a step is an output that the step could give."""


class FunctionStep(_Step, Node):
    """A function of what comes to it as a step."""

    def write_result(self, value: object) -> str:
        """The text of what the function returned: the value, and the signal, if it gave one. Raises `InvalidUpdate`."""
        signal, reason = "continue", None
        if isinstance(value, Replan):
            raise InvalidUpdate(f"step {self.name!r} gave Replan: its pattern says what comes next", node=self.name)
        if isinstance(value, Continue | Pause | Abort):
            signal = type(value).__name__.lower()
            reason = self._reason(type(value), getattr(value, "reason", None))
            value = value.update
        if hasattr(type(value), "__await__"):
            return super().write_result(value)  # which refuses it
        try:
            text = as_json(value, f"what step {self.name!r} gave")
        except ConfigurationError as error:
            raise InvalidUpdate(str(error), node=self.name) from None
        return f'{{"value":{text},"signal":{canonical(signal)},"reason":{canonical(reason)}}}'


class RunStep(_Step, Inside):
    """An agent, a graph or another pattern as a step."""

    def given(self, value: object, original: object) -> object:
        """As for any step; an agent that is given neither text nor a mapping reads it as JSON."""
        value = super().given(value, original)
        if self.inner.spec.flow is not None or isinstance(value, str | dict | BaseModel) or value == original:
            return value
        return str(as_json(value, f"what comes to step {self.name!r}"))


def step_of(
    name: str, run: Any, schema: StateSchema, options: Mapping[str, object], *, where: str, needed: bool
) -> FunctionStep | RunStep:
    """The node for a step; the pattern goes on without one that is not `needed`, if it fails. Raises `GraphError`."""
    where = f"{where}, step {name!r}"
    given = {key: value for key, value in options.items() if key != "transform"}
    transform = options.get("transform")
    if transform is not None and (not callable(transform) or is_async(transform) or is_generator(transform)):
        raise GraphError(f"{where}: transform is a plain function of what comes to the step")
    if unknown := given.keys() - {*OPTIONS}:
        raise GraphError(
            f"{where}: there is no option {spelling.told(unknown, OPTIONS)}; there are transform, {', '.join(OPTIONS)}"
        )
    is_run = hasattr(run, "spec") and not isinstance(run, type)
    if not is_run and (not callable(run) or isinstance(run, Tool | type)):
        kind = run.__name__ if isinstance(run, type) else type(run).__name__
        raise GraphError(f"{where} is an agent, a graph, a pattern or a function, not {kind}")
    if not is_run and is_generator(run):
        raise GraphError(f"{where} is a generator: return the whole at the end")
    check_options(where, given, is_run=is_run)
    if not needed and given.get("on_failure", "stop") == "stop":
        given["on_failure"] = "model"  # it settles as failed
    try:
        step = RunStep(name, run, schema, given) if is_run else FunctionStep(name, run, schema, given)
    except ConfigurationError as error:
        raise GraphError(f"{where}: {error}") from None
    step.transform = transform
    return step


def names_for(runs: Mapping[str, object] | Sequence[object], *, where: str) -> list[tuple[str, object]]:
    """A name for each step, in order: as given, or its own, with a number where several have it. Raises `GraphError`."""
    if isinstance(runs, Mapping):
        for name in runs:
            if not isinstance(name, str) or not is_name(name):
                raise GraphError(
                    f"{where}: {quoted_name(name)} cannot name a step: give it 1 to 64 letters, digits, '_' and '-'"
                )
        return list(runs.items())
    found: dict[str, object] = {}
    for place, run in enumerate(runs, 1):
        name = own = _name_of(run) or f"step{place}"
        number = 1
        while name in found:
            number += 1
            name = f"{own[:60]}_{number}"
        found[name] = run
    return list(found.items())


def _name_of(run: object) -> str:
    if isinstance(run, Runs):
        called = str(run.spec.name)
    else:
        called = str(getattr(run, "__name__", "") or type(run).__name__)
        called = "" if called == "<lambda>" else called
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", called)[:64].strip("_")


def about(run: object) -> str:
    """Gives the description of a step, in the words of its author."""
    told = getattr(run, "description", None) if isinstance(run, Runs) else inspect.getdoc(run)
    return str(told or "").strip().partition("\n")[0]
