"""What decisions mean, and what malformed ones get: a typed error, with not one byte of the store changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drivers import STORES, Driver, decide_first, open_kind, outline, rows
from tables import each

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    Defer,
    InvalidDecision,
    NothingDecided,
    Principal,
    Reject,
    Respond,
    Result,
    UnknownPending,
    tool,
)
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

NOW = 1_700_000_000.0


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_kind(request.param, tmp_path, clock=lambda: NOW) as opened:
        yield opened


class Desk:
    """An agent with the gated tools `pay` and `wire` and the free tool `look`, and what they did."""

    def __init__(self, driver: Driver, replies: list[Any], *, gate: Any = True, **options: Any) -> None:
        self.done: list[str] = []
        self.model = ScriptedModel(replies)
        pay, wire, look = (driver.function(self._body(name)) for name in ("pay", "wire", "look"))
        tools = [tool(requires_approval=gate)(pay), tool(requires_approval=True)(wire), look]
        if "on_approval_required" in options:
            options["on_approval_required"] = driver.function(options["on_approval_required"])
        self.agent: Agent[Any, str] = Agent(name="desk", model=self.model, tools=tools, **options)

    def _body(self, name: str) -> Callable[..., str]:
        def body(amount: int = 1) -> str:
            """Move money."""
            self.done.append(f"{name} {amount}")
            return f"{name} {amount} is done"

        body.__name__ = name
        return body


def ids(given: Result[Any]) -> list[str]:
    return [item.id for item in given.checkpoint.pending]


# The handler


@pytest.mark.parametrize(
    ("answer", "ran", "told"),
    [
        (True, True, "tool (completed): pay 2 is done"),
        (Approve(), True, "tool (completed): pay 2 is done"),
        (False, False, "tool (rejected): A human rejected this call, so it was not run."),
        (None, False, "tool (rejected): A human rejected this call, so it was not run."),
        (Reject(), False, "tool (rejected): A human rejected this call, so it was not run."),
        (Reject(reason="dear"), False, "tool (rejected): A human rejected this call, so it was not run. Reason: dear"),
    ],
    ids=repr,
)
def test_a_handler_decides_at_once(driver: Driver, store: Store, answer: Any, ran: bool, told: str) -> None:
    """Handler: True and Approve run; False, None and Reject reject; the run does not suspend. RBY-A04, RBY R6"""
    asked: list[tuple[str, dict[str, Any]]] = []

    def handler(name: str, args: dict[str, Any]) -> Any:
        asked.append((name, args))
        return answer

    desk = Desk(driver, [[call("pay", {"amount": 2}), call("look")], "done"], store=store, on_approval_required=handler)

    result = driver.invoke(desk.agent, "go")

    assert (result.status, result.output, asked) == ("completed", "done", [("pay", {"amount": 2})])
    assert sorted(desk.done) == ["look 1", *(["pay 2"] if ran else [])]
    assert outline(result)[2:4] == [told, "tool (completed): look 1 is done"]
    (decision,) = result.checkpoint.decisions
    assert (decision.kind, decision.channel, decision.by) == ("approve" if ran else "reject", "handler", None)


def test_a_handler_may_edit(driver: Driver, store: Store) -> None:
    """Handler: Approve(args) runs what it says, and the model is told."""
    desk = Desk(
        driver,
        [call("pay", {"amount": 2}), "done"],
        store=store,
        on_approval_required=lambda *_: Approve(args={"amount": 3}),
    )

    result = driver.invoke(desk.agent, "go")

    assert (result.output, desk.done) == ("done", ["pay 3"])
    told = result.messages[2].text
    assert told.startswith('A human changed the arguments of this call to {"amount":3}')
    assert told.endswith("\npay 3 is done")


def test_a_handler_may_defer_some_and_decide_others(driver: Driver, store: Store) -> None:
    """Handler: Defer suspends the run for that call; what else it decided is carried out."""
    answers = {"pay": Defer(), "wire": True}
    desk = Desk(
        driver,
        [[call("pay"), call("wire"), call("look")], "done"],
        store=store,
        on_approval_required=lambda name, args: answers[name],
    )

    result = driver.invoke(desk.agent, "go")

    assert (result.status, sorted(desk.done)) == ("suspended", ["look 1", "wire 1"])
    assert [item.tool_name for item in result.checkpoint.pending] == ["pay"]
    assert len(desk.model.requests) == 1
    result = driver.resume(desk.agent, result.checkpoint, approved=True)
    assert (result.output, sorted(desk.done)) == ("done", ["look 1", "pay 1", "wire 1"])


def test_a_handler_may_end_the_run(driver: Driver, store: Store) -> None:
    """Handler: Reject(then="end") ends the run as rejected. RBY-A14"""
    desk = Desk(driver, [call("pay"), "done"], store=store, on_approval_required=lambda *_: Reject(then="end"))

    result = driver.invoke(desk.agent, "go")

    assert (result.status, result.output, desk.done) == ("rejected", None, [])


def test_registering_a_handler_returns_the_agent(driver: Driver) -> None:
    """Handler: `on_approval_required` is chainable, and registers on this agent alone. RBY R7"""
    desk = Desk(driver, [call("pay"), "done"])
    other = Desk(driver, [call("pay"), "done"])

    assert desk.agent.on_approval_required(driver.function(lambda name, args: True)) is desk.agent

    assert driver.invoke(desk.agent, "go").output == "done"
    assert driver.invoke(other.agent, "go").suspended


# Deciding


def test_one_of_several_is_decided_and_runs_at_once(driver: Driver, store: Store) -> None:
    """The call runs at once; the others still wait, with no model call in between. `approved` decides the only one."""
    desk = Desk(driver, [[call("pay"), call("wire"), call("pay", {"amount": 2})], "done"], store=store)
    result = driver.invoke(desk.agent, "go")

    result = driver.resume(desk.agent, result.checkpoint, decisions=decide_first(result.checkpoint))
    assert (result.status, desk.done, len(desk.model.requests)) == ("suspended", ["pay 1"], 1)
    no = decide_first(result.checkpoint, Reject(reason="not today"))
    result = driver.resume(desk.agent, result.checkpoint, decisions=no)
    assert (result.status, desk.done, len(desk.model.requests)) == ("suspended", ["pay 1"], 1)
    result = driver.resume(desk.agent, result.checkpoint, approved=True)

    assert (result.status, desk.done, len(desk.model.requests)) == ("completed", ["pay 1", "pay 2"], 2)
    assert outline(result)[2:5] == [
        "tool (completed): pay 1 is done",
        "tool (rejected): A human rejected this call, so it was not run. Reason: not today",
        "tool (completed): pay 2 is done",
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("same_checkpoint", [True, False], ids=["from-the-first", "from-the-latest"])
def test_decisions_may_come_in_any_order(
    driver: Driver, store: Store, order: tuple[int, ...], same_checkpoint: bool
) -> None:
    """Decisions: one by one, in any order, from the first checkpoint or the latest. Law 3"""
    desk = Desk(driver, [[call("pay"), call("wire"), call("pay", {"amount": 2})], "done"], store=store)
    first = result = driver.invoke(desk.agent, "go")
    answers = [Approve(), Reject(), Respond(content="paid by hand")]

    for place in order:
        assert (result.status, len(desk.model.requests)) == ("suspended", 1)
        given = first if same_checkpoint else result
        result = driver.resume(desk.agent, given.checkpoint, decisions={ids(first)[place]: answers[place]})

    assert (result.status, desk.done) == ("completed", ["pay 1"])
    assert outline(result)[2:5] == [
        "tool (completed): pay 1 is done",
        "tool (rejected): A human rejected this call, so it was not run.",
        "tool (responded): paid by hand",
    ]
    assert [each.pending_id for each in result.checkpoint.decisions] == [ids(first)[place] for place in order]


def test_a_decision_is_on_record(driver: Driver, store: Store) -> None:
    """`by` as text and as Principal, the channel, the time, what was shown: all of it is in the record."""
    desk = Desk(driver, [[call("pay"), call("wire")], "done"], store=store)
    result = driver.invoke(desk.agent, "go")
    pay, wire = result.checkpoint.pending
    bot = Principal(id="bot-7", name="Night shift", kind="service")

    yes = decide_first(result.checkpoint)
    result = driver.resume(desk.agent, result.checkpoint, decisions=yes, by="ann@example.com", channel="chat")
    result = driver.resume(
        desk.agent, result.checkpoint, decisions={wire.id: Reject(reason="no", then="block")}, by=bot
    )

    first, second = Checkpoint.model_validate_json(result.checkpoint.model_dump_json()).decisions
    assert (first.pending_id, first.digest, first.kind, first.args) == (pay.id, pay.digest, "approve", None)
    assert (first.by, first.channel) == (Principal(id="ann@example.com"), "chat")
    assert first.at == datetime.fromtimestamp(NOW, UTC)
    assert (second.pending_id, second.kind, second.reason, second.then) == (wire.id, "reject", "no", "block")
    assert (second.by, second.channel) == (bot, None)


# What follows a rejection


def test_then_continue_lets_the_model_ask_again(driver: Driver, store: Store) -> None:
    """then="continue": the model reads that it was rejected and why; the same call is asked about again."""
    desk = Desk(driver, [call("pay"), call("pay"), "done"], store=store)
    result = driver.invoke(desk.agent, "go")
    decisions: dict[str, Any] = {ids(result)[0]: Reject(reason="why twice?")}

    result = driver.resume(desk.agent, result.checkpoint, decisions=decisions)

    assert desk.model.requests[1].messages[-1].text.endswith("Reason: why twice?")
    assert (result.status, desk.done) == ("suspended", [])


def test_then_block_rejects_the_same_call_unasked(driver: Driver, store: Store) -> None:
    """then="block": the same call is rejected without asking; other arguments are asked about. field failure 86"""
    asked: list[str] = []
    same, other = call("pay", {"amount": 1}), call("pay", {"amount": 2})
    desk = Desk(driver, [call("pay"), [same, call("wire")], same, other, "done"], store=store)
    result = driver.invoke(desk.agent, "go", thread_id="t")

    result = driver.resume(desk.agent, result.checkpoint, decisions={ids(result)[0]: Reject(then="block")})
    assert [(item.tool_name, item.args) for item in result.checkpoint.pending] == [("wire", {"amount": 1})]
    assert result.checkpoint.calls[0].status == "settled"
    result = driver.resume(desk.agent, result.checkpoint, approved=True)
    asked += [str(item.args) for item in result.checkpoint.pending]
    assert asked == ["{'amount': 2}"]
    told = [message for message in result.messages if message.settlement == "rejected"]
    assert [message.text for message in told] == [
        "A human rejected this call, so it was not run.",
        "This exact call was rejected before and was not run. Do not ask for it again.",
        "This exact call was rejected before and was not run. Do not ask for it again.",
    ]
    result = driver.resume(desk.agent, result.checkpoint, approved=True)
    assert (result.output, desk.done) == ("done", ["wire 1", "pay 2"])


def test_then_block_leaves_a_sibling_that_is_the_same_call_to_the_human(driver: Driver, store: Store) -> None:
    """then="block": a second pending of the very same call is a request of its own, and is still asked about."""
    desk = Desk(driver, [[call("pay"), call("pay")], "done"], store=store)
    result = driver.invoke(desk.agent, "go")

    result = driver.resume(desk.agent, result.checkpoint, decisions={ids(result)[0]: Reject(then="block")})

    assert (result.status, desk.done) == ("suspended", [])
    assert driver.resume(desk.agent, result.checkpoint, approved=False).output == "done"


def test_then_end_ends_the_run_as_rejected(driver: Driver, store: Store) -> None:
    """then="end": the run ends, every open call is settled, the model is not asked; the thread goes on. RBY-A03, R17"""
    desk = Desk(driver, [[call("pay"), call("wire"), call("look")], "next"], store=store)
    result = driver.invoke(desk.agent, "go", thread_id="t")

    decisions: dict[str, Any] = {ids(result)[1]: Reject(reason="fraud", then="end")}
    result = driver.resume(desk.agent, result.checkpoint, decisions=decisions)

    assert (result.status, result.output, result.suspended) == ("rejected", None, False)
    assert (desk.done, len(desk.model.requests), store.pending()) == (["look 1"], 1, [])
    cancelled, *others = outline(result)[2:]
    assert cancelled.startswith("tool (cancelled): ")
    assert "was ended when another call was rejected" in cancelled
    assert others == [
        "tool (rejected): A human rejected this call, so it was not run. Reason: fraud",
        "tool (completed): look 1 is done",
    ]
    assert driver.invoke(desk.agent, "and now?", thread_id="t").output == "next"


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize(
    "others", [(Approve(), Respond(content="by hand")), (Reject(), Reject(reason="b", then="end"))]
)
def test_then_end_among_other_decisions_ends_the_run_whatever_the_order(
    driver: Driver, store: Store, order: tuple[int, ...], others: tuple[Any, Any]
) -> None:
    """then="end" beside other decisions of the same call of `resume`: no order of them matters, and nothing runs."""
    desk = Desk(driver, [[call("pay"), call("wire"), call("pay", {"amount": 2})]], store=store)
    result = driver.invoke(desk.agent, "go")
    asked = ids(result)
    answers = [others[0], Reject(reason="fraud", then="end"), others[1]]

    result = driver.resume(
        desk.agent, result.checkpoint, decisions={ids(result)[place]: answers[place] for place in order}
    )

    assert (result.status, result.output, desk.done, store.pending()) == ("rejected", None, [], [])
    told = [message.settlement for message in result.messages[2:]]
    assert told == (["cancelled", "rejected", "responded"] if others[0] == Approve() else ["rejected"] * 3)
    assert sorted(each.pending_id for each in result.checkpoint.decisions) == sorted(asked)


@pytest.mark.parametrize(
    "answers", [{"pay": Reject(then="end"), "wire": True}, {"pay": True, "wire": Reject(then="end")}]
)
def test_a_handler_that_ends_the_run_ends_it_whatever_else_it_said(
    driver: Driver, store: Store, answers: dict[str, Any]
) -> None:
    """Handler: Reject(then="end") for one of two calls, and an approval of the other: the run ends, and nothing runs."""
    desk = Desk(
        driver, [[call("pay"), call("wire")]], store=store, on_approval_required=lambda name, args: answers[name]
    )

    result = driver.invoke(desk.agent, "go")

    assert (result.status, desk.done) == ("rejected", [])
    settled = {message.tool_call_id: message.settlement for message in result.messages[2:]}
    assert sorted(settled.values()) == ["cancelled", "rejected"]


# Responding


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("paid by hand", "paid by hand"),
        ("", ""),
        ({"ok": True}, '{"ok":true}'),
        (None, "null"),
        (False, "false"),
        (0, "0"),
    ],
)
def test_respond_makes_the_human_the_tool(driver: Driver, store: Store, content: Any, told: str) -> None:
    """Respond: the tool does not run, and the content is the result. field failure 24, 84"""
    desk = Desk(driver, [call("pay"), "done"], store=store)
    result = driver.invoke(desk.agent, "go")

    result = driver.resume(desk.agent, result.checkpoint, decisions={ids(result)[0]: Respond(content=content)})

    assert (result.output, desk.done) == ("done", [])
    assert outline(result)[2] == f"tool (responded): {told}"
    assert result.checkpoint.decisions[0].content == content


# Editing


def test_edited_args_are_validated_default_filled_and_digested_anew(driver: Driver, store: Store) -> None:
    """Edited args: read as the tool reads them, under a new digest; the record keeps both; the model is told. Law 2"""
    desk = Desk(driver, [call("pay", {"amount": 5}), "done"], store=store)
    result = driver.invoke(desk.agent, "go")
    (asked,) = result.checkpoint.pending

    result = driver.resume(desk.agent, result.checkpoint, decisions={asked.id: Approve(args={"amount": "7"})})

    assert (result.output, desk.done) == ("done", ["pay 7"])
    told = desk.model.requests[1].messages[-1].text
    assert told.startswith('A human changed the arguments of this call to {"amount":7}')
    assert told.endswith("\npay 7 is done")
    assert result.messages[1].tool_calls[0].arguments == '{"amount": 5}'
    (decision,) = result.checkpoint.decisions
    assert (decision.digest, decision.args) == (asked.digest, {"amount": 7})


def test_edits_that_change_nothing_are_not_told_as_a_change(driver: Driver, store: Store) -> None:
    """Edited args that are the same as before: nothing was changed, so the model is told nothing."""
    desk = Desk(driver, [call("pay", {"amount": 5}), "done"], store=store)
    result = driver.invoke(desk.agent, "go")

    result = driver.resume(desk.agent, result.checkpoint, decisions={ids(result)[0]: Approve(args={"amount": 5})})

    assert (result.messages[2].text, desk.done) == ("pay 5 is done", ["pay 5"])


def test_edited_args_are_gated_anew(driver: Driver, store: Store) -> None:
    """Edited args: the tool's own policy is asked about them, and may reject what no human can approve."""
    gate = driver.function(lambda args: Reject(reason="over the limit") if args["amount"] > 100 else True)
    desk = Desk(driver, [call("pay", {"amount": 5}), "done"], gate=gate, store=store)
    result = driver.invoke(desk.agent, "go")
    before = rows(store)

    with pytest.raises(InvalidDecision, match="over the limit"):
        driver.resume(desk.agent, result.checkpoint, decisions={ids(result)[0]: Approve(args={"amount": 101})})

    assert (rows(store), desk.done) == (before, [])
    result = driver.resume(desk.agent, result.checkpoint, decisions={ids(result)[0]: Approve(args={"amount": 100})})
    assert (result.output, desk.done) == ("done", ["pay 100"])


