"""`KeyValueStore`: what it makes of a plain key-value store, when that fails, and when somebody else is first."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import rows
from key_values import Values
from store_scenes import asked, begin, bodies, note, row, told

from phronomy import Agent, CheckpointError, KeyValueStore, SQLiteStore, StoreError, UnreadableRow, open_store, tool
from phronomy.people import StoreDirectory
from phronomy.stores import Append, AuditFilter, Behind, Claim, Document
from phronomy.stores.key_value import books, tree
from phronomy.stores.key_value.tree import Node, Rewriting, Tree
from phronomy.testing import ScriptedModel, call

FROZEN = Path(__file__).with_name("corpus") / "key-value-1.json"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which every write moves into the tree, and every text is a value of its own."""
    monkeypatch.setattr(books, "_MOST", 300)
    monkeypatch.setattr(books, "_INLINE", 10)
    monkeypatch.setattr(tree, "_MOST", 200)


def filled(kv: Values) -> KeyValueStore:
    store = KeyValueStore(kv, clock=lambda: 1000.0)
    begin(store, take="me", lease=9e9, opened=(asked("p1"),), audit=(told(1.0),), texts=("a long text " * 3,))
    return store


MINE = Claim(branch_id="b1", run_id="b1", owner="me", fence=1)
CHANGE = Append(
    branch_id="b1",
    seq=1,
    entries=(note("a note that is long enough"), row("c2", body="a row that is long enough")),
    claim=MINE,
    head="c2",
    closed=("p1",),
    opened=(asked("p2", body="another request"),),
    audit=(told(2.0),),
)


def everything(kv: Values) -> tuple[str, list[str], list[str], list[str]]:
    """What another process finds."""
    store = KeyValueStore(kv, clock=lambda: 1000.0)
    trail = [*map(repr, store.select_audit(AuditFilter()))]
    return rows(store), trail, store.child_ids("b1-0"), bodies(store, "b1")


def reached(kv: Values) -> set[str]:
    """The keys that the root names, with those that they name."""
    root = next(key for key in kv.data if key.endswith("/root"))
    found, left = set(), [kv.data[root].decode()]
    while left:
        text = left.pop()
        more = {key for key in kv.data if f'"{key}"' in text} - found
        found |= more
        left += [kv.data[key].decode() for key in more]
    return found | {root}


# What is written


def test_a_step_is_one_read_and_one_compare_and_set() -> None:
    """E5, and the cost that the page on stores names: the latest changes are in the root."""
    kv = Values()
    store = filled(kv)
    kv.calls.clear()
    store.append(Append(branch_id="b1", seq=1, entries=(note("short"),), claim=MINE))
    assert kv.calls == ["get", "compare_and_set"]
    kv.calls.clear()
    store.append(Append(branch_id="b1", seq=2, entries=(note("long" * 1000),), claim=MINE))
    assert kv.calls == ["get", "set", "compare_and_set"]
    assert [key for key in kv.data if not key.startswith("phronomy//")] == []


def test_what_is_deleted_leaves_no_value(small: None) -> None:
    """Runs that are deleted leave the root, and the nodes for the trail and the kept texts."""
    kv = Values()
    store = KeyValueStore(kv)

    @tool(requires_approval=True)
    def pay(amount: float) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"amount": 5.0}), "Paid. " * 20])
    agent = Agent(name="clerk", model=model, tools=[pay], store=store)
    for _ in range(4):
        agent.resume(agent.invoke("Pay this secret canary-19").checkpoint, approved=True)
    assert kv.data.keys() == reached(kv)
    assert any(b"canary-19" in value for value in kv.data.values())
    assert store.clear() > 0
    assert kv.data.keys() == reached(kv)
    assert not any(b"canary-19" in value for value in kv.data.values())
    assert (store.branches(), len(list(store.audit()))) == ([], 4)


def test_tenants_and_their_keys_are_apart_whatever_their_names() -> None:
    kv = Values()
    store = KeyValueStore(kv, prefix="desk")
    names = ("", "a", "a/b", "=a", "ä" * 100, "x" * 200, "%61")
    for name in names:
        begin(store.for_tenant(name))
    assert len(kv.data) == len(names)
    assert all(len(key) <= 150 and key.isascii() and key.isprintable() and " " not in key for key in kv.data)
    assert [len(store.for_tenant(name).branches()) for name in names] == [1] * len(names)
    assert repr(store) == "KeyValueStore(Values, prefix='desk')"


