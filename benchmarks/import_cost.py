"""What `import phronomy` costs in CPU time, beside the libraries that it cannot do without.

    python benchmarks/import_cost.py

Each figure is the best of several fresh processes; the two programs take turns, so that a busy machine slows both.
Exits 1 when the ratio is over the bound.
"""

import subprocess
import sys

# Where click and rich are installed, httpx loads its command line with them: half of its import, and of no use to a program.
FLOOR = "import sys; sys.modules['click'] = None; from pydantic import BaseModel; import httpx, asyncio"
SHOWN = "from pydantic import BaseModel; import httpx, asyncio"
OURS = "import phronomy"
BOUND = 2.0
ROUNDS = 15

# -I leaves out the current directory and the environment: what is measured is what is installed.
PROGRAM = "import time; start = time.process_time(); {}; print(time.process_time() - start)"


def cpu_seconds(statement: str) -> float:
    """CPU seconds that one fresh interpreter spends in `statement`, its own start-up left out."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(statement)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def best_of(rounds: int) -> tuple[float, float]:
    """The least CPU seconds of the floor and of phronomy."""
    cpu_seconds(FLOOR), cpu_seconds(OURS)  # the first run of each may compile bytecode
    pairs = [(cpu_seconds(FLOOR), cpu_seconds(OURS)) for _ in range(rounds)]
    floor, ours = zip(*pairs, strict=True)
    return min(floor), min(ours)


def main() -> int:
    floor, ours = best_of(ROUNDS)
    ratio = ours / floor
    print(f"{SHOWN:<56}{floor * 1000:8.1f} ms")
    print(f"{OURS:<56}{ours * 1000:8.1f} ms")
    print(f"{f'ratio, at most {BOUND}':<56}{ratio:8.2f}")
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
