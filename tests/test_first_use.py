"""Records are built when they are first used: in a child that was forked meanwhile, and after a Ctrl-C in the middle.

A Ctrl-C while one is written is a Ctrl-C, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured

BUILDS = """
import os, signal, threading, time
from typing import Annotated, Any

from phronomy import Reject
from phronomy.records.record import Record

middle = threading.Event()


class Slow:
    def __get_pydantic_core_schema__(self, source, handler):
        middle.set()
        MEANWHILE
        return handler(source)


class Slower(Record):
    text: Annotated[str, Slow()]
"""

FORKED = """
building = threading.Thread(target=Slower, kwargs={"text": "a"})
building.start()
middle.wait()
child = os.fork()
used = [Reject(reason="used here first").reason, Slower(text="b").text]
if child == 0:
    os._exit(used != ["used here first", "b"])
building.join()
print(*used, os.waitpid(child, 0)[1], sep=", ")
"""

FIRST = """
import os, threading, time
from typing import Annotated

from pydantic import AfterValidator
from phronomy.records.record import Record

middle, made = threading.Event(), []


def slowly(text):
    middle.set()
    time.sleep(0.5)
    made.append("made")
    return text


class Slower(Record):
    text: Annotated[str, AfterValidator(slowly)]


making = threading.Thread(target=Slower, kwargs={"text": "a"})
making.start()
middle.wait()
child = os.fork()
if child == 0:
    os._exit(made != ["made"])
making.join()
print(made, os.waitpid(child, 0)[1], sep=", ")
"""

INTERRUPTED = """
import re

from phronomy.records import record
from pydantic_core import core_schema

signal.signal(signal.SIGINT, signal.default_int_handler)
compiles, interrupts = re.compile, True


def interrupted(*given):
    if interrupts:
        signal.raise_signal(signal.SIGINT)
    return compiles(*given)


class Letters:
    def __get_pydantic_core_schema__(self, source, handler):
        re.compile = interrupted  # pydantic calls it while it builds the validator
        return core_schema.str_schema(pattern="[a-z]", regex_engine="python-re")


class Chosen(Record):
    text: Annotated[str, Letters()]


for use in (lambda: Chosen(text="a"), lambda: record.reader_of(list[Chosen])):
    try:
        use()
    except KeyboardInterrupt:
        print("interrupted")
interrupts = False
print(Chosen(text="a").text, record.reader_of(list[Chosen]).validate_json('[{"text": "b"}]')[0].text)
"""


WRITTEN = """
import sys

from phronomy.messages import Message

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))


class Signalled(str):
    def __str__(self):
        signal.raise_signal(getattr(signal, sent))
        return "never"


for sent in ("SIGINT", "SIGTERM"):
    message = Message(role="user", content="hi").evolve(content=Signalled('"hi"'))
    for write in (message.model_dump, message.model_dump_json):
        try:
            write()
        except BaseException as error:
            print(type(error).__name__, getattr(error, "code", None))
"""


def printed(program: str, *args: str) -> list[str]:
    """The lines that a program prints, which must end in time. It hears Ctrl-C, whatever this process does."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *args], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            return run.communicate(timeout=60)[0].splitlines()
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # the child that waits, too
            raise


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_child_that_was_forked_while_a_thread_built_a_record_uses_records() -> None:
    assert printed(BUILDS.replace("MEANWHILE", "time.sleep(1)") + FORKED) == ["used here first, b, 0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_no_child_is_forked_while_a_thread_makes_the_first_record_of_a_class() -> None:
    """pydantic's core makes in it what it needs once; a child that was forked in the middle waited for that for ever."""
    assert printed(FIRST) == ["['made'], 0"]


def test_ctrl_c_while_a_record_is_built_is_a_ctrl_c_and_it_is_built_by_the_next_use() -> None:
    assert printed(BUILDS.replace("MEANWHILE", "") + INTERRUPTED) == ["interrupted", "interrupted", "a b"]


def test_a_signal_while_a_record_is_written_is_told_as_what_it_is() -> None:
    assert printed(BUILDS.replace("MEANWHILE", "") + WRITTEN) == ["KeyboardInterrupt None"] * 2 + ["SystemExit 7"] * 2


def test_a_run_begins_without_the_validator_of_whole_checkpoints() -> None:
    """What it reads beside, such as journals, is built when a checkpoint is read as a text; the first is dumped as any other is."""
    told = """
from phronomy import Agent, MemoryStore, tool
from phronomy.records.checkpoint import Checkpoint, Fields
from phronomy.testing import ScriptedModel, call, say


@tool(requires_approval=True)
def pay(amount: int) -> str:
    "Pay."
    return "paid"


model = ScriptedModel([call("pay", {"amount": 1}), say("It is paid.")])
agent = Agent(name="desk", model=model, tools=[pay], store=MemoryStore())
waits = agent.invoke("Pay.").checkpoint
print(Checkpoint.__pydantic_complete__, list(waits.__dict__) == list(Fields.model_fields))
print(agent.resume(waits.id, approved=True).output)
"""
    done = subprocess.run([sys.executable, "-c", told], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False True\nIt is paid.\n", "")


AT_THE_END = """
import sys
from phronomy import Agent, MemoryStore, SQLiteStore
from phronomy.errors import ModelError
from phronomy.testing import ScriptedModel

scripted = ScriptedModel.by_turn(["Done."])

class Own:
    name = "own"

    def complete(self, request):
        return scripted.complete(request)

    async def acomplete(self, request):
        return self.complete(request)

class Late:
    def __del__(self):
        try:
            print(agent.invoke("Again.").output)
        except ModelError as error:
            print(error.__cause__)

agent = Agent(model=MODEL, store=STORE)
print(agent.invoke("Hello.").output)
late = Late()
"""


@pytest.mark.parametrize("store", ["MemoryStore()", "SQLiteStore(sys.argv[1])"])
def test_a_run_that_a_finalizer_makes_while_python_ends_waits_for_no_thread(store: str, tmp_path: Path) -> None:
    """A model of one's own is asked in a thread. No thread runs any more by then, and the run says so."""
    program, file = AT_THE_END.replace("STORE", store), str(tmp_path / "runs.db")
    assert printed(program.replace("MODEL", "scripted"), file) == ["Done.", "Done."]
    told = ["Done.", "Python is ending, so no thread can do anything more"]
    assert printed(program.replace("MODEL", "Own()"), file) == told
