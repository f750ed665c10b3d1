"""Directories: the principal behind an id of a channel, such as `slack:U123`; and a small directory that is kept in a store.

A person is one document, and each of their aliases is another, which names the person. An alias counts only if both agree: the alias
names the person, and the person lists the alias. So a crash between two writes leaves somebody who is unknown for a while, and never
an alias that leads to the wrong person. Of several people who are given one alias, the one whose write of the alias is first has it.

A deputy is one document more, which names both people. It counts only while both of them are there.
"""

from dataclasses import replace as changed
from datetime import UTC, datetime
from typing import Protocol, Self, TypeAlias

from phronomy.errors import InvalidField, PersonExists, StoreError, UnknownPerson, UnreadableRow
from phronomy.foundation.quoting import kept_id, quoted_id
from phronomy.records.people import (
    ALIAS,
    DEPUTY,
    PERSON,
    Deputy,
    Person,
    deputy_key,
    deputy_prefix,
    id_hash,
    read_deputy,
    read_person,
)
from phronomy.records.principals import Principal, as_principal
from phronomy.stores.base import Store
from phronomy.stores.derived.listing import Listing, read_each
from phronomy.stores.derived.people import check_known
from phronomy.stores.native import apart, in_store
from phronomy.stores.rows import Behind, Document

_Documents: TypeAlias = list[Document]


