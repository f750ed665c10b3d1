"""A sorted map that is never changed in place: each write makes new nodes, and leaves the old ones as they are.

A node is one value of the key-value store, under a key that is made for it and never used again. A leaf has keys with values, a node
above it has the first key of each child. Whoever has the key of the top node has the whole map as it was at that moment, so a reader
sees no half of a write, and a writer changes any number of keys by putting another top in place.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

from phronomy.errors import StoreError

Key: TypeAlias = tuple[Any, ...]
"""The name of a table, and then texts and numbers: keys of one table have the same kinds in the same places."""

Value: TypeAlias = list[Any]
"""What stands under a key: texts, numbers, nulls, and lists of these."""

Change: TypeAlias = tuple[Key, Value | None]
"""A key with its new value; None deletes it."""

# A node is read and written as a whole, so a large one costs each write; a small one makes the way to a leaf longer.
_MOST: Final = 8_000
"""Characters of a node, above which it is split."""

_key = itemgetter(0)


class _Last:
    """Greater than every part of a key."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return True


LAST: Final = _Last()
"""After every text and every number, as a part of a key."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `items` are sorted pairs of a key and a value; with a `level` above 0, the value is the key of a child."""

    level: int
    items: Sequence[tuple[Key, Any]]

    def text(self) -> str:
        """The node as text."""
        return json_of([self.level, self.items])

    @classmethod
    def of(cls, text: str) -> Node:
        """The node in a text. Raises `ValueError` or `TypeError` for a text that is none."""
        level, items = json.loads(text)
        return cls(level, [(tuple(key), value) for key, value in items])


def json_of(value: object) -> str:
    """The value as JSON. Raises `StoreError` for a number that is not finite."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise StoreError("a time in a key-value store is a finite number of seconds") from None


class Tree:
    """The map under a top node, read through `load`. None as the top is the empty map."""

    def __init__(self, top: str | None, load: Callable[[str], Node]) -> None:
        self.top = top
        self._load = load

    def get(self, key: Key) -> Value | None:
        """The value under a key, or None."""
        if self.top is None:
            return None
        node = self._load(self.top)
        while node.level:
            node = self._load(node.items[max(0, bisect_right(node.items, key, key=_key) - 1)][1])
        at = bisect_left(node.items, key, key=_key)
        return node.items[at][1] if at < len(node.items) and node.items[at][0] == key else None

    def span(self, low: Key, high: Key, *, backwards: bool = False) -> Iterator[tuple[Key, Value]]:
        """The keys from `low` on and before `high`, in their order, with their values."""
        return self._span(self.top, low, high, backwards) if self.top is not None else iter(())

    def _span(self, id: str, low: Key, high: Key, backwards: bool) -> Iterator[tuple[Key, Any]]:
        node = self._load(id)
        # Of the children, the one whose first key is the last one before `low` may hold it as well.
        first = (
            max(0, bisect_right(node.items, low, key=_key) - 1)
            if node.level
            else bisect_left(node.items, low, key=_key)
        )
        found = node.items[first : bisect_left(node.items, high, key=_key)]
        found = found[::-1] if backwards else found
        if not node.level:
            yield from found
            return
        for _, child in found:
            yield from self._span(child, low, high, backwards)


class Rewriting:
    """One rewriting of a tree: the nodes that it makes, and those that it leaves behind."""

    def __init__(self, load: Callable[[str], Node], new_key: Callable[[], str]) -> None:
        self._load = load
        self._new_key = new_key
        self.made: dict[str, Node] = {}
        self.left: list[str] = []

    def top(self, top: str | None, changes: Sequence[Change]) -> str | None:
        """The top of the tree with these changes, which are sorted by key, each key once."""
        if top is None:
            level, items = 0, self._pieces(0, [change for change in changes if change[1] is not None])
        else:
            level, items = self._load(top).level, self._written(top, changes)
        while len(items) > 1:
            level += 1
            items = self._pieces(level, items)
        return self._sunk(items[0][1]) if items else None

    def _written(self, id: str, changes: Sequence[Change]) -> list[tuple[Key, Any]]:
        """What stands in place of a node: none, one or several of its level, each with its first key."""
        node = self._load(id)
        self.left.append(id)
        if not node.level:
            # As a dict: a change replaces what stands under its key.
            after = {**dict(node.items), **dict(changes)}
            return self._pieces(0, [(key, after[key]) for key in sorted(after) if after[key] is not None])
        items: list[tuple[Key, Any]] = []
        at = 0
        for number, (key, child) in enumerate(node.items, 1):
            # What comes before the first key belongs to the first child.
            end = bisect_left(changes, node.items[number][0], key=_key) if number < len(node.items) else len(changes)
            items += self._written(child, changes[at:end]) if end > at else [(key, child)]
            at = end
        return self._pieces(node.level, items)

    def _pieces(self, level: int, items: Sequence[tuple[Key, Any]]) -> list[tuple[Key, Any]]:
        """Make nodes of about the same size of these items."""
        if not items:
            return []
        ends = list(itertools.accumulate(len(json_of(item)) for item in items))
        # Above the leaves, two in each at least: the tree ends in one node at the top, however long the keys are.
        count = min(max(1, len(items) // 2) if level else len(items), -(-ends[-1] // _MOST))
        if level:
            sides = [len(items) * number // count for number in range(count + 1)]
            parts = [items[first:end] for first, end in itertools.pairwise(sides)]
        else:
            # By where an item ends: one that is long by itself has a leaf of its own.
            numbers = [(end - 1) * count // ends[-1] for end in ends]
            sides = [bisect_left(numbers, number) for number in range(count + 1)]
            parts = [items[first:end] for first, end in itertools.pairwise(sides) if end > first]
        return [self._node(Node(level, part)) for part in parts]

    def _node(self, node: Node) -> tuple[Key, str]:
        id = self._new_key()
        self.made[id] = node
        return node.items[0][0], id

    def _sunk(self, id: str) -> str:
        """The top without nodes that have one child alone, which deletions leave."""
        while True:
            node = self.made.get(id) or self._load(id)
            if not node.level or len(node.items) > 1:
                return id
            if self.made.pop(id, None) is None:
                self.left.append(id)
            id = node.items[0][1]
