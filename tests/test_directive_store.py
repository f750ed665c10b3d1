"""What Directive's checkpoints and their store do, and get wrong, by the number of the behaviour (D31 to D42) or of the
acceptance scenario (DIR-A19, A20, A22): the same is had here, or better, on every store that one process can open.
"""

from __future__ import annotations

import ast
import json
import math
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, STORES, open_kind, outline

from phronomy import (
    Agent,
    AgentChanged,
    Checkpoint,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    MemoryStore,
    RunBusy,
    StillNeeded,
    Store,
    StoreError,
    create_checkpoint_id,
    tool,
    validate_checkpoint,
)
from phronomy.testing import ScriptedModel, call

pytestmark = [pytest.mark.unmeasured, pytest.mark.product]

ROWS = (*(f"D{number}" for number in range(31, 43)), "DIR-A19", "DIR-A20", "DIR-A22")
FILES = ("test_directive_store.py", "test_orchestrator.py")
"""Where the tests of the rows are: the state of a team (D34) is with those of the orchestrator."""

HOSTILE = ("__proto__", "constructor", "prototype", "toString", "valueOf", "hasOwnProperty")


def test_every_row_has_a_test() -> None:
    """A row is met by a test whose docstring begins with its number."""
    told: set[str] = set()
    for file in FILES:
        for node in ast.parse(Path(__file__).with_name(file).read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                told |= set(re.findall(r"\b(?:DIR-A|D)\d\d\b", (ast.get_docstring(node) or "").partition(":")[0]))
    assert told & set(ROWS) == set(ROWS)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_900_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_kind(request.param, tmp_path, clock=clock) as opened:
        yield opened


def clerk(store: Store | None, *tools: Any, **options: Any) -> Agent[Any, str]:
    """An agent that pays, once it may, and then is done."""

    @tool(requires_approval=True)
    def pay(n: int = 1) -> str:
        """Pay."""
        return f"paid {n}"

    model = options.pop("model", None) or ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    return Agent(name=options.pop("name", "clerk"), model=model, tools=tools or [pay], store=store, **options)


def waiting(store: Store, **options: Any) -> Checkpoint:
    """A run that waits for a human."""
    result = clerk(store).invoke("go", **options)
    assert result.suspended
    return result.checkpoint


def ended(store: Store, **options: Any) -> Checkpoint:
    """A run that has ended; it has two checkpoints."""
    return Agent(name="clerk", model=ScriptedModel(["done"]), store=store).invoke("go", **options).checkpoint


def everything(store: Store) -> list[Any]:
    """What the store holds: equal before and after means that nothing has happened."""
    branches = store.branches()
    return [branches, store.pending_rows(), *(store.lineage(branch_id=branch.id) for branch in branches)]


def ids(store: Store, **wanted: Any) -> list[str]:
    return [info.id for info in store.list(**wanted)]


def elsewhere(number: int, **fields: Any) -> Checkpoint:
    """A checkpoint that no run of this store has made."""
    id = f"ckpt_{number:024x}"
    return Checkpoint(
        id=id,
        branch_id=f"run_{number}",
        run_id=f"run_{number}",
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        agent={"name": "clerk"},  # type: ignore[arg-type]
        original_input="go",
        **fields,
    )


# Taking a checkpoint


def test_a_checkpoint_is_of_a_boundary_and_a_busy_run_is_neither_resumed_nor_taken_away(store: Store) -> None:
    """D31, DIR-A19: while a call runs there is the whole checkpoint before it, and a typed error for whoever wants the run;
    once it has ended both are had. Nothing has to be switched on for it."""
    seen: list[Checkpoint] = []

    @tool
    def work() -> str:
        """Work."""
        head = store.head(store.branches()[0].id)[1]
        for act in (lambda: agent.resume(head), lambda: agent.recover(head)):
            with pytest.raises(RunBusy) as busy:
                act()
            assert busy.value.run_id == head.run_id
        with pytest.raises(StillNeeded):
            store.delete(head.run_id)
        assert store.delete(head.run_id, force=True) is False
        assert store.clear() == store.prune() == 0
        seen.append(head)
        return "worked"

    agent = clerk(store, work, model=ScriptedModel([call("work"), "done"]))
    result = agent.invoke("go", thread_id="t")

    assert result.output == "done"
    assert len(seen) == 1
    assert (seen[0].status, seen[0].messages[-1].role) == ("running", "assistant")
    assert validate_checkpoint(seen[0]) == []
    assert store.load(result.checkpoint.id) == store.latest("t") == result.checkpoint
    assert store.delete(result.run_id) is True


def test_a_checkpoint_has_its_version_id_time_label_and_metadata(store: Store, clock: Clock) -> None:
    """D32: the fields of a checkpoint, as they were given and as they are stored."""
    found = waiting(store, thread_id="t", label="before the money", metadata={"ticket": [1, {"k": None}]})
    first = store.history(found.id)[0]
    assert (first.label, found.label) == ("before the money", None)
    assert (found.version, found.kind, found.status, found.agent.name) == (1, "agent", "suspended", "clerk")
    assert re.fullmatch(r"ckpt_[0-9a-f]{24}", found.id)
    assert re.fullmatch(r"ckpt_[0-9a-f]{24}", create_checkpoint_id())
    assert found.created_at == datetime.fromtimestamp(clock.now, UTC)
    assert found.created_at.utcoffset() is not None
    assert (found.metadata, found.original_input) == ({"ticket": [1, {"k": None}]}, "go")
    assert (found.parent_id, found.thread_id) == (first.id, "t")
    assert store.load(found.id) == found


def test_what_is_written_is_what_is_valid(store: Store) -> None:
    """D33: every checkpoint that a store gives is valid as it is dumped; a time that is a number is not."""
    end = clerk(store).resume(waiting(store), approved=True).checkpoint
    found = store.history(end.id)
    assert [checkpoint.status for checkpoint in found] == ["running", "suspended", "running", "running", "completed"]
    for checkpoint in found:
        text = checkpoint.model_dump_json()
        assert validate_checkpoint(text) == validate_checkpoint(json.loads(text)) == []
        data = json.loads(text)
        assert isinstance(data["created_at"], str)
        data["created_at"] = 1_900_000_000_000
        assert [problem.path for problem in validate_checkpoint(data)] == ["created_at"]


# Validation


def test_a_checkpoint_is_refused_with_reasons(store: Store) -> None:
    """D35: version, id, time, kinds of value, hostile keys: each with its place and reason, all at once."""
    data = json.loads(waiting(store).model_dump_json())
    wrong = {"version": "1", "id": "", "created_at": None, "kind": 3, "messages": {}, "agent": "clerk", "step": 1.5}
    found = {problem.path: problem.reason for problem in validate_checkpoint({**data, **wrong})}
    assert set(found) == set(wrong)
    assert all(found.values())
    for key in HOSTILE:
        assert [str(problem) for problem in validate_checkpoint({**data, key: 1})] == [f"{key}: is an unknown field"]
    for missing in ("id", "version", "created_at", "agent", "status", "pending", "digest"):
        left = {key: value for key, value in data.items() if key != missing}
        assert f"{missing}: is missing" in [str(problem) for problem in validate_checkpoint(left)]
    assert validate_checkpoint({**data, "version": 2})
    for value in (None, [], "", 1, "{}"):
        assert validate_checkpoint(value)


def test_validation_goes_all_the_way_down(store: Store) -> None:
    """D36: hostile keys and impossible values are found at any depth, and a kind that does not fit its status is, too."""
    data = json.loads(waiting(store).model_dump_json())
    for key in HOSTILE:
        for part in (data["calls"][0]["tool"], data["messages"][1]["tool_calls"][0], data["usage"], data["pending"][0]):
            part[key] = 1
            assert any(problem.path.endswith(f".{key}") for problem in validate_checkpoint(data))
            del part[key]
    assert validate_checkpoint(data) == []
    for changes in ({"status": "completed"}, {"ended": "completed"}, {"metadata": "{not json"}, {"calls": []}):
        assert validate_checkpoint({**data, **changes})


# Restoring


def test_a_checkpoint_of_another_agent_or_of_a_tool_that_is_gone_changes_nothing(store: Store) -> None:
    """D37: what does not fit is refused before anything is touched, not skipped, and not half way through."""

    @tool
    def other() -> str:
        """Other."""
        return "other"

    checkpoint = waiting(store)
    before = everything(store)
    for agent in (clerk(store, name="another"), clerk(store, other)):
        with pytest.raises(AgentChanged) as refused:
            agent.resume(checkpoint, approved=True)
        assert refused.value.changes
    assert everything(store) == before
    assert clerk(store).resume(checkpoint, approved=True).output == "done"


def test_going_back_leaves_the_present_as_it_is(store: Store) -> None:
    """D37: a restore is a fork: the old line stays whole while the new one runs, and both end."""
    agent = clerk(store)
    asked = waiting(store)
    end = agent.resume(asked, approved=True).checkpoint
    line = store.history(end.id)
    again = agent.fork(asked)
    other = agent.resume(again, approved=False).checkpoint
    assert store.history(end.id) == line
    assert {child.id for child in store.children(asked.id)} == {line[2].id, again.id}
    assert [branch.status for branch in store.branches(run_id=asked.run_id)] == ["completed", "completed"]
    assert outline(end) != outline(other)


def test_a_checkpoint_that_went_through_text_and_another_store_is_the_same_and_goes_on(store: Store) -> None:
    """D38: saved, loaded, moved: tokens, status, calls and messages are equal, and the run ends as it would have at home."""
    at_home = MemoryStore()
    asked = waiting(at_home, thread_id="t", metadata={"k": 5.0})
    moved = Checkpoint.model_validate_json(asked.model_dump_json())
    store.save(moved)
    assert store.load(asked.id) == asked
    assert store.load(asked.id).model_dump_json() == asked.model_dump_json()
    assert [item.approval for item in store.pending()] == list(asked.pending)
    here, there = clerk(store).resume(asked.id, approved=True), clerk(at_home).resume(asked.id, approved=True)
    assert outline(here) == outline(there)
    assert (here.status, here.usage, here.checkpoint.decisions[0].kind) == (there.status, there.usage, "approve")


# The contract of a store


def test_the_contract_of_a_store(store: Store, clock: Clock) -> None:
    """D39: save, load, list in the order of saving, delete, clear, prune."""
    with pytest.raises(CheckpointNotFound) as missing:
        store.load("ckpt_none")
    assert missing.value.id == "ckpt_none"
    assert store.delete("ckpt_none") is False
    assert (ids(store), store.clear(), store.prune(), store.latest("t")) == ([], 0, 0, None)

    one, two, three = elsewhere(3, ended="completed"), elsewhere(1, ended="completed", label="x"), elsewhere(2)
    for checkpoint in (one, two, three):
        store.save(checkpoint)
    assert [(info.id, info.label, info.created_at) for info in store.list()] == [
        (one.id, None, one.created_at),
        (two.id, "x", two.created_at),
        (three.id, None, three.created_at),
    ]
    assert [store.load(id) for id in ids(store)] == [one, two, three]
    assert (ids(store, label="x"), ids(store, labeled=True), ids(store, run_id="run_2")) == (
        [two.id],
        [two.id],
        [three.id],
    )

    assert store.delete(one.id) is True
    assert store.delete(one.id) is False
    with pytest.raises(CheckpointNotFound):
        store.load(one.id)
    assert store.prune(keep_labeled=True) == 0
    assert store.clear() == 1
    assert ids(store) == [three.id]


def test_a_page_of_the_list_goes_on_where_the_last_one_ended(store: Store) -> None:
    """D39: the list of many is read by pages, and is the same as the list of all."""
    for number in range(7):
        store.save(elsewhere(number, ended="completed"))
    found, after = [], None
    while True:
        page = store.list(limit=3, after=after)
        found += [info.id for info in page]
        after = page.next
        if after is None:
            break
        store.save(elsewhere(0, ended="completed"))
    assert found == ids(store) == [elsewhere(number).id for number in range(7)]


# Bounds and retention


@pytest.mark.parametrize("bound", [0, -1, 1.5, math.nan, math.inf, True, "3"])
def test_a_bound_that_is_none_is_refused_when_the_store_is_made(bound: Any) -> None:
    """D40: a maximum below one, or that is no whole number, is a typed error."""
    with pytest.raises(StoreError, match="max_runs"):
        MemoryStore(max_runs=bound)


def test_beyond_the_bound_the_oldest_go_first() -> None:
    """D40: first in, first out."""
    store = MemoryStore(max_runs=3)
    for number in range(5):
        store.save(elsewhere(number, ended="completed"))
    assert ids(store) == [elsewhere(number).id for number in (2, 3, 4)]


def test_without_a_bound_nothing_goes(clock: Clock) -> None:
    """D40: no retention means for ever."""
    store = MemoryStore(clock=clock, max_runs=None)
    for number in range(150):
        store.save(elsewhere(number, ended="completed"))
    clock.now += 1e9
    assert clerk(store).recover_all() == []
    assert len(ids(store)) == 150


def test_what_waits_is_never_evicted_and_runs_go_whole() -> None:
    """D40: a bound takes nothing that somebody may still decide, and never half a run."""
    store = MemoryStore(max_runs=1)
    asked = waiting(store)
    last = [ended(store) for _ in range(3)][-1]
    assert store.load(asked.id) == asked
    assert {info.run_id for info in store.list()} <= {asked.run_id, last.run_id}
    assert clerk(store).resume(asked, approved=True).output == "done"


def test_labeled_ones_are_spared_from_eviction_where_that_is_asked_for() -> None:
    """D40: with `keep_labeled` only those without a label go, even if the bound cannot be held; without it a label is no help."""
    for keep, left in ((True, [0, 2, 4, 6]), (False, [5, 6])):
        store = MemoryStore(max_runs=2, keep_labeled=keep)
        for number in range(7):
            store.save(elsewhere(number, ended="completed", label=None if number % 2 else f"label {number}"))
        assert ids(store) == [elsewhere(number).id for number in left]


def test_prune_takes_the_old_unlabeled_ones_and_says_how_many(store: Store, clock: Clock) -> None:
    """D40, DIR-A22: retention of one second, labels preserved: of an old labeled, an old unlabeled and a fresh one, one goes."""
    store.save(elsewhere(1, ended="completed", label="keep"))
    store.save(elsewhere(2, ended="completed"))
    clock.now += 5
    store.save(elsewhere(3, ended="completed"))
    assert store.prune(older_than=1, keep_labeled=True) == 1
    assert ids(store) == [elsewhere(1).id, elsewhere(3).id]
    assert store.prune(older_than=1, keep_labeled=True) == 0
    assert store.prune(older_than=1, keep_labeled=False) == 1
    assert ids(store) == [elsewhere(3).id]


@pytest.mark.parametrize("age", [-1, math.nan, math.inf])
def test_an_age_that_is_none_is_refused(store: Store, age: float) -> None:
    """D40: a retention that is no number of seconds is a typed error, and takes nothing."""
    store.save(elsewhere(1, ended="completed"))
    with pytest.raises(StoreError, match="older_than"):
        store.prune(older_than=age)
    assert len(ids(store)) == 1


INVALID: dict[str, Any] = {
    "text": elsewhere(1).model_dump_json(),
    "a dict": elsewhere(1).model_dump(),
    "None": None,
    "a wrong type": elsewhere(1).evolve(step="x"),
    "no id": elsewhere(1).evolve(id=""),
    "no message": elsewhere(1).evolve(messages=("x",)),
    "nothing in it": Checkpoint.model_construct(id="ckpt_1"),
    "calls that are none": elsewhere(1).evolve(calls="x"),
}


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID.keys())
def test_an_invalid_checkpoint_is_not_saved(store: Store, value: Any) -> None:
    """D40: what could not be loaded again is refused when it is saved, and leaves nothing behind."""
    store.save(elsewhere(9))
    before = everything(store)
    with pytest.raises(CheckpointError):
        store.save(value)
    assert everything(store) == before


