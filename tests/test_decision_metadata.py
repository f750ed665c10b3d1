"""Data that an application gives with a decision: kept with it and read back everywhere, and it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from chat_scenes import approvals_of, emptied, with_people
from drivers import DRIVERS, SYNC, Driver, run
from inbox_api_scenes import api_of, bearer, inbox_by_token
from inbox_scenes import Visitor, inbox_of
from inbox_scenes import asked as asked_by_desk
from pydantic import BaseModel, ValidationError
from tables import each

from phronomy import (
    Agent,
    Approval,
    Approve,
    AuditRecord,
    Breakpoint,
    Checkpoint,
    Decision,
    Hold,
    InvalidDecision,
    MemoryStore,
    Principal,
    Reject,
    Respond,
    SQLiteStore,
    ToolContext,
    cli,
    tool,
)
from phronomy.approvals import Answer, read_answer
from phronomy.approvals.answers import answer_digest
from phronomy.foundation.quoting import HIDDEN
from phronomy.graph import END, START, StateGraph
from phronomy.inbox import AsyncInboxClient
from phronomy.inbox.client.asks import batch, body_of
from phronomy.observability.timeline import TimelineRecorder, timeline
from phronomy.records.approvers import Vote
from phronomy.records.record import MOST_METADATA
from phronomy.stores.base import Store
from phronomy.stores.derived.batches import Answered
from phronomy.teams.patterns import sequential
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeReceiver
from phronomy.wire import to_wire

GIVEN = {"ticket": "T-4711", "score": 5.0, "tags": ["a", None, True], "more": {"é": 1e22, "big": 2**63}}
OTHER = {"ticket": "T-4712"}
APPROVED = Approve(metadata=GIVEN)


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


# Answers


@each("answer", [Approve(metadata=GIVEN), Reject(metadata=GIVEN), Respond(content=None, metadata=GIVEN)])
def test_an_answer_keeps_its_metadata_as_they_were_given(answer: Answer) -> None:
    plain = answer.evolve(metadata="{}")
    assert json.dumps(answer.metadata) == json.dumps(GIVEN)
    answer.metadata["more"]["é"] = 0
    assert answer.metadata == GIVEN
    with pytest.raises(ValidationError, match="frozen"):
        answer.metadata = {}
    text = answer.model_dump_json()
    assert json.loads(text)["metadata"] == GIVEN
    assert read_answer(text) == answer
    assert "T-4711" not in repr(answer)
    assert answer_digest(answer, "d") == answer_digest(plain, "d")
    assert "metadata" not in plain.model_dump_json()


@each(
    "metadata, why",
    [
        (["T-1"], "an object"),
        ("T-1", "an object"),
        (7, "an object"),
        ({1: "a"}, "key of type int"),
        ({"a": object()}, "type object"),
        ({"a": {"b": {1, 2}}}, "type set"),
        ({"a": float("nan")}, "not a finite number"),
        ({"a": "x" * MOST_METADATA}, f"16,392 bytes of JSON, and at most {MOST_METADATA:,}"),
        ({"a": "é" * (MOST_METADATA // 2)}, "16,392 bytes"),
    ],
)
def test_what_is_no_small_json_object_is_refused_and_not_quoted(metadata: Any, why: str) -> None:
    for kind, more in ((Approve, {}), (Reject, {}), (Respond, {"content": 1})):
        with pytest.raises(InvalidDecision, match=why) as refused:
            kind(metadata=metadata, **more)
        assert str(refused.value).startswith(f"{kind.__name__}: metadata: ") and "T-1" not in str(refused.value)


def test_the_largest_metadata_fit_and_nothing_is_nothing() -> None:
    assert len(Approve(metadata={"a": "x" * (MOST_METADATA - 8)}).json_text("metadata")) == MOST_METADATA
    assert Approve(metadata=None) == Approve(metadata={}) == Approve()  # type: ignore[arg-type]
    for text in ('{"kind":"skip","metadata":{}}', '{"metadata":{"a":1}}', '{"kind":"approve","metadata":[]}'):
        with pytest.raises(InvalidDecision, match="this is no answer"):
            read_answer(text)


def test_records_without_metadata_are_written_as_before() -> None:
    store = MemoryStore()
    desk = Desk(SYNC, store, Approval(needed=2))
    asked = desk.ask()
    for by in ("ann", "ben"):
        store.decide(asked.pending[0].id, Approve(), by=by, digest=asked.pending[0].digest)
    [decision] = desk.agent.recover(asked.run_id).checkpoint.decisions
    records: list[Any] = [decision, *decision.votes, *store.audit()]
    assert [type(each) for each in records] == [Decision, Vote, Vote, AuditRecord, AuditRecord]
    for record in records:
        assert "metadata" not in record.model_dump_json() and record.metadata == {}
        assert type(record).model_validate_json(record.model_dump_json()) == record


# Ways to decide


class Desk:
    """An agent whose tool says what was given with the decision on its call."""

    def __init__(self, driver: Driver, store: Store, gate: Any = True, calls: int = 1, **options: Any) -> None:
        self.read: list[Any] = []
        self.driver, self.store = driver, store

        @tool(requires_approval=gate)
        def pay(context: ToolContext, amount: int = 5) -> str:
            """Pay."""
            self.read.append(context.decision.metadata if context.decision is not None else None)
            return f"paid {amount}"

        asks = [[call("pay", {"amount": n}) for n in range(calls)], "Done."]
        self.model = ScriptedModel.by_turn(asks)
        self.agent: Agent[Any, str] = Agent(name="desk", model=self.model, tools=[pay], store=store, **options)
        self.asker: Any = self.agent

    def ask(self, **options: Any) -> Checkpoint:
        return self.driver.invoke(self.asker, "Pay", **options).checkpoint

    def resume(self, at: Checkpoint, answer: Answer) -> Checkpoint:
        decisions = {item.id: answer for item in at.pending}
        return self.driver.resume(self.asker, at, decisions=decisions, by="ann").checkpoint

    def decide(self, at: Checkpoint, *answers: tuple[str | Principal, Answer]) -> Checkpoint:
        for by, answer in answers:
            for item in at.pending:
                decided = self.store.decide(item.id, answer, by=by, digest=item.digest)
                given = decided.decision if decided.decision is not None else decided.approval.votes[-1]
                assert given.metadata == answer.metadata
        return self.driver.recover(self.asker, at.run_id).checkpoint


def by_resume(desk: Desk) -> Checkpoint:
    return desk.resume(desk.ask(), APPROVED)


def by_decide(desk: Desk) -> Checkpoint:
    at = desk.ask()
    result = desk.driver.call(desk.agent, "decide", at.pending[0].id, APPROVED, by="ann")
    found: Checkpoint = result.checkpoint
    return found


def with_an_edit(desk: Desk) -> Checkpoint:
    return desk.resume(desk.ask(), Approve(args={"amount": 7}, metadata=GIVEN))


def with_the_store(desk: Desk) -> Checkpoint:
    return desk.decide(desk.ask(), ("ann", APPROVED))


def with_the_store_and_an_edit(desk: Desk) -> Checkpoint:
    return desk.decide(desk.ask(), ("ann", Approve(args={"amount": 7}, metadata=GIVEN)))


def several_at_once(desk: Desk) -> Checkpoint:
    at = desk.ask()
    [item] = at.pending
    answer = Answered(pending_id=item.id, digest=item.digest, answer=APPROVED)
    if desk.driver.is_async:
        run(desk.store.adecide_all([answer], by="ann"))
    else:
        desk.store.decide_all([answer], by="ann")
    return desk.driver.recover(desk.agent, at.run_id).checkpoint


def all_of_a_run(desk: Desk) -> Checkpoint:
    result = desk.driver.call(desk.agent, "approve_all", desk.ask(), by="ann", metadata=GIVEN)
    found: Checkpoint = result.checkpoint
    return found


def by_a_handler(desk: Desk) -> Checkpoint:
    desk.agent.on_approval_required(lambda name, args: APPROVED)
    return desk.ask()


def at_a_breakpoint_before_a_handler(desk: Desk) -> Checkpoint:
    """Each of the two decisions has its own data."""
    desk.agent.on_approval_required(lambda name, args: APPROVED)
    at = desk.ask(breakpoints=[Breakpoint("tool")])
    assert (at.pending[0].why, desk.read) == ("breakpoint", [])
    ended = desk.resume(at, Approve(metadata=OTHER))
    assert [each.metadata for each in ended.decisions] == [OTHER, GIVEN]
    return ended


WAYS = [
    by_resume,
    by_decide,
    with_an_edit,
    with_the_store,
    with_the_store_and_an_edit,
    several_at_once,
    all_of_a_run,
    by_a_handler,
    at_a_breakpoint_before_a_handler,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_metadata_are_kept_with_the_decision_and_read_everywhere(
    way: Callable[[Desk], Checkpoint], driver: Driver, place: Any
) -> None:
    store = place.open()
    told = TimelineRecorder()
    desk = Desk(driver, store, hooks=[told])
    ended = way(desk)
    assert ended.ended == "completed" and desk.read == [GIVEN]
    decision = ended.decisions[-1]
    assert json.dumps(decision.metadata) == json.dumps(GIVEN)
    assert store.load(ended.id).decisions == ended.decisions
    assert Checkpoint.model_validate_json(ended.model_dump_json()).decisions == ended.decisions
    found = store.request(decision.pending_id).decision
    assert found is not None and found.metadata == GIVEN
    trail = [each for each in store.audit() if each.pending_id == decision.pending_id]
    assert trail and all(each.metadata == GIVEN for each in trail)
    for seen in (timeline(store, ended.run_id), told.timeline(ended.run_id)):
        facts = [each.facts for each in seen.query(("decided", "breakpoint_resumed"))]
        assert [each["metadata"] for each in facts if each["pending_id"] == decision.pending_id] == [GIVEN]
    assert "T-47" not in repr(desk.model.requests) + repr(ended)


@pytest.mark.parametrize("answer", [Reject(reason="no", metadata=GIVEN), Respond(content="free", metadata=GIVEN)])
@pytest.mark.parametrize("alone", [False, True], ids=["resume", "store"])
def test_what_is_no_approval_has_metadata_too(answer: Answer, alone: bool, driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    at = desk.ask()
    ended = desk.decide(at, ("ann", answer)) if alone else desk.resume(at, answer)
    assert (ended.ended, desk.read) == ("completed", [])
    assert [each.metadata for each in ended.decisions] == [GIVEN]
    assert {each.kind: each.metadata for each in store.audit()} == {answer.kind: GIVEN}
    assert "T-4711" not in str([message.content for message in ended.messages])


def test_each_vote_has_metadata_of_its_own(driver: Driver, place: Any) -> None:
    store = place.open()
    desk = Desk(driver, store, Approval(needed=3))
    at = desk.ask()
    [item] = at.pending
    store.decide(item.id, APPROVED, by="ann", digest=item.digest)
    assert [each.metadata for each in store.request(item.id).approval.votes] == [GIVEN]
    driver.call(desk.agent, "decide", item.id, Approve(), by="ben")
    ended = driver.call(desk.agent, "decide", item.id, Approve(metadata=OTHER), by="cid").checkpoint
    [decision] = ended.decisions
    assert [each.metadata for each in decision.votes] == [GIVEN, {}, OTHER]
    assert (decision.metadata, desk.read) == (OTHER, [OTHER])
    assert [each.metadata for each in store.audit()] == [GIVEN, {}, OTHER]
    votes = [each.facts.get("metadata") for each in timeline(store, ended.run_id).query("voted")]
    assert votes == [GIVEN, None]


def test_an_edit_that_others_approve_keeps_whose_metadata_they_are(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store, Approval(needed=2))
    at = desk.ask()
    edited = desk.decide(at, ("ann", Approve(args={"amount": 7}, metadata=GIVEN)))
    [item] = edited.pending
    assert [each.metadata for each in item.votes] == [GIVEN]
    ended = desk.decide(edited, ("ben", Approve(metadata=OTHER)))
    assert [each.metadata for each in ended.decisions[-1].votes] == [GIVEN, OTHER]
    assert desk.read == [OTHER]


def test_the_same_answer_with_other_metadata_is_the_same_decision(store: Store) -> None:
    desk = Desk(SYNC, store)
    [item] = desk.ask().pending
    first = store.decide(item.id, APPROVED, by="ann", digest=item.digest, key="k")
    again = store.decide(item.id, Approve(metadata=OTHER), by="ann", digest=item.digest, key="k")
    assert again.decision == first.decision and again.decision is not None and again.decision.metadata == GIVEN


def inside_a_tool(desk: Desk) -> Any:
    model = ScriptedModel.by_turn([call("desk", {"input": "Pay"}), "Done."])
    return Agent(name="outer", model=model, tools=[desk.agent.as_tool()], store=desk.store)


class Order(BaseModel):
    said: str = ""


def inside_a_graph(desk: Desk) -> Any:
    made = StateGraph(Order).add_node("desk", desk.agent, input=lambda state: "Pay", output="said")
    return made.add_edge(START, "desk").add_edge("desk", END).compile(name="outer", store=desk.store)


def inside_a_pattern(desk: Desk) -> Any:
    return sequential(desk.agent, store=desk.store)


@pytest.mark.parametrize("around", [inside_a_tool, inside_a_graph, inside_a_pattern])
@pytest.mark.parametrize("alone", [False, True], ids=["resume", "store"])
def test_metadata_reach_a_run_inside(around: Callable[[Desk], Any], alone: bool, driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    desk.asker = around(desk)
    given: Any = {"said": ""} if around is inside_a_graph else "Pay"
    at = driver.invoke(desk.asker, given).checkpoint
    ended = desk.decide(at, ("ann", APPROVED)) if alone else desk.resume(at, APPROVED)
    assert (ended.ended, desk.read) == ("completed", [GIVEN])
    assert all(each.metadata == GIVEN for each in (*ended.decisions, *store.audit()))


def test_a_node_reads_what_was_given_when_it_was_approved(driver: Driver, store: Store) -> None:
    read: list[Any] = []

    def send(state: Order, context: ToolContext) -> dict[str, str]:
        assert context.decision is not None
        read.append(context.decision.metadata)
        return {"said": "sent"}

    made = StateGraph(Order).add_node(send, requires_approval=True).add_edge(START, "send").add_edge("send", END)
    graph = made.compile(store=store)
    at = driver.call(graph, "invoke", {}).checkpoint  # type: ignore[arg-type]
    driver.call(graph, "resume", at, decisions={at.pending[0].id: APPROVED}, by="ann")  # type: ignore[arg-type]
    assert read == [GIVEN]


def test_a_breakpoint_answered_by_a_function_keeps_its_metadata(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store, gate=False)
    hold = Hold(on_breakpoint=lambda hit: APPROVED)
    ended = desk.ask(breakpoints=[Breakpoint("pre_tool_call")], hold=hold)
    assert [each.metadata for each in ended.decisions] == [GIVEN]
    assert [each.metadata for each in store.audit()] == [GIVEN]


# Outside


def test_values_are_hidden_where_values_are(store: Store) -> None:
    desk = Desk(SYNC, store, Approval(needed=2))
    ended = desk.decide(desk.ask(), ("ann", APPROVED), ("ben", APPROVED))
    shown: list[Any] = [*ended.decisions, *ended.decisions[0].votes, *store.audit()]
    answers = [APPROVED, Reject(metadata=GIVEN), Respond(content=1, metadata=GIVEN)]
    for record in (*shown, *answers):
        assert to_wire(record)["metadata"] == GIVEN
        hidden = to_wire(record, redact=desk.agent)
        assert hidden["metadata"] == dict.fromkeys(GIVEN, HIDDEN) and "T-4711" not in json.dumps(hidden)


def test_the_api_takes_metadata_and_shows_them_to_who_may_read(place: Any) -> None:
    store = place.open()
    items = [asked_by_desk(store, number) for number in range(5)]
    api = api_of(store)
    wanted = {
        "approve": {},
        "edit": {"args": '{"order":1,"amount":5.0,"note":""}'},
        "reject": {},
        "respond": {"content": 1},
    }
    for item, (answer, more) in zip(items, wanted.items(), strict=False):
        shown = api.decide(item, answer, metadata=GIVEN, **more)
        assert shown.status_code == 200 and shown.json()["decision"]["metadata"] == GIVEN
        assert api.read(f"/requests/{item.id}/decision")["decision"]["metadata"] == GIVEN
    plain = api.decide(items[4], "approve").json()["decision"]
    assert plain["metadata"] == {}
    assert [each["metadata"] for each in api.pages("/audit")] == [GIVEN] * 4 + [{}]
    lines = api.get("/api/v1/audit", params={"format": "csv"}).text.splitlines()
    assert lines[0].endswith('"metadata"') and lines[1].endswith('}}"') and lines[5].endswith(',""')
    page = Visitor(inbox_of(store)).get(f"/requests/{items[0].id}").text
    assert "Data kept with the decision" in page and "T-4711" in page
    assert "Data kept with the decision" not in Visitor(inbox_of(store)).get(f"/requests/{items[4].id}").text


@each("metadata", [["T-1"], "T-1", {"a": "x" * MOST_METADATA}])
def test_the_api_refuses_other_metadata(metadata: Any) -> None:
    store = MemoryStore()
    item = asked_by_desk(store)
    api = api_of(store)
    refused = api.decide(item, "approve", metadata=metadata)
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"].startswith("/metadata")
    body = {"answer": "approve", "requests": [{"id": item.id, "digest": item.digest}], "metadata": metadata}
    assert api.send("/decisions:batch", body).status_code == 422
    assert store.request(item.id).status == "pending" and "T-1" not in refused.text


def test_a_skip_has_no_metadata() -> None:
    store = MemoryStore()
    item = asked_by_desk(store)
    refused = api_of(store).decide(item, "skip", metadata=OTHER)
    assert refused.status_code == 422 and refused.json()["errors"][0]["pointer"] == "/metadata"


def test_clients_give_metadata() -> None:
    store = MemoryStore()
    desk = Desk(SYNC, store, calls=6)
    items = desk.ask().pending
    inbox = inbox_by_token(store, agents=desk.agent)

    async def scene() -> list[Any]:
        transport = httpx2.ASGITransport(app=inbox)
        async with AsyncInboxClient("https://inbox.example", transport=transport, headers=bearer("rita")) as rita:
            rows = [each async for each in rita.requests()]
            found = [
                await rita.approve(rows[0], metadata=GIVEN),
                await rita.edit(rows[1], {"amount": 9}, metadata=GIVEN),
                await rita.reject(rows[2], reason="no", metadata=GIVEN),
                await rita.respond(rows[3], None, metadata=GIVEN),
                *[each.decision for each in await rita.decide_all(rows[4:], "approve", metadata=GIVEN, key="k")],
            ]
            again = await rita.decide_all(rows[4:], "approve", metadata=OTHER, key="k")
            assert [each.decision for each in again] == found[4:]
            return found

    found = run(scene())
    assert [each.decision.metadata for each in found] == [GIVEN] * 6
    assert [store.request(item.id).decision.metadata for item in items] == [GIVEN] * 6  # type: ignore[union-attr]


@each("metadata", [["T-1"], {"a": object()}, {"a": "x" * MOST_METADATA}])
def test_clients_refuse_other_metadata_before_they_send(metadata: Any) -> None:
    shown: Any = asked_by_desk(MemoryStore())
    for ask in (
        lambda: body_of(shown, "approve", metadata=metadata),
        lambda: batch([shown], "reject", reason=None, metadata=metadata, atomic=False, key=None),
    ):
        with pytest.raises(InvalidDecision, match=r"^metadata: ") as refused:
            ask()
        assert "T-1" not in str(refused.value)


def test_webhooks_tell_metadata_without_what_is_hidden() -> None:
    clock = Clock()
    with FakeReceiver(clock) as receiver:
        store = with_people(MemoryStore(), receiver)
        store.clock = clock
        approvals = approvals_of(store, receiver, hide=["iban"])
        desk = Desk(SYNC, store, announcements=[approvals])
        [item] = desk.ask().pending
        emptied(approvals, clock)
        given = {**GIVEN, "iban": "DE02", "of": {"IBAN": "DE03"}}
        store.decide(item.id, Approve(metadata=given), by="ann", digest=item.digest)
        desk.agent.recover_all()
        emptied(approvals, clock)
        first, *_, last = [each.event["data"] for each in receiver.got]
    assert "metadata" not in first
    note = "not shown here, see the inbox"
    assert last["metadata"] == {**GIVEN, "iban": note, "of": {"IBAN": note}}
    assert not any(secret in json.dumps(last) for secret in ("DE02", "DE03"))


def test_the_command_line_shows_metadata_where_it_prints_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        ended = by_resume(Desk(SYNC, store))
    for words in (["audit"], ["timeline", ended.run_id, "--json"]):
        assert cli.run([*words, "--store", f"sqlite:///{tmp_path / 'runs.db'}"]) == cli.DONE
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "T-4711" in line]
        assert [line.get("facts", line)["metadata"] for line in lines] == [GIVEN]
