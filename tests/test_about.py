"""The subjects of runs: the waiting request, the first words of the user, and who asked, without reading the logs of a page of runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypedDict

import pytest
from drivers import Driver
from inbox_scenes import RITA, ByHeader, Visitor, inbox_of
from page_reader import Element, read
from places import Place
from tables import each
from test_cli_runs import place as folder
from test_cli_runs import said

from phronomy import (
    END,
    START,
    Agent,
    Approval,
    MemoryStore,
    Principal,
    SQLiteStore,
    StateGraph,
    Store,
    cli,
    tool,
)
from phronomy.errors import GuardrailRefused
from phronomy.guardrails import RedactPatterns, Refuse, guardrail
from phronomy.observability.about import About, abouts
from phronomy.observability.masking import Masking
from phronomy.stores.derived.beginnings import LONGEST, beginnings
from phronomy.stores.rows import BranchFilter, CheckpointFilter
from phronomy.testing import ScriptedModel, call

__all__ = ["folder", "said"]  # fixtures

ANN, BOB = Principal(id="ann", name="Ann"), Principal(id="bob")


@tool(requires_approval=Approval(title="Refund order {order}"), redact={"card"})
def refund(order: int, card: str = "4242") -> str:
    """Refund an order."""
    return "done"


@guardrail
def no_suits(text: str) -> Any:
    """Nobody sues us here."""
    return Refuse("no", code="legal") if "sue" in text else None


def desk(store: Store, **options: Any) -> Agent[Any, str]:
    """Refunds what it is asked to."""
    model = ScriptedModel.by_turn([call("refund", {"order": 1042}), "Done."])
    return Agent(name="desk", model=model, tools=[refund], store=store, **options)


def talker(store: Store, **options: Any) -> Agent[Any, str]:
    return Agent(name="talker", model=ScriptedModel.by_turn(["Done."]), store=store, **options)


def about(store: Store, spec: Any = None) -> list[About]:
    """The subjects of the runs of a store, newest first."""
    branches = store.select_branches(BranchFilter(newest=True))
    waits: dict[str, Any] = {}
    for row in store.pending_rows():
        waits.setdefault(row.branch_id, []).append(row)
    found = abouts(store, branches, waits, lambda _: Masking(spec))
    return [found[branch.id] for branch in branches]


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def test_a_run_is_about_what_waits_its_first_words_and_who_asked(driver: Driver, store: Store) -> None:
    agent = desk(store)
    driver.invoke(agent, "  Please refund\norder 1042.  ", requester=ANN)
    (found,) = about(store, agent.spec)
    assert found.item is not None and found.item.title == "Refund order 1042"
    assert (found.args, found.words, found.requester) == (
        "order: 1042, card: hidden",
        "Please refund order 1042.",
        ANN,
    )
    # Without the code of the agent nobody knows what is secret.
    assert about(store)[0].args == ""


@each(
    ("input", "words"),
    [
        ("Go", "Go"),
        ("x" * 101, f"{'x' * 100}…"),
        ("a" * (LONGEST + 1), None),
        ([{"type": "text", "text": "Look"}, {"type": "text", "text": "here"}], "Look here"),
        ('"original_input":"mine"', '"original_input":"mine"'),
    ],
)
def test_the_first_words_are_a_line(input: Any, words: str | None, driver: Driver, store: Store) -> None:
    driver.invoke(talker(store), input)
    assert about(store)[0].words == words


def test_of_what_guardrails_change_or_refuse_nothing_else_is_told(driver: Driver, store: Store) -> None:
    agent = talker(store, input_guardrails=[no_suits, RedactPatterns([r"\d{4}"])])
    driver.invoke(agent, "My card is 4242", thread_id="t")
    driver.invoke(agent, "It is 4343", thread_id="t")
    driver.invoke(agent, "Plain words")
    with pytest.raises(GuardrailRefused):
        driver.invoke(agent, "I sue you, 4444")
    assert [each.words for each in about(store)] == [
        None,
        "Plain words",
        "It is [redacted]",
        "My card is [redacted]",
    ]


def test_an_input_that_no_guardrail_has_looked_at_is_not_told(store: Store) -> None:
    stream = talker(store, input_guardrails=[no_suits]).stream("I sue you")
    next(iter(stream))
    assert [each.words for each in about(store)] == [None]


def test_who_asked_is_known_in_each_run_of_a_thread(driver: Driver, store: Store) -> None:
    """Though a run that goes on says it only where it is somebody else."""
    agent = talker(store)
    for requester in (ANN, ANN, BOB, None, ANN, ANN):
        driver.invoke(agent, "Go", thread_id="t", requester=requester)
    assert [each.requester for each in about(store)] == [ANN, ANN, None, BOB, ANN, ANN]
    # Of a page the run before it is read as well, and no other.
    newest = store.select_branches(BranchFilter(newest=True, limit=1))
    assert [each.requester for each in beginnings(store, newest).values()] == [ANN]


def test_a_fork_is_about_what_its_run_is_about(driver: Driver, store: Store) -> None:
    agent = desk(store)
    asked = driver.invoke(agent, "Refund it", requester=ANN).checkpoint
    store.fork(asked.id, label="what if")
    fork, run = about(store, agent.spec)
    assert (fork.words, fork.requester) == (run.words, run.requester) == ("Refund it", ANN)


class State(TypedDict):
    """A state."""

    order: int


def test_the_state_of_a_graph_is_told_where_its_code_is(driver: Driver, store: Store) -> None:
    builder = StateGraph(State, name="graph")
    builder.add_node("look", lambda state: {})
    builder.add_edge(START, "look")
    builder.add_edge("look", END)
    graph: Any = builder.compile(store=store)
    driver.invoke(graph, {"order": 7})
    assert (about(store, graph.spec)[0].words, about(store)[0].words) == ("order: 7", None)


def test_a_damaged_row_costs_its_own_run(tmp_path: Any) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        for words in ("one", "two", "three"):
            talker(store).invoke(words)
        _, two, _ = store.select_branches(BranchFilter())
        first = store.select_checkpoints(CheckpointFilter(run_id=two.id))[0].checkpoint_id
        for body in ("{", "[]", '{"messages":[5]}', '{"messages":[{"role":"user","content":"{"}]}', '{"requester":5}'):
            with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
                connection.execute("UPDATE phronomy_log SET body = ? WHERE checkpoint_id = ?", (body, first))
                connection.commit()
            assert [(each.words, each.requester) for each in about(store)] == [
                ("three", None),
                (None, None),
                ("one", None),
            ]


def test_a_page_of_runs_reads_no_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with SQLiteStore(tmp_path / "runs.db") as store:
        for _ in range(50):
            talker(store).invoke("Go")
        branches = store.select_branches(BranchFilter())
        read = store._read
        statements: list[str] = []

        def counted(statement: str, *rest: Any) -> Any:
            statements.append(statement)
            return read(statement, *rest)

        monkeypatch.setattr(store, "_read", counted)
        found = abouts(store, branches, {}, lambda _: Masking(None))
        assert len(found) == 50 and {each.words for each in found.values()} == {"Go"}
        assert len(statements) == 1


# Where it is shown


class Scene:
    """Two runs, of which one waits, and the inbox over them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.agent = desk(self.store)
        self.asked = self.agent.invoke("Please refund 1042 <b>", requester=ANN).checkpoint
        talker(self.store).invoke("Hello\u202e there", requester=BOB)
        self.inbox = inbox_of(self.store, agents=[self.agent], auth=ByHeader(RITA))

    def page(self, path: str) -> Element:
        answer = Visitor(self.inbox, "rita").get(path)
        assert answer.status_code == 200, answer.text
        return read(answer.text).one("main")


