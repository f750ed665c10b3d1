"""People and programs that decide: who somebody is in a channel such as a chat, and which roles they have."""

from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.people.directory import Directory, StoreDirectory
from phronomy.records.people import Deputy, Person

__all__ = ["Deputy", "Directory", "Person", "StoreDirectory"]

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        raise lazy_names.unknown(__name__, name)
