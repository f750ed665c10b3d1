"""Who may approve a call, how many of them it takes, who is asked later; and the votes that were cast.

A level is one of those who ask for an approval: the tool, or the policy of an agent or graph around the call. Each level that names
people is one `Approvers`, and each has to be met by itself. They are stored with the request, so that the record shows by which
requirement a decision counted, whatever the code says later.
"""

from collections.abc import Iterable
from operator import not_
from typing import ClassVar, Literal

from pydantic import Field

from phronomy.records.principals import KnownAs, Recorded, Role
from phronomy.records.record import EMPTY, Metadata, Record, Text, Time, is_empty


def is_one(count: int) -> bool:
    """Whether it is the number that need not be written down."""
    return count == 1


class Escalation(Record):
    """Who may approve from a time on: `after` that many seconds since the request.

    `instead` says that these people take the place of those before them; otherwise they are added. `needed` is how many
    it takes from then on; None: as many as before.
    """

    after: float = Field(ge=0)
    roles: tuple[Role, ...] = Field(default=(), exclude_if=not_)
    ids: tuple[Text, ...] = Field(default=(), exclude_if=not_)
    predicates: tuple[Text, ...] = Field(default=(), exclude_if=not_)
    instead: bool = Field(default=False, exclude_if=not_)
    needed: int | None = Field(default=None, ge=1, exclude_if=not_)


class Approvers(Record):
    """The requirement of one level: who may approve, and how many of them it takes.

    `of` is the agent or graph whose policy asks, or empty for the tool itself. A person may approve who has one of the
    `roles`, or whose id is one of `ids`, or for whom one of the `predicates` (their names) holds. If all three are empty,
    anybody may who says who they are. `needed` is how many different people have to approve, `rejections` how many have to
    reject. `not_requester` says that who asked for the run may not approve, and neither may its `authors`: the ids of those who have
    written before in its conversation, as they were when the request was made. An empty id stands for somebody of whom nobody knows.
    `known` says which person had an alias when somebody wrote under it.
    """

    of: Text = Field(default="", exclude_if=not_)
    roles: tuple[Role, ...] = Field(default=(), exclude_if=not_)
    ids: tuple[Text, ...] = Field(default=(), exclude_if=not_)
    predicates: tuple[Text, ...] = Field(default=(), exclude_if=not_)
    needed: int = Field(default=1, ge=1, exclude_if=is_one)
    rejections: int = Field(default=1, ge=1, exclude_if=is_one)
    not_requester: bool = Field(default=False, exclude_if=not_)
    authors: tuple[Text, ...] = Field(default=(), exclude_if=not_)
    known: tuple[KnownAs, ...] = Field(default=(), exclude_if=not_)
    escalations: tuple[Escalation, ...] = Field(default=(), exclude_if=not_)


def authors_of(ids: Iterable[str], known: Iterable[KnownAs]) -> tuple[str, ...]:
    """The ids of those who have written: of a person in place of the alias that the person had then."""
    aliases = {alias for alias, _ in known}
    return tuple(dict.fromkeys([*(id for id in ids if id not in aliases), *(person for _, person in known)]))


class Vote(Record):
    """The vote of one person on a request.

    `by` is who voted, with the roles that they had then; if they stood in for somebody as a deputy, `behalf_of` is that
    person. `digest` covers the tool and the arguments that the vote is for, and `content_digest` the result that was given
    in place of the tool. `levels` are the places, in the request's approvers, of those whose predicate held for the
    person. `listed` says that the voter was found in the directory of the store. `grant` is the id of the standing grant
    by which the vote was cast. `metadata` is the data of the application that was given with the answer. `alias` is the other id
    under which the voter came, by which the directory knew them then: it may be taken from them later, and is no second voice.
    `deputy_of` are the ids of all whose deputy the voter was then: where a requester may not approve, neither may their deputy.
    """

    wire_omits: ClassVar[tuple[str, ...]] = ("version", "alias")

    kind: Literal["approve", "reject", "respond"]
    digest: str
    content_digest: str | None = Field(default=None, exclude_if=not_)
    by: Recorded
    behalf_of: Recorded | None = Field(default=None, exclude_if=not_)
    at: Time
    channel: Text | None = Field(default=None, exclude_if=not_)
    reason: Text | None = Field(default=None, exclude_if=not_)
    levels: tuple[int, ...] = Field(default=(), exclude_if=not_)
    listed: bool = Field(default=False, exclude_if=not_)
    grant: str | None = Field(default=None, exclude_if=not_)
    alias: Text | None = Field(default=None, exclude_if=not_, repr=False)
    deputy_of: tuple[Text, ...] = Field(default=(), exclude_if=not_, repr=False)
    metadata: Metadata = Field(default=EMPTY, repr=False, exclude_if=is_empty)

    @property
    def person(self) -> Recorded:
        """Whose vote it is: the person who was represented, or who voted."""
        return self.behalf_of if self.behalf_of is not None else self.by

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the people who have used their vote by it."""
        return frozenset({self.by.id, self.person.id})

    @property
    def names(self) -> frozenset[str]:
        """The ids of these people, and the alias under which the voter came."""
        return self.ids if self.alias is None else self.ids | {self.alias}
