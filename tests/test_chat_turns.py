"""Telling people that it is their turn: by a mention, or alone; who is told, who is not, and what an operator hears."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pytest
from chat_scenes import PLATFORMS, approvals_of, desk, emptied
from inbox_scenes import ByHeader, Visitor, inbox_of

from phronomy import Agent, Approval, Escalate, MemoryStore, PendingApproval, Principal
from phronomy.chat import ChatApprovals
from phronomy.people import Person, StoreDirectory
from phronomy.testing.chat import Clock, FakeSlack, MinimalPlatform, Platform, Shown

HOUR = 3_600.0
ADA, BERT, LEA, OTTO = "U0000000ADA", "U000000BERT", "U0000000LEA", "U000000OTTO"
IDS = {"ada": ADA, "bert": BERT, "lea": LEA, "otto": OTTO}
ROLES = {"ada": "finance", "bert": "finance", "lea": "head", "otto": "clerk"}
REACHING = [name for name in PLATFORMS if name != "webhook"]
MENTIONING = [name for name in REACHING if name != "email"]


class Reaching(Platform, Protocol):
    """A fake on which the bot writes to one person alone."""

    def alone(self, by: str) -> list[Shown]: ...


class Desk:
    """A desk on one platform, with four people in the directory of its store."""

    def __init__(self, platform: Any, route: Any, people: Sequence[str] = tuple(IDS), **options: Any) -> None:
        self.platform: Reaching = platform
        self.clock = platform.clock
        self.store = MemoryStore(clock=self.clock)
        self.people = StoreDirectory(self.store)
        for id in people:
            aliases = (platform.alias(IDS[id]),)
            self.people.add(Person(id=id, name=id.title(), roles=(ROLES[id],), aliases=aliases))
        self.approvals: ChatApprovals = approvals_of(self.store, platform, route=route, **options)
        self.agent: Agent[Any, str]

    def asked(self, gate: Approval, requester: str | None = "otto") -> PendingApproval:
        self.agent = desk(self.approvals, self.store, gate)
        item = self.agent.invoke("Refund order 7", requester=requester).checkpoint.pending[0]
        emptied(self.approvals, self.clock)
        return item

    def later(self, seconds: float) -> None:
        """Time passes, and a worker looks."""
        self.clock.move(seconds)
        self.agent.recover_all()
        emptied(self.approvals, self.clock)

    def told(self) -> dict[str, list[str]]:
        """Who has got messages alone, with where each stands."""
        found = {id: [each.text.splitlines()[1] for each in self.platform.alone(by)] for id, by in IDS.items()}
        return {id: [text.lstrip("⏳▶■ ") for text in texts] for id, texts in found.items() if texts}


def platform_of(name: str) -> Any:
    made: Any = PLATFORMS[name](Clock(), False)
    if name == "telegram":
        for by in IDS.values():
            made._started.add(made.number(by))
    return made


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack(Clock()) as found:
        yield found


TWO = Approval(by="finance", needed=2)


@pytest.mark.parametrize("name", REACHING)
def test_the_people_whose_turn_it_is_are_told_alone_and_decide_there(name: str) -> None:
    platform = platform_of(name)
    try:
        at = Desk(platform, "approvers")
        item = at.asked(TWO)
        assert at.told() == {id: ["waits for approval - 0 of 2"] for id in ("ada", "bert")}
        platform.click(platform.alone(ADA)[0], "approve", ADA)
        emptied(at.approvals, at.clock)
        assert [vote.by.id for vote in at.store.request(item.id).approval.votes] == ["ada"]
        platform.click(platform.alone(BERT)[0], "approve", BERT)
        at.later(1)
        for by in (ADA, BERT):
            [shown] = platform.alone(by)
            assert "approved by Ada and Bert, 2027-01-15 08:00 UTC; done" in shown.text and not shown.buttons
        assert platform.pings() == []
    finally:
        platform.close()


@pytest.mark.parametrize("name", MENTIONING)
def test_a_message_in_a_place_mentions_them_and_nobody_else(name: str) -> None:
    platform = platform_of(name)
    try:
        at = Desk(platform, [platform.place, "approvers"])
        at.asked(TWO)
        ids = {platform.alias(IDS[id]).rpartition(":")[2]: id for id in IDS}
        pinged = [ids[each.removeprefix("<@").removesuffix(">")] for each in platform.pings()]
        assert set(pinged) == {"ada", "bert"} and at.told() == {}
        assert "Your turn: " in platform.messages()[0].text
        platform.click(platform.messages()[0], "approve", ADA)
        emptied(at.approvals, at.clock)
        assert "1 of 2: Ada approved" in platform.messages()[0].text
        assert {ids[each[2:-1]] for each in platform.pings()} == {"bert"}  # the message is edited, and tells nobody
    finally:
        platform.close()


@pytest.mark.parametrize("name", MENTIONING)
def test_an_escalation_tells_the_new_people_by_a_new_message(name: str) -> None:
    platform = platform_of(name)
    try:
        at = Desk(platform, [platform.place, "approvers"])
        at.asked(Approval(by="finance", escalate=Escalate(after=HOUR, by="head", instead=True)))
        at.later(HOUR + 1)
        [reminder] = platform.reminders()
        assert "Your turn: " in reminder
        assert {each[2:-1] for each in platform.pings()} == {platform.alias(LEA).rpartition(":")[2]}
        assert "1 of head" in platform.messages()[0].text
    finally:
        platform.close()


def test_who_is_told_alone_is_told_by_an_escalation_too_and_who_was_replaced_is_not_reminded(slack: FakeSlack) -> None:
    at = Desk(slack, "approvers")
    gate = Approval(by="finance", remind=[60, 2 * HOUR], escalate=Escalate(after=HOUR, by="head", instead=True))
    at.asked(gate)
    slack.click(slack.alone(BERT)[0], "edit", BERT)  # a form alone is no vote
    at.later(61)
    assert len(slack.reminders()) == 2
    at.later(HOUR)
    assert sorted(at.told()) == ["ada", "bert", "lea"] and len(slack.reminders()) == 2
    assert [slack.alone(by)[0].buttons == {} for by in (ADA, BERT, LEA)] == [True, True, False]
    at.later(2 * HOUR)
    assert len(slack.reminders()) == 3 and slack.calls[-1][1]["channel"] == f"D{LEA[1:]}"


def test_who_has_voted_is_not_reminded(slack: FakeSlack) -> None:
    at = Desk(slack, "approvers")
    at.asked(Approval(by="finance", needed=2, remind=[60]))
    slack.click(slack.alone(ADA)[0], "approve", ADA)
    emptied(at.approvals, at.clock)
    assert slack.alone(ADA)[0].buttons == {} and slack.alone(BERT)[0].buttons != {}
    at.later(61)
    [reminder] = [arguments for _, arguments in slack.calls if "reply_broadcast" in arguments]
    assert reminder["channel"] == f"D{BERT[1:]}"


def test_the_requester_who_may_not_approve_is_not_told_and_a_deputy_is(slack: FakeSlack) -> None:
    at = Desk(slack, "approvers")
    at.people.name_deputy("bert", "lea", by="boss")
    at.asked(Approval(by="finance", not_requester=True), requester="ada")
    assert sorted(at.told()) == ["bert", "lea"]


def test_services_and_people_of_levels_that_are_met_are_not_told(slack: FakeSlack) -> None:
    at = Desk(slack, "approvers")
    at.people.add(Person(id="robot", kind="service", roles=("finance",), aliases=("slack:U00000ROBOT",)))
    at.asked(Approval(by=["finance", "robot"]))
    assert sorted(at.told()) == ["ada", "bert"] and slack.alone("U00000ROBOT") == []


def test_no_more_people_than_a_number_are_told_and_the_operator_hears_of_it(
    slack: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    at = Desk(slack, ["approvers", slack.place])
    for number in range(30):
        alias = f"slack:U0000000P{number:02d}"
        at.people.add(Person(id=f"p{number:02d}", name=f"P{number}", roles=("many",), aliases=(alias,)))
    with caplog.at_level(logging.WARNING, "phronomy"):
        item = at.asked(Approval(by="many"))
    [shown] = slack.messages()
    assert set(slack.pings()) == {f"<@U0000000P{number:02d}>" for number in range(20)}
    assert "10 more people may decide, and are not told here." in shown.text
    assert f"10 people beyond the 20 who are told may decide {item.id}" in caplog.text


def test_somebody_without_an_alias_is_listed_for_the_operator_and_told_once_they_have_one(
    slack: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    at = Desk(slack, "approvers")
    at.people.add(Person(id="zoe", name="Zoe", roles=("finance",), aliases=("teams:zoe",)))
    with caplog.at_level(logging.WARNING, "phronomy"):
        item = at.asked(TWO)
    assert sorted(at.told()) == ["ada", "bert"]  # the others are told all the same
    [failed] = at.approvals.outbox.failed()
    assert (failed.at, failed.why) == ("approvers:zoe", "zoe has no alias of slack that can be written to")
    assert f"nobody is told that they have to decide {item.id}: zoe has no alias" in caplog.text

    at.people.add_alias("zoe", "slack:U0000000ZOE")
    assert at.approvals.outbox.retry(failed)
    emptied(at.approvals, at.clock)
    assert len(slack.alone("U0000000ZOE")) == 1 and at.approvals.outbox.failed() == []


def test_somebody_whom_the_platform_does_not_reach_holds_nobody_up(slack: FakeSlack) -> None:
    at = Desk(slack, "approvers")
    slack.fail("refused")
    at.agent = desk(at.approvals, at.store, TWO)
    item = at.agent.invoke("Refund order 7", requester="otto").checkpoint.pending[0]
    at.approvals.outbox.run_once()
    at.clock.move(2)
    at.approvals.outbox.run_once()
    assert len(at.told()) == 1
    from phronomy.chat.outbox import delayed

    [late] = delayed(at.approvals.posts)
    assert (late.pending_id, late.why) == (item.id, "chat.postMessage: channel_not_found")
    at.clock.move(301)
    emptied(at.approvals, at.clock)
    assert len(at.told()) == 2


@pytest.mark.parametrize(
    ("gate", "requester", "route", "why"),
    [
        (Approval(by="nobody"), "otto", "approvers", "nobody in the directory is named"),
        (Approval(by="nobody"), "otto", ["slack:C0000000001", "approvers"], "nobody in the directory is named"),
        (True, None, "approvers", "nobody in the directory is named"),
        (True, None, ["slack:C0000000001", "approvers"], None),
    ],
)
def test_a_request_that_nobody_is_told_of_is_listed(
    slack: FakeSlack, gate: Any, requester: str | None, route: Any, why: str | None
) -> None:
    at = Desk(slack, route)
    at.asked(gate, requester)
    failed = at.approvals.outbox.failed()
    assert [each.why.startswith(why or "-") for each in failed] == ([True] if why is not None else [])
    if failed:
        at.people.add(Person(id="zoe", roles=("nobody",), aliases=("slack:U0000000ZOE",)))
        at.approvals.outbox.retry(failed[0])
        emptied(at.approvals, at.clock)
        assert len(slack.alone("U0000000ZOE")) == (gate is not True)


def test_each_person_is_told_by_the_first_alias_that_can_be_written_to(slack: FakeSlack) -> None:
    discord = platform_of("discord")
    try:
        store = MemoryStore(clock=slack.clock)
        people = StoreDirectory(store)
        known = {"ada": ("teams:x", discord.alias(ADA), f"slack:{ADA}"), "bert": (f"slack:{BERT}", discord.alias(BERT))}
        for id, aliases in known.items():
            people.add(Person(id=id, name=id.title(), roles=("finance",), aliases=aliases))
        approvals = approvals_of(store, slack, discord, route="approvers")
        desk(approvals, store, TWO).invoke("Refund order 7", requester=Principal(id="otto"))
        emptied(approvals, slack.clock)
        assert [len(shown) for shown in (slack.alone(ADA), discord.alone(ADA))] == [0, 1]
        assert [len(shown) for shown in (slack.alone(BERT), discord.alone(BERT))] == [1, 0]
    finally:
        discord.close()


def test_who_cannot_be_mentioned_in_the_place_is_told_alone(slack: FakeSlack) -> None:
    discord = platform_of("discord")
    try:
        store = MemoryStore(clock=slack.clock)
        for id, alias in (("ada", f"slack:{ADA}"), ("bert", discord.alias(BERT))):
            StoreDirectory(store).add(Person(id=id, name=id.title(), roles=("finance",), aliases=(alias,)))
        approvals = approvals_of(store, slack, discord, route=[slack.place, "approvers"])
        desk(approvals, store, TWO).invoke("Refund order 7", requester="otto")
        emptied(approvals, slack.clock)
        assert set(slack.pings()) == {f"<@{ADA}>"} and len(slack.messages()) == 1
        assert len(discord.alone(BERT)) == 1 and discord.messages() == []
    finally:
        discord.close()


def test_a_channel_that_reaches_nobody_by_alias_is_said_to(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = MemoryStore(clock=platform.clock)
    StoreDirectory(store).add(Person(id="ada", roles=("finance",), aliases=(platform.alias("ada"),)))
    approvals = approvals_of(store, platform, route=[platform.place, "approvers"])
    desk(approvals, store, Approval(by="finance")).invoke("Refund order 7", requester="otto")
    emptied(approvals, platform.clock)
    assert len(platform.messages()) == 1
    assert [each.why for each in approvals.outbox.failed()] == ["no channel here can write to a person"]


HOSTILE = [
    "<!channel>",
    "@everyone",
    "<@U0000000BAD>",
    "</at><at>all",
    "<a href='x'>",
    "**b** [l](http://x.y)",
    "@here\n/cmd",
]


@pytest.mark.parametrize("name", MENTIONING)
def test_names_and_aliases_of_others_mention_nobody_else(name: str) -> None:
    platform = platform_of(name)
    try:
        at = Desk(platform, [platform.place, "approvers"], people=["ada"])
        for number, hostile in enumerate(HOSTILE):
            aliases = (platform.alias(f"U00000000E{number}"), f"{name}:<!channel>{number}", f"{name}:@everyone{number}")
            at.people.add(Person(id=f"e{number}", name=hostile, roles=("finance",), aliases=aliases))
            at.people.add(Person(id=f"x{number}", name=hostile, roles=("finance",), aliases=aliases[:0]))
        at.people.add(Person(id="y", roles=("finance",), aliases=(f"{name}:<!here>",)))
        at.asked(TWO)
        known = {platform.alias(by).rpartition(":")[2] for by in [ADA, *(f"U00000000E{n}" for n in range(7))]}
        assert {each.removeprefix("<@").removesuffix(">") for each in platform.pings()} == known
        failed = {each.at.partition(":")[2] for each in at.approvals.outbox.failed()}
        assert failed == {"y", *(f"x{number}" for number in range(len(HOSTILE)))}
    finally:
        platform.close()


@pytest.mark.parametrize("name", MENTIONING)
def test_a_button_reminds_the_people_whose_turn_it_is_once_an_hour(name: str) -> None:
    platform = platform_of(name)
    try:
        at = Desk(platform, [platform.place, "approvers"])
        item = at.asked(Approval(by="finance", needed=2, remind=[2 * HOUR]))
        platform.click(platform.messages()[0], "approve", ADA)
        emptied(at.approvals, at.clock)
        for by in (OTTO, BERT):  # whoever is known here, also who asked
            platform.click(platform.messages()[0], "remind", by)
            at.clock.move(3)
            emptied(at.approvals, at.clock)
        assert len(platform.reminders()) == 1
        assert "reminded" in platform.told(OTTO)[-1] and "again at 2027-01-15 09:00 UTC" in platform.told(BERT)[-1]
        assert {each[2:-1] for each in platform.pings()} == {platform.alias(BERT).rpartition(":")[2]}
        platform.click(platform.messages()[0], "remind", "U00STRANGER")
        assert "not known here" in platform.told("U00STRANGER")[-1]
        at.clock.move(HOUR)
        platform.click(platform.messages()[0], "remind", BERT)
        emptied(at.approvals, at.clock)
        assert len(platform.reminders()) == 2
        at.later(HOUR)  # those of the request come besides
        assert len(platform.reminders()) == 3
        assert at.store.request(item.id).approval.reminded == 1
        old = platform.messages()[0]
        platform.click(old, "approve", BERT)
        platform.click(old, "remind", OTTO)
        assert "does not wait any more" in platform.told(OTTO)[-1] and len(platform.reminders()) == 3
    finally:
        platform.close()


def test_a_reminder_reaches_those_who_are_told_alone_and_no_place_that_tells_nobody(slack: FakeSlack) -> None:
    discord = platform_of("discord")
    try:
        store = MemoryStore(clock=slack.clock)
        for id, alias in (("ada", f"slack:{ADA}"), ("bert", discord.alias(BERT))):
            StoreDirectory(store).add(Person(id=id, name=id.title(), roles=("finance",), aliases=(alias,)))
        approvals = approvals_of(store, slack, discord, route=[slack.place, "approvers"])
        desk(approvals, store, TWO).invoke("Refund order 7", requester="otto")
        emptied(approvals, slack.clock)
        assert "remind" not in discord.alone(BERT)[0].buttons
        for process in (approvals, approvals_of(store, slack, discord, route=None)):  # a press at each of two processes
            slack.connect(process)
            slack.click(slack.messages()[0], "remind", ADA)
        emptied(approvals, slack.clock)
        assert [len(slack.reminders()), len(discord.reminders())] == [1, 1]
    finally:
        discord.close()


def test_the_page_of_a_request_says_to_operators_who_was_not_told(slack: FakeSlack) -> None:
    at = Desk(slack, "approvers")
    at.people.add(Person(id="zoe", name="Zoe", roles=("finance",)))
    item = at.asked(TWO)
    scopes = {"boss": frozenset({"read", "decide", "operate"}), "ada": frozenset({"read", "decide"})}
    people = [Principal(id=id, roles=("finance",)) for id in scopes]
    inbox = inbox_of(at.store, auth=ByHeader(*people), scopes=lambda who: scopes[who.id])
    pages = {id: Visitor(inbox, id).get(f"/requests/{item.id}").text for id in scopes}
    assert "zoe has no alias of slack that can be written to" in pages["boss"] and "approvers:zoe" in pages["boss"]
    assert "Not told" not in pages["ada"] and "zoe" not in pages["ada"]
    at.people.add_alias("zoe", "slack:U0000000ZOE")
    at.approvals.outbox.retry(at.approvals.outbox.failed()[0])
    emptied(at.approvals, at.clock)
    assert "Not told" not in Visitor(inbox, "boss").get(f"/requests/{item.id}").text
