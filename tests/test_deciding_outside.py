"""Deciding with the store alone: a decision is recorded where no agent's code is, and whoever has that code carries it out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, Around, Driver
from places import Place
from pydantic import AfterValidator
from stop_scenes import elsewhere

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    Defer,
    OutcomeUnknown,
    Principal,
    Reject,
    Respond,
    Skip,
    interrupt,
    tool,
)
from phronomy.errors import (
    CheckpointAlreadyResumed,
    InvalidDecision,
    RequestExpired,
    StoreError,
    UnknownPending,
)
from phronomy.foundation.json_text import canonical
from phronomy.guardrails import Refuse, guardrail
from phronomy.records.decisions import call_digest
from phronomy.stores import Request
from phronomy.stores.base import Store
from phronomy.stores.derived import requests
from phronomy.stores.rows import Append, Behind, Branch
from phronomy.testing import ScriptedModel, call, say

RITA = Principal(id="rita", name="Rita")


def affordable(amount: float) -> float:
    """What no schema says: the desk has a thousand."""
    if amount > 1000:
        raise ValueError("the desk has no more than 1000")
    return amount


class Desk:
    """Pays orders, each when somebody has approved it. Whoever decides has the store, and never the desk."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[tuple[int, float]] = []
        self.now = 1_700_000_000.0

    def open(self, **options: Any) -> Store:
        """A store on the place, with the desk's clock."""
        return self.place.open(clock=lambda: self.now, **options)

    def agent(self, *replies: Any, more: Any = (), **options: Any) -> Agent[Any, str]:
        """The agent as a worker makes it."""

        def pay(order: int, amount: Annotated[float, AfterValidator(affordable)] = 5.0) -> str:
            """Pay an order."""
            self.paid.append((order, amount))
            return f"paid {amount} for {order}"

        gated = tool(requires_approval=True, approval_timeout=600.0)(self.driver.function(pay))
        replies = replies or (call("pay", {"order": 1}), "Done.")
        return Agent(
            name="desk", model=ScriptedModel.by_turn([*replies]), tools=[gated, *more], store=self.open(), **options
        )

    def asked(self, agent: Agent[Any, str], **options: Any) -> Checkpoint:
        """A run that waits."""
        checkpoint: Checkpoint = self.driver.invoke(agent, "Pay", **options).checkpoint
        return checkpoint

    def decide(self, answer: Any, *, store: Store | None = None, at: int = 0, **options: Any) -> Request:
        """The decision of somebody who looks at the list, and has nothing but the store."""
        store = store or self.open()
        shown = store.pending()[at].approval
        given = {"by": RITA, "digest": shown.digest, **options}
        found: Request = self.driver.call(store, "decide", shown.id, answer, **given)  # type: ignore[arg-type]
        return found

    def request(self, pending_id: str) -> Request:
        """The request, as anybody sees it."""
        found: Request = self.driver.call(self.open(), "request", pending_id)  # type: ignore[arg-type]
        return found

    def carried_out(self, agent: Agent[Any, Any]) -> list[Any]:
        """What the next worker comes to with what was decided."""
        found = self.driver.call(agent, "recover_all")
        return [each.result for each in found]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


# A decision is one write


