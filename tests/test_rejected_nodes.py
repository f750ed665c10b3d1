"""A node learns of the rejection that it follows: the reason, the person and the data of the decision."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from drivers import DRIVERS, Driver
from pydantic import BaseModel

from phronomy import Approval, Approve, Checkpoint, Principal, Reject, SQLiteStore, ToolContext, interrupt
from phronomy.graph import END, START, Graph, StateGraph, append
from phronomy.stores.base import Store

ADA = Principal(id="ada", name="Ada")
SHORT = Reject(reason="too short", metadata={"words": 80})


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class Letter(BaseModel):
    log: Annotated[list[str], append]


class Review:
    """A graph whose node `revise` says what it learns of the rejections that it follows."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver, self.store = driver, store
        self.told: list[list[Any]] = []
        self.last: list[Any] = []

    def revise(self, state: Letter, context: ToolContext) -> dict[str, list[str]]:
        self.told.append([_told(each) for each in context.rejections])
        self.last.append(None if context.rejection is None else context.rejection.reason)
        assert context.decision is None
        return {"log": ["revised"]}

    def graph(self, *nodes: tuple[str, Any, dict[str, Any]]) -> Graph[Any, Any]:
        made = StateGraph(Letter).add_node("revise", self.revise).add_edge("revise", END)
        for name, body, options in nodes:
            made = made.add_node(name, body, on_rejection="revise", **options).add_edge(START, name).add_edge(name, END)
        return made.compile(name="letters", store=self.store)

    def start(self, graph: Any) -> Checkpoint:
        return self.driver.invoke(graph, {"log": []}).checkpoint

    def decide(self, graph: Any, at: Checkpoint, **answers: Any) -> Checkpoint:
        """Give the answers to what waits, by the name of what asks."""
        decisions = {item.id: answers[item.tool_name] for item in at.pending}
        return self.driver.resume(graph, at, decisions=decisions, by=ADA).checkpoint


def _told(decision: Any) -> tuple[Any, ...]:
    by = decision.by.name if decision.by is not None else None
    return decision.kind, decision.reason, by, decision.metadata


@pytest.fixture
def review(driver: Driver, store: Store) -> Review:
    return Review(driver, store)


def send(state: Letter) -> dict[str, list[str]]:
    return {"log": ["sent"]}


GATED = {"requires_approval": True}


def test_a_node_reads_why_the_one_before_it_was_rejected_and_by_whom(review: Review) -> None:
    graph = review.graph(("send", send, GATED))
    ended = review.decide(graph, review.start(graph), send=SHORT)
    assert ended.ended == "completed"
    assert (review.told, review.last) == ([[("reject", "too short", "Ada", {"words": 80})]], ["too short"])


def test_a_node_that_follows_an_approval_or_nothing_has_no_rejection(review: Review) -> None:
    graph = review.graph(("send", send, GATED))
    review.decide(graph, review.start(graph), send=Approve())
    assert review.told == []
    plain = StateGraph(Letter).add_node("revise", review.revise).add_edge(START, "revise").add_edge("revise", END)
    review.start(plain.compile(store=review.store))
    assert (review.told, review.last) == ([[]], [None])


def test_each_rejection_is_told_where_several_lead_to_one_node(review: Review) -> None:
    graph = review.graph(("one", send, GATED), ("two", send, GATED), ("three", send, GATED))
    answers = {"one": SHORT, "two": Reject(reason="too late"), "three": Approve()}
    review.decide(graph, review.start(graph), **answers)
    assert sorted(each[1] for each in review.told[0]) == ["too late", "too short"]


def test_a_node_learns_of_the_rejection_before_it_and_of_no_other(review: Review) -> None:
    """Rejected, revised, and rejected again: each time the node reads the last reason."""
    made = StateGraph(Letter).add_node("revise", review.revise).add_edge("revise", "send")
    made = made.add_node("send", send, on_rejection="revise", **GATED).add_edge(START, "send").add_edge("send", END)
    graph = made.compile(store=review.store)
    at = review.start(graph)
    for reason in ("too short", "too long"):
        at = review.decide(graph, at, send=Reject(reason=reason))
    review.decide(graph, at, send=Approve())
    assert review.last == ["too short", "too long"]
    assert [len(each) for each in review.told] == [1, 1]


def ask(state: Letter) -> dict[str, list[str]]:
    return {"log": [str(interrupt("Is it good?"))]}


def test_a_question_that_is_rejected_is_one(review: Review) -> None:
    graph = review.graph(("ask", ask, {}))
    at = review.start(graph)
    review.decide(graph, at, **{at.pending[0].tool_name: SHORT})
    assert review.last == ["too short"]


def test_a_request_that_expired_is_told_as_that(review: Review) -> None:
    graph = review.graph(("send", send, {**GATED, "approval_timeout": 10}))
    at = review.start(graph)
    now = review.store.clock()
    review.store.clock = lambda: now + 20
    review.driver.recover(graph, at.run_id)  # type: ignore[arg-type]
    assert review.told == [[("expire", None, None, {})]]


def test_the_last_vote_of_several_is_the_rejection(review: Review) -> None:
    graph = review.graph(("send", send, {"requires_approval": Approval(rejections=2)}))
    at = review.start(graph)
    [item] = at.pending
    review.store.decide(item.id, Reject(reason="no"), by="ben", digest=item.digest)
    review.store.decide(item.id, SHORT, by="ada", digest=item.digest)
    review.driver.recover(graph, at.run_id)  # type: ignore[arg-type]
    assert review.last == ["too short"]


def test_a_rejection_by_code_has_no_decision(review: Review) -> None:
    graph = review.graph(("send", send, {"requires_approval": lambda state: Reject(reason="never")}))
    review.start(graph)
    assert (review.told, review.last) == ([[]], [None])


def test_a_node_of_an_inner_graph_learns_of_it_too(review: Review) -> None:
    inner = review.graph(("send", send, GATED))
    outer = StateGraph(Letter).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END)
    graph = outer.compile(name="outer", store=review.store)
    review.decide(graph, review.start(graph), send=SHORT)
    assert review.last == ["too short"]


def test_another_process_reads_it_after_a_crash(driver: Driver, tmp_path: Any) -> None:
    """The node breaks off, and runs again in another process, from the rows alone."""
    path = tmp_path / "runs.db"
    first = Review(driver, SQLiteStore(path))
    broken = first.graph(("send", send, GATED))
    at = first.start(broken)

    def breaks(state: Letter, context: ToolContext) -> dict[str, list[str]]:
        raise RuntimeError("lost")

    first.revise = breaks  # type: ignore[method-assign]
    with pytest.raises(Exception, match="revise"):
        first.decide(first.graph(("send", send, GATED)), at, send=SHORT)
    second = Review(driver, SQLiteStore(path))
    graph = second.graph(("send", send, GATED))
    stopped = second.store.head(at.run_id)[1]
    assert Checkpoint.model_validate_json(stopped.model_dump_json()) == stopped
    driver.resume(graph, stopped.id)  # type: ignore[arg-type]
    assert second.last == ["too short"]
