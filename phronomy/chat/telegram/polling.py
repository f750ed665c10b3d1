"""Polling: this process asks Telegram for updates, for those without an address that Telegram can reach.

An update is confirmed by the next question, after it is handled. So what a process had not finished when it died comes again, to the
next one, and counts once like any other. Telegram gives updates to one process at a time, and to none while a webhook is set.
https://core.telegram.org/bots/api#getupdates
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from phronomy.chat.adapters import finish
from phronomy.chat.channel import ChannelError, RateLimited
from phronomy.chat.contexts import Connected
from phronomy.chat.http import Refused, Response
from phronomy.chat.telegram.api import UPDATES, WEBHOOK_IS_SET, BotRefused
from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_count
from phronomy.foundation.quoting import quoted

if TYPE_CHECKING:
    from phronomy.chat.approvals import ChatApprovals
    from phronomy.chat.telegram.telegram import Telegram

_log = logging.getLogger("phronomy")

_LONGEST: Final = 30.0
"""Seconds between two tries at most."""
_TRIES: Final = 20
"""So often is tried what cannot be handled, for some eight minutes: then it makes way for others."""


class Polling(Connected):
    """Asks Telegram for updates, in a thread of its own: `with Polling(approvals, telegram):`.

    `telegram` is one of the channels of `approvals`. A question stays open for `wait` seconds, 0 to 50, if there is nothing. Have one
    process do this for a bot. Raises `ConfigurationError`.
    """

    def __init__(self, approvals: ChatApprovals, telegram: Telegram, *, wait: int = 25) -> None:
        if not is_count(wait) or wait > 50:
            raise ConfigurationError(f"wait is a number of seconds from 0 to 50, not {quoted(wait)}")
        self._approvals = approvals
        self._telegram = telegram
        self._wait = wait
        self._offset: int | None = None
        self._tries = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"Polling({self._telegram!r})"

    def connect(self) -> None:
        """Look whether Telegram gives updates, begin to ask for them, and return.

        Raises `ConfigurationError` if a webhook is set, and `ChannelError`.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        try:
            self._ask(0, limit=1)
        except BotRefused as error:
            if error.why == WEBHOOK_IS_SET:
                raise ConfigurationError(
                    "a webhook is set for this bot, and Telegram gives updates to one of the two:"
                    " take it away with `phronomy telegram webhook --delete`, or leave Polling out"
                ) from None
            raise
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name="phronomy-telegram", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Confirm what is handled, and stop."""
        self._stop.set()
        thread, self._thread = self._thread, None
        while thread is not None and thread.is_alive():
            self._confirm()  # Telegram ends the question that is open when it gets another one
            thread.join(1.0)
        if thread is not None:
            self._confirm()

    def run_once(self, *, wait: int = 0) -> int:
        """Handle the updates that are there, or that come within `wait` seconds, and return how many. Raises `ChannelError`."""
        handled = 0
        for update in self._ask(wait):
            if not self._handle(update):
                break
            handled += 1
        return handled

    def _confirm(self) -> None:
        try:
            self._ask(0, limit=1)
        except ChannelError as error:  # what is not confirmed comes again
            _log.info("%s: %s", self._telegram.name, error)

    def _run(self, stop: threading.Event) -> None:
        failed = 0
        while not stop.is_set():
            pause = 0.0
            try:
                self.run_once(wait=self._wait)
                failed = 0
                if self._tries:
                    pause = min(2.0 ** min(self._tries - 1, 10), _LONGEST)
            except RateLimited as error:
                pause = error.seconds
            except Exception as error:
                failed += 1
                pause = min(2.0 ** min(failed - 1, 10), _LONGEST)
                if not stop.is_set():
                    said = error if isinstance(error, ChannelError) else type(error).__name__
                    _log.error("%s gives no updates: %s", self._telegram.name, said)
            if pause:
                stop.wait(pause)

    def _ask(self, wait: int, *, limit: int | None = None) -> list[Any]:
        found = self._telegram.api.call(
            "getUpdates", seconds=wait + 10.0, timeout=wait, offset=self._offset, limit=limit, allowed_updates=UPDATES
        )
        return found if isinstance(found, list) else []

    def _handle(self, update: Any) -> bool:
        """Handle one update; whether to go on to the next."""
        response = self._response(update)
        if response.status >= 500:
            self._tries += 1
            if self._tries < _TRIES:
                return False  # it comes again
            _log.error("%s: an update could not be handled, and is let go", self._telegram.name)
        else:
            finish(response)
        self._tries = 0
        number = update.get("update_id") if isinstance(update, dict) else None
        if type(number) is int:
            self._offset = number + 1
        return True

    def _response(self, update: Any) -> Response:
        try:
            received = self._telegram.read(update)
        except Refused:
            _log.warning("an update of %s could not be read", self._telegram.name)
            return Response()
        if isinstance(received, Response):
            return received
        return self._approvals.answer(self._telegram.name, received)
