"""What runs until it is ended, as a context: `with` begins it, and ends it whatever happens inside."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Started:
    """Has `start` and `stop`, and is a context of both."""

    def start(self) -> Self:
        """Begin, and return this object."""
        raise NotImplementedError

    def stop(self) -> None:
        """End, and wait until it is over."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Connected:
    """Has `connect` and `close`, and is a context of both."""

    def connect(self) -> None:
        """Open the connection."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
