"""What a stranger gives wrongly: each is a typed error that says what is meant, and nothing has happened."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, STREAMED, Driver, rows

from phronomy import (
    Agent,
    AgentChanged,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    ConfigurationError,
    InvalidDecision,
    MemoryStore,
    PhronomyError,
    Respond,
    StoreError,
    open_store,
    tool,
)
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records import validation
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def desk(store: Store | None = None, **options: Any) -> Agent[Any]:
    model = ScriptedModel.by_turn([call("pay", {"amount": 5}), "done"])
    return Agent(**{"name": "desk", "model": model, "tools": [pay], "store": store, **options})


# An agent


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("hooks", Hooks(), "hooks are instances of Hooks, in a list"),
        ("hooks", [Hooks], "hooks are instances of Hooks, in a list"),
        ("hooks", None, "hooks are instances of Hooks, in a list"),
        ("announcements", Announcements(), "announcements are instances of Announcements, in a list"),
        ("announcements", {"a": Announcements()}, "announcements are instances of Announcements, in a list"),
        ("tools", pay, r"tools is a list of tools, not FunctionTool: write tools=\[...\]"),
        ("tools", None, "tools is a list of tools, not NoneType"),
        ("tools", "pay", "tools is a list of tools, not str"),
        ("store", "sqlite:///runs.db", r"store is a Store, not str: open_store\(url\) opens one"),
        ("settings", {"temperature": 1}, "settings is a ModelSettings, not dict"),
        ("settings", {}, "settings is a ModelSettings, not dict"),
        ("max_parallel", "8", "max_parallel is a whole number above 0"),
        ("max_parallel", 0, "max_parallel is a whole number above 0"),
        ("max_parallel", 1.5, "max_parallel is a whole number above 0"),
        ("output_retries", "2", "output_retries 0 or more"),
        ("output_retries", None, "output_retries 0 or more"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_when_the_agent_first_runs(
    driver: Driver, option: str, given: Any, says: str
) -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(ConfigurationError, match=says):
        driver.invoke(desk(**{"model": model, option: given}), "go")
    assert driver.invoke(desk(model=model), "go").output == "done"


def test_listeners_can_be_given_by_anything_that_lists_them(driver: Driver) -> None:
    heard: list[str] = []

    class Ear(Hooks):
        def on_event(self, event: Any) -> None:
            heard.append(event.type)

    driver.invoke(desk(hooks=(ear for ear in [Ear()])), "go")
    assert heard[-1] == "suspended"


# A call


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("messages", 5, "messages is a list of messages, not int"),
        ("messages", "hello", "messages is a list of messages, not str"),
        ("messages", ["hello"], "role None is not user, assistant or tool"),
        ("metadata", [("a", 1)], "metadata is a mapping, not list"),
        ("metadata", 0, "metadata is a mapping, not int"),
        (
            "on_pending",
            "superseed",
            "on_pending is 'refuse', 'supersede_failed', 'supersede' or 'ignore', not 'superseed'",
        ),
        ("on_pending", [], "on_pending is 'refuse', 'supersede_failed', 'supersede' or 'ignore'"),
        ("settings", {"temperature": 1}, "settings is a ModelSettings, not dict"),
    ],
)
def test_a_run_that_is_begun_wrongly_does_not_begin(
    driver: Driver, store: Store, option: str, given: Any, says: str
) -> None:
    before = rows(store)
    with pytest.raises(ConfigurationError, match=says):
        driver.invoke(desk(store), "go", **{option: given})
    assert rows(store) == before


@pytest.mark.parametrize(
    ("method", "options", "error", "says"),
    [
        ("cancel", {"reason": 5}, InvalidDecision, "reason is text, not int"),
        ("fork", {"label": 5}, ConfigurationError, "a label is text, not int"),
        ("fork", {"label": ["a"]}, ConfigurationError, "a label is text, not list"),
        ("drift", {}, CheckpointError, r"a Checkpoint is needed, not Result: a result has one as `result.checkpoint`"),
        ("resume", {"approved": True}, CheckpointError, "a Checkpoint is needed, not Result"),
        ("fork", {}, CheckpointError, "a Checkpoint is needed, not Result"),
        ("recover", {}, CheckpointError, "a Checkpoint is needed, not Result"),
        ("recover_all", {"limit": 0}, ConfigurationError, "limit is a whole number, 1 or more, not 0"),
        ("recover_all", {"limit": "x"}, ConfigurationError, "limit is a whole number, 1 or more, not 'x'"),
        ("recover_all", {"limit": None}, ConfigurationError, "limit is a whole number, 1 or more, not None"),
    ],
)
def test_a_call_of_the_wrong_kind_changes_nothing(
    driver: Driver, store: Store, method: str, options: dict[str, Any], error: type[PhronomyError], says: str
) -> None:
    agent = desk(store)
    result = driver.invoke(agent, "go")
    before = rows(store)
    given: list[Any] = [] if method == "recover_all" else [result if "not Result" in says else result.checkpoint]
    act = agent.drift if method == "drift" else partial(driver.call, agent, method)
    with pytest.raises(error, match=says):
        act(*given, **options)
    assert rows(store) == before
    assert driver.resume(agent, result.checkpoint, approved=True).output == "done"


def test_a_label_of_a_fork_is_kept_as_any_text_is(driver: Driver, store: Store) -> None:
    agent = desk(store)
    fork = driver.fork(agent, driver.invoke(agent, "go").checkpoint, label="a\ud800")
    assert fork.label == "a�"
    assert [info.id for info in store.list(label="a�")] == [fork.id]


def test_a_decision_on_what_is_no_checkpoint_begins_no_run(driver: Driver, store: Store) -> None:
    agent = desk(store)
    asked = driver.invoke(agent, "go").checkpoint
    before = rows(store)
    streamed = STREAMED[DRIVERS.index(driver)]
    for decision in (
        {"approved": True},
        {"approved": False},
        {"decisions": {asked.pending[0].id: Respond(content="x")}},
    ):
        with pytest.raises(InvalidDecision, match=r"this was given an input: of an id, agent.store.load\(id\) gives"):
            driver.step(agent, asked.id, **decision)
        with pytest.raises(InvalidDecision, match="a decision, input= or write_to= goes with a checkpoint"):
            streamed.invoke(agent, asked.id, **decision)
    assert rows(store) == before
    assert driver.step(agent, store.load(asked.id), approved=True).status == "running"


def test_only_true_accepts_changes(driver: Driver, store: Store) -> None:
    asked = driver.invoke(desk(store), "go").checkpoint
    other = desk(store, name="another")
    for word in ("false", "no", 1, [0]):
        with pytest.raises(AgentChanged, match="accept_changes=True"):
            driver.resume(other, asked, approved=True, accept_changes=word)
    assert driver.resume(other, asked, approved=True, accept_changes=True).output == "done"


def test_an_answer_is_called_so_to_whoever_comes_late(driver: Driver, store: Store) -> None:
    agent = desk(store)
    asked = driver.invoke(agent, "go").checkpoint
    driver.resume(agent, asked, decisions={asked.pending[0].id: Respond(content="paid by hand")}, by="ada")
    with pytest.raises(CheckpointAlreadyResumed, match=r"was decided before \(answered by ada\)"):
        driver.resume(agent, asked, approved=True)


# A store

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("age", ["1h", timedelta(hours=1), NOW, -1, float("nan"), float("inf"), True, [], b"1"])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("pending", "older_than"),
        ("pending", "newer_than"),
        ("count", "older_than"),
        ("count", "newer_than"),
        ("prune", "older_than"),
    ],
)
def test_an_age_is_a_number_of_seconds(store: Store, method: str, name: str, age: Any) -> None:
    with pytest.raises(StoreError, match=f"{name} is a number of seconds, 0 or more, or None"):
        getattr(store, method)(**{name: age})


@pytest.mark.parametrize("at", ["yesterday", NOW.replace(tzinfo=None), timedelta(hours=1), True, float("nan"), []])
@pytest.mark.parametrize("name", ["since", "until"])
def test_a_time_is_seconds_or_has_a_time_zone(store: Store, name: str, at: Any) -> None:
    with pytest.raises(StoreError, match=f"{name} is a datetime with a time zone, a number of seconds"):
        store.audit(**{name: at})


def test_the_trail_is_read_from_the_time_of_one_of_its_records_on(store: Store) -> None:
    clock = iter(range(1_800_000_000, 1_800_001_000))
    store.clock = lambda: next(clock) + 0.123457
    agent = desk(store)
    for _ in range(3):
        agent.resume(agent.invoke("go").checkpoint, approved=True, by="ada")
    one, two, three = store.audit()
    assert list(store.audit(since=two.at)) == [two, three]
    assert list(store.audit(since=two.at.timestamp())) == [two, three]
    assert list(store.audit(until=two.at.astimezone())) == [one, two]
    assert list(store.audit(since=one.at + timedelta(microseconds=1), until=three.at - timedelta(microseconds=1))) == [
        two
    ]


LOOKS: dict[str, Callable[[Store, Any], Any]] = {
    "load": lambda store, given: store.load(given),
    "locate": lambda store, given: store.locate(given),
    "whole": lambda store, given: store.whole(given),
    "head": lambda store, given: store.head(given),
    "history": lambda store, given: store.history(given),
    "children": lambda store, given: store.children(given),
    "latest": lambda store, given: store.latest(given),
    "delete": lambda store, given: store.delete(given),
    "fork": lambda store, given: store.fork(given),
    "diff": lambda store, given: store.diff(given, given),
    "wait": lambda store, given: store.wait(given, timeout=0),
}


@pytest.mark.parametrize("look", LOOKS)
def test_an_id_is_text_and_what_else_is_given_is_not_quoted(store: Store, look: str) -> None:
    result = desk(store).invoke("the secret")
    before = rows(store)
    for given in (result, result.checkpoint, 5, [], None):
        with pytest.raises(StoreError, match=f"is text, not {type(given).__name__}") as caught:
            LOOKS[look](store, given)
        assert "secret" not in str(caught.value)
    assert rows(store) == before


@pytest.mark.parametrize("given", [5, b"x", [], {}, ("a",)])
@pytest.mark.parametrize(
    ("method", "name", "called"),
    [
        *[
            (method, name, name.removesuffix("_id"))
            for method in ("pending", "count")
            for name in ("run_id", "agent", "label")
        ],
        *[("list", name, name) for name in ("run_id", "thread_id", "agent", "label")],
        *[("audit", name, name) for name in ("run_id", "thread_id", "pending_id")],
        *[("branches", name, name) for name in ("run_id", "thread_id")],
    ],
)
def test_what_is_looked_for_is_text(store: Store, method: str, name: str, called: str, given: Any) -> None:
    with pytest.raises(StoreError, match=f"^{called} is text, not {type(given).__name__}$"):
        getattr(store, method)(**{name: given})


@pytest.mark.parametrize("timeout", ["1s", timedelta(seconds=1), -1, True])
def test_a_wait_is_a_number_of_seconds(store: Store, timeout: Any) -> None:
    run = desk(store).invoke("go").checkpoint.run_id
    with pytest.raises(StoreError, match="timeout is a number of seconds, 0 or more, or None"):
        store.wait(run, timeout=timeout)


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("lease", "30", "the lease is a number of seconds above 0, not '30'"),
        ("lease", None, "the lease is a number of seconds above 0, not None"),
        ("ttl", timedelta(days=1), "ttl is a number of seconds above 0, or None"),
        ("clock", 5, "the clock is called"),
    ],
)
def test_a_store_is_not_made_of_what_it_cannot_use(option: str, given: Any, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        MemoryStore(**{option: given})


@pytest.mark.parametrize("url", [Path("runs.db"), None, 5, b"sqlite:///runs.db"])
def test_a_store_is_opened_by_text(url: Any) -> None:
    with pytest.raises(StoreError, match=f"a store is named by a URL, which is text, not {type(url).__name__}"):
        open_store(url)


@pytest.mark.parametrize("text", [None, 5, -1, 1.5, object()])
def test_a_checkpoint_is_read_from_text_or_bytes(text: Any) -> None:
    with pytest.raises(CheckpointError, match=f"text or bytes are needed, not {type(text).__name__}"):
        Checkpoint.model_validate_json(text)


# A checkpoint that is brought along


WAYS_IN: dict[str, Callable[[Driver, Agent[Any], Checkpoint], Any]] = {
    "resume": lambda driver, agent, given: driver.resume(agent, given, approved=True),
    "step": lambda driver, agent, given: driver.step(agent, given, approved=True),
    "recover": lambda driver, agent, given: driver.recover(agent, given),
    "cancel": lambda driver, agent, given: driver.cancel(agent, given),
    "fork": lambda driver, agent, given: driver.fork(agent, given),
    "drift": lambda driver, agent, given: agent.drift(given),
    "save": lambda driver, agent, given: agent.store.save(given),
}


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("way", WAYS_IN)
def test_a_checkpoint_is_validated_once_wherever_it_comes_in(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch, way: str, is_known: bool
) -> None:
    """However it was built, and once however far it goes; not at all if it is field by field the stored one. Law 9"""
    given = desk(store if is_known else MemoryStore()).invoke("go").checkpoint
    agent = desk(store, trust="bearer")
    judged: list[str] = []
    decode = validation.decode

    def counting(text: str) -> Checkpoint:
        judged.append(text)
        return decode(text)

    monkeypatch.setattr(validation, "decode", counting)
    forged = given.evolve(calls=(given.calls[0].evolve(digest="0" * 64),))
    before = rows(store)
    with pytest.raises(CheckpointError, match="the digest of a call is not that of its tool and arguments"):
        WAYS_IN[way](driver, agent, forged)
    assert (rows(store), len(judged)) == (before, 1)

    judged.clear()
    WAYS_IN[way](driver, agent, given)
    is_looked_up = is_known and way not in ("save", "drift")
    assert judged == ([] if is_looked_up else [given.model_dump_json()])


def test_what_was_taken_in_is_not_replaced_by_another_of_its_id(store: Store) -> None:
    given = desk(MemoryStore()).invoke("go").checkpoint
    store.save(given)
    other = given.evolve(label="other")
    with pytest.raises(CheckpointEdited):
        store.save(other)
    with pytest.raises(CheckpointEdited):
        desk(store, trust="bearer").resume(other, approved=True)
    assert store.load(given.id).label is None
