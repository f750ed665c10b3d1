"""The TypeScript declaration in the tree is that of the API."""

from __future__ import annotations

from declaration import KEPT, made


def test_the_declaration_is_made_from_the_description_of_the_api() -> None:
    assert KEPT.read_text() == made(), "out of date: run `nox -s browser -- declaration`"
