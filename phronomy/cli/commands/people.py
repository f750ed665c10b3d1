"""The commands about people: who decides, which roles they have, by which ids channels know them, and who stands for them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from phronomy.cli.apps import open_place, say_unreadable, unreadable_view
from phronomy.cli.commands.decide import confirm
from phronomy.cli.options import Json, Limit, Next, Where, Yes, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import moment
from phronomy.cli.words import DONE, PENDING, WrongUsage, ahead_of, hint_of_alias, login_name, time_of
from phronomy.errors import InvalidField
from phronomy.people.directory import StoreDirectory
from phronomy.records.people import Deputy, Person

PersonId = Annotated[str, typer.Argument(help="The id of the person, as decisions record it.", metavar="PERSON")]
PrincipalId = Annotated[str, typer.Argument(help="The id of the person who is represented.", metavar="PERSON")]
DeputyId = Annotated[str, typer.Argument(help="The id of the person who stands for them.", metavar="DEPUTY")]

_HEADS: Final = ("PERSON", "NAME", "KIND", "ROLES", "ALIASES")
_DEPUTY_HEADS: Final = ("PERSON", "DEPUTY", "UNTIL", "REASON")


@command
def add(
    screen: Screen,
    id: PersonId,
    *,
    name: Annotated[str | None, typer.Option(help="What people call them.", metavar="TEXT")] = None,
    role: Annotated[
        list[str] | None, typer.Option(help="A role that they have. May be given several times.", metavar="ROLE")
    ] = None,
    alias: Annotated[
        list[str] | None,
        typer.Option(
            help="An id by which a channel knows them, such as slack:U123. May be given several times.", metavar="ID"
        ),
    ] = None,
    service: Annotated[bool, typer.Option("--service", help="It is a program, and no human.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a person with this id, with all that is known of them.")
    ] = False,
    where: Where,
    json: Json = False,
) -> int:
    """Add a person who decides.

    An alias belongs to one person at most. Without --replace, a person who is there already is left as they are.
    """
    try:
        person = Person(
            id=id,
            name=name,
            kind="service" if service else "human",
            roles=tuple(dict.fromkeys(role or ())),
            aliases=tuple(dict.fromkeys(alias or ())),
        )
    except InvalidField as error:
        raise WrongUsage(str(error)) from None
    for each in filter(None, map(hint_of_alias, person.aliases)):
        screen.complain(each)
    with open_place(None if json else screen, where, makes=True) as place:
        StoreDirectory(place.store).add(person, replace=replace)
    if json:
        screen.document(_view(person))
    else:
        screen.table(_HEADS, [_row(person)])
    return DONE


@command
def list_people(screen: Screen, *, where: Where, after: Next = None, limit: Limit = None, json: Json = False) -> int:
    """List the people who decide, in the order of their ids."""
    with open_place(None if json else screen, where) as place:
        with screen.reading(machine=json):
            # One more than is shown tells whether there is another page.
            found = StoreDirectory(place.store).list(after=after, limit=limit + 1 if limit is not None else None)
        shown = found[:limit]
        following = shown[-1].id if len(found) > len(shown) else None
        if json:
            items = [_view(each) for each in shown]
            screen.document({"items": items, "next": following, **unreadable_view(found.unreadable)})
            return DONE
        if shown:
            screen.table(_HEADS, [_row(each) for each in shown])
        elif not found.unreadable:
            screen.say("There is nobody.")
        say_unreadable(screen, found.unreadable)
        if following is not None:
            screen.say(f"More: {place.command('people', 'list', '--after', following)}")
    return DONE


@command
def remove(screen: Screen, id: PersonId, *, where: Where, yes: Yes = False, json: Json = False) -> int:
    """Remove a person, with their aliases and deputies. What they have decided stays in the audit trail."""
    if json and not yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    with open_place(None if json else screen, where) as place:
        directory = StoreDirectory(place.store)
        person = directory.get(id)
        if person is None:
            raise WrongUsage(f"there is no person {id!r}")
        if not json:
            screen.table(_HEADS, [_row(person)])
        try:
            sure = yes or confirm(screen, "Remove this person?")
        except EOFError:
            sure = False
        if not sure:
            screen.say("Nobody was removed.", style="bold")
            return PENDING
        directory.remove(id)
    if json:
        screen.document(_view(person))
    else:
        screen.say("The person was removed.", style="bold")
    return DONE


@command
def name_deputy(
    screen: Screen,
    principal: PrincipalId,
    deputy: DeputyId,
    *,
    until: Annotated[
        str | None,
        typer.Option(
            help="When it ends: a date or time, or a duration such as 14d. By default when dismissed.", metavar="TIME"
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for people.", metavar="TEXT")] = None,
    by: Annotated[
        str | None, typer.Option(help="Who records this. By default your login name.", metavar="NAME")
    ] = None,
    where: Where,
    json: Json = False,
) -> int:
    """Let one person stand for another when they decide.

    To name a deputy again replaces all that was said before.
    """
    with open_place(None if json else screen, where) as place:
        end = ahead_of(until, place.store.clock()) if until is not None else None
        try:
            named = StoreDirectory(place.store).name_deputy(
                principal, deputy, until=end, reason=reason, by=by or login_name()
            )
        except InvalidField as error:
            raise WrongUsage(str(error)) from None
    if json:
        screen.document(_view_of_deputy(named))
    else:
        screen.table(_DEPUTY_HEADS, [_row_of_deputy(named)])
    return DONE


@command
def deputies(
    screen: Screen,
    principal: Annotated[str | None, typer.Argument(help="Only the deputies of this person.", metavar="PERSON")] = None,
    *,
    where: Where,
    json: Json = False,
) -> int:
    """List the deputies whose time is not over."""
    with open_place(None if json else screen, where) as place, screen.reading(machine=json):
        found = StoreDirectory(place.store).deputies(principal)
    if json:
        items = [_view_of_deputy(each) for each in found]
        screen.document({"items": items, **unreadable_view(found.unreadable)})
        return DONE
    if found:
        screen.table(_DEPUTY_HEADS, [_row_of_deputy(each) for each in found])
    elif not found.unreadable:
        screen.say("There are no deputies.")
    say_unreadable(screen, found.unreadable)
    return DONE


@command
def dismiss_deputy(
    screen: Screen, principal: PrincipalId, deputy: DeputyId, *, where: Where, json: Json = False
) -> int:
    """Let somebody stand for another person no longer."""
    with open_place(None if json else screen, where) as place:
        if not StoreDirectory(place.store).dismiss_deputy(principal, deputy):
            raise WrongUsage(f"{deputy!r} is no deputy of {principal!r}")
    if json:
        screen.document({"principal": principal, "deputy": deputy})
    else:
        screen.say("The deputy was dismissed.", style="bold")
    return DONE


def _view(person: Person) -> dict[str, object]:
    return {
        "id": person.id,
        "name": person.name,
        "kind": person.kind,
        "roles": [*person.roles],
        "aliases": [*person.aliases],
    }


def _row(person: Person) -> tuple[str, ...]:
    return (
        person.id,
        person.name or "-",
        person.kind,
        ", ".join(person.roles) or "-",
        ", ".join(person.aliases) or "-",
    )


def _view_of_deputy(deputy: Deputy) -> dict[str, object]:
    return {
        "principal": deputy.principal,
        "deputy": deputy.deputy,
        "until": moment(deputy.until) if deputy.until is not None else None,
        "reason": deputy.reason,
        "at": moment(deputy.at),
        "by": deputy.by.id if deputy.by is not None else None,
    }


def _row_of_deputy(deputy: Deputy) -> tuple[str, ...]:
    until = time_of(deputy.until) if deputy.until is not None else "-"
    return (deputy.principal, deputy.deputy, until, deputy.reason or "-")


SUBCOMMANDS: Final = {
    "add": add,
    "list": list_people,
    "remove": remove,
    "name-deputy": name_deputy,
    "deputies": deputies,
    "dismiss-deputy": dismiss_deputy,
}
"""The commands of `phronomy people`."""


def people(context: typer.Context) -> int:
    """Add, list and remove the people who decide, and their deputies."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return DONE
