"""How a worker is: its health, over HTTP too, and what it counts. Nobody who asks can keep others from asking."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from drivers import PATIENCE
from places import Place
from ports import HeldPort
from spans import Desk as Meters
from spans import everything
from test_workers import NEVER, Desk, decide, working

from phronomy import Agent, Reject
from phronomy.errors import AgentChanged, ModelError, StoreError
from phronomy.testing import ScriptedModel
from phronomy.workers import Health, SetAside, Worker, endpoint
from phronomy.workers import worker as module
from phronomy.workers.endpoint import HealthEndpoint

WELL = Health(status="ok", is_ok=True, last_look=0.12345, at_work=1, carried_out=2, failures=3)


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


class Asked:
    """An endpoint of a worker that is as the test says."""

    def __init__(self, port: int = 0) -> None:
        self.health = WELL
        self.endpoint = HealthEndpoint(lambda: self.health, "127.0.0.1", port)

    def get(self, path: str = "/health", method: str = "GET") -> tuple[int, Any]:
        """The status and what is told."""
        answer = httpx.request(method, self.endpoint.url.replace("/health", path), trust_env=False, timeout=PATIENCE)
        assert answer.headers["connection"] == "close"
        return answer.status_code, answer.json()

    def send(self, data: bytes) -> bytes:
        """What comes back until the connection is closed."""
        with self.connect() as client:
            client.sendall(data)
            return b"".join(iter(lambda: client.recv(4096), b""))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.endpoint.port), timeout=PATIENCE)


@pytest.fixture
def asked() -> Iterator[Asked]:
    found = Asked()
    try:
        yield found
    finally:
        found.endpoint.close()


# Health


@pytest.mark.few(1)
def test_a_worker_that_looks_once_is_well_afterwards(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (pending_id,) = desk.asked(desk.agent(), 1)
    agent = desk.agent()
    decide(agent.store, pending_id)
    worker = Worker(agent)
    assert (worker.health().status, worker.health().is_ok) == ("starting", True)
    asyncio.run(worker.once())
    health = worker.health()
    assert (health.status, health.is_ok, health.carried_out, health.at_work) == ("ok", True, 1, 0)
    assert health.last_look is not None and health.last_look >= 0

    def faulty(wanted: Any) -> Any:
        raise StoreError("the database cannot be reached")

    monkeypatch.setattr(agent.store, "select_branches", faulty)
    with pytest.raises(StoreError):
        asyncio.run(worker.once())
    assert (worker.health().status, worker.health().is_ok) == ("failing", False)


@pytest.mark.few(1)
def test_a_worker_whose_look_never_ends_is_not_well(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status says what was, and how long ago that was tells the rest."""
    monkeypatch.setattr(module, "_SLOW", 0.0)
    agent = desk.agent()
    select, goes_on, stuck = agent.store.select_branches, threading.Event(), threading.Event()

    def slow(wanted: Any) -> Any:
        stuck.set()
        assert goes_on.wait(PATIENCE)
        return select(wanted)

    worker = Worker(agent, poll=0.01)
    with working(worker):
        while worker.health().status != "ok":
            pass
        monkeypatch.setattr(agent.store, "select_branches", slow)
        assert stuck.wait(PATIENCE)
        while worker.health().is_ok:
            pass
        assert worker.health().status == "ok"
        goes_on.set()
        while not worker.health().is_ok:
            pass
    assert (worker.health().status, worker.health().is_ok) == ("stopped", False)


@pytest.mark.few(1)
def test_the_log_says_once_that_the_store_is_away_and_that_it_is_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = desk.agent()
    select, tries = agent.store.select_branches, iter(range(5))

    def faulty(wanted: Any) -> Any:
        if next(tries, None) is not None:
            raise StoreError("password=hunter2 is wrong")
        return select(wanted)

    monkeypatch.setattr(agent.store, "select_branches", faulty)
    worker = Worker(agent, poll=0.01)
    with working(worker):
        while worker.health().status != "ok":
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "a worker cannot look into its store (StoreError); it tries again until it can",
        "a worker can look into its store again",
    ]


# Over HTTP


