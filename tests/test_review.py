"""What the person who decides is shown beside the arguments, and which answers a request takes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import pytest
from drivers import PATIENCE, Driver
from places import Place
from stop_scenes import elsewhere

from phronomy import (
    Agent,
    Approval,
    Approve,
    Breakpoint,
    Checkpoint,
    ConfigurationError,
    Defer,
    Message,
    Principal,
    Reject,
    Respond,
    Skip,
    ToolContext,
    ToolDefinitionError,
    interrupt,
    tool,
)
from phronomy.approvals import PendingApproval, ShownMessage
from phronomy.errors import (
    ApprovalHandlerError,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    InvalidDecision,
    RunFailed,
)
from phronomy.graph import END, START, StateGraph
from phronomy.runs.wire import to_wire
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say

pytestmark = pytest.mark.worlds(2)

RITA = Principal(id="rita", name="Rita")


class State(TypedDict, total=False):
    """The state of a graph that pays."""

    sum: int
    paid: int


class Desk:
    """Refunds orders, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[tuple[int, float]] = []

    def open(self) -> Store:
        return self.place.open()

    def tool(self, requires_approval: Any, **options: Any) -> Any:
        """The tool that pays."""

        def refund(order: int, amount: float = 5.0, card: str = "") -> str:
            """Refund an order.

            In euros.
            """
            self.paid.append((order, amount))
            return f"order {order}: {amount} euros"

        return tool(requires_approval=requires_approval, **options)(self.driver.function(refund))

    def agent(self, requires_approval: Any, *replies: Any, options: Any = None, **of_agent: Any) -> Agent[Any, str]:
        replies = replies or (call("refund", {"order": 1042}), "Done.")
        tools = [self.tool(requires_approval, **(options or {}))]
        return Agent(name="desk", model=ScriptedModel.by_turn([*replies]), tools=tools, store=self.open(), **of_agent)

    def asked(self, agent: Any, input: Any = "Refund 1042, please", **options: Any) -> Checkpoint:
        """A run that waits."""
        checkpoint: Checkpoint = self.driver.invoke(agent, input, **options).checkpoint
        return checkpoint

    def text(self, body: Any) -> Any:
        """The function as one of the driver's kind."""
        return self.driver.function(body)


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def waiting(desk: Desk) -> PendingApproval:
    """What waits, as somebody sees it who has the store alone."""
    return desk.open().pending()[0].approval


# What is shown


def test_a_title_and_a_context_are_shown_with_the_request_and_say_what_the_tool_is(desk: Desk) -> None:
    def title(args: Mapping[str, Any]) -> str:
        return f"Refund order {args['order']}"

    def context(args: Mapping[str, Any], context: ToolContext[Any]) -> str:
        return f"{args['amount']} euros, for {context.deps['customer']}, by {context.tool_name}"

    asks = Approval(title=desk.text(title), context=desk.text(context))
    desk.asked(desk.agent(asks), deps={"customer": "Ada"})
    shown = waiting(desk)
    assert (shown.title, shown.context) == ("Refund order 1042", "5.0 euros, for Ada, by refund")
    request = desk.driver.call(desk.open(), "request", shown.id)  # type: ignore[arg-type]
    assert request.approval == shown
    assert request.description == "Refund an order.\n\nIn euros."
    assert request.schema["properties"].keys() == {"order", "amount", "card"}


def test_what_is_shown_stays_with_the_request_after_it_was_decided(desk: Desk) -> None:
    agent = desk.agent(Approval(title="Refund", context="From the shop's account", answers=["approve", "reject"]))
    asked = desk.asked(agent)
    shown = waiting(desk)
    result = desk.driver.resume(agent, asked, approved=True)
    assert result.status == "completed"
    request = desk.driver.call(desk.open(), "request", shown.id)  # type: ignore[arg-type]
    assert (request.status, request.approval, request.description) == (
        "settled",
        shown,
        "Refund an order.\n\nIn euros.",
    )
    # Of no use any more, and so not in the record of what follows.
    assert [each.brief for each in desk.open().load(result.checkpoint.id).calls] == []