class Directory(Protocol):
    """Tells which principal is behind an id of a channel. Yours may ask an identity provider, a database or a file."""

    def resolve(self, alias: str) -> Principal | None:
        """Return the principal whom a channel knows as `alias`, such as `slack:U123`; None if nobody is known by it."""
        ...

    async def aresolve(self, alias: str) -> Principal | None:
        """The async twin of `resolve`."""
        ...


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

        That mends a row that cannot be read.

        Raises `PersonExists` if the id, or one of the aliases, belongs to somebody already, and `StoreError`. Then
        everything is as before.
        """
        before = self._store.get_document(PERSON, person.id)
        if before is not None and not replace:
            raise PersonExists(f"there is a person {quoted_id(person.id)} already", id=person.id)
        self._put(before, person)

    def add_alias(self, id: str, alias: str) -> Person:
        """Have the person with this id be known by one more alias, and return the person. All else stays as it is.

        If the person has the alias already, nothing changes. Raises `UnknownPerson` if there is no such person, `PersonExists` if
        the alias belongs to somebody else or the person was changed at this moment, `InvalidField` for an alias that cannot be one,
        and `StoreError`. Then everything is as before.
        """
        before = self._store.get_document(PERSON, id)
        if before is None:
            raise UnknownPerson(f"there is no person {quoted_id(id)}: add them first", id=kept_id(id))
        person = _read(before)
        if alias not in person.aliases:
            person = Person(**{**person.model_dump(), "aliases": (*person.aliases, alias)})
        self._put(before, person)
        return person

    def remove(self, id: str) -> bool:
        """Remove a person, with their aliases and deputies. Returns whether there was one.

        A person whose row cannot be read can be removed as well. They stand for nobody any more, either. What they have
        decided stays in the audit trail.
        """
        found = self._store.get_document(PERSON, id)
        if found is None:
            return False
        # While the person is there: if this breaks off, to remove them again does the rest. What was left would count
        # again as soon as somebody else is added with this id.
        self._forget_deputies(id)
        # Before the aliases: from then on nobody is known by the aliases, whatever happens before they are gone.
        self._store.delete_document(PERSON, id)
        self._leave(self._had(found), id)
        return True

    def list(self, *, after: str | None = None, limit: int | None = None) -> Listing[Person]:
        """The people, in the order of their ids: at most `limit`, after the id `after`.

        People whose rows cannot be read are left out; `unreadable` of the list names them.
        """
        people: list[Person] = []
        unreadable: list[UnreadableRow] = []
        # Read on past unreadable rows: the next page begins after the last person of this one.
        while True:
            most = None if limit is None else limit - len(people)
            rows = self._store.select_documents(PERSON, after=after, limit=most)
            found, failed = read_each(rows, _read)
            people += found
            unreadable += failed
            if most is None or len(rows) < most or not failed:
                return Listing(people, unreadable)
            after = rows[-1].key

    def name_deputy(
        self,
        principal: str,
        deputy: str,
        *,
        until: datetime | None = None,
        reason: str | None = None,
        by: str | Principal | None = None,
    ) -> Deputy:
        """Let one person stand for another, until a time or until they are dismissed; both are ids of people.

        To name them again replaces all that was said before. `until` has a time zone and is compared with the clock of
        the store, `reason` is for people, and `by` is who records it. Check first whether they may: a deputy decides
        with the rights of the principal.

        Raises `UnknownPerson` if there is no person with one of the ids, `InvalidField` if they are the same, or if
        `until` is past or has no time zone, `InvalidDecision` for a wrong `by`, and `StoreError`. Then everything is as
        before.
        """
        now = datetime.fromtimestamp(self._store.clock(), UTC)
        who = as_principal(by)
        check_known(self._store, who)
        named = Deputy(principal=principal, deputy=deputy, until=until, reason=reason, at=now, by=who)
        if named.until is not None and named.until <= now:
            raise InvalidField("Deputy: until: this time is over already by the clock of the store: give a later one")
        for id in (named.principal, named.deputy):
            if self.get(id) is None:
                raise UnknownPerson(f"there is no person {quoted_id(id)}: add them first", id=kept_id(id))
        self._put_deputy(named)
        return named

    def deputies(self, principal: str | None = None) -> Listing[Deputy]:
        """The deputies whose time is not over: of the person with this id, or of everybody. They are in the order of ids.

        Deputies whose rows cannot be read are left out; `unreadable` of the list names them.
        """
        ending = "/" + id_hash(principal) if principal is not None else ""
        rows = [row for row in self._store.select_documents(DEPUTY) if row.key.endswith(ending)]
        found, unreadable = read_each(rows, lambda row: read_deputy(row.key, row.text))
        return Listing(sorted(found, key=lambda each: (each.principal, each.deputy)), unreadable)

    def dismiss_deputy(self, principal: str, deputy: str) -> bool:
        """End what `name_deputy` began, at once. Returns whether there was such a deputy, whose time was not over."""
        key = deputy_key(deputy, principal)
        if self._store.get_document(DEPUTY, key) is None:
            return False
        self._store.delete_document(DEPUTY, key)
        return True

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

    async def aadd_alias(self, id: str, alias: str) -> Person:
        """The async twin of `add_alias`."""
        return await in_store(self._store, self.add_alias, id, alias)

    async def aremove(self, id: str) -> bool:
        """The async twin of `remove`."""
        return await in_store(self._store, self.remove, id)

    async def alist(self, *, after: str | None = None, limit: int | None = None) -> Listing[Person]:
        """The async twin of `list`."""
        return await apart(self._store, self.list, after=after, limit=limit)

    async def aname_deputy(
        self,
        principal: str,
        deputy: str,
        *,
        until: datetime | None = None,
        reason: str | None = None,
        by: str | Principal | None = None,
    ) -> Deputy:
        """The async twin of `name_deputy`."""
        return await in_store(self._store, self.name_deputy, principal, deputy, until=until, reason=reason, by=by)

    async def adeputies(self, principal: str | None = None) -> Listing[Deputy]:
        """The async twin of `deputies`."""
        return await apart(self._store, self.deputies, principal)

    async def adismiss_deputy(self, principal: str, deputy: str) -> bool:
        """The async twin of `dismiss_deputy`."""
        return await in_store(self._store, self.dismiss_deputy, principal, deputy)

    # What they are made of

    def _put(self, before: Document | None, person: Person) -> None:
        """Write a person in place of `before`, with their aliases. Raises `PersonExists`; then everything is as before."""
        try:
            written = self._write(before, person)
        except Behind:
            raise PersonExists(
                f"person {quoted_id(person.id)} was added or changed by somebody else at this moment", id=person.id
            ) from None
        taken: _Documents = []
        had = self._had(before) if before is not None else frozenset[str]()
        # In one order, whoever adds: of two who want the same aliases, one gets the first, and the other stops there.
        for alias in sorted(set(person.aliases)):
            owner = self._take(alias, person.id, taken, firm=alias in had)
            if owner is not None:
                self._undo(before, written, taken)
                raise PersonExists(
                    f"alias {quoted_id(alias)} belongs to person {quoted_id(owner)} already", id=owner, alias=alias
                )
        self._leave(had - set(person.aliases), person.id)

    def _had(self, row: Document) -> frozenset[str]:
        """The aliases of a person as their row lists them. Where it cannot be read, all that name the person."""
        try:
            return frozenset(_read(row).aliases)
        except UnreadableRow:
            return frozenset(each.key for each in self._store.select_documents(ALIAS) if each.text == row.key)

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

    def _put_deputy(self, named: Deputy) -> None:
        """Write the row of a deputy, whatever was there. Of two who do so at once, the later one counts."""
        key = deputy_key(named.deputy, named.principal)
        expires_at = named.until.timestamp() if named.until is not None else None
        seen: set[str] = set()
        while True:
            found = self._store.get_document(DEPUTY, key) or Document(kind=DEPUTY, key=key, text="")
            try:
                self._store.put_document(changed(found, text=named.model_dump_json(), expires_at=expires_at))
                return
            except Behind:
                if found.version and found.version in seen:  # as with an alias
                    raise StoreError(
                        f"deputy {quoted_id(key)} is the same as before, and the store says that it has changed"
                    ) from None
                seen.add(found.version)

    def _forget_deputies(self, id: str) -> None:
        """Delete the rows that name this person on either side. By their keys alone: a damaged row keeps nobody."""
        for row in self._store.select_documents(DEPUTY):
            if row.key.startswith(deputy_prefix(id)) or row.key.endswith("/" + id_hash(id)):
                self._store.delete_document(DEPUTY, row.key)

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
    return read_person(found.key, found.text)
