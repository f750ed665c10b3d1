"""Who may approve a call, in the words of an `Approval`: checked and compiled once, into what is stored with each request."""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeGuard

from phronomy.errors import AsyncRequired, ConfigurationError
from phronomy.foundation import checks
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted
from phronomy.foundation.spelling import GivenFields
from phronomy.records.approvers import Approvers, Escalation
from phronomy.records.decisions import PendingApproval
from phronomy.records.principals import Principal
from phronomy.tools.context import ToolContext
from phronomy.tools.parameters import takes_context

ApproverPredicate: TypeAlias = (
    Callable[[Principal, PendingApproval], bool | Awaitable[bool]]
    | Callable[[Principal, PendingApproval, ToolContext[Any]], bool | Awaitable[bool]]
)
"""A function that says whether a person may decide on a request: exactly True, or they may not. It can be async.

It takes the principal and the request, or a `ToolContext` as well, which has the conversation in `messages`.
It is asked where the code of the agent is. A decision with the store alone is checked by the worker that carries it out.
"""

By: TypeAlias = str | Principal | ApproverPredicate | Collection[str | Principal | ApproverPredicate]
"""Who may approve: the name of a role, a `Principal` (by its id), a predicate, or several of these, of which one is enough."""

_log = logging.getLogger("phronomy")


class Anybody(Enum):
    """The people of an approval for which nobody is named."""

    ANYBODY = "anybody"

    def __repr__(self) -> str:
        return "anybody"


ANYBODY: Final = Anybody.ANYBODY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Escalate(GivenFields):
    """Who else may approve a call if nobody has decided in time: `Escalate(after=12 * 3600, by="head of finance")`.

    `after` is a number of seconds since the request. From then on the people of `by` may approve as well. With `instead`,
    they alone may, and votes that others have cast before do not count any more. `needed` is how many people it takes
    from then on; None: as many as before. No program needs to run at that moment: the votes are counted at the time of
    the last one. Raises `ConfigurationError`.
    """

    _holds_back: ClassVar[bool] = True

    after: float
    by: By
    instead: bool = False
    needed: int | None = None

    def __post_init__(self) -> None:
        if self.after is None or not checks.is_timeout(self.after):
            raise ConfigurationError(f"Escalate: after is a number of seconds above 0, not {quoted(self.after)}")
        if not isinstance(self.instead, bool):
            raise ConfigurationError("Escalate: instead is exactly True or exactly False")
        if self.needed is not None:
            check_people("Escalate", "needed", self.needed)
        _Named.of("Escalate", self.by)


MOST_PEOPLE: Final = 1_000
"""The people that it may take to decide a call."""


def is_number_of_people(count: object) -> TypeGuard[int]:
    """True if so many people can be asked for: 1 or more, of those that there may be."""
    return checks.is_count(count) and 0 < count <= MOST_PEOPLE


def check_people(what: str, name: str, count: object) -> None:
    """Refuse what is no number of people. Raises `ConfigurationError`."""
    if not is_number_of_people(count):
        raise ConfigurationError(f"{what}: {name} is a number of people, 1 to {MOST_PEOPLE:,}, not {quoted(count)}")


@dataclass(frozen=True, slots=True)
class _Named:
    """The people of one `by`, apart by kind."""

    roles: tuple[str, ...]
    ids: tuple[str, ...]
    functions: tuple[ApproverPredicate, ...]

    @classmethod
    def of(cls, what: str, by: object) -> Self:
        given: tuple[object, ...] = tuple(by) if _is_list(by) else (by,)
        roles = tuple(dict.fromkeys(each for each in given if isinstance(each, str) and each.strip()))
        ids = tuple(dict.fromkeys(each.id for each in given if isinstance(each, Principal)))
        functions = tuple(each for each in given if _is_predicate(each))
        wrong = [each for each in given if not _is_named(each) and not _is_predicate(each)]
        if not given or wrong:
            raise ConfigurationError(
                f"{what}: by is the name of a role, a Principal, a function of principal and request, or a list of these,"
                f" not {quoted(wrong[0] if wrong else by)}"
            )
        return cls(roles, ids, functions)


def _is_named(each: object) -> bool:
    return isinstance(each, Principal) or (isinstance(each, str) and bool(each.strip()))


def _is_list(by: object) -> TypeGuard[Iterable[object]]:
    return checks.is_series(by) and not isinstance(by, Principal)


def _is_predicate(each: object) -> TypeGuard[ApproverPredicate]:
    return callable(each) and not isinstance(each, str | Principal)


class OnlyTrue:
    """The answers of a function of the user's, of which exactly True lets something through, and nothing else."""

    _what: str
    _otherwise: str

    def _said(self, answer: object) -> bool:
        if isinstance(answer, bool):
            return answer
        checks.close_unawaited(answer)
        return self._refused(f"answered with {type(answer).__name__}")

    def _refused(self, why: str) -> bool:
        _log.warning("%s %s, so %s", self._what, why, self._otherwise)
        return False


Asked: TypeAlias = tuple[Principal, PendingApproval, ToolContext[object]]
"""The arguments of a predicate: a person, the request, and the context of the call."""


