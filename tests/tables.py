"""A test that is one table: its body runs for each row, every row is tried, and those that failed are named.

    @each(("text", "number"), [("1", 1), pytest.param("0x10", 16, id="hex")])
    def test_what_is_read(text, number):
        assert read(text) == number

As `pytest.mark.parametrize`, but one test: for rows that differ in a value alone and act on nothing that is kept. The other
arguments are fixtures, which the rows share.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def each(names: str | Sequence[str], rows: Iterable[Any], *, ids: Any = None) -> Callable[[Any], Callable[..., None]]:
    """Have the test run its body for each of the rows: a value each, or as many values as there are names."""
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [_named(row, len(wanted), number, ids) for number, row in enumerate(rows)]

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def test(**fixtures: Any) -> None:
            failed = []
            for name, values in table:
                try:
                    body(**fixtures, **dict(zip(wanted, values, strict=True)))
                except Exception as error:
                    error.add_note(f"in the row {name}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(table)} rows failed", failed)

        signature = inspect.signature(body)
        left = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return test

    return decorate


def _named(row: Any, width: int, number: int, ids: Any) -> tuple[str, tuple[Any, ...]]:
    """The row's name and its values."""
    name = None
    if type(row).__name__ == "ParameterSet":  # of pytest.param
        name, values = row.id, tuple(row.values)
    else:
        values = (row,) if width == 1 else tuple(row)
    if ids is not None:
        name = ids(values[0]) if callable(ids) else list(ids)[number]
    return name or f"{number}: {', '.join(map(repr, values))[:200]}", values