def test_an_approval_is_recorded_and_the_next_worker_carries_it_out_once(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    pending_id = asked.pending[0].id
    assert desk.request(pending_id).status == "pending"

    found = desk.decide(Approve(), channel="page")
    assert (found.status, found.decision.by, found.decision.channel) == ("decided", RITA, "page")
    assert (found.run_id, found.checkpoint_id, found.agent) == (asked.run_id, asked.id, "desk")
    assert desk.paid == []
    store = desk.open()
    assert store.pending() == []
    assert [branch.id for branch in store.decided()] == [asked.branch_id]
    again = desk.request(pending_id)
    assert (again.status, again.approval, again.decision) == ("decided", asked.pending[0], found.decision)

    (result,) = desk.carried_out(agent)
    assert (result.status, result.output, desk.paid) == ("completed", "Done.", [(1, 5.0)])
    assert desk.open().decided() == []
    assert desk.carried_out(agent) == []
    done = desk.request(pending_id)
    assert (done.status, done.result.kind, done.result.content) == ("settled", "completed", "paid 5.0 for 1")
    assert (done.run_status, done.decision.by) == ("completed", RITA)
    (line,) = desk.open().audit(pending_id=pending_id)
    assert (line.kind, line.by, line.channel, line.digest) == ("approve", RITA, "page", asked.pending[0].digest)


def test_a_rejection_is_read_by_the_model_and_nothing_runs(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.decide(Reject(reason="too late"))
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("completed", [])
    told = "A human rejected this call, so it was not run. Reason: too late"
    assert told in [message.text for message in result.messages]
    found = desk.request(asked.pending[0].id)
    assert (found.status, found.result.kind) == ("settled", "rejected")


def test_a_rejection_that_ends_the_run_ends_it(desk: Desk) -> None:
    agent = desk.agent()
    desk.asked(agent)
    desk.decide(Reject(then="end"))
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("rejected", [])


def test_a_response_stands_in_for_the_tool(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.decide(Respond(content="paid by hand"))
    (result,) = desk.carried_out(agent)
    assert "paid by hand" in [message.text for message in result.messages]
    assert desk.paid == []
    found = desk.request(asked.pending[0].id)
    assert (found.status, found.result.kind, found.result.content) == ("settled", "responded", "paid by hand")


# Edits


def test_an_edit_is_checked_by_whoever_carries_it_out_and_runs_as_the_tool_reads_it(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    found = desk.decide(Approve(args={"order": 1, "amount": 4}))
    assert (found.status, found.decision.args, found.decision.judged) == ("decided", {"order": 1, "amount": 4}, False)
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("completed", [(1, 4.0)])
    (decision,) = result.checkpoint.decisions
    assert (decision.args, decision.judged, decision.by) == ({"order": 1, "amount": 4.0}, True, RITA)
    assert decision.at == found.decision.at, "it was taken when the human took it"
    told = result.messages[2].text
    assert told.startswith('A human changed the arguments of this call to {"order":1,"amount":4.0} before it ran.')
    taken, checked = desk.open().audit(pending_id=asked.pending[0].id)
    assert (taken.edited, taken.checked, taken.ran_digest, taken.digest) == (True, False, None, asked.pending[0].digest)
    assert (checked.edited, checked.checked, checked.by, checked.at) == (True, True, RITA, taken.at)
    assert checked.ran_digest == call_digest(asked.pending[0].tool, canonical({"order": 1, "amount": 4.0}))
    assert desk.request(asked.pending[0].id).status == "settled"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"order": "x", "amount": 4.0}, "order does not fit 'type': integer is wanted"),
        ({"order": 1, "sum": 4.0}, "does not fit 'additionalProperties'"),
        ({}, "does not fit 'required': 'order' is missing"),
    ],
)
def test_an_edit_that_does_not_fit_the_schema_is_refused_at_once(desk: Desk, args: dict[str, Any], why: str) -> None:
    (item,) = desk.asked(desk.agent()).pending
    schema = desk.request(item.id).schema
    assert schema is not None
    assert (schema["required"], sorted(schema["properties"])) == (["order"], ["amount", "order"])
    refused(desk, InvalidDecision, f"do not fit the schema of pay: .*{why}", Approve(args=args))


def test_a_schema_is_kept_once_and_where_it_is_not_the_worker_alone_checks_the_edit(desk: Desk) -> None:
    class Bare(Around):
        """A store that does not keep the schema, as one that was written before any were kept."""

        def kept_text(self, digest: str) -> str | None:
            return None if digest == item.tool.schema_hash else super().kept_text(digest)

    agent = desk.agent()
    (item,), _ = desk.asked(agent).pending, desk.asked(agent)
    text = desk.open().kept_text(item.tool.schema_hash)
    assert text is not None
    assert desk.request(item.id).schema == json.loads(text)
    found = desk.decide(Approve(args={"order": "x"}), store=Bare(desk.open()))
    assert (found.status, found.schema) == ("decided", None)
    desk.carried_out(agent)
    assert desk.request(item.id).status == "asked_again"


