"""What checkpoint text gets that was edited anywhere, with or without a recomputed digest."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from drivers import SYNC, Driver, decide_first, rows
from selection import scaled

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    SQLiteStore,
    tool,
)
from phronomy.errors import CheckpointUntrusted
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.records.checkpoint import DERIVED, Fields
from phronomy.records.decisions import Decision, ToolIdentity, call_digest
from phronomy.records.record import digest_of
from phronomy.stores.base import Store
from phronomy.stores.storeless_runs import HOMES
from phronomy.testing import ScriptedModel, call, say

Path_ = tuple[str | int, ...]


class Desk:
    """An agent with a gated and a free tool, and what they did. `strike` makes the free tool be interrupted."""

    def __init__(self, store: Store | None = None, *, strike: bool = False) -> None:
        self.done: list[Any] = []

        @tool(requires_approval=True)
        def refund(order: int, amount: float = 5.0) -> str:
            """Refund an order."""
            self.done.append(("refund", order, amount))
            return "refunded"

        @tool
        def look(order: int) -> str:
            """Look an order up."""
            self.done.append(("look", order))
            if strike and order == 2:
                raise KeyboardInterrupt
            return "seen"

        script = [
            say("First this.", call("refund", {"order": 1}), provider={"signature": "abc"}),
            say("Then these.", call("look", {"order": 1}), call("refund", {"order": 2}), call("refund", {"order": 3})),
            "done",
        ]
        if strike:
            script = [say("Look.", call("look", {"order": 1}), call("look", {"order": 2})), "done"]
        model = ScriptedModel.by_turn(script)
        options: dict[str, Any] = {} if store is None else {"store": store}
        self.agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[refund, look], **options)

    def suspend(self) -> Checkpoint:
        """A checkpoint with a decision taken, a call settled and two pending."""
        agent = self.agent
        asked: dict[str, Any] = {"who": "me", "parts": [1, 2.5, None, True]}
        result = agent.invoke(asked, thread_id="t", label="first", metadata={"tenant": {"id": 7}})
        result = agent.resume(result.checkpoint, approved=True, by="ann", channel="chat")
        assert len(result.checkpoint.pending) == 2
        assert len(result.checkpoint.decisions) == 1
        return result.checkpoint

    def interrupt(self) -> Checkpoint:
        """A checkpoint with a journal: one call settled, the other under way."""
        with suppress(KeyboardInterrupt):
            self.agent.invoke("go", thread_id="t")
        (branch,) = self.agent.store.branches()
        _, head = self.agent.store.head(branch.id)
        assert {outcome.type for outcome in head.journal} == {"started", "settled"}
        return head


# Edits


def places(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The path of every value in a JSON document, the document itself left out."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


OTHER_WORDS = {
    "pending": ("ready", "settled", "new"),
    "suspended": ("running", "completed"),
    "settled": ("ready", "pending"),
    "always": ("never", "predicate"),
    "never": ("always",),
    "approval": ("outcome_unknown", "failed"),
    "approve": ("reject", "respond"),
    "continue": ("end", "block"),
    "user": ("assistant",),
    "completed": ("responded", "failed"),
    "human": ("service",),
    "started": ("settled",),
}


def others(value: Any) -> Iterator[Any]:
    """Values to put in the place of this one: of the same type where that can be, and of others."""
    if isinstance(value, str):
        yield value + "x"
        yield ""
        yield from OTHER_WORDS.get(value, ())
        with suppress(ValueError):
            inner = json.loads(value)
            yield from (str(canonical(each)) for each in inner_edits(inner))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
        yield -1
    elif value is None:
        yield from ("x", 0, True, [], {}, "2026-01-01T00:00:00Z")
    elif isinstance(value, list):
        yield value[:-1] if value else ["x"]
        yield [*value, *(value[-1:] or [{}])]
        if len(value) > 1:
            yield value[::-1]
    else:
        yield {**value, "more": 1}
        for key in value:
            yield {name: each for name, each in value.items() if name != key}
    if value is not None:
        yield None


def inner_edits(value: Any) -> Iterator[Any]:
    """Edits of a JSON value that is kept as text."""
    yield {"another": value}
    for path in places(value):
        for other in (0, "x", None, {"deep": [1]}):
            yield edited(value, path, other)


def edited(data: Any, path: Path_, value: Any) -> Any:
    """A copy of the document with another value at the path."""
    data = copy.deepcopy(data)
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return data


def redigested(data: dict[str, Any]) -> dict[str, Any]:
    """The document with its outer digest computed anew, by the recipe that is public."""
    kept = {key: value for key, value in data.items() if key not in DERIVED}
    text = json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return {**data, "digest": digest_of(text)}


def forged(data: dict[str, Any]) -> dict[str, Any]:
    """The document with everything recomputed that a forger can: the digests of calls, what is derived, the outer one."""
    data = copy.deepcopy(data)
    with suppress(Exception):
        for each in data["calls"]:
            identity = ToolIdentity.model_validate(each["tool"])
            each["digest"] = call_digest(identity, each["args"])
    kept = {key: value for key, value in data.items() if key not in DERIVED}
    with suppress(Exception):
        fields = Fields.model_validate_json(canonical(kept))
        return json.loads(Checkpoint.model_construct(**fields.__dict__).model_dump_json())  # type: ignore[no-any-return]
    return redigested(data)


def all_edits(data: dict[str, Any]) -> Iterator[tuple[Path_, Any, dict[str, Any]]]:
    """Every place of the document with each of the other values."""
    for path in places(data):
        at: Any = data
        for key in path:
            at = at[key]
        for other in others(at):
            if json.dumps(other) != json.dumps(at):
                yield path, other, edited(data, path, other)
    for key in data:
        yield (key,), "(taken out)", {name: value for name, value in data.items() if name != key}
    yield ("more",), 1, {**data, "more": 1}
    yield ("nested",), "(itself)", {**data, "nested": [forged({**data, "path": "1.0"})]}


def is_older(document: Any, data: dict[str, Any]) -> bool:
    """Whether the document is a true copy from an earlier moment: it lacks the last entries of the journal."""
    journal = document.get("journal")
    if not isinstance(journal, list) or journal != data["journal"][: len(journal)]:
        return False
    return document == forged({**data, "journal": journal})


def test_the_recipe_of_the_digest_is_the_one_of_this_test() -> None:
    """Checkpoint text edited with a recomputed digest: the helpers here do recompute it, or they would prove nothing."""
    data = json.loads(Desk().suspend().model_dump_json())
    assert redigested(data) == data
    assert forged(data) == data
    assert len(list(all_edits(data))) > 1000
    accepted = forged(edited(data, ("calls", 1, "args"), '{"order":9,"amount":5.0}'))
    assert Checkpoint.model_validate_json(json.dumps(accepted)).pending[0].args == {"order": 9, "amount": 5.0}


# With a store


@pytest.mark.parametrize("level", ["as-edited", "digest-recomputed", "all-recomputed"])
@pytest.mark.parametrize("state", ["suspended", "interrupted"])
def test_an_edit_of_any_field_is_refused_by_a_configured_store(
    driver: Driver, store: Store, level: str, state: str
) -> None:
    """Checkpoint text edited anywhere, with or without a recomputed digest: CheckpointError, and nothing runs. Law 9"""
    desk = Desk(store, strike=state == "interrupted")
    checkpoint = desk.suspend() if state == "suspended" else desk.interrupt()
    data = json.loads(checkpoint.model_dump_json())
    ids = [item.id for item in checkpoint.pending]
    before, done = rows(store), list(desk.done)
    wrong: list[str] = []
    loaded = 0
    first = driver.is_async + isinstance(store, SQLiteStore)  # so that all of them are tried somewhere in the sweep
    for path, other, document in islice(all_edits(data), first, None, scaled(8, sweep=3)):
        if level == "digest-recomputed":
            document = redigested(document)
        elif level == "all-recomputed":
            document = forged(document)
        if document == data or is_older(document, data):  # what was edited is derived, and recomputing has repaired it
            continue
        decisions = {id: Approve() for id in ids} or None
        try:
            given = Checkpoint.model_validate_json(json.dumps(document))
            loaded += 1
            driver.resume(desk.agent, given, decisions=decisions)
        except CheckpointAlreadyResumed as error:
            wrong.append(f"{path} = {other!r}: {error}")
        except CheckpointError:
            pass
        except Exception as error:
            wrong.append(f"{path} = {other!r}: {error!r}")
        else:
            wrong.append(f"{path} = {other!r}: accepted")
        assert desk.done == done, f"{path} = {other!r}: something has run"
    assert wrong == []
    assert rows(store) == before
    assert (loaded > scaled(10, sweep=30)) if level != "as-edited" else (loaded == 0)

    result = driver.resume(desk.agent, checkpoint, decisions={id: Approve() for id in ids} or None)
    assert result.status == ("completed" if ids else "suspended")


def test_an_edited_record_is_refused_however_it_was_built(driver: Driver, store: Store) -> None:
    """Checkpoint edited in memory, by copies and behind the back of the records: re-validated, refused. Law 9"""
    desk = Desk(store)
    checkpoint = desk.suspend()
    before, done = rows(store), list(desk.done)
    looked, first, second = checkpoint.calls
    other: Any = JsonText('{"order":9,"amount":9.5}')
    consistent = first.model_copy(update={"args": other, "digest": call_digest(first.tool, other)})  # type: ignore[arg-type]
    ready = first.model_copy(update={"status": "ready", "approved": first.pending_id})
    approval = Decision(
        pending_id=first.pending_id or "", digest=first.digest or "", kind="approve", at=checkpoint.created_at
    )
    attempts: list[dict[str, Any]] = [
        {"calls": (looked, first.model_copy(update={"args": other}), second)},
        {"calls": (looked, consistent, second)},
        {"calls": (looked, ready, second)},
        {"calls": (looked, ready, second), "decisions": (*checkpoint.decisions, approval)},
        {"calls": (looked, second, first)},
        {"calls": (first,)},
        {"calls": ()},
        {"messages": checkpoint.messages[:-1]},
        {"agent": checkpoint.agent.model_copy(update={"name": "thief"})},
        {"thread_id": "another"},
        {"branch_id": "another"},
        {"run_id": "another"},
        {"parent_id": None},
        {"usage": checkpoint.usage + checkpoint.usage},
        {"metadata": JsonText("{}")},
        {"ended": "completed"},
        {"step": "1"},
        {"calls": None},
        {"created_at": None},
    ]
    for update in attempts:
        for decisions in ({first.pending_id: Approve()}, None):
            with pytest.raises(CheckpointError) as caught:
                driver.resume(desk.agent, checkpoint.model_copy(update=update), decisions=decisions)
            assert not isinstance(caught.value, CheckpointAlreadyResumed)
    shared = Checkpoint.model_validate_json(checkpoint.model_dump_json())
    shared.calls[1].__dict__["args"] = other
    with pytest.raises(CheckpointError):
        driver.resume(desk.agent, shared, decisions=decide_first(shared))

    assert (rows(store), desk.done) == (before, done)
    assert driver.resume(desk.agent, checkpoint, decisions=decide_first(checkpoint)).suspended
    assert desk.done == [*done, ("refund", 2, 5.0)]


@pytest.mark.parametrize("method", ["resume", "step", "recover", "cancel", "fork"])
def test_every_method_that_takes_a_checkpoint_refuses_an_edited_one(driver: Driver, store: Store, method: str) -> None:
    """Checkpoint text edited, with all digests recomputed, given to any method: CheckpointError, and nothing happens."""
    desk = Desk(store)
    checkpoint = desk.suspend()
    data = json.loads(checkpoint.model_dump_json())
    before, done = rows(store), list(desk.done)
    for path, value in [
        (("calls", 1, "args"), '{"order":9,"amount":5.0}'),
        (("agent", "name"), "another"),
        (("messages", 0, "content"), '"another"'),
        (("thread_id",), "another"),
        (("elapsed",), 10**6),
    ]:
        given = Checkpoint.model_validate_json(json.dumps(forged(edited(data, path, value))))
        with pytest.raises(CheckpointEdited) as caught:
            driver.call(desk.agent, method, given)
        assert caught.value.checkpoint_id == checkpoint.id
    assert (rows(store), desk.done) == (before, done)


@pytest.mark.parametrize("method", ["resume", "step", "recover", "cancel", "fork"])
def test_every_method_refuses_a_checkpoint_that_a_configured_store_has_never_seen(
    driver: Driver, store: Store, method: str
) -> None:
    """Checkpoint text of elsewhere is no authority where a store is configured. Law 9, field failure 8"""
    elsewhere = Desk()
    given = elsewhere.suspend()
    desk = Desk(store)
    before = rows(store)
    options: dict[str, Any] = {"approved": True} if method in ("resume", "step") else {}

    with pytest.raises(CheckpointUntrusted):
        driver.call(desk.agent, method, given, **options)

    assert (rows(store), desk.done) == (before, [])


def test_a_copy_from_before_some_calls_settled_is_no_edit(driver: Driver, store: Store) -> None:
    """Checkpoint text that is older than the journal: it is what was stored then, and the rest is read from the store."""
    desk = Desk(store, strike=True)
    head = desk.interrupt()
    for count in range(len(head.journal)):
        older = head.model_copy(update={"journal": head.journal[:count]})
        given = Checkpoint.model_validate_json(older.model_dump_json())
        assert driver.fork(desk.agent, given).parent_id == head.id
    result = driver.resume(desk.agent, head.model_copy(update={"journal": ()}))
    assert [item.why for item in result.checkpoint.pending] == ["outcome_unknown"]
    assert sorted(desk.done) == [("look", 1), ("look", 2)]


# Without a store


@pytest.mark.few(1)
@pytest.mark.parametrize("state", ["suspended", "interrupted"])
def test_without_a_store_an_edit_without_a_new_digest_is_refused(driver: Driver, state: str) -> None:
    """Checkpoint text edited anywhere, without a recomputed digest, as bearer authority: CheckpointError."""
    first = Desk(strike=state == "interrupted")
    checkpoint = first.suspend() if state == "suspended" else first.interrupt()
    data = json.loads(checkpoint.model_dump_json())
    desk = Desk()
    accepted: list[str] = []
    for path, other, document in all_edits(data):
        try:
            Checkpoint.model_validate_json(json.dumps(document))
        except CheckpointError:
            continue
        accepted.append(f"{path} = {other!r}")
    assert accepted == []
    assert desk.agent.store.branches() == []

    given = Checkpoint.model_validate_json(json.dumps(data))
    decided = {} if state == "interrupted" else {"decisions": decide_first(given)}
    result = driver.resume(desk.agent, given, **decided)
    assert result.suspended


def test_the_digest_of_a_pending_call_cannot_be_out_of_step_with_its_args(driver: Driver, store: Store) -> None:
    """Checkpoint text whose args were edited, with the outer digest recomputed: the call's own digest does not agree."""
    for bearer in (False, True):
        desk = Desk(None if bearer else store)
        data = json.loads(desk.suspend().model_dump_json())
        done = list(desk.done)
        args = '{"order":9,"amount":9.5}'
        attempts = [
            edited(data, ("calls", 1, "args"), args),
            edited(data, ("calls", 1, "digest"), data["calls"][2]["digest"]),
            edited(data, ("calls", 1, "tool", "name"), "look"),
            edited(data, ("calls", 1, "tool", "schema_hash"), "0" * 64),
            edited(data, ("calls", 1, "tool", "path"), "1.0"),
            edited(data, ("pending", 0, "args"), args),
            edited(edited(data, ("calls", 1, "args"), args), ("pending", 0, "args"), args),
            edited(data, ("pending", 0, "digest"), "0" * 64),
        ]
        for document in attempts:
            with pytest.raises(CheckpointError):
                Checkpoint.model_validate_json(json.dumps(redigested(document)))
            with pytest.raises(CheckpointError):
                Checkpoint.model_validate(redigested(document))
        assert desk.done == done