def test_a_text_never_holds_what_the_tool_redacts(desk: Desk) -> None:
    def title(args: Mapping[str, Any]) -> str:
        return f"Refund {args['order']} to {args['card']}"

    agent = desk.agent(
        Approval(title=desk.text(title)),
        call("refund", {"order": 1, "card": "4242-4242"}),
        "Done.",
        options={"redact": {"card"}},
    )
    desk.asked(agent)
    assert waiting(desk).title == "Refund 1 to [redacted]"
    assert waiting(desk).args["card"] == "4242-4242"
    assert "4242" not in repr(waiting(desk))


@pytest.mark.parametrize(
    ("wrong", "told"), [(lambda args: 1 / 0, "raised ZeroDivisionError"), (lambda args: 5, "returned int")]
)
def test_a_text_that_cannot_be_made_is_left_out_and_a_human_is_asked_all_the_same(
    wrong: Any, told: str, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "phronomy"):
        desk.asked(desk.agent(Approval(title=desk.text(wrong), context="All else is there.")))
    assert (waiting(desk).title, waiting(desk).context) == (None, "All else is there.")
    assert told in caplog.text
    assert "the title of the approval of tool refund" in caplog.text


def test_texts_that_are_too_long_are_cut_and_one_of_none_is_none(desk: Desk) -> None:
    desk.asked(desk.agent(Approval(title=desk.text(lambda args: "t" * 500), context=desk.text(lambda args: None))))
    shown = waiting(desk)
    assert (len(shown.title or ""), (shown.title or "")[-1], shown.context) == (200, "…", None)


def test_the_title_of_the_tool_comes_first_and_the_contexts_of_all_who_ask_are_shown(desk: Desk) -> None:
    agent = desk.agent(
        Approval(title="Refund", context="The tool says this."),
        approval_policy={
            "ref*": Approval(title="Never shown", context="The agent says that."),
            "refund": Approval(when=lambda args: args["amount"] > 100, context="Not this time."),
        },
    )
    desk.asked(agent)
    assert waiting(desk).title == "Refund"
    assert waiting(desk).context == "The tool says this.\n\nThe agent says that."


def test_a_policy_alone_can_say_what_a_human_is_shown(desk: Desk) -> None:
    rule = Approval(when=desk.text(lambda args: args["amount"] < 10), title="Small", answers=["approve", "reject"])
    asked = desk.asked(desk.agent(False, approval_policy={"refund": rule}))
    shown = waiting(desk)
    assert (shown.title, shown.answers, shown.reason) == (
        "Small",
        ("approve", "reject"),
        "The approval policy of desk (refund) asks for an approval.",
    )
    assert asked.pending[0] == shown


def test_an_approval_with_a_predicate_lets_other_calls_run_unasked(desk: Desk) -> None:
    asks = Approval(when=desk.text(lambda args: args["amount"] > 100), title="Much")
    replies = (call("refund", {"order": 1, "amount": 5}), call("refund", {"order": 2, "amount": 500}), "Done.")
    desk.asked(desk.agent(asks, *replies))
    assert (desk.paid, waiting(desk).args["order"], waiting(desk).title) == ([(1, 5.0)], 2, "Much")


# Who asked for the run


def test_who_asked_for_the_run_is_shown_with_each_of_its_requests_and_of_those_inside_it(
    desk: Desk, driver: Driver
) -> None:
    inner = desk.agent(True)
    outer = Agent(
        name="front",
        model=ScriptedModel.by_turn([call("desk", {"input": "Refund 1042"}), "Done."]),
        tools=[inner.as_tool()],
        store=desk.open(),
    )
    asked = desk.asked(outer, requester=RITA)
    assert asked.requester == RITA
    shown = waiting(desk)
    assert (shown.agent, shown.requester) == ("desk", RITA)
    # Over a fork, and another process.
    forked = driver.fork(outer, asked)
    assert (forked.requester, forked.pending[0].requester) == (RITA, RITA)
    assert to_wire(shown)["requester"] == {"id": "rita", "name": "Rita", "kind": "human", "roles": []}


