"""One process of approvals in a chat app. It is forked from one that has only imported this file, which takes seconds.

It asks, takes a click, or carries out. Each may be killed where the last argument says, by a signal that no process can handle.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from chat_scenes import KEYS, Nobody
from starlette.testclient import TestClient

from phronomy import Agent, Approval, open_store, tool
from phronomy.chat import Card, Channel, ChatApprovals, Response
from phronomy.chat.discord import Discord
from phronomy.chat.email import Email
from phronomy.chat.posts import Post
from phronomy.chat.slack import Slack
from phronomy.chat.teams import Cloud, Teams
from phronomy.chat.telegram import Telegram
from phronomy.chat.webhooks import Endpoint, Webhooks
from phronomy.inbox import Inbox, MailLinks
from phronomy.people import StoreDirectory
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import FakeSlack, discord, slack, teams, telegram, webhooks
from phronomy.testing.chat.mail.platform import ORIGIN


def kill() -> NoReturn:
    """Be gone, at once."""
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def channel_of(name: str, at: str) -> Channel:
    """The channel, with the settings of its fake."""
    match name:
        case "slack":
            return Slack(signing_secret=slack.SECRET, bot_token=slack.TOKEN, team_id=FakeSlack.team, base_url=at)
        case "discord":
            return Discord(public_key=discord.PUBLIC_KEY, bot_token=discord.BOT_TOKEN, base_url=at)
        case "teams":
            return Teams(
                app_id=teams.APP_ID,
                app_password=teams.APP_PASSWORD,
                tenant_id=teams.TENANT,
                service_url=f"{at}/teams/",
                cloud=Cloud(login_url=at, metadata_url=f"{at}/v1/.well-known/openidconfiguration"),
            )
        case "telegram":
            return Telegram(bot_token=telegram.TOKEN, secret_token=telegram.SECRET, base_url=at)
        case "email":
            port = int(at.rpartition(":")[2])
            return Email(sender="desk@example.org", inbox_url=ORIGIN, host="127.0.0.1", port=port, security="none")
        case _:
            endpoint = Endpoint(url=at, secrets=[webhooks.SECRET], answer_secrets=[webhooks.ANSWER_SECRET])
            return Webhooks(endpoints={"erp": endpoint}, internal_hosts=["127.0.0.1"])


def killed_once_posted(channel: Channel) -> None:
    """Have the process be killed as soon as a message is posted, before anybody has noted that."""
    post = channel.post

    def posted(to: str, card: Card, *, key: str) -> str:
        post(to, card, key=key)
        kill()

    channel.post = posted  # type: ignore[method-assign]


def killed_between_two_people(approvals: ChatApprovals) -> None:
    """Have the process be killed before it notes that the second person is to be told."""
    add, noted = approvals.posts.add, list[str]()

    def added(key: str, post: Post) -> bool:
        if noted:
            kill()
        noted.append(key)
        return add(key, post)

    approvals.posts.add = added  # type: ignore[method-assign]


def answered(approvals: ChatApprovals, path: str, headers: dict[str, str], body: bytes) -> Response:
    """The answer to a request, which a page of the inbox gives if it is for one."""
    if not path.startswith("/mail/"):
        return approvals.handle("POST", path, headers, body)
    inbox = Inbox(approvals.store, auth=Nobody(), links=MailLinks(approvals))
    found = TestClient(inbox, base_url=ORIGIN).post(path, headers=headers, content=body)
    return Response(status=found.status_code)


def forked(given: str, said: Path, *arguments: str) -> None:
    """What the process does, with what it is given as its input, and with a file for all that it says."""
    sys.stdin, sys.stdout = io.StringIO(given), said.open("w")
    sys.stderr = sys.stdout
    main(*arguments)


def main(url: str, effects: str, name: str, at: str, to: str, what: str, place: str = "") -> None:
    """Do one thing: for the channel of this name, whose fake listens there, in the place of it to which requests go."""
    store = open_store(url)
    channel = channel_of(name, at)
    if place == "posted":
        killed_once_posted(channel)
    approvals = ChatApprovals(store, channels=[channel], directory=StoreDirectory(store), keys=KEYS, route=to)

    if place == "between":
        killed_between_two_people(approvals)

    @tool(requires_approval=Approval(by="lead") if to == "approvers" else True)
    def refund(order: int) -> str:
        """Refund an order."""
        with Path(effects).open("a") as file:
            file.write(f"{order}\n")
        return "refunded"

    model = ScriptedModel.by_turn([call("refund", {"order": 7}), "Done."])
    agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[refund], store=store, announcements=[approvals])
    if what == "ask":
        agent.invoke("Refund order 7")
        if place == "noted":
            kill()
        approvals.outbox.run_once()
    elif what == "click":
        sent = json.loads(sys.stdin.read())
        response = answered(approvals, sent["path"], sent["headers"], base64.b64decode(sent["body"]))
        sys.stdout.write(f"{response.status}\n")
        if place == "acknowledged":
            kill()
        if response.after is not None:
            response.after()
    else:
        agent.recover_all()
        # As often as it takes: a place takes one message in some seconds, and the process before may have sent one just now.
        while (due := approvals.outbox.run_once().due) is not None:
            time.sleep(max(due - store.clock(), 0.0))
