"""Directories: the principal behind an id of a channel, such as `slack:U123`; and a small directory that is kept in a store.

A person is one document, and each of their aliases is another, which names the person. An alias counts only if both agree: the alias
names the person, and the person lists the alias. So a crash between two writes leaves somebody who is unknown for a while, and never
an alias that leads to the wrong person. Of several people who are given one alias, the one whose write of the alias is first has it.
"""

from dataclasses import replace as changed
from typing import Annotated, Final, Literal, Protocol, Self, TypeAlias

from pydantic import AfterValidator, Field

from phronomy.errors import PersonExists, StoreError
from phronomy.foundation.ids import LONGEST, is_findable
from phronomy.foundation.quoting import quoted_id
from phronomy.records.decisions import Principal, Role
from phronomy.records.record import Record, Text
from phronomy.stores.base import Store
from phronomy.stores.native import apart, in_store
from phronomy.stores.rows import Behind, Document

PERSON: Final = "person"
ALIAS: Final = "person-alias"
"""The kinds of document that people are kept as."""

_Documents: TypeAlias = list[Document]


def _findable(text: str) -> str:
    if not is_findable(text):
        raise ValueError(f"an id has at most {LONGEST:,} bytes in UTF-8, and no NUL characters")
    return text


Id = Annotated[Text, Field(min_length=1), AfterValidator(_findable)]
"""A text that people are found by."""


class Directory(Protocol):
    """Tells which principal is behind an id of a channel. Yours may ask an identity provider, a database or a file."""

    def resolve(self, alias: str) -> Principal | None:
        """Return the principal whom a channel knows as `alias`, such as `slack:U123`; None if nobody is known by it."""
        ...

    async def aresolve(self, alias: str) -> Principal | None:
        """The async twin of `resolve`."""
        ...


class Person(Record):
    """A person, or a program, in a `StoreDirectory`.

    `id`, `name`, `kind` and `roles` are those of the `Principal`. `aliases` are the ids by which channels know the
    person, such as `slack:U123` or `email:ada@example.org`; they are compared exactly.
    """

    version: Literal[1] = 1
    id: Id
    name: Text | None = None
    kind: Literal["human", "service"] = "human"
    roles: tuple[Role, ...] = ()
    aliases: tuple[Id, ...] = ()

    @property
    def principal(self) -> Principal:
        """Who the person is when they decide."""
        return Principal(id=self.id, name=self.name, kind=self.kind, roles=self.roles)


