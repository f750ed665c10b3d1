"""Stories of a run that suspends for approval and is resumed.

They follow the acceptance scenarios of the Ruby original (RBY-A01 to RBY-A14) and its behaviours (RBY R1 to R14). Every
story is told by both drivers, on both stores.
"""

from __future__ import annotations

import ast
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from drivers import DRIVERS, STORES, Driver, decide_first, open_kind, outline, rows
from pydantic import BaseModel
from refund_desk import REFUND, Desk

import phronomy
from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    PromptTemplate,
    Reject,
    SQLiteStore,
    Tool,
    UnknownPending,
    tool,
)
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say

pytestmark = pytest.mark.unmeasured


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_kind(request.param, tmp_path) as opened:
        yield opened


# The scenarios

SCENARIOS = tuple(f"RBY-A{number:02}" for number in (1, 2, 3, 4, 6, 7, 10, 12, 13, 14))


def test_every_scenario_has_a_story() -> None:
    """Each scenario that a single agent can meet is named by a story that both drivers tell."""
    told: set[str] = set()
    for node in ast.parse(Path(__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found = re.findall(r"RBY-A\d\d", ast.get_docstring(node) or "")
            assert not found or "driver" in {argument.arg for argument in node.args.args}
            told.update(found)
    assert sorted(told) == sorted(SCENARIOS)


def test_a_gated_tool_suspends_the_run(driver: Driver, store: Store) -> None:
    """RBY-A01, RBY R1, R2: suspended, no output, and the checkpoint names the tool, the arguments and the call."""
    # Given a gated tool and no handler
    desk = Desk(driver, store, [REFUND, "done"])
    # When it is invoked
    result = driver.invoke(desk.agent, "Refund order 1042", thread_id="chat-7")
    # Then the run is suspended, the checkpoint names what waits, and the body has not run
    assert (result.suspended, result.status, result.output) == (True, "suspended", None)
    checkpoint = result.checkpoint
    assert checkpoint.thread_id == "chat-7"
    assert checkpoint.original_input == "Refund order 1042"
    assert checkpoint.pending_tool_name == "refund"
    assert checkpoint.pending_tool_args == {"order": 1042, "amount": 5.0}
    assert checkpoint.pending_tool_call_id == "call_9"
    assert outline(result) == ["user: Refund order 1042", "assistant: I will refund it. [refund]"]
    assert result.messages == checkpoint.messages
    assert desk.done == []


def test_a_suspended_run_without_a_thread_can_be_resumed(driver: Driver, store: Store) -> None:
    """RBY-A01, RBY R2, R13: the thread may be missing, and the input may be a mapping."""
    desk = Desk(driver, store, [REFUND, "done"])
    result = driver.invoke(desk.agent, {"order": 1042, "why": {"code": 3}})
    assert (result.thread_id, result.checkpoint.original_input) == (None, {"order": 1042, "why": {"code": 3}})
    text = result.checkpoint.model_dump_json()
    assert driver.resume(desk.agent, Checkpoint.model_validate_json(text), approved=True).output == "done"


def test_an_approved_call_runs_once_and_the_model_goes_on(driver: Driver, store: Store) -> None:
    """RBY-A02, RBY R4: the tool runs once with the stored arguments; its message carries the stored call id."""
    desk = Desk(driver, store, [REFUND, "It is refunded."])
    suspended = driver.invoke(desk.agent, "Refund order 1042")

    result = driver.resume(desk.agent, suspended.checkpoint, approved=True)

    assert desk.done == [("refund", 1042, 5.0)]
    assert (result.suspended, result.status, result.output) == (False, "completed", "It is refunded.")
    told = result.messages[2]
    assert (told.role, told.tool_call_id, told.text) == ("tool", "call_9", "refunded 1042")
    assert [message.text for message in desk.model.requests[1].messages] == [
        "Refund order 1042",
        "I will refund it.",
        "refunded 1042",
    ]
    assert result.usage.requests == 2
    assert result.run_id == suspended.run_id


@pytest.mark.parametrize("mode", ["continue", "end"])
def test_a_rejected_call_never_runs(driver: Driver, store: Store, mode: Any) -> None:
    """RBY-A03, RBY R4, R17: the model reads the rejection and goes on, or the run ends as rejected: the caller's choice."""
    desk = Desk(driver, store, [REFUND, "Understood."])
    suspended = driver.invoke(desk.agent, "Refund order 1042")
    (item,) = suspended.checkpoint.pending

    result = driver.resume(desk.agent, suspended.checkpoint, decisions={item.id: Reject(reason="too much", then=mode)})

    assert desk.done == []
    assert outline(result)[2] == "tool (rejected): A human rejected this call, so it was not run. Reason: too much"
    if mode == "continue":
        assert (result.status, result.output, len(desk.model.requests)) == ("completed", "Understood.", 2)
    else:
        assert (result.status, result.output, len(desk.model.requests)) == ("rejected", None, 1)


@pytest.mark.parametrize(("answer", "ran"), [(True, True), (False, False), (None, False)])
def test_a_synchronous_handler_decides_without_suspending(
    driver: Driver, store: Store, answer: bool | None, ran: bool
) -> None:
    """RBY-A04, RBY R6, R7: the handler hears the tool's name and arguments, and nothing of ordinary tools."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def handler(name: str, args: dict[str, Any]) -> bool | None:
        asked.append((name, args))
        return answer

    desk = Desk(driver, store, [[call("look", {"order": 1}), call("refund", {"order": 2})], "done"])
    assert desk.agent.on_approval_required(driver.function(handler)) is desk.agent

    result = driver.invoke(desk.agent, "go")

    assert (result.suspended, result.output) == (False, "done")
    assert asked == [("refund", {"order": 2, "amount": 5.0})]
    assert (("refund", 2, 5.0) in desk.done) == ran
    assert result.messages[3].settlement == ("completed" if ran else "rejected")


class Support(Agent[Any, str]):
    """The agent of the next story, in the Ruby manner: as a class."""

    instructions = PromptTemplate("You serve {customer}, who is {tier}.")
    model = ScriptedModel.by_turn([call("wipe", {"path": "/tmp/x"}), "done"])

    class Wipe(Tool):
        name = "wipe"
        requires_approval = True

        def execute(self, path: str) -> str:
            """Wipe a path."""
            return f"wiped {path}"

    tools = [Wipe]


@pytest.mark.few(1)
def test_instructions_are_the_same_in_a_new_process(driver: Driver, tmp_path: Path) -> None:
    """RBY-A06, RBY R5: instructions that depend on the input are made from the original input, in a new process too."""
    # Given a run of an agent whose instructions depend on the input, suspended here
    model = ScriptedModel([call("wipe", {"path": "/tmp/x"})])
    with SQLiteStore(tmp_path / "runs.db") as store:
        result = driver.invoke(Support(store=store, model=model), {"customer": "Ann", "tier": "gold"})
    assert model.requests[0].system == "You serve Ann, who is gold."
    # When it is resumed in a new process, by id from the store, or from the text alone
    for given in (result.checkpoint.model_dump_json(), result.checkpoint.id):
        root = str(Path(phronomy.__file__).parent.parent)
        path = os.pathsep.join([root, str(Path(__file__).parent.parent)])
        process = subprocess.run(
            [sys.executable, "-W", "error", __file__, str(tmp_path), driver.name, given],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
        assert process.stderr == ""
        # Then the model sees the same system prompt, and the run ends
        assert json.loads(process.stdout) == ["You serve Ann, who is gold.", "wiped /tmp/x", "done"]


def resume_elsewhere(folder: Path, driver: Driver, given: str) -> None:
    """Resume what another process has suspended, and say what the model saw. Text is resumed without the store."""
    model = ScriptedModel(["done"])
    agent = (
        Support(model=model) if given.startswith("{") else Support(model=model, store=SQLiteStore(folder / "runs.db"))
    )
    checkpoint = Checkpoint.model_validate_json(given) if given.startswith("{") else given
    result = driver.resume(agent, checkpoint, approved=True)
    print(json.dumps([model.requests[0].system, model.requests[0].messages[-1].text, result.output]))


def test_a_second_gated_tool_suspends_again_with_a_new_linked_checkpoint(driver: Driver, store: Store) -> None:
    """RBY-A07, RBY R14, B2: the gate is armed on resume as well; the new checkpoint goes back to the first."""
    desk = Desk(driver, store, [REFUND, call("refund", {"order": 2}), call("refund", {"order": 3}), "done"])
    results = [driver.invoke(desk.agent, "go", thread_id="t")]
    for number in (2, 3):
        results.append(driver.resume(desk.agent, results[-1].checkpoint, approved=True))
        assert results[-1].suspended
        assert results[-1].checkpoint.pending_tool_args == {"order": number, "amount": 5.0}
        assert len(desk.done) == number - 1
    result = driver.resume(desk.agent, results[-1].checkpoint, approved=True)

    assert (result.output, [each[1] for each in desk.done]) == ("done", [1042, 2, 3])
    assert len({each.checkpoint.id for each in results}) == 3
    assert len({each.run_id for each in results}) == 1
    chain = [each.id for each in store.history(result.checkpoint.id)]
    places = [chain.index(each.checkpoint.id) for each in results]
    assert places == sorted(places)
    assert [each.parent_id for each in store.history(result.checkpoint.id)] == [None, *chain[:-1]]


NESTED: dict[str, Any] = {
    "1": {"true": [True, 1, 1.0, None, "1"], "null": {"": "empty key"}},
    "ключ": {"€": "ü", "a.b": {"c d": [[[{}]]]}},
    "z": 1,
    "a": 12345678901234567890,
}


def test_a_json_round_trip_changes_nothing(driver: Driver, store: Store) -> None:
    """RBY-A10, RBY R13, B10: every field is equal after dump and load, nested calls, key order and key types included."""
    got: list[Any] = []

    def save(data: dict[str, Any], ratio: float, count: int, tags: dict[int, str]) -> str:
        """Save data."""
        got.append((data, ratio, count, tags))
        return "saved"

    replies = [
        call("look", {"order": 1}),
        say(
            "Now.",
            call("save", {"data": NESTED, "ratio": 5, "count": 2, "tags": {"7": "x"}}),
            call("look", {"order": 2}),
            provider={"thinking": [{"signature": "AbC=="}]},
        ),
        "done",
    ]
    desk = Desk(driver, store, replies)
    gated = tool(requires_approval=True)(driver.function(save))
    agent = Agent(name="desk", model=desk.model, tools=[gated, desk.look], store=store)

    first = driver.invoke(agent, NESTED, thread_id="t", metadata=NESTED, label="nested").checkpoint
    text = first.model_dump_json()
    again = Checkpoint.model_validate_json(json.dumps(json.loads(text), indent=4))

    assert again == first
    assert again.model_dump_json() == text
    for name in type(first).model_fields:
        assert getattr(again, name) == getattr(first, name), name
    said = [
        name
        for name in type(first).model_fields
        if name not in ("added", "unread", "events", "requester", "requesters", "known", "scopes")
    ]  # absent where there is none
    assert list(json.loads(text)) == [*said, "status", "pending", "digest"]
    args = again.pending[0].args
    assert json.dumps(args["data"]) == json.dumps(NESTED)
    assert json.dumps(again.original_input) == json.dumps(again.metadata) == json.dumps(NESTED)
    assert args["tags"] == {"7": "x"}

    assert driver.resume(agent, again, approved=True).output == "done"
    ((data, ratio, count, tags),) = got
    assert json.dumps(data) == json.dumps(NESTED)
    assert (repr(ratio), repr(count), tags) == ("5.0", "2", {7: "x"})


class Item(BaseModel):
    """An item of an order, with keys that JSON has no type for."""

    by_day: dict[datetime.date, list[dict[int, float]]]
    owner: UUID


def test_keys_and_values_keep_their_types_at_any_depth(driver: Driver, store: Store) -> None:
    """RBY-A10, B10: keys that are no text come back as what they were, however deep, by text, by id, and after an edit."""
    got: list[Any] = []

    def save(items: list[Item], tree: dict[int, dict[bool, dict[int, tuple[int, str]]]]) -> str:
        """Save items."""
        got.append((items, tree))
        return "saved"

    owner, day = UUID(int=7), datetime.date(2026, 2, 28)
    wanted = ([Item(by_day={day: [{1: 2.0, 10: 0.5}]}, owner=owner)], {3: {True: {-1: (4, "x")}, False: {}}})
    plain: dict[str, Any] = {
        "items": [{"by_day": {"2026-02-28": [{"1": 2, "10": 0.5}]}, "owner": str(owner)}],
        "tree": {"3": {"true": {"-1": [4, "x"]}, "false": {}}},
    }
    for edited in (False, True):
        model = ScriptedModel([call("save", {"items": [], "tree": {}} if edited else plain), "done"])
        agent = Agent(
            name="desk", model=model, tools=[tool(requires_approval=True)(driver.function(save))], store=store
        )
        checkpoint = driver.invoke(agent, "go").checkpoint
        (item,) = checkpoint.pending
        again = Checkpoint.model_validate_json(json.dumps(json.loads(checkpoint.model_dump_json()), indent=1))
        assert again == checkpoint == store.load(checkpoint.id)
        answer = Approve(args=plain) if edited else Approve()
        result = driver.resume(agent, again if edited else checkpoint.id, decisions={item.id: answer})
        assert result.output == "done"

    assert got == [wanted, wanted]
    for items, tree in got:
        assert [type(key) for key in items[0].by_day] == [datetime.date]
        assert [type(key) for key in items[0].by_day[day][0]] == [int, int]
        assert [type(key) for key in tree[3]] == [bool, bool]
        assert repr(tree[3][True]) == "{-1: (4, 'x')}"


def test_a_tool_that_no_longer_exists_consumes_nothing(driver: Driver, store: Store) -> None:
    """RBY-A12: a typed error before anything is consumed; the agent that has the tool resumes."""
    desk = Desk(driver, store, [REFUND, "done"])
    suspended = driver.invoke(desk.agent, "go")
    bare = Desk(driver, store, ["stolen"], tools=[desk.look])
    before = rows(store)

    with pytest.raises(AgentChanged, match="tool 'refund' of a pending call is gone"):
        driver.resume(bare.agent, suspended.checkpoint, approved=True)

    assert rows(store) == before
    assert driver.resume(desk.agent, suspended.checkpoint, approved=True).output == "done"


def test_a_stale_id_or_a_wrong_agent_fails_alone(driver: Driver, store: Store) -> None:
    """RBY-A13, RBY B8: only that approval fails; the run remains suspended, and can be resumed."""
    desk = Desk(driver, store, [[call("refund", {"order": 1}), call("refund", {"order": 2})], "done"])
    first = driver.invoke(desk.agent, "go", thread_id="t")
    second = driver.resume(desk.agent, first.checkpoint, decisions=decide_first(first.checkpoint))
    stale, waiting = first.checkpoint.pending[0].id, second.checkpoint.pending[0].id
    before = rows(store)

    with pytest.raises(UnknownPending):
        driver.resume(desk.agent, second.checkpoint, decisions={stale: Approve()})
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(desk.agent, first.checkpoint, decisions={stale: Approve()})
    stranger = Agent(name="stranger", model=ScriptedModel(["stolen"]), tools=[desk.refund], store=store)
    with pytest.raises(AgentChanged):
        driver.resume(stranger, second.checkpoint, approved=True)

    assert (rows(store), desk.done) == (before, [("refund", 1, 5.0)])
    assert [item.approval.id for item in store.pending(thread_id="t")] == [waiting]
    assert driver.resume(desk.agent, second.checkpoint, approved=True).output == "done"
    assert desk.done == [("refund", 1, 5.0), ("refund", 2, 5.0)]


def test_a_policy_allows_asks_or_rejects(driver: Driver, store: Store) -> None:
    """RBY-A14, RBY R15: a policy runs a call, suspends for it, or ends the run as rejected without suspending."""
    done: list[int] = []

    def policy(args: Any) -> bool | Reject:
        if args["amount"] < 10:
            return False
        return True if args["amount"] < 100 else Reject(reason="over the limit", then="end")

    def pay(amount: int) -> str:
        """Pay."""
        done.append(amount)
        return "paid"

    def agent(amount: int) -> Agent[Any, str]:
        pay_tool = tool(requires_approval=driver.function(policy))(driver.function(pay))
        return Agent(
            name="desk", model=ScriptedModel([call("pay", {"amount": amount}), "done"]), tools=[pay_tool], store=store
        )

    allowed = driver.invoke(agent(5), "go")
    assert (allowed.status, allowed.output, done) == ("completed", "done", [5])

    asked = driver.invoke(agent(50), "go")
    assert (asked.status, done) == ("suspended", [5])

    rejected = driver.invoke(agent(500), "go")
    assert (rejected.status, rejected.output, done) == ("rejected", None, [5])
    assert (
        outline(rejected)[2]
        == "tool (rejected): A policy rejected this call, so it was not run. Reason: over the limit"
    )
    assert rejected.checkpoint.decisions == ()


def test_a_policy_that_rejects_may_let_the_model_go_on_or_block_the_call(driver: Driver, store: Store) -> None:
    """RBY-A14: a policy's Reject says what follows, as a human's does; its siblings are not touched by "continue"."""
    script = [[call("wipe", {"path": "/"}), call("look", {"order": 1})], call("wipe", {"path": "/tmp"}), "done"]
    asked: list[str] = []

    def policy(args: Any) -> Reject:
        asked.append(args["path"])
        return Reject(reason="never that")

    def wipe(path: str) -> str:
        """Wipe."""
        raise AssertionError("it was rejected")

    desk = Desk(driver, store, script)
    wipe_tool = tool(requires_approval=driver.function(policy))(driver.function(wipe))
    agent = Agent(name="desk", model=desk.model, tools=[wipe_tool, desk.look], store=store)

    result = driver.invoke(agent, "go")

    assert (result.status, result.output, desk.done, asked) == ("completed", "done", [("look", 1)], ["/", "/tmp"])
    assert [message.settlement for message in result.messages if message.role == "tool"] == [
        "rejected",
        "completed",
        "rejected",
    ]


# Carried as text


def test_a_run_is_carried_as_text_from_worker_to_worker(driver: Driver) -> None:
    """RBY-A06, RBY-A07, RBY R14: without a store, two workers take turns on one run; each stop comes back to either."""
    replies = [call("refund", {"order": n}) for n in (1, 2, 3, 4)]
    workers = [Desk(driver, None, [], model=ScriptedModel.by_turn([*replies, "done"])) for _ in range(2)]

    result = driver.invoke(workers[0].agent, "go", thread_id="t")
    for turn in range(4):
        text = result.checkpoint.model_dump_json()
        result = driver.resume(workers[(turn + 1) % 2].agent, Checkpoint.model_validate_json(text), approved=True)

    assert result.output == "done"
    assert workers[1].done == [("refund", 1, 5.0), ("refund", 3, 5.0)]
    assert workers[0].done == [("refund", 2, 5.0), ("refund", 4, 5.0)]


if __name__ == "__main__":
    resume_elsewhere(Path(sys.argv[1]), {str(each): each for each in DRIVERS}[sys.argv[2]], sys.argv[3])
