"""The command that shows the inbox in a browser of this machine, and carries out what is decided there: `phronomy serve`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from phronomy.cli.apps import Place, load_object, open_place
from phronomy.cli.options import Here, Where, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, WrongUsage, explained, login_name, needs_inbox
from phronomy.errors import ConfigurationError, InvalidDecision
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import SAID
from phronomy.records.principals import Principal
from phronomy.runs.recovery import Recovery
from phronomy.stores.base import Store
from phronomy.stores.memory import MemoryStore
from phronomy.workers.worker import Worker

if TYPE_CHECKING:
    from phronomy.inbox import Inbox

_Maker: TypeAlias = "Callable[[Store], Inbox]"


@dataclass(frozen=True, kw_only=True)
class Login:
    """Who signs in, and how."""

    who: Annotated[
        str | None, typer.Option("--as", help="Whom the link signs in. By default your login name.", metavar="ID")
    ] = None
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="A role that they have, unless the directory lists them. May be given several times.", metavar="ROLE"
        ),
    ] = None
    inbox: Annotated[
        str | None,
        typer.Option(
            help="An Inbox with a login of your own, or a function that makes one of the store.", metavar="MODULE:INBOX"
        ),
    ] = None

    @property
    def principal(self) -> Principal:
        """Whom the link signs in. Raises `WrongUsage`."""
        if self.who == "":
            raise WrongUsage(
                "--as is empty: give the id of whom the link signs in, or leave it out for your login name"
            )
        try:
            return Principal(
                id=login_name() if self.who is None else self.who, roles=tuple(dict.fromkeys(self.role or ()))
            )
        except InvalidDecision as error:
            raise WrongUsage(f"--as and --role: {error}") from None


@command
def serve(
    screen: Screen,
    *,
    here: Here,
    login: Login,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Without --inbox, one of this machine.", metavar="HOST")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0 for any that is free.", metavar="PORT", min=0, max=65_535)
    ] = 8484,
    no_work: Annotated[
        bool, typer.Option("--no-work", help="Leave what is decided to a `phronomy work` elsewhere.")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="Have the link lead to a page on which one talks to the agent.")
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", help="Print a line for each request to stderr: what was answered, and to whom.")
    ] = False,
) -> int:
    """Show the inbox in a browser of this machine, until Ctrl-C.

    It prints a link that signs you in once. With --app, what is decided is carried out here, too.
    """
    with needs_inbox():
        from phronomy.inbox import serving  # noqa: PLC0415  # a web server
    if login.inbox is None and host not in serving.LOOPBACK:
        raise WrongUsage(
            f"a link signs in on one's own machine, so --host is one of {', '.join(serving.LOOPBACK)}: to listen on"
            f" {host}, give --inbox with a login of your own"
        )
    principal = login.principal
    with _opened(screen, here, login) as (place, made):
        if made is not None:
            _check_host(made, host)
        if chat and (made is not None or place is None or place.agent is None):
            raise WrongUsage(
                "--chat is for the agent of --app module:agent; with --inbox, give its people the scope start"
            )
        with closing(_listen(host, port)) as listening:
            url = serving.address_of(listening, host)
            announce = partial(_show_link, screen, url, principal.id)
            path = None
            if place is not None and made is None:
                agents = [place.agent] if place.agent is not None else []
                at = listening.getsockname()[1]
                made, link = serving.local_inbox(place.store, agents, principal, url=url, port=at, announce=announce)
                path = asyncio.run(link.issue()) + ("?to=/chat" if chat else "")
            assert made is not None
            site = made.site
            works = place is not None and place.agent is not None and not no_work

            def ready() -> None:
                screen.say(f"The inbox is at {site.public_url or url}/. Ctrl-C stops it.", style="bold")
                if host not in serving.LOOPBACK and site.trusted_hosts is None:
                    screen.complain(
                        f"{url} answers to any host name: give the Inbox trusted_hosts, unless a proxy in front checks the name"
                    )
                where = "here" if works else "by `phronomy work`, wherever that runs"
                screen.say(f"What is decided is carried out {where}.")
                if path is not None:
                    announce(path)

            worker = serving.WorkerThread(_worker(screen, place)) if works and place is not None else None
            leaving = partial(screen.say, "Stopping. Once more leaves what is still open.")
            with _access_log() if log else nullcontext():
                asyncio.run(serving.run(serving.Server(made), listening, worker, ready=ready, leaving=leaving))
    screen.say("Stopped.", style="bold")
    return DONE


@contextmanager
def _access_log() -> Iterator[None]:
    """Have the access log of the inbox be printed to stderr."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("phronomy.inbox")
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)


