"""The edges, routes and joins of a graph: which nodes follow a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from phronomy.concurrency.workers import in_either
from phronomy.errors import GraphError, NodeFailed
from phronomy.foundation.cached_property import cached
from phronomy.foundation.checks import is_async, is_series
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, canonical
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.signals import END, START, Send


@dataclass(frozen=True, kw_only=True)
class Route:
    """A function of the state that says where to go on. `targets` are the nodes that it may name, by what it returns for each."""

    path: Callable[[Any], object]
    is_async: bool
    targets: Mapping[Any, str]
    is_open: bool


class Going(NamedTuple):
    """The targets of a wave: nodes, and single runs of nodes with their arguments."""

    nodes: tuple[str, ...]
    sends: tuple[Send, ...]


@dataclass(frozen=True, kw_only=True)
class Routes:
    """The edges of a graph, from and to the names of its nodes."""

    nodes: tuple[str, ...]
    edges: Mapping[str, tuple[str, ...]]
    joins: tuple[tuple[tuple[str, ...], str], ...] = ()
    routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)

    def is_routed(self, node: str) -> bool:
        """Whether a function has a say in where to go on after this node."""
        return bool(self.routes.get(node))

    @property
    def async_route(self) -> str | None:
        """The first route that a sync call cannot take, for an error; None if there is none."""
        for source, routes in self.routes.items():
            if any(route.is_async for route in routes):
                return f"the route after {source!r}"
        return None

    def after(self, node: str, read: Callable[[], object]) -> list[str | Send]:
        """Gives the targets after a node; `read` gives the state as the node left it. Raises `NodeFailed` for what a route does."""
        found: list[str | Send] = list(self.edges.get(node, ()))
        for route in self.routes.get(node, ()):
            try:
                answer = route.path(read())
            except Exception as error:
                raise make_failure(node, f"its route raised {type(error).__name__}") from error
            found += self._meant(node, route, answer)
        return found

    async def aafter(self, node: str, read: Callable[[], object]) -> list[str | Send]:
        """As `after`."""
        found: list[str | Send] = list(self.edges.get(node, ()))
        for route in self.routes.get(node, ()):
            try:
                answer = await in_either(route.path, route.is_async, read())
            except Exception as error:
                raise make_failure(node, f"its route raised {type(error).__name__}") from error
            found += self._meant(node, route, answer)
        return found

    def _meant(self, node: str, route: Route, answer: object) -> list[str | Send]:
        found: list[str | Send] = []
        for each in answer if isinstance(answer, (list, tuple)) else (answer,):
            if isinstance(each, Send):
                if each.node not in self.nodes:
                    raise make_failure(
                        node, f"its route sends to {quoted_name(each.node)}, which is no node of the graph"
                    )
                try:
                    found.append(Send(each.node, canonical({"arg": each.arg})))  # as its call is given it
                except JsonError as error:
                    raise make_failure(
                        node, f"its route sends to {quoted_name(each.node)} what is no JSON: {error}"
                    ) from None
                continue
            try:
                found.append(route.targets[each])
            except (KeyError, TypeError):
                told = (
                    f" {each[:80]!r}"
                    if isinstance(each, str)
                    else f" {each!r}"
                    if isinstance(each, (bool, int))
                    else ""
                )
                close(each)
                raise make_failure(
                    node,
                    f"its route answered with {type(each).__name__}{told}, which names no target of it: they are"
                    f" {', '.join(map(str, route.targets))}",
                ) from None
        return found

    def going(self, targets: Iterable[str | Send]) -> Going:
        """Each node once, in the order in which the graph has them, then the single runs in theirs."""
        named, sends = set(), []
        for target in targets:
            if isinstance(target, Send):
                sends.append(target)
            elif target != END:
                named.add(target)
        return Going(self.in_order(named), tuple(sends))

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """These nodes, in the order in which the graph has them."""
        return tuple(sorted(names, key=self._places.__getitem__))

    @cached
    def _places(self) -> Mapping[str, int]:
        return {node: place for place, node in enumerate(self.nodes)}

    def joined(
        self, finished: Iterable[str], arrived: Mapping[str, Sequence[str]]
    ) -> tuple[list[str], dict[str, list[str]]]:
        """The nodes whose joins are complete now that these have finished, and what has arrived at the others so far."""
        finished = set(finished)
        complete: list[str] = []
        waiting: dict[str, list[str]] = {}
        for sources, target in self.joins:
            key = join_key(sources, target)
            there = {*arrived.get(key, ()), *finished.intersection(sources)}
            if there == set(sources):
                complete.append(target)
            elif there:
                waiting[key] = [node for node in sources if node in there]
        return complete, waiting

    def drawn(self) -> Iterator[tuple[str, str, str | None, bool]]:
        """The edges as they are drawn: source, target, what a route answers for it, and whether a route decides."""
        for source, ends in self.edges.items():
            yield from ((source, end, None, False) for end in ends)
        for sources, end in self.joins:
            yield from ((source, end, None, False) for source in sources)
        for source, routes in self.routes.items():
            for route in routes:
                for answer, end in route.targets.items():
                    yield source, end, None if answer == end else str(answer), True

    def reached(self, extra: Mapping[str, Sequence[str]]) -> set[str]:
        """The names that can be reached from START: by a join once all that it waits for can be. `extra` are further ways."""
        ahead = _targets((*self._single(), *_pairs(extra)))
        found = _spread((START,), ahead)
        while joined := {end for starts, end in self.joins if end not in found and found.issuperset(starts)}:
            found |= joined | _spread(joined, ahead)
        return found

    def leading(self, extra: Mapping[str, Sequence[str]]) -> set[str]:
        """The names from which END can be reached."""
        joins = ((source, end) for starts, end in self.joins for source in starts)
        return _spread((END,), _targets((end, start) for start, end in (*self._single(), *joins, *_pairs(extra))))

    def _single(self) -> Iterator[tuple[str, str]]:
        yield from _pairs(self.edges)
        for source, routes in self.routes.items():
            yield from ((source, end) for route in routes for end in route.targets.values())


def _pairs(ways: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    return ((source, end) for source, ends in ways.items() for end in ends)


def _targets(ways: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for source, end in ways:
        found.setdefault(source, set()).add(end)
    return found


def _spread(starts: Iterable[str], ahead: Mapping[str, set[str]]) -> set[str]:
    """All that can be reached from these names; they themselves only in a circle."""
    found: set[str] = set()
    todo = list(starts)
    while todo:
        new = ahead.get(todo.pop(), set()) - found
        todo += new
        found |= new
    return found


def close(answer: object) -> None:
    """Close a coroutine that nobody will await, which would otherwise be warned about."""
    if inspect.iscoroutine(answer):
        answer.close()


def join_key(sources: Sequence[str], target: str) -> str:
    """Under which what has arrived at a join is kept."""
    return f"{'+'.join(sources)}>{target}"


def make_failure(node: str, why: str) -> NodeFailed:
    """The error for a failed route of a node, or for a wrong output of a node."""
    place = "the beginning" if node == START else f"node {node!r}"
    return NodeFailed(f"{place}: {why}; mend it and resume the checkpoint", failures={node: why})


def route_of(where: str, nodes: Sequence[str], path: Callable[[Any], object], path_map: Any) -> Route:
    """A route, and the nodes that it may lead to. Raises `GraphError`."""
    listed = _listed(path) if path_map is None else ()
    if isinstance(path_map, Mapping):
        targets = dict(path_map)
    elif path_map is not None and not is_series(path_map):
        raise GraphError(f"{where}: path_map is a mapping to names of nodes, or a list of them")
    else:
        names = (listed or (*nodes, END)) if path_map is None else tuple(path_map)
        targets = {name if isinstance(name, str) else place: name for place, name in enumerate(names)}
    for name in targets.values():
        if not isinstance(name, str):
            raise GraphError(f"{where} leads to names of nodes, not to {type(name).__name__}")
    if not targets:
        raise GraphError(f"{where} leads nowhere: name a node or END in path_map")
    return Route(path=path, is_async=is_async(path), targets=targets, is_open=path_map is None and not listed)


def _listed(path: Callable[[Any], object]) -> tuple[str, ...]:
    """The names in the return type of a route, if it lists them."""
    while isinstance(path, partial):
        path = path.func
    try:
        hint = get_type_hints(path if inspect.isroutine(path) else type(path).__call__).get("return")
    except Exception:  # a hint that cannot be resolved lists nothing
        return ()
    names: list[str] = []
    todo: list[object] = [hint]
    while todo:
        each = todo.pop(0)
        if get_origin(each) is Literal:
            names += [name for name in get_args(each) if isinstance(name, str)]
        elif get_origin(each) is not None:
            todo += get_args(each)
    return tuple(names)
