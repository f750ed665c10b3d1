"""Approval of a call: what a tool or a policy asks for, and the user's functions that it is made of, each checked once."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, get_args

from phronomy.errors import AsyncRequired, ConfigurationError
from phronomy.foundation import checks
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import canonical, clean
from phronomy.foundation.quoting import HIDDEN, quoted, quoted_name, quoted_word
from phronomy.foundation.spelling import GivenFields, told
from phronomy.records.decisions import OnExpiry, Permitted, Reject
from phronomy.tools.approvers import (
    ANYBODY,
    MOST_PEOPLE,
    Anybody,
    By,
    Escalate,
    OnlyTrue,
    People,
    check_people,
    is_number_of_people,
)
from phronomy.tools.parameters import takes_context

if TYPE_CHECKING:
    from phronomy.tools.context import Condition, PeopleNeeded, ReviewText

Shown: TypeAlias = Callable[[], Mapping[str, object]]
"""Makes a copy of the arguments of a call, for one function alone: whatever it does to it, the body runs with what a human approved."""

LONGEST_TITLE: Final = 200
LONGEST_CONTEXT: Final = 10_000

_log = logging.getLogger("phronomy")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Approval(GivenFields):
    """What is asked of a human before a call runs: `@tool(requires_approval=Approval(title="Refund"))`.

    `when` says which calls need approval: True (the default: every call), False, or a predicate of the arguments.

    `title` (up to 200 characters) and `context` (up to 10,000) are for the person who decides. Each is a text, or a
    function that makes one of the arguments, or of the arguments and a `ToolContext`; it can be async, and may return
    None for no text. The function gets `"[redacted]"` in place of the values that the tool redacts, so the text can be
    shown wherever the request is. A longer text is cut. If the function raises, the human is asked without the text.

    A `title` that is a text may name arguments in braces, `"Refund order {order_id}"`, and members inside them,
    `"{address.city}"`: the value stands in their place, in one line and cut after 60 characters. `{{` is a brace.

    `answers` are the decisions that the request allows: any of `"approve"`, `"edit"` (to approve other arguments),
    `"reject"` and `"respond"`. None: all. It holds for every request about the call, whoever answers. At a breakpoint,
    a human can also skip the call.

    `by` is who may decide: the name of a role, a `Principal` (by its id), a function of the principal and the request, or
    a list of these, of which one is enough. Left out: anybody; None is refused, as it may come from a setting that is
    missing. `needed` is how many different people have to approve: a number, or a function of the arguments, or of the
    arguments and a `ToolContext`, that gives it. If the function raises, or gives no number that can be reached, the call
    is rejected and nobody is asked. `rejections` is how many have to reject. With `not_requester`, who asked for the run
    (`invoke(requester=...)`) may not approve. `escalate` says who else may, after a time. If several levels ask about a
    call (the tool, and policies of the agents around it), the requirement of each is met by itself.

    `expires` is how many seconds a human has to decide, and `on_expiry` what follows; None: as the tool or the agent
    says. The shortest time counts. `remind` is after how many seconds a reminder is announced, or several such numbers.

    `handler` says whether a synchronous approval handler may answer; None: yes, unless people are asked for by `by`,
    `needed`, `rejections`, `not_requester` or `escalate`. `standing` says whether standing grants may let calls through;
    a mapping also registers predicates of the arguments, by the names that grants use as their `condition`.

    Raises `ConfigurationError`.
    """

    _holds_back: ClassVar[bool] = True

    when: bool | Condition = True
    title: str | ReviewText | None = None
    context: str | ReviewText | None = None
    answers: Collection[Permitted] | None = None
    by: By | Anybody = ANYBODY
    needed: int | PeopleNeeded = 1
    rejections: int = 1
    not_requester: bool = False
    escalate: Escalate | Collection[Escalate] = ()
    expires: float | None = None
    on_expiry: OnExpiry | None = None
    remind: float | Collection[float] = ()
    handler: bool | None = None
    standing: bool | Mapping[str, Condition] = False

    def __post_init__(self) -> None:
        if self.when is not True and self.when is not False and not callable(self.when):
            raise ConfigurationError("Approval: when is exactly True, exactly False, or a function of the arguments")
        for name, longest in (("title", LONGEST_TITLE), ("context", LONGEST_CONTEXT)):
            given = getattr(self, name)
            if isinstance(given, str):
                if not given.strip() or len(given) > longest:
                    raise ConfigurationError(
                        f"Approval: {name} is a text of 1 to {longest:,} characters, not {len(given):,}"
                    )
            elif given is not None and not callable(given):
                raise ConfigurationError(
                    f"Approval: {name} is a text, or a function that makes one, not {quoted(given)}"
                )
        if self.answers is not None:
            object.__setattr__(self, "answers", _permitted(self.answers))
        check_people("Approval", "rejections", self.rejections)
        if not callable(self.needed):
            check_people("Approval", "needed", self.needed)
        elif checks.is_async(self.needed):
            raise ConfigurationError("Approval: needed is async, and it only counts people: write a plain function")
        for name, known in (("not_requester", (True, False)), ("handler", (True, False, None))):
            if not any(getattr(self, name) is each for each in known):
                raise ConfigurationError(f"Approval: {name} is exactly True or exactly False")
        by: object = self.by
        if by is None:
            raise ConfigurationError(
                "Approval: by is None, and anybody could approve; a setting may be missing. Name who may, or leave by out for anybody"
            )
        self._check_times()
        self._check_grants()
        if self._people("Approval", ConfigurationError).governs and self.handler is True:
            raise ConfigurationError(
                "Approval: a handler is none of the people who are asked for: leave handler out, or by, needed and the others"
            )

    def _check_times(self) -> None:
        given: object = self.escalate
        steps: tuple[object, ...] = tuple(given) if checks.is_series(given) else (given,)
        if not all(isinstance(each, Escalate) for each in steps):
            raise ConfigurationError("Approval: escalate is an Escalate, or a list of them")
        object.__setattr__(self, "escalate", steps)
        if not checks.is_timeout(self.expires):
            raise ConfigurationError(f"Approval: expires is a number of seconds above 0, not {quoted(self.expires)}")
        if self.on_expiry not in (None, *get_args(OnExpiry)):
            raise ConfigurationError(
                "Approval: on_expiry is 'reject', 'cancel' or 'stay', or None for what the tool says"
            )
        times: tuple[object, ...] = tuple(self.remind) if checks.is_series(self.remind) else (self.remind,)
        if not all(checks.is_number(each) and each > 0 for each in times):
            raise ConfigurationError("Approval: remind is a number of seconds above 0, or a list of them")
        numbers = sorted({float(each) for each in times if checks.is_number(each)})
        object.__setattr__(self, "remind", tuple(numbers))
        late = [*numbers, *(each.after for each in steps if isinstance(each, Escalate))]
        if self.expires is not None and late and max(late) >= self.expires:
            raise ConfigurationError(
                f"Approval: a request that expires after {self.expires} s is never reminded of, or escalated, after {max(late)} s"
            )

    def _check_grants(self) -> None:
        if self.standing is True or self.standing is False:
            return
        if isinstance(self.standing, Mapping) and not self.standing:
            raise ConfigurationError(
                "Approval: standing is an empty mapping, so any grant would count. For that write True, or False for none"
            )
        if not isinstance(self.standing, Mapping) or not all(
            isinstance(name, str) and name and callable(each) for name, each in self.standing.items()
        ):
            raise ConfigurationError(
                "Approval: standing is exactly True, exactly False, or a mapping from names to functions of the arguments"
            )

    def _people(self, what: str, error: type[ConfigurationError], of: str = "") -> People:
        return People(
            of,
            what,
            None if self.by is ANYBODY else self.by,
            tuple(each for each in _series(self.escalate)),
            needed=1 if callable(self.needed) else self.needed,
            counts=callable(self.needed),
            rejections=self.rejections,
            not_requester=self.not_requester,
            error=error,
        )


def _series(given: Escalate | Collection[Escalate]) -> Collection[Escalate]:
    return (given,) if isinstance(given, Escalate) else given


def _permitted(given: object) -> tuple[Permitted, ...]:
    """The kinds of decisions that are allowed, in the order of the type. Raises `ConfigurationError`."""
    known: tuple[Permitted, ...] = get_args(Permitted)
    names = checks.texts_in(given)
    wrong = [name for name in names or () if name not in known]
    if not names or wrong:
        what = quoted_word(wrong[0]) if wrong else quoted(given)
        raise ConfigurationError(f"Approval: answers are one or more of {', '.join(known)}, in a list, not {what}")
    return tuple(kind for kind in known if kind in names)


class _OfArguments:
    """A function of the arguments, or of arguments and context. `what` names it in errors and in the log.

    Raises the error given, for a signature that cannot be called.
    """

    def __init__(self, function: Callable[..., Any], what: str, error: type[ConfigurationError]) -> None:
        self._what = what
        self._function = function
        self._takes_context = takes_context(function, what, "args", error)
        self.is_async: bool = checks.is_async(function)

    def _given(self, shown: Shown, context: object) -> tuple[object, ...]:
        return (shown(), context) if self._takes_context else (shown(),)

    def _called(self, shown: Shown, context: object) -> Any:
        """What the function returns. Raises what it does, and `AsyncRequired` if it is async."""
        return self._function(*self._given(shown, context))

    def _refuse_async(self) -> None:
        if self.is_async:
            raise AsyncRequired(f"{self._what} is async; use the agent's async methods")


class ApprovalPredicate(_OfArguments):
    """Says whether a human is asked. If it raises, or gives nonsense, a human is asked.

    If it returns an `Approval`, the call is refused: nobody would ask the people whom that names.
    """

    def ask(self, shown: Shown, context: object) -> bool | Reject:
        """The answer of the predicate about a call. Raises `AsyncRequired` if it is async."""
        self._refuse_async()
        try:
            return self._answered(self._called(shown, context))
        except Exception as error:
            return self._asks(f"raised {type(error).__name__}")

    async def aask(self, shown: Shown, context: object) -> bool | Reject:
        """As `ask`, for predicates of both kinds."""
        if not self.is_async:
            return self.ask(shown, context)
        try:
            return self._answered(await self._called(shown, context))
        except Exception as error:
            return self._asks(f"raised {type(error).__name__}")

    def _answered(self, answer: object) -> bool | Reject:
        if isinstance(answer, bool | Reject):
            return answer
        if isinstance(answer, Approval):  # its people would not be asked, and anybody could approve
            why = f"{self._what} returned an Approval, so the call is refused: write Approval(when=..., by=...)"
            _log.error(why)
            return Reject(reason=why)
        checks.close_unawaited(answer)
        return self._asks(f"answered with {type(answer).__name__}")

    def _asks(self, why: str) -> bool:
        _log.warning("%s %s, so a human is asked", self._what, why)
        return True


class GrantCondition(OnlyTrue, _OfArguments):
    """Says whether a standing grant covers arguments: exactly True, or it does not. One that raises covers nothing."""

    _otherwise = "no grant counts by it"

    def covers(self, shown: Shown, context: object) -> bool:
        """Whether it covers these arguments. Raises `AsyncRequired` if it is async."""
        self._refuse_async()
        try:
            return self._said(self._called(shown, context))
        except Exception as error:
            return self._refused(f"raised {type(error).__name__}")

    async def acovers(self, shown: Shown, context: object) -> bool:
        """As `covers`, for functions of both kinds."""
        if not self.is_async:
            return self.covers(shown, context)
        try:
            return self._said(await self._called(shown, context))
        except Exception as error:
            return self._refused(f"raised {type(error).__name__}")


class TextOfArguments(_OfArguments):
    """Makes a text for the person who decides. One that raises, or gives no text, leaves the request without it."""

    def __init__(self, function: Callable[..., Any], what: str, error: type[ConfigurationError], longest: int) -> None:
        super().__init__(function, what, error)
        self._longest = longest

    def text(self, shown: Shown, context: object) -> str | None:
        """The text about a call, None if there is none. Raises `AsyncRequired` if the function is async."""
        self._refuse_async()
        try:
            return self._told(self._called(shown, context))
        except Exception as error:
            self._untold(f"raised {type(error).__name__}")
            return None

    async def atext(self, shown: Shown, context: object) -> str | None:
        """As `text`, for functions of both kinds."""
        if not self.is_async:
            return self.text(shown, context)
        try:
            return self._told(await self._called(shown, context))
        except Exception as error:
            self._untold(f"raised {type(error).__name__}")
            return None

    def _told(self, given: object) -> str | None:
        if given is None:
            return None
        if not isinstance(given, str):
            checks.close_unawaited(given)
            self._untold(f"returned {type(given).__name__}")
            return None
        text = clean(str(given))
        if not text.strip():
            return None
        return _cut(text, self._longest)

    def _untold(self, why: str) -> None:
        # A text is a help, and no gate. Whoever decides sees the arguments all the same, so the request is not held up for it.
        _log.warning("%s %s, so a human is asked without it", self._what, why)


class _NeededForArguments(_OfArguments):
    """Says how many people have to approve a call."""

    def count(self, shown: Shown, context: object) -> int:
        """The number for a call. Raises `ConfigurationError` if there is none."""
        try:
            given = self._called(shown, context)
        except Exception as error:
            raise ConfigurationError(f"{self._what} raised {type(error).__name__}") from error
        if not is_number_of_people(given):
            checks.close_unawaited(given)
            raise ConfigurationError(
                f"{self._what} is a number of people, 1 to {MOST_PEOPLE:,}, and not {quoted(given)}"
            )
        return given


_PLACE: Final = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
"""The form of a place in braces: the name of an argument, and of members inside it."""


class TitleOfArguments:
    """A title with names in braces, which stand for the values of arguments. Raises the error given, for a text that is none.

    `of` says whose names they are.
    """

    def __init__(self, text: str, what: str, error: type[ConfigurationError], of: str = "arguments") -> None:
        self._what, self._error, self._of = what, error, of
        try:
            parts = [*Formatter().parse(clean(text))]
        except ValueError:
            raise error(f"{what}: a brace stands alone in it; write {{{{ or }}}} for a brace") from None
        self._parts: list[tuple[str, list[str]]] = []
        for before, name, form, conversion in parts:
            if name is not None and (form or conversion or _PLACE.fullmatch(name) is None):
                raise error(
                    f"{what}: {quoted_name(name)} in braces is no name of an argument. Write {{order_id}}, without a"
                    " format; for more, title takes a function of the arguments"
                )
            self._parts.append((before, name.split(".") if name is not None else []))

    @property
    def plain(self) -> str | None:
        """The text, where it names nothing; else None."""
        return None if any(way for _, way in self._parts) else "".join(before for before, _ in self._parts)

    def check(self, known: Collection[str]) -> None:
        """Refuse names that no argument has. Raises the error that was given."""
        for _, way in self._parts:
            if way and way[0] not in known:
                there = ", ".join(known) or "none"
                raise self._error(f"{self._what} names {told([way[0]], known)} in braces; the {self._of} are: {there}")

    def filled(self, args: Mapping[str, Any]) -> str | None:
        """The title for these arguments, of which those that the tool redacts are hidden; None if they have not what it names."""
        try:
            found = "".join(before + (_value_at(args, way) if way else "") for before, way in self._parts)
        except KeyError:  # of a policy, which is asked about calls of any tool
            _log.warning("%s names an argument that the call does not have, so a human is asked without it", self._what)
            return None
        return _cut(found, LONGEST_TITLE)


def _value_at(args: Mapping[str, Any], way: Sequence[str]) -> str:
    """The value to which names lead, in a few words. Raises `KeyError` if there is no argument of the first name."""
    value = args[way[0]]
    if value == HIDDEN:
        return HIDDEN
    for name in way[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    from phronomy.foundation.in_brief import plain_in_brief  # noqa: PLC0415  # few titles name anything

    return plain_in_brief(value)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class Review:
    """What an `Approval` asks for, compiled: its texts, the decisions that it allows, who may decide, and until when.

    `of` is the level: empty for a tool, or the agent or graph whose policy it is. Raises the error given, for a function
    that cannot be called.
    """

    def __init__(self, approval: Approval, what: str, error: type[ConfigurationError], of: str = "") -> None:
        self.title: str | TitleOfArguments | TextOfArguments | None = _title_of(
            approval.title, f"the title of {what}", error
        )
        self.context: str | TextOfArguments | None = _compiled(
            approval.context, f"the context of {what}", error, LONGEST_CONTEXT
        )
        self.answers: tuple[Permitted, ...] = tuple(approval.answers or ())
        self.people: People = approval._people(what, error, of)
        self._needed: _NeededForArguments | None = (
            _NeededForArguments(approval.needed, f"needed of {what}", error) if callable(approval.needed) else None
        )
        self.expires: float | None = approval.expires
        self.on_expiry: OnExpiry | None = approval.on_expiry
        self.remind: tuple[float, ...] = approval.remind if isinstance(approval.remind, tuple) else ()
        self.handler: bool = approval.handler if approval.handler is not None else not self.people.governs
        self.standing: bool = approval.standing is not False
        given = approval.standing if isinstance(approval.standing, Mapping) else {}
        self.conditions: dict[str, GrantCondition] = {
            name: GrantCondition(each, f"the condition {name} of {what}", error) for name, each in given.items()
        }
        self.policy: str | None = self._version(of)
        self.is_async: bool = self.people.is_async or any(
            each.is_async
            for each in (self.title, self.context, *self.conditions.values())
            if isinstance(each, _OfArguments)
        )

    def counted(self, shown: Shown, context: object) -> Review | Reject:
        """The review of a call with these arguments; it is rejected if nobody can say how many people that takes."""
        if self._needed is None:
            return self
        try:
            people = self.people.needing(self._needed.count(shown, context))
        except ConfigurationError as error:
            why = f"{error}, so the call is rejected and nobody is asked"
            _log.error(why)
            return Reject(reason=why)
        counted = copy.copy(self)
        counted.people = people
        return counted

    def _version(self, of: str) -> str | None:
        """The text that tells this policy from another one; None where nothing is said of people, times or grants."""
        terms: dict[str, Any] = {
            "approvers": self.people.approvers.model_dump_json() if self.people.governs else None,
            "answers": self.answers,
            "expires": self.expires,
            "on_expiry": self.on_expiry,
            "remind": self.remind,
            "handler": self.handler,
            "standing": sorted(self.conditions) if self.conditions else self.standing,
            **({"needed": "of the arguments"} if self.people.counts else {}),
        }
        plain = {**dict.fromkeys(terms), "answers": self.answers, "remind": (), "handler": True, "standing": False}
        return (
            None
            if terms == plain
            else canonical({"of": of, **terms, "answers": [*self.answers], "remind": [*self.remind]})
        )


def _title_of(
    given: object, what: str, error: type[ConfigurationError]
) -> str | TitleOfArguments | TextOfArguments | None:
    if not isinstance(given, str):
        return _compiled(given, what, error, LONGEST_TITLE)
    found = TitleOfArguments(given, what, error)
    return found if found.plain is None else found.plain


def _compiled(given: object, what: str, error: type[ConfigurationError], longest: int) -> str | TextOfArguments | None:
    if isinstance(given, str):
        return clean(given)
    return TextOfArguments(given, what, error, longest) if callable(given) else None
