"""The commands about API tokens of the inbox: what programs send, whom they stand for, and how they are taken back."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from phronomy.cli.apps import open_place, say_unreadable, unreadable_view
from phronomy.cli.options import Json, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import moment
from phronomy.cli.words import DONE, WrongUsage, ahead_of, time_of
from phronomy.errors import ConfigurationError
from phronomy.records.principals import Principal
from phronomy.stores.base import Store

if TYPE_CHECKING:
    from phronomy.inbox.auth.api_tokens import ApiToken, ApiTokens
    from phronomy.inbox.auth.identity import Scope

_HEADS: Final = ("TOKEN", "NAME", "PRINCIPAL", "TENANT", "SCOPES", "UNTIL", "LAST USED")

TokenId = Annotated[str, typer.Argument(help="The id of the token, as the list shows it.", metavar="TOKEN")]


@command
def issue(
    screen: Screen,
    name: Annotated[str, typer.Argument(help="What the token is for.", metavar="NAME")],
    *,
    principal: Annotated[
        str, typer.Option("--as", help="Whom the program that has it stands for, as decisions record it.", metavar="ID")
    ],
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="A role that they have, unless the directory lists them. May be given several times.", metavar="ROLE"
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="read, decide, grant, audit, start, cancel, operate or send. By default read. May be given several times.",
            metavar="SCOPE",
        ),
    ] = None,
    human: Annotated[bool, typer.Option("--human", help="It stands for a human, and for no program.")] = False,
    for_tenant: Annotated[
        str | None, typer.Option(help="The tenant whose requests it sees, if not the inbox's own.", metavar="NAME")
    ] = None,
    until: Annotated[
        str,
        typer.Option(
            help="Until this time: ISO 8601, or 8h, 90d from now; or `revoked`.",
            metavar="TIME",
        ),
    ] = "90d",
    where: Where,
    json: Json = False,
) -> int:
    """Issue an API token for the inbox, and print it this once.

    The store keeps its hash alone. Keep the token where you keep passwords.
    """
    with open_place(None if json else screen, where) as place:
        tokens = tokens_of(place.store)
        now = place.store.clock()
        seconds = None if until == "revoked" else ahead_of(until, now).timestamp() - now
        if seconds is not None and seconds < 1:
            raise WrongUsage(f"--until {until} is over already")
        if not principal:
            raise WrongUsage("--as is empty: give the id of whom the program stands for")
        try:
            who = Principal(id=principal, kind="human" if human else "service", roles=tuple(dict.fromkeys(role or ())))
            issued = asyncio.run(
                tokens.issue(
                    name,
                    who,
                    scopes=cast("list[Scope]", scope or ["read"]),  # `issue` refuses any other
                    tenant=for_tenant,
                    seconds=seconds,
                )
            )
        except (ConfigurationError, ValueError) as error:
            raise WrongUsage(str(error)) from None
    if json:
        screen.document({"secret": issued.secret, **_view(issued.token)})
    else:
        screen.table(_HEADS, [_row(issued.token)])
        screen.say()
        screen.say("The token is shown this once. It goes into the header Authorization: Bearer TOKEN.", style="bold")
        screen.verbatim(issued.secret)
    return DONE


@command
def list_tokens(screen: Screen, *, where: Where, json: Json = False) -> int:
    """List the API tokens that count, oldest first."""
    with open_place(None if json else screen, where) as place, screen.reading(machine=json):
        found = asyncio.run(tokens_of(place.store).list())
    if json:
        items = [_view(each) for each in found]
        screen.document({"items": items, **unreadable_view(found.unreadable)})
        return DONE
    if found:
        screen.table(_HEADS, [_row(each) for each in found])
    elif not found.unreadable:
        screen.say("There are no tokens.")
    say_unreadable(screen, found.unreadable)
    return DONE


@command
def revoke(screen: Screen, id: TokenId, *, where: Where, json: Json = False) -> int:
    """Revoke an API token: from now on, nobody is known by it."""
    with open_place(None if json else screen, where) as place:
        if not asyncio.run(tokens_of(place.store).revoke(id)):
            raise WrongUsage(f"there is no token {id!r}")
    if json:
        screen.document({"id": id, "revoked": True})
    else:
        screen.say("The token was revoked.", style="bold")
    return DONE


def tokens_of(store: Store) -> ApiTokens:
    """The API tokens of the inbox of this store. They need no web framework."""
    from phronomy.inbox.auth.api_tokens import ApiTokens  # noqa: PLC0415  # the inbox, which other commands do without

    return ApiTokens(store)


def _view(token: ApiToken) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "principal": token.principal.id,
        "kind": token.principal.kind,
        "roles": [*token.principal.roles],
        "tenant": token.tenant,
        "scopes": sorted(token.scopes),
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at) if token.expires_at is not None else None,
        "used_at": moment(token.used_at) if token.used_at is not None else None,
    }


def _row(token: ApiToken) -> tuple[str, ...]:
    return (
        token.id,
        token.name,
        token.principal.id,
        token.tenant or "-",
        ", ".join(sorted(token.scopes)),
        time_of(token.expires_at) if token.expires_at is not None else "until it is revoked",
        _hour(token.used_at) if token.used_at is not None else "never",
    )


def _hour(at: datetime) -> str:
    """The hour that begins at a time: it is kept in which hour a token was used, and no more."""
    return f"{at:%Y-%m-%d %H:00} to {at.hour + 1:02}:00 UTC"


SUBCOMMANDS: Final = {"issue": issue, "list": list_tokens, "revoke": revoke}
"""The commands of `phronomy token`."""


def token(context: typer.Context) -> int:
    """Issue, list and revoke the API tokens of the inbox."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return DONE
