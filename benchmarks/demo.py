"""What `phronomy demo --yes` takes from its command to its end, beside the mere import of the libraries that it shows itself with.

    python benchmarks/demo.py

Wall time, in fresh processes that take turns, each in a home of its own. The figures are medians.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

FLOOR = "import pydantic, httpx, rich, typer"
ROUNDS = 5


def seconds(command: list[str]) -> float:
    """Seconds from the start of the command to its end."""
    with tempfile.TemporaryDirectory() as home:
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=home, env={**os.environ, "HOME": home})
        return time.perf_counter() - begun


def main() -> None:
    sides = {
        f'python -c "{FLOOR}"': [sys.executable, "-c", FLOOR],
        "phronomy demo --yes": [str(Path(sys.executable).with_name("phronomy")), "demo", "--yes"],
    }
    for command in sides.values():
        seconds(command)  # the first run of each may compile bytecode
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, command in sides.items():
            taken[name].append(seconds(command))
    floor, ours = map(median, taken.values())
    for name, each in taken.items():
        print(f"{name:<56}{median(each) * 1000:8.0f} ms")
    print(f"{'ratio':<56}{ours / floor:8.2f}")


if __name__ == "__main__":
    main()
