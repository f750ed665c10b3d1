"""Teams beside Microsoft's SDK: its models take what we send, its app what the fake signs, and the fake takes what the SDK sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import unquote

import httpx2
import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, emptied, with_people

pytest.importorskip("microsoft_teams.apps")

from microsoft_teams import cards as sdk_cards
from microsoft_teams.api import MessageActivity, MessageActivityInput, TaskModuleResponse
from microsoft_teams.api.activities import ActivityTypeAdapter
from microsoft_teams.api.auth.cloud_environment import PUBLIC, with_overrides
from microsoft_teams.api.models.adaptive_card import (
    AdaptiveCardActionCardResponse,
    AdaptiveCardActionErrorResponse,
    AdaptiveCardActionMessageResponse,
)
from microsoft_teams.apps import App
from microsoft_teams.cards import AdaptiveCard, TextBlock
from pydantic import BaseModel

from phronomy import Approval, MemoryStore
from phronomy.chat import Card, Line
from phronomy.chat.teams.adaptive_cards import message_of, short_message_of
from phronomy.testing.chat import Clock, FakeTeams, Sent, Shown
from phronomy.testing.chat.teams import APP_ID, APP_PASSWORD, TENANT

# The SDK makes objects of its own that it has deprecated. While code is measured, its client of HTTP cannot connect.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.unmeasured]

STRANGER = "U000STRANGER"


@pytest.fixture
def teams() -> Iterator[FakeTeams]:
    # The SDK knows no other clock than that of the machine.
    import time

    with FakeTeams(Clock(time.time())) as fake:
        yield fake


# What we send


KINDS: dict[str, type[BaseModel]] = {
    kind.model_fields["type"].default: kind
    for kind in vars(sdk_cards).values()
    if isinstance(kind, type)
    and issubclass(kind, BaseModel)
    and "type" in kind.model_fields
    and isinstance(kind.model_fields["type"].default, str)
}


def check(found: Any) -> int:
    """Check all objects of a card by their models, which would take names that they do not know; returns how many there are."""
    if isinstance(found, list):
        return sum(check(each) for each in found)
    if not isinstance(found, dict):
        return 0
    count = 0
    if "type" in found:
        # What a model does not know is no mistake for it, yet does nothing in a client. `$schema` has another name there.
        model = KINDS[found["type"]].model_validate({name: each for name, each in found.items() if name != "$schema"})
        assert not model.model_extra, (found["type"], model.model_extra)
        count = 1
    return count + sum(check(each) for name, each in found.items() if name not in ("data", "msteams"))


def card_in(activity: Any) -> dict[str, Any]:
    message = MessageActivityInput.model_validate(activity)
    # Of the protocol, yet not of this model: https://learn.microsoft.com/en-us/azure/bot-service/rest-api
    assert message.attachments is not None and (message.model_extra or {}).keys() == {"summary"}
    [attachment] = message.attachments
    assert attachment.content_type == "application/vnd.microsoft.card.adaptive"
    AdaptiveCard.model_validate(activity["attachments"][0]["content"])
    found: dict[str, Any] = activity["attachments"][0]["content"]
    return found


def test_messages_in_each_state_and_all_answers_are_as_the_models_of_the_sdk_have_them(teams: FakeTeams) -> None:
    store = with_people(MemoryStore(clock=teams.clock), teams)
    approvals = approvals_of(store, teams)
    asked(approvals, store, gate=Approval(needed=2, title="t", context="c"))
    emptied(approvals, teams.clock)
    [shown] = teams.messages()

    def posted() -> Any:
        [activity] = teams._service.messages.values()
        return activity

    def answer(sent: Sent) -> Any:
        return json.loads(teams.deliver(sent).body)

    assert check(card_in(posted())) > 20
    view = answer(
        teams.signed(teams.action(shown, RITA, "phronomy:view", {"phronomy": shown.buttons["approve"]}, "automatic"))
    )
    AdaptiveCardActionCardResponse.model_validate(view)
    assert check(view["value"]) > 20
    AdaptiveCardActionMessageResponse.model_validate(answer(teams.sign(shown, "approve", STRANGER)))
    # The model wants more of an error than the documentation.
    wrong = answer(teams.signed(teams.action(shown, RITA, "other", {})))
    wrong["value"]["innerHttpError"] = {"statusCode": 400, "body": None}
    AdaptiveCardActionErrorResponse.model_validate(wrong)
    for action in ("reason", "edit"):
        dialog = answer(teams.sign(shown, action, RITA))  # type: ignore[arg-type]
        found = TaskModuleResponse.model_validate(dialog)
        assert found.task is not None and found.task.type == "continue"
        check(dialog["task"]["value"]["card"]["content"])
    refused = answer(teams.sign(shown, "reason", STRANGER))
    assert TaskModuleResponse.model_validate(refused).task.type == "message"  # type: ignore[union-attr]
    for by in (RITA, OTTO):
        teams.click(shown, "approve", by)
        emptied(approvals, teams.clock)
        assert check(card_in(posted())) > 5


@pytest.mark.parametrize("make", [message_of, short_message_of])
def test_a_message_without_buttons_or_too_long_is_right_too(make: Any) -> None:
    card = Card(title="t", state="over", status="s", lines=(Line(name="n", value="v"),), link="https://example.org/1")
    assert check(card_in(make(card))) >= 4


# What the fake sends


class Adapter:
    """A server that is called in the process."""

    def register_route(self, method: Literal["POST"], path: str, handler: Any) -> None:
        self.handler = handler

    def serve_static(self, path: str, directory: str) -> None:
        """Nothing is served."""

    async def start(self, port: int) -> None:
        """There is no port."""

    async def stop(self) -> None:
        """Nothing has been started."""


def app_of(teams: FakeTeams, adapter: Adapter) -> App:
    async def token(scope: Any, tenant: Any = None) -> str:
        form = {
            "grant_type": "client_credentials",
            "client_id": APP_ID,
            "client_secret": APP_PASSWORD,
            "scope": "https://api.botframework.com/.default",
        }
        answer = httpx2.post(f"{teams.base_url}/{TENANT}/oauth2/v2.0/token", data=form)
        return str(answer.json()["access_token"])

    return App(
        client_id=APP_ID,
        tenant_id=TENANT,
        token=token,
        service_url=teams.service_url,
        cloud=with_overrides(PUBLIC, openid_metadata_url=teams.metadata_url, login_endpoint=teams.base_url),
        http_server_adapter=adapter,
        fetch_user_token=False,
    )


def received_by_sdk(teams: FakeTeams, *sent: Sent) -> tuple[list[int], list[Any]]:
    """The statuses with which the SDK's app answers, and the activities that it has understood."""
    seen: list[Any] = []

    async def run() -> list[int]:
        app = app_of(teams, adapter := Adapter())

        @app.on_activity
        async def seen_by(context: Any) -> None:
            seen.append(context.activity)

        await app.initialize()
        found = []
        for each in sent:
            answer = await adapter.handler({"body": json.loads(each.body), "headers": dict(each.headers)})
            found.append(answer["status"])
        return found

    return asyncio.run(run()), seen


