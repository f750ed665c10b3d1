"""The steps of a debugger: the points at which each of its moves stops, and the checkpoints that `back` counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from phronomy.engine.spec import Spec
from phronomy.engine.stop_points import is_inside, specs_in
from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_count
from phronomy.foundation.quoting import quoted
from phronomy.records.checkpoint import Checkpoint
from phronomy.stops.breakpoints import Breakpoint, BreakpointContext

Pace: TypeAlias = Literal["into", "over", "out", "step", "go"]
"""How far a run goes on: the name of the method that moves it."""

LABEL: Final = "(debugger)"
"""The label of a stop that stepping made. A breakpoint of the user's that lies there goes first, and leaves its own."""

CHANNEL: Final = "debugger"
"""The channel of what is decided in a debugger."""

_INSIDE_BOUNDARIES: Final = ("post_tool_call", "post_node")
"""The calls of a reply, or the nodes of a wave, are not all through there."""


class Stepping(Breakpoint):
    """Stops wherever its predicate says so: at points of every kind."""

    def __init__(self, when: Callable[[BreakpointContext], bool]) -> None:
        super().__init__("*", when, LABEL)

    def stops_at(
        self, type: str, agent: str, tool: str | None, node: str | None, pattern: str | None, *, asks: bool
    ) -> bool:
        """Everywhere: `when` has the say."""
        return True


def stepping(pace: Pace, path: str, root: Spec, call: Mapping[str, object]) -> list[Breakpoint]:
    """Makes the breakpoints that end a move which begins at this path; none if only the user's breakpoints end it.

    `root` and `call` are the agent or graph of the outermost run, and the options of the call.
    """
    if pace == "go":
        return []
    asked = _guarded("input_guardrails", root, call)
    heard = _guarded("output_guardrails", root, call)

    def when(context: BreakpointContext) -> bool:
        inner = is_inside(path, context.path)
        match context.type:  # a point that nothing lies between, and the one before it, is no place of its own
            case "pre_input_guardrails" if context.agent not in asked:
                return False
            case "pre_output_guardrails" if context.agent not in heard:
                return False
            case "pre_model_call" if not context.turn or context.handoff:
                return False
            case _:
                pass
        match pace:
            case "into":
                return True
            case "over":
                return inner
            case "out":
                return inner and context.path != path
            case _:
                return inner and context.type not in _INSIDE_BOUNDARIES

    return [Stepping(when)]


def _guarded(option: str, root: Spec, call: Mapping[str, object]) -> set[str]:
    """The agents that have guardrails of this kind."""
    found = {spec.name for spec in specs_in(root) if getattr(spec, option)}
    if option in call:
        found = found - {root.name} | ({root.name} if call[option] else set())
    return found


def past(n: int, history: Sequence[Checkpoint]) -> Checkpoint:
    """The checkpoint that many boundaries before the last of a history.

    What only records a decision is none, nor is what a fork has a copy of. Raises `ConfigurationError` where there are not so many.
    """
    if not is_count(n) or n < 1:
        raise ConfigurationError(f"back goes by a whole number of boundaries, 1 or more, not {quoted(n)}")
    run = [each for each in history if each.run_id == history[-1].run_id]
    taken = [len(each.decisions) for each in run]
    found: list[Checkpoint] = []
    for place, (each, after) in enumerate(pairwise(run)):
        decides = place > 0 and run[place - 1].pending and taken[place] > taken[place - 1]
        rested = taken[place + 1] > taken[place]  # what else waited there was decided from there
        if each.branch_id == after.branch_id and (rested or not decides):
            found.append(each)
    if n > len(found):
        raise ConfigurationError(f"there is no going back by {n}: boundaries before this place: {len(found)}")
    return found[-n]
