"""What is different between two checkpoints, and that saying so gives nothing away."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from drivers import decide_first

from phronomy import Agent, Checkpoint, CheckpointDiff, ConfigurationError, Message, Reject, Usage, tool
from phronomy.records.calls import Added
from phronomy.records.diff import PLACE, diff
from phronomy.testing import ScriptedModel, call

CANARY = "sk-canary-31337"


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a call took is in a checkpoint, and another on each machine."""
    monkeypatch.setattr("phronomy.engine.clock.since", lambda started: 0)


@tool(requires_approval=True)
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n} {CANARY}"


@tool
def look() -> str:
    """Look."""
    return "seen"


def an_agent() -> Agent[Any, str]:
    script = [[call("look"), call("pay", {"n": 1}), call("pay", {"n": 2})], f"done {CANARY}"]
    return Agent(name="clerk", model=ScriptedModel.by_turn(script), tools=[look, pay])


def checkpoint(**fields: Any) -> Checkpoint:
    usual = {
        **{"id": "ckpt_1", "branch_id": "run_1", "run_id": "run_1", "created_at": datetime(2030, 1, 1, tzinfo=UTC)},
        **{"agent": {"name": "clerk"}, "original_input": "go"},
    }
    return Checkpoint(**(usual | fields))


def said(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="user", content=text) for text in texts)


def summary(found: CheckpointDiff) -> str:
    return str(found).partition(": ")[2]


def test_a_checkpoint_does_not_differ_from_itself_or_its_copy() -> None:
    end = an_agent().invoke("go").checkpoint
    copy = Checkpoint.model_validate_json(end.model_dump_json())
    for other in (end, copy):
        found = diff(end, other)
        assert not found
        assert found == CheckpointDiff(before_id=end.id, after_id=end.id, status=("suspended", "suspended"))
        assert found.lines() == [f"{end.id} -> {end.id}: no difference"]


def test_a_child_differs_from_its_parent_by_what_it_adds_and_the_other_way_round_by_what_it_lacks() -> None:
    agent = an_agent()
    asked = agent.invoke("go").checkpoint
    paid = agent.resume(asked, decisions=decide_first(asked), by="ann").checkpoint
    end = agent.resume(paid, approved=False).checkpoint
    first, second = asked.pending

    found = diff(asked, paid)
    assert summary(found) == "1 call changed, 1 pending approval removed, 1 decision added, +2 steps"
    assert found.lines()[1:] == [
        "  call 1.1 (pay): pending -> settled",
        f"  pending {first.id} (pay) removed",
        f"  decision on {first.id} added: approve",
    ]
    assert found.differs == ("step", "calls", "decisions")
    assert [change.decision.by.id for change in found.decisions if change.decision.by] == ["ann"]

    found = diff(paid, end)
    assert found.status == ("suspended", "completed")
    assert found.lines()[1:] == [
        "  message 2 added (tool)",
        "  message 3 added (tool)",
        "  message 4 added (tool)",
        "  message 5 added (assistant)",
        "  call 1.0 (look): settled -> none",
        "  call 1.1 (pay): settled -> none",
        "  call 1.2 (pay): pending -> none",
        f"  pending {second.id} (pay) removed",
        f"  decision on {second.id} added: reject",
    ]
    assert [change.after for change in found.messages] == list(end.messages[2:])

    back = diff(end, paid)
    assert [(change.change, change.at, change.before) for change in back.messages] == [
        ("removed", at, end.messages[at]) for at in range(2, 6)
    ]
    assert (back.steps, back.turns, back.usage.requests) == (-found.steps, -1, -1)
    assert [change.change for change in back.decisions] == ["removed"]
    assert [(change.before, change.after) for change in back.calls] == [
        (None, "settled"),
        (None, "settled"),
        (None, "pending"),
    ]


def test_forks_differ_by_what_was_decided_in_each() -> None:
    agent = an_agent()
    asked = agent.invoke("go").checkpoint
    one, other = agent.fork(asked), agent.fork(asked, label="careful")
    assert (
        summary(diff(asked, one)) == "2 calls changed, 2 pending approvals added, 2 pending approvals removed, +1 step"
    )
    assert summary(diff(asked, other)).endswith("+1 step, also differs: label")
    for _ in range(2):
        one = agent.resume(one, decisions=decide_first(one)).checkpoint
        other = agent.resume(other, decisions=decide_first(other, Reject(reason="no"))).checkpoint
    found = diff(one, other)
    assert [(change.change, change.at) for change in found.messages] == [("changed", 3), ("changed", 4)]
    assert [(change.before.settlement, change.after.settlement) for change in found.messages] == [  # type: ignore[union-attr]
        ("completed", "rejected"),
        ("completed", "rejected"),
    ]
    assert [(change.change, change.decision.kind) for change in found.decisions] == [
        ("removed", "approve"),
        ("removed", "approve"),
        ("added", "reject"),
        ("added", "reject"),
    ]


