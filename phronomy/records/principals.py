"""Who decides: a person or a program, as it is recorded, and the base of what people make when they decide."""

from operator import not_
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field

from phronomy.errors import InvalidDecision, InvalidField
from phronomy.foundation.json_text import clean
from phronomy.records.record import EMPTY, HeldObject, Record, Text

Role: TypeAlias = Annotated[Text, Field(min_length=1)]
"""The name of a role."""


class Said(Record):
    """The base of the records that people make when they decide."""

    _refused_as: ClassVar[type[InvalidField | InvalidDecision]] = InvalidDecision


class Principal(Said):
    """The person or program that makes a decision.

    `id` is a stable id that you choose, `name` is for people, and `kind` says whether it is a human or a service
    account. `roles` are names of roles; they are recorded with each decision.

    `claims` is any JSON object of whoever has authenticated the principal, such as the claims of a login. It may hold
    personal data or secrets, so it is for this process alone: it is in no record, dump, log or repr, and does not count
    where principals are compared.
    """

    wire_omits: ClassVar[tuple[str, ...]] = ("version", "claims")

    id: Text = Field(min_length=1)
    name: Text | None = None
    kind: Literal["human", "service"] = "human"
    roles: tuple[Role, ...] = Field(default=(), exclude_if=not_)  # the format of the first version has no such key
    claims: HeldObject = Field(default=EMPTY, exclude=True, repr=False)

    # Without the claims: what is read from a store is equal to what was recorded there.
    def _told(self) -> tuple[object, ...]:
        return tuple(value for name, value in self.__dict__.items() if name != "claims")

    def __eq__(self, other: object) -> bool:
        """Whether it is the same principal, whatever the claims are."""
        return type(other) is type(self) and isinstance(other, Principal) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()  # what is pickled may be stored anywhere
        return {**state, "__dict__": {**state["__dict__"], "claims": EMPTY}}

    def without_claims(self) -> Self:
        """The principal as it is recorded."""
        return self if self.__dict__["claims"] == EMPTY else self.evolve(claims=EMPTY)


Recorded: TypeAlias = Annotated[Principal, AfterValidator(Principal.without_claims)]
"""A principal in a record: without claims."""


def as_principal(by: str | Principal | None) -> Principal | None:
    """The principal meant by `by`: itself, or one whose id is the text. Raises `InvalidDecision`."""
    if by is None or isinstance(by, Principal):
        return by
    if not isinstance(by, str) or not by:
        raise InvalidDecision("by is a Principal, or its id as text that is not empty")
    return Principal(id=clean(by))