def test_a_question_says_who_asked_for_the_run(desk: Desk, driver: Driver) -> None:
    def ask() -> str:
        """Ask."""
        return str(interrupt("Really?", answer=bool))

    agent = Agent(
        name="asker",
        model=ScriptedModel.by_turn([call("ask", {}), "Done."]),
        tools=[tool(driver.function(ask))],
        store=desk.open(),
    )
    desk.asked(agent, requester="rita")
    assert waiting(desk).requester == Principal(id="rita")


def test_a_run_of_nobody_has_no_requester_and_one_of_nonsense_is_refused(desk: Desk) -> None:
    agent = desk.agent(True)
    assert desk.asked(agent).requester is None
    with pytest.raises(ConfigurationError, match="requester is a Principal"):
        desk.asked(agent, requester=7)
    assert len(desk.open().branches()) == 1


# The conversation


def test_the_last_messages_are_shown_if_the_agent_says_so(desk: Desk) -> None:
    say_and_call = say("I refund it.", call("refund", {"order": 1, "card": "4242"}))
    agent = desk.agent(True, say_and_call, "Done.", review_messages=2, options={"redact": {"card"}})
    desk.asked(agent)
    assert waiting(desk).conversation == (
        ShownMessage(role="user", text="Refund 1042, please"),
        ShownMessage(role="assistant", text="I refund it.", tools=("refund",)),
    )
    assert "4242" not in waiting(desk).model_dump_json(include={"conversation"})


def test_a_function_chooses_the_messages_and_results_of_tools_that_redact_stay_hidden(desk: Desk) -> None:
    @tool
    def look(order: int) -> str:
        """Look."""
        return "it is paid"

    @tool(redact={"name"})
    def find(name: str) -> str:
        """Find."""
        return f"{name} lives in Rome"

    def chosen(messages: Sequence[Message]) -> list[Message]:
        return [message for message in messages if message.role == "tool"]

    model = ScriptedModel.by_turn(
        [call("look", {"order": 1}), call("find", {"name": "Ada"}), call("refund", {"order": 1}), "Done."]
    )
    agent = Agent(
        name="desk", model=model, tools=[desk.tool(True), look, find], store=desk.open(), review_messages=chosen
    )
    desk.asked(agent)
    assert waiting(desk).conversation == (
        ShownMessage(role="tool", text="it is paid", tools=("look",)),
        ShownMessage(role="tool", text="[redacted]", tools=("find",)),
    )


