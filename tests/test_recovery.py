"""Processes that race, die and are picked up: laws 3, 4, 5 and 9, with real processes on a real file."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import crash_worker
import pytest
from crash_worker import NEVER, Bomb, carry_on, effects, make_agent

from phronomy import Approve, Checkpoint, Respond, RunBusy

HOUR = 3600.0


@pytest.fixture(scope="module")
def processes() -> Any:
    """Fresh processes that have phronomy imported: as good as new ones, and quick to start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["phronomy.testing", "phronomy.stores.sqlite"])
    return context


def run(processes: Any, target: Any, *args: Any) -> int:
    process = processes.Process(target=target, args=args)
    process.start()
    process.join(60)
    code: int = process.exitcode
    return code


def unkilled(processes: Any, folder: Path, is_async: bool) -> tuple[str, list[str]]:
    folder.mkdir()
    assert run(processes, carry_on, str(folder), is_async, False, NEVER, 0.0, False) == 0
    return (folder / "end").read_text(), sorted(line.split()[0] for line in effects(folder))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_killed_at_every_boundary_a_run_ends_as_the_unkilled_one(
    processes: Any, tmp_path: Path, is_async: bool, idempotent: bool
) -> None:
    """Every write is passed before and after, and every tool body before and after its effect; each is a place to die."""
    wanted, names = unkilled(processes, tmp_path / "unkilled", is_async)
    assert names == ["look", "mail", "note", "pay", "ship"]
    kills = 0
    for kill_at in range(1, NEVER):
        folder = tmp_path / f"killed-{kill_at}"
        folder.mkdir()
        one_by_one = kill_at % 2 == 0
        code = run(processes, carry_on, str(folder), is_async, idempotent, kill_at, 0.0, one_by_one)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        assert run(processes, carry_on, str(folder), is_async, idempotent, NEVER, HOUR, one_by_one) == 0
        ended = (folder / "end").read_text()
        assert ended == wanted, f"killed at {kill_at}"
        done = effects(folder)
        if idempotent:
            assert sorted({line.split()[0] for line in done}) == names
            assert len(set(done)) == 5, "an idempotent call ran again under another key"
        else:
            assert sorted(line.split()[0] for line in done) == names, f"killed at {kill_at}"
    assert kills > 20
    print(f"{kills} kills")


def suspended(folder: Path) -> Checkpoint:
    agent = make_agent(folder, is_async=False, idempotent=False, bomb=Bomb(NEVER))
    with agent.store:
        result = agent.invoke("go", thread_id="t")
        assert result.suspended
        return result.checkpoint


def test_a_run_suspends_in_one_process_and_is_resumed_by_id_in_another(processes: Any, tmp_path: Path) -> None:
    """Process A suspends and exits; process B loads by id and goes on. field failure 51"""
    verdicts = processes.Queue()
    checkpoint = suspended(tmp_path)
    assert (
        run(processes, crash_worker.decide, str(tmp_path), checkpoint.id, checkpoint.pending[0].id, None, verdicts) == 0
    )
    assert verdicts.get(timeout=30) == ("suspended", None)
    assert [line.split()[0] for line in effects(tmp_path)].count("pay") == 1


