"""People and programs that decide: who somebody is in a channel such as a chat, and which roles they have."""

from phronomy.people.directory import Directory, StoreDirectory
from phronomy.records.people import Deputy, Person

__all__ = ["Deputy", "Directory", "Person", "StoreDirectory"]
