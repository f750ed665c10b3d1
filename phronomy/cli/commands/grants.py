"""The commands about standing grants: which calls pass without a question, who gave that, and how it is taken back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, assert_never

import typer

from phronomy.cli.apps import open_place, say_unreadable, unreadable_view
from phronomy.cli.options import By, Json, OfAgent, Reveal, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import moment
from phronomy.cli.words import DONE, WrongUsage, login_name, moment_of, time_of
from phronomy.errors import InvalidField
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonError, parse
from phronomy.records.grants import Grant, GrantScope

_HEADS: Final = ("GRANT", "AGENT", "TOOL", "ARGUMENTS", "FOR", "UNTIL", "USES", "GIVEN BY")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The runs that a grant is for: one of these."""

    run: Annotated[str | None, typer.Option(help="For this run.", metavar="ID")] = None
    thread: Annotated[str | None, typer.Option(help="For the runs of this thread.", metavar="ID")] = None
    requester: Annotated[
        str | None, typer.Option(help="For the runs that this principal has asked for.", metavar="ID")
    ] = None
    tenant_wide: Annotated[bool, typer.Option("--tenant-wide", help="For all runs of the tenant.")] = False

    @property
    def terms(self) -> tuple[GrantScope, dict[str, Any]]:
        """The scope and its id, as a record has them. Raises `WrongUsage`."""
        ids: tuple[tuple[GrantScope, str, str | None], ...] = (
            ("run", "run_id", self.run),
            ("thread", "thread_id", self.thread),
            ("principal", "requester", self.requester),
        )
        found: list[tuple[GrantScope, dict[str, Any]]] = [
            (scope, {name: id}) for scope, name, id in ids if id is not None
        ]
        if self.tenant_wide:
            found.append(("tenant", {}))
        if len(found) != 1:
            raise WrongUsage("a grant is for one of --run, --thread, --requester and --tenant-wide")
        return found[0]


@dataclass(frozen=True, kw_only=True)
class Which:
    """The tool whose calls a grant covers, and with which arguments."""

    agent: Annotated[str, typer.Option(help="The name of the agent whose tool it is.", metavar="NAME")]
    tool: Annotated[str, typer.Option(help="The name of the tool.", metavar="NAME")]
    source: Annotated[
        str, typer.Option(help="Where the tool comes from, as its requests show it.", metavar="SOURCE")
    ] = "local"
    endpoint: Annotated[str | None, typer.Option(help="The endpoint of a tool that runs elsewhere.", metavar="URL")] = (
        None
    )
    args: Annotated[
        str | None, typer.Option(help="Exactly these arguments, as a request shows them.", metavar="JSON")
    ] = None
    condition: Annotated[
        str | None, typer.Option(help="Arguments for which this predicate of the tool is true.", metavar="NAME")
    ] = None


@command
def grant(
    screen: Screen,
    *,
    which: Which,
    scope: Scope,
    until: Annotated[
        str | None, typer.Option(help="Until this time: ISO 8601, or 30m, 8h, 7d from now.", metavar="TIME")
    ] = None,
    uses: Annotated[int | None, typer.Option(help="For so many calls.", metavar="N", min=1)] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.", metavar="TEXT")] = None,
    by: By = None,
    where: Where,
    json: Json = False,
) -> int:
    """Let calls of a tool through without a question, where its approval allows that.

    Without --args and --condition, any arguments. Except for --run, it needs --until or --uses.
    """
    name, ids = scope.terms
    giver = _who(by)
    args = _arguments(which.args)
    with open_place(None if json else screen, where) as place:
        end = datetime.fromtimestamp(moment_of(until, place.store.clock(), ahead=True), UTC) if until else None
        try:
            terms = Grant(
                agent=which.agent,
                tool=which.tool,
                source=which.source,
                endpoint=which.endpoint,
                args=args,
                condition=which.condition,
                scope=name,
                until=end,
                uses=uses,
                reason=reason,
                **ids,
            )
        except InvalidField as error:
            raise WrongUsage(str(error)) from None
        given = place.store.grant(terms, by=giver, channel="cli")
    if json:
        screen.document(grant_view(given, reveal=False))
    else:
        screen.table(_HEADS, [_row(given)])
    return DONE