def test_a_store_object_asks_for_a_schema_and_a_description_once_and_remembers_no_more_than_some(desk: Desk) -> None:
    """A text that is kept under its SHA-256 is never another. That of another tenant is not known."""
    items = [desk.asked(desk.agent()).pending[0] for _ in range(3)]
    store, asked = desk.open(), []
    kept = store.kept_text

    def counted(digest: str) -> str | None:
        if digest in (items[0].tool.schema_hash, told):  # and not what the rows name
            asked.append((store.tenant, digest))
        return kept(digest) if store.tenant == "" else None

    store.kept_text = counted  # type: ignore[method-assign]
    digest, told = items[0].tool.schema_hash, items[0].description_hash
    store.read_texts.clear()  # in memory, all stores of a place are one
    first, second = (store.request(item.id).schema for item in items[:2])
    assert first == second == json.loads(kept(digest) or "")
    assert first is not second, "what a caller does to one changes no other"
    found = store.decide(items[0].id, Approve(), by="rita", digest=items[0].digest)
    assert (found.schema, found.description, asked) == (first, "Pay an order.", [("", digest), ("", told)])
    store.tenant = "other"
    assert requests.schema_of(store, items[1]) is None
    store.tenant = ""
    assert asked == [("", digest), ("", told), ("other", digest)]
    store.read_texts.clear()
    store.read_texts.update({("", str(number)): "{}" for number in range(500)})
    assert store.request(items[1].id).schema == first
    assert {("", digest), ("", told)} <= store.read_texts.keys()
    assert len(store.read_texts) < 10


def test_what_waits_is_read_at_once_as_it_is_in_several_reads(desk: Desk) -> None:
    """And a store in which somebody has put a read before it is asked by that read."""
    asked = desk.asked(desk.agent(say("", call("pay", {"order": 1}), call("pay", {"order": 2})), "Done."))
    store = desk.open()
    for item in asked.pending:
        found = requests.waiting_with_branch(store, item.id)
        assert found is not None
        assert found == requests.waiting_with_branch(Around(store), item.id)
        assert (found[0].approval, found[1]) == (item, store.branches()[0])
    assert (
        requests.waiting_with_branch(store, "pend_0") is requests.waiting_with_branch(Around(store), "pend_0") is None
    )
    store.select_pending = lambda wanted: []  # type: ignore[method-assign]
    assert requests.waiting_with_branch(store, asked.pending[0].id) is None
    del store.select_pending


