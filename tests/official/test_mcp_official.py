"""The official MCP servers, as they are published: gated, approved in another process, restarted, cancelled, and answered.

They run in `nox -s mcp` alone, which installs them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, Driver, until
from official_servers import Setting, node_server
from ports import HeldPort

PROGRAM = Path(__file__).with_name("official_servers.py")
NAMES = ("everything", "filesystem", "memory", "time", "git")
FORM = {"action": "accept", "content": {"name": "Ada", "check": True, "untitledMultipleSelectEnum": ["Piano"]}}


def told(result: Any) -> list[list[Any]]:
    """What became of the calls."""
    return [[message.settlement, message.text] for message in result.messages if message.role == "tool"]


def elsewhere(setting: Setting, checkpoint: Any, answer: Any) -> dict[str, Any]:
    """Resume in another process, with this answer."""
    setting.file.write_text(json.dumps({**setting.told, "answer": answer}))
    command = [sys.executable, str(PROGRAM), str(setting.file), checkpoint.id]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 4, check=False)
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


def git(folder: Path, *args: str) -> str:
    """What git says."""
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    return subprocess.run(["git", *who, *args], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a server works."""
    made = tmp_path / "desk"
    made.mkdir()
    return made


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between a test and its server."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


class Remote:
    """ "everything" over HTTP, at one port for as long as the test lasts."""

    def __init__(self) -> None:
        self._port = HeldPort()
        self.url = f"http://127.0.0.1:{self._port.number}/mcp"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {**os.environ, "PORT": str(self._port.number)}
        nothing = subprocess.DEVNULL
        command = node_server("everything", "streamableHttp")
        self.process = subprocess.Popen(command, env=env, stdout=nothing, stderr=nothing)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port.number), timeout=1):
                return
            time.sleep(0.05)
        raise TimeoutError("the server does not listen")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        self._port.close()


@pytest.fixture
def remote() -> Iterator[Remote]:
    """The server that is reached over HTTP."""
    made = Remote()
    made.start()
    yield made
    made.close()


@contextmanager
def everything(transport: str, folder: Path, calls: list[Any], **options: Any) -> Iterator[tuple[Setting, Any]]:
    """A setting of "everything" over this transport, and what starts the server again."""
    if transport == "stdio":  # each connection starts one
        yield Setting("everything", folder, calls, **options), lambda: None
        return
    made = Remote()
    made.start()
    try:
        yield Setting("everything", folder, calls, made.url, **options), made.restart
    finally:
        made.close()


BOTH = pytest.mark.parametrize("transport", ["stdio", "http"])


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_that_a_server_lists_can_be_offered_and_is_gated(folder: Path, name: str) -> None:
    git(folder, "init")
    with Setting(name, folder, []).server() as server:
        tools = server.tools()
        assert tools and {tool.gate for tool in tools} == {"always"}


def work(name: str, folder: Path) -> tuple[list[Any], Any, Any]:
    """A call with an effect, how to see whether it has happened, and a word of its result."""
    file = folder / "note.txt"
    match name:
        case "everything":
            return ["get-sum", {"a": 19, "b": 23}], None, "42"
        case "filesystem":
            return ["write_file", {"path": str(file), "content": "hello"}], file.exists, "note.txt"
        case "memory":
            entity = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
            kept = folder / "memory.jsonl"
            return (
                ["create_entities", {"entities": [entity]}],
                lambda: kept.exists() and "counts" in kept.read_text(),
                "Ada",
            )
        case "time":
            times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kolkata"}
            return ["convert_time", times], None, "17:30"
        case _:
            git(folder, "init", "--initial-branch=main")
            file.write_text("hello")
            git(folder, "add", ".")
            git(folder, "config", "user.name", "Ada")
            git(folder, "config", "user.email", "ada@example.com")
            made = ["git_commit", {"repo_path": str(folder), "message": "A note"}]
            return made, lambda: "A note" in git(folder, "log", "--all", "--format=%s"), "ommit"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_done_before_a_human_in_another_process_says_so(folder: Path, name: str, driver: Driver) -> None:
    step, done, word = work(name, folder)
    setting = Setting(name, folder, [step])
    with setting.server() as server:
        waiting = driver.invoke(setting.agent(server), "go").checkpoint
    [pending] = waiting.pending
    assert (pending.why, pending.tool_name, pending.tool.source) == ("approval", step[0], f"mcp:{name}")
    assert done is None or not done()
    found = elsewhere(setting, waiting, True)
    assert found["status"] == "completed"
    [[settlement, text]] = found["calls"]
    assert settlement == "completed" and word in text
    assert done is None or done()


