"""How long the way of a value through the code is: calls of functions, and files, counted by a profiler hook.

    python benchmarks/way.py

Counted are calls of functions in `phronomy/`, comprehensions and properties included. Each way is gone once before it is counted, so
that nothing is built for the first time.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import phronomy
from phronomy import Agent, Checkpoint, MemoryStore, tool
from phronomy.testing import ScriptedModel, call

HOME = str(Path(phronomy.__file__).parent)
GOALS = {
    "from resume(checkpoint) to the tool's body": (400, 25),
    "from resume(checkpoint.id) to the tool's body": (400, 25),
    "from invoke to suspended": (300, None),
}


class Way:
    """Counts from `begin` to `end`, in the thread that it is begun in."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()
        self.frames: set[str] = set()

    def begin(self) -> None:
        """Count from here on."""
        sys.setprofile(self._note)

    def end(self) -> None:
        """Count no further, and note the frames of ours between the caller and here."""
        sys.setprofile(None)
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_name != "counted":
            if frame.f_code.co_filename.startswith(HOME):
                self.frames.add(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
            frame = frame.f_back

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            self.calls += 1
            self.files.add(frame.f_code.co_filename)


ended: list[Callable[[], None]] = []


@tool(requires_approval=True)
def refund(order_id: int) -> str:
    """Refund an order."""
    ended.pop()()
    return f"order {order_id} is refunded"


def desk() -> Agent[Any, str]:
    """An agent that asks for one gated call, and then answers."""
    return Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("refund", {"order_id": 1042}), "Done."]),
        tools=[refund],
        store=MemoryStore(),
    )


def counted(agent: Agent[Any, str], at: Checkpoint | str) -> Way:
    """The way from `resume` to the body."""
    way = Way()
    ended.append(way.end)
    way.begin()
    agent.resume(at, approved=True)
    return way


def suspended(agent: Agent[Any, str]) -> Way:
    """The way from `invoke` to its return."""
    way = Way()
    way.begin()
    agent.invoke("Refund order 1042")
    sys.setprofile(None)
    return way


def ways() -> dict[str, Way]:
    """Each way, by its name."""
    agent = desk()
    first, second = (agent.invoke("Refund order 1042").checkpoint for _ in range(2))
    return dict(zip(GOALS, (counted(agent, first), counted(agent, second.id), suspended(agent)), strict=True))


def main() -> None:
    ways()
    found = ways()
    for name, way in found.items():
        calls, files = GOALS[name]
        aim = f"at most {calls}" + (f" in {files}" if files else "")
        print(f"{name:<48}{way.calls:5} calls in {len(way.files):2} files   ({aim})")
    print(f"{'frames of ours around the body':<48}{len(next(iter(found.values())).frames):5}")


if __name__ == "__main__":
    main()
