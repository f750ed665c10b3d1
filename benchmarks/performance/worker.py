"""A side in a process of its own, told by lines of JSON what to measure. It is started with the interpreter of its environment.

With `once` it does one fresh cycle and ends: its whole process is measured from outside.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from side import Measured, Side

SIDES = {
    "floor": "floor:Floor",
    "floor+claims": "floor:Claiming",
    "floor+litellm": "floor_litellm:LiteLLMFloor",
    "phronomy": "ours:Ours",
    "before": "ours:Ours",
    "phronomy+litellm": "ours:OursWithLiteLLM",
    "langgraph": "peer_langgraph:LangGraph",
    "openai-agents": "peer_openai_agents:OpenAIAgents",
    "pydantic-ai": "peer_pydantic_ai:PydanticAI",
}


def side(name: str, url: str, folder: str) -> Side:
    """The side of this name."""
    module, _, kind = SIDES[name].partition(":")
    made: Side = getattr(import_module(module), kind)(url, Path(folder))
    return made


def finish(work: Measured) -> Any:
    """What the work returns."""
    try:
        next(work)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("the work yields twice")


def measured(here: Side, method: str, arguments: dict[str, Any], repeat: int) -> dict[str, Any]:
    """The seconds of CPU and of the clock that the work takes, and its figure: the means of so many repetitions."""
    cpu = wall = 0.0
    value = None
    # What is garbage from before counts for nobody. In between the collector runs as in any program: a side pays for the garbage that
    # it makes, and its code is as warm as that of a process that does nothing else.
    gc.collect()
    for _ in range(repeat):
        work: Measured = getattr(here, method)(**arguments)
        next(work)
        begun, started = time.perf_counter(), time.process_time()
        next(work)
        cpu += time.process_time() - started
        wall += time.perf_counter() - begun
        value = finish(work)
    return {"cpu": cpu / repeat, "wall": wall / repeat, "value": value}


def main() -> None:
    """Do what is asked for, line by line."""
    name, url, folder, *once = sys.argv[1:]
    here = side(name, url, folder)
    if once:
        work = here.fresh("http")
        next(work), next(work)
        return
    from side import Absent  # noqa: PLC0415  # has been loaded by the side

    out, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    for line in sys.stdin:
        method, arguments, repeat = json.loads(line)
        try:
            answer = measured(here, method, arguments, repeat)
        except Absent:
            answer = {"absent": True}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
