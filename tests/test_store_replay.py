"""What is loaded from a log is what was sealed, whichever way the log came about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from phronomy import Agent, tool
from phronomy.errors import CheckpointError, CheckpointNotFound
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import Call, CallResult, CallSettled, CallStarted, Decided, Outcome
from phronomy.records.checkpoint import AgentRef, Checkpoint, pending_of, result_message
from phronomy.records.decisions import Decision, PendingApproval, ToolIdentity, call_digest
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.stores import Append, Branch, Claim, Entry, MemoryStore, SQLiteStore, Store, Waiting
from phronomy.stores.log.log import journal_entry, pending_rows, replay, row_entry
from phronomy.testing import ScriptedModel, call

AT = datetime(2026, 3, 1, tzinfo=UTC)
PAY = ToolIdentity(name="pay", schema_hash="h", gate="always")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db", synchronous="OFF") as opened:
        yield opened


class Writer:
    """Writes one branch as a worker does, and keeps what it sealed."""

    def __init__(self, store: Store, first: Checkpoint, since: Checkpoint | None = None, seq: int = 0) -> None:
        self.store, self.last, self.seq = store, first, seq + 1
        self.sealed = {first.id: first}
        self.nested: dict[str, Checkpoint] = {}
        self.settled: dict[str, CallSettled] = {}
        self.claim = Claim(branch_id=first.branch_id, run_id=first.run_id, owner="me", fence=1)
        branch = Branch(
            id=first.branch_id,
            run_id=first.run_id,
            thread_id=first.thread_id,
            agent=first.agent.name,
            parent_branch=since.branch_id if since else None,
            parent_seq=seq,
            seq=seq,
        )
        entries = (row_entry(since, first, {}),)
        change = Append(branch_id=branch.id, seq=seq, entries=entries, take="me", head=first.id)
        store.create(branch, change, exclusive=since is None)

    def journal(self, *outcomes: Outcome, path: str = "") -> None:
        self._append([journal_entry(outcome, path) for outcome in outcomes])
        self.settled |= {outcome.id: outcome for outcome in outcomes if isinstance(outcome, CallSettled) and not path}

    def seal(self, **changes: Any) -> Checkpoint:
        """The next root checkpoint, stored."""
        step = self.last.step + 1
        now = self.last.model_copy(
            update={"id": f"{self.last.branch_id}-{step}", "parent_id": self.last.id, "step": step, **changes}
        )
        waiting = {row.pending_id for row in pending_rows(self.last, None)}
        opened = tuple(row for row in pending_rows(now, None) if row.pending_id not in waiting)
        closed = tuple(waiting - {row.pending_id for row in pending_rows(now, None)})
        status = now.ended or ("suspended" if now.pending else "running")
        entries = [row_entry(self.last, now, self.settled)]
        self._append(entries, head=now.id, status=status, opened=opened, closed=closed, release=now.ended is not None)
        self.last, self.settled = now, {}
        self.sealed[now.id] = now
        return now

    def seal_nested(self, path: str, **changes: Any) -> Checkpoint:
        """The next checkpoint of the run nested at `path`, stored."""
        before = self.nested.get(path)
        if before is None:
            now = checkpoint(f"{path}-0", path=path, run_id=self.last.run_id, branch_id=self.last.branch_id, **changes)
        else:
            step = before.step + 1
            now = before.model_copy(update={"id": f"{path}-{step}", "parent_id": before.id, "step": step, **changes})
        self._append([row_entry(before, now, {})])
        self.nested[path] = now
        return now

    def _append(self, entries: list[Entry], **change: Any) -> None:
        branch = self.store.append(
            Append(branch_id=self.last.branch_id, seq=self.seq, entries=tuple(entries), claim=self.claim, **change)
        )
        self.seq = branch.seq


def checkpoint(id: str, **fields: Any) -> Checkpoint:
    said = Message(role="user", content="hello")
    first = {"branch_id": "r1", "run_id": "r1", "created_at": AT, "original_input": "hello", "messages": (said,)}
    return Checkpoint(id=id, agent=AgentRef(name="clerk"), **{**first, **fields})


def pending_call(number: int) -> Call:
    text = canonical({"amount": 5.0})
    return Call(
        **{"id": f"{number}.0", "call_id": f"call{number}", "name": "pay", "status": "pending", "tool": PAY},
        **{"args": text, "digest": call_digest(PAY, text), "pending_id": f"p{number}", "requested_at": AT},
    )


def settled(number: int, content: str = "paid") -> CallSettled:
    result = CallResult(kind="completed", content=content)
    return CallSettled(id=f"{number}.0", call_id=f"call{number}", key=f"k{number}", result=result, elapsed=7)


def said(number: int) -> Message:
    call = ToolCall(id=f"call{number}", name="pay", arguments='{"amount":5.0}')
    return Message(role="assistant", content=f"Paying, turn {number}.", tool_calls=(call,))


def turn(writer: Writer, number: int, content: str = "paid") -> None:
    """The model asks, a human approves, the tool runs, its result is sealed."""
    call = pending_call(number)
    writer.seal(messages=(*writer.last.messages, said(number)), calls=(call,), turn=number)
    decision = Decision(
        pending_id=f"p{number}", digest=call.digest or "", kind="approve", at=AT + timedelta(hours=number)
    )
    writer.journal(Decided(decision=decision))
    ready = call.model_copy(update={"status": "ready", "pending_id": None, "approved": f"p{number}"})
    writer.seal(calls=(ready,), decisions=(*writer.last.decisions, decision))
    outcome = settled(number, content)
    writer.journal(CallStarted(id=call.id, attempt=1, at=AT), outcome)
    result = result_message(call.call_id, outcome.result)
    usage = Usage(requests=number, input_tokens=3 * number)
    writer.seal(messages=(*writer.last.messages, result), calls=(), usage=usage)


def bare(found: Checkpoint) -> Checkpoint:
    """The checkpoint as it was sealed, without what was journaled after it."""
    return found.model_copy(update={"journal": (), "nested": ()})


def test_each_checkpoint_of_a_run_is_loaded_as_it_was_sealed(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0", metadata={"b": 1, "a": 5.0}, label="first"))
    for number in range(1, 4):
        turn(writer, number)
    writer.seal(ended="completed", output=canonical("done"))

    assert len(writer.sealed) == 11
    for id, sealed in writer.sealed.items():
        found = store.load(id)
        assert bare(found) == sealed
        assert bare(found).model_dump_json() == sealed.model_dump_json()
    assert [bare(found) for found in store.history("r1-10")] == list(writer.sealed.values())
    assert [bare(found) for found in store.history("r1-4")] == list(writer.sealed.values())[:5]
    assert [bare(found) for found in store.children("r1-4")] == [writer.sealed["r1-5"]]
    assert store.head("r1") == (store.lineage(branch_id="r1").branch, writer.last)


def test_the_last_checkpoint_has_what_was_journaled_after_it_and_any_other_is_as_it_was_sealed(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0"))
    turn(writer, 1)
    started = CallStarted(id="2.0", attempt=1, at=AT)
    writer.seal(messages=(*writer.last.messages, said(2)))
    writer.journal(started)
    assert store.load("r1-4").journal == store.history("r1-4")[-1].journal == (started,)
    assert [store.load(f"r1-{place}") for place in range(4)] == [*writer.sealed.values()][:4]
    assert store.history("r1-2") == [*writer.sealed.values()][:3]
    assert [type(outcome) for outcome in store.whole("r1-2")[1].journal] == [CallStarted, CallSettled]
    assert store.whole("r1-4") == store.locate("r1-4")


def test_a_tool_result_is_stored_once(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0"))
    turn(writer, 1, content="a very particular result")
    bodies = [entry.body for entry in store.lineage(branch_id="r1").entries]
    assert sum(body.count("a very particular result") for body in bodies) == 1
    assert store.load("r1-3").messages[-1].content == "a very particular result"


def test_a_message_that_was_edited_since_its_journal_entry_is_stored_whole(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0"))
    writer.seal(messages=(*writer.last.messages, said(1)))
    writer.journal(settled(1))
    shorter = Message(role="tool", content="paid (cut)", tool_call_id="call1", settlement="completed")
    writer.seal(messages=(*writer.last.messages, shorter))
    assert store.load(writer.last.id) == writer.last


def test_messages_that_were_replaced_or_cut_are_loaded_so(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0"))
    turn(writer, 1)
    writer.seal(messages=writer.last.messages[:1], decisions=())
    writer.seal(messages=(Message(role="user", content="other"), Message(role="user", content="words")))
    for id, sealed in writer.sealed.items():
        assert bare(store.load(id)) == sealed


def test_nested_runs_are_loaded_with_the_root_while_they_live(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0"))
    inner = pending_call(7)
    one = writer.seal_nested("1.0", calls=(inner,))
    other = writer.seal_nested("1.1", messages=())
    writer.journal(settled(9), path="1.0")
    deep = writer.seal_nested("1.0/2.0", label="deep")
    outer = Call(
        **{"id": "1.0", "call_id": "call1", "name": "ask", "status": "nested", "tool": PAY, "args": canonical({})},
        **{"digest": call_digest(PAY, "{}"), "waiting": (pending_of(inner, "1.0"),)},
    )
    writer.seal(calls=(outer,))
    assert [row.pending_id for row in store.pending_rows()] == ["p7"]

    loaded = store.load("r1-1")
    assert loaded.nested == (one.model_copy(update={"journal": (settled(9),)}), deep, other)
    assert bare(loaded) == writer.last
    assert (store.load("r1-0").nested, store.whole("r1-0")[1].nested) == ((), loaded.nested)

    two = writer.seal_nested("1.0", messages=(*one.messages, result_message("call9", settled(9).result)), calls=())
    writer.seal_nested("1.1", ended="completed")
    assert store.load("r1-1").nested == (two, deep)
    with pytest.raises(CheckpointNotFound):
        store.load(two.id)
    again = checkpoint("1.1-again", path="1.1", branch_id="r1", run_id="r1", label="a second run at the same place")
    writer._append([row_entry(None, again, {})])
    assert store.load("r1-1").nested == (two, deep, again)


def test_the_next_run_of_a_thread_goes_on_from_the_last(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0", thread_id="t"))
    assert store.latest("t") is None
    turn(writer, 1)
    writer.seal_nested("1.0")
    writer.journal(CallStarted(id="9.9", attempt=1, at=AT))
    first = writer.seal(ended="completed", output=canonical("done"))
    found = store.latest("t")
    assert found is not None
    assert bare(found) == first

    asked = (*first.messages, Message(role="user", content="and now?"))
    begun = checkpoint("r2-0", run_id="r2", branch_id="r2", thread_id="t", parent_id=first.id)
    begun = begun.model_copy(update={"messages": asked})
    second = Writer(store, begun, since=first, seq=writer.seq)
    turn(second, 2)
    last = second.seal(ended="completed")
    for id, sealed in (writer.sealed | second.sealed).items():
        assert bare(store.load(id)) == sealed
    assert store.load("r2-0").nested == ()
    assert store.latest("t") == last
    assert [found.id for found in store.history("r2-1")] == [*writer.sealed, "r2-0", "r2-1"]
    assert [found.id for found in store.children(first.id)] == ["r2-0"]
    mine = [entry.body for entry in store.lineage(branch_id="r2").entries if entry.branch_id == "r2"]
    assert not any("hello" in body for body in mine)


def test_a_fork_goes_on_from_the_middle_and_leaves_the_run_as_it_was(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0"))
    turn(writer, 1)
    turn(writer, 2)
    place = writer.sealed["r1-2"]
    entries = store.lineage(checkpoint_id="r1-2").entries
    begun = place.model_copy(update={"id": "f-0", "parent_id": place.id, "branch_id": "f", "label": "what if"})
    fork = Writer(store, begun, since=place, seq=entries[-1].seq)
    turn(fork, 3)
    for id, sealed in (writer.sealed | fork.sealed).items():
        assert bare(store.load(id)) == sealed
    assert [found.id for found in store.history("f-5")] == ["r1-0", "r1-1", "r1-2", "f-0", "f-3", "f-4", "f-5"]
    assert [found.id for found in store.children("r1-2")] == ["r1-3", "f-0"]
    assert [branch.id for branch in store.branches(run_id="r1")] == ["r1", "f"]


def test_what_waits_is_listed_with_what_is_asked(store: Store) -> None:
    writer = Writer(store, checkpoint("r1-0", thread_id="t"))
    turn(writer, 1)
    assert store.pending() == []
    writer.seal(calls=(pending_call(2), pending_call(3)))
    two = PendingApproval(
        id="p2",
        call_id="call2",
        tool=PAY,
        args={"amount": 5.0},
        digest=pending_call(2).digest,
        agent="clerk",
        requested_at=AT,
    )
    waiting = Waiting(approval=two, checkpoint_id="r1-4", run_id="r1", branch_id="r1", thread_id="t", agent="clerk")
    assert store.pending()[0] == waiting
    assert [item.approval.id for item in store.pending(thread_id="t")] == ["p2", "p3"]
    assert store.pending(run_id="other") == []
    assert waiting.approval.args == {"amount": 5.0}


# Taking in


def exported() -> Checkpoint:
    """A checkpoint made elsewhere, as it is exported: with its journal and a nested run that waits."""
    with MemoryStore() as elsewhere:
        writer = Writer(elsewhere, checkpoint("r1-0", thread_id="t"))
        turn(writer, 1)
        writer.seal(calls=(pending_call(2),))
        writer.seal_nested("1.0")
        writer.journal(settled(8), path="1.0")
        writer.journal(CallStarted(id="1.1", attempt=1, at=AT))
        return elsewhere.load(writer.last.id)


def test_a_checkpoint_made_elsewhere_is_taken_in_whole_and_once(store: Store) -> None:
    given = exported()
    assert given.journal
    assert given.nested[0].journal
    for _ in range(2):
        store.save(Checkpoint.model_validate_json(given.model_dump_json()))
        assert store.load(given.id) == given
        branch, head = store.head("r1")
        assert head == given
        assert (branch.status, branch.owner, branch.head, branch.seq) == ("suspended", None, given.id, 4)
        assert [row.pending_id for row in store.pending_rows()] == ["p2"]


def test_a_running_checkpoint_is_taken_in_as_one_that_can_be_resumed(store: Store) -> None:
    store.save(checkpoint("r1-0"))
    assert store.head("r1")[0].status == "failed"
    store.save(checkpoint("r2-0", branch_id="r2", run_id="r2", ended="completed"))
    assert store.head("r2")[0].status == "completed"


def test_another_checkpoint_of_a_branch_that_is_there_is_kept_apart(store: Store) -> None:
    """A run may be carried on elsewhere and come back: what the store had of it stays as it is."""
    given, later = exported(), checkpoint("r1-elsewhere")
    store.save(given)
    store.save(later)
    assert store.locate("r1-elsewhere")[0].id == "r1-elsewhere"
    assert store.locate(given.id)[0].id == "r1"
    assert (store.load("r1-elsewhere"), store.load(given.id)) == (later, given)


def test_two_copies_that_share_a_nested_run_are_both_taken_in(store: Store) -> None:
    given = exported()
    fork = given.model_copy(update={"id": "f-0", "branch_id": "f"})
    store.save(given)
    store.save(fork)
    assert store.load("f-0") == fork
    assert store.load(given.id) == given


PARTS: dict[str, Callable[[Checkpoint, Checkpoint], tuple[Checkpoint, ...]]] = {
    "one part twice": lambda root, part: (part, part),
    "a part that is no nested run": lambda root, part: (part.evolve(path=""),),
    "a part that has ended, of no call": lambda root, part: (part.evolve(path="9.0", ended="completed"),),
    "parts in another order": lambda root, part: (part.evolve(id="n-1", path="9.0"), part),
    "a part in a part": lambda root, part: (part.evolve(nested=(part.evolve(path=f"{part.path}/2.0"),)),),
}
"""The parts nested in a checkpoint, changed: each part is valid by itself."""


@pytest.mark.parametrize("parts", PARTS)
def test_a_checkpoint_that_could_not_be_read_back_is_not_taken_in(store: Store, parts: str) -> None:
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay for an order."""
        return "paid"

    inner = Agent(name="inner", tools=[pay], model=ScriptedModel.by_turn([call("pay", {"order": 1}), "Paid."]))
    model = ScriptedModel.by_turn([call("inner", {"input": "Pay"}), "Done."])
    outer = Agent(name="outer", tools=[inner.as_tool("inner", "Pays.")], model=model, store=MemoryStore())
    root = outer.invoke("Pay").checkpoint
    made = root.evolve(nested=PARTS[parts](root, root.nested[0]))
    for refused in (
        lambda: store.save(made),
        lambda: Agent(name="outer", tools=outer.tools, model=model, store=store, trust="bearer").resume(
            made, approved=True
        ),
    ):
        with pytest.raises(CheckpointError, match=f"checkpoint {root.id} could not be read back as it is"):
            refused()
        assert store.branches() == [] and store.pending() == []
    store.save(root)
    assert store.load(root.id) == root