def test_values_of_the_first_format_are_read() -> None:
    """A frozen example: it waits, and goes on."""
    kv = Values({key: text.encode() for key, text in json.loads(FROZEN.read_text()).items()})
    store = KeyValueStore(kv)
    (item,) = store.pending()
    assert (item.agent, item.thread_id, item.approval.tool_name) == ("clerk", "t", "pay")
    assert store.get_document("person", "ann") is not None
    paid: list[float] = []

    @tool(requires_approval=True)
    def pay(amount: float) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    agent = Agent(name="clerk", model=ScriptedModel(["Paid."]), tools=[pay], store=store)
    assert agent.resume(item.checkpoint_id, approved=True).output == "Paid."
    assert paid == [5.0]
    assert kv.data["phronomy//root"].startswith(b"[2,")  # what is written now is not for a release of then


# Somebody else is first


def test_of_two_writers_the_one_that_is_not_first_judges_anew_and_leaves_nothing(small: None) -> None:
    """The log's length is compared with what stands there by then; what the loser has set is deleted."""
    kv = Values()
    first, second = filled(kv), KeyValueStore(kv, clock=lambda: 1000.0)
    others = [Append(branch_id="b1", seq=1, entries=(note("the other's note"),), claim=MINE)]

    def overtake(method: str, key: str) -> None:
        if method == "compare_and_set" and others:
            first.append(others.pop())

    kv.before = overtake
    with pytest.raises(Behind):
        second.append(CHANGE)
    assert bodies(first, "b1") == ["the other's note"]
    assert kv.data.keys() == reached(kv)


def test_writers_of_two_runs_both_write(small: None) -> None:
    """They meet at the root alone: the second writes on top of the first, and nobody is told."""
    kv = Values()
    store, other = filled(kv), KeyValueStore(kv, clock=lambda: 1000.0)
    begin(store, "b2")
    others = ["b3"]

    def overtake(method: str, key: str) -> None:
        if method == "compare_and_set" and others:
            begin(other, others.pop())

    kv.before = overtake
    store.append(CHANGE)
    assert [branch.id for branch in store.branches()] == ["b1", "b2", "b3"]
    assert kv.data.keys() == reached(kv)


def test_a_reader_that_was_overtaken_begins_again(small: None) -> None:
    """The values that it still wants are deleted by a write that came between."""
    kv = Values()
    store, other = filled(kv), KeyValueStore(kv, clock=lambda: 1000.0)
    changes = [CHANGE]

    def overtake(method: str, key: str) -> None:
        if method == "get" and not key.endswith("root") and changes:
            store.append(changes.pop())

    kv.before = overtake
    assert bodies(other, "b1") == ["a note that is long enough", "a row that is long enough"]
    assert changes == []


# It fails


class Down(Exception):
    """A fault of the key-value store whose message has a secret."""

    def __init__(self) -> None:
        super().__init__("https://user:password-canary@host is down")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_at_any_call_leaves_all_of_a_write_or_nothing(small: None, when: str) -> None:
    """Of each call that a write makes: it fails before it has done anything, or after it has done all. RBY-A16."""
    kv = Values()
    filled(kv)
    before = everything(kv)
    whole = Values({**kv.data})
    filled_calls = Values({**kv.data})
    KeyValueStore(whole, clock=lambda: 1000.0).append(CHANGE)
    KeyValueStore(filled_calls, clock=lambda: 1000.0).append(CHANGE)
    outcomes = set()
    for number, method in enumerate(filled_calls.calls):
        copy = Values({**kv.data})
        calls: list[str] = []

        def fail(method: str, key: str, calls: list[str] = calls, number: int = number) -> None:
            calls.append(method)
            if len(calls) == number + 1:
                raise Down

        setattr(copy, when, fail)
        try:
            KeyValueStore(copy, clock=lambda: 1000.0).append(CHANGE)
            raised = False
        except StoreError as error:
            raised = True
            assert "canary" not in f"{error} {error!r} {error.__cause__}"
        setattr(copy, when, lambda method, key: None)
        found = everything(copy)
        written = found[1] != before[1]
        outcomes.add((method, raised, written))
        assert written != raised, "what is told is what has happened"
        assert len(found[1]) == 1 + written
        assert reached(copy) <= copy.data.keys()
        if not written:
            assert found == before
            KeyValueStore(copy, clock=lambda: 1000.0).append(CHANGE)
            assert everything(copy)[3] == [entry.body for entry in CHANGE.entries]
    lost = ("compare_and_set", when == "before", when == "after")
    assert {lost, ("get", True, False), ("set", True, False), ("delete", False, True)} == outcomes


