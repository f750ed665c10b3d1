"""The secrets of `test_canary.py` on the command line: every command, for people and for machines, going well and badly."""

from __future__ import annotations

import io
import sys
import traceback
from pathlib import Path

import pytest
from places import KINDS, Place
from test_canary import CANARIES, CARD, DEPS, PASSWORD, Spy, secret_url, spy

from phronomy import Checkpoint, cli, open_store
from phronomy.cli.commands import decide

pytestmark = pytest.mark.unmeasured

__all__ = ["spy"]  # fixtures


APP = f"""
import os
from dataclasses import dataclass
from phronomy import Agent, ModelError, ToolContext, tool
from phronomy.testing import ScriptedModel, call

CARD = {CARD!r}

@dataclass
class Deps:
    key: str = {DEPS!r}

@tool(requires_approval=True, redact=["card"])
def pay(order: int, card: str, ctx: ToolContext[Deps]) -> str:
    "Pay."
    if os.path.exists("declines"):
        raise ValueError(f"declined: {{card}}")
    return "paid"

def reply(request):
    if os.path.exists("down"):
        raise LookupError("no route")
    return "Done." if request.messages[-1].role == "tool" else call("pay", {{"order": 1, "card": CARD}})

def make():
    return Agent(name="desk", model=ScriptedModel(reply), tools=[pay])
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("place", KINDS[1:], indirect=True)  # no other process sees a memory
def test_the_command_line_tells_nobody(
    place: Place, spy: Spy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command, for people and for machines, going well and badly, with and without `--debug`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.delitem(sys.modules, "canary_desk", raising=False)
    (tmp_path / "canary_desk.py").write_text(APP)
    import canary_desk  # type: ignore[import-not-found]

    shown: list[str] = []

    def run(*line: str, debug: bool = False) -> int:
        status = -1
        try:
            status = cli.run([*line, *(["--debug"] if debug else [])])
        except Exception as error:
            spy.failed(error)
            shown.append("".join(traceback.format_exception(error)))
        found = capsys.readouterr()
        shown.append(f"$ {line}\n{found.out}{found.err}" if "--reveal" not in line else "")
        return status if "--reveal" not in line else (99 if "canary-card" in found.out else 98)

    def begin() -> Checkpoint:
        with open_store(url) as store:
            agent = canary_desk.make()
            agent.store = store
            checkpoint: Checkpoint = agent.invoke("go", deps=canary_desk.Deps()).checkpoint
            return checkpoint

    with secret_url(place) as url:
        monkeypatch.setenv("PHRONOMY_STORE", url)
        monkeypatch.setenv("PHRONOMY_APP", "canary_desk:make")
        monkeypatch.setenv("PHRONOMY_DEPS", "canary_desk:Deps")
        # What is masked is approved by nobody who has not seen it. Here it is, to see that nothing shows it.
        monkeypatch.setattr(decide, "check_seen", lambda *given: None)
        first = begin()
        id = first.pending[0].id
        assert run("show", id, "--reveal") == 99  # the positive control: it is there, and is shown on demand
        for debug in (False, True):
            for line in (
                *(("pending",), ("pending", "--json"), ("show", id), ("show", id, "--json"), ("history", first.id)),
                *(
                    ("history", first.id, "--json"),
                    ("timeline", first.id),
                    ("timeline", first.id, "--json"),
                    ("show", first.run_id),
                    ("approve", id),
                    ("show", "pend_0"),
                    ("approve", "run_0"),
                ),
                ("edit", id, "--yes", "--args", f'{{"order": "x", "card": "{CARD[:20]}"}}'),
                ("edit", id, "--yes", "--args", '{"order": 1, "card": ["canary-card"]}'),
                ("edit", id, "--yes", "--args", '{"order": 1, "card": "canary-card'),
                ("approve", id, "--digest", "0" * 20),
                ("recover",),
            ):
                run(*line, debug=debug)
        assert run("edit", id, "--yes", "--args", '{"order": 2, "card": "[redacted]"}') == cli.DONE
        for machine in ((), ("--json",)):
            for command in (("approve",), ("reject", "--then", "end"), ("respond", "by hand")):
                assert run(command[0], begin().pending[0].id, *command[1:], "--yes", *machine) == cli.DONE
            for name in ("declines", "down"):
                (tmp_path / name).touch()
                if name == "down":
                    (tmp_path / name).unlink()
                    id = begin().pending[0].id
                    (tmp_path / name).touch()
                for debug in (False, True):
                    run("approve", id if name == "down" else begin().pending[0].id, "--yes", *machine, debug=debug)
                (tmp_path / name).unlink()
        run("approve", id, "--yes")
        run("recover", "--yes", "--json")
    for away in (
        f"postgresql://a:{PASSWORD}@127.0.0.1:1/x?timeout=0.2",
        f"redis://a:{PASSWORD}@127.0.0.1:1/0?timeout=0.2",
        f"x://{PASSWORD}",
    ):
        for debug in (False, True):
            run("pending", "--store", away, debug=debug)
    assert any("secret" in text and "not shown" in text for text in shown)
    assert any("Traceback" in text for text in shown)
    written = [text for text in shown if any(canary in text.partition("\n")[2] for canary in CANARIES)]
    assert written == []
    assert spy.leaks() == []
