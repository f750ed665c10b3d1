"""Invitations: links by which somebody tells a bot who they are. Telegram lets a bot write to nobody who has not written to it first.

A link, `https://t.me/BOT?start=SECRET`, has Telegram send `/start SECRET` in the name of the person who presses Start. Whoever does so
first is known as the person whom the link is for. So a link counts once, for a time, and only in a chat with the bot alone.
https://core.telegram.org/bots/features#deep-linking

The store has the hash of the secret. The link is bound to an account first, and then the account to the person: if a process dies
between the two, the same account can try again, and no other. Once both are done, the link does nothing, also if the alias is removed.

Documents of invitations, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from phronomy.chat.channel import Channel, Said
from phronomy.chat.http import Response
from phronomy.errors import ConfigurationError, PersonExists, UnknownPerson
from phronomy.foundation.checks import is_number
from phronomy.foundation.json_text import JsonError, parse
from phronomy.foundation.quoting import kept_id, quoted, quoted_id
from phronomy.foundation.suspicious_letters import escaped
from phronomy.people import StoreDirectory
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

_log = logging.getLogger("phronomy")

KIND: Final = "telegram-invitation"
_VERSION: Final = 1
_KEPT: Final = 7 * 86_400.0
"""Seconds for which documents outlive their links, so that somebody who comes late hears why."""

_START: Final = re.compile(r"/start(?:@[A-Za-z0-9_]{1,64})? ([A-Za-z0-9_-]{43})\s*")
_OVER: Final = "This link does not count, or not any more. Ask for a new one."


class Invitations:
    """Makes links, and has those who follow them be known in the directory of the store. Without it, nobody is bound.

    `name` is that of the channel. Pass `answer` on: `ChatApprovals(..., listeners=[Invitations(store).answer])`. Raises
    `ConfigurationError`.
    """

    def __init__(self, store: Store, *, name: str = "telegram") -> None:
        if not isinstance(store, Store):
            raise ConfigurationError(f"store is a store of phronomy's, not {quoted(store)}")
        self._store = store
        self._name = name
        self._people = StoreDirectory(store)

    def __repr__(self) -> str:
        return f"Invitations({self._store!r}, name={self._name!r})"

    def issue(self, person: str, *, username: str, seconds: float = 86_400.0) -> str:
        """Make a link for the person with this id, which counts once, for so many `seconds`. `username` is that of the bot.

        Whoever follows it first can decide as this person: give it to nobody else. Raises `UnknownPerson`,
        `ConfigurationError` and `StoreError`.
        """
        if not is_number(seconds) or seconds <= 0:
            raise ConfigurationError(f"seconds is a number above 0, not {quoted(seconds)}")
        if self._people.get(person) is None:
            raise UnknownPerson(f"there is no person {quoted_id(person)}: add them first", id=kept_id(person))
        secret = secrets.token_urlsafe(32)
        until = self._store.clock() + seconds
        row = {"version": _VERSION, "channel": self._name, "person": person, "until": until, "by": None, "done": False}
        self._store.put_document(
            Document(kind=KIND, key=_key(secret), text=json.dumps(row, ensure_ascii=False), expires_at=until + _KEPT)
        )
        return f"https://t.me/{username}?start={secret}"

    def answer(self, channel: Channel, said: Said) -> Response | None:
        """Bind who follows a link; None for any other message. It is a `Listener`. Raises `StoreError`."""
        found = _START.fullmatch(said.text) if channel.name == self._name else None
        if found is None:
            return None
        # Others would read the link in a group, before it is spent.
        is_alone = said.alias == f"{self._name}:{said.to}"
        notice = self._bind(found[1], said.alias) if is_alone else "Follow the link in a chat with this bot alone."
        return channel.acknowledge(said, notice)

    def _bind(self, secret: str, alias: str) -> str:
        document = self._store.get_document(KIND, _key(secret))
        row = _read(document.text) if document is not None else None
        if document is None or row is None or row["channel"] != self._name or row["done"] is not False:
            return _OVER
        if self._store.clock() >= row["until"] or row["by"] not in (None, alias):
            return _OVER
        try:
            if row["by"] is None:
                row |= {"by": alias}
                document = self._store.put_document(replace(document, text=json.dumps(row, ensure_ascii=False)))
            person = self._people.add_alias(row["person"], alias)
        except Behind:
            return _OVER  # somebody has followed it at this moment
        except UnknownPerson:
            return _OVER
        except PersonExists as error:
            if error.alias is None:
                return "Somebody changes this person just now. Follow the link again."
            return "This account is known as somebody else already. Ask whoever runs this."
        with suppress(Behind):  # this account has followed it twice at this moment
            self._store.put_document(replace(document, text=json.dumps({**row, "done": True}, ensure_ascii=False)))
        _log.info(
            "%s: an invitation was followed, and %s is known by one more account", self._name, quoted_id(person.id)
        )
        return f"You are known here as {escaped(person.name or person.id)[:100]} now."


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(text: str) -> dict[str, Any] | None:
    """What a row says; None if it cannot be read."""
    try:
        row = parse(text)
    except JsonError:
        return None
    if not isinstance(row, dict) or row.get("version") != _VERSION:
        return None
    if not {"channel", "person", "until", "by", "done"} <= row.keys() or not is_number(row["until"]):
        return None
    return row
