"""What a client of the API asks, without any input or output: the requests that it sends, and what it makes of the answers.

The two clients of `clients.py`, one of which is for an event loop, send what is made here, so that they cannot come apart.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel, ValidationError

from phronomy.errors import (
    AlreadyVoted,
    ConfigurationError,
    InvalidDecision,
    NotAnApprover,
    PhronomyError,
    RequestExpired,
    UnknownPending,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import canonical, plain
from phronomy.foundation.quoting import quoted_id
from phronomy.inbox.api import inputs, run_schemas, schemas
from phronomy.inbox.problems import TYPES, Problem
from phronomy.records.record import Metadata, explain, reader_of

_log = logging.getLogger("phronomy")

M = TypeVar("M", bound=BaseModel)

BASE: Final = "/api/v1"
KEY: Final = "Idempotency-Key"

AGAIN: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same is asked again."""

Shown: TypeAlias = schemas.RequestRow | schemas.RequestFull
"""A request as somebody was shown it: what is decided is that, by its digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Generic[M]):
    """One request to the API, and the model of its answer. It is safe to send it again: what acts has a key."""

    method: str
    path: str
    answer: type[M]
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> str | None:
        """The idempotency key."""
        return self.headers.get(KEY)

    def after(self, cursor: str) -> Ask[M]:
        """The request for the next page."""
        return replace(self, params={**self.params, "cursor": cursor})

    def content(self) -> bytes | None:
        """The body as it is sent."""
        return None if self.body is None else canonical(dict(self.body)).encode()


def new_key() -> str:
    """A new idempotency key."""
    return secrets.token_hex(16)


def asked(path: str, answer: type[M], **params: Any) -> Ask[M]:
    """A request that reads. Parameters that are None are left out."""
    given = {name: _parameter(value) for name, value in params.items() if value is not None}
    return Ask(method="GET", path=f"{BASE}{path}", answer=answer, params=given)


def sent(path: str, answer: type[M], body: Mapping[str, Any], *, key: str | None) -> Ask[M]:
    """A request that acts, under its key or a new one. Members that are None are left out."""
    return Ask(
        method="POST",
        path=f"{BASE}{path}",
        answer=answer,
        body={name: value for name, value in body.items() if value is not None},
        headers={"Content-Type": "application/json", KEY: f'"{key or new_key()}"'},
    )


def _parameter(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else value


def part(text: str) -> str:
    """A text as a part of a path."""
    return quote(text, safe="")


def decision(shown: Shown, answer: inputs.DecisionBody, *, key: str | None) -> Ask[schemas.DecisionView]:
    """The request that decides."""
    body = answer.model_dump(mode="json", exclude_unset=True)
    ask = sent(f"/requests/{part(shown.id)}/decision", schemas.DecisionView, {}, key=key)
    return replace(ask, body=body)  # None is a value here: somebody may answer with it


def body_of(
    shown: Shown,
    answer: Literal["approve", "edit", "reject", "respond", "skip"],
    *,
    args: Mapping[str, Any] | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    **members: Any,
) -> inputs.DecisionBody:
    """The body of a decision. `args` are edited arguments, as an object or as JSON text. Raises `InvalidDecision` for the metadata."""
    given: dict[str, Any] = {"answer": answer, "digest": shown.digest, **members, **_metadata(metadata)}
    if args is not None:
        given["args"] = args if isinstance(args, str) else canonical(dict(args))
    return inputs.DecisionBody.model_validate(given)


def _metadata(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The member of a body that has the metadata of a decision; none where there are none."""
    if given is None or given == {}:
        return {}
    try:
        text = reader_of(Metadata).validate_python(given)
    except ValidationError as error:
        raise InvalidDecision(f"metadata: {explain(error, ())}") from None
    return {"metadata": plain(text)}


def batch(
    shown: Collection[Shown],
    answer: Literal["approve", "reject"],
    *,
    reason: str | None,
    metadata: Mapping[str, Any] | None = None,
    atomic: bool,
    key: str | None,
) -> Ask[schemas.BatchView]:
    """The request that decides several. Raises `InvalidDecision` for the metadata."""
    body = {
        **_metadata(metadata),
        "answer": answer,
        "requests": [{"id": each.id, "digest": each.digest} for each in shown],
        "reason": reason,
        "atomic": atomic,
    }
    return sent("/decisions:batch", schemas.BatchView, body, key=key)


