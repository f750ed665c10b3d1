"""What a message says of a request: the tool, the target and the amount first, then the rest, then where it stands.

Nothing is cut silently. What is too long for a message is told by its size and its SHA-256, and is shown in the inbox. The texts are
plain: what cannot be seen is written out here, and each channel escapes them by the rules of its platform.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from phronomy.chat.channel import Button, Card, Line, moment
from phronomy.chat.hiding import NOTHING_HIDDEN, Hiding
from phronomy.foundation.json_text import JsonDict, JsonValue, canonical, object_of
from phronomy.foundation.suspicious_letters import escaped
from phronomy.records.decisions import SAID, Decision
from phronomy.rules.votes import counting, governed, is_like
from phronomy.stores.derived.requests import Request

if TYPE_CHECKING:
    from phronomy.records.approvers import Vote
    from phronomy.records.decisions import PendingApproval
    from phronomy.rules.votes import LevelTally

_VALUE: Final = 300
_NOTE: Final = 500
_NAMED: Final = 10
"""The people whom a message names at most."""
_NO_NAME: Final = "(no name)"
_UNTOLD: Final = "The reason may quote what is hidden here: it is in the inbox."
_TITLE: Final = 140
"""The longest value, note and title, in characters. What is longer is told by its size."""
_ARGUMENTS: Final = 3_000
_CHANGES: Final = 1_500
"""The characters of all arguments, and of all changes. What is beyond is told by its size."""

_TARGETS: Final = ("to", "target", "recipient", "payee", "customer", "account", "order", "path", "url", "email", "host")
_AMOUNTS: Final = ("amount", "total", "sum", "price", "quantity", "count", "currency")


def card_of(
    request: Request,
    *,
    channel: str,
    tallies: Sequence[LevelTally] = (),
    counting: Sequence[Vote] = (),
    who: Sequence[str] = (),
    link: str | None = None,
    hiding: Hiding = NOTHING_HIDDEN,
    buttons: tuple[Button, ...] = (),
    approves_unseen: bool = False,
) -> Card:
    """The message about a request as it is now. Buttons are there as long as it waits; those that approve, if it is shown whole."""
    item = request.approval
    waits = request.status == "pending"
    over = request.status in ("settled", "asked_again", "expired") or _ended_by(request.decision)
    whole = shows_whole(request, hiding)
    card = Card(
        title=title_of(item, hiding),
        state="waits" if waits else "over" if over else "goes on",
        status=_waiting(item, tallies, counting) if waits else _became(request, channel, hiding),
        lines=(*_arguments(request, hiding, link), *_edits(request, hiding)),
        notes=(
            *([_approve_elsewhere(item, link)] if waits and not (whole or approves_unseen) else []),
            *_notes(request, who if waits else (), link, hiding),
        ),
        buttons=buttons if waits else (),
        link=link,
        pending_id=item.id,
        mark=item.digest[:16],
        digest=item.digest,
        votes=len(item.votes) if waits else 0,
        approves_unseen=approves_unseen or item.why == "breakpoint",
        metadata=_metadata(request, hiding, link),
        times=_times(request, waits),
    )
    return card if whole else card.without_approval()


def shows_whole(request: Request, hiding: Hiding) -> bool:
    """True if a message shows all of the arguments, but for what is hidden. At a breakpoint nothing is approved by going on."""
    lines = _arguments(request, hiding, None)
    args = object_of(hiding.view(request.approval.args, _hidden(None)))
    shown = [(escaped(name) or _NO_NAME, _whole(value)) for name, value in args.items()]
    return request.approval.why == "breakpoint" or sorted(shown) == sorted((each.name, each.value) for each in lines)


def _whole(value: JsonValue) -> str:
    text = value if isinstance(value, str) else canonical(value)
    return escaped(text[: _VALUE + 1]) or "(empty)"


def _approve_elsewhere(item: PendingApproval, link: str | None) -> str:
    where = "open it in the inbox" if link else f"use `phronomy show {item.id}`"
    return f"Not all of it can be shown here: {where} to approve it."


def withdrawn_card(title: str, pending_id: str) -> Card:
    """The message about a request that nobody can decide any more, since its run has ended or is deleted."""
    return Card(
        title=title, state="over", status="withdrawn: the run has ended without it", pending_id=pending_id, mark="over"
    )


def digest_card(count: int, link: str, at: datetime) -> Card:
    """The message that stands for many requests."""
    status = f"more than are posted one by one, at {moment(at)}. Decide them in the inbox"
    return Card(title=f"{count} requests wait", state="over", status=status, link=link, mark=f"{count}", times=(at,))


def shown_hash(card: Card) -> str:
    """What tells two messages apart for the people who read them: without the tokens, which differ each time."""
    plain = replace(card, buttons=tuple(replace(each, data="") for each in card.buttons))
    said = [[each.action, each.label] for each in plain.buttons]
    lines = [[each.name, each.value] for each in card.lines]
    whole = [card.title, card.state, card.status, lines, list(card.notes), said, card.link, card.mark]
    whole += [[each.id, each.name] for each in card.mentions]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:32]


def title_of(item: PendingApproval, hiding: Hiding = NOTHING_HIDDEN) -> str:
    """The name of the tool, and what the tool says of the call, without the hidden values that this quotes."""
    whole = _whole_title(item, _said(item, hiding))
    return whole if whole is not None else _short(item.tool_name, _TITLE)


def _said(item: PendingApproval, hiding: Hiding) -> str | None:
    return hiding.text(item.title, item.args) if item.title else None


def _whole_title(item: PendingApproval, title: str | None) -> str | None:
    """The name of the tool with all that the tool says of the call; None if that is too long for a title."""
    if len(item.tool_name) + len(title or "") > _TITLE:  # before anything is written out, which makes it longer
        return None
    name = escaped(item.tool_name)
    whole = f"{name}: {escaped(title)}" if title else name
    return whole if len(whole) <= _TITLE else None


def said_of(decision: Decision, channel: str | None = None, counting: Collection[Vote] | None = None) -> str:
    """Who decided what, when, and where if that was elsewhere; all who voted are named.

    `counting` are those of the votes that counted, where others did not: an escalation had put others in the place of those people.
    """
    agreed, others = _voices(decision, counting)
    by = f" by {_listed(agreed)}" if agreed else ""
    before = f" ({_listed([f'{_voice(each)} had {SAID[each.kind]}' for each in others])})" if others else ""
    where = f", in {escaped(decision.channel)}" if decision.channel and decision.channel != channel else ""
    edited = " with changes" if decision.args is not None else ""
    return f"{SAID[decision.kind]}{edited}{by}{before}{where}, {moment(decision.at)}"


def _voices(decision: Decision, counting: Collection[Vote] | None) -> tuple[list[str], list[Vote]]:
    """The names of those by whom something was decided, and the votes that were for something else or counted no longer."""
    if not decision.votes:
        return ([_voice(decision)] if decision.by is not None else []), []
    *before, last = decision.votes
    with_it = [
        each
        for each in before
        if each.kind == last.kind
        and (last.kind == "reject" or is_like(each, last))
        and (counting is None or each in counting)
    ]
    return [_voice(each) for each in (*with_it, last)], [each for each in before if each not in with_it]


def _voice(cast: Decision | Vote) -> str:
    """The name of who has decided or voted, with whom they stood for."""
    by = cast.by
    assert by is not None
    name = _short(by.name or by.id, 80)
    return name if cast.behalf_of is None else f"{name} for {_short(cast.behalf_of.name or cast.behalf_of.id, 80)}"


def _listed(names: Sequence[str]) -> str:
    """Some names in one phrase."""
    *first, last = names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} others"]
    return f"{', '.join(first)} and {last}" if first else last


def _ended_by(decision: Decision | None) -> bool:
    return decision is not None and decision.kind in ("reject", "skip", "cancel", "expire", "supersede")


def _waiting(item: PendingApproval, tallies: Sequence[LevelTally], counting: Sequence[Vote]) -> str:
    why = {"question": "waits for an answer", "breakpoint": "stopped at a breakpoint"}.get(
        item.why, "waits for approval"
    )
    if item.why == "outcome_unknown":
        why = "nobody knows whether the call took effect; waits for a decision"
    votes = [f"{each.counted} of {each.needed}{f' ({escaped(each.of)})' if each.of else ''}" for each in tallies]
    if counting and votes:
        why += f" - {', '.join(votes)}: {', '.join(f'{_voice(vote)} {SAID[vote.kind]}' for vote in counting[-10:])}"
    elif any(each.needed > 1 for each in tallies):
        why += f" - {', '.join(votes)}"
    if item.expires_at is not None and item.on_expiry != "stay":
        why += f" - until {moment(item.expires_at)}"
    return why


def _became(request: Request, channel: str, hiding: Hiding) -> str:
    if request.status == "expired":
        return "expired: nobody decided in time"
    decision = request.decision
    said = said_of(decision, channel, _counted(request.approval, decision)) if decision is not None else "decided"
    if request.status == "asked_again":
        return f"{said}; it was asked again"
    if decision is not None and decision.kind == "expire":
        return "expired: nobody decided in time"
    if _ended_by(decision):
        reason = _open(decision.reason, request, hiding) if decision is not None else None
        return f"{said}{f': {_told(reason, _NOTE, None)}' if reason else ''}"
    if request.status == "set_aside":
        return f"{said}; waits for an operator: {_told(request.set_aside or '', _NOTE, None)}"
    if request.status in ("decided", "running"):
        if request.run_status == "failed":
            return f"{said}; failed, and is tried again"
        return f"{said}; running" if decision is None or decision.kind != "respond" else said
    result = request.result
    ends = {"completed": "done", "responded": "done", "failed": "failed", "invalid": "failed"}
    return f"{said}; {ends.get(result.kind, result.kind) if result is not None else 'done'}"


def _counted(item: PendingApproval, decision: Decision) -> list[Vote]:
    return counting(governed(item), decision.votes, requested_at=item.requested_at, requester=item.requester)


def _times(request: Request, waits: bool) -> tuple[datetime, ...]:
    """The times in what is said of a request."""
    item, decision = request.approval, request.decision
    ends = [item.expires_at] if waits and item.expires_at is not None else []
    return (item.requested_at, *ends, *([decision.at] if decision is not None else []))


def _open(text: str | None, request: Request, hiding: Hiding) -> str | None:
    """The reason of a decision, without the hidden values of the request that it quotes."""
    edited = request.decision.args if request.decision is not None else None
    return None if text is None else hiding.text(text, request.approval.args, edited)


def _metadata(request: Request, hiding: Hiding, link: str | None) -> str:
    """The data that were given with the decision, without what is hidden."""
    decision = request.decision
    return canonical({} if decision is None else hiding.view(decision.metadata, _hidden(link)))


def _arguments(request: Request, hiding: Hiding, link: str | None) -> list[Line]:
    declared = object_of((request.schema or {}).get("properties"))
    return _lines(request.approval.args, "", _ARGUMENTS, hiding, link, declared)


def _edits(request: Request, hiding: Hiding) -> list[Line]:
    """What a human has changed: the new value of each argument that differs."""
    decision = request.decision
    if decision is None or decision.args is None:
        return []
    before, after = request.approval.args, decision.args
    changed = {
        name: after.get(name, "(removed)")
        for name in {**before, **after}
        if (name in before) != (name in after) or canonical(before.get(name)) != canonical(after.get(name))
    }
    return _lines(changed, " (changed to)", _CHANGES, hiding, None, {})


def _lines(
    args: JsonDict, mark: str, most: int, hiding: Hiding, link: str | None, declared: Container[str]
) -> list[Line]:
    """A line for each argument, those that the tool declares first, and of these what matters; one line for all beyond so many
    characters."""
    found: list[Line] = []
    args = object_of(hiding.view(args, _hidden(link)))
    names = sorted(args, key=lambda name: (name not in declared, *_rank(name)))
    for place, name in enumerate(names):
        line = Line(name=_name(name) + mark, value=_value(args[name], link))
        most -= len(line.name) + len(line.value)
        if most < 0:
            rest = canonical({each: args[each] for each in names[place:]})
            return [*found, Line(name=f"and {len(names) - place} more{mark}", value=_size(rest, link))]
        found.append(line)
    return found


def _name(name: str) -> str:
    return _short(name, 80) or _NO_NAME


def _notes(request: Request, who: Sequence[str], link: str | None, hiding: Hiding) -> Iterator[str]:
    item = request.approval
    title = _said(item, hiding)
    if title and _whole_title(item, title) is None:
        yield _told(title, _NOTE, link)
    reason = _UNTOLD if hiding.is_untold(item) else item.reason
    for text in (item.context, reason):
        if text:
            yield _told(text, _NOTE, link)
    if who:
        yield _short("Who may decide: " + "; ".join(escaped(each) for each in who), _NOTE)
    asked = f" for {_short(item.requester.name or item.requester.id, 80)}" if item.requester is not None else ""
    risk = f", risk {_short(item.tool.risk, 40)}" if item.tool.risk else ""
    where = _short(item.agent or request.agent, 80)
    yield f"Asked by {where}{asked}, {moment(item.requested_at)}{risk}, digest {item.digest[:12]}"


def _rank(name: str) -> tuple[int, str]:
    small = name.casefold()
    parts = small.split("_")
    place = 0 if any(part in _TARGETS for part in parts) else 1 if any(part in _AMOUNTS for part in parts) else 2
    return (place, name)


def _value(value: JsonValue, link: str | None) -> str:
    return _told(value, _VALUE, link) if isinstance(value, str) else _told(canonical(value), _VALUE, link)


def _told(text: str, most: int, link: str | None) -> str:
    """The text with codes for what cannot be seen; its size and digest if it is too long."""
    if len(text) > most or len(shown := escaped(text)) > most:
        return _size(text, link)
    return shown if shown else "(empty)"


def _size(text: str, link: str | None) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{len(text):,} characters, SHA-256 {digest}..., {_elsewhere(link)}"


def _hidden(link: str | None) -> str:
    return f"not shown here, {_elsewhere(link)}"


def _elsewhere(link: str | None) -> str:
    return "see the inbox" if link else "see `phronomy show`"


def _short(text: str, most: int) -> str:
    """The text with codes for what cannot be seen; its beginning and its size if it is too long."""
    # Only what is shown is written out: to do so with two million characters takes seconds.
    shown = escaped(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 20]}... ({len(text):,} chars)"