def test_a_function_that_chooses_no_messages_leaves_them_out(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.asked(desk.agent(True, review_messages=lambda messages: ["no message"]))
    assert waiting(desk).conversation == ()
    assert "review_messages returned list" in caplog.text


@pytest.mark.parametrize("wrong", [-1, 51, True, "all", None])
def test_review_messages_are_a_number_or_a_function(wrong: Any, desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="review_messages is a number of messages, 0 to 50"):
        desk.asked(desk.agent(True, review_messages=wrong))


# Which answers it takes

SHOWN: dict[str, Any] = {"order": 1042, "amount": 5.0, "card": ""}


@pytest.mark.parametrize(
    ("allowed", "answer", "told"),
    [
        (["approve", "reject"], Approve(args={**SHOWN, "amount": 1.0}), "the arguments cannot be edited"),
        (["approve", "reject"], Respond(content="it is done"), "'respond' is not allowed"),
        (["edit", "respond"], Approve(), "'approve' is not allowed"),
        (["approve"], Reject(), "'reject' is not allowed"),
    ],
)
def test_an_answer_that_the_request_does_not_allow_is_refused_by_agent_and_store(
    allowed: list[Any], answer: Any, told: str, desk: Desk
) -> None:
    agent = desk.agent(Approval(answers=allowed))
    desk.asked(agent)
    shown = waiting(desk)
    assert shown.answers == tuple(allowed)
    store: Any = desk.open()
    with pytest.raises(InvalidDecision, match=told) as refused:
        desk.driver.call(store, "decide", shown.id, answer, by=RITA, digest=shown.digest)
    assert refused.value.pending_id == shown.id
    with pytest.raises(InvalidDecision, match=told):
        desk.driver.call(agent, "decide", shown.id, answer)
    assert (desk.paid, waiting(desk)) == ([], shown)


@pytest.mark.parametrize("outside", [False, True])
def test_an_answer_that_is_allowed_counts_and_arguments_as_shown_are_no_edit(outside: bool, desk: Desk) -> None:
    agent = desk.agent(Approval(answers=("approve", "reject")))
    desk.asked(agent)
    shown = waiting(desk)
    target: Any = desk.open() if outside else agent
    desk.driver.call(target, "decide", shown.id, Approve(args=shown.args), by=RITA, digest=shown.digest)
    desk.driver.call(agent, "recover_all")
    assert desk.paid == [(1042, 5.0)]


def test_an_edit_alone_may_be_allowed(desk: Desk) -> None:
    agent = desk.agent(Approval(answers=["edit", "reject"]))
    asked = desk.asked(agent)
    edited = Approve(args={**SHOWN, "amount": 1.0})
    assert desk.driver.resume(agent, asked, decisions={asked.pending[0].id: edited}).status == "completed"
    assert desk.paid == [(1042, 1.0)]


def test_only_what_all_who_ask_allow_is_allowed(desk: Desk) -> None:
    agent = desk.agent(
        Approval(answers=["approve", "edit", "reject"]), approval_policy={"*": Approval(answers=["reject", "approve"])}
    )
    desk.asked(agent)
    assert waiting(desk).answers == ("approve", "reject")


def test_where_all_who_ask_allow_nothing_in_common_the_call_can_be_rejected(desk: Desk) -> None:
    agent = desk.agent(Approval(answers=["approve"]), approval_policy={"*": Approval(answers=["respond"])})
    desk.asked(agent)
    assert waiting(desk).answers == ("reject",)


def test_a_handler_may_not_give_an_answer_that_is_not_allowed(desk: Desk) -> None:
    agent = desk.agent(
        Approval(answers=["approve", "reject"]),
        on_approval_required=desk.text(lambda name, args: Approve(args={**args, "amount": 0.5})),
    )
    with pytest.raises(ApprovalHandlerError, match="the arguments cannot be edited"):
        desk.asked(agent)
    assert desk.paid == []


def test_a_handler_that_defers_leaves_the_request_as_it_is(desk: Desk) -> None:
    agent = desk.agent(
        Approval(title="Refund", answers=["approve"]), on_approval_required=desk.text(lambda name, args: Defer())
    )
    desk.asked(agent)
    assert (waiting(desk).title, waiting(desk).answers) == ("Refund", ("approve",))


def test_it_holds_at_a_breakpoint_and_after_it_where_a_call_can_be_skipped_too(desk: Desk) -> None:
    agent = desk.agent(
        Approval(title="Refund", answers=["approve", "reject"]),
        breakpoints=[Breakpoint("pre_tool_call")],
        on_approval_required=desk.text(lambda name, args: Defer()),
    )
    asked = desk.asked(agent)
    (stop,) = asked.pending
    assert (stop.why, stop.title, stop.answers) == ("breakpoint", "Refund", ("approve", "reject"))
    for answer in (Respond(content="done"), Approve(args={**SHOWN, "amount": 1.0})):
        with pytest.raises(InvalidDecision):
            desk.driver.resume(agent, asked, decisions={stop.id: answer})
    on = desk.driver.resume(agent, asked, decisions={stop.id: Approve()}).checkpoint
    (request,) = on.pending
    assert (request.why, request.title, request.answers) == ("approval", "Refund", ("approve", "reject"))
    again = desk.asked(agent)
    skipped = desk.driver.resume(agent, again, decisions={again.pending[0].id: Skip()})
    assert (skipped.status, desk.paid) == ("completed", [])


def test_it_holds_for_a_call_that_failed_and_for_the_request_after_an_edit_that_did_not_pass(desk: Desk) -> None:
    def broken(order: int) -> str:
        """Break."""
        raise RuntimeError("no")

    gated = tool(requires_approval=Approval(title="Break", answers=["approve", "reject"]), on_failure="human")
    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("broken", {"order": 1}), "Done."]),
        tools=[gated(desk.driver.function(broken))],
        store=desk.open(),
    )
    asked = desk.asked(agent)
    failed = desk.driver.resume(agent, asked, approved=True).checkpoint.pending[0]
    assert (failed.why, failed.title, failed.answers) == ("failed", "Break", ("approve", "reject"))
    with pytest.raises(InvalidDecision, match="'respond' is not allowed"):
        desk.driver.call(agent, "decide", failed.id, Respond(content="it is done"))