def test_runs_that_have_nothing_to_do_with_each_other_share_no_calls() -> None:
    one, other = (an_agent().invoke("go").checkpoint for _ in range(2))
    assert [each.id for each in one.calls] == [each.id for each in other.calls]
    found = diff(one, other)
    assert [(change.change, change.id) for change in found.calls] == [
        (change, id) for change in ("removed", "added") for id in ("1.0", "1.1", "1.2")
    ]
    assert [change.change for change in found.pending] == ["removed", "removed", "added", "added"]
    assert found.messages == ()


def test_messages_are_compared_by_position() -> None:
    before = checkpoint(messages=said("a", "b", "c"))
    after = checkpoint(messages=said("a", "x", "c", "d"))
    assert [(change.change, change.at) for change in diff(before, after).messages] == [("changed", 1), ("added", 3)]
    assert [(change.change, change.at) for change in diff(after, before).messages] == [("changed", 1), ("removed", 3)]


def test_values_are_told_by_their_path_whatever_their_keys_are() -> None:
    before = checkpoint(metadata={"a/b": {"~": [1, 2, 3]}, "same": 5.0, "gone": None, "n": 1, "t": True})
    after = checkpoint(metadata={"t": 1, "a/b": {"~": [1, 9]}, "same": 5.0, "n": 1.0, "new": {"k": None}})
    assert [(each.change, each.path, each.before, each.after) for each in diff(before, after).metadata] == [
        ("changed", "/a~1b/~0/1", 2, 9),
        ("removed", "/a~1b/~0/2", 3, None),
        ("removed", "/gone", None, None),
        ("changed", "/n", 1, 1.0),
        ("changed", "/t", True, 1),
        ("added", "/new", None, {"k": None}),
    ]
    assert diff(before, after).differs == ("metadata",)
    whole = diff(checkpoint(kind="graph", state={"x": 1}), checkpoint(kind="graph", state=[1])).state
    assert [(each.change, each.path, each.before, each.after) for each in whole] == [("changed", "", {"x": 1}, [1])]