@BOTH
def test_a_question_of_a_server_is_answered_by_a_human_in_another_process_after_it_was_started_again(
    folder: Path, transport: str, driver: Driver
) -> None:
    calls = [["trigger-elicitation-request", {}]]
    with everything(transport, folder, calls, elicitation=True, requires_approval=False) as (setting, restart):
        with setting.server() as server:
            waiting = driver.invoke(setting.agent(server), "go").checkpoint
        [pending] = waiting.pending
        assert pending.why == "question" and pending.args["payload"]["mcp_server"] == "everything"
        restart()
        [[settlement, text]] = elsewhere(setting, waiting, FORM)["calls"]
        assert settlement == "completed" and "Ada" in text and "Piano" in text


@BOTH
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_human_declines_or_cancels(folder: Path, transport: str, action: str) -> None:
    calls = [["trigger-elicitation-request", {}]]
    with everything(transport, folder, calls, elicitation=True, requires_approval=False) as (setting, _):
        with setting.server() as server:
            waiting = setting.agent(server).invoke("go").checkpoint
        [[settlement, text]] = elsewhere(setting, waiting, {"action": action})["calls"]
        assert settlement == "completed" and f'"action": "{action}"' in text


@BOTH
def test_nothing_is_asked_and_no_such_tool_is_there_unless_it_is_allowed(folder: Path, transport: str) -> None:
    with everything(transport, folder, []) as (setting, _), setting.server() as server:
        assert "trigger-elicitation-request" not in {tool.name for tool in server.tools()}


@BOTH
def test_a_call_under_way_is_cancelled_and_the_server_goes_on(folder: Path, transport: str) -> None:
    calls = [["trigger-long-running-operation", {"duration": 60, "steps": 2}]]
    with everything(transport, folder, calls, requires_approval=False) as (setting, _), setting.server() as server:
        agent, store = setting.agent(server), setting.store()

        def cancel() -> None:
            until(store.branches)
            time.sleep(2)  # it is certainly under way
            agent.cancel(store.branches()[0].run_id)

        thread = threading.Thread(target=cancel)
        thread.start()
        started = time.monotonic()
        result = agent.invoke("go")
        thread.join()
        assert result.status == "cancelled" and time.monotonic() - started < 50
        again = Setting("everything", folder, [["get-sum", {"a": 1, "b": 1}]], requires_approval=False)
        assert "2" in told(again.agent(server).invoke("go"))[0][1]


PNG = b"\x89PNG\r\n"


@BOTH
def test_the_model_sees_an_image(folder: Path, transport: str, driver: Driver) -> None:
    calls: list[Any] = [["get-tiny-image", {}]]
    with (
        everything(transport, folder, calls, requires_approval=False) as (setting, _),
        setting.server() as server,
    ):
        result = driver.invoke(setting.agent(server), "go")
    [message] = [each for each in result.messages if each.role == "tool"]
    before, image, after = message.content
    head, _, data = image["image_url"]["url"].partition(",")
    assert (message.settlement, head) == ("completed", "data:image/png;base64")
    assert b64decode(data).startswith(PNG)
    assert (before["text"], after["text"]) == ("Here's the image you requested:", "The image above is the MCP logo.")


def test_a_server_that_was_started_again_has_forgotten_the_session_and_runs_what_was_approved_once(
    folder: Path, remote: Remote, driver: Driver
) -> None:
    setting = Setting("everything", folder, [["get-sum", {"a": 19, "b": 23}]], remote.url)
    with setting.server() as server:
        agent = setting.agent(server)
        waiting = driver.invoke(agent, "go").checkpoint
        remote.restart()
        [[settlement, text]] = told(driver.resume(agent, waiting, approved=True))
        assert settlement == "completed" and "42" in text


def test_a_remote_server_that_is_gone_has_run_nothing(folder: Path, remote: Remote, driver: Driver) -> None:
    setting = Setting("everything", folder, [["get-sum", {"a": 19, "b": 23}]], remote.url)
    with setting.server() as server:
        agent = setting.agent(server)
        waiting = driver.invoke(agent, "go").checkpoint
        remote.stop()
        [[settlement, text]] = told(driver.resume(agent, waiting, approved=True))
        assert settlement == "failed" and text.endswith("Nothing was run.")


def test_an_address_is_shown_to_nobody(folder: Path, driver: Driver) -> None:
    """A server that was told so does not even offer to ask for one."""
    options = {"elicitation": True, "requires_approval": False}
    with Setting("everything", folder, [], **options).server() as server:
        assert "trigger-url-elicitation" not in {tool.name for tool in server.tools()}
