"""What is known of an agent or a graph where its tools alone matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from phronomy.records.decisions import ToolIdentity
from phronomy.tools.tool import Tool


class Toolbox(Protocol):
    """An agent or a graph, seen as the tools that it has, and the agents and graphs inside it."""

    @property
    def kind(self) -> str:
        """What it is: `agent` or `graph`; patterns and orchestrators are graphs."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Its own tools, by name."""
        ...

    def inside(self) -> Iterable[Toolbox]:
        """The agents and graphs inside it."""
        ...


def is_same_tool(tool: Tool, identity: ToolIdentity) -> bool:
    """Whether this is the very tool of an identity: of the same source, name and schema."""
    return (tool.source, tool.name, tool.schema_hash) == (identity.source, identity.name, identity.schema_hash)


def toolboxes_in(box: Toolbox) -> Iterator[Toolbox]:
    """The toolbox itself, and those of all runs that may be inside its own."""
    yield box
    for inner in box.inside():
        yield from toolboxes_in(inner)