class SentTwice(Values):
    """One whose client sends each `compare_and_set` again, as if the answer of the first had been lost; `between` is called then."""

    between: Callable[[], None] = staticmethod(lambda: None)

    def compare_and_set(self, key: str, old: bytes | None, new: bytes) -> bool:
        super().compare_and_set(key, old, new)
        self.between()
        return super().compare_and_set(key, old, new)


def test_a_compare_and_set_that_the_client_has_sent_twice_is_a_write(small: None) -> None:
    """The second one is told that something else is there: what the first has put there. Nothing that the root names is deleted."""
    kv = SentTwice()
    store = filled(kv)
    store.append(CHANGE)
    assert bodies(store, "b1") == ["a note that is long enough", "a row that is long enough"]
    assert kv.data.keys() == reached(kv)


def test_a_write_of_which_nobody_can_tell_any_more_loses_no_value(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many have written since that the root does not name it: it is judged anew, and what it has set stays."""
    monkeypatch.setattr(books, "_COMMITS", 2)
    kv = SentTwice()
    other = KeyValueStore(Values(kv.data), clock=lambda: 1000.0)
    ids = iter(["b2", "b3", "b4"])
    store = filled(kv)

    def others_write() -> None:
        for id in ids:
            begin(other, id)

    kv.between = others_write
    with pytest.raises(Behind):
        store.append(CHANGE)
    assert bodies(store, "b1") == ["a note that is long enough", "a row that is long enough"]
    assert reached(kv) <= kv.data.keys()


def test_a_death_at_any_call_leaves_all_of_a_write_or_nothing(small: None) -> None:
    """An interrupt, as a killed process: the next process finds a whole state, and writes on."""
    kv = Values()
    filled(kv)
    before = everything(kv)
    number = 0
    while True:
        copy = Values({**kv.data})
        calls: list[str] = []

        def die(method: str, key: str, calls: list[str] = calls, number: int = number) -> None:
            calls.append(method)
            if len(calls) == number + 1:
                raise KeyboardInterrupt

        copy.before = die
        try:
            KeyValueStore(copy, clock=lambda: 1000.0).append(CHANGE)
            break
        except KeyboardInterrupt:
            pass
        copy.before = lambda method, key: None
        found = everything(copy)
        assert (found == before) == ("delete" not in calls)
        assert len(found[1]) == 1 + (found != before)
        number += 1
    assert number > 5


def damages() -> Iterator[tuple[str, bytes | None]]:
    yield from (("root", text) for text in (b"", b"{}", b"\xff", b"[1]", b'[1,[],0,null,[["x",[1]]]]x'))
    yield from (("node", text) for text in (None, b"[]", b"\xff", b"7"))


@pytest.mark.parametrize(("what", "text"), list(damages()))
def test_what_is_damaged_is_refused_and_never_waited_for(small: None, what: str, text: bytes | None) -> None:
    kv = Values()
    filled(kv)
    for key in [key for key in kv.data if key.endswith("root") == (what == "root")]:
        if text is None:
            del kv.data[key]
        else:
            kv.data[key] = text
    store = KeyValueStore(kv, clock=lambda: 1000.0)
    with pytest.raises(StoreError, match="damaged"):
        store.lineage(branch_id="b1")
    with pytest.raises(StoreError, match="damaged"):
        store.append(CHANGE)


def test_a_record_of_another_form_is_damaged_too() -> None:
    """As something else would have written it."""
    kv = Values({"phronomy//root": b'[1,[],9,null,[[["b","b1"],[1]],[["y","person","ann"],[5,"v"]]]]'})
    store = KeyValueStore(kv)
    with pytest.raises(CheckpointError, match="the row of branch b1 cannot be read: it is damaged"):
        store.lineage(branch_id="b1")
    with pytest.raises(UnreadableRow, match="person ann cannot be read"):
        StoreDirectory(store).get("ann")


def test_a_time_that_is_no_number_is_refused_and_changes_nothing() -> None:
    kv = Values()
    store = filled(kv)
    before = dict(kv.data)
    for time in (math.nan, math.inf):
        with pytest.raises(StoreError, match="finite"):
            store.append(Append(branch_id="b1", seq=1, opened=(asked("p2", at=time),), claim=MINE))
    assert kv.data == before


def test_a_later_format_is_left_alone() -> None:
    kv = Values({"phronomy//root": b"[3,[],0,null,[]]"})
    with pytest.raises(StoreError, match="format 3, and this release reads 2"):
        begin(KeyValueStore(kv))
    assert kv.data == {"phronomy//root": b"[3,[],0,null,[]]"}


def test_what_is_no_key_value_store_is_refused() -> None:
    """Only True is a write: a method that forgets to answer has not said that it compared."""

    class Forgets(Values):
        def compare_and_set(self, key: str, old: bytes | None, new: bytes) -> Any:
            return None

    class Texts(Values):
        def get(self, key: str) -> Any:
            return "text"

    wrong: Any = {}
    with pytest.raises(StoreError, match="dict has no set"):
        KeyValueStore(wrong)
    with pytest.raises(StoreError, match="returns True or False, not NoneType"):
        begin(KeyValueStore(Forgets()))
    with pytest.raises(StoreError, match="returns bytes or None, not str"):
        begin(KeyValueStore(Texts()))
    for prefix in ("", "a b", "ä", "x" * 61, 5):
        with pytest.raises(StoreError, match="prefix"):
            KeyValueStore(Values(), prefix=prefix)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="no store is known"):
        open_store("kv://x")


# The tree


def test_a_tree_is_what_a_dict_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under any changes, with each way of reading, also with keys that are longer than a node."""
    monkeypatch.setattr(tree, "_MOST", 60)
    nodes: dict[str, Node] = {}
    model: dict[Any, Any] = {}
    top, keys = None, map(str, itertools.count())
    for round in range(60):
        changes = {
            ("t", (number * 7919 + round * 31) % 97, "x" * (number % 50)): None
            if (number + round) % 3 == 0
            else [round]
            for number in range(round % 13)
        }
        rewriting = Rewriting(nodes.__getitem__, keys.__next__)
        top = rewriting.top(top, sorted(changes.items(), key=lambda change: change[0]))
        nodes |= rewriting.made
        for key in rewriting.left:
            del nodes[key]
        model = {key: value for key, value in (model | changes).items() if value is not None}
        found = Tree(top, nodes.__getitem__)
        low, high = ("t", 20), ("t", 70)
        within = sorted(item for item in model.items() if low <= item[0] < high)
        assert list(found.span(("t",), ("u",))) == sorted(model.items())
        assert list(found.span(low, high)) == within
        assert list(found.span(low, high, backwards=True)) == within[::-1]
        assert all(found.get(key) == value for key, value in model.items())
        assert found.get(("t", 500, "")) is None
    assert Node.of(nodes[top or ""].text()) == nodes[top or ""]
    rewriting = Rewriting(nodes.__getitem__, lambda: "none")
    assert rewriting.top(top, sorted((key, None) for key in model)) is None
    assert set(rewriting.left) == nodes.keys()


def test_a_document_and_a_run_can_be_copied_to_and_from_another_store(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "runs.db") as sqlite:
        store = KeyValueStore(Values())
        agent = Agent(name="clerk", model=ScriptedModel(["Hello."]), store=store)
        end = agent.invoke("Hello").checkpoint
        sqlite.save(end)
        assert sqlite.load(end.id) == store.load(end.id)
        written = store.put_document(Document(kind="person", key="ann", text="{}"))
        assert store.get_document("person", "ann") == written
