"""A key-value store in memory, as the least that `KeyValueStore` needs, and one that fails where a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Values:
    """The four methods over a dict. `calls` are their names, in order; `before` is called with each name before it is done."""

    def __init__(self, data: dict[str, bytes] | None = None) -> None:
        self.data = data if data is not None else {}
        self.calls: list[str] = []
        self.before: Callable[[str, str], None] = lambda method, key: None
        self.after: Callable[[str, str], None] = lambda method, key: None
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        self._count("get", key)
        found = self.data.get(key)
        self.after("get", key)
        return found

    def set(self, key: str, value: bytes) -> None:
        self._count("set", key)
        self.data[key] = value
        self.after("set", key)

    def delete(self, key: str) -> None:
        self._count("delete", key)
        self.data.pop(key, None)
        self.after("delete", key)

    def compare_and_set(self, key: str, old: bytes | None, new: bytes) -> bool:
        self._count("compare_and_set", key)
        with self._lock:
            if done := self.data.get(key) == old:
                self.data[key] = new
        self.after("compare_and_set", key)
        return done

    def _count(self, method: str, key: str) -> None:
        self.calls.append(method)
        self.before(method, key)
