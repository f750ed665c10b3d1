"""People and programs that decide: who somebody is in a channel such as a chat, and which roles they have."""

from phronomy.people.directory import Directory, Person, StoreDirectory

__all__ = ["Directory", "Person", "StoreDirectory"]