SHOWN = Shown(ref="19:0123456789abcdef@thread.tacv2/17", text="", buttons={"approve": "a" * 45, "reason": "n" * 45})


def test_the_sdk_takes_what_the_fake_signs_and_understands_it(teams: FakeTeams) -> None:
    statuses, seen = received_by_sdk(
        teams,
        teams.sign(SHOWN, "approve", RITA),
        teams.sign(SHOWN, "reason", RITA),
        teams.sign_as_message(SHOWN, "approve", RITA),
        teams.say("hello", RITA),
        teams.install(RITA),
    )
    assert [each.type for each in seen] == ["invoke", "invoke", "message", "message", "conversationUpdate"]
    assert 401 not in statuses and 500 not in statuses
    assert seen[0].value.action.data == {"phronomy": "a" * 45} and seen[0].value.trigger == "manual"
    assert seen[0].from_.aad_object_id == teams.person(RITA) and seen[0].conversation.tenant_id == TENANT
    assert seen[1].name == "task/fetch" and seen[1].value.data["phronomy"] == "n" * 45
    assert seen[2].reply_to_id == "17" and seen[2].value == {"phronomy": "a" * 45}


WRONG: list[dict[str, Any]] = [
    {"claims": {"aud": "11111111-2222-4333-8444-555555555555"}},
    {"claims": {"iss": "https://evil.example"}},
    {"claims": {"exp": 1}},
    {"claims": {"serviceurl": "https://smba.trafficmanager.net/emea/"}},
    {"claims": {"serviceurl": None}},
    {"way": "none"},
    {"way": "HS256"},
    {"key": 7},
    {"header": {"kid": "other"}},
]


def test_what_the_sdk_refuses_we_refuse(teams: FakeTeams) -> None:
    """The reverse is not so: the SDK asks neither for endorsements nor for a tenant."""
    activity = teams.action(SHOWN, RITA, "phronomy:approve", {"phronomy": "a" * 45})
    wrong = [teams.signed(activity, **each) for each in WRONG]
    statuses, seen = received_by_sdk(teams, *wrong)
    assert statuses == [401] * len(WRONG) and seen == []
    approvals = approvals_of(MemoryStore(clock=teams.clock), teams)
    assert {approvals.handle("POST", each.path, each.headers, each.body).status for each in wrong} <= {401, 403}
    right = teams.signed(activity)
    assert approvals.handle("POST", right.path, right.headers, right.body).status == 200


def test_the_fake_takes_what_the_sdk_sends(teams: FakeTeams) -> None:
    async def run() -> tuple[str, str, str]:
        app = app_of(teams, Adapter())
        await app.initialize()
        card = AdaptiveCard(version="1.5").with_body([TextBlock(text="plain")])
        posted = await app.send(teams.conversation_id, card)
        said = await app.send(teams.conversation_id, "hello")
        edited = MessageActivityInput(id=posted.id).add_card(card)
        again = await app.send(teams.conversation_id, edited)
        for client in (app.http_client, app.api.http):  # the SDK leaves its connections open
            await client.http.aclose()
        return posted.id, said.id, again.id

    posted, said, again = asyncio.run(run())
    assert posted == again != said and len(teams.messages()) == 1 and teams.messages()[0].edits == 1
    assert teams.texts() == [(teams.conversation_id, "hello")]
    theirs = unquote(teams.calls[0][1])
    teams.channel.post(teams.conversation_id, Card(title="t", state="over", status="s"), key="k")
    assert unquote(teams.calls[-1][1]) == theirs


def test_activities_of_the_fake_are_as_the_models_of_the_sdk_have_them(teams: FakeTeams) -> None:
    activity = json.loads(teams.say("hello", RITA).body)
    found = ActivityTypeAdapter.validate_python(activity)
    assert isinstance(found, MessageActivity) and found.text == "<at>Approvals</at> hello\n"
    assert found.strip_mentions_text().text.strip() == "hello"
