"""The commands that look at a store: what they print for people and for machines. And the app that all these tests are about."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phronomy import Checkpoint, Reject, SQLiteStore, cli
from phronomy.cli.views import LONGEST
from phronomy.observability.drawings.drawing import tree_mermaid, tree_svg

APP = '''
import re
import time
from pathlib import Path
from typing import Annotated

from pydantic import Field

from phronomy import Agent, ModelError, SQLiteStore, tool
from phronomy.models.base import TextDelta
from phronomy.testing import ScriptedModel, call

print("desk is loaded")


def waits_while(name):
    """Note that we are here, and stay while there is a file of this name."""
    if Path(name).exists():
        Path(name + "ing").touch()
        while Path(name).exists():
            time.sleep(0.01)


def pay(order_id, amount, token):
    """The work of both tools."""
    print("refunding \\x1b[31m")
    with Path("refunds.txt").open("a") as file:
        file.write(f"{order_id} {amount} {token}\\n")
    waits_while("hang")
    return f"{amount} euros for order {order_id} are on their way"


@tool(requires_approval=True, redact=["token"])
def refund(order_id: int, amount: Annotated[float, Field(gt=0)] = 49.9, note: str = "", token: str = "s3cret") -> str:
    """Refund an order, in euros."""
    return pay(order_id, amount, token)


def reply(request):
    waits_while("think")
    if Path("down").exists():
        raise ModelError("the provider is down")
    last = request.messages[-1]
    orders = re.findall(r"[0-9]{4}", last.text) if last.role == "user" else []
    if orders:
        return [call("refund", {"order_id": int(each)}) for each in orders]
    return f"You said: {last.text}" if last.role == "user" else "Done."


class Streaming(ScriptedModel):
    """Gives its reply word by word."""

    def stream(self, request):
        whole = self.complete(request)
        for word in re.findall(r"\\S+\\s*", whole.message.text):
            yield TextDelta(text=word)
        yield whole


def make():
    return Agent(name="desk", model=ScriptedModel(reply), tools=[refund])


def streaming():
    return Agent(name="desk", model=Streaming(reply), tools=[refund])


def asynchronous():
    @tool(requires_approval=True, redact=["token"], name="refund")
    async def arefund(
        order_id: int, amount: Annotated[float, Field(gt=0)] = 49.9, note: str = "", token: str = "s3cret"
    ) -> str:
        """Refund an order, in euros."""
        return pay(order_id, amount, token)

    return Agent(name="desk", model=ScriptedModel(reply), tools=[arefund])


def kept():
    return Agent(name="desk", model=ScriptedModel(reply), tools=[refund], store=SQLiteStore("kept.db"))


@tool(external=True)
def locate(accuracy: int = 10) -> str:
    """Ask the phone where it is."""
    raise NotImplementedError


def phoning():
    return Agent(name="desk", model=ScriptedModel.by_turn([call("locate"), "There."]), tools=[locate])


@tool(external=True)
def measure() -> dict[str, float]:
    """Measure the parcel on the scales."""
    raise NotImplementedError


def weighing():
    return Agent(name="desk", model=ScriptedModel.by_turn([call("measure"), "Weighed."]), tools=[measure])


class Desk(Agent):
    name = "desk"
    model = ScriptedModel(reply)
    tools = [refund]


class inside:
    desk = make()


def other():
    return Agent(name="other", model=ScriptedModel(reply))


def broken():
    raise LookupError("no key")


def needs(key):
    return make()


async def later():
    return make()


number = 7
used = make()
used.spec
'''
STORE = "sqlite:///runs.db"
KEYS = [
    "pending_id", "checkpoint_id", "run_id", "branch_id", "thread_id", "agent", "path", "tool_name", "call_id", "args",
    "masked", "digest", "why", "point", "breakpoint", "reason", "requested_at", "expires_at", "on_expiry", "risk", "endpoint",
    "external", "title", "context", "answers", "requester", "approvers", "votes", "policy", "trigger", "conversation",
]  # fmt: skip
"""The keys of a pending approval, as docs/cli.md lists them."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with an app in it, whose user is rita."""
    ours = ("PHRONOMY_APP", "PHRONOMY_DEPS", "PHRONOMY_STORE", "PHRONOMY_TENANT")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "VISUAL", "EDITOR", *ours):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOGNAME", "rita")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.py").write_text(APP)
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    return tmp_path