def test_an_edited_call_that_stops_again_is_described_anew(desk: Desk) -> None:
    asks = Approval(title=desk.text(lambda args: f"Refund {args['amount']}"))
    handler = desk.text(lambda name, args: Defer())
    agent = desk.agent(asks, breakpoints=[Breakpoint("pre_tool_call")], on_approval_required=handler)
    asked = desk.asked(agent)
    edit = Approve(args={**SHOWN, "amount": 3.0})
    after = desk.driver.resume(agent, asked, decisions={asked.pending[0].id: edit}).checkpoint
    assert [item.title for item in after.pending] == ["Refund 3.0"]


# Where it may stand


def test_a_node_of_a_graph_takes_one_whose_functions_read_the_state(desk: Desk, driver: Driver) -> None:
    def pay(state: dict[str, Any]) -> dict[str, Any]:
        return {"paid": state["sum"]}

    graph = StateGraph(State, name="payments")
    asks = Approval(
        when=driver.function(lambda state: state["sum"] > 10),
        title=driver.function(lambda state: f"Pay {state['sum']}"),
        answers=["approve", "reject"],
    )
    graph.add_node("pay", driver.function(pay), requires_approval=asks)
    graph.add_edge(START, "pay")
    graph.add_edge("pay", END)
    compiled = graph.compile(store=desk.open())
    assert driver.invoke(compiled, {"sum": 5}).output["paid"] == 5  # type: ignore[arg-type]
    asked = driver.invoke(compiled, {"sum": 50}).checkpoint  # type: ignore[arg-type]
    assert (waiting(desk).title, waiting(desk).answers) == ("Pay 50", ("approve", "reject"))
    assert driver.resume(compiled, asked, approved=True).output["paid"] == 50  # type: ignore[arg-type]


