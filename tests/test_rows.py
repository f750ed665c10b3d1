"""A state is stored by what changed in it, and comes back to the byte: read either way, from any store, through forks and prunes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phronomy.errors import CheckpointError
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import Call
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import ToolIdentity, call_digest
from phronomy.stores import Append, Branch, Claim, Entry, MemoryStore, SQLiteStore, Store
from phronomy.stores.log import log, text_patch
from phronomy.stores.log.log import last_of, replay, row_entry
from phronomy.stores.log.row_delta import row_text

AT = datetime(2026, 3, 1, tzinfo=UTC)
TOOL = ToolIdentity(source="node", name="n", schema_hash="0", gate="always")

keys = st.sampled_from(["log", "by", "n", "é", 'q"\\', ""])
leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
values = st.recursive(
    leaves, lambda some: st.lists(some, max_size=3) | st.dictionaries(keys, some, max_size=3), max_leaves=6
)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """States of a run, one after another: they grow, change, lose keys, stand in another order, or are none at all."""
    found: list[Any] = [draw(st.none() | st.dictionaries(keys, values, max_size=4))]
    for _ in range(draw(st.integers(1, 8))):
        new = dict(found[-1]) if isinstance(found[-1], dict) else {}
        key = draw(keys)
        match draw(st.sampled_from(["grow", "grow", "merge", "set", "drop", "order", "same", "other"])):
            case "grow":
                new[key] = [*(new[key] if isinstance(new.get(key), list) else ()), draw(values)]
            case "merge":
                new[key] = {**(new[key] if isinstance(new.get(key), dict) else {}), draw(keys): draw(values)}
            case "set":
                new[key] = draw(values)
            case "drop":
                new.pop(key, None)
            case "order":
                new = {each: new[each] for each in draw(st.permutations(list(new)))}
            case "other":
                found.append(draw(values))
                continue
        found.append(new)
    return found


def first(state: Any, run_id: str = "run1", **fields: Any) -> Checkpoint:
    known = {"run_id": run_id, "branch_id": run_id, "created_at": AT, "kind": "graph", "agent": AgentRef(name="g")}
    return Checkpoint(**known, id=new_id("ckpt"), original_input="go", state=state, **fields)


def following(before: Checkpoint, state: Any, **fields: Any) -> Checkpoint:
    changed = {"id": new_id("ckpt"), "parent_id": before.id, "step": before.step + 1, "state": canonical(state)}
    return before.evolve(**changed, **fields)


def chain(states: Sequence[Any], run_id: str = "run1") -> list[Checkpoint]:
    found = [first(states[0], run_id)]
    for state in states[1:]:
        found.append(following(found[-1], state))
    return found


def entries_of(checkpoints: Sequence[Checkpoint], before: Checkpoint | None = None) -> list[Entry]:
    parents = [before, *checkpoints]
    return [row_entry(parent, child, {}) for parent, child in zip(parents, checkpoints, strict=False)]


def texts(checkpoints: Sequence[Checkpoint]) -> list[str]:
    return [each.json_text("state") for each in checkpoints]


@given(histories())
def test_both_readers_give_each_state_as_it_was(states: list[Any]) -> None:
    checkpoints = chain(states)
    entries = entries_of(checkpoints)
    assert replay(entries) == checkpoints
    for upto, checkpoint in enumerate(checkpoints, 1):
        together = log._put_together(entries[:upto])
        assert together == replay(entries[:upto])[-1] == checkpoint
        assert together.json_text("state") == canonical(states[upto - 1])
        assert together.model_dump_json() == checkpoint.model_dump_json()
        assert Checkpoint.model_validate_json(together.model_dump_json()) == checkpoint
    again = entries_of(replay(entries))  # what was read back is written on as it was the first time
    assert [entry.body for entry in again] == [entry.body for entry in entries]


def test_a_row_holds_what_changed_in_the_state() -> None:
    big = {"log": ["x" * 500], "note": "y" * 500, "n": 1}
    one, two, three, none, same = chain([big, {**big, "n": 2}, {"log": [*big["log"], 3], "n": 2}, None, None])
    rows = [json.loads(entry.body) for entry in entries_of([one, two, three, none, same])]
    assert [row.get("state") for row in rows] == [canonical(big), None, None, "null", None]
    assert [row.get("patch") for row in rows] == [
        None,
        '{"set":{"n":2}}',
        '{"add":{"log":[3]},"drop":["note"]}',
        None,
        None,
    ]
    assert json.loads(row_text(None, three, {}))["state"] == three.json_text("state")


def test_a_state_that_is_another_is_written_whole() -> None:
    one, other, back = chain([{"a": "x" * 50}, {"b": "y" * 50}, [1]])
    rows = [json.loads(entry.body) for entry in entries_of([one, other, back])]
    assert [("patch" in row, row["state"]) for row in rows] == [
        (False, each.json_text("state")) for each in (one, other, back)
    ]


def test_rows_as_they_were_written_without_patches_are_read() -> None:
    checkpoints = chain([{"log": ["a" * 90]}, {"log": ["a" * 90, "b"]}, {"log": ["a" * 90, "b", "c"]}])
    entries = entries_of(checkpoints)
    whole = json.loads(entries[1].body)
    assert whole.pop("patch") == '{"add":{"log":["b"]}}'
    old = Entry(
        path="",
        body=json.dumps({**whole, "state": checkpoints[1].json_text("state")}, separators=(",", ":")),
        checkpoint_id=checkpoints[1].id,
    )
    mixed = [entries[0], old, entries[2]]
    assert replay(mixed) == checkpoints
    assert log._put_together(mixed) == checkpoints[-1]


@pytest.mark.parametrize(
    "patch",
    ["", "[]", "null", '{"set":1}', '{"set":{"a":1', '{"set": {"a":1}}', '{"add":{"n":[1]}}', '{"drop":["b"]}', '{"sets":{}}',
     '{"order":[]}', '{"set":{"a":NaN}}', '{"set":{"a":1.50}}', '{"add":{"log":["\\ud800"]}}'],
)  # fmt: skip
def test_a_damaged_patch_is_a_checkpoint_error(patch: str) -> None:
    one, two = entries_of(chain([{"log": ["a" * 90], "n": 1}, {"log": ["a" * 90, "b"], "n": 1}]))
    row = {**json.loads(two.body), "patch": patch}
    damaged = [one, Entry(path="", body=json.dumps(row, separators=(",", ":")), checkpoint_id=two.checkpoint_id)]
    for read in (replay, last_of):
        with pytest.raises(
            CheckpointError, match=f"the state of checkpoint {two.checkpoint_id} cannot be put together"
        ):
            read(damaged)


def test_what_one_row_added_another_cannot_add() -> None:
    states = [{"by": {str(key): key for key in range(upto)}, "rest": "x" * 99} for upto in range(1, 6)]
    checkpoints = chain(states)
    entries = entries_of(checkpoints)
    assert json.loads(entries[-1].body)["patch"] == '{"add":{"by":{"4":4}}}'
    for place in (1, 2, 3):
        again = [*entries[:-1], replace(entries[-1], body=entries[-1].body.replace('"4\\":4', f'"{place}\\":4'))]
        assert again[-1] != entries[-1]
        for read in (replay, last_of, log._put_together):
            with pytest.raises((CheckpointError, ValueError), match="there already"):
                read(again)


# Calls that were shown the state


def shown(state: Any, id: str = "1.0", **fields: Any) -> Call:
    """A call that waits for an approval of what it was shown."""
    args: Any = canonical({"state": state, **fields})
    digest = call_digest(TOOL, args)
    asked = {"pending_id": f"pend-{id}", "requested_at": AT, "why": "approval"}
    return Call(id=id, call_id=id, name="n", status="pending", tool=TOOL, args=json.loads(args), digest=digest, **asked)


@given(histories(), st.data())
def test_what_calls_were_shown_comes_back_as_it_was(states: list[Any], data: st.DataObject) -> None:
    """The state of their row, or another one, or something beside it; waiting in a row that says nothing of calls."""
    filler = {"rest": "x" * data.draw(st.sampled_from([0, 300]))}
    full = [{**state, **filler} if isinstance(state, dict) else state for state in states]
    checkpoints = [first(full[0])]
    for state in full[1:]:
        seen = data.draw(st.sampled_from(full))
        calls = data.draw(
            st.sampled_from(
                [
                    checkpoints[-1].calls,
                    (),
                    (shown(state),),
                    (shown(state), shown(seen, "1.1")),
                    (shown(seen), shown(state, "1.1", beside=[1])),
                    (Call(id="1.0", call_id="1.0", name="n", arguments=canonical({"state": seen})),),
                    (Call(id="1.0", call_id="1.0", name="n", arguments='{"state": no json' + "x" * 300),),
                ]
            )
        )
        checkpoints.append(following(checkpoints[-1], state, calls=calls))
    entries = entries_of(checkpoints)
    assert replay(entries) == checkpoints
    for upto, checkpoint in enumerate(checkpoints, 1):
        assert last_of(entries[:upto]) == checkpoint
        assert last_of(entries[:upto]).model_dump_json() == checkpoint.model_dump_json()
    assert [entry.body for entry in entries_of(replay(entries))] == [entry.body for entry in entries]


def test_a_row_holds_what_is_other_in_what_a_call_was_shown() -> None:
    state = {"log": ["x" * 500], "n": 1}
    same, more = shown(state), shown({**state, "n": 2, "new": '"shown":'}, "1.1")
    one = first({"log": [], "n": 0})
    two = following(one, state, calls=(same, more))
    row = json.loads(row_text(one, two, {}))
    assert row["shown"] == {"1.0": {"args": "{}"}, "1.1": {"args": '{"set":{"n":2,"new":"\\"shown\\":"}}'}}
    assert [call["args"] for call in row["calls"]] == ["{}", "{}"]
    entries = entries_of([one, two])
    assert log._put_together(entries) == replay(entries)[-1] == two  # read either way
    assert "shown" not in row_text(one, following(one, state, calls=(shown({"n": 1}),)), {})  # nothing is gained
    assert "shown" not in row_text(one, following(one, state, calls=(same,), kind="agent"), {})


@pytest.mark.parametrize(
    "seen",
    [
        shown({"log": ["x" * 500]}, beside=[1]),
        shown({"other": "y" * 500}),
        Call(id="1.0", call_id="1.0", name="n", arguments='{"state":{no json' + "x" * 500),
    ],
    ids=["something beside the state", "another state", "the model's text, which is no JSON"],
)
def test_a_call_that_was_shown_something_else_is_written_as_it_is(seen: Call) -> None:
    one = first({"log": ["x" * 500]})
    two = following(one, {"log": ["x" * 500], "n": 1}, calls=(seen,))
    assert '"shown":' not in row_text(one, two, {})
    entries = entries_of([one, two])
    assert last_of(entries) == replay(entries)[-1] == two


def test_what_a_call_was_shown_is_found_when_its_state_has_become_another() -> None:
    """A state that is written whole after the calls leaves nothing to go back from: the rows are read one after another."""
    one = first({"log": ["x" * 500]})
    two = following(one, {"log": ["x" * 500], "n": 1}, calls=(shown({"log": ["x" * 500], "n": 1}),))
    three = following(two, {"other": "y"})
    entries = entries_of([one, two, three])
    assert ["shown" in entry.body for entry in entries] == [False, True, False]
    assert "state" in json.loads(entries[2].body)
    with pytest.raises(ValueError, match="a state was written whole since"):
        log._put_together(entries)
    assert last_of(entries) == replay(entries)[-1] == three


@pytest.mark.parametrize(
    "left",
    ['"x"', "[]", '{"1.0":{}}', '{"9.9":{"args":"{}"}}', '{"1.0":{"id":"{}"}}', '{"1.0":{"args":"no patch"}}', '{"1.0":{"args":7}}',
     '{"1.0":{"args":"{\\"drop\\":[\\"gone\\"]}"}}', '{"1.0":{"args":"{}","arguments":"{}"}}'],
)  # fmt: skip
def test_a_damaged_row_of_what_was_shown_is_a_checkpoint_error(left: str) -> None:
    one = first({"log": ["x" * 500]})
    two = following(one, {"log": ["x" * 500], "n": 1}, calls=(shown({"log": ["x" * 500], "n": 1}),))
    entries = entries_of([one, two])
    body = entries[1].body.replace('"shown":{"1.0":{"args":"{}"}}', f'"shown":{left}')
    assert body != entries[1].body
    damaged = [entries[0], replace(entries[1], body=body)]
    for read in (replay, last_of):
        with pytest.raises(CheckpointError):
            read(damaged)


# What it costs


def growing(count: int) -> list[Any]:
    """A list and an object that grow by one thing each time, beside what stays."""
    return [
        {
            "log": [f"entry {n}" for n in range(upto)],
            "by": {f"k{n}": n for n in range(upto)},
            "rest": "x" * 100,
            "n": upto,
        }
        for upto in range(count)
    ]


def test_storage_is_linear_in_what_is_added() -> None:
    short, long = (sum(len(entry.body) for entry in entries_of(chain(growing(count)))) for count in (100, 400))
    assert 3.8 < long / short < 4.3
    whole = sum(len(state) for state in texts(chain(growing(400))))
    assert long < whole / 20


def test_the_last_checkpoint_is_put_together_without_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made on the way is as much as what is read: no row copies the state that there was before it."""
    states = growing(400)
    entries = entries_of(chain(states))
    made: list[int] = []

    def counting(function: Any) -> Any:
        def counted(*args: Any) -> Any:
            made.append(len(found := function(*args)))
            return found

        return counted

    monkeypatch.setattr(text_patch.ObjectText, "_made", counting(text_patch.ObjectText._made))
    monkeypatch.setattr(text_patch._Growing, "text", counting(text_patch._Growing.text))
    monkeypatch.setattr(text_patch, "grow", counting(text_patch.grow))
    assert log._put_together(entries).json_text("state") == canonical(states[-1])
    assert sum(made) < 2 * sum(len(entry.body) for entry in entries)
    made.clear()
    replay(entries)
    assert sum(made) > 20 * sum(len(entry.body) for entry in entries), "all of them are another matter"