def test_saves_at_the_same_time_lose_nothing(store: Store) -> None:
    """D40: eight threads, each with checkpoints of its own and one that all of them save."""
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def save(worker: int) -> None:
        try:
            start.wait(PATIENCE)
            for number in range(10):
                store.save(elsewhere(100 * worker + number, ended="completed"))
            store.save(elsewhere(10_000, ended="completed"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert sorted(ids(store)) == sorted(
        elsewhere(number).id for number in (*(100 * worker + each for worker in range(8) for each in range(10)), 10_000)
    )


def test_saving_again_at_the_bound_evicts_nothing_and_changes_nothing() -> None:
    """D41: an id that is there already is no new one."""
    store = MemoryStore(max_runs=3)
    saved = [elsewhere(number, ended="completed") for number in range(3)]
    for checkpoint in saved:
        store.save(checkpoint)
    before = everything(store)
    for checkpoint in (*saved, *reversed(saved)):
        store.save(checkpoint)
    assert everything(store) == before
    assert ids(store) == [checkpoint.id for checkpoint in saved]


def test_saving_another_checkpoint_under_an_id_that_is_there_keeps_the_first(store: Store) -> None:
    """D41: a checkpoint is immutable, in the store as well: history is not rewritten under its id."""
    store.save(elsewhere(1, label="first"))
    store.save(elsewhere(2))
    before = everything(store)
    with pytest.raises(CheckpointEdited, match=elsewhere(1).id):
        store.save(elsewhere(1, label="second"))
    assert everything(store) == before
    assert store.load(elsewhere(1).id).label == "first"


def test_what_the_caller_does_to_its_copy_is_not_in_the_store(store: Store) -> None:
    """D42, DIR-A20: load gives the bytes that were saved, whatever became of what was passed in or handed out."""
    metadata = {"list": [1, 2], "inner": {"k": 5.0}}
    checkpoint = elsewhere(1, metadata=metadata, label="x")
    text = checkpoint.model_dump_json()
    store.save(checkpoint)
    for mine in (checkpoint, store.load(checkpoint.id)):
        metadata["list"].append(3)  # type: ignore[attr-defined]
        mine.metadata["list"].append(3)
        mine.metadata["inner"].clear()
        with pytest.raises((ValueError, AttributeError), match="frozen"):
            mine.label = "y"  # type: ignore[misc]
        with pytest.raises((ValueError, AttributeError), match="frozen"):
            mine.metadata = {}  # type: ignore[misc]
        mine.__dict__["label"] = "forced"  # no one can be kept from this in Python; the store has its own
        assert store.load(checkpoint.id).model_dump_json() == text
        assert store.history(checkpoint.id)[0].model_dump_json() == text
