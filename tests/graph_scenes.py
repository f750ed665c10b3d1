"""A works of nodes over any kind of database: what the tests of graphs build, drive by both drivers, and look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any

import pytest
from drivers import Driver
from places import Place
from pydantic import BaseModel

from phronomy import Approve, Checkpoint, Reject, Respond, Result
from phronomy.graph import END, START, Graph, StateGraph, add, append, merge


class Job(BaseModel):
    """A state with a channel of each kind."""

    log: Annotated[list[str], append] = []
    results: Annotated[dict[str, str], merge] = {}
    count: Annotated[int, add] = 0
    plan: str = ""


class Works:
    """Each thing that is done is done by another process: another store, and a graph that is built anew by `draw`.

    What nodes did, and what they saw, outlives them all.
    """

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.done: list[str] = []
        self.seen: dict[str, Any] = {}
        self.later = 0.0
        self.options: dict[str, Any] = {}
        self._tried: Any = None
        self._trying = False
        self.draw: Callable[[], StateGraph[Any]] = lambda: self.chain("a")

    # What it is built of

    def node(self, name: str, body: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
        """A node that notes that it ran and what it saw, and logs its name, or does what `body` does."""

        def run(state: Any) -> Any:
            self.done.append(name)
            self.seen[name] = state
            return {"log": [name]} if body is None else body(state)

        return self.driver.function(run)

    def nodes(self, *names: str, state: type = Job, **options: Mapping[str, Any]) -> StateGraph[Any]:
        """A graph of such nodes, without edges; `options` are those of a node, by its name."""
        graph: StateGraph[Any] = StateGraph(state, name="works")
        for name in names:
            graph.add_node(name, self.node(name), **options.get(name, {}))  # type: ignore[typeddict-item]
        return graph

    def chain(self, *names: str, **options: Mapping[str, Any]) -> StateGraph[Any]:
        """One after the other."""
        return linked(self.nodes(*names, **options), START, *names, END)

    def fan(self, *names: str, then: str = "last", **options: Mapping[str, Any]) -> StateGraph[Any]:
        """All side by side, joined by `then`."""
        graph = self.nodes(*names, then, **options)
        for name in names:
            graph.add_edge(START, name)
        return graph.add_edge(names, then).add_edge(then, END)

    # What is done

    def store(self, **options: Any) -> Any:
        self._tried = None
        self.place.close()  # one process at a time, unless a test opens more by itself
        return self.beside(**options)

    def beside(self, **options: Any) -> Any:
        """A store that is opened while others are open."""
        return self.place.open(clock=lambda: time.time() + self.later, **options)

    def graph(self, **options: Any) -> Graph[Any, Any]:
        """The graph as another process makes it."""
        made = {**self.options, **options}
        if self._trying:
            made.setdefault("store", self._tried)
        return self.draw().compile(**made, **({} if "store" in made else {"store": self.store()}))

    def refused(self, act: Callable[[], Any], errors: tuple[type[BaseException], ...]) -> Any:
        """That `act` is refused with one of these errors, and nothing has happened. What is tried is tried by one process."""
        self._tried = self._tried or self.store()
        self._tried.count()  # what a store sets up when it is first used is there
        before, done = self.rows(), list(self.done)
        self._trying = True
        try:
            with pytest.raises(errors) as caught:
                act()
        finally:
            self._trying = False
        assert (self.rows(), self.done) == (before, done)
        return caught.value

    def invoke(self, input: Any = None, **options: Any) -> Result[Any]:
        return self.driver.invoke(self.graph(), {} if input is None else input, **options)  # type: ignore[arg-type]

    def resume(self, checkpoint: Checkpoint | str, **options: Any) -> Result[Any]:
        return self.driver.resume(self.graph(), checkpoint, **options)  # type: ignore[arg-type]

    def answer(self, checkpoint: Checkpoint, *answers: Any, **options: Any) -> Result[Any]:
        """Resume with an answer to each of the first that wait, in their order."""
        decisions = {item.id: answer for item, answer in zip(checkpoint.pending, answers, strict=False)}
        return self.resume(checkpoint, decisions=decisions, **options)

    def approve(self, checkpoint: Checkpoint | str) -> Result[Any]:
        return self.resume(checkpoint, approved=True)

    def recover(self, run: Checkpoint | str) -> Result[Any]:
        return self.driver.recover(self.graph(), run)  # type: ignore[arg-type]

    def cancel(self, run: Checkpoint | str, **options: Any) -> Result[Any]:
        return self.driver.cancel(self.graph(), run, **options)  # type: ignore[arg-type]

    def fork(self, checkpoint: Checkpoint | str, **options: Any) -> Checkpoint:
        return self.driver.fork(self.graph(), checkpoint, **options)  # type: ignore[arg-type]

    # What is to be seen

    def stop(self, at: Result[Any] | Checkpoint) -> Any:
        """Where the run stands."""
        return self.graph().stop_of(at if isinstance(at, Checkpoint) else at.checkpoint)

    def state(self, at: Result[Any] | Checkpoint) -> Any:
        return self.graph().state_of(at if isinstance(at, Checkpoint) else at.checkpoint)

    def rows(self) -> str:
        return self.place.text()

    def branch(self, branch_id: str) -> list[tuple[Any, ...]]:
        """What stands in the log of a branch, byte for byte."""
        entries = self.store().lineage(branch_id=branch_id).entries
        return [(each.seq, each.path, each.checkpoint_id, each.body) for each in entries]


def linked(graph: StateGraph[Any], *names: str) -> StateGraph[Any]:
    """The graph with an edge from each of these to the next."""
    for start, end in pairwise(names):
        graph.add_edge(start, end)
    return graph


def asked(at: Result[Any] | Checkpoint) -> list[tuple[str, str, str]]:
    """What waits: its path, its node or tool, and why."""
    checkpoint = at if isinstance(at, Checkpoint) else at.checkpoint
    return [(item.path, item.tool_name, item.why) for item in checkpoint.pending]


def posted(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint after a trip as text."""
    return Checkpoint.model_validate_json(checkpoint.model_dump_json())


def refused(desk: Works, act: Callable[[], Any], *errors: type[BaseException]) -> Any:
    """That `act` is refused with one of these errors, and nothing has happened; the error."""
    return desk.refused(act, errors)


def once(done: Iterable[str]) -> bool:
    """Whether nothing was done twice."""
    found = list(done)
    return len(found) == len(set(found))


YES, NO = Approve(), Reject()


def says(content: Any) -> Respond:
    """The human's answer."""
    return Respond(content=content)
