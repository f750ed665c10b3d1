"""Has each file of examples/deployment looked at by a linter of its own: `python tests/deployment_files.py`, or `nox -s lint`.

Each is also looked at with a mistake in it, which its linter must find.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import compose_spec

FILES = Path(__file__).parents[1] / "examples" / "deployment"

IGNORED = ("[Security.Delegate]", "[Security.UMaskOW]")
"""The warnings of systemdlint that are wrong here: no unit has control groups of its own, and 0077 lets nobody else write."""


def said_by(*command: str) -> list[str]:
    """The output of a linter, if it finds fault."""
    program = str(Path(sys.executable).with_name(command[0]))
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return [] if done.returncode == 0 else lines or ["it has failed"]


def dockerfile(file: Path) -> list[str]:
    """A Dockerfile, by hadolint."""
    return said_by("hadolint", str(file))


def compose(file: Path) -> list[str]:
    """A compose file, by the specification, and by rules of security."""
    options = compose_spec.PyOptions()
    options.apply_merge = True
    try:
        options.from_yaml(file.read_text())
    except ValueError as error:
        return [str(error)]
    return said_by("compose-lint", "check", "--fail-on", "high", str(file))


def kubernetes(file: Path) -> list[str]:
    """Manifests, by the schemas of Kubernetes."""
    return said_by("kubernetes-validate", "--strict", "--quiet", str(file))


def systemd(file: Path) -> list[str]:
    """A unit, by systemdlint: it does not look for programs, which are not on this machine."""
    return [
        line for line in said_by("systemdlint", "--norootfs", str(file)) if not any(each in line for each in IGNORED)
    ]


CHECKED: dict[str, tuple[Callable[[Path], list[str]], tuple[tuple[str, str], ...]]] = {
    "Dockerfile": (dockerfile, (("COPY refunds", "ADD refunds"), ("WORKDIR /app", "WORKDIR app"))),
    "compose.yaml": (compose, (("stop_grace_period", "stop_grace"), ("cap_drop: [ALL]", "privileged: true"))),
    "kubernetes.yaml": (kubernetes, (("readinessProbe", "readyProbe"), ("replicas: 2", "replicas: two"))),
    "kubernetes-drift.yaml": (kubernetes, (("backoffLimit: 0", "backoffLimits: 0"),)),
    "desk-worker.service": (systemd, (("TimeoutStopSec", "TimeoutStop"), ("KillMode=mixed", "KillMode=both"))),
    "desk-inbox.service": (systemd, (("Restart=always", "Restart=ever"),)),
}
"""Each file, what looks at it, and mistakes that it must find: what is there, and what is there in its place."""


def faults() -> Iterator[str]:
    """The faults of the files, or of their linters."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (look, mistakes) in CHECKED.items():
            yield from (f"{name}: {line}" for line in look(FILES / name))
            text = (FILES / name).read_text()
            for right, wrong in mistakes:
                (damaged := Path(folder, name)).write_text(text.replace(right, wrong))
                if right not in text or not look(damaged):
                    yield f"{name}: nobody finds {wrong!r} in place of {right!r}"


def main() -> None:
    if found := list(faults()):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