def test_an_agent_as_a_tool_and_a_handoff_take_one(desk: Desk) -> None:
    inner = desk.agent(False)
    outer = Agent(
        name="front",
        model=ScriptedModel.by_turn([call("desk", {"input": "x"}), "Done."]),
        tools=[inner.as_tool(requires_approval=Approval(title="Ask the desk"))],
        store=desk.open(),
    )
    desk.asked(outer)
    assert waiting(desk).title == "Ask the desk"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"when": 1}, "when is exactly True"),
        ({"title": ""}, "title is a text of 1 to 200 characters"),
        ({"title": "t" * 201}, "title is a text of 1 to 200 characters, not 201"),
        ({"context": 5}, "context is a text, or a function"),
        ({"answers": []}, "answers are one or more of approve, edit, reject, respond"),
        ({"answers": ["aprove"]}, "answers are one or more of approve, edit, reject, respond, in a list, not 'aprove'"),
        ({"answers": "approve"}, "answers are one or more of"),
    ],
)
def test_an_approval_says_what_is_wrong_with_it(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Approval(**wrong)


def test_a_text_takes_the_arguments_and_an_external_tool_its_result() -> None:
    with pytest.raises(ToolDefinitionError, match="the title of the approval of tool pay must take"):

        @tool(requires_approval=Approval(title=lambda: "Pay"))  # type: ignore[misc,arg-type]
        def pay() -> str:
            """Pay."""
            return ""

    with pytest.raises(ToolDefinitionError, match="the answers of its Approval need 'respond'"):

        @tool(external=True, requires_approval=Approval(answers=["reject"]))
        def choose() -> str:
            """Choose."""
            raise NotImplementedError


# An idempotency key, with the agent


def test_the_same_decision_with_the_same_key_is_the_same_answer(desk: Desk) -> None:
    agent = desk.agent(True)
    desk.asked(agent)
    shown = waiting(desk)
    given: dict[str, Any] = {"by": RITA, "key": "form-1", "digest": shown.digest}
    first = desk.driver.call(agent, "decide", shown.id, Approve(), **given)
    second = desk.driver.call(agent, "decide", shown.id, Approve(), **given)
    assert (first.output, second.output, desk.paid) == ("Done.", "Done.", [(1042, 5.0)])
    store: Any = desk.open()
    third = desk.driver.call(store, "decide", shown.id, Approve(), **given)
    assert (third.status, third.decision.key) == ("settled", "form-1")
    for other in ({"key": "form-2"}, {"key": None}, {"by": "otto"}, {"digest": "0" * 64}):
        with pytest.raises(CheckpointAlreadyResumed):
            desk.driver.call(agent, "decide", shown.id, Approve(), **{**given, **other})
    with pytest.raises(CheckpointAlreadyResumed):
        desk.driver.call(agent, "decide", shown.id, Reject(), **given)
    with pytest.raises(InvalidDecision, match="key is text"):
        desk.driver.call(agent, "decide", shown.id, Approve(), **{**given, "key": ""})
    assert desk.paid == [(1042, 5.0)]


def test_the_same_decision_again_carries_out_what_was_decided_with_the_store_alone(desk: Desk) -> None:
    agent = desk.agent(True)
    desk.asked(agent)
    shown = waiting(desk)
    given: dict[str, Any] = {"by": RITA, "key": "form-1", "digest": shown.digest}
    store: Any = desk.open()
    assert desk.driver.call(store, "decide", shown.id, Approve(), **given).status == "decided"
    assert desk.driver.call(agent, "decide", shown.id, Approve(), **given).output == "Done."
    assert desk.paid == [(1042, 5.0)]


def test_the_same_decision_again_goes_on_with_a_run_that_failed(desk: Desk) -> None:
    def flaky(order: int) -> str:
        """Work the second time."""
        desk.paid.append((order, 0.0))
        if len(desk.paid) == 1:
            raise RuntimeError("not yet")
        return "paid"

    gated = tool(requires_approval=True, on_failure="stop", idempotent=True)(desk.driver.function(flaky))
    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("flaky", {"order": 1}), "Done."]),
        tools=[gated],
        store=desk.open(),
    )
    desk.asked(agent)
    given: dict[str, Any] = {"by": RITA, "key": "form-1"}
    with pytest.raises(RunFailed):
        desk.driver.call(agent, "decide", waiting(desk).id, Approve(), **given)
    (line,) = desk.open().audit()
    assert desk.driver.call(agent, "decide", line.pending_id, Approve(), **given).output == "Done."