def check(shown: Shown, args: Mapping[str, Any] | str) -> Ask[schemas.Checked]:
    """The request that looks at an edit."""
    text = args if isinstance(args, str) else canonical(dict(args))
    body = {"digest": shown.digest, "args": text}
    return sent(f"/requests/{part(shown.id)}/check", schemas.Checked, body, key=None)


def audit(*, page: int, **wanted: Any) -> Ask[schemas.AuditPage]:
    """The request for a page of the audit trail."""
    return asked("/audit", schemas.AuditPage, limit=page, **wanted)


def runs(*, page: int, status: Collection[str], **wanted: Any) -> Ask[schemas.RunsPage]:
    """The request for a page of runs."""
    return asked("/runs", schemas.RunsPage, limit=page, status=list(status) or None, **wanted)


def grant(shown: Shown, *, key: str | None, until: datetime | None, **terms: Any) -> Ask[schemas.GrantView]:
    """The request that gives a grant."""
    given = until.isoformat() if until is not None else None
    body = {"request": shown.id, "digest": shown.digest, "until": given, **terms}
    return sent("/grants", schemas.GrantView, body, key=key)


def revocation(grant: schemas.GrantView) -> Ask[schemas.GrantView]:
    """The request that revokes a grant as it was shown."""
    headers = {"If-Match": grant.etag}
    return Ask(method="DELETE", path=f"{BASE}/grants/{part(grant.id)}", answer=schemas.GrantView, headers=headers)


def signature(grant: schemas.GrantView, *, key: str | None) -> Ask[schemas.GrantView]:
    """The request that signs a grant as it was shown."""
    headers = {"If-Match": grant.etag, KEY: f'"{key or new_key()}"'}
    path = f"{BASE}/grants/{part(grant.id)}/signatures"
    return Ask(method="POST", path=path, answer=schemas.GrantView, headers=headers)


def start(agent: str, input: str, *, key: str | None, **options: Any) -> Ask[schemas.RunFull]:
    """The request that starts a run."""
    return sent("/runs", schemas.RunFull, {"agent": agent, "input": input, **options}, key=key)


def message(run_id: str, text: str, *, key: str | None) -> Ask[run_schemas.SentMessage]:
    """The request that sends a message to a run."""
    return sent(f"/runs/{part(run_id)}/messages", run_schemas.SentMessage, {"text": text}, key=key)


def cancellation(run_id: str, *, reason: str | None, key: str | None) -> Ask[schemas.RunFull]:
    """The request that ends a run."""
    return sent(f"/runs/{part(run_id)}/cancel", schemas.RunFull, {"reason": reason}, key=key)


def operation(path: str, body: Mapping[str, Any], *, key: str | None) -> Ask[schemas.RunFull]:
    """The request that does an operation to a run."""
    return sent(path, schemas.RunFull, body, key=key)


def at_checkpoint(
    shown: run_schemas.CheckpointView, what: Literal["fork", "restore"], terms: Mapping[str, Any], *, key: str | None
) -> Ask[schemas.RunFull]:
    """The request that forks a run at a checkpoint, or goes back to it, as it was shown. Raises `Problem`."""
    offered = next((each for each in shown.operations if each.what == what), None)
    if offered is None:
        raise Problem("forbidden", f"You were not offered to {what} at checkpoint {shown.id}.", scope="operate")
    path = f"/runs/{part(shown.run_id)}/checkpoints/{part(shown.id)}/{what}"
    return operation(path, {"digest": offered.digest, **terms}, key=key)


