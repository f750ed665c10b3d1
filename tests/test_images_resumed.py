"""An image survives the process that drew it: another one sends the model the same bytes, and draws nothing again.

python test_images_resumed.py WAY STORE PROVIDER DRAWN [RUN]: begin a run, or recover it; print what has come of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crash_worker import DRIVERS as DRIVEN
from crash_worker import go, looked, settle
from drivers import DRIVERS, PATIENCE, STREAMED, until
from places import place_of
from selection import scaled

from phronomy import (
    Agent,
    Approve,
    ChatCompletionsModel,
    Checkpoint,
    Image,
    ResponsesModel,
    RunBusy,
    Tool,
    open_store,
    tool,
)
from phronomy.models.http.direct import DirectModel
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import last_of, replay
from phronomy.testing import ChatServer, ScriptedModel, call
from phronomy.testing.crash import Scene, sweep

WAYS = {str(each): each for each in (*DRIVERS, *STREAMED)}
MODELS: dict[str, type[DirectModel]] = {"chat": ChatCompletionsModel, "responses": ResponsesModel}
DATA = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 400


def main(way: str, protocol: str, url: str, provider: str, drawn: str, run: str = "") -> None:
    def chart(year: int) -> list[str | Image]:
        """Draw the sales of a year."""
        with open(drawn, "a") as book:
            book.write(f"{year}\n")
        return [f"Sales of {year}:", Image(DATA)]

    def pay() -> Image:
        """Pay, and give a receipt."""
        return Image(DATA[:1000])

    driver = WAYS[way]
    with open_store(url) as store:
        model = MODELS[protocol]("gpt-5", base_url=provider, api_key="none-is-needed", retry_wait=0)
        tools = [tool(driver.function(chart)), tool(requires_approval=True)(driver.function(pay))]
        agent: Agent[Any, str] = Agent(name="desk", model=model, tools=tools, store=store)
        if not run:
            driver.invoke(agent, "How were sales?", thread_id="t")
            return

        def recovered() -> Any:
            try:
                return driver.recover(agent, run)
            except RunBusy:  # until the lease of the dead worker is over
                return None

        waits = until(recovered).checkpoint
        done = driver.resume(agent, waits.id, decisions={waits.pending[0].id: Approve()})
        print(json.dumps([done.status, done.output]))


@pytest.mark.unmeasured
@pytest.mark.few(2)
@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize(("way", "kind"), list(zip(WAYS, ("sqlite", "postgres", "redis", "sqlite"), strict=True)))
def test_a_killed_worker_drew_it_and_another_one_shows_it(way: str, protocol: str, kind: str, tmp_path: Path) -> None:
    """Killed while the model looked at it, then stopped for a human: what is sent is the same each time, byte for byte."""
    workers: list[subprocess.Popen[str]] = []

    def killed(body: dict[str, Any]) -> str:
        workers[0].kill()
        workers[0].wait()
        return "Nobody hears this."

    drawn = tmp_path / "drawn"
    replies = [call("chart", {"year": 2026}), killed, call("pay"), "It goes up."]
    with place_of(kind, tmp_path) as place, ChatServer(replies) as server:
        line = [
            sys.executable,
            __file__,
            way,
            protocol,
            f"{place.url}{'&' if '?' in place.url else '?'}lease=1",
            server.base_url,
            str(drawn),
        ]
        workers.append(subprocess.Popen(line, text=True))
        assert workers[0].wait(PATIENCE) != 0
        with place.open() as store:
            [run] = store.branches()
        done = subprocess.run([*line, run.run_id], capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ["completed", "It goes up."]
    assert drawn.read_text() == "2026\n"
    before, after, last = (
        json.dumps(body["messages" if protocol == "chat" else "input"]) for body in server.requests[1:]
    )
    assert before == after and last.startswith(before[:-1])
    assert [each.count("data:image/png;base64,") for each in (before, last)] == [1, 2]


# Killed anywhere


def turn_by_turn(scene: Scene, *, driver: str) -> None:
    """Three images in one turn, two of them gated, which a human decides one by one."""

    def drawn(name: str, *, gated: bool) -> Tool:
        def body() -> list[str | Image]:
            """Draw."""
            return [name, Image(DATA + name.encode())]

        return tool(name=name, requires_approval=gated)(DRIVEN[driver].function(body))

    def answers(scene: Scene, checkpoint: Checkpoint) -> dict[str, Any]:
        return dict(list(looked(scene, checkpoint).items())[:1])

    names = {"look": False, "pay": True, "ship": True}
    tools = [drawn(name, gated=gated) for name, gated in names.items()]
    replies = [[call(name, id=name) for name in names], "done"]
    agent = Agent(name="clerk", model=ScriptedModel.by_turn(replies), tools=tools, store=scene.store)
    go(scene, agent, driver)
    settle(scene, agent, driver, answers)


def shown(scene: Scene) -> None:
    """Each image is in the conversation, unless a human said in text what had come of its call; and is stored once."""
    for branch in scene.store.branches():
        entries = whole_lineage(scene.store, branch_id=branch.id).entries
        head = last_of(entries)
        assert head == replay(entries)[-1] and head.status == "completed"
        stored = "".join(entry.body for entry in entries)
        for message in head.messages[2:5]:
            name = str(message.tool_call_id)
            url = f"data:image/png;base64,{b64encode(DATA + name.encode()).decode()}"
            image = {"type": "image_url", "image_url": {"url": url}}
            if message.settlement == "completed":
                assert message.content == [{"type": "text", "text": name}, image]
            else:
                assert message.settlement == "responded" and message.text.startswith(name)
            assert stored.count(url) == (message.settlement == "completed")


@pytest.mark.unmeasured
@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.parametrize("driver", DRIVEN)
def test_a_worker_killed_anywhere_loses_no_image_and_keeps_each_once(driver: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db?synchronous=normal"
    report = sweep(partial(turn_by_turn, driver=driver), store=store, check=shown, every=scaled(4, sweep=1))
    assert report.places >= 12 and report.kills >= report.places // 4


if __name__ == "__main__":
    main(*sys.argv[1:])
