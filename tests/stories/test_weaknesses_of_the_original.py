"""Stories of what the Ruby original gets wrong (RBY B1 to B10), none of which must be found here.

Every story is told by both drivers, on both stores.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, STORES, Driver, decide_first, open_kind, rows
from refund_desk import REFUND, Desk

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    Reject,
    SQLiteStore,
    Tool,
    tool,
)
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_kind(request.param, tmp_path) as opened:
        yield opened


def test_a_second_resume_runs_nothing(driver: Driver, store: Store) -> None:
    """RBY B1, RBY R12: the second resume is a typed error that tells who decided what, and what came of it."""
    desk = Desk(driver, store, [REFUND, "done"])
    suspended = driver.invoke(desk.agent, "go")
    driver.resume(desk.agent, suspended.checkpoint, approved=True, by="ann")
    before = rows(store)

    for options in ({"approved": True}, {"approved": False}, {}):
        for given in (suspended.checkpoint, suspended.checkpoint.id):
            with pytest.raises(CheckpointAlreadyResumed) as caught:
                driver.resume(desk.agent, given, **options)
            assert (caught.value.checkpoint_id, caught.value.progress) == (suspended.checkpoint.id, "ended")
            assert caught.value.result.output == "done"
            if options:
                assert caught.value.decision is not None
                assert caught.value.decision.by is not None
                assert (caught.value.decision.kind, caught.value.decision.by.id) == ("approve", "ann")

    assert (rows(store), desk.done) == (before, [("refund", 1042, 5.0)])


def test_parallel_calls_each_get_a_result(driver: Driver, store: Store) -> None:
    """RBY B3: siblings that need no approval run at once and are kept; every call has one result before the model is asked.

    The scripted model refuses any other history, as providers do.
    """
    replies = [[call("refund", {"order": 1}), call("look", {"order": 2}), call("refund", {"order": 3})], "done"]
    desk = Desk(driver, store, replies)

    result = driver.invoke(desk.agent, "go")
    assert desk.done == [("look", 2)]
    result = driver.resume(desk.agent, result.checkpoint, decisions=decide_first(result.checkpoint, Reject()))
    assert (result.suspended, len(desk.model.requests)) == (True, 1)
    result = driver.resume(desk.agent, result.checkpoint, approved=True)

    assert (result.output, desk.done) == ("done", [("look", 2), ("refund", 3, 5.0)])
    assert [message.tool_call_id for message in result.messages[2:5]] == ["call_1", "call_2", "call_3"]


class Wipe(Tool):
    """A tool of the class style."""

    name = "wipe"
    requires_approval = True

    def execute(self, path: str = "/") -> str:
        return Wiper().wipe(path)


class Wiper:
    """An object whose method is a tool."""

    done: list[str] = []

    def wipe(self, path: str = "/") -> str:
        """Wipe a path."""
        self.done.append(path)
        return "wiped"


def test_no_way_to_give_a_tool_goes_around_the_gate(driver: Driver, store: Store) -> None:
    """RBY B4: instances, classes, decorated functions, bound methods, tools from elsewhere and fallbacks are all gated."""
    Wiper.done.clear()

    def failing(path: str = "/") -> str:
        """Fail."""
        raise ValueError("no")

    def plain(path: str = "/") -> str:
        """Wipe a path."""
        return Wiper().wipe(path)

    gate = tool(requires_approval=True, name="wipe")
    ways: dict[str, Any] = {
        "class": Wipe,
        "instance": Wipe(),
        "function": gate(plain),
        "method": gate(Wiper().wipe),
        "elsewhere": tool(requires_approval=True, name="wipe", source="mcp:files")(plain),
        "predicate": tool(requires_approval=lambda args: True, name="wipe")(plain),
        "predicate-that-raises": tool(requires_approval=lambda args: args["none"], name="wipe")(plain),
        "predicate-that-says-0": tool(requires_approval=lambda args: 0, name="wipe")(plain),
        "fallback": tool(name="wipe", fallback=[Wipe()])(failing),
    }
    for name, way in ways.items():
        agent = Agent(name="desk", model=ScriptedModel([call("wipe"), "done"]), tools=[way], store=store)
        result = driver.invoke(agent, "go")
        assert (result.suspended, Wiper.done) == (True, []), name
        assert driver.resume(agent, result.checkpoint, approved=False).output == "done"
        assert Wiper.done == [], name


def test_what_was_shown_is_what_runs_whoever_changes_what(driver: Driver, store: Store) -> None:
    """RBY B5, RBY R3: nothing that anybody reads from a checkpoint, or gave to the run, can change what runs."""
    history: list[Any] = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "hello"}]
    given: dict[str, Any] = {"order": 1042, "list": [1]}
    metadata: dict[str, Any] = {"tags": ["a"]}
    desk = Desk(driver, store, [REFUND, "done"])
    result = driver.invoke(desk.agent, given, messages=history, metadata=metadata)
    checkpoint = result.checkpoint
    untouched = copy.deepcopy(checkpoint.model_dump_json())

    history.clear()
    given["order"] = 0
    metadata["tags"].append("b")
    args = checkpoint.pending_tool_args
    assert args is not None
    args["amount"] = 1_000_000.0
    checkpoint.pending[0].args["amount"] = 1_000_000.0
    checkpoint.metadata["tags"] = []
    checkpoint.original_input["order"] = 0
    for name, value in (("step", 9), ("calls", ()), ("messages", ()), ("metadata", {}), ("thread_id", "x"), ("new", 1)):
        with pytest.raises((AttributeError, ValueError, TypeError)):
            setattr(checkpoint, name, value)
    with pytest.raises((AttributeError, ValueError, TypeError)):
        checkpoint.pending[0].args = {"order": 0}
    with pytest.raises((AttributeError, ValueError, TypeError)):
        checkpoint.calls[0].status = "ready"
    with pytest.raises((AttributeError, TypeError)):
        result.checkpoint = None  # type: ignore[misc, assignment]

    assert checkpoint.model_dump_json() == untouched
    assert driver.resume(desk.agent, checkpoint, approved=True).output == "done"
    assert desk.done == [("refund", 1042, 5.0)]
    assert checkpoint.model_dump_json() == untouched


def test_the_record_says_what_is_needed_to_decide_and_to_audit(driver: Driver, store: Store) -> None:
    """RBY B6, RBY R11: arguments can be edited; the record has a version, ids, times, a digest, who decided, and why."""
    desk = Desk(driver, store, [[call("refund", {"order": 1}), call("refund", {"order": 2})], "done"])
    first = driver.invoke(desk.agent, "go").checkpoint
    item, other = first.pending
    data = json.loads(first.model_dump_json())
    assert (data["version"], data["agent"]["name"], data["id"]) == (1, "desk", first.id)
    assert item.requested_at.utcoffset() is not None
    assert (len(data["digest"]), len(item.digest)) == (64, 64)

    decisions: dict[str, Any] = {
        item.id: Approve(args={"order": 1, "amount": 2.5}),
        other.id: Reject(reason="not this one"),
    }
    result = driver.resume(desk.agent, first, decisions=decisions, by="ann", channel="mail")

    assert (result.output, desk.done) == ("done", [("refund", 1, 2.5)])
    edited, rejected = result.checkpoint.decisions
    assert (edited.kind, edited.args, edited.digest) == ("approve", {"order": 1, "amount": 2.5}, item.digest)
    assert (rejected.kind, rejected.reason) == ("reject", "not this one")
    for decision in (edited, rejected):
        assert decision.by is not None
        assert (decision.by.id, decision.channel) == ("ann", "mail")
        assert decision.at >= item.requested_at


def test_no_exception_carries_the_suspension_so_none_can_be_swallowed(driver: Driver, store: Store) -> None:
    """RBY B7, RBY R10: a gated tool with retries and fallbacks is asked about once; waiting is a value, not an error."""
    calls: list[str] = []

    def careless() -> str:
        """Try everything, catch everything."""
        calls.append("careless")
        try:
            raise ConnectionError("once")
        except Exception:
            return "caught"

    gated = tool(
        requires_approval=True, idempotent=True, retries=3, retry_wait=0, fallback=[Wipe()], on_failure="human"
    )
    agent = Agent(
        name="desk",
        model=ScriptedModel([call("careless"), "done"]),
        tools=[gated(driver.function(careless))],
        store=store,
    )

    result = driver.invoke(agent, "go")
    assert (result.suspended, calls, len(store.pending())) == (True, [], 1)
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.output, calls) == ("done", ["careless"])


def test_a_human_rejection_is_not_retried(driver: Driver, store: Store) -> None:
    """RBY B7: retries and fallbacks follow a failure, never a rejection: one request, and nothing runs."""
    gated = tool(requires_approval=True, name="wipe", idempotent=True, retries=3, fallback=[Wipe()])
    Wiper.done.clear()
    agent = Agent(name="desk", model=ScriptedModel([call("wipe"), "done"]), tools=[gated(Wiper().wipe)], store=store)

    result = driver.resume(agent, driver.invoke(agent, "go").checkpoint, approved=False)

    assert (result.output, Wiper.done, len(result.checkpoint.decisions)) == ("done", [], 1)


def test_the_thread_goes_on_from_the_resumed_run(driver: Driver, store: Store) -> None:
    """RBY B8, RBY R9: the thread id is used: the next run of the thread begins where the resumed one ended."""
    desk = Desk(driver, store, [REFUND, "It is refunded.", "You are welcome."])
    suspended = driver.invoke(desk.agent, "Refund order 1042", thread_id="chat-7")
    resumed = driver.resume(desk.agent, suspended.checkpoint, approved=True)
    assert resumed.thread_id == "chat-7"
    assert store.latest("chat-7") == resumed.checkpoint

    result = driver.invoke(desk.agent, "Thanks", thread_id="chat-7")

    assert result.checkpoint.parent_id is not None
    assert resumed.checkpoint.id in [each.id for each in store.history(result.checkpoint.id)]
    assert [message.text for message in desk.model.requests[2].messages] == [
        "Refund order 1042",
        "I will refund it.",
        "refunded 1042",
        "It is refunded.",
        "Thanks",
    ]


def test_a_crash_after_the_approval_was_taken_loses_nothing(driver: Driver, tmp_path: Path) -> None:
    """RBY B9: the approval is neither lost nor used twice; another process over the same store sees how it stands."""
    done: list[str] = []

    def wire(amount: int) -> str:
        """Wire money."""
        done.append(f"wire {amount}")
        if len(done) == 1:
            raise KeyboardInterrupt
        return "wired"

    def process() -> Agent[Any, str]:
        """The agent as a new process would have it: everything new but the file."""
        wire_tool = tool(requires_approval=True)(driver.function(wire))
        model = ScriptedModel.by_turn([call("wire", {"amount": 7}), "done"])
        return Agent(name="desk", model=model, tools=[wire_tool], store=SQLiteStore(tmp_path / "runs.db"))

    suspended = driver.invoke(process(), "go")
    with pytest.raises(KeyboardInterrupt):
        driver.resume(process(), suspended.checkpoint, approved=True, by="ann")

    with pytest.raises(CheckpointAlreadyResumed) as caught:
        driver.resume(process(), suspended.checkpoint, approved=True)
    assert caught.value.decision is not None
    assert caught.value.decision.by is not None
    assert (caught.value.decision.by.id, caught.value.progress, done) == ("ann", "unknown", ["wire 7"])

    result = driver.recover(process(), suspended.run_id)
    assert [(item.tool_name, item.why) for item in result.checkpoint.pending] == [("wire", "outcome_unknown")]
    assert done == ["wire 7"]
    result = driver.resume(process(), result.checkpoint, approved=True)
    assert (result.output, done) == ("done", ["wire 7", "wire 7"])


def test_a_second_process_over_one_store_cannot_run_it_again(driver: Driver, tmp_path: Path) -> None:
    """RBY B9: what was consumed is known to all that share the store, not to one instance."""
    first = Desk(driver, SQLiteStore(tmp_path / "runs.db"), [REFUND, "done"])
    second = Desk(driver, SQLiteStore(tmp_path / "runs.db"), ["never"])
    suspended = driver.invoke(first.agent, "go")
    text = suspended.checkpoint.model_dump_json()

    driver.resume(first.agent, Checkpoint.model_validate_json(text), approved=True)
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(second.agent, Checkpoint.model_validate_json(text), approved=True)

    assert (first.done, second.done) == ([("refund", 1042, 5.0)], [])