def test_the_endpoint_tells_how_the_worker_is_and_no_text_of_errors(asked: Asked) -> None:
    assert asked.get() == (
        200,
        {
            "status": "ok",
            "is_ok": True,
            "last_look": 0.123,
            "at_work": 1,
            "carried_out": 2,
            "failures": 3,
            "set_aside": [],
        },
    )
    aside = SetAside(run_id="run_1", branch_id="run_1", agent="desk", tries=5, error="password=hunter2")
    asked.health = replace(WELL, status="failing", is_ok=False, last_look=None, set_aside=(aside,))
    status, told = asked.get("/health?verbose=1")
    assert (status, told["status"], told["last_look"]) == (503, "failing", None)
    assert told["set_aside"] == [{"run_id": "run_1", "branch_id": "run_1", "agent": "desk", "tries": 5}]
    assert "hunter2" not in json.dumps(told)


def test_the_endpoint_answers_nothing_else(asked: Asked) -> None:
    for path in ("/", "/metrics", "/health/", "/Health", "/%68ealth"):
        assert asked.get(path) == (404, {"error": "Not Found"}), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert asked.get(method=method) == (405, {"error": "Method Not Allowed"}), method
    for line in (
        b"GET /health",
        b"GET /health SPDY/3",
        b"",
        b"\x00\xff",
        b"GET  /health HTTP/1.1",
        b"GET",
        b"\x16\x03\x01",
    ):
        assert asked.send(line + b"\r\n\r\n").startswith(b"HTTP/1.1 400 Bad Request\r\n"), line
    assert asked.send(b"GET /health HTTP/1.1\r\nX: " + b"x" * 20_000).startswith(b"HTTP/1.1 431 ")
    assert asked.get()[0] == 200


