"""The outbox of chat apps: paces, one message for many, crashes, late edits, and several processes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, desk, emptied, with_people

from phronomy import Approve, ConfigurationError, MemoryStore, StoreError
from phronomy.chat import Card, ChannelError, ChannelRefused, ChatApprovals
from phronomy.chat.posts import post_key
from phronomy.people import StoreDirectory
from phronomy.stores.rows import Document
from phronomy.testing.chat import Clock, FakeSlack, MinimalPlatform
from phronomy.testing.chat.platform import Trouble


def test_500_requests_are_posted_at_one_a_second_and_none_is_lost() -> None:
    clock = Clock()
    with FakeSlack(clock, rates=True) as slack:
        store = with_people(MemoryStore(clock=clock), slack)
        approvals = approvals_of(store, slack, digest_above=None)
        ids = {asked(approvals, store, order).id for order in range(500)}
        begun = clock.now
        emptied(approvals, clock, passes=600)
        assert len(slack.messages()) == 500 and 499 <= clock.now - begun <= 520
        assert {arguments["metadata"]["event_payload"]["pending_id"] for _, arguments in slack.calls} == ids
        assert len(slack.calls) == 500  # none was refused for being too fast


def test_above_a_number_one_message_links_to_the_inbox() -> None:
    clock = Clock()
    with FakeSlack(clock, rates=True) as slack:
        store = with_people(MemoryStore(clock=clock), slack)
        approvals = approvals_of(store, slack, digest_above=20)
        for order in range(50):
            asked(approvals, store, order)
        emptied(approvals, clock)
        [digest] = slack.messages()
        assert "50 requests wait" in digest.text and digest.link == "https://inbox.example" and digest.buttons == {}
        asked(approvals, store, 51)
        emptied(approvals, clock)
        assert len(slack.messages()) == 2 and "order: 51" in slack.messages()[1].text


def test_without_an_inbox_each_request_is_posted() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform, digest_above=2, inbox_url=None)
    for order in range(5):
        asked(approvals, store, order)
    emptied(approvals, platform.clock)
    assert len(platform.messages()) == 5


class Killed(BaseException):
    """The process is gone."""


class Mortal(MemoryStore):
    """A store whose process is killed before or after a write of a document."""

    left = 10**9
    after = False

    def _mortal(self, write: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        found = write()
        if self.left == 0:
            raise Killed
        return found

    def put_document(self, document: Document) -> Document:
        return self._mortal(lambda: super(Mortal, self).put_document(document))  # type: ignore[no-any-return]

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        self._mortal(lambda: super(Mortal, self).delete_document(kind, key, version=version))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("most", [None, 1])
def test_a_process_that_dies_while_it_posts_loses_nothing(after: bool, most: int | None) -> None:
    place = 0
    while True:
        place += 1
        platform = MinimalPlatform()
        store = Mortal(clock=platform.clock)
        with_people(store, platform)
        approvals = approvals_of(store, platform, digest_above=most)
        ids = [asked(approvals, store, order).id for order in range(3)]
        store.left, store.after = place, after
        with suppress(Killed):
            emptied(approvals, platform.clock)
        died, store.left = store.left <= 0, 10**9
        platform.clock.move(61)  # what it had begun is its own no more
        emptied(approvals_of(store, platform, digest_above=most), platform.clock)
        texts = [shown.text for shown in platform.messages()]
        if most is None:
            assert all(sum(f"order: {order}" in text for text in texts) in (1, 2) for order in range(3)), place
            assert len(texts) <= 4
        else:
            assert any("requests wait" in text for text in texts), place
        assert len(ids) == 3 and not [*approvals._posts.lanes()]
        if not died:
            assert place > 10
            return


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_dies_while_it_takes_a_click_loses_nothing_that_it_has_acknowledged(after: bool) -> None:
    place = 0
    while True:
        place += 1
        platform = MinimalPlatform()
        store = Mortal(clock=platform.clock)
        with_people(store, platform)
        approvals = approvals_of(store, platform)
        item = asked(approvals, store)
        emptied(approvals, platform.clock)
        [shown] = platform.messages()
        store.left, store.after = place, after
        acknowledged = False
        try:
            sent = platform.sign(shown, "approve", RITA)
            response = approvals.handle("POST", sent.path, sent.headers, sent.body)
            acknowledged = response.status == 200
            assert response.after is not None
            response.after()
        except Killed:
            pass
        died, store.left = store.left <= 0, 10**9
        platform.clock.move(61)
        effects: list[int] = []
        again = approvals_of(store, platform)
        desk(again, store, effects=effects).recover_all()
        emptied(again, platform.clock)
        is_decided = store.request(item.id).status == "settled"
        assert is_decided or not acknowledged
        assert effects == ([7] if is_decided else [])
        [shown] = platform.messages()
        assert ("done" in shown.text) == is_decided and bool(shown.buttons) != is_decided
        if not died:
            assert place > 4
            return


@pytest.mark.parametrize(("trouble", "is_told"), [("dropped", True), ("refused", False), ("limited", False)])
def test_what_is_decided_before_its_post_is_known_is_told_if_it_may_be_there(trouble: Trouble, is_told: bool) -> None:
    """Else a message would keep its buttons for ever, or a mail would be the last that somebody hears."""
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    item = asked(approvals, store)
    platform.fail(trouble)
    approvals.outbox.run_once()
    store.decide(item.id, Approve(), by="ann", digest=item.digest)
    platform.clock.move(400)
    desk(approvals, store).recover_all()
    emptied(approvals, platform.clock)
    assert any("approved by ann" in shown.text for shown in platform.messages()) == is_told


def test_what_is_decided_after_its_sender_died_is_told_all_the_same() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    item = asked(approvals, store)

    def posted(to: str, card: Card) -> str:
        MinimalPlatform.post(platform, to, card)
        raise Killed

    platform.post = posted  # type: ignore[method-assign]
    with pytest.raises(Killed):
        approvals.outbox.run_once()
    del platform.post  # type: ignore[attr-defined]
    store.decide(item.id, Approve(), by="ann", digest=item.digest)
    platform.clock.move(61)
    desk(approvals, store).recover_all()
    emptied(approvals, platform.clock)
    assert "approved by ann" in platform.messages()[-1].text


class Watched(MemoryStore):
    """A store in which somebody looks into the outbox after each write of a document."""

    look: Callable[[], object] | None = None

    def put_document(self, document: Document) -> Document:
        found = super().put_document(document)
        look, self.look = self.look, None
        if look is not None:
            look()
            self.look = look
        return found


def test_a_sender_that_looks_between_any_two_writes_leaves_nothing_out() -> None:
    platform = MinimalPlatform()
    store = Watched(clock=platform.clock)
    with_people(store, platform)
    approvals = approvals_of(store, platform)
    store.look = approvals_of(store, platform).outbox.run_once
    platform.connect(approvals)
    asked(approvals, store)
    emptied(approvals, platform.clock)
    [shown] = platform.messages()
    sent = platform.sign(shown, "approve", RITA)
    assert approvals.handle("POST", sent.path, sent.headers, sent.body).status == 200
    emptied(approvals, platform.clock)
    assert platform.messages()[0].buttons == {} and len(platform.messages()) == 1


def test_a_process_that_dies_while_it_announces_is_followed_by_one_that_announces_again() -> None:
    place = 0
    while True:
        place += 1
        platform = MinimalPlatform()
        store = Mortal(clock=platform.clock, lease=1)
        with_people(store, platform)
        store.left = place
        with suppress(Killed):
            asked(approvals_of(store, platform), store)
        died, store.left = store.left <= 0, 10**9
        platform.clock.move(61)
        again = approvals_of(store, platform)
        desk(again, store).recover_all()
        emptied(again, platform.clock)
        assert len(platform.messages()) == 1, place
        if not died:
            assert place > 2
            return


def test_an_edit_that_comes_late_does_not_stay_over_a_newer_one() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals, other = approvals_of(store, platform), approvals_of(store, platform)
    item = asked(approvals, store)
    emptied(approvals, platform.clock)
    store.decide(item.id, Approve(), by="ann", digest=item.digest, channel="inbox")
    approvals._change_posts(item.id)
    update = platform.channel.update
    late: list[str] = []

    def held_up(ref: str, card: Card) -> None:
        if not late:  # this process sleeps here, and another one sends what is newer
            late.append(card.status)
            platform.clock.move(61)
            desk(other, store).recover_all()
            emptied(other, platform.clock)
            assert "done" in platform.messages()[0].text
        update(ref, card)

    platform.channel.update = held_up  # type: ignore[method-assign]
    approvals.outbox.run_once()
    assert late and late[0].endswith("running")
    emptied(approvals, platform.clock)
    assert "done" in platform.messages()[0].text


def test_several_processes_that_send_at_once_post_each_request_once() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    first = approvals_of(store, platform, digest_above=None)
    for order in range(40):
        asked(first, store, order)

    def work() -> None:
        mine = approvals_of(store, platform, digest_above=None)
        while mine.outbox.run_once().left:  # no farther than a second in all, so that nobody loses what they own
            platform.clock.move(0.0001)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    texts = [shown.text for shown in platform.messages()]
    assert [sum(f"order: {order}\n" in text for text in texts) for order in range(40)] == [1] * 40


def test_two_channels_stay_in_step() -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        minimal = MinimalPlatform(clock)
        store = with_people(MemoryStore(clock=clock), slack, minimal)
        approvals = approvals_of(store, slack, minimal)
        asked(approvals, store)
        emptied(approvals, clock)
        [there], [here] = slack.messages(), minimal.messages()
        slack.click(there, "approve", RITA)
        emptied(approvals, clock)
        assert "approved by Rita, in slack" in minimal.messages()[0].text and minimal.messages()[0].buttons == {}
        assert "approved by Rita, 2" in slack.messages()[0].text
        minimal.click(here, "reject", OTTO)
        assert "approved by Rita, in slack" in minimal.told(OTTO)[0]


def test_of_two_people_who_click_at_once_in_two_channels_one_is_first() -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        minimal = MinimalPlatform(clock)
        store = with_people(MemoryStore(clock=clock), slack, minimal)
        approvals = approvals_of(store, slack, minimal)
        for order in range(10):
            item = asked(approvals, store, order)
            emptied(approvals, clock)
            there, here = slack.messages()[-1], minimal.messages()[-1]
            gate = threading.Barrier(2)

            def at_once(click: Callable[[], object], gate: threading.Barrier = gate) -> None:
                gate.wait()
                click()

            with ThreadPoolExecutor(2) as pool:
                done = [
                    pool.submit(at_once, lambda there=there: slack.click(there, "approve", RITA)),  # type: ignore[misc]
                    pool.submit(at_once, lambda here=here: minimal.click(here, "reject", OTTO)),  # type: ignore[misc]
                ]
                for each in done:
                    each.result()
            [record] = store.audit(pending_id=item.id)
            lost = slack.told(RITA) if record.by is not None and record.by.id == "otto" else minimal.told(OTTO)
            assert lost and "was first" in lost[-1]


def test_a_route_is_a_function_of_the_request() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)

    def route(event: Any) -> list[str]:
        return ["minimal:room"] if event.request.args["order"] == 1 else []

    approvals = approvals_of(store, platform, route=route)
    for order in range(3):
        asked(approvals, store, order)
    emptied(approvals, platform.clock)
    assert [("order: 1" in shown.text) for shown in platform.messages()] == [True]


def test_a_channel_of_another_process_is_left_to_it() -> None:
    minimal, clock = MinimalPlatform(), Clock()
    with FakeSlack(clock) as slack:
        minimal.clock = clock
        store = with_people(MemoryStore(clock=clock), minimal, slack)
        both = approvals_of(store, minimal, slack)
        asked(both, store)
        emptied_by = approvals_of(store, minimal).outbox.run_once()
        assert emptied_by.left == 1 and len(minimal.messages()) == 1 and slack.messages() == []
        emptied(both, clock)
        assert len(slack.messages()) == len(minimal.messages()) == 1


def test_it_sends_in_a_thread_of_its_own() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    told = threading.Event()
    post = platform.channel.post

    def posted(to: str, card: Card, *, key: str) -> str:
        try:
            return post(to, card, key=key)
        finally:
            told.set()

    platform.channel.post = posted  # type: ignore[method-assign]
    with approvals_of(store, platform) as approvals:
        asked(approvals, store)
        assert told.wait(10)
    assert len(platform.messages()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"channels": []},
        {"channels": [MinimalPlatform().channel] * 2},
        {"keys": {"a": b"a" * 32, "b": b"b" * 32}},
        {"keys": {"a": b"short"}},
        {"digest_above": 0},
        {"lifetime": 0},
        {"hide": "note"},
        {"inbox_url": "inbox.example"},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    store = MemoryStore()
    right: dict[str, Any] = {
        "channels": [MinimalPlatform().channel],
        "directory": StoreDirectory(store),
        "keys": {"k": b"k" * 32},
    }
    assert "minimal" in repr(ChatApprovals(store, **right)) and "kkk" not in repr(ChatApprovals(store, **right))
    with pytest.raises(ConfigurationError):
        ChatApprovals(store, **{**right, **wrong})


def test_a_change_between_the_look_and_the_claim_is_sent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    asked(approvals, store)
    emptied(approvals, platform.clock)
    [shown] = platform.messages()
    pace = platform.channel.pace

    def meanwhile(*given: Any) -> Any:
        # The message is made, and the post is not claimed yet. A worker carries the decision out.
        monkeypatch.undo()
        desk(approvals, store).recover_all()
        return pace(*given)

    monkeypatch.setattr(platform.channel, "pace", meanwhile)
    platform.click(shown, "approve", RITA)
    emptied(approvals, platform.clock)
    assert "done" in platform.messages()[0].text


def test_a_reminder_that_the_place_refuses_does_not_keep_the_decision_from_being_shown() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    item = asked(approvals, store)
    emptied(approvals, platform.clock)

    def refused(ref: str, card: Card) -> None:
        raise ChannelRefused("restricted_action")

    platform.channel.remind = refused  # type: ignore[method-assign]
    approvals._change_posts(item.id, remind=1)
    emptied(approvals, platform.clock)
    assert approvals.outbox.failed() == []
    [shown] = platform.messages()
    platform.click(shown, "approve", RITA)
    emptied(approvals, platform.clock)
    assert platform.messages()[0].buttons == {}


def test_a_request_that_cannot_be_read_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    wrong, _ = asked(approvals, store, 1), asked(approvals, store, 2)
    read = store.request

    def unreadable(pending_id: str) -> Any:
        if pending_id == wrong.id:
            raise StoreError("a row of a later release")
        return read(pending_id)

    monkeypatch.setattr(store, "request", unreadable)
    assert approvals.outbox.run_once().left == 1
    [shown] = platform.messages()
    assert "order: 2" in shown.text
    monkeypatch.undo()
    emptied(approvals, platform.clock)
    assert len(platform.messages()) == 2


def test_a_request_in_many_places_is_changed_in_all_of_them() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    places = [f"room{number}" for number in range(110)]
    approvals = approvals_of(store, platform, route=[f"minimal:{place}" for place in places], digest_above=None)
    asked(approvals, store)
    emptied(approvals, platform.clock)
    platform.click(platform.conversation("room0")[0], "approve", RITA)
    emptied(approvals, platform.clock)
    assert all("approved" in platform.conversation(place)[0].text for place in places)


def test_an_edit_that_comes_late_and_gets_no_answer_does_not_stay_over_a_newer_one() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals, other = approvals_of(store, platform), approvals_of(store, platform)
    item = asked(approvals, store)
    emptied(approvals, platform.clock)
    store.decide(item.id, Approve(), by="ann", digest=item.digest, channel="inbox")
    approvals._change_posts(item.id)
    update = platform.channel.update
    late: list[str] = []

    def held_up(ref: str, card: Card) -> None:
        is_first = not late
        if is_first:  # this process sleeps here, and another one sends what is newer
            late.append(card.status)
            platform.clock.move(61)
            desk(other, store).recover_all()
            emptied(other, platform.clock)
            assert "done" in platform.messages()[0].text
        update(ref, card)
        if is_first:
            raise ChannelError("no answer")

    platform.channel.update = held_up  # type: ignore[method-assign]
    approvals.outbox.run_once()
    assert "running" in platform.messages()[0].text
    emptied(approvals, platform.clock)
    assert "done" in platform.messages()[0].text


def test_an_edit_of_a_process_that_died_is_not_taken_for_what_is_shown() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    item = asked(approvals, store)
    emptied(approvals, platform.clock)
    key = post_key(item.id, platform.place)
    before = platform.messages()[0].text

    update, card = platform.channel.update, approvals.outbox._card

    def dies(ref: str, card: Card) -> None:
        update(ref, card)
        raise Killed

    # The process sends something else, dies, and then all is as it was before that.
    approvals.outbox._card = lambda post: Card(title="refund", state="goes on", status="failed", mark="x")
    platform.channel.update = dies  # type: ignore[method-assign]
    approvals._change_posts(item.id)
    with pytest.raises(Killed):
        approvals.outbox.run_once()
    assert "failed" in platform.messages()[0].text
    approvals.outbox._card = card
    platform.channel.update = update  # type: ignore[method-assign]
    platform.clock.move(61)
    emptied(approvals, platform.clock)
    assert platform.messages()[0].text == before
    found = approvals.posts.get(key)
    assert found is not None and found[0].is_done
