"""People and their deputies, as a directory in a store keeps them: each is the text of a small document."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from phronomy.foundation.ids import LONGEST, is_findable
from phronomy.foundation.json_text import clean
from phronomy.foundation.unreadable import unreadable_row
from phronomy.records.principals import Principal, Recorded, Roles
from phronomy.records.record import Listed, Record, Text, Time

PERSON: Final = "person"
ALIAS: Final = "person-alias"
DEPUTY: Final = "deputy"
"""The kinds of document that people are kept as."""


def _findable(text: str) -> str:
    if not is_findable(text):
        raise ValueError(f"an id has at most {LONGEST:,} bytes in UTF-8, and no NUL characters")
    return text


Id = Annotated[Text, Field(min_length=1), AfterValidator(_findable)]
"""A text that people are found by."""


class Person(Record):
    """A person, or a program, in a `StoreDirectory`.

    `id`, `name`, `kind` and `roles` are those of the `Principal`. `aliases` are the ids by which channels know the
    person, such as `slack:U123` or `email:ada@example.org`; they are compared exactly. Both are given as any series of
    texts, such as a list.
    """

    version: Literal[1] = 1
    id: Id
    name: Text | None = None
    kind: Literal["human", "service"] = "human"
    roles: Roles = ()
    aliases: Annotated[tuple[Id, ...], Listed()] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            version: Literal[1] = 1,
            id: str,
            name: str | None = None,
            kind: Literal["human", "service"] = "human",
            roles: Sequence[str] = (),
            aliases: Sequence[str] = (),
        ) -> None: ...

    @property
    def principal(self) -> Principal:
        """Who the person is when they decide."""
        return Principal(id=self.id, name=self.name, kind=self.kind, roles=self.roles, listed=True)


class Deputy(Record):
    """The record that one person may stand for another: `deputy` for `principal`, both by their ids.

    From the time `until` on it counts no more; None means until the deputy is dismissed. `reason` is for people, such
    as "on leave". `at` is when the deputy was named, and `by` who recorded it.
    """

    version: Literal[1] = 1
    principal: Id
    deputy: Id
    until: Time | None = None
    reason: Text | None = None
    at: Time
    by: Recorded | None = None

    @model_validator(mode="after")
    def _check_sides(self) -> Self:
        if self.principal == self.deputy:
            raise ValueError("nobody is their own deputy")
        return self


def deputy_key(deputy: str, principal: str) -> str:
    """The key of the document that names this deputy for this principal."""
    return deputy_prefix(deputy) + id_hash(principal)


def deputy_prefix(deputy: str) -> str:
    """What the keys of all documents of one deputy begin with, and no other key does."""
    # Hashes, so that a key has one length however long the ids are, and no character of an id can end the first half.
    return id_hash(deputy) + "/"


def id_hash(id: str) -> str:
    """The SHA-256, in hexadecimal, of the id of a person."""
    return hashlib.sha256(clean(id).encode()).hexdigest()


def read_person(key: str, text: str) -> Person:
    """The person in the document of this key. Raises `UnreadableRow` if the row is damaged, or of somebody else."""
    try:
        person = Person.model_validate_json(text)
        if person.id == key:
            return person
        raise ValueError("the row of somebody else")
    except (ValueError, TypeError):
        failure = unreadable_row(PERSON, key)
    # Outside of the except block: the error above may quote what is in the row.
    raise failure


def read_deputy(key: str, text: str) -> Deputy:
    """The deputy in the document of this key. Raises `UnreadableRow` if the row is damaged, or of somebody else."""
    try:
        deputy = Deputy.model_validate_json(text)
        if deputy_key(deputy.deputy, deputy.principal) == key:
            return deputy
        raise ValueError("the row of somebody else")
    except (ValueError, TypeError):
        halves = key.split("/", 1)
        failure = unreadable_row(DEPUTY, *halves, then="; dismiss the deputy, or name them again")
    raise failure  # as above