def begin(said: str = "Refund order 1042", thread: str | None = "t1", store: str = "runs.db") -> Checkpoint:
    """A run that waits, begun by another process as far as the command line can tell."""
    sys.path.insert(0, os.getcwd())
    import desk

    with SQLiteStore(store) as kept:
        agent = desk.make()
        agent.store = kept
        return agent.invoke(said, thread_id=thread).checkpoint


def waiting() -> list[str]:
    with SQLiteStore("runs.db") as store:
        return [item.approval.id for item in store.pending()]


def refunds() -> list[str]:
    path = Path("refunds.txt")
    return path.read_text().splitlines() if path.exists() else []


def run(*line: str, app: str | None = "desk:make", store: str | None = STORE) -> int:
    options = [*(["--app", app] if app else []), *(["--store", store] if store else [])]
    sys.modules.pop("desk", None)
    return cli.run([line[0], *options, *line[1:]])


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What was printed on standard output since it was last looked at."""

    def read() -> str:
        return capsys.readouterr().out

    return read


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """The one line of an error, and nothing on standard output."""

    def read() -> str:
        found = capsys.readouterr()
        lines = [line for line in found.err.splitlines() if line != "desk is loaded" and "refunding" not in line]
        assert found.out == ""
        assert len(lines) == 1
        return lines[0]

    return read


# Looking


def test_what_waits_is_a_line_each_oldest_first(said: Callable[[], str]) -> None:
    assert run("pending", app=None, store="sqlite:///empty.db?lease=5") == cli.FAILED
    said()
    first, second = begin().pending[0], begin("Refund order 2000", "t2").pending[0]
    said()
    assert run("pending", app=None) == cli.DONE
    heads, one, two = said().splitlines()
    assert heads.split() == ["PENDING", "ABOUT", "SINCE", "WHY", "AGENT", "THREAD"]
    assert re.fullmatch(rf"{first.id}  refund  just now  approval  desk   t1", one)
    assert re.fullmatch(rf"{second.id}  refund  just now  approval  desk   t2", two)
    assert run("pending", "--thread", "t2", app=None) == cli.DONE
    assert said().splitlines()[1:] == [two]
    assert run("pending", "--run", "run_0", app=None) == cli.DONE
    assert said() == "Nothing waits for a decision.\n"
    assert run("pending", "--run", "run_0", "--json", app=None) == cli.DONE
    assert json.loads(said()) == {"items": [], "next": None}


def test_for_machines_a_pending_approval_has_these_keys(said: Callable[[], str]) -> None:
    checkpoint = begin()
    (item,) = checkpoint.pending
    said()
    assert run("pending", "--json") == cli.DONE
    (found,) = json.loads(said())["items"]
    assert list(found) == [*KEYS, "label"]
    assert found == {
        "pending_id": item.id,
        "checkpoint_id": checkpoint.id,
        "run_id": checkpoint.run_id,
        "branch_id": checkpoint.run_id,
        "thread_id": "t1",
        "agent": "desk",
        "path": "",
        "tool_name": "refund",
        "call_id": "call_1",
        "args": {"order_id": 1042, "amount": 49.9, "note": "", "token": "[redacted]"},
        "masked": ["token"],
        "digest": item.digest,
        "why": "approval",
        "point": None,
        "breakpoint": None,
        "reason": None,
        "requested_at": item.requested_at.isoformat(),
        "expires_at": None,
        "on_expiry": "reject",
        "risk": None,
        "endpoint": None,
        "external": False,
        "title": None,
        "context": None,
        "answers": ["approve", "edit", "reject", "respond"],
        "requester": None,
        "approvers": [],
        "votes": [],
        "policy": None,
        "trigger": None,
        "conversation": [],
        "label": None,
    }


def test_show_says_exactly_what_will_run_and_who_asks(said: Callable[[], str]) -> None:
    checkpoint = begin("Refund order 1042 [bold]now[/bold]")
    (item,) = checkpoint.pending
    said()
    for id in (item.id, checkpoint.id, checkpoint.run_id):
        assert run("show", id) == cli.DONE
        assert (
            said()
            == f"""\
  user      Refund order 1042 [bold]now[/bold]
  model     calls refund {{"order_id": 1042}}

