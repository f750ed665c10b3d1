"""The data of one tenant in a key-value store: one root that is changed by compare-and-set, and values that never change.

The **root** is the truth. It has the latest changes, and the top of a tree (`tree.py`) with all others; when the changes grow long,
a write moves them into the tree. Long texts are values of their own. A write first sets what is new, each under a key that nothing
else has, and then puts another root in place of the one it has read. So all of it becomes true at once or never, however many records
it changes, and whoever writes at the same time is found out: the compare-and-set fails, and the write is judged anew on what stands
there by then. Each round means that somebody else got on.

What a write leaves behind is deleted after it. A reader that still wants it begins again at the new root. A crash between the steps
leaves values that no root names: they cost room, and nothing else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, TypeVar

from phronomy.errors import StoreError
from phronomy.foundation.ids import new_id
from phronomy.stores.key_value.tree import LAST, Change, Key, Node, Rewriting, Tree, Value, json_of

T = TypeVar("T")

_log = logging.getLogger("phronomy")

FORMAT: Final = 2
"""The version of what the values hold. 1: the first. 2: rows leave out what follows from others, which a release of 1 cannot read."""

_READ: Final = (1, FORMAT)
"""The versions that are read as they are; the next write makes this one of them."""

_INLINE: Final = 1_000
"""Characters of a text, above which it is a value of its own: the root and the nodes are written again and again, and it once."""

_MOST: Final = 32_000
"""Characters of the changes in a root, above which they are moved into the tree."""

_NODES: Final = 1_000
"""Nodes that a process keeps in memory. They never change, so what it has read once is right for as long as the root names it."""

_COMMITS: Final = 32
"""Writes that the root names, so that a writer whose answer was lost learns whether it has written."""


class KeyValue(Protocol):
    """A key-value store: the four methods that `KeyValueStore` needs. Each is atomic, and safe to call from any thread.

    Keys are text: letters, digits and `/=%._~-`, 150 characters at most. Values are bytes. After `set` or
    `compare_and_set` has returned, every process reads the new value: a replica that lags behind will not do. An
    exception means that the call may have worked or not.
    """

    def get(self, key: str, /) -> bytes | None:
        """Return the value under this key, or None if there is none."""
        ...

    def set(self, key: str, value: bytes, /) -> None:
        """Put a value under this key, whatever was there."""
        ...

    def delete(self, key: str, /) -> None:
        """Delete the value under this key, if there is one."""
        ...

    def compare_and_set(self, key: str, old: bytes | None, new: bytes, /) -> bool:
        """Put `new` under this key if `old` is there now (None: nothing). Return whether it was put there."""
        ...


class _Missing(Exception):
    """A value that the root names is not there: somebody has written since, and deleted it."""


@dataclass(frozen=True, slots=True)
class Root:
    """What stands under the one key of a tenant that is changed. `raw` is its text as it was read, None if there is none.

    `commits` are the last writes, `number` is the last number that was given out, and `latest` are the changes that are
    not in the tree under `top`.
    """

    raw: bytes | None = None
    commits: tuple[str, ...] = ()
    number: int = 0
    top: str | None = None
    latest: dict[Key, Value | None] = field(default_factory=dict)

    def text(self) -> str:
        """The root as text."""
        return json_of([FORMAT, self.commits, self.number, self.top, list(self.latest.items())])

    @classmethod
    def of(cls, raw: bytes) -> Root:
        """The root in a value. Raises `StoreError`."""
        try:
            version, *rest = json.loads(raw)
            if version not in _READ:
                raise StoreError(
                    f"the data in this key-value store have format {version!r}, and this release reads {FORMAT}: use a newer one"
                )
            commits, number, top, latest = rest
            return cls(raw, tuple(commits), number, top, {tuple(key): value for key, value in latest})
        except (ValueError, TypeError):
            raise damaged() from None


class Books:
    """The data of one tenant. All keys begin with `space`. `nodes` are the nodes that this process has read."""

    def __init__(self, kv: KeyValue, space: str, nodes: dict[str, Node]) -> None:
        self._kv = kv
        self._space = space
        self._nodes = nodes
        self._last = Root()

    def read(self, work: Callable[[View], T]) -> T:
        """What `work` gives, which reads alone."""
        while True:
            root = self._root()
            try:
                return work(View(root, self))
            except _Missing:
                if not self.has_moved(root):
                    raise damaged() from None

    def write(self, work: Callable[[View], T]) -> T:
        """What `work` gives, once all its changes are written. It is called again for each time that somebody else was first."""
        while True:
            root = self._root()
            view = View(root, self)
            try:
                found = work(view)
                if not view.changes or self._commit(view):
                    return found
            except _Missing:
                if not self.has_moved(root):
                    raise damaged() from None

    def _commit(self, view: View) -> bool:
        """Put the changes of a view in place. False if somebody else was first; nothing was changed then."""
        root = view.root
        commit = new_id("w")
        after = replace(
            root, commits=(*root.commits, commit)[-_COMMITS:], number=view.number, latest=root.latest | view.changes
        )
        made, left = dict(view.texts), list(view.left)
        text = after.text()
        if len(text) > _MOST:
            rewriting = Rewriting(self.node, self.new_key)
            top = rewriting.top(root.top, sorted(after.latest.items(), key=lambda change: change[0]))
            after = replace(after, top=top, latest={})
            made |= {id: node.text() for id, node in rewriting.made.items()}
            left += rewriting.left
            text = after.text()
        new = encoded(text)
        for key, text in made.items():
            self._set(key, encoded(text))
        fate = self._put(root, new, commit)
        if fate == "put":
            self._delete(left)
        elif fate == "refused":
            # Somebody was first, so no root will ever name what was set.
            self._delete(made)
        return fate == "put"

    def new_key(self) -> str:
        """A key that nothing has."""
        return f"{self._space}{new_id('v')}"

    def node(self, key: str) -> Node:
        """The node under a key."""
        if (found := self._nodes.get(key)) is None:
            try:
                found = Node.of(self.text(key))
            except (ValueError, TypeError):
                raise damaged() from None
            if len(self._nodes) >= _NODES:
                self._nodes.clear()
            self._nodes[key] = found
        return found

    def text(self, key: str) -> str:
        """The text under a key. Raises `UnicodeDecodeError` for bytes that are none."""
        if (found := self._get(key)) is None:
            raise _Missing
        return found.decode()

    def _root(self) -> Root:
        raw = self._get(f"{self._space}root")
        last = self._last
        if raw != last.raw:
            last = self._last = Root.of(raw) if raw is not None else Root()
        return last

    def has_moved(self, root: Root) -> bool:
        """True if somebody has written since this root was read. If nobody has, a missing value is damage."""
        return self._get(f"{self._space}root") != root.raw

    def _put(self, root: Root, new: bytes, commit: str) -> Literal["put", "refused", "unknown"]:
        """Put a root in place of the one that was read, and say what became of it."""
        try:
            done = self._kv.compare_and_set(f"{self._space}root", root.raw, new)
        except Exception as error:
            # Its answer was lost, so whether it has written is asked. If it has not, it may yet: nothing is deleted then, and
            # nothing is tried again.
            if commit in self._root().commits:
                return "put"
            raise failed("compare_and_set", error) from None
        # What returns nothing has not said that it compared.
        if not isinstance(done, bool):
            raise StoreError(f"compare_and_set of a key-value store returns True or False, not {type(done).__name__}")
        # A client that sends a call again, since its answer was lost, is told False for the second one: the first has written.
        if done or commit in (commits := self._root().commits):
            return "put"
        # After so many writes that the root does not name the one that was read, nobody can tell.
        is_told = len(commits) < _COMMITS or any(each in commits for each in root.commits[-1:])
        return "refused" if is_told else "unknown"

    def _get(self, key: str) -> bytes | None:
        try:
            found = self._kv.get(key)
        except Exception as error:
            raise failed("get", error) from None
        if found is not None and not isinstance(found, bytes):
            raise StoreError(f"get of a key-value store returns bytes or None, not {type(found).__name__}")
        return found

    def _set(self, key: str, value: bytes) -> None:
        try:
            self._kv.set(key, value)
        except Exception as error:
            raise failed("set", error) from None

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._nodes.pop(key, None)
            try:
                self._kv.delete(key)
            except Exception as error:
                # The write is true by now. What stays costs room alone, and to raise here would say that it failed.
                _log.warning("a value of a key-value store could not be deleted, and stays: %s", type(error).__name__)


class View:
    """The data of a tenant at one moment, and what a writer changes in it."""

    def __init__(self, root: Root, books: Books) -> None:
        self.root = root
        self.number: int = root.number
        self.changes: dict[Key, Value | None] = {}
        self.texts: dict[str, str] = {}
        self.left: list[str] = []
        self._books = books
        self._tree = Tree(root.top, books.node)

    def get(self, *key: object) -> Value | None:
        """The value under a key, or None."""
        for changes in (self.changes, self.root.latest):
            if key in changes:
                return changes[key]
        return self._tree.get(key)

    def span(
        self, *table: object, low: Sequence[object] = (), high: Sequence[object] = (LAST,), backwards: bool = False
    ) -> Iterator[tuple[Key, Value]]:
        """The keys that begin with `table` and go on from `low` and before `high`, in their order, with their values."""
        first, end = (*table, *low), (*table, *high)
        changes = self.root.latest | self.changes
        mine = sorted(((key, changes[key]) for key in changes if first <= key < end), reverse=backwards)
        return _merged(mine, self._tree.span(first, end, backwards=backwards), backwards)

    def put(self, key: Key, value: Value) -> None:
        """Write a value."""
        self.changes[key] = value

    def drop(self, *key: object) -> None:
        """Delete a value."""
        self.changes[key] = None

    def next_number(self) -> int:
        """A number that no other record of the tenant has."""
        self.number += 1
        return self.number

    def kept(self, text: str) -> str | list[str]:
        """What stands for a text in a value: the text, or a list with the key that it is under."""
        if len(text) <= _INLINE:
            return text
        key = self._books.new_key()
        self.texts[key] = text
        return [key]

    def read(self, kept: object) -> str | None:
        """The text that `kept` stands for. None if that is damaged: the row that names it says so."""
        if isinstance(kept, str):
            return kept
        if (key := _key_in(kept)) is None:
            return None
        try:
            return self.texts.get(key) or self._books.text(key)
        except _Missing:
            if self._books.has_moved(self.root):
                raise
            return None
        except UnicodeDecodeError:
            return None

    def leave(self, kept: object) -> None:
        """Have the text that `kept` stands for deleted, once the changes are written."""
        if (key := _key_in(kept)) is not None:
            self.left.append(key)


def _merged(
    changes: Sequence[Change], stored: Iterator[tuple[Key, Value]], backwards: bool
) -> Iterator[tuple[Key, Value]]:
    """Both, in one order; of a key that both have, the change."""
    at = 0
    for key, value in stored:
        while at < len(changes) and (changes[at][0] > key if backwards else changes[at][0] < key):
            if (new := changes[at][1]) is not None:
                yield changes[at][0], new
            at += 1
        if at < len(changes) and changes[at][0] == key:
            continue
        yield key, value
    for key, changed in changes[at:]:
        if changed is not None:
            yield key, changed


def _key_in(kept: object) -> str | None:
    """The key of the value that stands for a text; None if the text stands there itself, or something else."""
    return kept[0] if isinstance(kept, list) and len(kept) == 1 and isinstance(kept[0], str) else None


def encoded(text: str) -> bytes:
    """The text as UTF-8. Raises `StoreError` for one that has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise StoreError("text with a lone surrogate cannot be stored") from None


def damaged() -> StoreError:
    """The error for a value that is missing, or is not what this store has written."""
    return StoreError("what the key-value store holds for this store cannot be read: it is damaged")


def failed(method: str, error: Exception) -> StoreError:
    """The error for a method of the key-value store that raised."""
    # By its kind alone: the message of a driver may quote its URL, and so a password.
    return StoreError(f"{method} of the key-value store raised {type(error).__name__}: the last write may be missing")