def error_of(status: int, content: bytes, headers: Mapping[str, str], *, path: str) -> PhronomyError:
    """What an answer that is none raises: an error of phronomy's where there is one for it, else the `Problem` itself."""
    try:
        found = json.loads(content)
        members = {name: value for name, value in found.items() if name not in ("type", "title", "status", "detail")}
        name, detail = str(found["type"]).rpartition("/")[2], str(found["detail"])
    except (ValueError, LookupError, TypeError, AttributeError):
        name, detail, members = "", "", {}
    retry = {"Retry-After": headers["retry-after"]} if "retry-after" in headers else None
    if name not in TYPES:
        kind = "unavailable" if status in AGAIN else "failed"
        return Problem(
            kind, f"The server answered {status}, and says nothing that this release understands.", headers=retry
        )
    problem = Problem(name, detail, headers=retry, **members)
    error = _typed(problem, path)
    error.__cause__ = problem if error is not problem else None
    return error


def _typed(problem: Problem, path: str) -> PhronomyError:
    pending_id = problem.members.get("pending_id")
    id = pending_id if isinstance(pending_id, str) else None
    match problem.type:
        case "not-an-approver":
            return NotAnApprover(problem.detail, pending_id=id or "", by=None)
        case "already-voted":
            return AlreadyVoted(problem.detail, pending_id=id or "", by="")
        case "expired":
            return RequestExpired(problem.detail, pending_id=id)
        case "not-found" if path.startswith(f"{BASE}/requests/"):
            asked_for = unquote(path.removeprefix(f"{BASE}/requests/").partition("/")[0])
            return UnknownPending(
                f"the inbox shows no request {quoted_id(asked_for)}: it is deleted, or not yours to see",
                pending_id=asked_for,
            )
        case _:
            return problem


def unreachable(url: str, ask: Ask[Any], tries: int) -> Problem:
    """What is raised when no answer has come at all from the inbox at this address."""
    times = "once" if tries == 1 else f"{tries} times"
    told = f"The server at {told_address(url)} did not answer, asked {times}."
    if ask.key is None:
        return Problem("unavailable", told)
    key = ask.key.strip('"')
    return Problem(
        "unavailable",
        f"{told} Whether anything was recorded is not known: send it again with the same key, or ask what was sent under it.",
        key=key,
    )


# Events


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEvent:
    """Something to look at again. `subject` is the id of a request, or of a run if `kind` is `"ended"`.

    `kind` is `"asked"`, `"voted"`, `"decided"`, `"expired"`, `"checked"`, `"ended"`, or another one of a later release. With
    `"reset"`, something may have been missed: look at everything again. `id` is the position; pass it as `after`.
    """

    id: str
    kind: str
    subject: str = ""
    version: int = 0


class EventLines:
    """The lines of a stream of events, put together to events (the format is that of HTML, "Server-sent events")."""

    def __init__(self, after: str | None) -> None:
        self.last = after
        self.pause: float = 3.0
        self._data: list[str] = []
        self._name = ""
        self._id = after

    def begin(self) -> None:
        """A new connection: what has come of an unfinished event is forgotten, and its id with it."""
        self._data, self._name, self._id = [], "", self.last

    def take(self, line: str) -> InboxEvent | None:
        """The event that ends with this line; None if none does."""
        if not line:
            return self._done()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._name = value
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.pause = int(value) / 1000
            case _:
                pass  # a comment, or a field of a later release
        return None

    def _done(self) -> InboxEvent | None:
        data, name, self.last = "\n".join(self._data), self._name, self._id
        self.begin()
        if name == "reset":
            return InboxEvent(id=self.last or "", kind="reset")
        if not data or name:
            return None
        try:
            found = json.loads(data)
            return InboxEvent(
                id=self.last or "", kind=str(found["kind"]), subject=str(found["id"]), version=int(found["version"])
            )
        except (ValueError, LookupError, TypeError):
            return None


def address(url: str) -> str:
    """The address of an inbox, without a slash at its end. Raises `ConfigurationError`."""
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise ConfigurationError(
            "the url of an inbox begins with https://, such as https://example.org/inbox; or with http://, such as"
            " http://127.0.0.1:8484, on one's own machine"
        )
    return url.rstrip("/")


def told_address(url: str) -> str:
    """The address for messages: without a password, a query or a fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def tell_unread(page: Any) -> None:
    """Tell the log which rows a page cannot show: an iteration over its items would say nothing of them."""
    for each in getattr(page, "unreadable", ()):
        _log.warning("not in the list of the inbox: %s", each.detail)
