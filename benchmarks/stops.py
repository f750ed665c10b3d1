"""What it costs to be able to stop: Python function calls and CPU of a run with breakpoints, guardrails and hooks, over one without.

The run asks its model 21 times, runs 40 calls of tools, stops for one approval and is resumed, in memory. Calls are counted by the
profiler, in one run each; CPU is the least of several interleaved rounds.

    python benchmarks/stops.py [--rounds N]

The bounds are of what is added for each call of a tool, not of a ratio: where a run itself gets cheaper, a ratio gets worse though
nothing has. Exits with status 1 if a breakpoint for another tool, one whose expression is worked out before every call of a tool, or
guardrails for everything add more function calls than that.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from phronomy import Agent, Breakpoint, Hooks, MemoryStore, guardrail, tool
from phronomy.testing import ScriptedModel, call

TURNS: Final = 20


@tool
def look(n: int) -> str:
    """Look something up."""
    return f"there are {n}"


@tool(requires_approval=True)
def pay(n: int) -> str:
    """Pay for it."""
    return f"paid {n}"


@guardrail
def nothing(value: Any) -> None:
    """Let everything pass."""


OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "a breakpoint elsewhere": {"breakpoints": [Breakpoint("pre_tool_call", tools=["pay"], when="args['n'] > 9")]},
    "an expression per call": {"breakpoints": [Breakpoint("pre_tool_call", when="tool == 'pay' and args['n'] > 9")]},
    "guardrails": {f"{stage}_guardrails": [nothing] for stage in ("input", "output", "tool")},
    "hooks": {"hooks": [Hooks()]},
}
TOOL_CALLS: Final = 2 * TURNS + 1
BOUNDS: Final = {"a breakpoint elsewhere": 70, "an expression per call": 350, "guardrails": 100}
"""Function calls that are added for each call of a tool."""


def run_of(options: dict[str, Any]) -> Callable[[], None]:
    """One whole run, with a fresh script."""
    replies: list[Any] = [[call("look", {"n": n}), call("look", {"n": -n})] for n in range(1, TURNS + 1)]
    model = ScriptedModel.by_turn([*replies, call("pay", {"n": 1}), "Done."])
    agent = Agent(name="desk", model=model, tools=[look, pay], store=MemoryStore(), max_parallel=1, **options)

    def run() -> None:
        result = agent.invoke("Go.")
        result = agent.resume(result.checkpoint, approved=True)
        assert result.output == "Done."

    run()  # what is made once
    return run


def calls_of(run: Callable[[], None]) -> int:
    """How many functions written in Python the run calls."""
    profile = cProfile.Profile(builtins=False)
    profile.runcall(run)
    stats: Any = pstats.Stats(profile)
    return sum(counted[1] for place, counted in stats.stats.items() if place[0] != "~")


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    runs = {name: run_of(options) for name, options in OPTIONS.items()}
    calls = {name: calls_of(run) for name, run in runs.items()}
    spent = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            gc.collect()
            begun = time.process_time()
            run()
            spent[name] = min(spent[name], time.process_time() - begun)
    print(f"{'with':24}{'function calls':>16}{'added a call':>14}{'CPU':>8}")
    failed = []
    for name in runs:
        ratio, added = calls[name] / calls["nothing"], (calls[name] - calls["nothing"]) / TOOL_CALLS
        print(f"{name:24}{ratio:16.3f}{added:14.0f}{spent[name] / spent['nothing']:8.2f}")
        if added > BOUNDS.get(name, float("inf")):
            failed.append(f"{name} adds {added:.0f} function calls for each call of a tool, over {BOUNDS[name]}")
    print(f"nothing: {calls['nothing']} function calls, {1000 * spent['nothing']:.1f} ms")
    for complaint in failed:
        print(complaint)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
