"""Who decides: a person or a program, as it is recorded, and the base of what people make when they decide."""

from collections.abc import Mapping, Sequence
from operator import not_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from phronomy.errors import InvalidDecision, InvalidField
from phronomy.foundation.json_text import clean
from phronomy.records.record import EMPTY, HeldObject, Listed, Record, Text
from phronomy.records.scopes import Scope

Role: TypeAlias = Annotated[Text, Field(min_length=1)]
"""The name of a role."""

Roles: TypeAlias = Annotated[tuple[Role, ...], Listed()]
"""Names of roles."""

KnownAs: TypeAlias = tuple[Text, Text]
"""An alias, and the id of the person whom the directory knew by it."""


class Said(Record):
    """The base of the records that people make when they decide."""

    _refused_as: ClassVar[type[InvalidField | InvalidDecision]] = InvalidDecision


class Principal(Said):
    """The person or program that makes a decision.

    `id` is a stable id that you choose, `name` is for people, and `kind` says whether it is a human or a service
    account. `roles` are names of roles, in any series such as a list; they are recorded with each decision.

    `claims` is any JSON object of whoever has authenticated the principal, such as the claims of a login. It may hold
    personal data or secrets, so it is for this process alone: it is in no record, dump, log or repr, and does not count
    where principals are compared.

    `scopes` are what the runs may use that the principal asks for: those alone, if the principal is their `requester`.
    None says nothing of scopes. They are handled as `claims` are: a run records its own scopes.

    `listed` says that the directory of the store has known the principal. From then on they count only while it does, and never
    by the roles that are said here. `person` is the id of the person whom the directory knew by `id` when that was recorded, where
    `id` is an alias: it may be another person's later. Phronomy sets it. Neither counts where principals are compared.
    """

    wire_omits: ClassVar[tuple[str, ...]] = ("version", "listed", "person", "claims", "scopes")

    id: Text = Field(min_length=1)
    name: Text | None = None
    kind: Literal["human", "service"] = "human"
    roles: Roles = Field(default=(), exclude_if=not_)  # the format of the first version has no such key
    listed: bool = Field(default=False, exclude_if=not_, repr=False)
    person: Text | None = Field(default=None, exclude_if=not_, repr=False)
    claims: HeldObject = Field(default=EMPTY, exclude=True, repr=False)
    scopes: Annotated[tuple[Scope, ...], Listed()] | None = Field(default=None, exclude=True, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            id: str,
            name: str | None = None,
            kind: Literal["human", "service"] = "human",
            roles: Sequence[str] = (),
            listed: bool = False,
            person: str | None = None,
            claims: Mapping[str, Any] = ...,
            scopes: Sequence[str] | None = None,
        ) -> None: ...

    @field_validator("scopes", mode="before")
    @classmethod
    def _is_in_no_text(cls, given: Any, info: ValidationInfo) -> Any:
        if info.mode == "json":
            raise ValueError("this is kept by nobody: leave it out")
        return given

    # Without the claims and scopes: what is read from a store is equal to what was recorded there. And a person is the same,
    # whether the directory was asked or not.
    def _told(self) -> tuple[object, ...]:
        return tuple(value for name, value in self.__dict__.items() if name not in _UNCOMPARED)

    def __eq__(self, other: object) -> bool:
        """True if it is the same principal. Claims, scopes and `listed` do not count."""
        return type(other) is type(self) and isinstance(other, Principal) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()  # what is pickled may be stored anywhere
        return {**state, "__dict__": {**state["__dict__"], **_HELD}}

    def without_claims(self) -> Self:
        """The principal as it is recorded."""
        held = any(self.__dict__[name] != nothing for name, nothing in _HELD.items())
        return self.evolve(**_HELD) if held else self


def is_recorded_alike(principal: Principal, other: Principal) -> bool:
    """True if two principals are the same in a record, which also has the words of the directory."""
    return (principal, principal.listed, principal.person) == (other, other.listed, other.person)


def id_of_person(principal: Principal) -> str:
    """The id of the person whom a record names: of the person of then, where it names them by an alias."""
    return principal.person or principal.id


_HELD: Final[Mapping[str, Any]] = {"claims": EMPTY, "scopes": None}
"""What is for this process alone, with what stands there if there is nothing."""

_UNCOMPARED: Final = frozenset({*_HELD, "listed", "person"})

Recorded: TypeAlias = Annotated[Principal, AfterValidator(Principal.without_claims)]
"""A principal in a record: without claims and scopes."""


def as_principal(by: str | Principal | None) -> Principal | None:
    """The principal meant by `by`: itself, or one whose id is the text. Raises `InvalidDecision`."""
    if by is None or isinstance(by, Principal):
        return by
    if not isinstance(by, str) or not by:
        raise InvalidDecision("by is a Principal, or its id as text that is not empty")
    return Principal(id=clean(by))