# Through stores


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kinds = {"memory": MemoryStore, "sqlite": lambda: SQLiteStore(tmp_path / "runs.db", synchronous="OFF")}
    with kinds[request.param]() as opened:
        yield opened


def write(store: Store, checkpoints: Sequence[Checkpoint], before: Checkpoint | None = None, **branch: Any) -> None:
    """A run that went through these, each in a write of its own, and has ended."""
    rows = entries_of(checkpoints, before)
    of = Branch.of(checkpoints[0], **branch)
    begun = Append(branch_id=of.id, seq=of.seq, entries=(rows[0],), head=checkpoints[0].id, take="me", lease=60.0)
    store.create(of, begun, exclusive=False)
    go_on(store, checkpoints[1:], rows[1:], Claim(branch_id=of.id, run_id=of.run_id, owner="me", fence=1))


def go_on(store: Store, checkpoints: Sequence[Checkpoint], rows: Sequence[Entry], mine: Claim) -> None:
    for row, checkpoint in zip(rows, checkpoints, strict=True):
        seq = store.head(mine.branch_id)[0].seq
        store.append(Append(branch_id=mine.branch_id, seq=seq, entries=(row,), claim=mine, head=checkpoint.id))
    store.release(mine, "completed")


def read_back(store: Store, checkpoints: Sequence[Checkpoint]) -> None:
    """Each is there as it was, by itself and on the way to the last."""
    assert [store.load(each.id) for each in checkpoints] == list(checkpoints)
    assert texts(store.history(checkpoints[-1].id))[-len(checkpoints) :] == texts(checkpoints)
    assert store.head(checkpoints[-1].branch_id)[1] == checkpoints[-1]
    listed = {info.id: info.created_at for info in store.list(run_id=checkpoints[0].run_id)}
    assert [listed[each.id] for each in checkpoints] == [each.created_at for each in checkpoints]


