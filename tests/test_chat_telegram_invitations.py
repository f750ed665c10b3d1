"""Invitations of Telegram: a link binds an account to a person, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from chat_scenes import KEYS, OTTO, RITA

from phronomy import ConfigurationError, MemoryStore, UnknownPerson
from phronomy.chat import ChatApprovals, Response, Said
from phronomy.chat.telegram import Invitations
from phronomy.chat.telegram.invitations import KIND
from phronomy.people import Person, StoreDirectory
from phronomy.stores.rows import Behind, Document
from phronomy.testing.chat import Clock, FakeTelegram
from phronomy.testing.chat.telegram.bot_server import GROUP

BOT = "refund_desk_bot"


class Desk:
    """Rita and Otto, whom nobody in Telegram is yet."""

    def __init__(self, fake: FakeTelegram, **options: Any) -> None:
        self.fake = fake
        self.store = MemoryStore(clock=fake.clock)
        self.people = StoreDirectory(self.store)
        self.invitations = Invitations(self.store)
        for id in ("rita", "otto"):
            self.people.add(Person(id=id, name=id.title(), roles=("lead",), aliases=(f"slack:{id}",)))
        given = {"listeners": [self.invitations.answer], **options}
        self.approvals = ChatApprovals(
            self.store, channels=[fake.channel], directory=self.people, keys=KEYS, route=fake.place, **given
        )
        fake.connect(self.approvals)

    def link(self, person: str = "rita", **options: Any) -> str:
        return self.invitations.issue(person, username=BOT, **options)

    def follow(self, link: str, by: str = RITA) -> str | None:
        """What somebody is told who follows a link."""
        before = len(self.fake.told(by))
        assert self.fake.deliver(self.fake.follow(link, by)).status == 200
        return ([*self.fake.told(by)[before:], None])[0]

    def who(self, by: str = RITA) -> str | None:
        found = self.people.resolve(self.fake.alias(by))
        return found.id if found is not None else None


@pytest.fixture
def desk() -> Iterator[Desk]:
    with FakeTelegram(Clock()) as fake:
        yield Desk(fake)


def test_who_follows_a_link_is_known(desk: Desk) -> None:
    """By one more alias: all else of the person stays."""
    link = desk.link()
    assert link.startswith(f"https://t.me/{BOT}?start=") and len(link.partition("=")[2]) <= 64
    assert desk.follow(link) == "You are known here as Rita now." and desk.who() == "rita"
    person = desk.people.get("rita")
    assert person == Person(id="rita", name="Rita", roles=("lead",), aliases=("slack:rita", desk.fake.alias(RITA)))


def test_a_link_counts_once(desk: Desk) -> None:
    link = desk.link()
    desk.follow(link)
    for by in (OTTO, RITA):
        told = desk.follow(link, by)
        assert told is not None and "does not count" in told
    assert (desk.who(), desk.who(OTTO)) == ("rita", None)


def test_an_alias_that_is_taken_away_does_not_come_back(desk: Desk) -> None:
    link = desk.link()
    desk.follow(link)
    desk.people.add(Person(id="rita"), replace=True)
    desk.follow(link)
    assert desk.who() is None


def test_a_link_expires(desk: Desk) -> None:
    link = desk.link(seconds=60)
    desk.fake.clock.move(60)
    told = desk.follow(link)
    assert told is not None and "does not count" in told and desk.who() is None


@pytest.mark.parametrize("payload", ["x" * 43, "_" * 43])
def test_a_link_that_nobody_has_made_does_not_count(desk: Desk, payload: str) -> None:
    told = desk.follow(f"https://t.me/{BOT}?start={payload}")
    assert told is not None and "does not count" in told and desk.who() is None


@pytest.mark.parametrize("text", ["/start", "/start x", "Hello", f"/help {'x' * 43}", f"/start {'x' * 43} {'x' * 43}"])
def test_what_is_no_link_is_left_to_others(desk: Desk, text: str) -> None:
    said = desk.fake.telegram.read(json.loads(desk.fake.message(RITA, text).body))
    assert isinstance(said, Said) and desk.invitations.answer(desk.fake.channel, said) is None
    desk.fake.deliver(desk.fake.message(RITA, text))
    assert desk.fake.told(RITA) == []


def test_without_invitations_a_link_does_nothing() -> None:
    with FakeTelegram(Clock()) as fake:
        desk = Desk(fake, listeners=[])
        assert desk.follow(desk.link()) is None and desk.who() is None


def test_a_link_counts_in_no_group(desk: Desk) -> None:
    """Others read it there. It is not spent by that."""
    link = desk.link()
    payload = link.partition("=")[2]
    desk.fake.deliver(desk.fake.message(RITA, "/start"))
    desk.fake.deliver(desk.fake.message(RITA, f"/start@{BOT} {payload}", chat=GROUP))
    assert desk.who() is None
    entities = [{"type": "bot_command", "offset": 0, "length": len(f"/start@{BOT}")}]
    sent = json.loads(desk.fake.message(RITA, f"/start@{BOT} {payload}", chat=GROUP).body)
    sent["message"]["entities"] = entities
    desk.fake.deliver(desk.fake.sent({"message": sent["message"]}))
    assert desk.who() is None and "alone" in desk.fake.told(RITA)[-1]
    desk.follow(link)
    assert desk.who() == "rita"


def test_a_link_of_another_channel_or_tenant_does_not_count(desk: Desk) -> None:
    other = Invitations(desk.store, name="telegram-eu").issue("rita", username=BOT)
    told = desk.follow(other)
    assert told is not None and "does not count" in told
    globex = desk.store.for_tenant("globex")
    StoreDirectory(globex).add(Person(id="rita"))
    desk.follow(Invitations(globex).issue("rita", username=BOT))
    assert desk.who() is None and StoreDirectory(globex).resolve(desk.fake.alias(RITA)) is None


def test_an_account_stands_for_one_person(desk: Desk) -> None:
    desk.follow(desk.link("rita"))
    told = desk.follow(desk.link("otto"))
    assert told is not None and "somebody else already" in told and "rita" not in told.lower()
    assert desk.who() == "rita"
    assert desk.follow(desk.link("rita")) == "You are known here as Rita now."


def test_a_person_who_is_gone_is_not_bound(desk: Desk) -> None:
    link = desk.link()
    desk.people.remove("rita")
    told = desk.follow(link)
    assert told is not None and "does not count" in told and desk.people.get("rita") is None


def test_a_process_that_dies_half_way_leaves_the_link_to_this_account_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telegram sends the same update again."""
    link = desk.link()
    sent = desk.fake.follow(link, RITA)
    with monkeypatch.context() as patch:
        patch.setattr(StoreDirectory, "add_alias", lambda *args: 1 / 0)
        assert desk.fake.deliver(sent).status == 503
    told = desk.follow(link, OTTO)
    assert told is not None and "does not count" in told and desk.who(OTTO) is None
    assert desk.fake.redeliver() == [200] and desk.who() == "rita"