@pytest.mark.parametrize(
    "args",
    [
        {"amount": "much"},
        {"amount": None},
        {"amount": 1, "to": "me"},
        {"amount": 1.5},
        {"__class__": 1},
        {"amount": [1]},
    ],
    ids=repr,
)
def test_edited_args_that_are_not_valid_are_refused(driver: Driver, store: Store, args: dict[str, Any]) -> None:
    """Edited args that the tool cannot take: a typed error, and nothing has happened."""
    desk = Desk(driver, [[call("pay", {"amount": 5}), call("wire")], "done"], store=store)
    result = driver.invoke(desk.agent, "go")
    before = rows(store)

    with pytest.raises(InvalidDecision) as caught:
        driver.resume(
            desk.agent, result.checkpoint, decisions={ids(result)[1]: Approve(), ids(result)[0]: Approve(args=args)}
        )

    assert (caught.value.pending_id, rows(store), desk.done) == (ids(result)[0], before, [])
    no = decide_first(result.checkpoint, Reject())
    assert driver.resume(desk.agent, result.checkpoint, decisions=no).suspended


# Malformed decisions


class Sly:
    """Something that says that it equals everything, and is true."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return True


def malformed(first: str, second: str) -> dict[str, tuple[type[Exception], dict[str, Any]]]:
    """Options of `resume` that are no decision, by what is wrong with them."""
    wrong: dict[str, tuple[type[Exception], dict[str, Any]]] = {
        "nothing": (NothingDecided, {}),
        "approved-none": (NothingDecided, {"approved": None}),
        "no-decisions": (NothingDecided, {"decisions": {}}),
        "only-by": (NothingDecided, {"by": "ann"}),
        "unknown-id": (UnknownPending, {"decisions": {"pend_unknown": Approve()}}),
        "empty-id": (UnknownPending, {"decisions": {"": Approve()}}),
        "unknown-beside-known": (UnknownPending, {"decisions": {first: Approve(), "pend_unknown": Approve()}}),
        "both": (InvalidDecision, {"approved": True, "decisions": {first: Approve()}}),
        "both-empty": (InvalidDecision, {"approved": True, "decisions": {}}),
        "reason-alone": (InvalidDecision, {"reason": "because"}),
        "reason-with-approval": (InvalidDecision, {"approved": True, "reason": "because"}),
        "reason-with-decisions": (InvalidDecision, {"reason": "because", "decisions": {first: Approve()}}),
        "reason-no-text": (InvalidDecision, {"approved": False, "reason": 5}),
        "by-no-text": (InvalidDecision, {"approved": True, "by": 5}),
        "by-empty": (InvalidDecision, {"approved": True, "by": ""}),
        "by-mapping": (InvalidDecision, {"approved": True, "by": {"id": "ann"}}),
        "channel-no-text": (InvalidDecision, {"approved": True, "channel": 5}),
        "decisions-list": (InvalidDecision, {"decisions": [Approve()]}),
        "decisions-text": (InvalidDecision, {"decisions": "approve"}),
        "decisions-one": (InvalidDecision, {"decisions": Approve()}),
    }
    for value in (1, 0, "yes", "", "true", "false", [], [True], {}, 1.0, Approve(), Sly()):
        wrong[f"approved-{value!r:.12}"] = (InvalidDecision, {"approved": value})
    for answer in (
        True,
        False,
        None,
        "approve",
        1,
        {},
        {"kind": "approve"},
        Defer(),
        Approve,
        Reject,
        Sly(),
        [Approve()],
    ):
        wrong[f"answer-{answer!r:.24}"] = (InvalidDecision, {"decisions": {second: answer}})
        wrong[f"answer-{answer!r:.24}-beside"] = (InvalidDecision, {"decisions": {first: Approve(), second: answer}})
    for key in (None, 1, True, b"x", ("a", "b")):
        wrong[f"key-{key!r:.12}"] = (UnknownPending, {"decisions": {key: Approve()}})
    return wrong


def test_a_malformed_decision_is_a_typed_error_and_nothing_has_happened(driver: Driver, store: Store) -> None:
    """Nothing decided, unknown id, malformed decision: a typed error; not one byte of the store has changed. Law 15"""
    desk = Desk(driver, [[call("pay"), call("wire")], "done"], store=store)
    result = driver.invoke(desk.agent, "go", thread_id="t")
    wrong, before = malformed(*ids(result)), rows(store)

    @each("kind", list(wrong))
    def refused(kind: str) -> None:
        error, options = wrong[kind]
        for given in (result.checkpoint, result.checkpoint.id):
            with pytest.raises(error):
                driver.resume(desk.agent, given, **options)
        if "channel" not in options:
            with pytest.raises(error):
                driver.step(desk.agent, result.checkpoint, **options)
        assert (rows(store), desk.done, len(desk.model.requests)) == (before, [], 1)

    refused()
    ended = driver.resume(desk.agent, result.checkpoint, decisions={id: Approve() for id in ids(result)})
    assert (ended.output, sorted(desk.done)) == ("done", ["pay 1", "wire 1"])


def test_a_malformed_decision_leaves_nothing_of_a_bearer_checkpoint(driver: Driver) -> None:
    """Nothing decided, unknown id, malformed decision, on a checkpoint from elsewhere: it is not even taken in."""
    elsewhere = Desk(driver, [[call("pay"), call("wire")]])
    text = driver.invoke(elsewhere.agent, "go").checkpoint.model_dump_json()
    given = Checkpoint.model_validate_json(text)
    desk = Desk(driver, ["done"])
    wrong = malformed(*(item.id for item in given.pending))

    @each("kind", list(wrong))
    def refused(kind: str) -> None:
        error, options = wrong[kind]
        with pytest.raises(error):
            driver.resume(desk.agent, given, **options)
        assert (desk.agent.store.branches(), desk.done) == ([], [])

    refused()


def test_a_stale_id_is_a_typed_error_and_nothing_has_happened(driver: Driver, store: Store) -> None:
    """A stale id: of a pending that was decided before, given with the old checkpoint or with the new one. RBY-A13"""
    desk = Desk(driver, [[call("pay"), call("wire")], call("pay"), "done"], store=store)
    first = driver.invoke(desk.agent, "go")
    second = driver.resume(desk.agent, first.checkpoint, decisions=decide_first(first.checkpoint), by="ann")
    before = rows(store)

    with pytest.raises(CheckpointAlreadyResumed, match="decided before") as caught:
        driver.resume(desk.agent, first.checkpoint, decisions=decide_first(first.checkpoint, Reject()))
    assert (caught.value.pending_id, caught.value.progress) == (ids(first)[0], "suspended")
    assert caught.value.decision is not None
    assert (caught.value.decision.kind, caught.value.decision.by) == ("approve", Principal(id="ann"))
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(desk.agent, first.checkpoint, decisions={id: Approve() for id in ids(first)})
    with pytest.raises(UnknownPending) as unknown:
        driver.resume(desk.agent, second.checkpoint, decisions={ids(first)[0]: Approve()})
    assert unknown.value.pending_id == ids(first)[0]

    assert (rows(store), desk.done) == (before, ["pay 1"])
    third = driver.resume(desk.agent, second.checkpoint, approved=True)
    with pytest.raises(UnknownPending):
        driver.resume(desk.agent, third.checkpoint, decisions={ids(second)[0]: Approve()})
    assert driver.resume(desk.agent, third.checkpoint, approved=True).output == "done"


def test_a_foreign_id_is_a_typed_error_and_nothing_has_happened(driver: Driver, store: Store) -> None:
    """A foreign id: of a pending of another run, which goes on waiting."""
    desk = Desk(driver, [call("pay", id="one"), call("pay", id="one"), "done", "done"], store=store)
    mine, theirs = (driver.invoke(desk.agent, "go", thread_id=name) for name in ("mine", "theirs"))
    before = rows(store)

    with pytest.raises(UnknownPending):
        driver.resume(desk.agent, mine.checkpoint, decisions={ids(theirs)[0]: Approve()})
    with pytest.raises(UnknownPending):
        driver.resume(desk.agent, theirs.checkpoint, decisions={ids(mine)[0]: Approve(), ids(theirs)[0]: Approve()})

    assert (rows(store), desk.done) == (before, [])
    assert [item.approval.id for item in store.pending()] == [ids(mine)[0], ids(theirs)[0]]
    assert driver.resume(desk.agent, theirs.checkpoint, approved=True).output == "done"
    assert [item.approval.id for item in store.pending()] == ids(mine)


@pytest.mark.parametrize("options", [{}, {"approved": True}, {"approved": False}, {"decisions": {"pend_x": Approve()}}])
def test_a_run_that_has_ended_cannot_be_decided(driver: Driver, store: Store, options: dict[str, Any]) -> None:
    """A decision on a run that has ended: a typed error, and nothing has happened. field failure 25"""
    desk = Desk(driver, [call("pay"), "done"], store=store)
    stopped = driver.invoke(desk.agent, "go")
    ended = driver.resume(desk.agent, stopped.checkpoint, approved=False)
    before = rows(store)

    with pytest.raises((CheckpointAlreadyResumed, UnknownPending)):
        driver.resume(desk.agent, ended.checkpoint, **options)
    with pytest.raises((CheckpointAlreadyResumed, UnknownPending)):
        driver.resume(desk.agent, stopped.checkpoint, **options)

    assert (rows(store), desk.done) == (before, [])