# Damage and growth


def test_a_log_that_cannot_be_read_is_a_checkpoint_error(store: Store) -> None:
    first = checkpoint("r1-0")
    good = row_entry(None, first, {})
    delta = row_entry(first, first.model_copy(update={"id": "r1-1", "label": "x"}), {})
    unknown_ref = '{"version":1,"messages":[{"ref":"1.0"}]}'
    logs = [
        [],
        [Entry(path="", body='{"type":"started"}')],
        [Entry(path="", body="no json", checkpoint_id="c")],
        [delta],
        [good, Entry(path="", body="{", checkpoint_id="c")],
        [good, Entry(path="", body='{"version":2}', checkpoint_id="c")],
        [good, Entry(path="", body=unknown_ref, checkpoint_id="c")],
        [good, Entry(path="1.0", body=delta.body, checkpoint_id="c")],
        [good, Entry(path="", body='{"type":"nonsense"}')],
    ]
    for number, log in enumerate(logs):
        with pytest.raises(CheckpointError):
            replay(log)
        branch = Branch(id=f"b{number}", run_id="r", thread_id=None, agent="a")
        rows = [
            Entry(path=e.path, body=e.body, checkpoint_id=e.checkpoint_id and f"{number}-{i}")
            for i, e in enumerate(log)
        ]
        store.create(branch, Append(branch_id=branch.id, seq=0, entries=tuple(rows)), exclusive=False)
        with pytest.raises(CheckpointError):
            store.head(branch.id)


def test_a_log_that_leads_elsewhere_is_a_checkpoint_error() -> None:
    class Confused(MemoryStore):
        def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Any:
            return super().lineage(branch_id="r1")

    with Confused() as store:
        Writer(store, checkpoint("r1-0"))
        with pytest.raises(CheckpointError, match="does not lead to checkpoint c9"):
            store.load("c9")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_storage_grows_with_the_conversation_and_no_faster(kind: str, tmp_path: Path) -> None:
    sizes = []
    for turns in (100, 200):
        path = tmp_path / f"{turns}.db"
        with MemoryStore() if kind == "memory" else SQLiteStore(path, synchronous="OFF") as store:
            writer = Writer(store, checkpoint("r1-0"))
            for number in range(1, turns + 1):
                turn(writer, number, content="x" * 500)
            assert bare(store.load(writer.last.id)) == writer.last
            bodies = sum(len(entry.body) for entry in store.lineage(branch_id="r1").entries)
        sizes.append(bodies if kind == "memory" else path.stat().st_size)
    assert sizes[1] / sizes[0] < 2.2
    assert sizes[0] < 100 * 4000
