"""The entries of a timeline in words: one sentence each, for people who are no developers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from phronomy.inbox.pages.words import DECIDED
from phronomy.observability.timeline_entries import EntryType, TimelineEntry

ENDS: Final[Mapping[str, str]] = {
    "completed": "Completed",
    "rejected": "Ended by a rejection",
    "skipped": "Ended at a stop",
    "cancelled": "Cancelled",
    "superseded": "Replaced by a later one",
}
"""How a run has ended."""

_SENTENCES: Final[Mapping[EntryType, str]] = {
    "run_started": "{agent} began",
    "branched": "A fork began here",
    "model_replied": "The model of {agent} replied",
    "tool_started": "{tool} began",
    "tool_failed": "{tool} failed",
    "tool_settled": "{tool} ended",
    "guardrail": "Guardrails looked at it",
    "message_added": "A message was added",
    "handoff": "{from} handed over to {to}",
    "approval_requested": "{tool} began to wait for a person",
    "voted": "{by} voted on {tool}: {kind}",
    "decided": "{kind} by {by}: {tool}",
    "breakpoint_hit": "It stopped before {tool}",
    "breakpoint_resumed": "{by} let it go on",
    "breakpoint_cancelled": "It was ended at a stop",
    "breakpoint_expired": "Nobody let it go on in time",
    "suspended": "The run began to wait",
    "ended": "The run ended: {status}",
    "failed": "It stopped on {error}",
}
"""What is said of each type. A checkpoint is no news to anybody who reads this."""


def told(entry: TimelineEntry) -> str | None:
    """What is said of an entry; None if nothing is."""
    sentence = _SENTENCES.get(entry.type)
    if sentence is None:
        return None
    facts: Mapping[str, Any] = entry.facts
    words = {
        "agent": entry.agent or "An agent",
        "tool": _tool(facts),
        "by": str(facts.get("by") or "nobody in person"),
        "kind": DECIDED.get(facts.get("kind", ""), str(facts.get("kind"))),
        "status": ENDS.get(str(facts.get("status")), str(facts.get("status"))).lower(),
        "from": str(facts.get("from")),
        "to": str(facts.get("to")),
        "error": str(facts.get("error")),
    }
    return sentence.format_map(words) + _more(entry.type, facts)


def _tool(facts: Mapping[str, Any]) -> str:
    return str(facts.get("tool") or ("a tool that there is none of" if facts.get("unknown") else "the run"))


def _more(type: EntryType, facts: Mapping[str, Any]) -> str:
    """What is added to the sentence, where there is more to say."""
    if type == "model_replied" and (tools := facts.get("tools")):
        return f" and called {', '.join(map(str, tools))}"
    if type == "tool_started" and facts.get("resumed"):
        return " again, where it stopped"
    if type == "tool_started" and facts.get("attempt", 1) > 1:
        return f" (try {facts['attempt']})"
    if type == "tool_settled" and facts.get("kind") not in (None, "completed"):
        return f": {str(facts['kind']).replace('_', ' ')}"
    if type == "message_added" and (by := facts.get("by")):
        return f", by {by}"
    if type in ("voted", "decided") and (whose := facts.get("behalf_of")):
        return f", in the place of {whose}"
    return ""
