"""What `import phronomy` costs in CPU time, beside the libraries that it cannot do without.

    python benchmarks/import_cost.py

The two programs take turns, in fresh processes, so that a busy machine slows both. The ratio is the median of those of the pairs: the
least of either side would be compared with another moment, where one of them was lucky. Exits 1 when the ratio is over the bound.
"""

import subprocess
import sys
from statistics import median

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


def pairs_of(rounds: int) -> list[tuple[float, float]]:
    """CPU seconds of the floor and of phronomy, pair by pair."""
    cpu_seconds(FLOOR), cpu_seconds(OURS)  # the first run of each may compile bytecode
    return [(cpu_seconds(FLOOR), cpu_seconds(OURS)) for _ in range(rounds)]


def main() -> int:
    pairs = pairs_of(ROUNDS)
    floor, ours = zip(*pairs, strict=True)
    ratios = sorted(mine / beside for beside, mine in pairs)
    ratio = median(ratios)
    print(f"{SHOWN:<56}{median(floor) * 1000:8.1f} ms")
    print(f"{OURS:<56}{median(ours) * 1000:8.1f} ms")
    print(f"{f'ratio, at most {BOUND}':<56}{ratio:8.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