def test_of_32_processes_that_resume_one_checkpoint_one_wins(processes: Any, tmp_path: Path) -> None:
    """Law 3: the tool runs once, and everybody else is told who decided. field failure 46"""
    checkpoint = suspended(tmp_path)
    start, verdicts = processes.Event(), processes.Queue()
    args = (str(tmp_path), checkpoint.id, checkpoint.pending[0].id, start, verdicts)
    racers = [processes.Process(target=crash_worker.race, args=args) for _ in range(32)]
    for racer in racers:
        racer.start()
    start.set()
    said = [verdicts.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    won = [who for verdict, who, _ in said if verdict == "won"]
    assert len(won) == 1
    assert {who for verdict, who, _ in said if verdict == "lost"} == set(won)
    assert {progress for verdict, _, progress in said if verdict == "lost"} <= {"running", "suspended"}
    assert [line.split()[0] for line in effects(tmp_path)].count("pay") == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first-first", "second-first"])
def test_two_people_decide_two_pendings_of_one_checkpoint_from_two_processes(
    processes: Any, tmp_path: Path, order: tuple[int, int]
) -> None:
    """Law 3: the later decision is applied at the head of the branch."""
    checkpoint = two_pending(tmp_path)
    verdicts = processes.Queue()
    for place in order:
        pending_id = checkpoint.pending[place].id
        assert run(processes, decide_two, str(tmp_path), checkpoint.id, pending_id, None, verdicts) == 0
    assert [verdicts.get(timeout=30) for _ in order] == [("suspended", None), ("completed", "both done")]
    assert sorted(line.split()[0] for line in effects(tmp_path)) == ["pay", "wire"]


def test_two_people_decide_two_pendings_at_the_same_moment(processes: Any, tmp_path: Path) -> None:
    """Whoever comes second never waits: a decision that meets a running worker is carried out by that worker."""
    for round in range(8):
        folder = tmp_path / str(round)
        folder.mkdir()
        checkpoint = two_pending(folder)
        start, verdicts = processes.Event(), processes.Queue()
        people = [
            processes.Process(target=decide_two, args=(str(folder), checkpoint.id, item.id, start, verdicts))
            for item in checkpoint.pending
        ]
        for person in people:
            person.start()
        start.set()
        said = [verdicts.get(timeout=60) for _ in people]
        for person in people:
            person.join(60)
            assert person.exitcode == 0
        assert ("completed", "both done") in said
        assert {status for status, _ in said} <= {"completed", "suspended", "running"}
        assert sorted(line.split()[0] for line in effects(folder)) == ["pay", "wire"]


def two_agent(folder: Path) -> Any:
    from phronomy import Agent, SQLiteStore, ToolContext, tool
    from phronomy.testing import ScriptedModel, call

    def act(name: str, context: ToolContext[Any]) -> str:
        with (folder / "effects").open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        return f"{name} is done"

    @tool(requires_approval=True)
    def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        return act("pay", ctx)

    @tool(requires_approval=True)
    def wire(ctx: ToolContext[Any]) -> str:
        """Wire."""
        return act("wire", ctx)

    model = ScriptedModel.by_turn([[call("pay", {}), call("wire", {})], "both done"])
    return Agent(name="clerk", model=model, tools=[pay, wire], store=SQLiteStore(str(folder / "runs.db")))


def two_pending(folder: Path) -> Checkpoint:
    agent = two_agent(folder)
    with agent.store:
        checkpoint: Checkpoint = agent.invoke("go").checkpoint
    assert [item.tool_name for item in checkpoint.pending] == ["pay", "wire"]
    return checkpoint


def decide_two(folder: str, checkpoint_id: str, pending_id: str, start: Any, verdicts: Any) -> None:
    agent = two_agent(Path(folder))
    with agent.store:
        if start is not None:
            start.wait()
        result = agent.resume(checkpoint_id, decisions={pending_id: Approve()})
        verdicts.put((result.status, result.output))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_killed_after_the_claim_recover_asks_or_runs_again(
    processes: Any, tmp_path: Path, is_async: bool, idempotent: bool
) -> None:
    """Law 5: an unknown outcome is put to a human; an idempotent call runs again with the same key. field failure 50"""
    agent = make_agent(tmp_path, is_async=False, idempotent=idempotent, bomb=Bomb(NEVER))
    with agent.store:
        checkpoint = agent.invoke("go", thread_id="t").checkpoint
    before = effects(tmp_path)
    # the bomb of the second process goes off inside the body of `pay`, after its effect
    kill_at = next(
        n
        for n in range(1, 50)
        if _kills_inside_pay(processes, tmp_path, tmp_path / f"try-{n}", checkpoint, n, idempotent, is_async)
    )
    folder = tmp_path / f"try-{kill_at}"
    assert len(effects(folder)) == len(before) + 1

    busy = make_agent(folder, is_async=False, idempotent=idempotent, bomb=Bomb(NEVER))
    with busy.store, pytest.raises(RunBusy):
        busy.recover(checkpoint.run_id)

    agent = make_agent(folder, is_async=False, idempotent=idempotent, bomb=Bomb(NEVER), later=HOUR)
    with agent.store:
        result = agent.recover(checkpoint.run_id)
        assert result.suspended
        paid = [line for line in effects(folder) if line.startswith("pay ")]
        if idempotent:
            assert len(paid) == 2 and len(set(paid)) == 1
            assert [item.tool_name for item in result.checkpoint.pending] == ["ship"]
        else:
            assert len(paid) == 1
            assert [(item.tool_name, item.why) for item in result.checkpoint.pending] == [("pay", "outcome_unknown")]
            told = agent.resume(
                result.checkpoint, decisions={result.checkpoint.pending[0].id: Respond(content="it was paid")}
            )
            assert [item.tool_name for item in told.checkpoint.pending] == ["ship"]
            assert [line for line in effects(folder) if line.startswith("pay ")] == paid


def _kills_inside_pay(
    processes: Any, source: Path, folder: Path, checkpoint: Checkpoint, n: int, idempotent: bool, is_async: bool
) -> bool:
    import shutil

    folder.mkdir()
    for file in [*source.glob("runs.db*"), source / "effects"]:
        shutil.copy(file, folder / file.name)
    before = len(effects(folder))
    code = run(processes, approve, str(folder), checkpoint.id, n, idempotent, is_async)
    assert code == -signal.SIGKILL
    return len(effects(folder)) > before


def approve(folder: str, checkpoint_id: str, kill_at: int, idempotent: bool, is_async: bool) -> None:
    import asyncio

    agent = make_agent(Path(folder), is_async=is_async, idempotent=idempotent, bomb=Bomb(kill_at))
    with agent.store:
        if is_async:
            asyncio.run(agent.aresume(checkpoint_id, approved=True))
        else:
            agent.resume(checkpoint_id, approved=True)