@contextmanager
def _opened(screen: Screen, here: Here, login: Login) -> Iterator[tuple[Place | None, Inbox | None]]:
    """The place whose requests are shown, and the inbox that --inbox gives. One of the two is there. Raises `WrongUsage`."""
    from phronomy.inbox import Inbox  # noqa: PLC0415  # a web server

    found = _inbox(here, login) if login.inbox is not None else None
    if isinstance(found, Inbox):
        yield None, found
        return
    app = here.app or os.environ.get("PHRONOMY_APP") or None
    if app is None and here.deps is not None:
        raise WrongUsage("--deps is for the tools of an app: give --app module:agent")
    where: Here | Where = here if app is not None else Where(store=here.store, tenant=here.tenant)
    with open_place(screen, where, makes_file=app is not None) as place:
        if isinstance(place.store, MemoryStore):
            raise WrongUsage(
                "what is in memory no other process sees, so there is nothing to show: give --store URL, the store of the runs"
            )
        made = None if found is None else _made(str(login.inbox), found, place.store)
        yield place, made


def _inbox(here: Here, login: Login) -> Inbox | _Maker:
    """What --inbox names. Raises `WrongUsage`, `ConfigurationError`."""
    from phronomy.inbox import Inbox  # noqa: PLC0415  # a web server

    name = str(login.inbox)
    if login.who is not None or login.role is not None:
        raise WrongUsage("--as and --role are for the link, and --inbox has a login of its own: leave them out")
    with redirect_stdout(sys.stderr):
        found = load_object(name, "--inbox is module:inbox")
    if isinstance(found, Inbox):
        if here != Here():
            raise WrongUsage(
                f"{name} is an Inbox, with a store and agents of its own: leave --app, --deps, --store and --tenant out,"
                " and run `phronomy work` beside it"
            )
        return found
    if not inspect.isroutine(found):
        raise WrongUsage(
            f"{name} is a {type(found).__name__}: an Inbox is needed, or a function that makes one of a store"
        )
    return found


def _made(name: str, maker: Any, store: Store) -> Inbox:
    from phronomy.inbox import Inbox  # noqa: PLC0415  # a web server

    try:
        inspect.signature(maker).bind(store)
    except TypeError:
        raise WrongUsage(f"{name} needs other arguments: a function of a store is needed") from None
    with redirect_stdout(sys.stderr):
        made = maker(store)
    if inspect.iscoroutine(made):
        made.close()
    if not isinstance(made, Inbox):
        raise WrongUsage(f"{name} gives a {type(made).__name__}, and no Inbox")
    return made


def _check_host(inbox: Inbox, host: str) -> None:
    from phronomy.inbox import serving  # noqa: PLC0415  # a web server

    try:
        serving.check_host(inbox, host)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from None


def _listen(host: str, port: int) -> socket.socket:
    from phronomy.inbox import serving  # noqa: PLC0415  # a web server

    try:
        return serving.listen(host, port)
    except OSError as error:
        why = (error.strerror or type(error).__name__).partition(" (")[0]  # Python adds the address
        raise WrongUsage(f"nobody can listen on {host}:{port}: {why}. Give another --port") from None


def _show_link(screen: Screen, url: str, who: str, path: str) -> None:
    """Print a link, on a line of its own that nothing wraps."""
    screen.say(f"To sign in as {who}, open this in a browser within 5 minutes. It works once:")
    screen.verbatim(url + path)


def told_of(checkpoint: Checkpoint) -> str:
    """What became of a run, with the request that was decided last: its page was what somebody looked at."""
    last = checkpoint.decisions[-1] if checkpoint.decisions else None
    decided = f" after {last.pending_id} was {SAID[last.kind]}" if last is not None else ""
    return f"{checkpoint.run_id}: {checkpoint.status}{decided}"


def _worker(screen: Screen, place: Place) -> Worker:
    def heard(done: Recovery[Any]) -> None:
        """Tell what became of a run."""
        if done.error is not None:
            screen.complain(f"{done.run_id}: {explained(done.error, 'serve')}")
        elif done.result is not None:
            screen.verbatim(told_of(done.result.checkpoint))  # on one line, for whoever searches the output

    return Worker(place.worker, deps=place.deps, heard=heard)