def test_a_forged_approval_as_bearer_authority_runs_only_what_it_shows(driver: Driver) -> None:
    """Checkpoint text with everything recomputed, without a store: the limit of bearer authority. What is shown runs."""
    data = json.loads(Desk().suspend().model_dump_json())
    HOMES.forget()  # another process
    desk = Desk()
    given = Checkpoint.model_validate_json(
        json.dumps(forged(edited(data, ("calls", 1, "args"), '{"order":9,"amount":5.0}')))
    )
    assert given.pending_tool_args == {"order": 9, "amount": 5.0}
    driver.resume(desk.agent, given, decisions=decide_first(given))
    assert desk.done == [("refund", 9, 5.0)]

    HOMES.forget()
    desk = Desk()
    for args in ('{"order":"x","amount":5.0}', '{"order":9}', '{"order":9,"amount":5.0,"to":"me"}', '{"order":9.5}'):
        text = json.dumps(forged(edited(data, ("calls", 1, "args"), args)))
        at = Checkpoint.model_validate_json(text)
        with pytest.raises(CheckpointError, match="no longer valid"):
            driver.resume(desk.agent, at, decisions=decide_first(at))
    assert desk.done == []


@pytest.mark.parametrize("method", ["recover", "cancel", "fork"])
def test_a_bearer_checkpoint_serves_every_method(driver: Driver, method: str) -> None:
    """Checkpoint text, not edited, in another process without a store: it is self-contained. Law 9"""
    text = Desk().suspend().model_dump_json()
    HOMES.forget()
    desk = Desk()

    came = driver.call(desk.agent, method, Checkpoint.model_validate_json(text))

    assert came.status == ("cancelled" if method == "cancel" else "suspended")
    assert desk.done == []


