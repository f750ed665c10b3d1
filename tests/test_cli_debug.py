"""`phronomy debug`: what it prints is what its page says, and nothing that is typed, or pressed, loses a run."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from drivers import PATIENCE
from test_cli_terminal import comes, terminal

from phronomy import SQLiteStore, cli
from phronomy.cli.commands.debug import COMMANDS, WHERE
from phronomy.records.breakpoint_points import Point

pytestmark = pytest.mark.unmeasured

PAGE = Path(__file__).parents[1] / "docs" / "debugging.md"
STORE = "sqlite:///runs.db"
PROMPT = r"\(debug\) "

FLOW = """
import time
from pathlib import Path

from desk import look_up
from pydantic import BaseModel

from phronomy import Agent, Breakpoint, ModelError
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel, call


class Case(BaseModel):
    question: str
    tries: int = 0
    answer: str = ""


def sort(state):
    return {"tries": state.tries + 1}


async def asort(state):
    return {"tries": state.tries + 1}


def urgent(context):
    return context.node == "ask"


def stopping():
    return made(sort, breakpoints=[Breakpoint("pre_node", urgent), Breakpoint("post_run", label="the end", agents=["case"])])


def made(sort, **options):
    model = ScriptedModel.by_turn([call("look_up", {"order_id": 1042}), "It is paid."])
    clerk = Agent(name="clerk", model=model, tools=[look_up])
    graph = StateGraph(Case, name="case").add_node("sort", sort).add_node("ask", clerk, input="question", output="answer")
    return graph.add_edge(START, "sort").add_edge("sort", "ask").add_edge("ask", END).compile(**options)


def sync():
    return made(sort)


def asynchronous():
    return made(asort)


def own():
    return made(sort, interrupt_before=["ask"])


def reply(request):
    if Path("down").exists():
        raise ModelError("the provider is down")
    if Path("think").exists():
        Path("thinking").touch()
        while Path("think").exists():
            time.sleep(0.01)
    return "Hello."


def plain():
    return Agent(name="plain", model=ScriptedModel(reply))


def office():
    model = ScriptedModel.by_turn([call("transfer_to_billing"), "It is paid."])
    return Agent(name="triage", model=model, handoffs=[Agent(name="billing", model=model)])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the app of the page, and another one."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "desk.py").write_text(blocks[-1])
    (tmp_path / "flow.py").write_text(FLOW)
    monkeypatch.chdir(tmp_path)
    for name in ("PHRONOMY_APP", "PHRONOMY_STORE", "PHRONOMY_DEPS", "PHRONOMY_TENANT", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "rita")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    return tmp_path


