"""Agents and graphs as tools: a call of one is a run inside the call, which stops for a human as any run does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypedDict

from phronomy.concurrency.pieces import Piecewise
from phronomy.engine.nested import begun, takes_value
from phronomy.engine.spec import Spec
from phronomy.errors import NodeFailed, PhronomyError, ToolDefinitionError
from phronomy.foundation import spelling
from phronomy.foundation.checks import is_async
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict
from phronomy.records.calls import Call
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import OnExpiry
from phronomy.tools.arguments import Arguments
from phronomy.tools.docstring import read_docstring
from phronomy.tools.tool import Requirement, Tool


class AgentToolOptions(TypedDict, total=False):
    """The options of `as_tool`, besides `name`, `description` and `input`. They mean the same as for any tool.

    `requires_approval` is about the call itself, before the nested run starts. Calls in the nested run follow the
    requirements of their own tools, and the approval policies around the run. `on_failure` says what happens if the
    nested run fails. With `"stop"` (the default) the outer run stops too, and a resume continues inside the nested run.
    With `"model"` the model is told, and the nested run has ended. With `return_direct`, the answer of the nested run is
    that of the outer run.
    """

    requires_approval: Requirement
    approval_timeout: float | None
    on_expiry: OnExpiry | None
    risk: str | None
    scopes: Iterable[str]
    redact: Any
    return_direct: bool
    on_failure: Literal["model", "stop"]


def _asked(input: str) -> str:
    return input


_OPTIONS = frozenset(AgentToolOptions.__annotations__)
_INPUT = "What to ask, with everything there is to know: nothing else of this conversation is seen."


class AgentTool(Piecewise, Tool):
    """An agent or a graph that a model may call. Each call is a nested run.

    `agent.as_tool()` makes it. The requests of the nested run are pending in the outer run, with their path. You decide
    them there, by id, and a resume continues inside the nested run, at any depth. The answer of the nested run is the
    result of the call.
    """

    source = "agent"
    # To run it again is to go on with it: its own record says what it has done. The tools inside are asked about one by one.
    idempotent = True
    gives_pieces = True
    on_failure: Literal["model", "human", "stop"] = "stop"

    def __init__(
        self,
        inner: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        input: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        self.inner = inner
        spec: Spec = inner.spec
        where = f"{spec.kind} {spec.name!r} as a tool"
        # A misspelt `requires_approval` that was only ignored would leave the call ungated.
        if unknown := options.keys() - _OPTIONS:
            known = ", ".join(sorted({"name", "description", "input", *_OPTIONS}))
            raise ToolDefinitionError(f"{where} has no option {spelling.told(unknown, _OPTIONS)}; it has {known}")
        if options.get("on_failure", "stop") not in ("stop", "model"):
            raise ToolDefinitionError(f"{where}: on_failure is 'stop' or 'model'")
        # The state of a graph has fields of its own, and no text that a model writes fills them in.
        if input is None and spec.kind == "graph" and not takes_text(spec):
            raise ToolDefinitionError(
                f"{where}: give input=, a function that makes the input of what the model fills in"
            )
        # It is called while the first checkpoint of the run is made, where nothing can be waited for.
        if input is not None and (not callable(input) or is_async(input)):
            raise ToolDefinitionError(f"{where}: input is a plain function, whose parameters the model fills in")
        self.into: Callable[..., Any] = _asked if input is None else input
        self._described = input is not None
        # Providers refuse a tool whose name has other characters, or more than 64, and an agent's name may be any text.
        self.name: str = re.sub(r"[^a-zA-Z0-9_-]+", "_", spec.name)[:64] if name is None else name
        self.description: str = description if description is not None else getattr(inner, "description", "") or ""
        for option, value in options.items():
            setattr(self, option, value)
        super().__init__()
        # No call is under way yet when it is called, so there is no context to give.
        if self._context_name is not None:
            raise ToolDefinitionError(f"{where}: input has a ToolContext, but it only makes the input")

    def execute(self, **values: Any) -> Any:
        """Never called: phronomy drives the nested run instead."""
        # If this is ever entered, a run has gone around its own driver, and around its gates.
        raise AssertionError("the run behind a call is driven; it is never called")

    def result_schema(self, *, by_alias: bool = True) -> JsonDict | None:
        """The JSON Schema of the answers of its runs; None of a graph, whose channels it does not know."""
        spec: Spec = self.inner.spec
        if spec.kind != "agent":
            return None
        return {"type": "string"} if spec.output is None else spec.output.value_schema(by_alias=by_alias)

    def _target(self) -> Callable[..., Any]:
        return self.into

    def _documentation(self, body: Callable[..., Any]) -> tuple[str, dict[str, str]]:
        while isinstance(body, partial):  # its own text is about partials
            body = body.func
        description, parameters = read_docstring(body.__doc__ or "")
        return description or f"Asks {self.inner.spec.name}, and gives the answer.", parameters

    def _signature(self, body: Callable[..., Any], told: dict[str, str]) -> tuple[Arguments, str | None]:
        # A model that reads nothing of the parameter writes "as above" into it, and the agent inside sees nothing above.
        if not self._described:
            told = {"input": _INPUT}
        return super()._signature(body, told)


def takes_text(spec: Spec) -> bool:
    """Whether a run of it can be asked in words."""
    return spec.kind != "graph" or takes_value(spec)


@dataclass(frozen=True, kw_only=True)
class Delegated:
    """The run behind a call of an agent, begun with what the model filled in."""

    tool: AgentTool
    call: Call
    is_body: bool = False

    @property
    def spec(self) -> Spec:
        """Its configuration."""
        spec: Spec = self.tool.inner.spec
        return spec

    def begin(self, parent: Checkpoint, path: str, at: datetime) -> Checkpoint:
        """Its first checkpoint. Raises `NodeFailed` for an input that it cannot begin with."""
        name = self.tool.name
        try:
            # User code, at the moment at which the run begins and no earlier: nothing of it is stored until it has worked.
            given = self.tool.into(**self.tool.bind(self.call.json_text("args")))
        except Exception as error:
            why = f"its input raised {type(error).__name__}"
            raise NodeFailed(
                f"tool {name!r}: {why}; mend it and resume the checkpoint", failures={name: why}
            ) from error
        try:
            first = self.spec.first(given, None, None)
        # Nothing has run, and nothing is lost: the run around it stops here, and begins this one anew once that is mended.
        except PhronomyError as error:
            why = f"the run behind it cannot begin: {error}"
            raise NodeFailed(
                f"tool {name!r}: {why}; mend it and resume the checkpoint", failures={name: why}
            ) from error
        return begun(self.spec, parent, path, at, first)


def delegated(tool: Tool | None, call: Call) -> Delegated | None:
    """The run behind a call of this tool, if it is an agent."""
    return Delegated(tool=tool, call=call) if isinstance(tool, AgentTool) else None