def of_store(store: Store, branch_id: str) -> list[str]:
    """What is new in the state in each row of a branch's own log."""
    own = [entry for entry in store.lineage(branch_id=branch_id).entries if entry.branch_id == branch_id]
    return ["whole" if '"state":' in row.body else "patch" if '"patch":' in row.body else "same" for row in own]


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=histories(), forked=histories(), at=st.integers(0, 20))
def test_a_state_is_kept_through_forks_runs_and_prunes(
    store: Store, states: list[Any], forked: list[Any], at: int
) -> None:
    run_id = new_id("run")
    run = chain([*states, {"log": ["the end"]}], run_id)
    write(store, run)
    read_back(store, run)

    fork = store.fork(run[at % len(run)].id)
    assert fork.json_text("state") == run[at % len(run)].json_text("state")
    branch = [fork]
    for state in forked:
        branch.append(following(branch[-1], state))
    owned = store.append(Append(branch_id=fork.branch_id, seq=store.head(fork.branch_id)[0].seq, take="me", lease=60.0))
    mine = Claim(branch_id=owned.id, run_id=run_id, owner="me", fence=owned.fence)
    go_on(store, branch[1:], entries_of(branch)[1:], mine)
    read_back(store, branch)

    next_run = new_id("run")
    more = {"run_id": next_run, "branch_id": next_run, "step": 0}
    going_on = [following(run[-1], states[0]).evolve(**more)]
    for state in forked:
        going_on.append(following(going_on[-1], state))
    write(
        store,
        going_on,
        run[-1],
        parent_branch=run_id,
        parent_seq=store.head(run_id)[0].seq,
        seq=store.head(run_id)[0].seq,
    )
    read_back(store, going_on)

    assert store.delete(run_id)
    assert store.branches(run_id=run_id) == []
    read_back(store, going_on)


def test_a_branch_that_loses_what_it_went_on_from_is_written_whole_once(store: Store) -> None:
    run = chain(growing(6))
    write(store, run)
    assert of_store(store, "run1") == ["whole", *["patch"] * 5]
    fork = store.fork(run[2].id)
    branch = [fork, *(following(fork, state) for state in growing(6)[3:4])]
    owned = store.append(Append(branch_id=fork.branch_id, seq=store.head(fork.branch_id)[0].seq, take="me", lease=60.0))
    go_on(
        store,
        branch[1:],
        entries_of(branch)[1:],
        Claim(branch_id=owned.id, run_id="run1", owner="me", fence=owned.fence),
    )
    assert of_store(store, fork.branch_id) == ["same", "patch"]
    assert store.delete(run[-1].id)
    assert [each.id for each in store.branches(run_id="run1")] == [fork.branch_id]
    assert of_store(store, fork.branch_id) == ["whole", "patch"]
    read_back(store, branch)
    assert store.prune() == 2


def test_a_checkpoint_that_is_taken_in_brings_its_state(store: Store) -> None:
    run = chain(growing(4))
    store.save(run[-1])
    assert store.load(run[-1].id) == run[-1]
    assert of_store(store, "run1") == ["whole"]
