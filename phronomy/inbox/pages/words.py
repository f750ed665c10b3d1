"""What requests, answers and outcomes are called on the pages: one sentence each, for people who are no developers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from phronomy.debugger.stepping import LABEL
from phronomy.foundation.json_text import JsonDict, object_of
from phronomy.records.decisions import AuditKind, PendingApproval, Then
from phronomy.records.principals import Principal
from phronomy.stops.interrupt_points import AFTER
from phronomy.stores.derived.standing import Way

DECIDED: Final[Mapping[AuditKind, str]] = {
    "approve": "Approved",
    "reject": "Rejected",
    "respond": "Answered",
    "skip": "Skipped",
    "cancel": "Withdrawn",
    "expire": "Expired",
    "supersede": "Withdrawn",
    "edit": "Changed the state",
    "fork": "Forked",
    "message": "Sent a message",
    "restore": "Went back",
    "unreadable": "Cannot be read",
}
"""What is said of a decision, or of another step of the trail."""

THEN: Final[Mapping[Then, str]] = {
    "continue": "The agent is told why, and goes on",
    "block": "The agent goes on, and the same call is refused from now on without asking",
    "block_tool": "The agent goes on, and every call of this tool is refused from now on without asking",
    "end": "The whole run ends here",
}
"""What may follow a rejection."""

MAY: Final[Mapping[str, str]] = {
    "read": "see requests and runs",
    "decide": "decide requests",
    "grant": "let calls pass without asking",
    "audit": "see what other people decided",
    "start": "start runs",
    "cancel": "end runs",
    "operate": "pause runs, step in them and go back in them",
    "send": "send events to runs",
}
"""The rights that each scope gives, in words."""

WHY_NOT: Final = {
    "expired": "The time to decide is over.",
    "voted": "You have voted. Others have to follow.",
    "not_an_approver": "Other people are asked to decide this.",
    "not_offered": "This takes no answer from a person.",
}
"""Why somebody cannot decide."""


def called(who: Principal) -> str:
    """What somebody is called: by their name, or where it is not known by their id; one of a provider is told with its host alone."""
    if who.name or not who.id.startswith("oidc:"):
        return who.name or who.id
    issuer, _, subject = who.id.removeprefix("oidc:").rpartition("#")
    return f"{subject} ({urlsplit(issuer).netloc or issuer})"


def heading(item: PendingApproval) -> str:
    """The request in a few words: those of the agent's code, if it gives some."""
    if item.title:
        return item.title
    name = item.tool_name.replace("_", " ")
    match item.why:
        case "question":
            payload = item.args.get("payload")
            return payload if isinstance(payload, str) and 0 < len(payload) <= 200 else f"Question from {name}"
        case "failed":
            return f"{name} has failed: try again?"
        case "outcome_unknown":
            return f"Did {name} happen? Nobody knows"
        case "breakpoint":
            return _stopped(item, name)
        case "approval":
            return f"What came of {name}?" if item.external else f"Run {name}?"


def _stopped(item: PendingApproval, name: str) -> str:
    label = f" ({item.label})" if item.label and item.label != LABEL else ""  # that of a step says nothing more
    if item.between_steps and item.point is None:
        return "Stopped by hand"
    if item.between_steps:
        return f"Stopped at {name}{label}"
    return f"Stopped after {name}" if item.tool.source == AFTER else f"Stopped before {name}{label}"


def verb(item: PendingApproval, way: Way) -> str:
    """What a way to answer is called, with what it is about."""
    name = item.tool_name.replace("_", " ")
    plain: dict[Way, str] = {
        "approve": f"Approve {name}",
        "edit": "Change the values, then approve",
        "reject": f"Reject {name}",
        "respond": "Give the result yourself",
        "skip": f"Skip {name}",
    }
    if item.why == "question":
        plain |= {"approve": "Answer with yes", "reject": "Refuse to answer", "respond": "Answer"}
    elif item.why == "breakpoint":
        plain |= {"approve": "Let it go on", "edit": "Change the values, then let it go on", "reject": f"Stop {name}"}
        if item.between_steps:
            plain |= {"reject": "End the run", "skip": "End the run as skipped"}
    elif item.why in ("failed", "outcome_unknown"):
        plain |= {"approve": f"Run {name} again", "edit": "Change the values, then run it again"}
        plain |= {"reject": "Do not run it again", "respond": "Say what came of it"}
    elif item.external:
        plain |= {"respond": "Give the result"}
    return plain[way]


def sure(item: PendingApproval, way: Way) -> str:
    """What the button says by which an answer counts that was shown once more."""
    return f"{verb(item, 'approve')} with these changes" if way == "edit" else verb(item, way)


def on_yes(item: PendingApproval, votes: str = "") -> str:
    """What happens on a yes; `votes` says how many there are so far, where a yes is a vote and others have to follow."""
    if votes:
        then = "the run goes on" if item.why == "breakpoint" else "it runs once, with exactly these values"
        return f"Your yes is a vote: {then}, once enough people have said yes ({votes} so far)."
    match item.why:
        case "question":
            return "The agent gets your answer and goes on."
        case "breakpoint":
            return "The run goes on from here."
        case "failed" | "outcome_unknown":
            return "It runs again, with exactly these values. If it took effect before, it may take effect twice."
        case "approval" if item.external:
            return "The agent takes what you give as the result. Nothing runs here."
        case "approval":
            return "It runs once, with exactly these values."


def on_no(item: PendingApproval, then: Then = "continue", *, a_vote: bool = False) -> str:
    """What happens on a no, with what was chosen to follow; `a_vote` says that others have to say no, too."""
    if a_vote:
        return "Your no is a vote: nothing is decided until enough people have said no."
    if item.between_steps:
        return "The run ends here."
    if item.why == "question":
        return "The agent is told that you do not answer, and why."
    return {
        "continue": "Nothing runs. The agent is told your reason, and goes on without it.",
        "block": "Nothing runs. The agent is told your reason, and the same call is refused from now on without asking.",
        "block_tool": "Nothing runs. The agent is told your reason, and every call of this tool is refused from now on without"
        " asking.",
        "end": "Nothing runs. The whole run ends here, with your reason.",
    }[then]


def on_expiry(item: PendingApproval) -> str:
    """What happens if nobody decides."""
    if item.expires_at is None:
        return "It waits until somebody decides."
    match item.on_expiry:
        case "stay":
            return "It keeps waiting, and can still be decided."
        case "cancel":
            return "Nothing runs, and the whole run is cancelled."
        case "reject":
            return "Nothing runs. The agent is told that nobody decided in time."


def answer_schema(item: PendingApproval) -> JsonDict | None:
    """The schema of the answer that a question wants; None where it takes any."""
    return object_of(item.args.get("answer")) or None if item.why == "question" else None
