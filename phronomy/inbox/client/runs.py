"""The methods of the clients that are about runs: listing, showing, starting and operating them, and their versions.

What is done to a run is what was shown: the digest is that of the operation, or of the checkpoint, that is passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel

from phronomy.inbox.api import inputs, run_schemas, schemas
from phronomy.inbox.client import asks
from phronomy.inbox.client.asks import Ask
from phronomy.stores.derived.triggering import Early
from phronomy.stores.rows import BranchStatus

M = TypeVar("M", bound=BaseModel)


class RunMethods(ABC):
    """The methods of `InboxClient` that are about runs."""

    @abstractmethod
    def send(self, ask: Ask[M]) -> M:
        """Send a request, and return the answer."""

    @abstractmethod
    def _items(self, ask: Ask[Any]) -> Iterator[Any]:
        """The items of all pages."""

    def runs(
        self,
        *,
        thread: str | None = None,
        agent: str | None = None,
        status: Collection[BranchStatus] = (),
        page: int = inputs.LIMIT,
    ) -> Iterator[schemas.RunRow]:
        """Runs and their forks, newest first, read `page` at a time."""
        return self._items(asks.runs(thread=thread, agent=agent, status=status, page=page))

    def run(self, id: str) -> schemas.RunFull:
        """A run, and how it stands."""
        return self.send(asks.asked(f"/runs/{asks.part(id)}", schemas.RunFull))

    def timeline(self, run_id: str, *, limit: int = inputs.MOST) -> schemas.TimelineView:
        """What happened in a run, without anything that was said."""
        return self.send(asks.asked(f"/runs/{asks.part(run_id)}/timeline", schemas.TimelineView, limit=limit))

    def messages(self, run_id: str, *, before: int | None = None, limit: int = inputs.LIMIT) -> schemas.MessagesView:
        """A part of the conversation of a run: the last messages, or those before a number."""
        path = f"/runs/{asks.part(run_id)}/messages"
        return self.send(asks.asked(path, schemas.MessagesView, before=before, limit=limit))

    def start(
        self, agent: str, input: str, *, thread: str | None = None, label: str | None = None, key: str | None = None
    ) -> schemas.RunFull:
        """Start a run of an agent of the server, and return it as it begins."""
        return self.send(asks.start(agent, input, thread=thread, label=label, key=key))

    def send_message(self, run_id: str, text: str, *, key: str | None = None) -> run_schemas.SentMessage:
        """Send a message to a run that waits or works, or to a fork of one, as `Store.send` does: it is stored once under its key."""
        return self.send(asks.message(run_id, text, key=key))

    def cancel(self, run_id: str, *, reason: str | None = None, key: str | None = None) -> schemas.RunFull:
        """End a run."""
        return self.send(asks.cancellation(run_id, reason=reason, key=key))

    def send_event(
        self,
        run_id: str,
        name: str,
        payload: Any = None,
        *,
        early: Early = "first",
        key: str | None = None,
    ) -> run_schemas.EventView:
        """Send an event from outside to a run, or to a fork of one, as `Store.send_event` does: it is recorded once under its key."""
        body = {"name": name, "payload": payload, "early": early}
        return self.send(asks.sent(f"/runs/{asks.part(run_id)}/events", run_schemas.EventView, body, key=key))

    def versions(self, run_id: str, *, before: int | None = None) -> run_schemas.VersionsView:
        """The checkpoints of a run, or of a fork of one, with the forks that leave it: the newest, or those before a number."""
        return self.send(asks.asked(f"/runs/{asks.part(run_id)}/versions", run_schemas.VersionsView, before=before))

    def checkpoint(
        self, run_id: str, checkpoint_id: str, *, before: int | None = None, limit: int = inputs.LIMIT
    ) -> run_schemas.CheckpointView:
        """A checkpoint of a run, with the end of its conversation or the part before a message, and what you could do there."""
        path = f"/runs/{asks.part(run_id)}/checkpoints/{asks.part(checkpoint_id)}"
        return self.send(asks.asked(path, run_schemas.CheckpointView, before=before, limit=limit))

    def diff(
        self, run_id: str, before: str, after: str, *, first: int = 0, limit: int = inputs.LIMIT
    ) -> run_schemas.DiffView:
        """What two checkpoints of a run differ in, from a number on."""
        path = f"/runs/{asks.part(run_id)}/diff"
        return self.send(asks.asked(path, run_schemas.DiffView, before=before, after=after, first=first, limit=limit))

    def operations(self, run_id: str) -> tuple[run_schemas.OperationOf, ...]:
        """What you could do to a run as it stands: pause it, end it, and a step from each breakpoint."""
        return self.send(asks.asked(f"/runs/{asks.part(run_id)}/operations", run_schemas.OperationsView)).items

    def pause(
        self, run_id: str, shown: run_schemas.OperationOf, *, reason: str | None = None, key: str | None = None
    ) -> schemas.RunFull:
        """Pause a run, by the operation as it was shown."""
        return self.send(
            asks.operation(f"/runs/{asks.part(run_id)}/pause", {"digest": shown.digest, "reason": reason}, key=key)
        )

    def step(
        self, run_id: str, shown: run_schemas.OperationOf, *, pace: inputs.StepPace = "step", key: str | None = None
    ) -> schemas.RunFull:
        """Let a breakpoint go on, to the next stop, by the operation as it was shown. It answers after two seconds at the latest."""
        body = {"request": shown.request, "digest": shown.digest, "pace": pace}
        return self.send(asks.operation(f"/runs/{asks.part(run_id)}/step", body, key=key))

    def fork(
        self,
        shown: run_schemas.CheckpointView,
        *,
        label: str | None = None,
        rerun: bool = False,
        key: str | None = None,
    ) -> schemas.RunFull:
        """Fork a run at a checkpoint as it was shown. With `rerun`, calls that have completed run again."""
        return self.send(asks.at_checkpoint(shown, "fork", {"label": label, "rerun": rerun}, key=key))

    def restore(
        self, shown: run_schemas.CheckpointView, *, accept_changes: bool = False, key: str | None = None
    ) -> schemas.RunFull:
        """Go back to a checkpoint as it was shown; with `accept_changes`, also where the agent has changed."""
        return self.send(asks.at_checkpoint(shown, "restore", {"accept_changes": accept_changes}, key=key))


class AsyncRunMethods(ABC):
    """The methods of `AsyncInboxClient` that are about runs."""

    @abstractmethod
    async def send(self, ask: Ask[M]) -> M:
        """Send a request, and return the answer."""

    @abstractmethod
    def _items(self, ask: Ask[Any]) -> AsyncIterator[Any]:
        """The items of all pages."""

    def runs(
        self,
        *,
        thread: str | None = None,
        agent: str | None = None,
        status: Collection[BranchStatus] = (),
        page: int = inputs.LIMIT,
    ) -> AsyncIterator[schemas.RunRow]:
        """Runs and their forks, newest first, read `page` at a time."""
        return self._items(asks.runs(thread=thread, agent=agent, status=status, page=page))

    async def run(self, id: str) -> schemas.RunFull:
        """A run, and how it stands."""
        return await self.send(asks.asked(f"/runs/{asks.part(id)}", schemas.RunFull))

    async def timeline(self, run_id: str, *, limit: int = inputs.MOST) -> schemas.TimelineView:
        """What happened in a run, without anything that was said."""
        return await self.send(asks.asked(f"/runs/{asks.part(run_id)}/timeline", schemas.TimelineView, limit=limit))

    async def messages(
        self, run_id: str, *, before: int | None = None, limit: int = inputs.LIMIT
    ) -> schemas.MessagesView:
        """A part of the conversation of a run: the last messages, or those before a number."""
        path = f"/runs/{asks.part(run_id)}/messages"
        return await self.send(asks.asked(path, schemas.MessagesView, before=before, limit=limit))

    async def start(
        self, agent: str, input: str, *, thread: str | None = None, label: str | None = None, key: str | None = None
    ) -> schemas.RunFull:
        """Start a run of an agent of the server, and return it as it begins."""
        return await self.send(asks.start(agent, input, thread=thread, label=label, key=key))

    async def send_message(self, run_id: str, text: str, *, key: str | None = None) -> run_schemas.SentMessage:
        """Send a message to a run that waits or works, or to a fork of one, as `Store.send` does: it is stored once under its key."""
        return await self.send(asks.message(run_id, text, key=key))

    async def cancel(self, run_id: str, *, reason: str | None = None, key: str | None = None) -> schemas.RunFull:
        """End a run."""
        return await self.send(asks.cancellation(run_id, reason=reason, key=key))

    async def send_event(
        self,
        run_id: str,
        name: str,
        payload: Any = None,
        *,
        early: Early = "first",
        key: str | None = None,
    ) -> run_schemas.EventView:
        """Send an event from outside to a run, or to a fork of one, as `Store.send_event` does: it is recorded once under its key."""
        body = {"name": name, "payload": payload, "early": early}
        return await self.send(asks.sent(f"/runs/{asks.part(run_id)}/events", run_schemas.EventView, body, key=key))

    async def versions(self, run_id: str, *, before: int | None = None) -> run_schemas.VersionsView:
        """The checkpoints of a run, or of a fork of one, with the forks that leave it: the newest, or those before a number."""
        return await self.send(
            asks.asked(f"/runs/{asks.part(run_id)}/versions", run_schemas.VersionsView, before=before)
        )

    async def checkpoint(
        self, run_id: str, checkpoint_id: str, *, before: int | None = None, limit: int = inputs.LIMIT
    ) -> run_schemas.CheckpointView:
        """A checkpoint of a run, with the end of its conversation or the part before a message, and what you could do there."""
        path = f"/runs/{asks.part(run_id)}/checkpoints/{asks.part(checkpoint_id)}"
        return await self.send(asks.asked(path, run_schemas.CheckpointView, before=before, limit=limit))

    async def diff(
        self, run_id: str, before: str, after: str, *, first: int = 0, limit: int = inputs.LIMIT
    ) -> run_schemas.DiffView:
        """What two checkpoints of a run differ in, from a number on."""
        path = f"/runs/{asks.part(run_id)}/diff"
        return await self.send(
            asks.asked(path, run_schemas.DiffView, before=before, after=after, first=first, limit=limit)
        )

    async def operations(self, run_id: str) -> tuple[run_schemas.OperationOf, ...]:
        """What you could do to a run as it stands: pause it, end it, and a step from each breakpoint."""
        return (await self.send(asks.asked(f"/runs/{asks.part(run_id)}/operations", run_schemas.OperationsView))).items

    async def pause(
        self, run_id: str, shown: run_schemas.OperationOf, *, reason: str | None = None, key: str | None = None
    ) -> schemas.RunFull:
        """Pause a run, by the operation as it was shown."""
        return await self.send(
            asks.operation(f"/runs/{asks.part(run_id)}/pause", {"digest": shown.digest, "reason": reason}, key=key)
        )

    async def step(
        self, run_id: str, shown: run_schemas.OperationOf, *, pace: inputs.StepPace = "step", key: str | None = None
    ) -> schemas.RunFull:
        """Let a breakpoint go on, to the next stop, by the operation as it was shown. It answers after two seconds at the latest."""
        body = {"request": shown.request, "digest": shown.digest, "pace": pace}
        return await self.send(asks.operation(f"/runs/{asks.part(run_id)}/step", body, key=key))

    async def fork(
        self,
        shown: run_schemas.CheckpointView,
        *,
        label: str | None = None,
        rerun: bool = False,
        key: str | None = None,
    ) -> schemas.RunFull:
        """Fork a run at a checkpoint as it was shown. With `rerun`, calls that have completed run again."""
        return await self.send(asks.at_checkpoint(shown, "fork", {"label": label, "rerun": rerun}, key=key))

    async def restore(
        self, shown: run_schemas.CheckpointView, *, accept_changes: bool = False, key: str | None = None
    ) -> schemas.RunFull:
        """Go back to a checkpoint as it was shown; with `accept_changes`, also where the agent has changed."""
        return await self.send(asks.at_checkpoint(shown, "restore", {"accept_changes": accept_changes}, key=key))
