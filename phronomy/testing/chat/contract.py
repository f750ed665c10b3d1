"""`ChannelContract`: what a channel must do, as tests to run over yours.

Subclass it in a test file and give `make_platform`, which makes a fake of your platform with your channel. pytest finds the rest, and
is not imported here. No test sleeps: time passes where a test moves the clock.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from phronomy.agents.agent import Agent
from phronomy.chat.approvals import ChatApprovals
from phronomy.chat.channel import LETTERS, LeadsToPage
from phronomy.chat.http import Response
from phronomy.people import Person, StoreDirectory
from phronomy.records.decisions import Approve, PendingApproval
from phronomy.stores.base import Store
from phronomy.stores.memory import MemoryStore
from phronomy.testing.chat.platform import Clock, Platform, Sent, Shown
from phronomy.testing.scripted import ScriptedModel, call
from phronomy.tools.approval import Approval
from phronomy.tools.tool import tool

KEYS: Final = {"k": b"k" * 32}
RITA, OTTO, STRANGER = "U0000000RITA", "U0000000OTTO", "U000STRANGER"
HOSTILE: Final = (
    "<!channel> <@U0000000OTTO> @everyone [pay](https://evil.example) <https://evil.example|ok> *b* `c` \u202e\x07"
)


class ChannelContract:
    """The suite of tests that every channel passes. Subclass it and override `make_platform`."""

    def make_platform(self, clock: Clock) -> Platform:
        """Make a fake of the platform, with the channel under test, that takes its times from this clock."""
        raise NotImplementedError("override make_platform")

    def place_of(self, by: str) -> str:
        """The place where a person is asked. Override it where a message is for one person, and each gets their own."""
        return self.platform.place

    def make_store(self, clock: Clock) -> Store:
        """Make the store of a test: in memory, unless you override this."""
        return MemoryStore(clock=clock)

    @cached_property
    def clock(self) -> Clock:
        """The clock of the test."""
        return Clock()

    @cached_property
    def platform(self) -> Platform:
        """The platform of the test."""
        return self.make_platform(self.clock)

    @cached_property
    def store(self) -> Store:
        """The store of the test, in which Rita and Otto are known."""
        store = self.make_store(self.clock)
        people = StoreDirectory(store)
        for id, by in (("rita", RITA), ("otto", OTTO)):
            alias = self.platform.alias(by)
            people.add(Person(id=id, name=id.title(), roles=("lead" if id == "rita" else "clerk",), aliases=(alias,)))
        return store

    def teardown_method(self) -> None:
        """Shut the platform down."""
        self.platform.close()

    def approvals(self, **options: Any) -> ChatApprovals:
        """Approvals as a new process makes them, connected to the platform. They ask these `people`: Rita, unless it is said."""
        asked = options.pop("people", (RITA,))
        made = ChatApprovals(
            self.store,
            channels=[self.platform.channel],
            directory=StoreDirectory(self.store),
            keys=options.pop("keys", KEYS),
            route=list(dict.fromkeys(self.place_of(by) for by in asked)),
            inbox_url="https://inbox.example",
            **options,
        )
        self.platform.connect(made)
        return made

    def agent(self, approvals: ChatApprovals, gate: Any = True, **args: Any) -> Agent[Any, str]:
        """An agent whose payments wait for a human."""

        @tool(requires_approval=gate)
        def pay(note: str = "", amount: float = 49.9, to: str = "ACME", fast: bool = False) -> str:
            """Pay an amount."""
            return f"{amount} paid to {to}, {note!r}{' at once' if fast else ''}"

        model = ScriptedModel.by_turn([call("pay", args), "Done."])
        return Agent(name="desk", model=model, tools=[pay], store=self.store, announcements=[approvals])

    def asked(self, approvals: ChatApprovals, gate: Any = True, **args: Any) -> PendingApproval:
        """A request that waits, and is posted."""
        item = self.agent(approvals, gate, **args).invoke("Pay").checkpoint.pending[0]
        self.send(approvals)
        return item

    def send(self, approvals: ChatApprovals) -> int:
        """Have all be sent that is to be sent; returns how many messages."""
        sent = 0
        for _ in range(20):
            done = approvals.outbox.run_once()
            sent += done.sent
            if done.left == 0:
                return sent
            self.clock.move(2)
        raise AssertionError("the outbox does not come to its end")

    def carried_out(self, approvals: ChatApprovals, gate: Any = True) -> None:
        """Have a worker carry out what is decided."""
        self.agent(approvals, gate).recover_all()
        self.send(approvals)

    def delivered(self, sent: Sent, **changes: Any) -> int:
        """The status of the answer to a request with these changes, wherever the platform sends it."""
        return self.platform.deliver(replace(sent, **changes)).status

    @property
    def message(self) -> Shown:
        """The only message."""
        [found] = self.platform.messages()
        return found

    @property
    def takes_edits(self) -> bool:
        """Whether people edit calls in forms of the platform."""
        limits = self.platform.channel.form_limits
        return limits is not None and limits.begins

    def trail(self, item: PendingApproval) -> list[tuple[str, str, bool]]:
        """Who has decided what, and whether they were refused."""
        return [
            (each.by.id if each.by else "", each.kind, each.refused) for each in self.store.audit(pending_id=item.id)
        ]

    # Posting

    def test_a_request_is_posted_once_with_the_target_and_the_amount_first(self) -> None:
        """The message carries tokens, and no arguments in its buttons."""
        item = self.asked(approvals := self.approvals())
        shown = self.message
        assert shown.text.index("to: ACME") < shown.text.index("amount: 49.9") < shown.text.index("note: (empty)")
        assert shown.text.startswith("pay") and item.digest[:12] in shown.text
        assert {len(data) for data in shown.buttons.values()} == {45}
        assert {"approve", "reject"} <= shown.buttons.keys()
        assert self.send(approvals) == 0 and len(self.platform.messages()) == 1

    def test_it_is_stored_before_it_is_posted_and_posted_by_whoever_is_there(self) -> None:
        """A process that dies before it posts leaves it to the next one."""
        item = self.agent(self.approvals()).invoke("Pay").checkpoint.pending[0]
        assert self.platform.messages() == [] and self.store.request(item.id).status == "pending"
        assert self.send(self.approvals()) == 1

    # Deciding

    def test_a_click_decides_and_the_message_changes_at_once_and_at_the_end(self) -> None:
        """The buttons are gone, and it says who."""
        item = self.asked(approvals := self.approvals())
        assert self.platform.click(self.message, "approve", RITA).status == 200
        assert self.store.request(item.id).status == "decided"
        self.send(approvals)
        assert self.message.buttons == {} and "approved by Rita" in self.message.text and "running" in self.message.text
        self.carried_out(approvals)
        assert "done" in self.message.text and len(self.platform.messages()) == 1

    def test_a_button_works_after_a_restart(self) -> None:
        """Nothing is remembered in the process."""
        item = self.asked(self.approvals())
        self.clock.move(86_400 * 20)
        self.approvals()
        self.platform.click(self.message, "reject", RITA)
        decision = self.store.request(item.id).decision
        assert decision is not None and (decision.kind, decision.by and decision.by.id) == ("reject", "rita")

    def test_the_same_click_again_is_the_same_reply(self) -> None:
        """Double clicks, retries and replays count once."""
        item = self.asked(self.approvals())
        shown = self.message
        sent = self.platform.sign(shown, "approve", RITA)
        first, again = self.platform.deliver(sent), self.platform.deliver(sent)
        third = self.platform.click(shown, "approve", RITA)
        assert (first.status, first.body) == (again.status, again.body) == (third.status, third.body)
        assert self.trail(item) == [("rita", "approve", False)] and self.platform.told(RITA) == []

    def test_another_answer_hears_who_was_first_and_when(self) -> None:
        """It changes nothing."""
        item = self.asked(self.approvals(people=(RITA, OTTO)))
        shown = self.message
        self.platform.click(shown, "approve", RITA)
        self.platform.click(shown, "reject", OTTO)
        self.platform.click(shown, "reject", RITA)
        [told] = self.platform.told(OTTO)
        assert "approved by Rita" in told and "UTC" in told and "first" in told
        assert "You were first" in self.platform.told(RITA)[0]
        assert self.trail(item) == [("rita", "approve", False)]

    def test_a_decision_made_elsewhere_is_seen_here(self) -> None:
        """It says where."""
        item = self.asked(approvals := self.approvals())
        self.store.decide(item.id, Approve(), by="ann", digest=item.digest, channel="inbox")
        self.carried_out(approvals)
        assert "approved by ann, in inbox" in self.message.text and self.message.buttons == {}

    def test_a_stranger_is_refused_in_private_and_in_the_trail(self) -> None:
        """The directory does not know them."""
        item = self.asked(self.approvals(people=(RITA, STRANGER)))
        before = self.message
        self.platform.click(before, "approve", STRANGER)
        [told] = self.platform.told(STRANGER)
        assert self.platform.alias(STRANGER) in told
        assert self.trail(item) == [(self.platform.alias(STRANGER), "approve", True)]
        assert self.message == before and self.store.request(item.id).status == "pending"

    def test_the_wrong_person_is_refused_in_private_and_in_the_trail(self) -> None:
        """The request says who may."""
        item = self.asked(self.approvals(people=(RITA, OTTO)), Approval(by="lead"))
        before = self.message
        self.platform.click(before, "approve", OTTO)
        assert len(self.platform.told(OTTO)) == 1 and "lead" in self.platform.told(OTTO)[0]
        assert self.trail(item) == [("otto", "approve", True)]
        assert self.message == before and self.store.request(item.id).status == "pending"
        self.platform.click(before, "approve", RITA)
        assert self.store.request(item.id).status == "decided"

    def test_votes_show_as_they_come(self) -> None:
        """And the old buttons count after each."""
        item = self.asked(approvals := self.approvals(people=(RITA, OTTO)), Approval(needed=2))
        old = self.message
        assert "0 of 2" in old.text
        self.platform.click(old, "approve", RITA)
        self.platform.click(old, "approve", RITA)
        self.platform.click(old, "reject", RITA)
        self.send(approvals)
        assert "1 of 2" in self.message.text and "Rita approved" in self.message.text
        told = self.platform.told(RITA)
        assert told[0] == told[1] and "1 of 2" in told[0] and "cannot be changed" in told[2]
        self.platform.click(old, "approve", OTTO)
        self.send(approvals)
        assert self.store.request(item.id).status == "decided" and "approved by Rita and Otto" in self.message.text

    def test_an_expired_request_says_so(self) -> None:
        """Nothing is decided, and the message changes once a worker has settled it."""
        gate = Approval(expires=60)
        item = self.asked(approvals := self.approvals(), gate)
        old = self.message
        self.clock.move(61)
        self.platform.click(old, "approve", RITA)
        assert "time of this request is over" in self.platform.told(RITA)[0]
        assert self.store.request(item.id).decision is None
        self.carried_out(approvals, gate)
        assert "expired" in self.message.text and self.message.buttons == {}

    def test_a_cancelled_run_takes_its_request_back(self) -> None:
        """The message says that nothing is to be decided."""
        self.asked(approvals := self.approvals())
        old = self.message
        agent = self.agent(approvals)
        agent.cancel(self.store.pending()[0].checkpoint_id, by="ann")
        self.send(approvals)
        assert self.message.buttons == {} and self.message.edits >= 1
        self.platform.click(old, "approve", RITA)
        assert len(self.platform.told(RITA)) == 1

    def test_an_old_button_says_why_it_does_nothing(self) -> None:
        """Its key is gone, or its time is over."""
        item = self.asked(self.approvals())
        self.approvals(keys={"other": b"o" * 32})
        self.platform.click(self.message, "approve", RITA)
        assert "not known" in self.platform.told(RITA)[0]
        self.approvals()
        self.clock.move(86_400 * 31)
        self.platform.click(self.message, "approve", RITA)
        assert "too old" in self.platform.told(RITA)[1]
        assert self.store.request(item.id).status == "pending"

    # What is no click

    def test_what_is_not_signed_or_too_old_is_refused(self) -> None:
        """Nothing is decided, and nothing is told."""
        item = self.asked(self.approvals())
        sent = self.platform.sign(self.message, "approve", RITA)
        other = {name: value[:-1] + ("1" if value[-1:] == "0" else "0") for name, value in sent.headers.items()}
        for headers in ({}, other):
            assert 400 <= self.delivered(sent, headers=headers) < 500
        if self.platform.signs == "requests":
            assert 400 <= self.delivered(sent, body=sent.body + b" ") < 500
            self.clock.move(301)
            assert 400 <= self.delivered(sent) < 500
        assert self.trail(item) == []

    def test_any_bytes_are_answered_with_a_4xx(self) -> None:
        """Also where they stand in headers."""
        item = self.asked(approvals := self.approvals())
        sent = self.platform.sign(self.message, "approve", RITA)
        for body in (
            b"",
            b"\xff\xfe",
            b"null",
            b"[]",
            b"{}",
            b"payload=",
            b"payload=%00",
            b"{" * 5_000,
            b"a" * 2_000_000,
        ):
            assert 400 <= self.delivered(sent, body=body) < 500
        for text in ("", "\udcff", "ü", "9" * 400, "-1", "nan", "1e9", "\x00"):
            hostile = dict.fromkeys(sent.headers, text)
            assert 400 <= self.delivered(sent, headers=hostile) < 500
        assert approvals.handle("GET", f"/chat/{self.platform.channel.name}", {}, b"").status == 405
        assert approvals.handle("POST", "/chat/none", {}, b"").status == 404
        assert self.trail(item) == []

    # Showing

    def test_markup_of_the_model_is_shown_and_not_acted_on(self) -> None:
        """Mentions, links, and characters that cannot be seen."""
        gate = Approval(title=HOSTILE, context=HOSTILE)
        self.asked(approvals := self.approvals(), gate, to=HOSTILE, note=HOSTILE)
        assert self.platform.pings() == []
        if self.platform.channel.form_limits is not None:
            self.platform.click(self.message, "reason", RITA)
            [name] = self.platform.form(RITA) or {}
            self.platform.submit(RITA, {name: HOSTILE})
            self.send(approvals)
            assert self.platform.pings() == [] and "rejected by Rita" in self.message.text
        text = self.message.text.replace("\\", "")
        assert "everyone" in text and "\u202e" not in text and "\x07" not in text and "u202e" in text

    def test_a_long_argument_is_told_by_its_size_and_digest(self) -> None:
        """Two million characters."""
        item = self.asked(self.approvals(), note="n" * 2_000_000)
        assert "2,000,000 characters, SHA-256 " in self.message.text and "see the inbox" in self.message.text
        assert "nnnn" not in self.message.text
        assert self.message.link == f"https://inbox.example/requests/{item.id}"

    def test_a_hidden_argument_is_not_shown(self) -> None:
        """Nor is it in a form."""
        self.asked(self.approvals(hide=["note"]), note="pin 4711")
        assert "4711" not in self.message.text and "not shown here" in self.message.text

    # Sending

    def test_it_waits_when_the_platform_asks_for_that(self) -> None:
        """Then it posts once."""
        approvals = self.approvals()
        self.platform.fail("limited")
        self.agent(approvals).invoke("Pay")
        first = approvals.outbox.run_once()
        assert (first.sent, first.left) == (0, 1) and first.due is not None and first.due >= self.clock.now + 29
        assert approvals.outbox.run_once().sent == 0
        self.clock.move(31)
        assert self.send(approvals) == 1 and len(self.platform.messages()) == 1

    def test_it_tries_again_when_the_platform_is_down(self) -> None:
        """Later each time."""
        approvals = self.approvals()
        self.platform.fail("down", "down")
        self.agent(approvals).invoke("Pay")
        assert approvals.outbox.run_once().sent == 0
        assert self.send(approvals) == 1 and len(self.platform.messages()) == 1

    def test_it_tries_again_later_what_the_platform_refuses(self) -> None:
        """Somebody may invite the bot meanwhile."""
        approvals = self.approvals()
        self.platform.fail("refused")
        self.agent(approvals).invoke("Pay")
        assert approvals.outbox.run_once().sent == 0
        self.clock.move(301)
        assert self.send(approvals) == 1 and len(self.platform.messages()) == 1

    def test_what_is_decided_before_it_is_posted_is_not_posted(self) -> None:
        """Nobody has to hear of it."""
        approvals = self.approvals()
        item = self.agent(approvals).invoke("Pay").checkpoint.pending[0]
        self.store.decide(item.id, Approve(), by="ann", digest=item.digest)
        self.carried_out(approvals)
        assert self.platform.messages() == []

    def test_a_lost_answer_may_post_twice_and_both_lead_to_one_request(self) -> None:
        """The one that nobody knew of is edited too, once somebody has clicked on it."""
        approvals = self.approvals()
        self.platform.fail("dropped")
        item = self.asked(approvals)
        shown = self.platform.messages()
        for each in shown:
            self.platform.click(each, "approve", RITA)
            self.send(approvals)
        assert self.trail(item) == [("rita", "approve", False)]
        assert all(each.buttons == {} and "approved by Rita" in each.text for each in self.platform.messages())

    def test_only_the_newest_edit_is_sent(self) -> None:
        """What is sent late says what is so when it is sent."""
        item = self.asked(approvals := self.approvals())
        self.store.decide(item.id, Approve(), by="ann", digest=item.digest, channel="inbox")
        self.agent(approvals).recover_all()
        before = self.message.edits
        assert self.send(approvals) == 1
        assert self.message.edits == before + 1 and "done" in self.message.text

    def test_a_message_that_is_gone_is_let_go(self) -> None:
        """The decision stands."""
        item = self.asked(approvals := self.approvals())
        self.platform.fail("gone")
        self.platform.click(self.message, "approve", RITA)
        assert self.store.request(item.id).status == "decided" and self.send(approvals) == 0

    def test_people_are_reminded(self) -> None:
        """Below the message."""
        gate = Approval(remind=[60])
        self.asked(approvals := self.approvals(), gate)
        self.clock.move(61)
        self.carried_out(approvals, gate)
        self.carried_out(approvals, gate)
        [reminder] = self.platform.reminders()
        assert "Still waiting" in reminder and "pay" in reminder

    # Forms

    def test_a_reason_is_asked_for_in_a_form(self) -> None:
        """And recorded."""
        if self.platform.channel.form_limits is None:
            return
        item = self.asked(approvals := self.approvals())
        self.platform.click(self.message, "reason", RITA)
        [name] = self.platform.form(RITA) or {}
        assert self.platform.submit(RITA, {name: ""}) != {}
        assert self.platform.submit(RITA, {name: "too much"}) == {} and self.platform.form(RITA) is None
        self.send(approvals)
        decision = self.store.request(item.id).decision
        assert decision is not None and (decision.kind, decision.reason) == ("reject", "too much")
        assert "too much" in self.message.text and self.message.buttons == {}

    def test_an_edit_is_checked_in_the_form_and_shown_as_a_difference(self) -> None:
        """By the schema of the tool. What nobody has touched stays as it was."""
        if not self.takes_edits:
            return
        item = self.asked(approvals := self.approvals(), note="two\nlines")
        self.platform.click(self.message, "edit", RITA)
        form = self.platform.form(RITA)
        assert form is not None and form["arg:amount"] == "49.9" and form["arg:note"] == "two\nlines"
        assert self.platform.submit(RITA, {"arg:amount": "a lot"}).keys() == {"arg:amount"}
        assert self.store.request(item.id).status == "pending"
        assert self.platform.submit(RITA, {"arg:amount": "20"}) == {}
        decision = self.store.request(item.id).decision
        assert decision is not None and decision.args is not None
        assert json.loads(decision.json_text("args")) == {**item.args, "amount": 20}
        self.send(approvals)
        assert "amount (changed to): 20" in self.message.text and "note (changed to)" not in self.message.text

    def test_a_form_is_only_for_those_who_may(self) -> None:
        """The refusal is private, and in the trail; so is that of whoever submits."""
        if self.platform.channel.form_limits is None:
            return
        item = self.asked(self.approvals(), Approval(by="lead"))
        self.platform.click(self.message, "reason", OTTO)
        assert self.platform.form(OTTO) is None and len(self.platform.told(OTTO)) == 1
        assert self.trail(item) == [("otto", "reject", True)]

    def test_what_is_not_shown_whole_is_approved_elsewhere(self) -> None:
        """No button approves it there, and an older one does not count; a button that opens a page of the whole request may."""
        item = self.asked(self.approvals(), note="n" * 2_000)
        buttons = {each for each in self.message.buttons if each in ("approve", "edit")}
        if isinstance(self.platform.channel, LeadsToPage):
            assert buttons == {"approve"}
            return
        assert not buttons and "Not all of it can be shown here" in self.message.text
        older = {**self.message.buttons, "approve": LETTERS["approve"] + self.message.buttons["reject"][1:]}
        self.platform.deliver(self.platform.sign(replace(self.message, buttons=older), "approve", RITA))
        assert self.store.request(item.id).status == "pending"

    def test_what_does_not_fit_a_form_is_edited_in_the_inbox(self) -> None:
        """With a link to it."""
        if not self.takes_edits:
            return
        item = self.asked(self.approvals(approve_unseen=True), note="n" * 100_000)
        self.platform.click(self.message, "edit", RITA)
        assert (
            self.platform.form(RITA) is None
            and f"https://inbox.example/requests/{item.id}" in self.platform.told(RITA)[0]
        )

    def test_a_form_that_cannot_be_opened_is_told(self) -> None:
        """Nothing is decided. A form that is the answer to a click opens, whatever the platform does with calls."""
        if self.platform.channel.form_limits is None:
            return
        item = self.asked(self.approvals())
        self.platform.fail("down")
        response: Response = self.platform.click(self.message, "reason", RITA)
        form, told = self.platform.form(RITA), self.platform.told(RITA)
        assert response.status == 200 and self.trail(item) == []
        if self.platform.forms_are_answers:
            assert form is not None and [*form.values()] == [""] and told == []
        else:
            assert form is None and "Press the button again" in told[0]
