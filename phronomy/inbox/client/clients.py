"""Clients of the inbox's API: for programs that list requests, show them elsewhere, and decide them in somebody's name.

A decision is sent under an idempotency key that is made for it and kept over its retries, so it is recorded once however
often the line breaks. What is decided is what was shown: the digest is that of the request that is passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal, Self, TypedDict, TypeVar

import httpx2
from pydantic import BaseModel
from typing_extensions import Unpack

from phronomy.errors import ConfigurationError
from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.client import asks
from phronomy.inbox.client.asks import AGAIN, Ask, EventLines, InboxEvent, Shown
from phronomy.inbox.client.runs import AsyncRunMethods, RunMethods
from phronomy.records.decisions import Then
from phronomy.records.grants import GrantScope

M = TypeVar("M", bound=BaseModel)

_LONGEST_PAUSE: Final = 30.0
_SILENCE: Final = 45.0
"""Seconds without a line after which a stream of events is taken to be dead: the server sends a comment every 15."""


class Wanted(TypedDict, total=False):
    """Which waiting requests are wanted. Ages are in seconds. `mine`: those that you may decide.

    `triggers`: also those that no person answers, as they wait for an event, a time or the end of another run.
    """

    state: Literal["pending", "expired"]
    tool: str
    agent: str
    thread: str
    run: str
    risk: str
    label: str
    requester: str
    mine: bool
    older_than: float
    newer_than: float
    expires_within: float
    text: str
    triggers: bool


class _Client:
    """What both clients have in common: the address, the token, and the patience."""

    def __init__(self, url: str, token: str | None, *, attempts: int, pause: float) -> None:
        self._url = asks.address(url)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        if attempts < 1:
            raise ConfigurationError("attempts is a number of tries, 1 or more")
        self._attempts = attempts
        self._pause = pause

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def _sent(self, ask: Ask[Any]) -> dict[str, Any]:
        """What is passed on to the HTTP client."""
        return {
            "method": ask.method,
            "url": self._url + ask.path,
            "params": ask.params or None,
            "content": ask.content(),
            "headers": {**self._headers, **ask.headers},
        }

    def _events(self, lines: EventLines) -> dict[str, Any]:
        headers = {**self._headers, "Accept": "text/event-stream"}
        if lines.last:
            headers["Last-Event-ID"] = lines.last
        return {
            "method": "GET",
            "url": f"{self._url}{asks.BASE}/events",
            "headers": headers,
            "timeout": httpx2.Timeout(_LONGEST_PAUSE, read=_SILENCE),
        }

    def _again(self, ask: Ask[Any], tries: int, response: httpx2.Response | None) -> float | None:
        """How many seconds to wait before the same is sent again; None: not at all."""
        if tries >= self._attempts:
            return None
        if response is not None:
            busy = response.status_code == 409 and "retry-after" in response.headers  # the first one is at work still
            if response.status_code not in AGAIN and not busy:
                return None
            told = response.headers.get("retry-after", "")
            if told.isascii() and told.isdigit():
                return min(float(told), _LONGEST_PAUSE)
        return min(self._pause * float(2 ** (tries - 1)), _LONGEST_PAUSE)

    def _read(self, ask: Ask[M], response: httpx2.Response) -> M:
        """The answer. Raises a phronomy error for a problem."""
        if not response.is_success:
            raise asks.error_of(response.status_code, response.content, response.headers, path=ask.path)
        return ask.answer.model_validate_json(response.content)


class InboxClient(RunMethods, _Client):
    """A client of the inbox at `url`, such as `https://example.org/inbox`, with an API token.

    A request is sent up to `attempts` times if no answer comes, or if the server asks for patience; the pause before the
    second time is `pause` seconds, and doubles. `timeout` is in seconds. `transport` and `headers` are for httpx2. Every method
    raises `Problem`, or the error of phronomy's that says the same: `UnknownPending`, `NotAnApprover`, `AlreadyVoted`,
    `RequestExpired`. Use it in a `with` block, or `close` it.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        attempts: int = 4,
        pause: float = 0.5,
        timeout: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(url, token, attempts=attempts, pause=pause)
        self._http = httpx2.Client(transport=transport, timeout=timeout, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, ask: Ask[M]) -> M:
        """Send a request that `phronomy.inbox.asks` has made, as often as it takes, and return the answer."""
        tries = 0
        while True:
            tries += 1
            response = None
            with suppress(httpx2.TransportError):
                response = self._http.request(**self._sent(ask))
            pause = self._again(ask, tries, response)
            if pause is None and response is None:
                raise asks.unreachable(self._url, ask, tries)
            if pause is None and response is not None:
                return self._read(ask, response)
            time.sleep(pause or 0.0)

    def _items(self, ask: Ask[Any]) -> Iterator[Any]:
        while True:
            page = self.send(ask)
            asks.tell_unread(page)
            yield from page.items
            if page.next is None:
                return
            ask = ask.after(page.next)

    def me(self) -> schemas.Me:
        """Who you are, and what you may do."""
        return self.send(asks.asked("/me", schemas.Me))

    def requests(
        self, *, order: Literal["oldest", "newest"] = "oldest", page: int = inputs.LIMIT, **wanted: Unpack[Wanted]
    ) -> Iterator[schemas.RequestRow]:
        """The requests that wait, read `page` at a time."""
        return self._items(asks.asked("/requests", schemas.RequestsPage, order=order, limit=page, **wanted))

    def count(self, **wanted: Unpack[Wanted]) -> schemas.Counted:
        """How many requests wait, up to 1,000."""
        return self.send(asks.asked("/requests/count", schemas.Counted, **wanted))

    def request(self, id: str) -> schemas.RequestFull:
        """A request, with everything that a person needs to decide it."""
        return self.send(asks.asked(f"/requests/{asks.part(id)}", schemas.RequestFull))

    def decision(self, id: str) -> schemas.DecisionView:
        """How a request stands: its votes, its decision, and what became of the call."""
        return self.send(asks.asked(f"/requests/{asks.part(id)}/decision", schemas.DecisionView))

    def approve(
        self, shown: Shown, *, metadata: Mapping[str, Any] | None = None, key: str | None = None
    ) -> schemas.DecisionView:
        """Approve a request as it was shown. `metadata`, a JSON object of at most 16 KB, is kept with the decision."""
        return self.send(asks.decision(shown, asks.body_of(shown, "approve", metadata=metadata), key=key))

    def edit(
        self,
        shown: Shown,
        args: Mapping[str, Any] | str,
        *,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> schemas.DecisionView:
        """Approve a request with other arguments: all of them, as an object or as JSON text."""
        return self.send(asks.decision(shown, asks.body_of(shown, "edit", args=args, metadata=metadata), key=key))

    def reject(
        self,
        shown: Shown,
        *,
        reason: str | None = None,
        then: Then = "continue",
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> schemas.DecisionView:
        """Reject a request. The model reads the reason."""
        return self.send(
            asks.decision(shown, asks.body_of(shown, "reject", reason=reason, then=then, metadata=metadata), key=key)
        )

    def respond(
        self, shown: Shown, content: Any, *, metadata: Mapping[str, Any] | None = None, key: str | None = None
    ) -> schemas.DecisionView:
        """Give a result in place of the call's: any JSON value."""
        return self.send(
            asks.decision(shown, asks.body_of(shown, "respond", content=content, metadata=metadata), key=key)
        )

    def skip(self, shown: Shown, *, key: str | None = None) -> schemas.DecisionView:
        """Skip what waits at a breakpoint."""
        return self.send(asks.decision(shown, asks.body_of(shown, "skip"), key=key))

    def decide_all(
        self,
        shown: Collection[Shown],
        answer: Literal["approve", "reject"],
        *,
        reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        atomic: bool = False,
        key: str | None = None,
    ) -> tuple[schemas.BatchResult, ...]:
        """Give one answer to several requests, up to 100 and none of a risky tool. With `atomic`, all are decided or none."""
        return self.send(asks.batch(shown, answer, reason=reason, metadata=metadata, atomic=atomic, key=key)).results

    def check(self, shown: Shown, args: Mapping[str, Any] | str) -> schemas.Checked:
        """What edited arguments come to. Nothing is changed."""
        return self.send(asks.check(shown, args))

    def sent(self, request: str, key: str) -> schemas.KeyView:
        """Whether a decision about the request with this id was recorded under a key, and what became of it."""
        return self.send(
            asks.asked(f"/requests/{asks.part(request)}/decision/by-key/{asks.part(key)}", schemas.KeyView)
        )

    def audit(
        self,
        *,
        request: str | None = None,
        run: str | None = None,
        thread: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page: int = inputs.MOST,
    ) -> Iterator[schemas.AuditRow]:
        """The audit trail, oldest first, read `page` at a time."""
        return self._items(asks.audit(request=request, run=run, thread=thread, since=since, until=until, page=page))

    def grants(
        self, *, agent: str | None = None, tool: str | None = None, all: bool = False
    ) -> tuple[schemas.GrantView, ...]:
        """The standing grants; with `all`, also those of the last week that are over."""
        return self.send(asks.asked("/grants", schemas.GrantsView, agent=agent, tool=tool, all=all)).items

    def grant(
        self,
        shown: Shown,
        *,
        scope: GrantScope = "run",
        exactly: bool = True,
        condition: str | None = None,
        until: datetime | None = None,
        uses: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> schemas.GrantView:
        """Give a standing grant for calls like the one that was shown. The request itself is not decided."""
        return self.send(
            asks.grant(
                shown,
                scope=scope,
                exactly=exactly,
                condition=condition,
                until=until,
                uses=uses,
                reason=reason,
                key=key,
            )
        )

    def sign_grant(self, grant: schemas.GrantView, *, key: str | None = None) -> schemas.GrantView:
        """Sign a grant as it was shown, as one more of those who give it: some approvals take several."""
        return self.send(asks.signature(grant, key=key))

    def revoke(self, grant: schemas.GrantView) -> schemas.GrantView:
        """Revoke a grant, if it is as it was shown."""
        return self.send(asks.revocation(grant))

    def events(self, *, after: str | None = None) -> Iterator[InboxEvent]:
        """What happens, until you stop: events that say what to look at again. It connects again by itself.

        `after` is the `id` of the last event that you have seen. Raises `Problem` if the server knows you no longer.
        """
        lines = EventLines(after)
        while True:
            lines.begin()
            try:
                with self._http.stream(**self._events(lines)) as response:
                    if response.status_code not in (200, *AGAIN):
                        response.read()
                        raise asks.error_of(response.status_code, response.content, response.headers, path="")
                    for line in response.iter_lines():
                        if (event := lines.take(line)) is not None:
                            yield event
            except httpx2.TransportError:
                pass
            time.sleep(lines.pause)


class AsyncInboxClient(AsyncRunMethods, _Client):
    """The twin of `InboxClient` for an event loop: use `async with`, `await` and `async for`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        attempts: int = 4,
        pause: float = 0.5,
        timeout: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(url, token, attempts=attempts, pause=pause)
        self._http = httpx2.AsyncClient(transport=transport, timeout=timeout, headers=headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, ask: Ask[M]) -> M:
        """Send a request that `phronomy.inbox.asks` has made, as often as it takes, and return the answer."""
        tries = 0
        while True:
            tries += 1
            response = None
            with suppress(httpx2.TransportError):
                response = await self._http.request(**self._sent(ask))
            pause = self._again(ask, tries, response)
            if pause is None and response is None:
                raise asks.unreachable(self._url, ask, tries)
            if pause is None and response is not None:
                return self._read(ask, response)
            await asyncio.sleep(pause or 0.0)

    async def _items(self, ask: Ask[Any]) -> AsyncIterator[Any]:
        while True:
            page = await self.send(ask)
            asks.tell_unread(page)
            for each in page.items:
                yield each
            if page.next is None:
                return
            ask = ask.after(page.next)

    async def me(self) -> schemas.Me:
        """Who you are, and what you may do."""
        return await self.send(asks.asked("/me", schemas.Me))

    def requests(
        self, *, order: Literal["oldest", "newest"] = "oldest", page: int = inputs.LIMIT, **wanted: Unpack[Wanted]
    ) -> AsyncIterator[schemas.RequestRow]:
        """The requests that wait, read `page` at a time."""
        return self._items(asks.asked("/requests", schemas.RequestsPage, order=order, limit=page, **wanted))

    async def count(self, **wanted: Unpack[Wanted]) -> schemas.Counted:
        """How many requests wait, up to 1,000."""
        return await self.send(asks.asked("/requests/count", schemas.Counted, **wanted))

    async def request(self, id: str) -> schemas.RequestFull:
        """A request, with everything that a person needs to decide it."""
        return await self.send(asks.asked(f"/requests/{asks.part(id)}", schemas.RequestFull))

    async def decision(self, id: str) -> schemas.DecisionView:
        """How a request stands: its votes, its decision, and what became of the call."""
        return await self.send(asks.asked(f"/requests/{asks.part(id)}/decision", schemas.DecisionView))

    async def approve(
        self, shown: Shown, *, metadata: Mapping[str, Any] | None = None, key: str | None = None
    ) -> schemas.DecisionView:
        """Approve a request as it was shown. `metadata`, a JSON object of at most 16 KB, is kept with the decision."""
        return await self.send(asks.decision(shown, asks.body_of(shown, "approve", metadata=metadata), key=key))

    async def edit(
        self,
        shown: Shown,
        args: Mapping[str, Any] | str,
        *,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> schemas.DecisionView:
        """Approve a request with other arguments: all of them, as an object or as JSON text."""
        return await self.send(asks.decision(shown, asks.body_of(shown, "edit", args=args, metadata=metadata), key=key))

    async def reject(
        self,
        shown: Shown,
        *,
        reason: str | None = None,
        then: Then = "continue",
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> schemas.DecisionView:
        """Reject a request. The model reads the reason."""
        return await self.send(
            asks.decision(shown, asks.body_of(shown, "reject", reason=reason, then=then, metadata=metadata), key=key)
        )

    async def respond(
        self, shown: Shown, content: Any, *, metadata: Mapping[str, Any] | None = None, key: str | None = None
    ) -> schemas.DecisionView:
        """Give a result in place of the call's: any JSON value."""
        return await self.send(
            asks.decision(shown, asks.body_of(shown, "respond", content=content, metadata=metadata), key=key)
        )

    async def skip(self, shown: Shown, *, key: str | None = None) -> schemas.DecisionView:
        """Skip what waits at a breakpoint."""
        return await self.send(asks.decision(shown, asks.body_of(shown, "skip"), key=key))

    async def decide_all(
        self,
        shown: Collection[Shown],
        answer: Literal["approve", "reject"],
        *,
        reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        atomic: bool = False,
        key: str | None = None,
    ) -> tuple[schemas.BatchResult, ...]:
        """Give one answer to several requests, up to 100 and none of a risky tool. With `atomic`, all are decided or none."""
        return (
            await self.send(asks.batch(shown, answer, reason=reason, metadata=metadata, atomic=atomic, key=key))
        ).results

    async def check(self, shown: Shown, args: Mapping[str, Any] | str) -> schemas.Checked:
        """What edited arguments come to. Nothing is changed."""
        return await self.send(asks.check(shown, args))

    async def sent(self, request: str, key: str) -> schemas.KeyView:
        """Whether a decision about the request with this id was recorded under a key, and what became of it."""
        return await self.send(
            asks.asked(f"/requests/{asks.part(request)}/decision/by-key/{asks.part(key)}", schemas.KeyView)
        )

    def audit(
        self,
        *,
        request: str | None = None,
        run: str | None = None,
        thread: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page: int = inputs.MOST,
    ) -> AsyncIterator[schemas.AuditRow]:
        """The audit trail, oldest first, read `page` at a time."""
        return self._items(asks.audit(request=request, run=run, thread=thread, since=since, until=until, page=page))

    async def grants(
        self, *, agent: str | None = None, tool: str | None = None, all: bool = False
    ) -> tuple[schemas.GrantView, ...]:
        """The standing grants; with `all`, also those of the last week that are over."""
        return (await self.send(asks.asked("/grants", schemas.GrantsView, agent=agent, tool=tool, all=all))).items

    async def grant(
        self,
        shown: Shown,
        *,
        scope: GrantScope = "run",
        exactly: bool = True,
        condition: str | None = None,
        until: datetime | None = None,
        uses: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> schemas.GrantView:
        """Give a standing grant for calls like the one that was shown. The request itself is not decided."""
        return await self.send(
            asks.grant(
                shown,
                scope=scope,
                exactly=exactly,
                condition=condition,
                until=until,
                uses=uses,
                reason=reason,
                key=key,
            )
        )

    async def sign_grant(self, grant: schemas.GrantView, *, key: str | None = None) -> schemas.GrantView:
        """Sign a grant as it was shown, as one more of those who give it: some approvals take several."""
        return await self.send(asks.signature(grant, key=key))

    async def revoke(self, grant: schemas.GrantView) -> schemas.GrantView:
        """Revoke a grant, if it is as it was shown."""
        return await self.send(asks.revocation(grant))

    async def events(self, *, after: str | None = None) -> AsyncIterator[InboxEvent]:
        """What happens, until you stop: events that say what to look at again. It connects again by itself.

        `after` is the `id` of the last event that you have seen. Raises `Problem` if the server knows you no longer.
        """
        lines = EventLines(after)
        while True:
            lines.begin()
            try:
                async with self._http.stream(**self._events(lines)) as response:
                    if response.status_code not in (200, *AGAIN):
                        await response.aread()
                        raise asks.error_of(response.status_code, response.content, response.headers, path="")
                    async for line in response.aiter_lines():
                        if (event := lines.take(line)) is not None:
                            yield event
            except httpx2.TransportError:
                pass
            await asyncio.sleep(lines.pause)
