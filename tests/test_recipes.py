"""Recipes whose promise goes beyond what one process shows: run as the page has them, by several workers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from places import Place, place_of

from phronomy import Agent, Announcements, Approve, tool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"
SECTION = PAGE.read_text().partition("## Post each request once\n")[2].partition("\n## ")[0]

WORKER = '''
import os, sys
from phronomy.stores import open_store
from test_recipes import channel, desk

def post(message):
    """Post to the chat app. Killed `before` it has come there, or `after` it, if that is asked for."""
    if dies == "before":
        os._exit(9)
    with open("posts", "a") as posts:
        posts.write(message + "\\n")
    if dies == "after":
        os._exit(9)

url, dies, act, *ids = sys.argv[1:]
with open_store(url) as store:
    desk(store, channel()(post), act, *ids)
'''


def channel() -> type[Announcements]:
    """The class as the page has it."""
    code = re.search(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(compile(code[1], str(PAGE), "exec"), names)
    found: type[Announcements] = names["Channel"]
    return found


def desk(store: Store, told: Announcements, act: str, *ids: str) -> None:
    """What a worker does: take an order for three refunds, decide one of them, or look for what lost workers left."""

    @tool(requires_approval=True)
    def refund(order_id: int) -> str:
        """Refund an order."""
        return "on its way"

    three = [call("refund", {"order_id": number}) for number in (7, 8, 9)]
    model = ScriptedModel.by_turn([three, "Done."])
    agent = Agent(name="desk", model=model, tools=[refund], store=store, announcements=[told])
    if act == "invoke":
        agent.invoke("Refund all three", thread_id="chat-10")
    elif act == "decide":
        agent.resume(store.head(ids[0])[1], decisions={ids[1]: Approve()}, by="ada")
    else:
        agent.recover_all()


def waiting(store: Store) -> list[str]:
    return [each.approval.id for each in store.pending()]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place that several processes open."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{PAGE.parents[1]}:{Path(__file__).parent}")
    with place_of(request.param, tmp_path) as found:
        yield found


def works(place: Place, *words: str, dies: str = "") -> None:
    """A worker, from its beginning to its end, in a process of its own."""
    line = [sys.executable, "-c", WORKER, place.url, dies, *words]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (9 if dies else 0, "")


def posts() -> list[str]:
    """The ids that were posted, each as often as it was."""
    found = Path("posts")
    return [line.rpartition(" ")[2] for line in found.read_text().splitlines()] if found.exists() else []


def test_three_calls_that_are_decided_one_by_one_are_posted_once_each(place: Place, tmp_path: Path) -> None:
    """By workers of their own, that share the store and the table of what was posted."""
    messages: list[str] = []
    made: Callable[..., Announcements] = channel()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        store = place.open()
        desk(store, made(messages.append), "invoke")
        (run,) = store.branches()
        first = waiting(store)
        for id in reversed(first):
            desk(place.open(), made(messages.append), "decide", run.id, id)
            desk(place.open(), made(messages.append), "recover")
    assert store.branches()[0].status == "completed"
    assert [message.rpartition(" ")[2] for message in messages] == first


@pytest.mark.sweep
def test_so_they_are_by_several_processes(shared: Place) -> None:
    store = shared.open()
    works(shared, "invoke")
    (run,), first = store.branches(), waiting(store)
    assert posts() == first and len(first) == 3
    for id in reversed(first):
        works(shared, "decide", run.id, id)
        works(shared, "recover")
    assert (store.branches()[0].status, posts()) == ("completed", first)


@pytest.mark.few(1)
def test_what_a_killed_worker_has_not_posted_the_next_one_posts(shared: Place) -> None:
    store = shared.open()
    works(shared, "invoke", dies="before")
    first = waiting(store)
    assert (len(first), posts()) == (3, [])
    works(shared, "recover")
    assert posts() == first
    works(shared, "recover")
    assert posts() == first


@pytest.mark.few(1)
def test_one_that_was_killed_with_its_post_made_is_the_only_one_that_is_posted_twice(shared: Place) -> None:
    store = shared.open()
    works(shared, "invoke", dies="after")
    first = waiting(store)
    works(shared, "recover")
    assert posts() == [first[0], *first]


def test_of_two_workers_that_tell_the_same_at_once_one_posts_it(shared: Place) -> None:
    """The second comes while the post of the first is on its way, and waits for what becomes of it."""
    store, folder = shared.open(), Path()
    made: Callable[..., Announcements] = channel()

    def fails(message: str) -> None:
        raise ConnectionError

    desk(store, made(fails), "invoke")
    first, sent = waiting(store), []

    def slow(message: str) -> None:
        (folder / "posting").touch()
        until = time.monotonic() + PATIENCE
        while not (folder / "asked").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        sent.append(message)

    class Asks(made):  # type: ignore[misc, valid-type]
        def on_request(self, event: Any) -> None:
            (folder / "asked").touch()
            super().on_request(event)

    with ThreadPoolExecutor(2) as pool:
        begun = pool.submit(desk, shared.open(), made(slow), "recover")
        until = time.monotonic() + PATIENCE
        while not (folder / "posting").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        pool.submit(desk, shared.open(), Asks(sent.append), "recover").result()
        begun.result()
    assert sorted(message.rpartition(" ")[2] for message in sent) == sorted(first)
