"""The commands of the README lead from an empty directory to the inbox, one after the other, with the files that it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from drivers import PATIENCE
from test_docs import BLOCK, ROOT, provider
from test_inbox_serve import Process

import phronomy

__all__ = ["provider"]  # a fixture

pytestmark = pytest.mark.unmeasured  # it starts processes

SAID = {
    "chat": "Please refund 49.90 euros for order 1042\nl\n",
    "debug": "quit\n",
}
"""What is typed into a command."""

STATUS = {"chat": 3, "debug": 3}
"""The exit status of a command that leaves something pending."""


def commands() -> list[list[str]]:
    """The commands of phronomy in the README, in their order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("phronomy ")]


def test_the_commands_of_the_readme_work_in_its_order(
    provider: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("desk.py").write_text(BLOCK.findall((ROOT / "README.md").read_text())[0])
    pending, run = "", []
    for command in commands():
        run.append(command[0])
        if command[0] == "serve":
            server = Process(*command[1:])
            try:
                assert server.links() and "What is decided is carried out here." in "".join(server.lines)
            finally:
                assert server.stop()[0] == 0
            continue
        given = [pending if re.fullmatch(r"pend_\w+", each) else each for each in command]
        # Without a terminal, nobody is asked.
        line = [sys.executable, "-m", "phronomy", *given, *(["--yes"] if command[0] == "approve" else [])]
        done = subprocess.run(
            line, input=SAID.get(command[0], ""), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == STATUS.get(command[0], 0), (command, done.stdout, done.stderr)
        found = re.search(r"pend_\w+", done.stdout)
        pending = found[0] if found is not None else pending
        if command[0] == "approve":
            assert "49.90 euros for order 1042 are on their way" in done.stdout
    assert run == ["chat", "pending", "approve", "serve", "debug"]


def test_the_wheel_that_the_readme_installs_is_of_this_version() -> None:
    """`nox -s smoke` makes it, and installs it with extras in an environment of its own."""
    wheels = re.findall(r"phronomy-([\d.]+)-py3-none-any\.whl", (ROOT / "README.md").read_text())
    assert (
        wheels == [phronomy.__version__]
        and f"Version {phronomy.__version__} is not released" in (ROOT / "README.md").read_text()
    )