def test_the_same_decision_again_does_not_wait_for_a_worker_that_carries_it_out(desk: Desk) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(order: int) -> str:
        """Take long."""
        entered.set()
        assert leave.wait(PATIENCE)
        return "paid"

    def agent() -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("slow", {"order": 1}), "Done."])
        gated = tool(requires_approval=True)(desk.driver.function(slow))
        return Agent(name="desk", model=model, tools=[gated], store=desk.open())

    desk.asked(agent())
    pending_id = waiting(desk).id
    given: dict[str, Any] = {"by": RITA, "key": "form-1"}
    with elsewhere(lambda: desk.driver.call(agent(), "decide", pending_id, Approve(), **given)) as first:
        assert entered.wait(PATIENCE)
        second = desk.driver.call(agent(), "decide", pending_id, Approve(), **given)
        assert (second.status, second.checkpoint.run_id) == ("running", desk.open().branches()[0].run_id)
        leave.set()
        assert first.result(PATIENCE).output == "Done."


def test_what_was_decided_before_by_a_run_that_is_gone_is_told_so(desk: Desk) -> None:
    agent = desk.agent(True)
    asked = desk.asked(agent)
    given: dict[str, Any] = {"by": RITA, "key": "form-1"}
    desk.driver.call(agent, "decide", asked.pending[0].id, Approve(), **given)
    assert desk.open().delete(asked.run_id)
    with pytest.raises(CheckpointNotFound):
        desk.driver.call(agent, "decide", asked.pending[0].id, Approve(), **given)


# What follows from an edit

MUCH = Approval(when=lambda args: args["amount"] > 100, title="Much", answers=["reject"])


@pytest.mark.parametrize("outside", [False, True])
def test_an_edit_that_others_ask_about_needs_their_leave_too(outside: bool, desk: Desk) -> None:
    agent = desk.agent(True, approval_policy={"refund": MUCH})
    desk.asked(agent)
    shown = waiting(desk)
    edit = Approve(args={**SHOWN, "amount": 500.0})
    if outside:
        store: Any = desk.open()
        desk.driver.call(store, "decide", shown.id, edit, by=RITA, digest=shown.digest)
        desk.driver.call(agent, "recover_all")
        assert "the arguments cannot be edited" in (waiting(desk).reason or "")
    else:
        with pytest.raises(InvalidDecision, match="the arguments cannot be edited"):
            desk.driver.call(agent, "decide", shown.id, edit)
    assert desk.paid == []
    assert waiting(desk).args == shown.args


def test_a_call_that_fails_after_an_edit_is_described_as_it_was_run(desk: Desk) -> None:
    def broken(order: int) -> str:
        """Break."""
        raise RuntimeError("no")

    asks = Approval(title=desk.text(lambda args: f"Break {args['order']}"))
    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("broken", {"order": 1}), "Done."]),
        tools=[tool(requires_approval=asks, on_failure="human")(desk.driver.function(broken))],
        store=desk.open(),
    )
    asked = desk.asked(agent)
    edit = Approve(args={"order": 500})
    failed = desk.driver.resume(agent, asked, decisions={asked.pending[0].id: edit}).checkpoint.pending[0]
    assert (failed.why, failed.args, failed.title) == ("failed", {"order": 500}, "Break 500")


def test_an_edit_at_a_breakpoint_of_a_nested_run_asks_with_the_words_of_what_was_edited(desk: Desk) -> None:
    asks = Approval(title=desk.text(lambda args: f"Refund {args['amount']}"))
    inner = desk.agent(asks, approval_policy={"refund": MUCH}, on_approval_required=desk.text(lambda *_: Defer()))
    outer = Agent(
        name="front",
        model=ScriptedModel.by_turn([call("desk", {"input": "Refund"}), "Done."]),
        tools=[inner.as_tool()],
        store=desk.open(),
        breakpoints=[Breakpoint("pre_tool_call", tools=["refund"])],
    )
    asked = desk.asked(outer)
    (stop,) = asked.pending
    assert (stop.why, stop.title) == ("breakpoint", "Refund 5.0")
    edit = Approve(args={**SHOWN, "amount": 500.0})
    (again,) = desk.driver.resume(outer, asked, decisions={stop.id: edit}).checkpoint.pending
    assert (again.why, again.args["amount"], again.title, again.answers) == (
        "approval",
        500.0,
        "Refund 500.0",
        ("reject",),
    )
    with pytest.raises(InvalidDecision, match="'approve' is not allowed"):
        desk.driver.call(outer, "decide", again.id, Approve())
    assert desk.paid == []