def test_the_list_of_runs_says_it() -> None:
    scene = Scene()
    other, waits = scene.page("/runs").all("li", class_="row")
    assert other.one("h2").text == "The user wrote: HelloU+202E right-to-left override there"
    assert waits.one("h2").text == "Refund order 1042"
    assert [each.text for each in waits.all("p", class_="line")] == [
        "order: 1042, card: hidden",
        "The user wrote: Please refund 1042 <b>",
    ]
    assert (
        "for Ann (ann)" in waits.one("p", class_="facts").text and "agent desk" in waits.one("p", class_="facts").text
    )
    assert scene.page(f"/runs/{scene.asked.run_id}").one("h1").text == "Refund order 1042"


def test_the_history_says_it() -> None:
    scene = Scene()
    scene.agent.resume(scene.asked, approved=True, by=RITA)
    (row,) = scene.page("/history").all("li", class_="row")
    assert row.one("p", class_="line").text == "The user wrote: Please refund 1042 <b>"
    assert "for Ann (ann)" in row.one("p", class_="facts").text
    scene.store.delete(scene.asked.run_id)
    (row,) = scene.page("/history").all("li", class_="row")
    assert row.all("p", class_="line") == []


def test_the_api_says_it() -> None:
    scene = Scene()
    other, waits = Visitor(scene.inbox, "rita").get("/api/v1/runs").json()["items"]
    assert (waits["title"], waits["words"], waits["requester"]["id"]) == (
        "Refund order 1042",
        "Please refund 1042 <b>",
        "ann",
    )
    assert (other["title"], other["words"], other["requester"]["id"]) == (None, "Hello\u202e there", "bob")


def test_the_command_line_says_it(folder: Any, said: Callable[[], str]) -> None:
    with SQLiteStore("runs.db") as store:
        asked = desk(store).invoke("Please refund 1042", requester=ANN).checkpoint
        talker(store).invoke("Hello\x1b[2J there", requester=BOB)
    line = ("--store", "sqlite:///runs.db")
    assert cli.run(["runs", *line]) == cli.DONE
    heads, waits, other = said().splitlines()
    assert heads.split() == ["RUN", "ABOUT", "STATUS", "SINCE", "FOR", "AGENT", "THREAD"]
    assert waits.startswith(f"{asked.run_id}  Refund order 1042  ") and waits.split()[-3:] == ["Ann", "desk", "-"]
    assert '  "Hello\\x1b[2J there"  completed  ' in other and other.split()[-3:] == ["bob", "talker", "-"]
    assert cli.run(["pending", *line]) == cli.DONE
    heads, row = said().splitlines()
    assert heads.split() == ["PENDING", "ABOUT", "FOR", "SINCE", "WHY", "AGENT", "TOOL"]
    assert row == f"{asked.pending[0].id}  Refund order 1042  Ann  just now  approval  desk   refund"
    assert cli.run(["runs", *line, "--json"]) == cli.DONE
    items = json.loads(said())["items"]
    assert [(each["title"], each["words"], each["requester"]) for each in items] == [
        ("Refund order 1042", "Please refund 1042", "ann"),
        (None, "Hello\x1b[2J there", "bob"),
    ]
