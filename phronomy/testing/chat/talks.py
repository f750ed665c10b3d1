"""`TalksContract`: what a channel over which a bot talks must do, as tests to run over yours.

It is `ChannelContract` and more: subclass it in its place, and give `make_platform`.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from phronomy.agents.agent import Agent
from phronomy.chat.approvals import ChatApprovals
from phronomy.chat.bot.bot import ChatBot
from phronomy.models.base import ModelRequest
from phronomy.people import StoreDirectory
from phronomy.records.messages import told_text
from phronomy.stores.rows import Branch
from phronomy.testing.chat.contract import HOSTILE, KEYS, OTTO, RITA, STRANGER, ChannelContract
from phronomy.testing.chat.platform import Clock, Shown, TalkingPlatform, Written
from phronomy.testing.scripted import ScriptedModel, call
from phronomy.tools.tool import tool

LONG: Final = "\n".join(f"Line {number} of a long answer, which nobody may lose." for number in range(400))


class TalksContract(ChannelContract):
    """The suite of tests that every channel passes over which a bot talks. Subclass it and override `make_platform`."""

    def make_platform(self, clock: Clock) -> TalkingPlatform:
        """Make a fake of the platform, with the channel under test, that takes its times from this clock."""
        raise NotImplementedError("override make_platform")

    @property
    def talking(self) -> TalkingPlatform:
        """The platform of the test."""
        found: TalkingPlatform = self.platform  # type: ignore[assignment]  # as `make_platform` made it
        return found

    def clerk(self, approvals: ChatApprovals, reply: Any = None) -> Agent[Any, str]:
        """An agent that pays if it is told to, after somebody has approved, and else says what it was told."""

        @tool(requires_approval=True)
        def pay(amount: int) -> str:
            """Pay an amount."""
            return f"paid {amount}"

        given = (lambda _: reply) if isinstance(reply, str) else reply or answer
        model = ScriptedModel(given)
        return Agent(name="clerk", model=model, tools=[pay], store=self.store, announcements=[approvals])

    def bot(self, reply: Any = None, *, route: Any = None, **options: Any) -> ChatBot:
        """A bot as a new process makes it, connected to the platform."""
        approvals = ChatApprovals(
            self.store,
            channels=[self.platform.channel],
            directory=StoreDirectory(self.store),
            keys=KEYS,
            route=route,
            inbox_url="https://inbox.example",
        )
        self.clerks: Agent[Any, str] = self.clerk(approvals, reply)
        self.platform.connect(approvals)
        return ChatBot(approvals, self.clerks, **options)

    def tell(self, by: str, text: str, thread: str | None = None) -> Written:
        """Somebody writes to the bot, and its answer is 200."""
        written = self.talking.write(by, text, thread=thread)
        assert self.platform.deliver(written.sent).status == 200
        return written

    def settle(self, bot: ChatBot, *, most: float = 120.0) -> None:
        """Have a worker and the outboxes do what is to be done in the next time."""
        until = self.clock.now + most
        while self.clock.now < until:
            self.clerks.recover_all()
            bot.run_once()
            bot.approvals.outbox.run_once()
            self.clock.move(2)

    def said(self, written: Written) -> list[str]:
        """What the bot has said in a thread, without requests."""
        return [each.text for each in self._in(written) if not self._is_request(each)]

    def requests(self, written: Written) -> list[Shown]:
        """The requests that are posted in a thread."""
        return [each for each in self._in(written) if self._is_request(each)]

    def runs(self) -> list[Branch]:
        """The runs of the bot."""
        return self.store.branches()

    def _in(self, written: Written) -> list[Shown]:
        return self.talking.conversation(written.thread)

    def _is_request(self, shown: Shown) -> bool:
        return "digest" in shown.text or "withdrawn: the run" in shown.text

    # Runs

    def test_a_message_begins_a_run_of_its_thread_and_is_answered_there_once(self) -> None:
        """The requester is the person, and the directory says who that is."""
        bot = self.bot()
        written = self.tell(RITA, "Good morning")
        [run] = self.runs()
        assert run.thread_id is not None and run.thread_id.startswith(f"{self.platform.channel.name}:")
        requester = self.store.head(run.id)[1].requester
        assert requester is not None and (requester.id, requester.roles) == ("rita", ("lead",))
        self.settle(bot)
        assert self.said(written) == ["I was told: Good morning (1)"] and self.platform.messages() == []
        assert [each.status for each in self.runs()] == ["completed"]

    def test_the_next_message_continues_the_conversation(self) -> None:
        """The thread is the conversation, in each process."""
        first = self.tell_settled("One")
        self.settle_after(first, "Two")
        other = self.tell(OTTO, "Three")
        self.settle(self.bot())
        assert self.said(first) == ["I was told: One (1)", "I was told: Two (2)"]
        assert self.said(other) == ["I was told: Three (1)"]
        assert len({each.thread_id for each in self.runs()}) == 2

    def tell_settled(self, text: str) -> Written:
        """A message that is answered."""
        bot = self.bot()
        written = self.tell(RITA, text)
        self.settle(bot)
        return written

    def settle_after(self, written: Written, text: str) -> None:
        """Another one in its thread."""
        bot = self.bot()
        self.tell(RITA, text, written.thread)
        self.settle(bot)

    def test_it_is_stored_before_it_is_acknowledged(self) -> None:
        """A process that dies then leaves it to the next one."""
        bot = self.bot()
        written = self.talking.write(RITA, "Good morning")
        sent = written.sent
        response = bot.approvals.handle("POST", sent.path, sent.headers, sent.body)
        assert response.status == 200 and self.runs() == []
        self.settle(self.bot())
        assert self.said(written) == ["I was told: Good morning (1)"]

    def test_the_same_delivery_again_begins_nothing(self) -> None:
        """At once, and when it is answered."""
        bot = self.bot()
        written = self.tell(RITA, "Good morning")
        assert self.platform.deliver(written.sent).status == 200
        self.settle(bot)
        if self.platform.signs == "requests":
            self.clock.move(-120)
        self.platform.deliver(written.sent)
        self.settle(self.bot())
        assert len(self.runs()) == 1 and len(self.said(written)) == 1

    def test_two_processes_that_get_one_delivery_at_once_begin_one_run(self) -> None:
        """And answer it once."""
        bots = [self.bot(), self.bot()]
        written = self.talking.write(RITA, "Good morning")
        barrier = threading.Barrier(2)

        def deliver(bot: ChatBot) -> None:
            barrier.wait()
            sent = written.sent
            response = bot.approvals.handle("POST", sent.path, sent.headers, sent.body)
            if response.after is not None:
                response.after()

        threads = [threading.Thread(target=deliver, args=(bot,)) for bot in bots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.settle(bots[0])
        self.settle(bots[1])
        assert len(self.runs()) == 1 and self.said(written) == ["I was told: Good morning (1)"]

    def test_what_is_not_signed_begins_nothing(self) -> None:
        """Nobody is told anything."""
        bot = self.bot()
        written = self.talking.write(RITA, "Good morning")
        assert 400 <= bot.approvals.handle("POST", written.sent.path, {}, written.sent.body).status < 500
        self.settle(bot)
        assert self.runs() == [] and self.said(written) == []

    # People

    def test_a_stranger_is_told_in_private_and_begins_nothing(self) -> None:
        """Unless guests may."""
        bot = self.bot()
        written = self.tell(STRANGER, "Good morning")
        self.settle(bot)
        [told] = self.platform.told(STRANGER)
        assert self.platform.alias(STRANGER) in told and self.runs() == [] and self.said(written) == []
        self.settle_as_guest()

    def settle_as_guest(self) -> None:
        """A guest is answered, and is the requester."""
        bot = self.bot(guests=True)
        written = self.tell(STRANGER, "Good evening")
        self.settle(bot)
        requester = self.store.head(self.runs()[0].id)[1].requester
        assert requester is not None and requester.id == self.platform.alias(STRANGER)
        assert self.said(written) == ["I was told: Good evening (1)"]

    # Waiting

    def test_a_request_is_posted_into_the_thread_and_the_answer_after_it(self) -> None:
        """By whichever process is there then."""
        bot = self.bot()
        written = self.tell(RITA, "Pay 7")
        self.settle(bot)
        [shown] = self.requests(written)
        assert "amount: 7" in shown.text and self.said(written) == []
        self.clock.move(86_400)
        bot = self.bot()
        self.platform.click(shown, "approve", OTTO)
        self.settle(bot)
        assert self.said(written) == ["I was told: paid 7 (1)"]
        [shown] = self.requests(written)
        assert "approved by Otto" in shown.text and "done" in shown.text

    def test_where_requests_are_posted_elsewhere_the_thread_is_told(self) -> None:
        """Once."""
        bot = self.bot(route=self.platform.place)
        written = self.tell(RITA, "Pay 7")
        self.settle(bot)
        self.settle(self.bot(route=self.platform.place), most=700)
        [said] = self.said(written)
        assert "waits for somebody to decide: pay" in said
        self.platform.click(self.message, "approve", RITA)
        self.settle(bot)
        assert self.said(written)[1:] == ["I was told: paid 7 (1)"]

    def test_a_message_while_a_run_waits_is_read_after_it(self) -> None:
        """And the thread is told so, once."""
        bot = self.bot()
        written = self.tell(RITA, "Pay 7")
        self.settle(bot)
        self.tell(RITA, "And tomorrow?", written.thread)
        self.settle(self.bot(), most=700)
        [said] = self.said(written)
        assert "as soon as what waits above is decided" in said and len(self.runs()) == 1
        self.platform.click(self.requests(written)[0], "reject", RITA)
        self.settle(bot)
        assert len(self.runs()) == 2 and self.said(written)[2:] == ["I was told: And tomorrow? (2)"]

    def test_messages_that_come_at_once_are_answered_in_their_order(self) -> None:
        """Each by a run of its own."""
        bot = self.bot()
        written = self.tell(RITA, "0")
        for number in range(1, 5):
            self.clock.move(0.001)
            self.tell(RITA, str(number), written.thread)
        self.settle(bot)
        assert self.said(written) == [f"I was told: {number} ({number + 1})" for number in range(5)]

    def test_no_more_wait_in_a_thread_than_may(self) -> None:
        """Who writes more is told so."""
        bot = self.bot(queue=2)
        written = self.tell(RITA, "Pay 7")
        self.settle(bot)
        for text in ("One", "Two"):
            self.tell(RITA, text, written.thread)
        [told] = self.platform.told(RITA)
        assert "too many wait" in told
        self.platform.click(self.requests(written)[0], "approve", RITA)
        self.settle(bot)
        assert len(self.runs()) == 2

    # What is said

    def test_how_a_run_has_ended_is_said(self) -> None:
        """Also if it has no answer."""
        bot = self.bot()
        written = self.tell(RITA, "Pay 7")
        self.settle(bot)
        self.clerks.cancel(self.runs()[0].id, by="ann")
        self.settle(bot)
        assert self.said(written) == ["This was cancelled. Nothing more follows."]

    def test_a_failure_is_said_once_and_the_next_message_goes_on(self) -> None:
        """Errors are not quoted."""

        def broken(request: ModelRequest) -> Any:
            text = told_text(request.messages[-1].content)
            return RuntimeError("a secret") if "break" in text else answer(request)

        bot = self.bot(broken)
        written = self.tell(RITA, "Please break")
        self.settle(bot, most=700)
        [said] = self.said(written)
        assert "did not work" in said and "secret" not in said
        self.tell(RITA, "And now?", written.thread)
        self.settle(bot)
        assert self.said(written)[1:] == ["I was told: And now? (2)"]

    def test_markup_in_an_answer_is_shown_and_not_acted_on(self) -> None:
        """Mentions, links, and characters that cannot be seen."""
        bot = self.bot(f"{HOSTILE}\n{HOSTILE}")
        written = self.tell(RITA, HOSTILE)
        self.settle(bot)
        [said] = self.said(written)
        assert self.platform.pings() == []
        assert "everyone" in said and "\u202e" not in said and "\x07" not in said and "u202e" in said and "\n" in said

    def test_a_long_answer_is_said_in_parts(self) -> None:
        """Nothing is lost, and the rest of a very long one is linked."""
        limit: Any = getattr(self.platform.channel, "say_limit", 0)
        text = LONG[: limit * 4]
        written = self._answered(text)
        parts = self.said(written)
        assert len(parts) > 1 and "".join("".join(parts).split()) == "".join(text.split())
        other = self._answered("word " * limit * 4)
        parts = self.said(other)
        assert len(parts) == 10 and "more characters: https://inbox.example/runs/run_" in parts[-1]

    def _answered(self, text: str) -> Written:
        bot = self.bot(text)
        written = self.tell(RITA, "Tell me all")
        self.settle(bot)
        return written

    def test_a_message_that_is_too_long_is_not_read(self) -> None:
        """The person is told so."""
        bot = self.bot()
        self.tell(RITA, "n" * 12_001)
        self.settle(bot)
        assert len(self.platform.told(RITA)) == 1 and self.runs() == []

    # Sending

    def test_an_answer_waits_when_the_platform_asks_for_that(self) -> None:
        """It is said once."""
        for trouble in ("limited", "down", "refused"):
            bot = self.bot()
            self.platform.fail(trouble)
            written = self.tell(RITA, f"Good {trouble}")
            self.settle(bot, most=700)
            assert len(self.said(written)) == 1, trouble

    def test_an_answer_whose_posting_is_lost_may_be_there_twice(self) -> None:
        """And it is there."""
        bot = self.bot()
        self.platform.fail("dropped")
        written = self.tell(RITA, "Good morning")
        self.settle(bot)
        assert 1 <= len(self.said(written)) <= 2 and set(self.said(written)) == {"I was told: Good morning (1)"}


def answer(request: ModelRequest) -> Any:
    """Pays if it is told to, and says what it was told, and how many messages people have written by then."""
    last = request.messages[-1]
    text = told_text(last.content)
    if last.role == "user" and text.startswith("Pay "):
        return call("pay", {"amount": int(text.removeprefix("Pay "))})
    count = sum(each.role == "user" for each in request.messages)
    return f"I was told: {text} ({count})"