def test_a_call_that_needed_no_approval_and_fails_takes_what_its_tool_allows(desk: Desk) -> None:
    def broken(order: int) -> str:
        """Break."""
        raise RuntimeError("no")

    asks = Approval(when=desk.text(lambda args: args["order"] > 100), title="Break", answers=["approve", "reject"])
    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("broken", {"order": 1}), "Done."]),
        tools=[tool(requires_approval=asks, on_failure="human")(desk.driver.function(broken))],
        store=desk.open(),
    )
    (failed,) = desk.asked(agent).pending
    assert (failed.why, failed.title, failed.answers) == ("failed", "Break", ("approve", "reject"))
    for answer in (Respond(content="forged"), Approve(args={"order": 500})):
        with pytest.raises(InvalidDecision):
            desk.driver.call(agent, "decide", failed.id, answer)


def test_a_call_is_let_go_on_at_a_breakpoint_whatever_its_approval_allows(desk: Desk) -> None:
    never = Approval(when=desk.text(lambda args: False), answers=["reject"])
    agent = desk.agent(never, breakpoints=[Breakpoint("tool")])
    asked = desk.asked(agent)
    assert asked.pending[0].why == "breakpoint"
    assert desk.driver.resume(agent, asked).status == "completed"
    assert desk.paid == [(1042, 5.0)]


def test_a_key_is_that_of_one_person_and_of_all_that_was_said(desk: Desk) -> None:
    agent = desk.agent(True)
    desk.asked(agent)
    shown = waiting(desk)
    with pytest.raises(InvalidDecision, match="key goes with by"):
        desk.driver.call(agent, "decide", shown.id, Approve(), key="form-1")
    given: dict[str, Any] = {"by": RITA, "key": "form-1", "input": "And write to her."}
    first = desk.driver.call(agent, "decide", shown.id, Approve(), **given)
    assert desk.driver.call(agent, "decide", shown.id, Approve(), **given).checkpoint.id == first.checkpoint.id
    for other in ({"input": "And do not."}, {"input": None}, {"by": Principal(id="rita", kind="service")}):
        with pytest.raises(CheckpointAlreadyResumed):
            desk.driver.call(agent, "decide", shown.id, Approve(), **{**given, **other})


# What is not to be seen


def test_the_input_of_a_nested_run_is_hidden_where_the_call_around_it_redacts_it(desk: Desk) -> None:
    inner = desk.agent(True, review_messages=5)
    outer = Agent(
        name="front",
        model=ScriptedModel.by_turn([call("desk", {"input": "secret-4242"}), "Done."]),
        tools=[inner.as_tool(redact={"input"})],
        store=desk.open(),
    )
    desk.asked(outer)
    assert waiting(desk).conversation[0] == ShownMessage(role="user", text="[redacted]")


def test_a_result_is_hidden_if_any_agent_of_the_run_has_a_tool_of_that_name_that_redacts(desk: Desk) -> None:
    @tool(redact={"name"})
    def find(name: str) -> str:
        """Find."""
        return f"account {name} found"

    def namesake(name: str) -> str:
        """Find."""
        return name

    second = Agent(
        name="second",
        model=ScriptedModel([call("refund", {"order": 1}), "Done."]),
        tools=[desk.tool(True), tool(name="find")(desk.text(namesake))],
        review_messages=9,
    )
    first = Agent(
        name="first",
        model=ScriptedModel([call("find", {"name": "4242"}), call("transfer_to_second", {})]),
        tools=[find],
        handoffs=[second],
        store=desk.open(),
    )
    desk.asked(first)
    assert "4242" not in waiting(desk).model_dump_json(include={"conversation"})