class StoreDirectory:
    """A directory of people that is kept in a store, apart for each tenant.

    It is meant for some thousand people that you list yourself. An alias belongs to one person at most, also if two
    processes add people at the same time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"StoreDirectory({self._store!r})"

    def for_tenant(self, tenant: str) -> Self:
        """The directory of another tenant, in the same store."""
        return type(self)(self._store.for_tenant(tenant))

    def resolve(self, alias: str) -> Principal | None:
        """Return the principal whom a channel knows as `alias`; None if nobody is known by it."""
        found = self._store.get_document(ALIAS, alias)
        person = self.get(found.text) if found is not None else None
        return person.principal if person is not None and alias in person.aliases else None

    def get(self, id: str) -> Person | None:
        """Return the person with this id, None if there is none. Raises `StoreError` if the row cannot be read."""
        found = self._store.get_document(PERSON, id)
        return _read(found) if found is not None else None

    def add(self, person: Person, *, replace: bool = False) -> None:
        """Add a person. With `replace`, a person with this id is replaced, with all that is known of them.

        Raises `PersonExists` if the id, or one of the aliases, belongs to somebody already, and `StoreError`. Then
        everything is as before.
        """
        before = self._store.get_document(PERSON, person.id)
        if before is not None and not replace:
            raise PersonExists(f"there is a person {quoted_id(person.id)} already", id=person.id)
        try:
            written = self._write(before, person)
        except Behind:
            raise PersonExists(
                f"person {quoted_id(person.id)} was added or changed by somebody else at this moment", id=person.id
            ) from None
        taken: _Documents = []
        had = frozenset(_read(before).aliases) if before is not None else frozenset[str]()
        # In one order, whoever adds: of two who want the same aliases, one gets the first, and the other stops there.
        for alias in sorted(set(person.aliases)):
            owner = self._take(alias, person.id, taken, firm=alias in had)
            if owner is not None:
                self._undo(before, written, taken)
                raise PersonExists(
                    f"alias {quoted_id(alias)} belongs to person {quoted_id(owner)} already", id=owner, alias=alias
                )
        self._leave(had - set(person.aliases), person.id)

    def remove(self, id: str) -> bool:
        """Remove a person, with their aliases. Returns whether there was one. What they have decided stays in the audit trail."""
        found = self._store.get_document(PERSON, id)
        if found is None:
            return False
        # The person first: from then on nobody is known by the aliases, whatever happens before they are gone.
        self._store.delete_document(PERSON, id)
        self._leave(frozenset(_read(found).aliases), id)
        return True

    def list(self, *, after: str | None = None, limit: int | None = None) -> tuple[Person, ...]:
        """The people, in the order of their ids: at most `limit`, after the id `after`."""
        return tuple(map(_read, self._store.select_documents(PERSON, after=after, limit=limit)))

    # For an event loop

    async def aresolve(self, alias: str) -> Principal | None:
        """The async twin of `resolve`."""
        return await apart(self._store, self.resolve, alias)

    async def aget(self, id: str) -> Person | None:
        """The async twin of `get`."""
        return await apart(self._store, self.get, id)

    async def aadd(self, person: Person, *, replace: bool = False) -> None:
        """The async twin of `add`."""
        await in_store(self._store, self.add, person, replace=replace)

    async def aremove(self, id: str) -> bool:
        """The async twin of `remove`."""
        return await in_store(self._store, self.remove, id)

    async def alist(self, *, after: str | None = None, limit: int | None = None) -> tuple[Person, ...]:
        """The async twin of `list`."""
        return await apart(self._store, self.list, after=after, limit=limit)

    # What they are made of

    def _write(self, before: Document | None, person: Person) -> Document:
        version = before.version if before is not None else ""
        text = person.model_dump_json()
        return self._store.put_document(Document(kind=PERSON, key=person.id, text=text, version=version))

    def _take(self, alias: str, id: str, taken: _Documents, *, firm: bool) -> str | None:
        """Have the alias name this person; the id of the person whom it names if it cannot be had.

        What was written is added to `taken`. With `firm`, the person has listed the alias before.
        """
        seen: set[str] = set()
        while True:
            found = self._store.get_document(ALIAS, alias) or Document(kind=ALIAS, key=alias, text="")
            if found.text == id and firm:
                return None
            owner = self.get(found.text) if found.text != id else None
            # One who is gone, or does not list it, has left it behind: half of something that came to no end.
            if owner is not None and alias in owner.aliases:
                return owner.id
            try:
                # Also where it names this person already: somebody may be about to take what seemed to be left behind, and
                # has seen the version before this one.
                taken.append(self._store.put_document(changed(found, text=id)))
                return None
            except Behind:  # somebody has it now: look who
                # A store that says so though nothing has changed would have this go on for ever. That there is none
                # may be so again and again.
                if found.version and found.version in seen:
                    raise StoreError(
                        f"alias {quoted_id(alias)} is the same as before, and the store says that it has changed"
                    ) from None
                seen.add(found.version)

    def _undo(self, before: Document | None, written: Document, taken: _Documents) -> None:
        """Take back what was written, as far as nobody has changed it since."""
        for alias in taken:
            self._drop(alias)
        if before is None:
            self._drop(written)
            return
        try:
            self._store.put_document(Document(kind=PERSON, key=written.key, text=before.text, version=written.version))
        except Behind:
            return

    def _leave(self, aliases: frozenset[str], id: str) -> None:
        """Delete aliases, as far as they are this person's."""
        for alias in sorted(aliases):
            found = self._store.get_document(ALIAS, alias)
            if found is not None and found.text == id:
                self._drop(found)

    def _drop(self, document: Document) -> None:
        try:
            self._store.delete_document(document.kind, document.key, version=document.version)
        except Behind:  # it is another's now
            return


def _read(found: Document) -> Person:
    try:
        person = Person.model_validate_json(found.text)
        if person.id == found.key:
            return person
        raise ValueError("the row of somebody else")
    except ValueError:
        failure = StoreError(
            f"person {quoted_id(found.key)} cannot be read: the row is damaged, or was written by a later release"
        )
    # Outside of the except block: the error above may quote what is in the row.
    raise failure