@pytest.mark.parametrize("field", ["metadata", "state", "original_input", "output"])
def test_the_order_of_keys_is_no_difference(field: str) -> None:
    one, other = (checkpoint(**{field: value}) for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert one.json_text(field) != other.json_text(field)
    assert not diff(one, other)


OTHER: dict[str, Any] = {
    "kind": "graph",
    "step": 3,
    "label": "x",
    "metadata": {"k": 1},
    "agent": {"name": "another"},
    "original_input": "stop",
    "new_input": "stop",
    "messages": said("a"),
    "handoffs": ({"source": "ann", "target": "bob", "call": "1.0", "said": 3},),
    "turn": 2,
    "called": 1,
    "refused": 1,
    "calls": ({"id": "1.0", "call_id": "c", "name": "pay"},),
    "decisions": ({"pending_id": "p", "digest": "d", "kind": "reject", "at": datetime(2030, 1, 1, tzinfo=UTC)},),
    "blocked": ("d",),
    "ending": {"status": "cancelled", "at": datetime(2030, 1, 1, tzinfo=UTC)},
    "rejecting": True,
    "skipping": True,
    "passed": ("post_run@1",),
    "added": (Added(message=Message(role="user", content="more"), at=datetime(2030, 1, 1, tzinfo=UTC)),),
    "unread": (Added(message=Message(role="user", content="less"), at=datetime(2030, 1, 1, tzinfo=UTC)),),
    "unguarded": "output",
    "refusal": {"stage": "input", "guardrail": "g", "code": "c", "message": "m"},
    "ended": "completed",
    "output": "done",
    "usage": Usage(requests=1, cost=0.5),
    "elapsed": 7,
    "state": {"k": 1},
    "requester": {"id": "rita"},
    "requesters": ("ann",),
    "known": (("slack:U1", "ann"),),
    "scopes": ("invoices:read",),
    "events": ({"id": "evt", "name": "payment", "by": {"id": "bank"}, "at": datetime(2030, 1, 1, tzinfo=UTC)},),
    "journal": ({"type": "output_refused", "error": "e"},),
    "nested": (checkpoint(path="1.0"),),
}
"""Another value for each field."""


def test_every_field_is_compared_or_says_where_the_checkpoint_stands() -> None:
    assert {*OTHER, *PLACE} == set(Checkpoint.model_fields)
    assert not set(OTHER) & set(PLACE)
    moved = {name: "other" for name in PLACE if name != "version"} | {"created_at": datetime(2031, 1, 1, tzinfo=UTC)}
    assert not diff(checkpoint(), checkpoint(**moved))


@pytest.mark.parametrize("field", OTHER)
def test_a_field_that_differs_is_named_and_told(field: str) -> None:
    found = diff(checkpoint(), checkpoint(**{field: OTHER[field]}))
    assert found
    assert found.differs == (field,)
    assert "no difference" not in str(found)
    assert summary(found)
    assert CheckpointDiff.model_validate_json(found.model_dump_json()) == found


def test_usage_is_told_field_by_field_and_a_cost_only_where_both_are_known() -> None:
    cheap = checkpoint(usage=Usage(requests=1, input_tokens=1000, output_tokens=20, cost=0.25))
    dear = checkpoint(usage=Usage(requests=3, input_tokens=5000, output_tokens=50, cost=1.0), elapsed=1500, turn=2)
    found = diff(cheap, dear)
    assert (found.usage.requests, found.usage.input_tokens, found.usage.output_tokens) == (2, 4000, 30)
    assert (found.usage.cost, found.usage.total_tokens) == (0.75, 4030)
    assert summary(found) == ("+2 turns, +2 requests, +4,000 input tokens, +30 output tokens, +1,500 ms, +0.7500 USD")
    assert diff(dear, cheap).usage.cost == -0.75
    assert diff(checkpoint(), cheap).usage.cost == 0.25
    unknown = checkpoint(usage=Usage(requests=1, input_tokens=1000, output_tokens=20))
    assert diff(cheap, unknown).usage.cost is None
    assert summary(diff(cheap, unknown)) == "also differs: usage"


def test_runs_inside_a_run_are_compared_by_their_path() -> None:
    inner = checkpoint(id="ckpt_2", path="1.0", messages=said("a"))
    later = checkpoint(id="ckpt_3", path="1.0", messages=said("a", "b"))
    before, after = checkpoint(nested=(inner,)), checkpoint(nested=(later, checkpoint(id="ckpt_4", path="1.1")))
    found = diff(before, after)
    assert [(part.change, part.path) for part in found.nested] == [("changed", "1.0"), ("added", "1.1")]
    assert found.nested[0].diff == diff(inner, later)
    assert found.lines()[1:] == [
        "  nested run 1.0 changed",
        "    ckpt_2 -> ckpt_3: 1 message added",
        "      message 1 added (user)",
        "  nested run 1.1 added",
    ]
    assert [part.change for part in diff(after, before).nested] == ["changed", "removed"]
    assert not diff(before, checkpoint(nested=(inner.evolve(id="ckpt_9"),)))


def test_nothing_that_was_said_is_in_the_text_of_a_difference() -> None:
    agent = an_agent()
    asked = agent.invoke(CANARY, metadata={CANARY: CANARY}).checkpoint
    start = agent.store.history(asked.id)[0]
    other = Agent(model=ScriptedModel([CANARY])).invoke("x", metadata={CANARY: [CANARY]}, label=CANARY).checkpoint
    end = agent.approve_all(asked).checkpoint
    for one, two in ((start, end), (end, start), (end, other), (other, start)):
        found = diff(one, two)
        assert found
        assert CANARY in found.model_dump_json()
        parts = [*found.messages, *found.metadata, *found.calls, *found.pending, *found.decisions]
        assert CANARY not in "".join([str(found), repr(found), *found.lines(), *map(repr, parts)])


def test_an_id_cannot_write_on_the_terminal() -> None:
    found = diff(checkpoint(id="a\x1b[2J\n"), checkpoint(id="b" * 500, messages=said("x")))
    assert str(found) == rf"a\x1b[2J\n -> {'b' * 80}...: 1 message added"


def test_a_difference_is_frozen_and_survives_as_json() -> None:
    agent = an_agent()
    asked = agent.invoke("go", metadata={"k": 5.0}).checkpoint
    end = agent.approve_all(asked).checkpoint
    found = diff(asked, end)
    assert CheckpointDiff.model_validate_json(found.model_dump_json()) == found
    with pytest.raises(ValueError, match="frozen"):
        found.steps = 4  # type: ignore[misc]


def test_ids_are_no_checkpoints() -> None:
    for pair in (("ckpt_1", checkpoint()), (checkpoint(), "ckpt_1"), (None, None)):
        with pytest.raises(ConfigurationError, match=r"store\.load"):
            diff(*pair)  # type: ignore[arg-type]


def test_each_message_is_compared_once_and_shared_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    equal = Message.__eq__

    def counted(one: Message, other: object) -> bool:
        compared.append(one)
        return equal(one, other)

    texts = [f"message {index}" for index in range(500)]
    before = checkpoint(messages=said(*texts))
    child = before.evolve(messages=(*before.messages, *said("new")))
    copy = checkpoint(messages=said(*texts[:499], "other"))
    monkeypatch.setattr(Message, "__eq__", counted)

    assert [change.at for change in diff(before, child).messages] == [500]
    assert compared == []
    assert [change.at for change in diff(before, copy).messages] == [499]
    assert len(compared) == 500
