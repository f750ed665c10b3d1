"""The bot of a chat: processes that die anywhere, threads of its own, agents by message, and options."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from chat_scenes import KEYS, OTTO, RITA, approvals_of, with_people

from phronomy import Agent, ConfigurationError, MemoryStore, Result, tool
from phronomy.chat import ChatApprovals, ChatBot, Said
from phronomy.chat.bot.speech import in_parts, visible
from phronomy.chat.messages import MESSAGE, QUEUE, Messages
from phronomy.guardrails import Refuse, guardrail
from phronomy.people import StoreDirectory
from phronomy.stores.rows import Append, Branch, BranchStatus, Claim, Document
from phronomy.testing import ScriptedModel
from phronomy.testing.chat import MinimalPlatform, Written
from phronomy.testing.chat.talks import answer
from phronomy.workers import Worker


def clerk(store: MemoryStore, approvals: ChatApprovals, name: str = "clerk", reply: Any = answer) -> Agent[Any, str]:
    @tool(requires_approval=True, idempotent=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    return Agent(name=name, model=ScriptedModel(reply), tools=[pay], store=store, announcements=[approvals])


def bot_of(store: MemoryStore, platform: MinimalPlatform, **options: Any) -> tuple[ChatBot, Agent[Any, str]]:
    approvals = approvals_of(store, platform, route=None)
    agent = clerk(store, approvals)
    return ChatBot(approvals, agent, **options), agent


def settle(bot: ChatBot, agent: Agent[Any, str], platform: MinimalPlatform, seconds: float = 30.0) -> None:
    until = platform.clock.now + seconds
    while platform.clock.now < until:
        agent.recover_all()
        bot.run_once()
        bot.approvals.outbox.run_once()
        platform.clock.move(2)


def said(platform: MinimalPlatform, written: Written) -> list[str]:
    return [each.text for each in platform.conversation(written.thread) if "digest" not in each.text]


class Killed(BaseException):
    """The process is gone."""


class Mortal(MemoryStore):
    """A store whose process is killed before or after a write, and writes nothing from then on."""

    left = 10**9
    after = False

    def _mortal(self, write: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Killed
        found = write()
        if self.left == 0:
            raise Killed
        return found

    def put_document(self, document: Document) -> Document:
        return self._mortal(lambda: super(Mortal, self).put_document(document))  # type: ignore[no-any-return]

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        self._mortal(lambda: super(Mortal, self).delete_document(kind, key, version=version))

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self._mortal(lambda: super(Mortal, self).create(branch, change, exclusive=exclusive))

    def append(self, change: Append) -> Branch:
        return self._mortal(lambda: super(Mortal, self).append(change))  # type: ignore[no-any-return]

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        self._mortal(lambda: super(Mortal, self).release(claim, status))

    def announced(self, branch_id: str, seq: int) -> None:
        self._mortal(lambda: super(Mortal, self).announced(branch_id, seq))


def test_a_message_of_somebody_who_was_removed_since_begins_no_run(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = MemoryStore(clock=platform.clock)
    with_people(store, platform)
    bot, agent = bot_of(store, platform)
    sent = platform.write(RITA, "Pay 7").sent
    response = bot.approvals.handle("POST", sent.path, sent.headers, sent.body)
    assert StoreDirectory(store).remove("rita")
    assert response.after is not None
    response.after()
    settle(bot, agent, platform)
    assert store.branches() == [] and Messages(store).queues() == []
    assert "removed from the directory: it begins no run" in caplog.text


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_anywhere_leaves_one_run_and_one_answer(after: bool) -> None:
    """From the message to the answer, with a request and a click between. Slack sends again what nobody has acknowledged."""
    place = again = 0
    while True:
        place += 1
        platform = MinimalPlatform()
        store = Mortal(clock=platform.clock)
        with_people(store, platform)
        written = platform.write(RITA, "Pay 7")
        acknowledged = False

        def process(written: Written = written, platform: MinimalPlatform = platform, store: Mortal = store) -> None:
            nonlocal acknowledged
            bot, agent = bot_of(store, platform)
            if not acknowledged:
                sent = written.sent
                response = bot.approvals.handle("POST", sent.path, sent.headers, sent.body)
                acknowledged = response.status == 200
                assert response.after is not None
                response.after()
            settle(bot, agent, platform)
            for shown in platform.conversation(written.thread):
                if shown.buttons:
                    platform.click(shown, "approve", OTTO)
            settle(bot, agent, platform)

        store.left, store.after = place, after
        with suppress(Killed):
            process()
        died, store.left = store.left <= 0, 10**9
        platform.clock.move(61)  # what it had begun is its own no more
        process()
        assert [each.status for each in store.branches()] == ["completed"], place
        texts = said(platform, written)
        assert set(texts) == {"I was told: paid 7 (1)"} and len(texts) <= 2, place
        again += len(texts) - 1
        assert Messages(store).queues() == [] and [each.kind for each in store.audit()] == ["approve"], place
        if not died:
            assert place > 15
            # It was posted, and whoever has posted it could not say so: one place, or none if nothing was written at all.
            assert again == (0 if after else 1)
            return


def test_of_two_processes_that_are_about_to_say_something_one_does() -> None:
    """The other one has read the message already, and finds when it begins that it was said."""
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    other, _ = bot_of(store, platform)
    written = platform.write(RITA, "Hello")
    platform.deliver(written.sent)
    platform.clock.move(1)
    agent.recover_all()
    pace, others = platform.channel.pace, [other]

    def paced(work: Any, to: str) -> Any:
        while others:
            others.pop().run_once()
            platform.clock.move(1)
        return pace(work, to)

    platform.channel.pace = paced  # type: ignore[method-assign]
    bot.run_once()
    assert others == [] and said(platform, written) == ["I was told: Hello (1)"]
    settle(bot, agent, platform)
    assert said(platform, written) == ["I was told: Hello (1)"] and Messages(store).queues() == []


def test_what_a_platform_asks_to_wait_for_holds_in_all_threads() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    both = [platform.write(by, "Hello") for by in (RITA, OTTO)]
    for written in both:
        platform.deliver(written.sent)
    platform.clock.move(1)
    agent.recover_all()
    platform.fail("limited")
    first = bot.run_once()
    assert (first.sent, first.left) == (0, 2) and first.due is not None and first.due >= platform.clock.now + 29
    platform.clock.move(20)
    assert bot.run_once().sent == 0
    platform.clock.move(11)
    assert bot.run_once().sent + bot.run_once().sent == 2
    assert [said(platform, written) for written in both] == [["I was told: Hello (1)"]] * 2


def test_a_thread_that_waits_costs_one_row_until_something_happens() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    written = platform.write(RITA, "Pay 7")
    platform.deliver(written.sent)
    settle(bot, agent, platform)
    looks: list[str] = []
    branches = store.select_branches
    store.select_branches = lambda wanted: looks.append("look") or branches(wanted)  # type: ignore[method-assign, func-returns-value]
    assert bot.run_once().left == 1 and looks == []
    # A worker elsewhere, whose process has no bot, calls for a look.
    elsewhere = clerk(store, approvals_of(store, platform, route=None))
    platform.connect(bot.approvals)
    [shown] = platform.conversation(written.thread)
    platform.click(shown, "approve", OTTO)
    elsewhere.recover_all()
    looks.clear()
    bot.run_once()
    assert looks != [] and said(platform, written) == ["I was told: paid 7 (1)"]


def test_it_talks_and_works_in_threads_of_its_own() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(), platform)
    approvals = approvals_of(store, platform, route=None)
    assert isinstance(store, MemoryStore)
    agent = clerk(store, approvals)
    told = threading.Event()
    say = platform.channel.say

    def saying(to: str, text: str, *, key: str) -> str:
        try:
            return say(to, text, key=key)
        finally:
            told.set()

    platform.channel.say = saying  # type: ignore[method-assign]
    platform.clock.now = store.clock()
    written = platform.write(RITA, "Hello")
    worker = Worker(agent, poll=0.05)
    working = threading.Thread(target=worker.run)
    working.start()
    with ChatBot(approvals, agent).start(poll=0.05) as bot:
        assert bot.start() is bot
        platform.deliver(written.sent)
        assert told.wait(20)
    worker.stop()
    working.join()
    assert said(platform, written) == ["I was told: Hello (1)"]


def test_a_store_that_fails_is_looked_into_again(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, _ = bot_of(store, platform)
    stop, looks = threading.Event(), iter(range(3))

    def failing() -> Any:
        if next(looks) == 2:
            stop.set()
        raise RuntimeError("a secret")

    bot.run_once = failing  # type: ignore[method-assign]
    bot.run(stop, poll=0.001)
    assert caplog.text.count("could not be read: RuntimeError") == 3 and "secret" not in caplog.text


def test_an_agent_is_chosen_by_the_message() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    approvals = approvals_of(store, platform, route=None)
    agents = [clerk(store, approvals, name) for name in ("one", "two")]
    seen: list[Said] = []

    def choose(message: Said) -> Agent[Any, str]:
        seen.append(message)
        return agents[len(message.text) % 2]

    bot = ChatBot(approvals, choose)
    for text in ("ab", "abc"):
        platform.deliver(platform.write(RITA, text).sent)
    assert [each.agent for each in store.branches()] == ["one", "two"]
    assert [(each.alias, each.text) for each in seen] == [(f"minimal:{RITA}", "ab"), (f"minimal:{RITA}", "abc")]
    bot.run_once()


def test_its_runs_have_the_scopes_of_the_bot_or_of_the_requester(caplog: pytest.LogCaptureFixture) -> None:
    """R15: none by default; a function that fails, or gives none that are scopes, begins nothing."""
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    of: dict[str, Any] = {"rita": ["refund", "read"], "otto": "all"}
    for scopes, of_rita in ((None, ()), (["read"], ("read",)), (lambda asks: of[asks.id], ("read", "refund"))):
        bot, _ = bot_of(store, platform, **({} if scopes is None else {"scopes": scopes}))
        platform.deliver(platform.write(RITA, "Hello").sent)
        assert store.head(store.branches()[-1].id)[1].scopes == of_rita
    begun = len(store.branches())
    platform.deliver(platform.write(OTTO, "Hello").sent)
    del of["otto"]
    platform.clock.move(2)
    bot.run_once()
    assert len(store.branches()) == begun
    assert [each.message.rpartition(" ")[2] for each in caplog.records] == ["ConfigurationError", "KeyError"]


def test_a_function_that_fails_loses_no_message(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    approvals = approvals_of(store, platform, route=None)
    agent, down = clerk(store, approvals), True

    def choose(message: Said) -> Agent[Any, str]:
        if down:
            raise RuntimeError("a secret")
        return agent

    bot = ChatBot(approvals, choose)
    written = platform.write(RITA, "Hello")
    assert platform.deliver(written.sent).status == 200
    settle(bot, agent, platform)
    assert store.branches() == [] and "secret" not in caplog.text
    down = False
    settle(bot, agent, platform, 60)
    assert said(platform, written) == ["I was told: Hello (1)"]


def test_what_fails_for_good_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    written = platform.write(RITA, "Hello")
    platform.deliver(written.sent)
    platform.clock.move(1)
    agent.recover_all()
    platform.fail(*["refused"] * 200)
    for _ in range(200):
        bot.run_once()
        platform.clock.move(301)
    assert said(platform, written) == [] and "is given up" in caplog.text
    assert Messages(store).queues() == [] and bot.run_once().due is None


def test_what_a_person_wrote_is_not_kept_once_it_is_answered() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    platform.deliver(platform.write(RITA, "My pin is 4711-0815").sent)
    [before] = store.select_documents(MESSAGE)
    settle(bot, agent, platform)
    [after] = store.select_documents(MESSAGE)
    assert "4711-0815" in before.text and "4711-0815" not in after.text and store.select_documents(QUEUE) == []
    assert before.expires_at is not None and after.expires_at is not None and after.expires_at < before.expires_at
    [message] = [Messages(store).get(after.key)]
    assert message is not None and "4711-0815" not in repr(message) and message.over


def test_a_run_that_is_deleted_is_over() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    written = platform.write(RITA, "Pay 7")
    platform.deliver(written.sent)
    settle(bot, agent, platform)
    store.delete(store.branches()[0].run_id, force=True)
    settle(bot, agent, platform, 700)
    assert said(platform, written) == [] and Messages(store).queues() == []


def test_what_a_guardrail_refuses_is_told_in_its_words() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    approvals = approvals_of(store, platform, route=None)

    @guardrail
    def polite(text: str) -> Refuse | None:
        """Refuse what is rude."""
        return Refuse("Please be @polite.") if "rude" in text else None

    model = ScriptedModel(answer)
    agent: Agent[Any, str] = Agent(
        name="clerk", model=model, store=store, announcements=[approvals], input_guardrails=[polite]
    )
    bot = ChatBot(approvals, agent)
    written = platform.write(RITA, "A rude text")
    platform.deliver(written.sent)
    settle(bot, agent, platform)
    assert said(platform, written) == ["Please be \\@polite."]


def test_runs_of_others_are_none_of_the_bot() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    bot, agent = bot_of(store, platform)
    result: Result[str] = agent.invoke("Pay 7")
    assert bot.approvals.conversation(result.run_id) is None
    bot.approvals.outbox.run_once()
    assert platform.messages() == [] and store.select_documents(QUEUE) == []


def test_a_route_may_ask_where_the_conversation_is() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    assert isinstance(store, MemoryStore)
    approvals = approvals_of(
        store, platform, route=lambda event: [platform.place, approvals.conversation(event.run_id) or platform.place]
    )
    agent = clerk(store, approvals)
    bot = ChatBot(approvals, agent)
    written = platform.write(RITA, "Pay 7")
    platform.deliver(written.sent)
    settle(bot, agent, platform)
    assert len(platform.messages()) == 1 and len(platform.conversation(written.thread)) == 1


def test_what_cannot_be_read_in_the_store_is_left_alone() -> None:
    store = MemoryStore()
    messages = Messages(store)
    for number, text in enumerate(
        ("x", "[]", '{"version": 2}', '{"version": 1}', '{"version": 1, "told": [], "more": 1}')
    ):
        store.put_document(Document(kind=MESSAGE, key=f"k{number}", text=text))
        assert messages.get(f"k{number}") is None
    assert messages.change("none", lambda now: now) is None and not messages.call_for("run_none")
    store.put_document(Document(kind=QUEUE, key="a/1-b", text="no number"))
    assert messages.queues()[0][0].due == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": 0},
        {"queue": 1.5},
        {"patience": -1},
        {"patience": "long"},
        {"agent": "x"},
        {"scopes": "a"},
        {"scopes": ["a b"]},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    platform = MinimalPlatform()
    store = MemoryStore()
    approvals = approvals_of(store, platform)
    right: dict[str, Any] = {"agent": clerk(store, approvals)}
    assert "minimal" in repr(ChatBot(approvals, **right))
    with pytest.raises(ConfigurationError):
        ChatBot(approvals, **{**right, **wrong})


def test_an_agent_that_does_not_fit_is_refused() -> None:
    platform = MinimalPlatform()
    store = MemoryStore()
    approvals = approvals_of(store, platform)
    with pytest.raises(ConfigurationError, match="store"):
        ChatBot(approvals, clerk(MemoryStore(), approvals))
    with pytest.raises(ConfigurationError, match="announcements"):
        ChatBot(approvals, Agent(name="clerk", model=ScriptedModel(["Hi."]), store=store))
    with pytest.raises(ConfigurationError, match="belongs to"):
        ChatBot("approvals", clerk(store, approvals))  # type: ignore[arg-type]


def test_a_channel_that_does_not_talk_has_no_bot() -> None:
    platform = MinimalPlatform()

    class Mute:
        name = "mute"
        form_limits = None

        def __getattr__(self, name: str) -> Any:
            if name in ("say", "say_limit"):
                raise AttributeError(name)
            return getattr(platform.channel, name)

    store = MemoryStore()
    mute: Any = Mute()
    approvals = ChatApprovals(store, channels=[mute], directory=StoreDirectory(store), keys=KEYS)
    with pytest.raises(ConfigurationError, match="say"):
        ChatBot(approvals, clerk(store, approvals))
    both = ChatApprovals(store, channels=[mute, platform.channel], directory=StoreDirectory(store), keys=KEYS)
    bot = ChatBot(both, clerk(store, both))
    message = Said(alias="mute:1", delivery="d", text="Hello", thread="t", to="t")
    assert bot.hear(mute, message).status == 200 and store.branches() == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("short", ["short"]),
        ("aaaa\n\nbbbb\ncc", ["aaaa", "bbbb\ncc"]),
        ("aaaaaa\nbbb ccc", ["aaaaaa", "bbb ccc"]),
        ("aaa bbb ccc ddd", ["aaa bbb ", "ccc ddd"]),
        ("abcdefghijklmno", ["abcdefghij", "klmno"]),
    ],
)
def test_a_text_is_cut_between_lines_or_words(text: str, wanted: list[str]) -> None:
    assert in_parts(text, 10, "elsewhere") == wanted


def test_what_nobody_would_see_is_written_out_and_pictures_stay() -> None:
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL} \N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}"
    assert visible(f"{family}\r\n\tnext") == f"{family}\n\tnext"
    assert visible("a\x00b\u202ec\x1b[31m\u2066") == "a\\x00b\\u202ec\\x1b[31m\\u2066"
    assert visible("Привет, мир") == "Привет, мир"