def test_an_edit_that_the_tool_refuses_is_asked_for_again_with_the_reason(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.decide(Approve(args={"order": 1, "amount": 2000.0}))
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("suspended", [])
    (again,) = desk.open().pending()
    assert again.approval.id != asked.pending[0].id
    assert (again.approval.args, again.approval.digest) == (asked.pending[0].args, asked.pending[0].digest)
    assert again.approval.reason.startswith("The answer that was given cannot be carried out: ")
    assert "the desk has no more than 1000" in again.approval.reason
    assert again.approval.expires_at.timestamp() == desk.now + 600
    first = desk.request(asked.pending[0].id)
    assert (first.status, first.asked_again) == ("asked_again", again.approval.id)

    desk.decide(Approve())
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("completed", [(1, 5.0)])
    first = desk.request(asked.pending[0].id)
    assert (first.status, first.asked_again) == ("asked_again", again.approval.id)


def test_an_edit_passes_the_guardrails_of_the_agent_or_is_asked_for_again(desk: Desk) -> None:
    @guardrail
    def modest(args: dict[str, Any]) -> Any:
        return Refuse("that is too much") if args["amount"] > 10 else None

    agent = desk.agent(tool_guardrails=[modest])
    desk.asked(agent)
    desk.decide(Approve(args={"order": 1, "amount": 40.0}))
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("suspended", [])
    assert "that is too much" in desk.open().pending()[0].approval.reason


def test_a_guardrail_that_fails_has_a_human_asked_again_and_not_the_run_fail_for_ever(desk: Desk) -> None:
    @guardrail
    def broken(args: dict[str, Any]) -> Any:
        if args["amount"] == 40.0:
            raise ConnectionError("the moderation service is away")

    agent = desk.agent(tool_guardrails=[broken])
    (item,) = desk.asked(agent).pending
    desk.decide(Approve(args={"order": 1, "amount": 40.0}))
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("suspended", [])
    assert "raised ConnectionError" in result.checkpoint.pending[0].reason
    assert "away" not in result.checkpoint.pending[0].reason
    assert desk.request(item.id).asked_again == result.checkpoint.pending[0].id


# Misuse


def refused(desk: Desk, error: type[Exception], match: str, answer: Any = None, **options: Any) -> None:
    """Nothing is recorded: the request waits as before, and no line is in the trail."""
    store = desk.open()
    before = store.pending()
    trail = [*store.audit()]
    with pytest.raises(error, match=match):
        desk.decide(answer or Approve(), **options)
    assert store.pending() == before
    assert [*store.audit()] == trail
    assert store.decided() == []


def test_what_is_malformed_or_does_not_fit_is_refused_and_nothing_is_recorded(desk: Desk) -> None:
    desk.asked(desk.agent())
    refused(desk, InvalidDecision, "not the one that the decision was given for", digest="0" * 64)
    refused(desk, InvalidDecision, "the digest is text, not NoneType", digest=None)
    refused(desk, InvalidDecision, "by says who decides", by=None)
    refused(desk, InvalidDecision, "by is a Principal", by="")
    refused(desk, InvalidDecision, "key is text that is not empty", key="")
    refused(desk, InvalidDecision, "key has a lone surrogate", key="\ud800")
    refused(desk, InvalidDecision, "channel is text, not int", channel=5)
    refused(desk, InvalidDecision, "it is no breakpoint: reject it|is no breakpoint", Skip())
    for answer in (True, "yes", Approve, {"approved": True}):
        refused(desk, InvalidDecision, "the answer is Approve, Reject, Respond or Skip", answer)
    with pytest.raises(UnknownPending, match="nothing waits under pend_none"):
        desk.open().decide("pend_none", Approve(), by="rita", digest="x")
    with pytest.raises(InvalidDecision, match="the pending id is text, not int"):
        desk.open().decide(5, Approve(), by="rita", digest="x")  # type: ignore[arg-type]
    with pytest.raises(UnknownPending, match="nothing waits under"):
        desk.request("pend_none")


def test_a_decision_that_comes_too_late_is_not_recorded_and_the_worker_settles_the_call(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.now += 600
    assert desk.request(asked.pending[0].id).status == "expired"
    refused(desk, RequestExpired, "had lapsed at 2023-11-14 22:23:20 UTC")
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("completed", [])
    found = desk.request(asked.pending[0].id)
    assert (found.status, found.decision.kind, found.result.kind) == ("settled", "expire", "expired")
    # Late is late, also once the call is settled.
    with pytest.raises(RequestExpired, match="had lapsed at 2023-11-14 22:23:20 UTC"):
        desk.driver.call(desk.open(), "decide", found.approval.id, Approve(), by=RITA, digest=found.approval.digest)  # type: ignore[arg-type]


def test_another_tenant_knows_nothing_of_it(desk: Desk) -> None:
    asked = desk.asked(desk.agent())
    other = desk.open(tenant="other")
    item = asked.pending[0]
    with pytest.raises(UnknownPending):
        other.decide(item.id, Approve(), by="rita", digest=item.digest)
    with pytest.raises(UnknownPending):
        other.request(item.id)
    assert desk.request(item.id).status == "pending"


# Once


def test_the_second_of_two_is_told_who_was_first(desk: Desk) -> None:
    agent = desk.agent()
    (item,) = desk.asked(agent).pending
    desk.decide(Approve())
    for _ in range(2):  # before it is carried out, and after
        with pytest.raises(CheckpointAlreadyResumed, match="was decided before \\(approved by rita\\)") as caught:
            desk.open().decide(item.id, Reject(), by="otto", digest=item.digest)
        assert (caught.value.decision.by, caught.value.pending_id) == (RITA, item.id)
        with pytest.raises(CheckpointAlreadyResumed):
            desk.driver.call(agent, "decide", item.id, Reject(), by="otto")
        desk.carried_out(agent)
    assert desk.paid == [(1, 5.0)]


def test_the_same_decision_with_the_same_key_is_the_same_answer(desk: Desk) -> None:
    agent = desk.agent()
    (item,) = desk.asked(agent).pending
    edit = Approve(args={"order": 1, "amount": 4})
    first = desk.decide(edit, key="click-1")

    def again(answer: Any = edit, **options: Any) -> Request:
        given = {"by": RITA, "digest": item.digest, "key": "click-1", **options}
        found: Request = desk.driver.call(desk.open(), "decide", item.id, answer, **given)  # type: ignore[arg-type]
        return found

    assert again() == first
    for _ in range(2):  # before it is carried out, and after: it is what was given that is compared
        for other in (Approve(), Approve(args={"order": 2}), Approve(args={"order": 1, "amount": 9}), Reject()):
            with pytest.raises(CheckpointAlreadyResumed):
                again(other)
        for options in ({"key": "click-2"}, {"key": None}, {"by": "otto"}, {"digest": "0" * 64}):
            with pytest.raises(CheckpointAlreadyResumed):
                again(**options)
        desk.carried_out(agent)
        done = again()
    assert (done.status, done.decision.key, desk.paid) == ("settled", "click-1", [(1, 4.0)])
    assert [line.key for line in desk.open().audit(pending_id=item.id)] == ["click-1", "click-1"]


@pytest.mark.parametrize("answer", [Approve(args={"order": 1}), Reject(reason="no"), Respond(content={"a": 1})])
def test_any_answer_is_the_same_a_second_time(desk: Desk, answer: Any) -> None:
    agent = desk.agent()
    (item,) = desk.asked(agent).pending
    for _ in range(3):
        found = desk.driver.call(
            desk.open(),  # type: ignore[arg-type]
            "decide",
            item.id,
            answer,
            by="rita",
            digest=item.digest,
            key="k",
        )
        desk.carried_out(agent)
    assert found.status in ("settled", "asked_again")


def test_each_call_of_a_reply_is_decided_by_itself_by_whoever(desk: Desk) -> None:
    two = say("", call("pay", {"order": 1}), call("pay", {"order": 2}))
    agent = desk.agent(two, "Done.")
    asked = desk.asked(agent)
    desk.decide(Approve(), by="otto")
    desk.decide(Reject(reason="no"), by="rita")
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("completed", [(1, 5.0)])
    assert [(each.kind, each.by.id) for each in result.checkpoint.decisions] == [
        ("approve", "otto"),
        ("reject", "rita"),
    ]
    assert [desk.request(item.id).result.kind for item in asked.pending] == ["completed", "rejected"]


# Other things that wait


def test_a_question_is_answered_by_its_type(desk: Desk) -> None:
    @tool
    def ask(order: int) -> str:
        """Ask how much."""
        return f"{interrupt('How much?', answer=int)} for {order}"

    agent = desk.agent(call("ask", {"order": 1}), "Done.", more=[ask])
    (item,) = desk.asked(agent).pending
    refused(desk, InvalidDecision, "is not of the type that was asked for", Respond(content="a lot"))
    refused(desk, InvalidDecision, "is a question, and has no arguments to edit", Approve(args={"x": 1}))
    desk.decide(Respond(content=7))
    (result,) = desk.carried_out(agent)
    assert "7 for 1" in [message.text for message in result.messages]
    assert desk.request(item.id).status == "settled"


def test_an_external_call_is_answered_and_its_result_checked_by_whoever_carries_it_out(desk: Desk) -> None:
    @tool(external=True)
    def scan(order: int) -> dict[str, int]:
        """Scan a parcel."""
        ...

    agent = desk.agent(call("scan", {"order": 1}), "Done.", more=[scan])
    desk.asked(agent)
    refused(desk, InvalidDecision, "is an external tool, which nothing here can run", Approve())
    desk.decide(Respond(content="heavy"))
    (result,) = desk.carried_out(agent)
    assert result.status == "suspended"
    assert "the result is not of the type that scan returns" in desk.open().pending()[0].approval.reason
    desk.decide(Respond(content={"grams": 500}))
    (result,) = desk.carried_out(agent)
    assert '{"grams":500}' in [message.text for message in result.messages]


def test_a_call_that_is_let_go_on_at_a_breakpoint_is_still_to_be_approved(desk: Desk) -> None:
    """The handler of the agent is asked once it goes on, and leaves it to a human."""
    agent = desk.agent(breakpoints=[Breakpoint("pre_tool_call")])
    agent.on_approval_required(desk.driver.function(lambda name, args: Defer()))
    (item,) = desk.asked(agent).pending
    assert item.why == "breakpoint"
    desk.decide(Approve())
    (result,) = desk.carried_out(agent)
    (again,) = result.checkpoint.pending
    assert (again.why, again.id != item.id, desk.paid) == ("approval", True, [])
    assert desk.request(item.id).asked_again == again.id
    desk.decide(Approve())
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.paid) == ("completed", [(1, 5.0)])


def test_a_call_without_a_gate_runs_once_it_is_let_go_on_with_what_was_edited(desk: Desk) -> None:
    @tool
    def note(text: str) -> str:
        """Write it down."""
        return f"noted {text}"

    agent = desk.agent(call("note", {"text": "a"}), "Done.", more=[note], breakpoints=[Breakpoint("pre_tool_call")])
    (item,) = desk.asked(agent).pending
    desk.decide(Approve(args={"text": "b"}))
    (result,) = desk.carried_out(agent)
    assert result.status == "completed"
    assert desk.request(item.id).result.content.endswith("noted b")


def test_a_stop_between_two_steps_is_let_go_on_skipped_or_refused_but_not_edited(desk: Desk) -> None:
    agent = desk.agent(breakpoints=[Breakpoint("pre_model_call")])
    (item,) = desk.asked(agent).pending
    assert item.between_steps
    refused(desk, InvalidDecision, "stands between two steps of the run", Approve(args={"input": "Pay nothing"}))
    refused(desk, InvalidDecision, "where there is nothing to answer", Respond(content="x"))
    desk.decide(Skip())
    (result,) = desk.carried_out(agent)
    assert (result.status, desk.request(item.id).status) == ("skipped", "settled")


def test_what_waits_in_a_run_inside_a_call_is_decided_and_its_edit_checked_there(desk: Desk) -> None:
    inner = desk.agent()
    outer = Agent(
        name="office",
        model=ScriptedModel.by_turn([call("desk", {"input": "Pay"}), "All done."]),
        tools=[inner.as_tool(name="desk", description="Pays.")],
        store=desk.open(),
    )
    (item,) = desk.asked(outer).pending
    assert item.path
    assert desk.request(item.id).approval == item
    desk.decide(Approve(args={"order": 1, "amount": 5000}))
    (result,) = desk.carried_out(outer)
    (again,) = desk.open().pending()
    assert (result.status, again.approval.path, desk.paid) == ("suspended", item.path, [])
    assert desk.request(item.id).asked_again == again.approval.id
    desk.decide(Approve(args={"order": 1, "amount": 3}))
    (result,) = desk.carried_out(outer)
    assert (result.output, desk.paid) == ("All done.", [(1, 3.0)])
    done = desk.request(again.approval.id)
    assert (done.status, done.result.kind) == ("settled", "completed")


# Beside others


def test_what_was_decided_inside_a_run_that_has_ended_is_settled(desk: Desk) -> None:
    both = say("", call("pay", {"order": 1}), call("pay", {"order": 2}))
    outer = Agent(
        name="office",
        model=ScriptedModel.by_turn([call("desk", {"input": "Pay"}), "All done."]),
        tools=[desk.agent(both, "Done.").as_tool(name="desk", description="Pays.")],
        store=desk.open(),
    )
    first, second = desk.asked(outer).pending
    desk.decide(Approve())
    desk.decide(Reject(then="end"))
    (result,) = desk.carried_out(outer)
    assert result.status == "rejected"
    assert [desk.request(item.id).status for item in (first, second)] == ["settled", "settled"]


def test_the_second_run_of_a_thread_is_not_taken_for_the_first(desk: Desk) -> None:
    """Their calls have the same ids."""
    agent = desk.agent()
    for number in (1, 2):
        (item,) = desk.asked(agent, thread_id="chat").pending
        assert (desk.decide(Approve()).status, desk.request(item.id).status) == ("decided", "decided")
        desk.carried_out(agent)
        assert (desk.request(item.id).status, len(desk.paid)) == ("settled", number)


def test_a_run_that_is_forked_before_the_edit_was_checked_asks_anew_in_the_fork(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.decide(Approve(args={"order": 1, "amount": 4}))
    fork = desk.driver.fork(agent, asked)
    assert [item.args for item in fork.pending] == [{"order": 1, "amount": 5.0}]
    desk.carried_out(agent)
    assert desk.paid == [(1, 4.0)]


def test_a_worker_that_holds_the_run_hears_of_it_and_checks_the_edit(desk: Desk) -> None:
    """One call of the reply runs while the other is decided elsewhere: nobody else has to carry that out."""
    entered, go_on = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def ship(order: int) -> str:
        """Ship an order."""
        entered.set()
        assert go_on.wait(PATIENCE)
        return f"shipped {order}"

    both = say("", call("ship", {"order": 1}), call("pay", {"order": 2}))
    agent = desk.agent(both, "Done.", more=[ship])
    asked = desk.asked(agent)
    shipped, paid = asked.pending
    with elsewhere(lambda: desk.driver.resume(agent, asked, decisions={shipped.id: Approve()})) as worker:
        assert entered.wait(PATIENCE)
        found = desk.decide(Approve(args={"order": 2, "amount": 3}))
        assert (found.approval.id, found.status, found.run_status) == (paid.id, "decided", "running")
        assert desk.open().decided() == [], "somebody has the run"
        go_on.set()
        assert worker.result().status == "completed"
    assert desk.paid == [(2, 3.0)]
    assert [desk.request(item.id).result.kind for item in asked.pending] == ["completed", "completed"]


# What comes between


class Meanwhile(Around):
    """A store in which something happens just before a decision is written."""

    def __init__(self, inner: Store, *happens: Callable[[], object]) -> None:
        super().__init__(inner)
        self.happens = [*happens]

    def append(self, change: Append) -> Branch:
        if self.happens:
            self.happens.pop(0)()
        return super().append(change)


def at_once(store: Store, answer: Any, *, by: str = "rita", at: int = 0) -> None:
    """A decision in the middle of another call of a store: in this thread, whichever driver is at work."""
    shown = store.pending()[at].approval
    store.decide(shown.id, answer, by=by, digest=shown.digest)


def test_of_two_at_the_same_moment_one_is_first_and_the_other_is_told(desk: Desk) -> None:
    asked = desk.asked(desk.agent())
    first = desk.open()
    slow = Meanwhile(desk.open(), lambda: at_once(first, Reject(), by="otto"))
    with pytest.raises(CheckpointAlreadyResumed, match="rejected by otto") as caught:
        desk.decide(Approve(), store=slow)
    assert caught.value.progress == "suspended"
    assert [line.kind for line in first.audit(pending_id=asked.pending[0].id)] == ["reject"]


def test_what_is_written_to_the_run_meanwhile_is_read_and_the_decision_recorded_after_it(desk: Desk) -> None:
    agent = desk.agent(say("", call("pay", {"order": 1}), call("pay", {"order": 2})), "Done.")
    asked = desk.asked(agent)
    slow = Meanwhile(desk.open(), lambda: at_once(desk.open(), Approve(), at=1))
    desk.decide(Approve(), store=slow)
    (result,) = desk.carried_out(agent)
    assert (result.status, sorted(desk.paid)) == ("completed", [(1, 5.0), (2, 5.0)])
    assert [desk.request(item.id).status for item in asked.pending] == ["settled", "settled"]


def test_a_run_that_is_deleted_meanwhile_is_not_decided(desk: Desk) -> None:
    asked = desk.asked(desk.agent())
    store = desk.open()
    slow = Meanwhile(desk.open(), lambda: store.delete(asked.run_id, force=True))
    with pytest.raises(UnknownPending):
        desk.decide(Approve(), store=slow)
    assert [*store.audit()] == []


def test_a_store_that_contradicts_itself_is_not_asked_for_ever(desk: Desk) -> None:
    class Contrary(Around):
        def append(self, change: Append) -> Branch:
            raise Behind(change.branch_id)

    desk.asked(desk.agent())
    with pytest.raises(StoreError, match="is the same as before, and the store says that it has changed"):
        desk.decide(Approve(), store=Contrary(desk.open()))


def test_a_trail_that_names_another_place_than_the_log_is_damage(desk: Desk) -> None:
    asked = desk.asked(desk.agent())
    (item,) = asked.pending
    store = desk.open()
    desk.decide(Approve())

    class Damaged(Around):
        def select_audit(self, wanted: Any) -> Any:
            rows = super().select_audit(wanted)
            return [replace(row, body=row.body.replace(asked.id, "ckpt_0")) for row in rows]

    with pytest.raises(StoreError, match="does not hold pending"):
        desk.driver.call(Damaged(store), "request", item.id)  # type: ignore[arg-type]


# How far it is


def test_a_request_tells_of_an_attempt_that_runs_that_failed_and_of_the_tool_that_stood_in(desk: Desk) -> None:
    seen: list[tuple[str, str]] = []

    @tool
    def cash(order: int) -> str:
        """Pay in cash."""
        seen.append(("cash", desk.request(item.id).status))
        return f"cash for {order}"

    @tool(requires_approval=True, fallback=(cash,), retries=1, retry_wait=0.0, idempotent=True)
    def wire(order: int) -> str:
        """Pay by wire."""
        seen.append(("wire", desk.request(item.id).status))
        raise ConnectionError("the bank is away")

    agent = desk.agent(call("wire", {"order": 1}), "Done.", more=[wire])
    (item,) = desk.asked(agent).pending
    desk.decide(Approve())
    (result,) = desk.carried_out(agent)
    assert result.status == "completed"
    assert seen == [("wire", "running"), ("wire", "running"), ("cash", "running")]
    found = desk.request(item.id)
    assert (found.status, found.result.content) == ("settled", "cash for 1")


def test_a_request_whose_call_may_have_taken_effect_names_the_one_that_asks_about_it(desk: Desk) -> None:
    @tool(requires_approval=True)
    def wire(order: int) -> str:
        """Pay by wire."""
        raise OutcomeUnknown("the line went dead")

    agent = desk.agent(call("wire", {"order": 1}), "Done.", more=[wire])
    (item,) = desk.asked(agent).pending
    desk.decide(Approve())
    (result,) = desk.carried_out(agent)
    (again,) = result.checkpoint.pending
    assert again.why == "outcome_unknown"
    assert (desk.request(item.id).status, desk.request(item.id).asked_again) == ("asked_again", again.id)
    desk.decide(Respond(content="It was paid."))
    desk.carried_out(agent)
    assert (desk.request(item.id).status, desk.request(again.id).status) == ("asked_again", "settled")
    assert desk.request(again.id).result.content == "It was paid."


def test_who_is_second_is_told_how_far_the_run_is(desk: Desk) -> None:
    agent = desk.agent()
    (item,) = desk.asked(agent).pending
    store = desk.open()

    def progress() -> str:
        with pytest.raises(CheckpointAlreadyResumed) as caught:
            store.decide(item.id, Approve(), by="otto", digest=item.digest)
        return caught.value.progress

    told: list[str] = []

    @tool(requires_approval=True, name="pay")
    def slow(order: int, amount: float = 5.0) -> str:
        """Pay an order."""
        told.append(progress())
        raise ConnectionError("the bank is away")

    desk.decide(Approve())
    told.append(progress())
    failing = ScriptedModel(lambda request: ConnectionError("the provider is away"))
    worker = Agent(name="desk", model=failing, tools=[slow], store=desk.open())
    desk.driver.call(worker, "recover_all")
    told.append(progress())
    desk.driver.resume(agent, store.request(item.id).checkpoint_id)
    told.append(progress())
    assert told == ["suspended", "running", "failed", "ended"]


def test_an_answer_for_a_tool_that_is_gone_is_asked_for_again(desk: Desk) -> None:
    """Whoever drives the run has accepted that the agent has changed."""
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.decide(Approve(args={"order": 1, "amount": 4.0}))
    bare = Agent(name="desk", model=ScriptedModel(["Done."]), store=desk.open())
    result = desk.driver.recover(bare, asked.run_id, accept_changes=True)
    assert result.status == "suspended"
    assert "There is no tool named 'pay'" in result.checkpoint.pending[0].reason


def test_a_deleted_run_leaves_the_trail_and_says_so(desk: Desk) -> None:
    agent = desk.agent()
    (item,) = desk.asked(agent).pending
    desk.decide(Approve())
    desk.carried_out(agent)
    store = desk.open()
    assert store.delete(desk.request(item.id).run_id)
    with pytest.raises(UnknownPending, match="was decided by rita, and its run is deleted since"):
        desk.request(item.id)
