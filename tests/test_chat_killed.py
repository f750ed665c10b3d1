"""A desk in Slack with two whole processes on one database, killed at any moment: clicks and messages over HTTP."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from chat_scenes import RITA, with_people
from drivers import PATIENCE
from places import place_of
from selection import scaled
from test_chat_processes import Real

from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store
from phronomy.testing.chat import FakeSlack, Sent, Shown, Written

pytestmark = pytest.mark.unmeasured

SERVER = Path(__file__).with_name("chat_server.py")
PEOPLE = 10


class Process:
    """A process of the desk."""

    def __init__(self, url: str, slack: FakeSlack) -> None:
        command = [sys.executable, str(SERVER), url, slack.base_url]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port, "the desk did not start"
        self._address = f"http://127.0.0.1:{port}"

    def send(self, sent: Sent) -> tuple[int, bytes] | None:
        """The answer to a request; None if there is none."""
        try:
            answer = httpx.post(
                self._address + sent.path,
                headers=dict(sent.headers),
                content=sent.body,
                trust_env=False,
                timeout=PATIENCE,
            )
        except httpx.HTTPError:
            return None
        return answer.status_code, answer.content

    def kill(self) -> None:
        """Be gone, at once."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Desk:
    """The processes of a desk, on one database."""

    def __init__(self, url: str, slack: FakeSlack, store: Store) -> None:
        self.slack, self.store = slack, store
        self._start: Callable[[], Process] = lambda: Process(url, slack)
        self.processes = [self._start(), self._start()]
        self.kills = 0

    def kill(self, which: int) -> None:
        """Kill a process; another one takes its place."""
        self.processes[which].kill()
        self.kills += 1
        self.processes[which] = self._start()

    def send(self, sent: Sent) -> list[tuple[int, bytes] | None]:
        """Have both processes get a request at the same moment; their answers."""
        barrier = threading.Barrier(2)
        found: list[tuple[int, bytes] | None] = [None, None]

        def one(which: int) -> None:
            barrier.wait()
            found[which] = self.processes[which].send(sent)

        threads = [threading.Thread(target=one, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def insist(self, sent: Sent) -> None:
        """Send a request until somebody has acknowledged it, as Slack does within bounds."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if any(each is not None and each[0] == 200 for each in self.send(sent)):
                return
        raise AssertionError("nobody acknowledges it")

    def close(self) -> None:
        for process in self.processes:
            process.kill()


@contextmanager
def desk_of(kind: str, folder: Path) -> Iterator[Desk]:
    with FakeSlack(Real()) as slack, place_of(kind, folder) as place:
        store = with_people(place.open(), slack)
        people = StoreDirectory(store)
        for number in range(PEOPLE):
            people.add(Person(id=f"p{number}", aliases=(f"slack:U00000PERSON{number}",)))
        desk = Desk(place.url, slack, store)
        try:
            yield desk
        finally:
            desk.close()


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 2 * PATIENCE
    while not done():
        assert time.monotonic() < end, "it does not come to its end"
        time.sleep(0.05)


def requests(desk: Desk, written: Written) -> list[Shown]:
    return [each for each in desk.slack.conversation(written.thread) if each.buttons]


def answers(desk: Desk, written: Written) -> list[str]:
    return [each.text for each in desk.slack.conversation(written.thread) if "digest" not in each.text]


KINDS = pytest.mark.parametrize("kind", ["postgres", "redis", "sqlite"])


@pytest.mark.few(1)
@KINDS
def test_each_message_has_one_run_and_its_answer_while_processes_are_killed(kind: str, tmp_path: Path) -> None:
    """Each is delivered to both processes at once, by ten people; every tenth asks for something that Rita approves."""
    count, kills = 50, scaled(4, sweep=12)
    chance = random.Random(7)
    with desk_of(kind, tmp_path) as desk:
        over = threading.Event()

        def strike() -> None:
            for _ in range(kills):
                if over.wait(chance.uniform(0.1, 1.2)):
                    return
                desk.kill(chance.randrange(2))

        killer = threading.Thread(target=strike)
        killer.start()
        messages: list[tuple[str, Written]] = []
        for number in range(count):
            text = f"Pay {number}" if number % 10 == 0 else f"Hello {number}"
            by = f"U00000PERSON{number % PEOPLE}"
            thread = messages[number - PEOPLE][1].thread if number >= PEOPLE else None
            written = desk.slack.write(by, text, thread=thread, alone=True)
            messages.append((text, written))
            desk.insist(written.sent)
        killer.join()
        pays = messages[0][1]

        def settled() -> bool:
            for shown in requests(desk, pays):
                desk.insist(desk.slack.sign(shown, "approve", RITA))
            runs = desk.store.branches()
            return len(runs) == count and all(each.status == "completed" for each in runs)

        until(settled)
        wanted = [
            f"I was told: {f'paid {text[4:]}' if text.startswith('Pay') else text} ({1 + number // PEOPLE})"
            for number, (text, _) in enumerate(messages)
        ]
        told: Counter[str] = Counter()
        threads = {written.thread: written for _, written in messages}.values()

        def all_told() -> bool:
            told.clear()
            for written in threads:
                told.update(answers(desk, written))
            return all(each in told for each in wanted)

        until(all_told)
        over.set()
        notices = {each for each in told if each.startswith("I read this as soon as")}
        assert told.keys() - notices == {*wanted}
        # Slack has no key by which it would know a message that is posted again, so a process that is killed before it has noted that
        # its message was posted has it posted again: at most one for each kill.
        again = sum(told[each] - 1 for each in wanted)
        print(f"{desk.kills} kills, {again} answers posted again")
        assert again <= desk.kills
        runs = desk.store.branches()
        assert len(runs) == len({each.run_id for each in runs}) == count
        for number, written in enumerate(threads):
            said = [each for each in dict.fromkeys(answers(desk, written)) if each in wanted]
            assert said == wanted[number::PEOPLE]


@pytest.mark.few(1)
@KINDS
def test_a_click_that_two_processes_get_at_once_is_one_decision(kind: str, tmp_path: Path) -> None:
    """And both give the same answer."""
    count = scaled(5, sweep=20)
    with desk_of(kind, tmp_path) as desk:
        written = [desk.slack.write(f"U00000PERSON{number % PEOPLE}", f"Pay {number}") for number in range(count)]
        for each in written:
            desk.insist(each.sent)
        until(lambda: all(len(requests(desk, each)) == 1 for each in written))
        for each in written:
            [shown] = requests(desk, each)
            found = desk.send(desk.slack.sign(shown, "approve", RITA))
            assert found[0] == found[1] and found[0] is not None and found[0][0] == 200
        until(lambda: all(answers(desk, each) for each in written))
        trail = [(each.by and each.by.id, each.kind, each.refused) for each in desk.store.audit()]
        assert trail == [("rita", "approve", False)] * count
        assert [answers(desk, each) for each in written] == [
            [f"I was told: paid {number} (1)"] for number in range(count)
        ]
        assert len(desk.store.branches()) == count and desk.slack.told(RITA) == []