Approval needed: refund
  order_id  integer   1042
  amount    number    49.9
  note      text      ""
  token     secret    not shown
(--reveal shows what is masked)
  asked by  agent desk
  since     {item.requested_at:%Y-%m-%d %H:%M:%S} UTC (just now)
  pending   {item.id}
  waits at  {checkpoint.id}
  run       {checkpoint.run_id}
  thread    t1
  digest    {item.digest}
"""
        )
    assert run("show", item.id, "--reveal") == cli.DONE
    assert '  token     text      "s3cret"\n  asked by' in said()


def test_without_the_app_nobody_knows_what_is_secret_so_all_is_masked(said: Callable[[], str]) -> None:
    (item,) = begin().pending
    said()
    for app in (None, "desk:other"):
        assert run("show", item.id, app=app) == cli.DONE
        shown = said()
        assert "  order_id  secret    not shown\n" in shown
        assert 'calls refund {"order_id": "[redacted]"}' in shown
        assert "it is not known which" in shown
        assert run("show", item.id, "--json", app=app) == cli.DONE
        document = json.loads(said())
        assert set(document["pending"][0]["args"].values()) == {"[redacted]"}
        assert document["pending"][0]["masked"] == ["amount", "note", "order_id", "token"]
    assert run("show", item.id, "--reveal", app=None) == cli.DONE
    assert '  token     text      "s3cret"\n' in said()


def test_what_was_said_with_a_decision_and_is_not_read_yet_is_shown(said: Callable[[], str]) -> None:
    checkpoint = begin("Refund orders 1042 and 2000")
    import desk

    with SQLiteStore("runs.db") as kept:
        agent = desk.make()
        agent.store = kept
        first = {checkpoint.pending[0].id: Reject()}
        agent.resume(checkpoint.id, decisions=first, by="olga", input="Write to the customer.\n  decided   approve")
    said()
    assert run("show", checkpoint.run_id) == cli.DONE
    assert "  to come   user, from olga: Write to the customer.\n              decided   approve\n" in said()
    assert run("show", checkpoint.run_id, "--json") == cli.DONE
    [added] = json.loads(said())["added"]
    assert (added["role"], added["text"]) == ("user", "Write to the customer.\n  decided   approve")


def test_show_for_machines_has_the_run_the_decisions_and_the_tail(said: Callable[[], str]) -> None:
    checkpoint = begin("Refund orders 1042 and 2000")
    said()
    assert run("reject", checkpoint.pending[0].id, "--yes", "--reason", "late", "--by", "olga") == cli.PENDING
    said()
    assert run("show", checkpoint.run_id, "--json") == cli.DONE
    found = json.loads(said())
    assert list(found) == [
        "run_id", "branch_id", "thread_id", "agent", "checkpoint_id", "step", "status", "created_at", "pending",
        "decisions", "messages", "earlier_messages",
    ]  # fmt: skip
    assert (found["status"], found["earlier_messages"]) == ("suspended", 0)
    assert [list(each) for each in found["pending"]] == [KEYS]
    (decision,) = found["decisions"]
    assert decision.pop("at").endswith("+00:00")
    assert decision == {
        "pending_id": checkpoint.pending[0].id,
        "kind": "reject",
        "by": "olga",
        "behalf_of": None,
        "channel": "cli",
        "reason": "late",
        "then": "continue",
        "edited": False,
        "digest": checkpoint.pending[0].digest,
        "votes": [],
        "policy": None,
    }
    assert [(each["role"], each["text"]) for each in found["messages"]] == [
        ("user", "Refund orders 1042 and 2000"),
        ("assistant", ""),
    ]
    assert found["messages"][1]["tool_calls"][1] == {
        "id": "call_2",
        "name": "refund",
        "arguments": '{"order_id": 2000}',
    }
    assert run("show", checkpoint.run_id) == cli.DONE
    assert re.search(r"^  decided   reject by olga, \S+ \S+ UTC: late$", said(), re.MULTILINE)


def test_a_long_conversation_is_shown_by_its_end_and_a_long_message_by_its_beginning(said: Callable[[], str]) -> None:
    for text in ("one", "two", "three", "x" * (LONGEST + 5)):
        begin(text)
    checkpoint = begin("Refund order 1042")
    said()
    assert run("show", checkpoint.id) == cli.DONE
    shown = said()
    assert shown.startswith("            (4 earlier messages)\n  user      three\n")
    assert "... (5 more" in shown.replace("\n            ", " ")
    assert run("show", checkpoint.id, "--json") == cli.DONE
    assert json.loads(said())["earlier_messages"] == 4


def test_history_lists_the_checkpoints(said: Callable[[], str]) -> None:
    checkpoint = begin()
    said()
    for id in (checkpoint.pending[0].id, checkpoint.id, checkpoint.run_id):
        assert run("history", id, app=None) == cli.DONE
        heads, last = said().splitlines()
        assert heads.split() == ["STEP", "TIME", "UTC", "STATUS", "WAITS", "FOR"]
        assert (last.split()[0], last.split()[2:]) == ("1", ["suspended", "refund"])
        assert run("history", id, "--ids", app=None) == cli.DONE
        heads, first, last = said().splitlines()
        assert heads.split() == ["CHECKPOINT", "STEP", "TIME", "UTC", "STATUS", "WAITS", "FOR", "RUN"]
        assert first.split()[4:] == ["running", "-", checkpoint.run_id]
        assert (last.split()[:2], last.split()[4:]) == (
            [checkpoint.id, "1"],
            ["suspended", "refund", checkpoint.run_id],
        )
    assert run("history", checkpoint.id, "--json", app=None) == cli.DONE
    first, second = json.loads(said())
    assert second == {
        "checkpoint_id": checkpoint.id,
        "parent_id": first["checkpoint_id"],
        "run_id": checkpoint.run_id,
        "branch_id": checkpoint.branch_id,
        "step": 1,
        "status": "suspended",
        "label": None,
        "created_at": checkpoint.created_at.isoformat(),
        "messages": 2,
        "pending_ids": [checkpoint.pending[0].id],
    }


def test_history_draws_the_run_of_any_id(said: Callable[[], str]) -> None:
    checkpoint = begin()
    said()
    with SQLiteStore("runs.db") as store:
        tree, svg = tree_mermaid(store, checkpoint.run_id), tree_svg(store, checkpoint.run_id)
    first = checkpoint.parent_id
    assert first is not None
    assert [line.strip() for line in tree.splitlines()][:5] == [
        "flowchart TD",
        f"accTitle: Run {checkpoint.run_id}",
        f'n0["0: input<br/>{first[:13]}"]',
        f'n1{{{{"1: model asks for refund<br/>waits for refund<br/>now suspended<br/>{checkpoint.id[:13]}"}}}}',
        "n0 --> n1",
    ]
    for id in (checkpoint.pending[0].id, checkpoint.id, first, checkpoint.run_id):
        for option, drawn in (("--mermaid", tree), ("--svg", svg)):
            assert run("history", id, option, app=None) == cli.DONE
            assert said() == drawn


@pytest.mark.parametrize("options", ["--mermaid --svg", "--json --svg", "--json --mermaid", "--json --mermaid --svg"])
def test_history_is_given_in_one_form(options: str, told: Callable[[], str], said: Callable[[], str]) -> None:
    checkpoint = begin()
    said()
    assert run("history", checkpoint.id, *options.split(), app=None) == cli.MISUSED
    assert "--json, --mermaid and --svg exclude each other" in told()


@pytest.mark.parametrize("option", ["--mermaid", "--svg"])
def test_what_the_store_does_not_know_is_not_drawn(
    option: str, told: Callable[[], str], said: Callable[[], str]
) -> None:
    begin()
    said()
    assert run("history", "run_0", option, app=None) == cli.FAILED
    assert "the store knows no pending approval, checkpoint or run run_0" in told()
