"""What can go wrong in the inbox, for programs (RFC 9457, problem details) and for people: each kind has a name, a status and a page.

A problem of the API is `application/problem+json`. Its `type` is the address of a page of this server that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Final

from phronomy.errors import (
    AlreadyVoted,
    ApprovalExpired,
    AsyncRequired,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    ConfigurationError,
    GrantRefused,
    InvalidDecision,
    NotAnApprover,
    PhronomyError,
    RequestExpired,
    RunBusy,
    StillNeeded,
    StoreError,
    ThreadBusy,
    TooManyMessages,
    UnknownPending,
    UnknownPerson,
    UnreadableRow,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue
from phronomy.foundation.quoting import quoted_id
from phronomy.records.decisions import SAID
from phronomy.records.trigger_errors import NotWaiting, TooManyEvents


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemType:
    """A kind of problem: its HTTP status, what it is in a few words, and what to do about it.

    `for_people` is the advice of a page, where that for programs says more than people need.
    """

    status: int
    title: str
    advice: str
    for_people: str | None = None

    @property
    def on_page(self) -> str:
        """What a page says to do about it."""
        return self.advice if self.for_people is None else self.for_people


TYPES: Final[Mapping[str, ProblemType]] = {
    "bad-request": ProblemType(
        status=400,
        title="The request cannot be understood",
        advice="Correct what the detail names, and send it again. Nothing was changed.",
    ),
    "sign-in-failed": ProblemType(
        status=400,
        title="You could not be signed in",
        advice="Open the sign-in page of this server and begin again. An attempt counts once, for ten minutes, and in the"
        " browser that began it. Nothing was changed.",
    ),
    "bad-cursor": ProblemType(
        status=400,
        title="This is no cursor of this list",
        advice="Begin with the first page. A cursor counts for one list, with the same filters, for the same person.",
    ),
    "key-missing": ProblemType(
        status=400,
        title="There is no Idempotency-Key",
        advice="Send the header Idempotency-Key with a text of your own: a new one for each decision, the same one"
        " when you send it again.",
    ),
    "not-signed-in": ProblemType(
        status=401,
        title="Nobody is signed in",
        advice="Sign in, or send an API token as Authorization: Bearer. If you were signed out, or the token was removed,"
        " that counts at once.",
        for_people="You have not signed in, or your session has ended. Sign in, and do it once more. Nothing was changed.",
    ),
    "forbidden": ProblemType(
        status=403,
        title="You may not do this",
        advice="Ask whoever runs this server for the right to do it. Nothing was changed.",
    ),
    "not-an-approver": ProblemType(
        status=403,
        title="You may not decide this request",
        advice="The approval asks for other people: the request says for whom. The attempt is in the audit trail.",
    ),
    "cross-site": ProblemType(
        status=403,
        title="The request came from another site",
        advice="Open the page from this server and try again. If this happens on the server's own pages, its"
        " public_url is missing or wrong.",
    ),
    "not-found": ProblemType(
        status=404,
        title="There is nothing here",
        advice="The address is wrong, what was here is deleted, or it is not yours to see.",
    ),
    "wrong-method": ProblemType(
        status=405,
        title="This address does not take this method",
        advice="Begin at the first page, and open it from there. Programs find in the header Allow what it takes.",
    ),
    "timed-out": ProblemType(
        status=408, title="The request took too long to arrive", advice="Send it again. Nothing was changed."
    ),
    "already-decided": ProblemType(
        status=409,
        title="This request is decided",
        advice="Look at what was decided, by whom and when. Your answer was not recorded.",
    ),
    "already-voted": ProblemType(
        status=409,
        title="You have voted on this request before",
        advice="Each person counts once. Wait for the others.",
    ),
    "expired": ProblemType(
        status=409,
        title="The time of this request was over",
        advice="Your answer was not recorded. The call is settled as expired, and the run goes on from there.",
    ),
    "withdrawn": ProblemType(
        status=409,
        title="This request does not wait any more",
        advice="Its run was cancelled, or has gone on without it. Your answer was not recorded.",
    ),
    "digest-mismatch": ProblemType(
        status=409,
        title="The request is not the one that you were shown",
        advice="Read it again, and decide about what it says now. Nothing was decided.",
    ),
    "in-progress": ProblemType(
        status=409,
        title="Somebody is working on this at the moment",
        advice="Try again in a moment, with the same Idempotency-Key.",
        for_people="Try again in a moment.",
    ),
    "refused": ProblemType(
        status=409, title="This cannot be done as things are", advice="The detail says why. Nothing was changed."
    ),
    "stale": ProblemType(
        status=412,
        title="This has changed since you read it",
        advice="Read it again, and send its new ETag as If-Match, or its new digest, if you still want this. Nothing was changed.",
        for_people="Read it again, and do it once more if you still want this. Nothing was changed.",
    ),
    "too-large": ProblemType(
        status=413, title="The body is too large", advice="Send less. The server says how much it takes."
    ),
    "wrong-type": ProblemType(
        status=415,
        title="The body is of the wrong type",
        advice="Send application/json to the API, and forms as application/x-www-form-urlencoded.",
    ),
    "wrong-host": ProblemType(
        status=421,
        title="This server does not answer under this name",
        advice="Use the address that the server was started with.",
    ),
    "invalid-edit": ProblemType(
        status=422,
        title="The edited arguments do not fit the tool",
        advice="Correct the fields that are named. Nothing was decided.",
    ),
    "invalid": ProblemType(
        status=422, title="A value is not valid", advice="Correct the members that are named. Nothing was changed."
    ),
    "key-reused": ProblemType(
        status=422,
        title="This Idempotency-Key was used for something else",
        advice="Use a new key for a new decision.",
    ),
    "precondition-needed": ProblemType(
        status=428,
        title="There is no If-Match",
        advice="Send the ETag of what you have read as the header If-Match, so that you change nothing that you have not seen.",
    ),
    "slow-down": ProblemType(
        status=429,
        title="Too many requests",
        advice="Wait as many seconds as the header Retry-After says, and try again.",
    ),
    "failed": ProblemType(
        status=500,
        title="The server has failed",
        advice="Whether something was changed is not known: look before you try again. The log has more, under the id.",
    ),
    "unreadable": ProblemType(
        status=500,
        title="A stored row cannot be read",
        advice="A row of the store is damaged, or was written by a later release. To try again does not help: whoever runs"
        " this server has to restore it. The log names it, under the id.",
    ),
    "provider-unavailable": ProblemType(
        status=502,
        title="The provider that signs people in does not answer as it should",
        advice="Try again in a moment. If it stays like this, tell whoever runs this server: the log has the reason.",
    ),
    "unavailable": ProblemType(
        status=503,
        title="The store cannot be reached",
        advice="Try again in a moment, with the same Idempotency-Key.",
        for_people="Try again in a moment.",
    ),
}
"""Every kind of problem, by its name."""

ALWAYS: Final = (
    "bad-request",
    "not-found",
    "wrong-method",
    "wrong-host",
    "slow-down",
    "failed",
    "unreadable",
    "unavailable",
)
"""The problems that any route may answer with."""


class Problem(PhronomyError):
    """A request that is answered with a problem. `type` is its name in `TYPES`, `members` say more about this one.

    `detail` is for people and never quotes arguments, results or secrets.
    """

    def __init__(
        self,
        type: str,
        detail: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **members: JsonValue,
    ) -> None:
        super().__init__(detail or TYPES[type].title)
        self.type: str = type
        self.detail: str = detail or TYPES[type].advice
        self.headers: Mapping[str, str] = headers or {}
        self.members: Mapping[str, JsonValue] = members

    @property
    def status(self) -> int:
        """The HTTP status."""
        return TYPES[self.type].status


def problem_of(error: Exception) -> Problem:
    """The problem that an error of phronomy's is; any other is `failed`, and says nothing of itself."""
    match error:
        case Problem():
            return error
        case CheckpointAlreadyResumed():
            return _decided(error)
        case UnknownPending() | CheckpointNotFound():
            return Problem("not-found")
        case RequestExpired() | ApprovalExpired():
            return Problem("expired")
        case NotAnApprover():
            return Problem("not-an-approver", str(error), pending_id=error.pending_id)
        case AlreadyVoted():
            return Problem("already-voted", str(error), pending_id=error.pending_id)
        case InvalidDecision():
            return Problem("invalid", str(error))
        case (
            GrantRefused()
            | StillNeeded()
            | ThreadBusy()
            | NotWaiting()
            | TooManyEvents()
            | TooManyMessages()
            | UnknownPerson()
        ):
            return Problem("refused", str(error))
        case RunBusy():
            return Problem("in-progress", headers={"Retry-After": "1"})
        case StoreError() | CheckpointError():
            return _of_store(error)
        case AsyncRequired() | ConfigurationError():
            return Problem("invalid", str(error))
        case _:
            return Problem("failed")


def _of_store(error: StoreError | CheckpointError) -> Problem:
    # Any other fault of a checkpoint, such as an agent that has changed, has an error of its own.
    if isinstance(error, UnreadableRow) or type(error) in (CheckpointError, CheckpointEdited):
        return Problem("unreadable", str(error))
    if isinstance(error, StoreError):
        return Problem("unavailable", headers={"Retry-After": "1"})
    return Problem("failed")


def _decided(error: CheckpointAlreadyResumed) -> Problem:
    decision = error.decision
    if decision is None:
        return Problem("withdrawn", pending_id=error.pending_id)
    by = decision.by
    who = "" if by is None else f" by {quoted_id(by.id)}"
    return Problem(
        "already-decided",
        f"It was {SAID[decision.kind]}{who}. Your answer was not recorded.",
        pending_id=error.pending_id,
        decision=decision.kind,
        by=None if by is None else {"id": by.id, "name": by.name},
        at=decision.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),  # as the other times of the API
        progress=error.progress,
    )
