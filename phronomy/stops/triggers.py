"""Waiting, from inside a node or a tool, for several triggers: a human's answer, an event from outside, a time, the end of another run.

The body stops there as it does at a question, and runs again, from its beginning, once all of them or the first of them have fired.
Each trigger is a request of its own in the checkpoint; whoever fires one needs no body, and writes the decision that a human makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_timeout
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import is_findable
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import quoted, quoted_name
from phronomy.foundation.spelling import GivenFields
from phronomy.records.decisions import Decision
from phronomy.records.principals import Principal
from phronomy.records.triggers import Trigger, TriggerKind, WaitFor
from phronomy.stops.interrupts import Asked, Asker, Expected, Interrupt, asker_here
from phronomy.tools.approvers import By, People


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """How the run ended whose end was waited for.

    `status` is its status, or `"unknown"` if the store has no such run: there was none, or it was deleted. `output` is its
    output as plain JSON, and None unless it has completed.
    """

    run_id: str
    status: str
    output: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Question:
    """A trigger: a human answers. `payload` and `answer` are as in `interrupt`."""

    payload: object = field(default=None, repr=False)
    answer: Any = None


@dataclass(frozen=True, slots=True)
class ExternalEvent(GivenFields):
    """A trigger: an event of this name arrives from outside, by `store.send_event` or `phronomy send`.

    `senders` says who may send it: the name of a role, a `Principal` (by its id), or a list of these. There is no default,
    and nobody else may. `payload` is the type of the payload, such as a pydantic model; without it, any JSON value will
    do. Raises `ConfigurationError`.
    """

    name: str
    senders: By = field(kw_only=True)
    payload: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(f"the name of an event is text that is not empty, not {quoted(self.name)}")
        if (functions := _people(self).predicates) or self.senders is None:
            raise ConfigurationError(
                f"ExternalEvent {quoted_name(self.name)}: senders are names of roles and Principals, since an event is judged"
                f" where no code of the agent is{'; not the function ' + next(iter(functions)) if functions else ''}"
            )


def _people(event: ExternalEvent) -> People:
    what = f"ExternalEvent {quoted_name(event.name)}: senders"
    terms = {"needed": 1, "counts": False, "rejections": 1, "not_requester": False}
    return People("", what, event.senders, (), **terms, error=ConfigurationError)  # type: ignore[arg-type]


# Within a day of what a datetime can be, its time in another time zone may be none.
_EARLIEST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9998, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A trigger: a time has come. Give `at`, a `datetime` with a time zone, or `after`, a number of seconds.

    `after` counts from the moment when the run begins to wait, by the clock of the store. Raises `ConfigurationError`.
    """

    at: datetime | None = None
    after: float | None = None

    def __post_init__(self) -> None:
        if (self.at is None) == (self.after is None):
            raise ConfigurationError("a Timer has either at or after")
        if self.after is not None and not is_timeout(self.after):
            raise ConfigurationError(f"Timer: after is a number of seconds above 0, not {quoted(self.after)}")
        if self.at is not None and (not isinstance(self.at, datetime) or self.at.tzinfo is None):
            raise ConfigurationError("Timer: at is a datetime with a time zone, such as datetime.now(UTC)")
        if self.at is not None and not _EARLIEST <= self.at <= _LATEST:
            raise ConfigurationError("Timer: at is a time between the years 2 and 9998")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A trigger: another run of the same store ends, in whatever way. Its value is a `RunEnded`. Raises `ConfigurationError`."""

    run_id: str

    def __post_init__(self) -> None:
        id = self.run_id
        if not isinstance(id, str) or not id or clean(id) != id or not is_findable(id):
            raise ConfigurationError(f"RunEnd: run_id is the id of a run, not {quoted(self.run_id)}")


Awaited: TypeAlias = Question | ExternalEvent | Timer | RunEnd
"""What a body may wait for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A trigger that has fired: its name in the wait and its kind, its value, and who fired it when.

    `value` is the answer, the payload of the event, a `RunEnded`, or None for a time. `by` is the person or program that
    answered or sent the event; None for a time and a run.
    """

    name: str
    kind: TriggerKind
    value: Any = field(default=None, repr=False)
    by: Principal | None = None
    at: datetime


def wait_for_first(triggers: Mapping[str, Awaited], *, key: str | None = None, state: object = None) -> Fired:
    """Wait, inside the body of a node or a tool, until one of the triggers fires, and return that one.

    `triggers` maps names of yours to a `Question`, an `ExternalEvent`, a `Timer` or a `RunEnd`. The run is suspended, with
    a pending request for each trigger. When the first of them has fired, the others are superseded, and the body runs
    again from its beginning: this call then returns. Which one is first is decided by the store, so it is one. `key` and
    `state` are as in `interrupt`, and keys of questions and waits are different.

    Raises `ConfigurationError` as `interrupt` does, and for a mapping that is empty or contains anything else.
    """
    wait = _Wait.here(triggers, key, "first")
    for name, expected in wait.expected.items():
        if (decision := wait.decision_on(name)) is not None:
            return wait.fired(name, expected, decision)
    raise wait.unfired(state)


def wait_for_all(triggers: Mapping[str, Awaited], *, key: str | None = None, state: object = None) -> dict[str, Fired]:
    """Wait, inside the body of a node or a tool, until all of the triggers have fired, and return them by name.

    The order is that of `triggers`. The body does not run in between. Otherwise it is as `wait_for_first`.
    """
    wait = _Wait.here(triggers, key, "all")
    told = {name: wait.decision_on(name) for name in wait.expected}
    found = {name: decision for name, decision in told.items() if decision is not None}
    if len(found) < len(told):
        raise wait.unfired(state, found)
    return {name: wait.fired(name, wait.expected[name], decision) for name, decision in found.items()}


class _Wait:
    """The triggers of one wait, as the body names them, and the decisions on them that there are."""

    def __init__(self, asker: Asker, triggers: Mapping[str, Awaited], key: str, wait_for: WaitFor) -> None:
        self._asker = asker
        self._triggers = {clean(name): trigger for name, trigger in triggers.items()}
        self._key = key
        self._wait_for = wait_for
        self.expected: dict[str, Expected] = {
            name: Expected(f"{key}: {name}", _type_of(trigger)) for name, trigger in self._triggers.items()
        }

    @classmethod
    def here(cls, triggers: Mapping[str, Awaited], key: str | None, wait_for: WaitFor) -> _Wait:
        """The wait of the body that runs here. Raises `ConfigurationError`."""
        asker = asker_here()
        what = f"wait_for_{wait_for}()"
        if asker is None:
            raise ConfigurationError(f"{what} waits inside a node or a tool that phronomy runs, and this is outside")
        named = isinstance(triggers, Mapping) and all(isinstance(name, str) and name for name in triggers)
        if not named or not triggers or len({clean(name) for name in triggers}) < len(triggers):
            raise ConfigurationError(f"{what} takes a mapping from names to triggers, with one trigger at least")
        for name, trigger in triggers.items():
            if not isinstance(trigger, Question | ExternalEvent | Timer | RunEnd):
                raise ConfigurationError(
                    f"{what}: {quoted_name(name)} is a Question, an ExternalEvent, a Timer or a RunEnd, not {quoted(trigger)}"
                )
            if isinstance(trigger, RunEnd) and trigger.run_id in asker.run_ids:
                raise ConfigurationError(f"{what}: {quoted_name(name)} waits for the end of the run that waits")
        return cls(asker, triggers, asker.key_of(key), wait_for)

    def decision_on(self, name: str) -> Decision | None:
        """The decision by which a trigger has fired; None if it has not."""
        return self._asker.decision_on(self._id_of(name))

    def fired(self, name: str, expected: Expected, decision: Decision) -> Fired:
        """The trigger as the body gets it. Raises `InvalidDecision` if its type refuses the value."""
        trigger = self._triggers[name]
        value: Any = None
        if isinstance(trigger, RunEnd):
            value = RunEnded(**decision.content)
        elif not isinstance(trigger, Timer):
            value = expected.read(decision)
        return Fired(name=name, kind=_KINDS[type(trigger)], value=value, by=decision.by, at=decision.at)

    def unfired(self, state: object, found: Mapping[str, Decision] | None = None) -> Interrupt:
        """The signal that the body raises to wait for all triggers that have not fired. It keeps `state` for its next run."""
        left = [name for name in self._triggers if name not in (found or {})]
        asked = tuple(self._asked(name, self._triggers[name]) for name in left)
        note = self._asker.left(self._key, state, triggers=[*self._triggers])
        return self._asker.noted(Interrupt(self._key, asked, note))

    def _id_of(self, name: str) -> str:
        return self._asker.id_of(self._key, name)

    def _asked(self, name: str, trigger: Awaited) -> Asked:
        facts: dict[str, Any] = {
            "kind": _KINDS[type(trigger)],
            "wait": f"wait_{self._asker.id_of(self._key).removeprefix('pend_')}",
            "wait_for": self._wait_for,
            "name": name,
        }
        title, after, payload = None, None, None
        if isinstance(trigger, Question):
            payload = trigger.payload
        elif isinstance(trigger, ExternalEvent):
            senders = _people(trigger).approvers
            facts |= {"event": trigger.name, "senders": senders}
            title, payload = f"Waits for the event {quoted_name(trigger.name)}", {"event": trigger.name}
        elif isinstance(trigger, RunEnd):
            facts["run_id"] = trigger.run_id
            title, payload = f"Waits for the end of run {trigger.run_id}", {"run_id": trigger.run_id}
        elif trigger.at is not None:
            facts["due_at"] = due = trigger.at.astimezone(UTC)
            title, payload = f"Waits until {due:%Y-%m-%d %H:%M:%S} UTC", {"at": due}
        else:
            after = trigger.after
            title, payload = f"Waits {after:g} seconds", {"after": after}
        args = self.expected[name].args(payload)
        return Asked(id=self._id_of(name), args=args, title=title, trigger=Trigger(**facts), after=after)


_KINDS: Final[dict[type[Awaited], TriggerKind]] = {
    Question: "answer",
    ExternalEvent: "event",
    Timer: "time",
    RunEnd: "run",
}


def _type_of(trigger: Awaited) -> object:
    match trigger:
        case Question():
            return trigger.answer
        case ExternalEvent():
            return trigger.payload
        case _:
            return None
