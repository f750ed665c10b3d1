"""The commands about Telegram: where it sends updates, and links by which people tell the bot who they are."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from phronomy.chat.telegram.api import URL
from phronomy.chat.telegram.invitations import Invitations
from phronomy.chat.telegram.telegram import Telegram
from phronomy.cli.apps import open_place
from phronomy.cli.options import Json, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import moment
from phronomy.cli.words import DONE, WrongUsage, ahead_of, hint_of_path, time_of
from phronomy.errors import ConfigurationError

TOKEN: Final = "TELEGRAM_BOT_TOKEN"
SECRET: Final = "TELEGRAM_SECRET_TOKEN"
"""The variables of the environment that the commands read: the list of processes shows what options say."""

Api = Annotated[
    str, typer.Option("--api", help="The address of a Bot API server of your own, if you have one.", metavar="URL")
]
Name = Annotated[str, typer.Option("--name", help="The name of the channel, if you have several.", metavar="TEXT")]


@command
def webhook(
    screen: Screen,
    *,
    url: Annotated[
        str | None,
        typer.Option(
            help="The address to which Telegram sends updates, such as https://example.org/chat/telegram.",
            metavar="URL",
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Have Telegram send updates nowhere: a process can ask for them then.")
    ] = False,
    api: Api = URL,
) -> int:
    """Tell Telegram where it sends clicks and messages.

    The token of the bot is in TELEGRAM_BOT_TOKEN, and the secret that Telegram sends with each update in TELEGRAM_SECRET_TOKEN:
    the same as in your program.
    """
    if (url is None) != delete:
        raise WrongUsage("give either --url, to which Telegram sends updates, or --delete")
    if url is None:
        bot_of(api).delete_webhook()
        screen.say("Telegram sends updates nowhere. What waits there can be asked for.", style="bold")
        return DONE
    if not url.startswith("https://"):
        raise WrongUsage("Telegram sends updates to an address that begins with https://")
    if wrong := hint_of_path(url, "telegram"):
        screen.complain(wrong)
    secret = os.environ.get(SECRET) or None
    if secret is None:
        raise WrongUsage(f"{SECRET} is not set: without a secret anybody could send clicks")
    bot_of(api, secret=secret).set_webhook(url)
    screen.say(f"Telegram sends updates to {url}", style="bold")
    return DONE


@command
def invite(
    screen: Screen,
    person: Annotated[str, typer.Argument(help="The id of the person, who is there already.", metavar="PERSON")],
    *,
    until: Annotated[
        str, typer.Option(help="Until when the link counts: ISO 8601, or 8h, 1d from now.", metavar="TIME")
    ] = "1d",
    name: Name = "telegram",
    api: Api = URL,
    where: Where,
    json: Json = False,
) -> int:
    """Print a link by which a person tells the bot who they are. It counts once.

    Whoever follows it first can decide as this person: send it to them alone. The program must have Invitations among its
    listeners. The token of the bot is in TELEGRAM_BOT_TOKEN.
    """
    bot = bot_of(api)
    with open_place(None if json else screen, where) as place:
        now = place.store.clock()
        ends = ahead_of(until, now)
        if ends.timestamp() - now < 1:
            raise WrongUsage(f"--until {until} is over already")
        link = Invitations(place.store, name=name).issue(
            person, username=bot.bot_username(), seconds=ends.timestamp() - now
        )
    if json:
        screen.document({"person": person, "link": link, "until": moment(ends)})
    else:
        screen.say(link)
        screen.say(f"It counts once, until {time_of(ends)}, for whoever follows it first.")
    return DONE


def bot_of(api: str, *, secret: str | None = None) -> Telegram:
    """The bot whose token the environment has. Raises `WrongUsage`."""
    token = os.environ.get(TOKEN)
    if not token:
        raise WrongUsage(f"{TOKEN} is not set: @BotFather gives the token of a bot")
    try:
        return Telegram(bot_token=token, secret_token=secret, base_url=api)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from None


SUBCOMMANDS: Final = {"webhook": webhook, "invite": invite}
"""The commands of `phronomy telegram`."""


def telegram(context: typer.Context) -> int:
    """Set up a Telegram bot for approvals."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return DONE
