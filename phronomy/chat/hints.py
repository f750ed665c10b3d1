"""Hints in the log about a set-up that is wrong: without them only the platform hears of it.

Anybody can send requests, so each hint is given at most once in some minutes, and quotes nothing that was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from phronomy.chat.http import Refused

_log = logging.getLogger("phronomy")

SELDOM: Final = 300.0
"""Seconds between two hints of a kind about a channel."""


class Hints:
    """What a process says of its set-up, by the clock of its store."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}

    def refused(self, channel: str, error: Refused) -> None:
        """A channel does not believe that a request comes from its platform."""
        if error.status == 401 and self._is_due("refused", channel):
            check = f": check {error.check}" if error.check else ""
            _log.warning(
                "%s has refused a request: %s. If the platform has sent it, the set-up is wrong%s",
                channel,
                error,
                check,
            )

    def no_channel(self, names: Iterable[str]) -> None:
        """A request came to a path that is that of no channel."""
        if self._is_due("path", ""):
            _log.warning(
                "a request came to a path that does not end with the name of a channel: %s", ", ".join(sorted(names))
            )

    def no_bot(self, channel: str) -> None:
        """Somebody has written to a bot, and this process has none."""
        if self._is_due("bot", channel):
            _log.warning(
                "a message to the bot of %s was dropped: this process has no ChatBot. Make one in each process that takes messages",
                channel,
            )

    def _is_due(self, kind: str, channel: str) -> bool:
        now, before = self._clock(), self._said.get((kind, channel))
        if before is not None and abs(now - before) < SELDOM:
            return False
        self._said[(kind, channel)] = now
        return True
