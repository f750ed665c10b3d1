"""Which request an id means, where a model has given the id of a request to a call of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from drivers import Driver

from phronomy import Agent, Approve, Checkpoint, InvalidDecision, MemoryStore, Message, ToolCall, tool
from phronomy.models.base import ModelRequest
from phronomy.records.calls import Call
from phronomy.records.checkpoint import AgentRef
from phronomy.records.decisions import ToolIdentity, call_digest
from phronomy.runs.finding.decisions import Choice, answers
from phronomy.testing import ScriptedModel, call

AT = datetime(2026, 3, 1, tzinfo=UTC)
PAY = ToolIdentity(name="pay", schema_hash="0", gate="always")


def waiting(place: int, call_id: str, pending_id: str) -> Call:
    asked = {"pending_id": pending_id, "requested_at": AT, "why": "approval", "status": "pending"}
    return Call(id=f"1.{place}", call_id=call_id, name="pay", tool=PAY, args={}, digest=call_digest(PAY, "{}"), **asked)  # type: ignore[arg-type]


def asked(*calls: Call) -> Checkpoint:
    said = tuple(ToolCall(id=each.call_id, name="pay", arguments="{}") for each in calls)
    known = {"id": "ckpt_1", "run_id": "run_1", "branch_id": "run_1", "created_at": AT, "agent": AgentRef(name="desk")}
    said_by_model = Message(role="assistant", content="", tool_calls=said)
    return Checkpoint(**known, original_input="go", messages=(said_by_model,), calls=calls)  # type: ignore[arg-type]


def meant(given: Checkpoint, id: str) -> list[str]:
    """The requests that an approval under this id decides."""
    choice = Choice(approved=None, reason=None, decisions={id: Approve()}, by=None, channel=None, accept_changes=False)
    return [*answers(given, choice)]


def test_an_id_means_its_request_where_only_the_call_of_that_request_has_it_too() -> None:
    given = asked(waiting(0, "pend_1", "pend_1"), waiting(1, "call_2", "pend_2"))
    assert meant(given, "pend_1") == ["pend_1"]
    assert meant(given, "pend_2") == ["pend_2"]
    assert meant(given, "call_2") == ["pend_2"]


def test_a_request_is_decided_by_its_id_although_a_model_gave_it_to_a_call(driver: Driver) -> None:
    """A model that knows the id of a request calls by it: the request can be decided by the id, and the call is not meant."""
    paid: list[int] = []
    known: dict[str, str] = {}

    def pay(order: int) -> str:
        """Pay."""
        paid.append(order)
        return "paid"

    pay_tool = tool(requires_approval=True)(driver.function(pay))

    def again(request: ModelRequest) -> Any:
        return call("pay", {"order": 666}, id=known["id"])

    def desk(name: str, *replies: Any) -> Any:
        model = ScriptedModel([*replies, "Done."])
        return Agent(name=name, description="Pays.", model=model, tools=[pay_tool]).as_tool()

    tools = [desk("good", call("pay", {"order": 1})), desk("bad", call("pay", {"order": 2}), again)]
    replies = [[call("good", {"input": "a"}), call("bad", {"input": "b"})], "Done."]
    outer = Agent(name="outer", model=ScriptedModel(replies), tools=tools, store=MemoryStore())
    before = driver.invoke(outer, "go").checkpoint
    good, bad = (next(item for item in before.pending if item.args == {"order": order}) for order in (1, 2))
    known["id"] = good.id

    after = driver.resume(outer, before, decisions={bad.id: Approve()}).checkpoint
    assert [(item.id == good.id, item.call_id == good.id) for item in after.pending] == [(True, False), (False, False)]

    result = driver.resume(outer, after, decisions={good.id: Approve()})
    assert (paid, [item.args for item in result.checkpoint.pending]) == ([2, 1], [{"order": 666}])


def test_an_id_that_another_call_has_decides_nothing() -> None:
    given = asked(waiting(0, "pend_2", "pend_1"), waiting(1, "call_2", "pend_2"))
    with pytest.raises(InvalidDecision, match="does not name one call alone"):
        meant(given, "pend_2")
    assert meant(given, "call_2") == ["pend_2"]
