"""What is the same in many runs stands once in the store, and a row names it: nobody who reads sees that."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver
from places import Place

from phronomy import Agent, Checkpoint, SQLiteStore, tool
from phronomy.errors import CheckpointError, StoreError
from phronomy.foundation.json_text import canonical
from phronomy.records.decisions import PendingApproval, ToolIdentity, call_digest
from phronomy.stores.base import Store
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.log.kept_members import digest_of_text, named_request
from phronomy.stores.log.log import pending_row
from phronomy.stores.rows import Append, Branch, Entry, PendingFilter, PendingRow
from phronomy.testing import ScriptedModel, call, say


@tool(requires_approval=True)
def pay(order: int) -> str:
    """Pay an order."""
    return f"paid {order}"


def desk(store: Store, instructions: str = "Pay what is due.") -> Agent[Any, str]:
    """An agent that asks before it pays."""
    model = ScriptedModel.by_turn([say("I pay.", call("pay", {"order": 1})), "Done."])
    return Agent(name="desk", model=model, instructions=instructions, tools=[pay], store=store)


def bodies(store: Store, branch_id: str) -> list[str]:
    return [entry.body for entry in store.lineage(branch_id=branch_id).entries]


def test_the_second_run_names_what_the_first_has_said(driver: Driver, place: Place) -> None:
    """Laws 9 and 14: any process reads the whole checkpoint, and the store grows by what is new."""
    store = place.open()
    runs: list[Checkpoint] = [driver.invoke(desk(store), "Pay order 1").checkpoint for _ in range(3)]
    sizes = [sum(map(len, bodies(store, run.run_id))) for run in runs]
    assert [any('"kept":"' in body for body in bodies(store, run.run_id)) for run in runs] == [False, True, True]
    assert max(sizes[1:]) < sizes[0] * 0.7
    other = place.open()  # as another process
    for run in runs:
        assert other.load(run.id) == driver.call(other, "load", run.id) == other.history(run.id)[-1] == run
        assert [item.approval for item in other.pending(run_id=run.run_id)] == [*run.pending]
        assert other.request(run.pending[0].id).approval == run.pending[0]
    first, last = (run.agent.json_text("fingerprint") for run in (runs[0], runs[2]))
    assert first == last
    done = driver.resume(desk(other), runs[2], approved=True)
    assert (done.status, done.output) == ("completed", "Done.")


def test_an_agent_that_is_made_for_one_request_leaves_no_text(place: Place) -> None:
    """Its runs are deleted, and what the store keeps once is never: it would grow with each of them."""
    store = place.open()
    for number in range(3):
        run = desk(store, f"Help customer {number}.").invoke("Pay order 1").checkpoint
        assert "fingerprint" in bodies(store, run.run_id)[0]


FROZEN: list[dict[str, str]] = [
    json.loads(line) for line in (Path(__file__).parent / "corpus" / "log-1-kept.jsonl").read_text().splitlines()
]
"""A run that waits, as the second of its agent in a store: rows, a request, the texts that they name, and the whole checkpoint."""


def test_rows_that_name_texts_are_read_as_they_were_written(driver: Driver, place: Place) -> None:
    """The file is never changed: a format that changes gets another beside it."""
    store = place.open(clock=lambda: 1_767_225_601.0)
    said = {name: [each[name] for each in FROZEN if name in each] for name in ("body", "request", "text", "checkpoint")}
    run = Checkpoint.model_validate_json(said["checkpoint"][0])
    ids = [each["checkpoint_id"] for each in FROZEN if "body" in each]
    entries = tuple(Entry(path="", body=body, checkpoint_id=id) for body, id in zip(said["body"], ids, strict=True))
    (item,) = run.pending
    branch = Branch.of(run)
    asked = replace(pending_row(item, branch, run.id, None), body=said["request"][0])
    change = Append(branch_id=branch.id, seq=0, entries=entries, head=run.id, status="suspended", opened=(asked,))
    store.create(branch, replace(change, texts=tuple(said["text"])), exclusive=False)
    assert store.load(run.id) == driver.call(store, "load", run.id) == run  # type: ignore[arg-type]
    assert [each.approval for each in store.pending()] == [item]
    assert driver.resume(desk(store), run.id, approved=True).output == "Done."


def test_a_store_that_is_emptied_gets_the_texts_of_new_runs_again(tmp_path: Path) -> None:
    """Law 9. Somebody deletes everything while a process lives: its next runs are read by other processes."""
    store = SQLiteStore(tmp_path / "runs.db")
    for _ in range(2):
        desk(store).invoke("Pay order 1")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db, db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'phronomy_schema'"
        ).fetchall():
            db.execute(f"DELETE FROM {name}")
    run = desk(store).invoke("Pay order 1").checkpoint
    assert any('"kept":"' in body for body in bodies(store, run.run_id))
    other = SQLiteStore(tmp_path / "runs.db")
    assert other.load(run.id) == run
    assert [item.approval for item in other.pending()] == [*run.pending]
    assert desk(other).resume(run.id, approved=True).output == "Done."


LOST: dict[str, Callable[[str], str | None]] = {
    "missing": lambda text: None,
    "damaged": lambda text: text.replace("pay", "pry").replace("desk", "disk"),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_a_text_that_is_not_as_it_was_kept_is_a_typed_error(
    driver: Driver, place: Place, lost: Callable[[str], str | None]
) -> None:
    """Law 15. Nothing is guessed: another fingerprint would hide a change of the agent, another tool what is approved."""
    store = place.open()
    run: Checkpoint = [driver.invoke(desk(store), "Pay order 1").checkpoint for _ in range(2)][1]
    other = place.open()
    kept = other.kept_text
    other.read_texts.clear()
    other.kept_text = lambda digest: lost(kept(digest) or "")  # type: ignore[method-assign]
    for read in (lambda: driver.call(other, "load", run.id), lambda: other.history(run.id), lambda: other.load(run.id)):
        other.read_texts.clear()
        with pytest.raises(
            CheckpointError, match=r"a stored row refers to the text [0-9a-f]{64}, which is missing"
        ) as found:
            read()
        assert str(found.value).endswith(f"of branch {run.branch_id})")
    page = other.pending()
    assert [each.id for each in page.unreadable] == [run.pending[0].id]
    other.read_texts.clear()


@pytest.mark.parametrize("found", ["Pay nothing.", b"\xff", 17], ids=["another", "bytes", "a number"])
def test_what_is_kept_under_the_hash_of_another_text_is_told_to_nobody(place: Place, found: Any) -> None:
    """A human who decides reads what the tool said of itself when it asked, or nothing."""
    store = place.open()
    one, two = (desk(store).invoke("Pay order 1").checkpoint for _ in range(2))
    other = place.open()
    other.kept_text = lambda digest: found  # type: ignore[method-assign]
    shown = other.request(one.pending[0].id)
    assert (shown.description, shown.schema) == (None, None)
    with pytest.raises(CheckpointError, match="missing from the store, or damaged"):
        other.load(two.id)
    with pytest.raises(StoreError, match="cannot be read"):
        other.request(two.pending[0].id)


def test_a_request_that_tells_of_another_tool_than_is_decided_cannot_be_read(place: Place) -> None:
    """Law 2. Its row names the text of another tool, which the store has; the digest is that of the call."""
    store = place.open()
    desk(store).invoke("Pay order 1")
    (row,) = store.select_pending(PendingFilter())
    for old, new in (('"name":"pay"', '"name":"look"'), ('\\"order\\":1', '\\"order\\":2')):
        assert old in row.body
        with pytest.raises(StoreError, match="cannot be read"):
            Waiting.of(replace(row, body=row.body.replace(old, new)), lambda digest: "")


AT = datetime(2026, 3, 1, tzinfo=UTC)
TOOL = ToolIdentity(name="pay", schema_hash="5" * 64, gate="always")
HASH = "d" * 64


LEFT = "args call_id digest kept requested_at"


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, LEFT),
        ({"description_hash": HASH}, LEFT),
        ({"agent": "another"}, f"agent {LEFT} id"),
        ({"agent": None}, f"{LEFT} id"),
        ({"tool": TOOL.evolve(path="1.0")}, LEFT.replace("kept", "tool")),
        ({"tool": TOOL.evolve(name='p"y')}, LEFT.replace("kept", "tool")),
        ({"tool": TOOL.evolve(source="mcp:x", description_hash=HASH, risk="höch"), "description_hash": HASH}, LEFT),
        ({"title": f'","agent":"de"sk","description_hash":"{HASH}"', "description_hash": HASH}, f"{LEFT} title"),
        ({"id": 'p"1\u2028', "reason": '"kept":"' + "A" * 43 + '"'}, f"{LEFT} reason"),
    ],
    ids=range(9),
)
def test_a_request_is_what_it_was_when_it_is_read(fields: dict[str, Any], left: str) -> None:
    given: dict[str, Any] = {
        "id": "p1",
        "call_id": "c",
        "tool": TOOL,
        "args": {"n": 5.0},
        "agent": 'de"sk',
    }
    given |= {"digest": call_digest(fields.get("tool", TOOL), canonical(given["args"]))}
    item = PendingApproval(**{**given, "requested_at": AT, **fields})
    body = item.model_dump_json(exclude_defaults=True)
    place: dict[str, Any] = {
        "branch_id": "b",
        "run_id": "r",
        "thread_id": None,
        "checkpoint_id": "k",
        "requested_at": 1.0,
    }
    row = PendingRow(pending_id=item.id, agent='de"sk', tool_name="pay", body=body, **place)
    texts: dict[str, str] = {}

    def naming(text: str) -> bool:
        texts[digest_of_text(text)] = text
        return True

    less = named_request(body, item, 'de"sk', naming)
    assert sorted(json.loads(less)) == sorted(left.split())
    assert Waiting.of(replace(row, body=less), texts.__getitem__).approval == item
    assert named_request(body, item, 'de"sk', lambda _: False).count("schema_hash") == 1


def test_a_damaged_body_of_a_request_is_a_typed_error(place: Place) -> None:
    store = place.open()
    desk(store).invoke("Pay order 1")
    (row,) = store.select_pending(PendingFilter())
    for body in ("", "{", '{"id":5}', '{"kept":"x"}', "[]"):
        with pytest.raises(StoreError, match="cannot be read"):
            Waiting.of(replace(row, body=body), lambda digest: "")