def test_of_two_who_follow_it_at_once_one_is_known(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    link = desk.link()
    put = desk.store.put_document

    def behind(document: Document) -> Document:
        if document.kind == KIND:
            raise Behind("somebody was first")
        return put(document)

    monkeypatch.setattr(desk.store, "put_document", behind)
    told = desk.follow(link)
    assert told is not None and "does not count" in told and desk.who() is None


def test_a_person_who_is_changed_at_this_moment_can_follow_it_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = desk.link()
    put = desk.store.put_document

    def behind(document: Document) -> Document:
        if document.kind == "person":
            raise Behind("somebody was first")
        return put(document)

    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "put_document", behind)
        told = desk.follow(link)
    assert told is not None and "again" in told
    assert desk.follow(link) == "You are known here as Rita now."


def test_the_store_has_no_secret(desk: Desk) -> None:
    link = desk.link()
    [document] = desk.store.select_documents(KIND)
    assert link.partition("=")[2] not in document.key + document.text and "rita" in document.text
    assert document.expires_at is not None


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"version": 2}', '{"version": 1, "until": "x"}'])
def test_a_row_that_cannot_be_read_binds_nobody(desk: Desk, text: str) -> None:
    link = desk.link()
    [document] = desk.store.select_documents(KIND)
    desk.store.put_document(Document(kind=KIND, key=document.key, text=text, version=document.version))
    told = desk.follow(link)
    assert told is not None and "does not count" in told


def test_it_invites_only_people_who_are_there_and_for_a_time(desk: Desk) -> None:
    with pytest.raises(UnknownPerson):
        desk.link("nobody")
    for seconds in (0, -1, float("nan"), "60"):
        with pytest.raises(ConfigurationError):
            desk.link(seconds=seconds)
    with pytest.raises(ConfigurationError):
        Invitations("store")  # type: ignore[arg-type]
    assert repr(desk.invitations).startswith("Invitations(")


def test_listeners_are_asked_in_their_order() -> None:
    heard: list[str] = []

    def first(channel: Any, said: Said) -> Response | None:
        heard.append(f"first: {said.text}")
        return channel.acknowledge(said, "I have heard") if said.text == "Hello" else None

    def second(channel: Any, said: Said) -> Response | None:
        heard.append(f"second: {said.text}")
        return None

    with FakeTelegram(Clock()) as fake:
        desk = Desk(fake, listeners=[first, second])
        for text in ("Hello", "Bye"):
            desk.fake.deliver(desk.fake.message(RITA, text))
        assert heard == ["first: Hello", "first: Bye", "second: Bye"] and fake.told(RITA) == ["I have heard"]
