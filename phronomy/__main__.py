"""The script `phronomy`, and `python -m phronomy`: the start of the command line."""

from __future__ import annotations

import gc
from typing import NoReturn


def main() -> NoReturn:
    """Import the command line and run it.

    What imports make stays to the end of the process, so nothing looks for garbage in it: that would be a fifth of the
    time that a short command takes.
    """
    gc.disable()
    from phronomy import cli  # noqa: PLC0415  # after the line above

    gc.freeze()
    gc.enable()
    cli.main()


if __name__ == "__main__":
    main()