class _Predicate(OnlyTrue):
    """Says whether a person may decide. One that raises, or gives anything but True, means that they may not."""

    _otherwise = "this person may not decide"

    def __init__(self, function: ApproverPredicate, what: str, error: type[ConfigurationError]) -> None:
        self._function: Callable[..., Any] = function
        self._what = what
        self._takes_context = takes_context(function, what, "principal, request", error)
        self.is_async: bool = checks.is_async(function)

    def holds(self, *given: *Asked) -> bool:
        """Whether it holds. Raises `AsyncRequired` if it is async."""
        self._refuse_async()
        try:
            return self._said(self._function(*self._taken(given)))
        except Exception as error:
            return self._refused(f"raised {type(error).__name__}")

    async def aholds(self, *given: *Asked) -> bool:
        """As `holds`, for functions of both kinds."""
        if not self.is_async:
            return self.holds(*given)
        try:
            return self._said(await self._function(*self._taken(given)))
        except Exception as error:
            return self._refused(f"raised {type(error).__name__}")

    def _taken(self, given: Asked) -> tuple[object, ...]:
        return given if self._takes_context else given[:2]

    def _refuse_async(self) -> None:
        if self.is_async:
            raise AsyncRequired(f"{self._what} is async; use the agent's async methods")


_PLAIN: Final[Approvers] = Approvers.model_construct()  # nothing is built for it on import


class People:
    """Who may approve, of one `Approval`: the record of it, and the functions that are asked by name.

    `counts` says that `needed` follows from the arguments of each call. Raises the error given, for an `Approval` that
    nobody could meet.
    """

    def __init__(
        self,
        of: str,
        what: str,
        by: By | None,
        escalate: Sequence[Escalate],
        *,
        needed: int,
        counts: bool,
        rejections: int,
        not_requester: bool,
        error: type[ConfigurationError],
    ) -> None:
        self._what, self._error = what, error
        self.counts: bool = counts
        self.predicates: dict[str, _Predicate] = {}
        named = _Named.of(what, by) if by is not None else _Named((), (), ())
        terms: dict[str, Any] = {"roles": named.roles, "ids": named.ids, "predicates": self._named(named.functions)}
        later = [self._escalation(each) for each in sorted(escalate, key=lambda each: each.after)]
        numbers: dict[str, Any] = {"needed": needed, "rejections": rejections, "not_requester": not_requester}
        self.approvers: Approvers = Approvers(of=of, **terms, **numbers, escalations=tuple(later))
        self.is_async: bool = any(each.is_async for each in self.predicates.values())
        self._check(error)

    @property
    def governs(self) -> bool:
        """Whether anything is asked of who decides, and how many do."""
        return self.counts or self.approvers.evolve(of="") != _PLAIN

    def needing(self, needed: int) -> People:
        """The same people, for a call that so many of them have to approve. Raises the error given, where that is never reached."""
        people = copy.copy(self)
        people.approvers = self.approvers.evolve(needed=needed)
        people._check(self._error)
        return people

    def is_of(self, level: Approvers) -> bool:
        """True if this level of a request asks for these people. The request says how many its arguments needed."""
        asked = level.evolve(needed=self.approvers.needed) if self.counts else level
        return self.approvers == asked

    def _escalation(self, each: Escalate) -> Escalation:
        named = _Named.of("Escalate", each.by)
        predicates = self._named(named.functions)
        return Escalation(
            after=float(each.after),
            roles=named.roles,
            ids=named.ids,
            predicates=predicates,
            instead=each.instead,
            needed=each.needed,
        )

    def _named(self, functions: Iterable[ApproverPredicate]) -> tuple[str, ...]:
        names: list[str] = []
        for function in functions:
            name = first = str(getattr(function, "__name__", type(function).__name__))
            # Two functions of one name are two: each is asked by a name of its own.
            number = 2
            while name in self.predicates:
                name, number = f"{first} ({number})", number + 1
            self.predicates[name] = _Predicate(function, f"the approver predicate {name} of {self._what}", self._error)
            names.append(name)
        return tuple(names)

    def _check(self, error: type[ConfigurationError]) -> None:
        """Refuse a number of people that is never reached, where all of them are named by their ids."""
        level, ids = self.approvers, set(self.approvers.ids)
        steps: list[tuple[set[str], bool, int]] = [
            (ids, bool(level.roles or level.predicates or not ids), level.needed)
        ]
        for each in level.escalations:
            before, is_open, needed = steps[-1]
            ids = set(each.ids) if each.instead else before | set(each.ids)
            is_open = bool(each.roles or each.predicates) or (is_open and not each.instead)
            steps.append((ids, is_open, each.needed or needed))
        last_ids, last_open, last_needed = steps[-1]
        if not last_open and last_needed > len(last_ids):
            raise error(f"{self._what}: it takes {last_needed} people, and names {len(last_ids)}")


def holds_at(people: Iterable[People], level: Approvers, asked: Asked) -> bool:
    """Whether a predicate of a level that is in force holds for this person, in each of the approvals that this level is of."""
    given = [each.predicates for each in people]
    for each in given:
        held = [each[name].holds(*asked) for name in level.predicates if name in each]
        if True not in held:
            return False
    return bool(given)


async def aholds_at(people: Iterable[People], level: Approvers, asked: Asked) -> bool:
    """As `holds_at`."""
    given = [each.predicates for each in people]
    for each in given:
        held = [await each[name].aholds(*asked) for name in level.predicates if name in each]
        if True not in held:
            return False
    return bool(given)