def test_text_that_is_no_checkpoint_is_refused() -> None:
    """Checkpoint text edited into something else altogether."""
    good = Desk().suspend().model_dump_json()
    at = Checkpoint.model_validate_json(good)
    assert SYNC.resume(Desk().agent, at, decisions=decide_first(at)).suspended
    bad: list[Any] = [
        "",
        " ",
        "null",
        "[]",
        "1",
        '"x"',
        "{}",
        "{",
        good[:-1],
        good + "}",
        good + good,
        good[1:],
        b"\xff",
    ]
    bad += [
        good.encode("utf-16"),
        good.replace('"version":1', '"version":2'),
        good.replace('"version":1', '"version":"1"'),
    ]
    bad += [good.replace('"version":1', '"version":1,"version":1'), good.replace('"step":', '"step":NaN,"s":')]
    bad += ["[" * 100_000, '{"a":' * 100_000, good.replace('"step"', '"__class__":1,"step"')]
    for text in bad:
        assert text != good
        with pytest.raises(CheckpointError):
            Checkpoint.model_validate_json(text)
    for value in (None, 1, [], {}, {"version": 1}, "x", object()):
        with pytest.raises(CheckpointError):
            Checkpoint.model_validate(value)
    for value in (None, 1, b"x", {"id": "x"}, json.loads(good)):
        with pytest.raises(CheckpointError):
            Desk().agent.resume(value, approved=True)  # type: ignore[arg-type]
