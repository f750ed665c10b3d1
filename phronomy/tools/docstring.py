"""What a docstring says of a function and of its parameters, for the model."""

from __future__ import annotations

import inspect


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description in a docstring, and what it says of each parameter."""
    text = inspect.cleandoc(text)
    if "\n" not in text:
        return text, {}
    # Imported here: 25 ms that only tools with a longer docstring need.
    from docstring_parser import parse  # noqa: PLC0415

    parsed = parse(text)
    told = {each.arg_name: each.description.strip() for each in parsed.params if each.description}
    return (parsed.description or "").strip(), told
