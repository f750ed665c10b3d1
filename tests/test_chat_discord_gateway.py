"""Discord over the gateway: discord.py itself, connected to the fake."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import discord
import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, emptied, with_people

from phronomy import ConfigurationError, MemoryStore
from phronomy.chat.discord import Discord, Gateway
from phronomy.testing.chat import Clock, FakeDiscord
from phronomy.testing.chat.discord import BOT_TOKEN, PUBLIC_KEY, FakeGateway
from phronomy.testing.chat.discord.api import CHANNEL


@pytest.fixture
def fake() -> Iterator[FakeDiscord]:
    with FakeDiscord(Clock()) as fake:
        yield fake


def test_clicks_and_forms_come_over_the_gateway(fake: FakeDiscord) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake)
    item = asked(approvals, store)
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    with FakeGateway(fake) as server, Gateway(approvals, fake.channel) as connection:
        assert BOT_TOKEN not in repr(connection)
        assert server.deliver(fake.sign(shown, "reason", RITA))["type"] == 9
        assert fake.form(RITA) == {"reason": ""}
        stranger = server.deliver(fake.sign(shown, "approve", "U0STRANGER"))
        assert stranger["type"] == 4 and stranger["data"]["flags"] == 64
        assert server.deliver(fake.sign(shown, "approve", OTTO)) == {"type": 6}
        server.drop()
        assert server.opened == 2
        late = server.deliver(fake.sign(shown, "approve", RITA))
        assert late["type"] == 4 and "Somebody was first" in fake.told(RITA)[0]
    # Closed is what has finished: the message is edited.
    assert fake.messages()[0].buttons == {}
    trail = [(each.by and each.by.id, each.kind, each.refused) for each in store.audit(pending_id=item.id)]
    assert trail == [(fake.alias("U0STRANGER"), "approve", True), ("otto", "approve", False)]


def test_what_is_no_interaction_is_not_answered_and_ends_nothing(fake: FakeDiscord) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake)
    asked(approvals, store)
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    with FakeGateway(fake) as server, Gateway(approvals, fake.channel):
        server.send("INTERACTION_CREATE", {**json.loads(fake.command("x", RITA).body), "type": 9})
        server.send("TYPING_START", {"channel_id": CHANNEL, "user_id": "1", "timestamp": 1})
        assert server.deliver(fake.sign(shown, "approve", OTTO)) == {"type": 6}
    assert len([path for _, path, _ in fake.calls if path.endswith("/callback")]) == 1


def test_an_answer_that_comes_too_late_is_logged_and_the_decision_stands(
    fake: FakeDiscord, caplog: pytest.LogCaptureFixture
) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake)
    item = asked(approvals, store)
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    sent = fake.sign(shown, "approve", RITA)
    fake.clock.move(4)
    with FakeGateway(fake) as server, Gateway(approvals, fake.channel):
        server.send("INTERACTION_CREATE", json.loads(sent.body))
        with fake.api.answered:
            assert fake.api.answered.wait_for(lambda: any(path.endswith("/callback") for _, path, _ in fake.calls), 20)
    assert store.request(item.id).status == "decided" and "status 404" in caplog.text
    assert "token." not in caplog.text
    assert fake.messages()[0].buttons == {}


def test_a_wrong_token_is_told(fake: FakeDiscord) -> None:
    wrong = Discord(public_key=PUBLIC_KEY, bot_token="wrong", base_url=fake.base_url)
    approvals = approvals_of(MemoryStore(), fake)
    with FakeGateway(fake):
        gateway = Gateway(approvals, wrong)
        with pytest.raises(discord.LoginFailure):
            gateway.connect()
        gateway.close()
        with pytest.raises(ConfigurationError):
            gateway.connect(timeout=0)


def test_it_can_be_closed_and_connected_anew(fake: FakeDiscord) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake)
    asked(approvals, store)
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    gateway = Gateway(approvals, fake.channel)
    gateway.close()
    with FakeGateway(fake) as server:
        for by in (RITA, OTTO):
            with gateway:
                with pytest.raises(ConfigurationError, match="connected already"):
                    gateway.connect()
                assert server.deliver(fake.sign(shown, "approve", by))["type"] in (4, 6)


def test_a_gateway_that_does_not_open_is_told_and_left(fake: FakeDiscord) -> None:
    gateway = Gateway(approvals_of(MemoryStore(), fake), fake.channel)
    before = {thread.name for thread in threading.enumerate()}
    with FakeGateway(fake, ready=False):
        for timeout in (0.001, 0.2):
            with pytest.raises(TimeoutError, match="did not open within"):
                gateway.connect(timeout=timeout)
            assert "phronomy-discord" not in {thread.name for thread in threading.enumerate()} - before


def test_discord_py_talks_to_the_fake(fake: FakeDiscord) -> None:
    """A client that others have written posts, edits, is told of errors, and answers clicks with a modal."""
    told: list[Any] = []
    ready, opened, followed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Client(discord.Client):
        async def on_ready(self) -> None:
            channel = self.get_partial_messageable(int(CHANNEL))
            message = await channel.send("hello", nonce="n1", embed=discord.Embed(description="d"))
            edited = await message.edit(content="changed")
            told.append((edited.content, edited.embeds[0].description))
            for wrong, code in (("x" * 2_001, 50035), ("", 50006)):
                with pytest.raises(discord.HTTPException) as error:
                    await channel.send(wrong)
                told.append(error.value.code == code)
            with pytest.raises(discord.NotFound):
                await channel.fetch_message(1)
            fetched = await channel.fetch_message(message.id)
            told.append(fetched.content)
            ready.set()

        async def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
            told.append(interaction.user.id)

            class Form(discord.ui.Modal, title="Why?"):
                reason: discord.ui.Label[Any] = discord.ui.Label(text="Reason", component=discord.ui.TextInput())

                async def on_submit(self, interaction: discord.Interaction[Any]) -> None:
                    told.append(self.reason.component.value)  # type: ignore[attr-defined]
                    await interaction.response.send_message("noted", ephemeral=True)
                    await interaction.followup.send("more", ephemeral=True)
                    followed.set()

            if interaction.type is discord.InteractionType.component:
                await interaction.response.send_modal(Form())
                opened.set()

    fake.api.messages[CHANNEL, "5"] = {
        **fake.api.message(CHANNEL, {"content": "ask"}),
        "id": "5",
        "components": [{"type": 1, "components": [{"type": 2, "style": 1, "label": "b", "custom_id": "phronomy:a"}]}],
    }
    [shown] = fake.messages()

    async def run(server: FakeGateway) -> None:
        async with Client(intents=discord.Intents.none(), guild_ready_timeout=0.0) as client:
            started = asyncio.ensure_future(client.start(BOT_TOKEN))
            await asyncio.wait_for(ready.wait(), 20)
            answer = await asyncio.to_thread(server.deliver, fake.sign(shown, "approve", RITA))
            assert answer["type"] == 9
            await asyncio.wait_for(opened.wait(), 20)
            [name] = fake.form(RITA) or {}
            submitted = fake.submitted(RITA, {name: "because"})
            answer = await asyncio.to_thread(server.deliver, submitted)
            assert answer["type"] == 4
            await asyncio.wait_for(followed.wait(), 20)
            await client.close()
            await started

    with FakeGateway(fake) as server:
        asyncio.run(run(server))
    user = int(fake.alias(RITA).partition(":")[2])
    assert told[:4] == [("changed", "d"), True, True, "changed"]
    assert sorted(map(str, told[4:])) == sorted([str(user), str(user), "because"])
    assert fake.told(RITA) == ["noted", "more"]