@command
def grants(
    screen: Screen,
    *,
    agent: OfAgent = None,
    tool: Annotated[str | None, typer.Option(help="Only for this tool.", metavar="NAME")] = None,
    all: Annotated[
        bool, typer.Option("--all", help="Also those of the last week that are revoked or used up.")
    ] = False,
    where: Where,
    reveal: Reveal = False,
    json: Json = False,
) -> int:
    """List the standing grants, oldest first."""
    with open_place(None if json else screen, where) as place:
        with screen.reading(machine=json):
            found = place.store.grants(agent=agent, tool=tool, all=all)
        if json:
            items = [grant_view(each, reveal=reveal) for each in found]
            screen.document({"items": items, **unreadable_view(found.unreadable)})
            return DONE
        if found:
            screen.table(_HEADS, [_row(each, reveal=reveal) for each in found])
        elif not found.unreadable:
            screen.say("There are no grants.")
        say_unreadable(screen, found.unreadable)
    return DONE


@command
def sign(
    screen: Screen,
    id: Annotated[str, typer.Argument(help="The id of the grant.", metavar="GRANT")],
    *,
    channel: Annotated[str, typer.Option(help="How it came in, for the record.", metavar="NAME")] = "cli",
    by: By = None,
    where: Where,
    json: Json = False,
) -> int:
    """Sign a standing grant, as one more of those who give it: where it takes several people, it takes several givers."""
    who = _who(by)
    with open_place(None if json else screen, where) as place:
        signed = place.store.sign_grant(id, by=who, channel=channel)
    if json:
        screen.document(grant_view(signed, reveal=False))
    else:
        screen.say(f"The grant has {len(signed.givers)} givers.", style="bold")
    return DONE


@command
def revoke(
    screen: Screen,
    id: Annotated[str, typer.Argument(help="The id of the grant.", metavar="GRANT")],
    *,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.", metavar="TEXT")] = None,
    by: By = None,
    where: Where,
    json: Json = False,
) -> int:
    """Revoke a standing grant: from now on, no call uses it."""
    who = _who(by)
    with open_place(None if json else screen, where) as place:
        if not place.store.revoke(id, by=who, reason=reason):
            raise WrongUsage(f"there is no grant {id!r} that is not revoked")
    if json:
        screen.document({"id": id, "revoked": True})
    else:
        screen.say("The grant was revoked.", style="bold")
    return DONE


def _who(by: str | None) -> str:
    if by == "":
        raise WrongUsage("--by names somebody")
    return by or login_name()


def _arguments(text: str | None) -> JsonDict | None:
    if text is None:
        return None
    try:
        found = parse(text)
    except JsonError as error:
        raise WrongUsage(f"--args is a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise WrongUsage("--args is a JSON object, with the name of each parameter")
    return found


def grant_view(grant: Grant, *, reveal: bool) -> dict[str, object]:
    """A grant, for machines. Without `reveal`, its arguments are left out: which of them are secret, the store does not know."""
    exact = grant.__dict__["args"] is not None
    return {
        "id": grant.id,
        "agent": grant.agent,
        "tool": grant.tool,
        "source": grant.source,
        "endpoint": grant.endpoint,
        "exactly": exact,
        "args": grant.args if reveal else None,
        "condition": grant.condition,
        "scope": grant.scope,
        "run_id": grant.run_id,
        "thread_id": grant.thread_id,
        "requester": grant.requester,
        "until": moment(grant.until) if grant.until is not None else None,
        "uses": grant.uses,
        "used": grant.count,
        "givers": [each.principal.id for each in grant.givers],
        "at": moment(grant.at) if grant.at is not None else None,
        "reason": grant.reason,
        "revoked_by": grant.revoked.principal.id if grant.revoked is not None else None,
    }


def _row(grant: Grant, *, reveal: bool = False) -> tuple[str, ...]:
    used = f"{grant.count:,} of {grant.uses:,}" if grant.uses is not None else f"{grant.count:,}"
    return (
        grant.id,
        grant.agent,
        grant.tool,
        _told_arguments(grant, reveal=reveal),
        _told_scope(grant),
        time_of(grant.until) if grant.until is not None else "-",
        "revoked" if grant.revoked is not None else used,
        ", ".join(each.principal.id for each in grant.givers),
    )


def _told_arguments(grant: Grant, *, reveal: bool) -> str:
    if grant.condition is not None:
        return grant.condition
    if grant.__dict__["args"] is None:
        return "any"
    return grant.json_text("args") if reveal else "exact"


def _told_scope(grant: Grant) -> str:
    match grant.scope:
        case "run":
            return str(grant.run_id)
        case "thread":
            return f"thread {grant.thread_id}"
        case "principal":
            return f"requester {grant.requester}"
        case "tenant":
            return "tenant"
        case unknown:
            assert_never(unknown)
