"""Hiding the values of redacted parameters, wherever in what is shown of a run they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from phronomy.foundation.json_text import JsonError, parse
from phronomy.foundation.quoting import HIDDEN
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval, ToolIdentity
from phronomy.stops.interrupt_points import AFTER, InterruptPoint
from phronomy.tools.tool import Tool
from phronomy.tools.toolbox import Toolbox, is_same_tool, toolboxes_in

_TOLD_EDIT: Final = re.compile(r"arguments of this call to (?=\{)")
"""Where a result quotes the arguments that a human put in."""


class Masking:
    """Hides the values of redacted parameters. Of a tool that it does not know, it hides them all; without a spec it knows none."""

    def __init__(self, spec: Toolbox | None) -> None:
        self._tools: list[Tool] = list(_tools_in(spec)) if spec is not None else []
        self._graph = spec.name if spec is not None and spec.kind == "graph" else None

    def tool(self, item: PendingApproval) -> Tool | None:
        """The very tool that waits, if it is known."""
        return self.very(item.tool) or _interrupt_point(item)

    def very(self, tool: ToolIdentity) -> Tool | None:
        """The very tool of this identity, if it is known."""
        return next((each for each in self._tools if is_same_tool(each, tool)), None)

    def named(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return next((each for each in self._tools if each.name == name), None)

    def is_of(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint is of the graph that this is for, so that its state may be seen."""
        return self.has_state_of(checkpoint.agent.name)

    def has_state_of(self, name: str) -> bool:
        """Whether the graph that this is for has this name."""
        return self._graph is not None and self._graph == name

    def masked_in(self, item: PendingApproval) -> set[str]:
        """The names of what a human is asked about that may not be seen.

        The payload of a question may quote any argument of the call that asks, in any form, and the arguments are not beside it.
        """
        tool = self.tool(item)
        if item.why == "question" and tool is not None:
            return set() if self.is_open(tool) else {"payload"}
        return self.masked(item.args, tool)

    def asked(self, item: PendingApproval) -> dict[str, Any]:
        """Gives the arguments of a pending approval, masked."""
        hidden = self.masked_in(item)
        return {name: HIDDEN if name in hidden else value for name, value in item.args.items()}

    def args(self, args: Mapping[str, object], tool: Tool | None) -> dict[str, Any]:
        """The arguments as they may be seen."""
        hidden = self.masked(args, tool)
        return {name: HIDDEN if name in hidden else value for name, value in args.items()}

    def masked(self, args: Mapping[str, object], tool: Tool | None) -> set[str]:
        """The names of the arguments that may not be seen."""
        return set(args) if tool is None else set(args) & self._secret(tool)

    def is_open(self, tool: Tool | None) -> bool:
        """Whether all arguments of the tool may be seen."""
        return tool is not None and not self._secret(tool)

    def arguments(self, name: str, text: str) -> str:
        """The arguments of a call as the model wrote them, as they may be seen."""
        tool = self.named(name)
        if self.is_open(tool):
            return text
        try:
            value = parse(text)
        except JsonError:
            return HIDDEN
        return json.dumps(self.args(value, tool), ensure_ascii=False) if isinstance(value, dict) else HIDDEN

    def result(self, name: str, text: str) -> str:
        """The result of a call, without the hidden arguments that a human put in and that it quotes."""
        quoted = _TOLD_EDIT.search(text)
        if quoted is None:
            return text
        try:
            _, end = json.JSONDecoder().raw_decode(text, quoted.end())
        except ValueError:
            return text
        return text[: quoted.end()] + self.arguments(name, text[quoted.end() : end]) + text[end:]

    def given(self, metadata: Mapping[str, object]) -> dict[str, Any]:
        """The data that was given with a decision, as it may be seen: it may quote any argument, so its values are hidden."""
        return dict.fromkeys(metadata, HIDDEN)

    def _secret(self, tool: Tool) -> set[str]:
        """The parameters that are hidden: whatever any tool of this name hides, since agents inside may have others."""
        return {name for each in (tool, *self._tools) if each.name == tool.name for name in each.redact}


def _tools_in(spec: Toolbox) -> Iterator[Tool]:
    """Gives everything that may ask in runs of this spec: its tools or nodes, their fallbacks, and those of the runs inside."""
    for each in toolboxes_in(spec):
        for tool in each.tools.values():
            yield from (tool, *tool.fallback)


def _interrupt_point(item: PendingApproval) -> Tool | None:
    """Gives the interrupt point after a node that this item waits at, if it is one."""
    if item.tool.source != AFTER:
        return None
    made = InterruptPoint(item.tool_name)
    return made if made.schema_hash == item.tool.schema_hash else None
