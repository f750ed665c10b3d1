"""Lists in a terminal of 100 columns: a row is a line, long cells are cut, and ids and times never are."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any
from unittest.mock import patch

import pytest
from tables import each

from phronomy import Agent, Approval, Approve, Grant, Principal, SQLiteStore, cli, tool
from phronomy.cli.screen import Screen
from phronomy.people import Person, StoreDirectory
from phronomy.testing import ScriptedModel, call

ID = "pend_80ed68548ae9e78478e791a2"
PERSON = "rita@a-company-with-a-long-name.example.org"
AT = "2026-11-21 12:11:37 UTC"


class Tty(io.StringIO):
    """A terminal that keeps what is printed."""

    def isatty(self) -> bool:
        return True


def in_terminal(act: Any, columns: int = 100) -> list[str]:
    """The lines that a terminal of so many columns shows."""
    with redirect_stdout(Tty()) as out, patch.dict(os.environ, COLUMNS=str(columns), TERM="xterm"):
        act()
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def table(heads: Sequence[str], *rows: Sequence[str], columns: int) -> list[str]:
    return in_terminal(lambda: Screen().table(heads, rows), columns)


LONG = "Refund order 1042 to the customer who wrote yesterday"


@each(
    ("heads", "row", "columns", "shown"),
    [
        (("PENDING", "ABOUT"), (ID, LONG), 90, [f"PENDING{' ' * 24}ABOUT", f"{ID}  {LONG}"]),
        (("PENDING", "ABOUT"), (ID, LONG), 60, [f"PENDING{' ' * 24}ABOUT", f"{ID}  Refund order 1042 to the cus…"]),
        (("PENDING", "AT"), (ID, AT), 54, [f"PENDING{' ' * 24}AT", f"{ID}  {AT}"]),
        (("ABOUT", "RUN", "BY"), (LONG, ID, "rita"), 70, [f"ABOUT{' ' * 50}BY", f"{LONG}  rita", "(no room for RUN)"]),
        (("PENDING", "ABOUT"), (ID, "\u65e5" * 20), 50, [f"PENDING{' ' * 24}ABOUT", f"{ID}  {chr(0x65E5) * 9}…"]),
        (("PENDING", "ABOUT"), (ID, LONG), 30, [f"  pending   {ID}", f"  about     {LONG}", ""]),
        (
            ("A", "B", "C"),
            ("a" * 60, "b" * 20, "c" * 20),
            78,
            [f"A{' ' * 61}B", f"{'a' * 60}  {'b' * 15}…", "(no room for C)"],
        ),
        (("PENDING", "AT"), (ID, AT), 40, [f"  pending   {ID}", f"  at        {AT}", ""]),
    ],
)
def test_a_row_is_a_line(heads: Any, row: Any, columns: int, shown: list[str]) -> None:
    assert table(heads, row, columns=columns) == shown


@pytest.fixture
def store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with some of all that is listed, under names that are long."""
    monkeypatch.chdir(tmp_path)
    url = "sqlite:///runs.db"

    @tool(
        requires_approval=Approval(
            title="Refund order {order_id}", by=["finance", "treasury"], needed=2, standing=True
        ),
        risk="medium",
        approval_timeout=3_600,
    )
    def refund_the_order(order_id: int) -> str:
        """Refund an order."""
        return "done"

    with SQLiteStore("runs.db") as store:
        model = ScriptedModel.by_turn([lambda request: call("refund_the_order", {"order_id": 1042}), "Done."])
        agent: Any = Agent(name="the-desk-of-refunds", model=model, tools=[refund_the_order], store=store)
        people = StoreDirectory(store)
        for name in ("rita", "mia"):
            people.add(
                Person(
                    id=f"{name}@a-company-with-a-long-name.example.org",
                    name=f"{name.title()} of the department of finance",
                    roles=("finance", "treasury", "support", "first-level"),
                    aliases=(f"slack:U0123{name.upper()}", f"email:{name}@a-company-with-a-long-name.example.org"),
                )
            )
        agent.invoke(LONG, thread_id="conversation-0-of-a-customer", label="what if")
        asked = agent.invoke(LONG, thread_id="conversation-1-of-a-customer", label="what if").checkpoint
        ids = [PERSON, "mia@a-company-with-a-long-name.example.org"]
        for id in ids:
            answer = {asked.pending[0].id: Approve()}
            agent.resume(asked, decisions=answer, by=Principal(id=id, roles=("finance",)), channel="a-long-channel")
        store.grant(
            Grant(agent=agent.name, tool="refund_the_order", scope="tenant", uses=5, reason=LONG),
            by=Principal(id=ids[0], roles=("finance",)),
        )
    for line in (
        ("people", "name-deputy", *ids, "--reason", LONG, "--until", "14d"),
        ("token", "issue", "the token of a program", "--as", ids[0], "--scope", "read", "--scope", "decide"),
    ):
        assert cli.run([*line, "--store", url]) == cli.DONE
    return asked.run_id


@each(
    ("line", "rows"),
    [
        ("pending", 1),
        ("runs", 2),
        ("timeline RUN", None),
        ("timeline RUN --ids", None),
        ("history RUN", None),
        ("history RUN --ids", None),
        ("list", None),
        ("audit --table", None),
        ("grants", 1),
        ("people list", 2),
        ("people deputies PERSON", 1),
        ("token list", 1),
    ],
)
def test_every_list_is_rows(line: str, rows: int | None, store: str) -> None:
    words = [{"RUN": store, "PERSON": PERSON}.get(each, each) for each in line.split()]
    lines = in_terminal(lambda: cli.run([*words, "--store", "sqlite:///runs.db"]))
    heads, *others = [each for each in lines if not each.startswith("(no room for ")]
    assert heads == heads.upper() and not heads.startswith(" "), lines
    assert rows in (None, len(others)), lines
    assert max(map(len, lines)) <= 100, lines
    assert not any(not each or each.startswith("  ") for each in others), lines
