"""Telegram without a public address: updates are asked for, and confirmed once they are handled. And with one: over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from chat_scenes import RITA, approvals_of, asked, emptied, with_people

from phronomy import ConfigurationError, MemoryStore, StoreError
from phronomy.chat import ChannelError, RateLimited, wsgi
from phronomy.chat.telegram import Polling
from phronomy.testing.chat import Clock, FakeTelegram, Sent
from phronomy.testing.chat.telegram import SECRET
from phronomy.testing.chat.telegram.bot_server import GROUP


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with FakeTelegram(Clock()) as telegram:
        yield telegram


class Desk:
    """A request that waits, and is posted."""

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake = fake
        self.store = MemoryStore(clock=fake.clock)
        with_people(self.store, fake)
        self.approvals = approvals_of(self.store, fake)
        self.item = asked(self.approvals, self.store)
        emptied(self.approvals, fake.clock)

    def clicked(self, by: str = RITA) -> int:
        """Somebody presses a button; nobody has heard of it. Returns the id of the update."""
        return self.queued(self.fake.sign(self.fake.messages()[0], "approve", by))

    def queued(self, sent: Sent) -> int:
        update = json.loads(sent.body)
        self.fake.queue(update)
        number: int = update["update_id"]
        return number

    @property
    def status(self) -> str:
        return self.store.request(self.item.id).status


@pytest.fixture
def desk(fake: FakeTelegram) -> Desk:
    return Desk(fake)


def until(holds: Any) -> None:
    """Wait until something holds, which another thread brings about."""
    turn = threading.Event()
    for _ in range(2_000):
        if holds():
            return
        turn.wait(0.005)
    raise AssertionError("it does not come about")


def test_an_update_is_confirmed_once_it_is_handled(desk: Desk) -> None:
    number = desk.clicked()
    polling = Polling(desk.approvals, desk.fake.telegram)
    assert polling.run_once() == 1 and desk.status == "decided"
    assert desk.fake.waiting == [number]  # a process that dies here gets it again
    assert polling.run_once() == 0 and desk.fake.waiting == []
    asks = [arguments.get("offset") for method, arguments in desk.fake.calls if method == "getUpdates"]
    assert asks == [None, number + 1]


def test_a_process_that_dies_leaves_the_update_to_the_next(desk: Desk) -> None:
    desk.clicked()
    Polling(desk.approvals, desk.fake.telegram).run_once()
    assert Polling(desk.approvals, desk.fake.telegram).run_once() == 1
    assert [each.kind for each in desk.store.audit(pending_id=desk.item.id)] == ["approve"]
    assert desk.fake.told(RITA) == []


def test_an_update_that_cannot_be_handled_comes_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.clicked()
    polling = Polling(desk.approvals, desk.fake.telegram)
    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "decide", lambda *args, **options: 1 / 0)
        assert (polling.run_once(), polling.run_once(), desk.status) == (0, 0, "pending")
    assert (polling.run_once(), desk.status) == (1, "decided")


def test_what_can_never_be_handled_makes_way(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.clicked("nobody")
    desk.clicked()
    polling = Polling(desk.approvals, desk.fake.telegram)
    resolve = desk.approvals._directory.resolve

    def broken(alias: str) -> Any:
        return 1 / 0 if alias == desk.fake.alias("nobody") else resolve(alias)

    monkeypatch.setattr(desk.approvals._directory, "resolve", broken)
    tries = sum(polling.run_once() == 0 for _ in range(20))
    assert tries == 19 and desk.status == "decided" and "is let go" in caplog.text


def test_what_makes_no_sense_is_let_go(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.fake.queue({"update_id": 900, "callback_query": {}})
    desk.fake.queue({"update_id": 901, "poll": {}})
    polling = Polling(desk.approvals, desk.fake.telegram)
    assert polling.run_once() == 2 and "could not be read" in caplog.text
    polling.run_once()
    assert desk.fake.waiting == []


def test_a_thread_asks_until_it_is_closed_and_confirms_what_it_has_handled(desk: Desk) -> None:
    with Polling(desk.approvals, desk.fake.telegram, wait=50) as polling:
        polling.connect()  # it is connected already
        assert "secret" not in repr(polling)
        desk.clicked()
        until(lambda: desk.status == "decided" and desk.fake.messages()[0].buttons == {})
        desk.queued(desk.fake.message(RITA, "Hello"))
        until(lambda: desk.fake.calls[-1][0] == "getUpdates" and len(desk.fake.waiting) == 0)
    assert desk.fake.waiting == []
    polling.close()  # nothing is left to be closed


def test_a_prompt_is_answered_over_polling(desk: Desk) -> None:
    polling = Polling(desk.approvals, desk.fake.telegram)
    desk.queued(desk.fake.sign(desk.fake.messages()[0], "reason", RITA))
    polling.run_once()
    _, number = desk.fake._prompts[desk.fake.number(RITA)]
    desk.queued(desk.fake.message(RITA, "too much", chat=GROUP, answers=number))
    polling.run_once()
    decision = desk.store.request(desk.item.id).decision
    assert decision is not None and decision.reason == "too much"


def test_a_webhook_that_is_set_is_told(desk: Desk) -> None:
    desk.fake.telegram.set_webhook("https://example.org/chat/telegram")
    with pytest.raises(ConfigurationError, match="phronomy telegram webhook --delete"):
        Polling(desk.approvals, desk.fake.telegram).connect()
    desk.fake.telegram.delete_webhook()
    with Polling(desk.approvals, desk.fake.telegram):
        desk.clicked()
        until(lambda: desk.status == "decided")


def test_a_process_that_takes_over_is_told_to_the_other(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with Polling(desk.approvals, desk.fake.telegram, wait=50):
        until(lambda: sum(method == "getUpdates" for method, _ in desk.fake.calls) >= 2)
        Polling(desk.approvals, desk.fake.telegram).run_once()
        until(lambda: "another process asks for updates" in caplog.text)


def test_telegram_that_is_down_is_asked_again(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    wrong = FakeTelegram(Clock())
    polling = Polling(desk.approvals, wrong.telegram)
    wrong.close()
    with pytest.raises(ChannelError):
        polling.connect()
    stop = threading.Event()
    thread = threading.Thread(target=polling._run, args=(stop,))
    thread.start()
    until(lambda: "gives no updates" in caplog.text)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_it_waits_when_telegram_asks_for_that(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    call, limited = desk.fake.telegram.api.call, threading.Event()

    def once(method: str, **options: Any) -> Any:
        if options.get("timeout") and not limited.is_set():
            limited.set()
            raise RateLimited("wait", seconds=0.01)
        return call(method, **options)

    monkeypatch.setattr(desk.fake.telegram.api, "call", once)
    desk.clicked()
    with Polling(desk.approvals, desk.fake.telegram):
        until(lambda: desk.status == "decided")
    assert limited.is_set()


def test_a_thread_tries_again_what_it_could_not_handle(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    decide, failed = desk.store.decide, threading.Event()

    def once(*args: Any, **options: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise StoreError("not now")
        return decide(*args, **options)

    monkeypatch.setattr(desk.store, "decide", once)
    monkeypatch.setattr("phronomy.chat.telegram.polling._LONGEST", 0.01)
    desk.clicked()
    with Polling(desk.approvals, desk.fake.telegram):
        until(lambda: desk.status == "decided")
    assert failed.is_set()


def test_what_cannot_be_confirmed_does_not_keep_it_from_closing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    polling = Polling(desk.approvals, desk.fake.telegram, wait=1)
    polling.connect()
    until(lambda: sum(method == "getUpdates" for method, _ in desk.fake.calls) >= 2)
    monkeypatch.setattr(polling, "_ask", lambda *args, **options: (_ for _ in ()).throw(ChannelError("down")))
    polling.close()


@pytest.mark.parametrize("wrong", [-1, 51, 1.5, "25", True])
def test_wrong_settings_are_refused(wrong: Any, desk: Desk) -> None:
    with pytest.raises(ConfigurationError):
        Polling(desk.approvals, desk.fake.telegram, wait=wrong)


# With an address


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(application: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/chat/telegram"
        server.shutdown()
        thread.join()


def test_updates_come_over_http_and_come_again_until_they_are_taken(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(wsgi(desk.approvals)) as url:
        desk.fake.telegram.set_webhook(url)
        assert desk.fake.webhook["secret_token"] == SECRET
        number = desk.clicked()
        with monkeypatch.context() as patch:
            patch.setattr(desk.store, "decide", lambda *args, **options: 1 / 0)
            assert desk.fake.push() == [503] and desk.fake.waiting == [number]
        assert desk.fake.push() == [200] and desk.fake.waiting == []
        until(lambda: desk.fake.messages()[0].buttons == {})
        desk.fake.webhook["secret_token"] = "x" * 20
        desk.queued(desk.fake.message(RITA, "Hello"))
        assert desk.fake.push() == [401]
    assert desk.fake.push() == [0]  # nobody listens
    assert [each.kind for each in desk.store.audit(pending_id=desk.item.id)] == ["approve"]
