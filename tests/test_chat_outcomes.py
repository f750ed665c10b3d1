"""The words of a message once people have voted: who did, which votes count, and when it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from chat_scenes import PLATFORMS, RITA, approvals_of, desk, emptied, with_people

from phronomy import Approval, Approve, Escalate, MemoryStore, Principal, Reject
from phronomy.chat.cards import said_of
from phronomy.people import Person, StoreDirectory
from phronomy.testing.chat import Clock, FakeDiscord, FakeSlack, Platform

HOUR = 3_600.0
LEA = Principal(id="lea", name="Lea", roles=("head",))


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack(Clock()) as found:
        yield found


def status(platform: Platform) -> str:
    """The line that says where the only message stands."""
    [message] = platform.messages()
    return message.text.splitlines()[1][2:]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([("rita", Approve())], "approved by Rita"),
        ([("rita", Approve()), ("otto", Approve())], "approved by Rita and Otto"),
        ([("rita", Approve()), ("otto", Approve()), ("lea", Approve())], "approved by Rita, Otto and Lea"),
        ([("rita", Approve()), ("otto", Reject())], "rejected by Otto (Rita had approved)"),
        (
            [("rita", Approve()), ("lea", Approve()), ("otto", Reject())],
            "rejected by Otto (Rita had approved and Lea had approved)",
        ),
    ],
)
def test_an_outcome_names_everybody_who_voted(slack: FakeSlack, answers: list[tuple[str, Any]], said: str) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    StoreDirectory(store).add(Person(id="lea", name="Lea", roles=("lead",)))
    needed = len(answers) if isinstance(answers[-1][1], Approve) else 3
    agent = desk(approvals := approvals_of(store, slack), store, Approval(by="lead", needed=needed))
    item = agent.invoke("Refund order 7").checkpoint.pending[0]
    emptied(approvals, slack.clock)
    for id, answer in answers:
        store.decide(item.id, answer, by=StoreDirectory(store).get(id).principal, digest=item.digest, channel="slack")
    agent.recover_all()
    emptied(approvals, slack.clock)
    assert status(slack).startswith(f"{said}, 2027-01-15 08:00 UTC")


def test_more_people_than_a_message_names_are_counted(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    agent = desk(approvals_of(store, slack), store, Approval(by="lead", needed=14))
    item = agent.invoke("Refund order 7").checkpoint.pending[0]
    for number in range(14):
        store.decide(item.id, Approve(), by=Principal(id=f"p{number}", roles=("lead",)), digest=item.digest)
    decision = store.request(item.id).decision
    assert decision is not None
    assert said_of(decision).startswith("approved by p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 4 others, 2027")


def test_after_an_escalation_only_the_votes_of_those_who_count_now_are_counted(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    gate = Approval(by="lead", needed=2, escalate=Escalate(after=HOUR, by="head", instead=True, needed=1))
    agent = desk(approvals := approvals_of(store, slack), store, gate)
    item = agent.invoke("Refund order 7").checkpoint.pending[0]
    emptied(approvals, slack.clock)
    slack.click(slack.messages()[0], "approve", RITA)
    emptied(approvals, slack.clock)
    assert status(slack) == "waits for approval - 1 of 2: Rita approved"

    slack.clock.move(HOUR + 1)
    agent.recover_all()
    emptied(approvals, slack.clock)
    assert status(slack) == "waits for approval"
    assert "Who may decide: 1 of head" in slack.messages()[0].text

    store.decide(item.id, Approve(), by=LEA, digest=item.digest)
    agent.recover_all()
    emptied(approvals, slack.clock)
    assert status(slack).startswith("approved by Lea (Rita had approved), 2027-01-15 09:00 UTC")


@pytest.mark.parametrize("name", PLATFORMS)
def test_times_stand_where_the_outcome_says_when(name: str) -> None:
    clock = Clock()
    platform = PLATFORMS[name](clock, False)
    try:
        store = with_people(MemoryStore(clock=clock), platform)
        agent = desk(approvals := approvals_of(store, platform), store, Approval(needed=2, expires=HOUR))
        item = agent.invoke("Refund order 7").checkpoint.pending[0]
        emptied(approvals, clock)
        [message] = platform.messages()
        assert "until 2027-01-15 09:00 UTC" in message.text and "Asked by desk, 2027-01-15 08:00 UTC" in message.text
        for by in ("ada", "bert"):
            store.decide(item.id, Approve(), by=by, digest=item.digest)
        agent.recover_all()
        emptied(approvals, clock)
        assert any("approved by ada and bert, 2027-01-15 08:00 UTC; done" in each.text for each in platform.messages())
        assert platform.pings() == []
    finally:
        platform.close()


def test_slack_shows_each_person_their_own_time(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    agent = desk(
        approvals := approvals_of(store, slack),
        store,
        Approval(expires=HOUR, remind=[60], title="2027-01-15 08:00 UTC"),
    )
    agent.invoke("Refund order 7")
    emptied(approvals, slack.clock)
    slack.clock.move(61)
    agent.recover_all()
    emptied(approvals, slack.clock)
    posted, reminded = [arguments for _, arguments in slack.calls]
    ends = {
        "type": "date",
        "timestamp": 1_800_003_600,
        "format": "{date_short} {time}",
        "fallback": "2027-01-15 09:00 UTC",
    }
    status = posted["blocks"][1]["elements"][0]["elements"]
    assert status[-1] == ends and status[-2]["text"].endswith("until ")
    assert reminded["blocks"][0]["elements"][0]["elements"][-1] == ends
    for text in (posted["text"], reminded["text"]):
        assert text.endswith("until <!date^1800003600^{date_short} {time}|2027-01-15 09:00 UTC>")
    # The words of an agent's code stay as they are.
    assert posted["blocks"][0]["text"]["text"] == "refund: 2027-01-15 08:00 UTC"


def test_discord_shows_each_person_their_own_time() -> None:
    clock = Clock()
    with FakeDiscord(clock) as discord:
        store = with_people(MemoryStore(clock=clock), discord)
        agent = desk(approvals := approvals_of(store, discord), store, Approval(expires=HOUR))
        agent.invoke("Refund order 7")
        emptied(approvals, clock)
        [sent] = [body for method, path, body in discord.calls if method == "POST" and path.endswith("/messages")]
        shown = sent["embeds"][0]["description"]
        assert re.search(r"until <t:1800003600:f>\*\*", shown) and "<t:1800000000:f>" in shown