Piped = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def piped(place: Path) -> Piped:
    """Runs the command with these lines as its input: the exit status, what it printed, and what it complained about."""

    def run(
        typed: str, *arguments: str, app: str = "desk:agent", store: str | None = STORE
    ) -> tuple[int, list[str], str]:
        line = [sys.executable, "-m", "phronomy", "debug", "--app", app, *(["--store", store] if store else [])]
        done = subprocess.run(
            [*line, *arguments], input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


def numbered(text: str) -> str:
    """The text with its ids numbered in the order in which they come: they are others each time."""
    known: dict[str, str] = {}
    return re.sub(
        r"\b(pend|run|branch|ckpt)_[0-9a-f]{24}\b",
        lambda found: known.setdefault(found[0], f"{found[1]}_{len(known)}"),
        text,
    )


def blocks_of_page() -> list[str]:
    return re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


# The page


def test_the_transcript_of_the_page_is_what_a_session_prints(place: Path, piped: Piped) -> None:
    transcript = blocks_of_page()[0]
    first, _, shown = transcript.replace("\\\n    ", "").partition("\n")
    assert first == f'$ phronomy debug --app desk:agent --store {STORE} "Refund order 1042" < session.txt'
    session = re.findall(r"^\(debug\) (.*)$", shown, re.MULTILINE)
    assert len(session) == 16
    status, lines, complaints = piped("\n".join(session), "Refund order 1042")
    assert (status, complaints) == (cli.PENDING, "")
    assert numbered("\n".join(lines) + "\n") == numbered(shown)

    # What its last line says picks the run up, in another process.
    words = lines[-1].split()
    assert words[:2] == ["phronomy", "debug"]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        input="reject no receipt\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (cli.DONE, "")
    assert done.stdout.splitlines()[-7:] == [
        "No move passes this: approve, reject or respond.",
        "(debug) reject no receipt",
        "  tool      A human rejected this call, so it was not run. Reason: no receipt",
        "Stopped before the model is asked, in desk (pre_model_call)",
        "(debug) continue",
        "  model     Done.",
        "The run is completed.",
    ]


def test_the_page_lists_the_commands(piped: Piped) -> None:
    status, lines, complaints = piped("help\n")
    assert (status, complaints) == (cli.DONE, "")
    assert "\n".join(lines) + "\n" == blocks_of_page()[1]
    assert len(lines) == len(COMMANDS) + 1
    assert max(map(len, lines)) <= 80
    words = [word for each in COMMANDS for word in (each.name, each.short) if word]
    assert len(words) == len(set(words))


# What is typed


@pytest.mark.sweep
def test_what_is_no_command_is_said_kindly_and_nothing_happens(piped: Piped) -> None:
    typed = [
        "nonsense",
        "next",
        "break",
        "break nowhere",
        "break tool tools=ship",
        "break tool tools=",
        "break tool when amount > 1",
        "delete",
        "delete 1",
        "back x",
        "watch args[",
        "unwatch turn",
        "print open('x')",
        "run",
        "quit now",
    ]
    status, lines, complaints = piped("\n".join(typed))
    assert (status, complaints) == (cli.DONE, "")
    said = {line.removeprefix("(debug) "): lines[n + 1] for n, line in enumerate(lines[:-1]) if line[:7] == "(debug)"}
    assert list(said) == typed[:-1]
    assert said["nonsense"] == "There is no command nonsense: help lists them."
    assert said["next"] == "error: nothing is debugged yet: start a run, or attach to one"
    assert said["break"] == "Say where: break TYPE [tools=A,B] [when EXPR]"
    assert said["break nowhere"].startswith("error: there is no breakpoint of type 'nowhere'")
    assert said["delete 1"] == "Give the number of a breakpoint: delete N"
    assert said["run"] == "Give an input: run INPUT"
    assert all(line.startswith(("error: ", "Give ", "Say ", "There ")) for line in said.values())


@pytest.mark.sweep
def test_wrong_arguments_at_a_stop_leave_the_run_where_it_stands(piped: Piped) -> None:
    typed = [
        "into",
        "next 3",
        "approve pend_000000000000000000000000",
        "approve far",
        "respond",
        "skip it",
        "set",
        "set args.order_id",
        "set input Refund order 7",
        "set state.x 1",
        "set args.order_id many",
        "next",
        "unset",
        "until",
        "select 3",
        "select pend_nonsense",
        "back 9",
        "back 1 2",
    ]
    status, lines, complaints = piped("\n".join(typed), "Refund order 1042")
    assert (status, complaints) == (cli.PENDING, "")
    text = " ".join(" ".join(lines).split())
    assert text.count("Stopped before tool look_up, in desk (pre_tool_call)") == 1
    assert "Stopped after" not in text
    for told in (
        "It takes nothing: next",
        "error: nothing waits here under pend_000000000000000000000000; pending: pend_",
        "It goes on into, over, out, step, go, next, continue; or give a pending id:",
        "Give the result: respond [ID] RESULT",
        "It takes a pending id, or nothing: skip [ID]",
        "Give what is to be set, and its value: set input|args.NAME|state.KEY VALUE",
        "error: the input is set at a stop before the model has seen it, and alone",
        "error: an agent has no state to set: set its input, or the arguments of a call",
        'set args.order_id = "many", with the move that goes on',
        "error: the edited arguments of pending pend_",
        "Say where: until TYPE [tools=A,B] [when EXPR]",
        "error: there is no 3 among what waits: info lists it",
        "Give a number of boundaries: back [N] [rerun]",
        "error: there is no going back by 9: boundaries before this place: 2",
    ):
        assert told in text, told


def test_of_several_that_wait_another_one_is_taken(piped: Piped) -> None:
    typed = "into\nselect 2\nset args.order_id 7\nnext\nselect 2\nskip\nout\nlist\n"
    status, lines, _ = piped(typed, "Refund order 1042")
    assert status == cli.PENDING
    assert "  result    order 7: 0.07 euros, paid" in lines
    shown = lines[lines.index("(debug) list") + 1 :]
    assert shown[:3] == [
        "  user      Refund order 1042",
        '  model     calls look_up {"order_id": 1042}',
        '  model     calls look_up {"order_id": 1043}',
    ]
    assert shown[3] == "  tool      A human left this call out, so it was not run."


@pytest.mark.sweep
def test_an_answer_in_place_of_a_tool_and_going_on_at_another_pace(piped: Piped) -> None:
    status, lines, _ = piped(
        'break approval\nc\nrespond {"paid": true}\nc\nback 2\napprove continue\nnext\n', "Refund it"
    )
    assert status == cli.DONE
    assert '  tool      {"paid":true}' in lines
    assert lines[-4:] == [
        "  model     Done.",
        "The run is completed.",
        "(debug) next",
        "The run has ended: back goes back in it, and run begins another.",
    ]
    assert lines[lines.index("(debug) approve continue") + 1] == "  tool      10.42 euros are on their way"


@pytest.mark.sweep
def test_what_a_tool_redacts_is_shown_only_if_wanted(piped: Piped) -> None:
    for reveal in ((), ("--reveal",)):
        _, lines, _ = piped("break approval\nc\n", "Refund it", *reveal)
        assert any("DE02 1203 0000" in line for line in lines) == bool(reveal)
        assert any(line.split()[:2] == ["account", "secret"] for line in lines) != bool(reveal)


def test_text_that_a_terminal_would_act_on_is_written_out(place: Path, piped: Piped) -> None:
    path = place / "desk.py"
    path.write_text(path.read_text().replace('"Done."', r'"\x1b[2J\u202eDone."'))
    _, lines, _ = piped("p input\nreject\nc\n", "Refund \x1b[31m it", store=None)
    assert "\x1b" not in "".join(lines) and "\u202e" not in "".join(lines)


# Runs


@pytest.mark.few(1)
@pytest.mark.parametrize("app", ["flow:sync", "flow:asynchronous"])
def test_a_graph_with_an_agent_in_it(app: str, piped: Piped) -> None:
    typed = "s\ni\ni\nw\no\nset state.tries 7\ninfo\nc\np state['tries']\n"
    status, lines, complaints = piped(typed, '{"question": "Is it paid?"}', app=app)
    assert (status, complaints) == (cli.DONE, "")
    pending = next(line for line in lines if "pend_" in line)
    assert lines == [
        '  question  text      "Is it paid?"',
        "  tries     integer   0",
        '  answer    text      ""',
        "Stopped before node sort, in case (pre_node)",
        "(debug) s",
        "  tries  integer   1",
        "Stopped before node ask, in case (pre_node)",
        "(debug) i",
        "  user      Is it paid?",
        "Stopped before the run begins, in case > clerk (pre_agent_run)",
        "(debug) i",
        '  model     calls look_up {"order_id": 1042}',
        "Stopped before tool look_up, in case > clerk (pre_tool_call)",
        "  order_id  integer   1042",
        "(debug) w",
        "  0         case: ask",
        "  1         clerk: pre_tool_call look_up (2.0)",
        "(debug) o",
        '  answer  text      "It is paid."',
        "Stopped after node ask, in case (post_node)",
        "(debug) set state.tries 7",
        "  set       state.tries = 7, with the move that goes on",
        "(debug) info",
        "No breakpoints, and nothing is watched.",
        "  waits 1   post_node ask (the current stop)",
        pending,
        "  set       state.tries = 7, with the move that goes on",
        "(debug) c",
        "  tries  integer   7",
        "The run is completed.",
        "(debug) p state['tries']",
        "  print     state['tries'] = 7",
    ]


def test_where_a_conversation_is_handed_over_it_says_from_whom(piped: Piped) -> None:
    status, lines, _ = piped("i\ni\ni\ni\n", "Is it paid?", app="flow:office")
    assert (status, [line for line in lines if line.startswith("Stopped")]) == (
        cli.DONE,
        [
            "Stopped before the run begins, in triage (pre_agent_run)",
            "Stopped before handoff transfer_to_billing, in triage (pre_handoff)",
            "Stopped after the handoff from triage, in billing (pre_agent_run)",
            "Stopped before the end of the run, in billing (post_run)",
        ],
    )


@pytest.mark.sweep
def test_the_stops_of_a_graph_itself_are_stops_too(piped: Piped) -> None:
    status, lines, _ = piped("continue\ncontinue\n", '{"question": "Is it paid?"}', app="flow:own")
    assert status == cli.DONE
    assert "Stopped before node ask, in case (pre_node)" in lines


def test_the_breakpoints_of_the_app_are_there_and_can_be_taken_away(piped: Piped) -> None:
    typed = "info\ndelete 1\nbreak node\nbreak pre_node nodes=ask,sort\ninfo\ncontinue\ncontinue\ncontinue\n"
    status, lines, _ = piped(typed, '{"question": "Is it paid?"}', app="flow:stopping")
    assert status == cli.DONE
    said = [line for line in lines if line.startswith("  break")]
    assert said == [
        "  break 1   pre_node when a function says so",
        "  break 2   post_run agents=case",
        "  break 3   pre_node nodes=ask,sort",
        "  break 2   post_run agents=case",
        "  break 3   pre_node nodes=ask,sort",
    ]
    assert [line for line in lines if "topped" in line][1:] == [
        "breakpoint 3: Stopped before node ask, in case (pre_node)",
        "the end: Stopped before the end of the run, in case (post_run)",
    ]


@pytest.mark.sweep
def test_a_graph_begins_with_json(piped: Piped) -> None:
    status, lines, complaints = piped("", "Is it paid?", app="flow:sync")
    assert (status, lines) == (cli.MISUSED, [])
    assert complaints.startswith("phronomy: error: A graph begins with its state as JSON")
    status, lines, _ = piped('run what\nrun {"who": 1}\n', app="flow:sync")
    assert (status, len(lines)) == (cli.DONE, 5)
    assert lines[3].startswith("error: graph 'case' cannot begin with this input")


@pytest.mark.sweep
def test_a_failure_is_told_and_the_next_move_tries_again(place: Path, piped: Piped) -> None:
    (place / "down").touch()
    status, lines, complaints = piped("into\n", "Hello", app="flow:plain")
    assert (status, complaints) == (cli.PENDING, "")
    assert lines[2:5] == ["(debug) into", "error: the provider is down", "The run stands between two stops."]
    (place / "down").unlink()
    again = lines[-1].split()
    assert again[:3] == ["phronomy", "debug", "--run"]
    status, lines, _ = piped("into\ninto\n", "--run", again[3], app="flow:plain")
    assert status == cli.DONE
    assert lines[-5:] == [
        "(debug) into",
        "  model     Hello.",
        "Stopped before the end of the run, in plain (post_run)",
        "(debug) into",
        "The run is completed.",
    ]


@pytest.mark.sweep
def test_what_others_did_meanwhile_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal("debug", "Refund it", app="desk:agent") as desk:
        desk.sees(PROMPT)
        desk.types("into")
        desk.sees(PROMPT)
        sys.path.insert(0, str(place))
        sys.modules.pop("desk", None)
        import desk as app

        monkeypatch.delitem(sys.modules, "desk")
        sys.path.remove(str(place))
        with SQLiteStore("runs.db") as store:
            agent = app.agent()
            agent.store = store
            (branch,) = store.branches()
            agent.resume(store.head(branch.id)[1])
        desk.types("next")
        desk.sees("error: this was decided before: approved at ")
        desk.sees("Approval needed: refund, in desk")
        desk.sees(PROMPT)
        desk.types("reject")
        desk.sees(PROMPT)
        desk.types("c")
        desk.sees("The run is completed.")
        desk.sees(PROMPT)
        desk.presses("d")
        assert desk.status() == cli.DONE


@pytest.mark.sweep
def test_in_memory_it_is_said_that_nothing_is_kept(piped: Piped) -> None:
    status, lines, complaints = piped("quit\n", "Refund it", store=None)
    assert status == cli.PENDING
    assert complaints == "This run is kept in memory and ends with this process: --store URL keeps it.\n"
    assert lines[-1] == "The run was kept in memory, and is gone: --store URL keeps it."


def test_wrong_usage_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    base = ["debug", "--app", "desk:agent"]
    for line, status, why in (
        ([*base, "--run", "run_1", "Refund it"], cli.MISUSED, "INPUT begins a run, and --run goes on with one"),
        (["debug", "Refund it"], cli.MISUSED, "give --app module:agent"),
        ([*base, "--store", STORE, "--run", "run_1"], cli.FAILED, "there is no file runs.db"),
    ):
        assert cli.run(line) == status
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert why in said.err
    assert not (place / "runs.db").exists()
    assert cli.run([*base, "--store", STORE]) == cli.DONE
    assert cli.run([*base, "--store", STORE, "--run", "run_1"]) == cli.FAILED
    assert "the store knows no pending approval, checkpoint or run run_1" in capsys.readouterr().err


@pytest.mark.sweep
def test_a_pending_id_picks_a_run_up_too(place: Path, piped: Piped) -> None:
    _, lines, _ = piped("info\n", "Refund it")
    pending = next(line.split()[0] for line in lines if "pend_" in line)
    status, lines, _ = piped("where\n", "--run", pending)
    assert status == cli.PENDING
    assert lines[:4] == [
        "  user      Refund it",
        "Stopped before the run begins, in desk (pre_agent_run)",
        "(debug) where",
        "  0         desk: pre_agent_run",
    ]


# At a terminal


def test_at_a_terminal_it_prompts_and_each_line_is_a_command(place: Path) -> None:
    with terminal("debug", "Refund it", app="desk:agent") as desk:
        desk.sees(r"Stopped before the run begins, in desk \(pre_agent_run\)")
        desk.sees(PROMPT)
        desk.types("")
        desk.sees(PROMPT)
        desk.types("i")
        desk.sees("order_id  integer   1042\r\n")
        desk.sees(PROMPT)
        desk.types("q")
        desk.sees("To pick it up:")
        assert desk.status() == cli.PENDING
    shown = desk.text
    assert shown.count("(debug) ") == 3, "the prompt, and not what was typed behind it once more"
    assert re.search(r"\n +phronomy debug --run run_[0-9a-f]{24} --app desk:agent --store sqlite:///runs.db\n$", shown)


@pytest.mark.few(1)
@pytest.mark.parametrize(("key", "status"), [("c", cli.INTERRUPTED), ("d", cli.PENDING)])
def test_leaving_at_the_prompt_by_a_key_loses_nothing(key: str, status: int, place: Path, piped: Piped) -> None:
    with terminal("debug", "Refund it", app="desk:agent") as desk:
        desk.sees(PROMPT)
        desk.types("i")
        desk.sees("pre_tool_call")
        desk.sees(PROMPT)
        if key == "c":
            desk.child.send("half")
        desk.presses(key)
        assert desk.status() == status
    assert "Traceback" not in desk.text
    words = desk.text.splitlines()[-1].split()
    assert words[:3] == ["phronomy", "debug", "--run"]
    _, lines, _ = piped("", "--run", words[3])
    assert "Stopped before tool look_up, in desk (pre_tool_call)" in lines


@pytest.mark.sweep
def test_ctrl_c_before_anything_has_begun_is_an_end(place: Path) -> None:
    with terminal("debug", app="desk:agent") as desk:
        desk.sees(PROMPT)
        desk.presses("c")
        assert desk.status() == cli.INTERRUPTED
    assert desk.text == "(debug) ^C\n"


def test_ctrl_c_while_the_model_is_asked_comes_back_to_the_prompt(place: Path) -> None:
    (place / "think").touch()
    with terminal("debug", "Hello", app="flow:plain") as desk:
        desk.sees(PROMPT)
        desk.types("into")
        comes(place / "thinking")
        desk.presses("c")
        desk.sees("Interrupted: the run stands where it was last stored.")
        desk.sees("The run stands between two stops.")
        desk.sees(PROMPT)
        (place / "think").unlink()
        desk.types("into")
        desk.sees("model     Hello.")
        desk.sees(PROMPT)
        desk.types("c")
        desk.sees("The run is completed.")
        desk.sees(PROMPT)
        desk.types("quit")
        assert desk.status() == cli.DONE


def test_the_debugger_says_of_every_point_where_the_run_is_stopped() -> None:
    assert WHERE.keys() == {*get_args(Point)}