def test_clients_that_say_nothing_keep_nobody_from_asking(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there is room for: the oldest goes first, and each after a while."""
    monkeypatch.setattr(endpoint, "_SECONDS", 10 * PATIENCE)
    silent = [asked.connect() for _ in range(endpoint._CLIENTS + 20)]
    for each in silent[:40]:
        each.sendall(b"GET /health HTTP/1.1\r\n")
    assert asked.get()[0] == 200
    assert silent[0].recv(1) == b"", "it was sent away"
    for each in silent:
        each.close()
    assert asked.get()[0] == 200
    monkeypatch.setattr(endpoint, "_SECONDS", 0.05)
    with asked.connect() as slow:
        slow.sendall(b"GET /health")
        assert slow.recv(1) == b""
    assert asked.get()[0] == 200


def test_an_endpoint_that_is_closed_is_gone_and_its_port_is_free() -> None:
    with HeldPort() as port:
        asked = Asked(port.number)
        with pytest.raises(OSError, match="in use"):
            HealthEndpoint(lambda: WELL, "127.0.0.1", port.number)
        with asked.connect():
            asked.endpoint.close()
        asked.endpoint.close()
        with pytest.raises(ConnectionError):
            asked.connect()
        again = HealthEndpoint(lambda: WELL, "127.0.0.1", port.number)
        again.close()


def test_a_client_that_comes_while_it_is_closed_leaves_no_connection_open() -> None:
    """About every third comes at the wrong moment: what is left open would be told as soon as it is collected."""
    for _ in range(60):
        endpoint = HealthEndpoint(lambda: WELL, "127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", endpoint.port)):
            endpoint.close()
    gc.collect()


@pytest.mark.few(1)
def test_a_worker_whose_loop_is_stuck_is_asked_all_the_same(desk: Desk) -> None:
    entered, goes_on = threading.Event(), threading.Event()
    worker = Worker(desk.agent(), poll=NEVER)

    async def main() -> None:
        task = asyncio.ensure_future(worker.arun())
        await asyncio.sleep(0)
        entered.set()
        assert goes_on.wait(PATIENCE)
        worker.stop()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert entered.wait(PATIENCE)
    found = HealthEndpoint(worker.health, "127.0.0.1", 0)
    try:
        assert httpx.get(found.url, trust_env=False, timeout=PATIENCE).json()["is_ok"]
    finally:
        found.close()
        goes_on.set()
        thread.join(PATIENCE)


# What is counted


def test_a_worker_counts_for_the_telemetry_of_its_agents(desk: Desk) -> None:
    meters, now = Meters(), 1_800_000_000.0
    away = True

    def reply(request: Any) -> Any:
        said = request.messages[-1]
        return ModelError("token=hunter2") if away and said.text == "paid 3" else desk.reply(request)

    store = desk.place.open(clock=lambda: now)
    first, second, third = desk.asked(desk.agent(store=store), 1, 2, 3)
    agent = desk.agent(model=ScriptedModel(reply), store=store)
    agent.hooks = [meters.telemetry()]
    plain = desk.agent("plain", store=store)
    desk.asked(plain, 4)
    for each, answer in ((first, None), (second, Reject(then="end")), (third, None)):
        decide(store, each, answer)
    now += 7.0
    worker = Worker([agent, plain], tries=1)
    asyncio.run(worker.once())
    counted = {name: points for name, points in meters.metrics().items() if name.startswith("phronomy.worker.")}
    assert counted == {
        "phronomy.worker.runs": {("desk", "completed"): 1, ("desk", "rejected"): 1},
        "phronomy.worker.failures": {("ModelError", "desk"): 1},
        "phronomy.worker.set_aside": {("desk",): 1},
        "phronomy.worker.start_delay": {("desk",): (3, 21.0)},
    }
    away = False
    with working(worker):
        while worker.health().set_aside:
            worker.wake()
            worker._tried.clear()  # as if the five minutes were over
    counted = meters.metrics()
    assert counted["phronomy.worker.set_aside"] == {("desk",): 0}
    assert counted["phronomy.worker.runs"] == {("desk", "completed"): 2, ("desk", "rejected"): 1}
    assert counted["phronomy.worker.start_delay"] == {("desk",): (3, 21.0)}, "a second try is no start"
    assert counted["phronomy.worker.backlog"][("desk",)] in (0, 1)
    told = everything(meters)
    assert "hunter2" not in told
    of_workers = "".join(each for each in told.split('"name": ') if each.startswith('"phronomy.worker.'))
    assert "run_" not in of_workers and "pend_" not in of_workers


@pytest.mark.few(1)
def test_a_decision_that_is_tried_again_has_begun_once(desk: Desk) -> None:
    """An agent that has changed writes nothing, so the decision stands there as it did at the first try."""
    meters = Meters()
    (pending_id,) = desk.asked(desk.agent(), 1)
    run_id = decide(desk.place.open(), pending_id)
    bare = Agent(name="desk", model=ScriptedModel(["Done."]), store=desk.place.open(), hooks=[meters.telemetry()])
    worker = Worker(bare, tries=5)
    for _ in range(2):
        (done,) = asyncio.run(worker.carry_out(run_id))
        assert isinstance(done.error, AgentChanged)
    counted = meters.metrics()
    assert counted["phronomy.worker.failures"] == {("AgentChanged", "desk"): 2}
    assert counted["phronomy.worker.start_delay"][("desk",)][0] == 1


@pytest.mark.few(1)
def test_the_backlog_is_what_the_last_look_found_and_nobody_drives(desk: Desk) -> None:
    meters = Meters()
    pending_ids = desk.asked(desk.agent(), 1, 2, 3)
    agent = desk.agent()
    agent.hooks = [meters.telemetry()]
    for each in pending_ids:
        decide(agent.store, each)
    desk.go_on.clear()
    worker = Worker(agent, poll=0.01, concurrency=1)
    with working(worker):
        assert desk.entered.wait(PATIENCE)
        while meters.metrics()["phronomy.worker.backlog"] != {("desk",): 2}:
            pass
        desk.go_on.set()
        while meters.metrics()["phronomy.worker.backlog"] != {("desk",): 0}:
            pass
    assert desk.paid == {1: 1, 2: 1, 3: 1}


def test_without_telemetry_opentelemetry_is_not_loaded() -> None:
    code = (
        "import sys; from phronomy import Agent, MemoryStore\n"
        "from phronomy.workers import Worker; from phronomy.testing import ScriptedModel\n"
        "Worker(Agent(name='desk', model=ScriptedModel(['Done.']), store=MemoryStore()))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
