"""Labels of a pattern's checkpoints: every so many finished units, under a prefix, if a predicate agrees."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import field
from typing import Any

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_async, is_count, is_true
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import findable
from phronomy.foundation.json_text import canonical
from phronomy.foundation.spelling import Given
from phronomy.teams.schemes import Known, Scheme

_log = logging.getLogger("phronomy")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelContext:
    """The values that the condition of `Labels` can read.

    `pattern` is the kind of the pattern, `unit` what it counts (`step`, `round`, `iter` or `node`), and `number` how
    many of these have finished. `output` is the output so far. `facts` and `satisfaction` are those of a goal; of other
    patterns they are empty and None. They are copies, so changes have no effect.
    """

    pattern: str
    unit: str
    number: int
    output: Any = field(default=None, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, repr=False)
    satisfaction: float | None = None


class Labels(Given):
    """Gives labels to checkpoints of a pattern, such as `pipeline:step-5`, so that you find them again.

    A label is given to the checkpoint in which every `every`-th unit has finished; the first unit counts. Where several
    units finish together and one of them is due, the number is that of all units that have finished. `prefix` is the
    part before the colon (default: the name of the pattern). `when` is a plain function of the `LabelContext`. If it
    returns false or raises, the checkpoint has no label; an exception is logged. Async runs call it on the event loop.
    Raises `ConfigurationError`.
    """

    every: int
    prefix: str | None
    when: Callable[[LabelContext], object] | None

    def __init__(
        self, *, every: int = 5, prefix: str | None = None, when: Callable[[LabelContext], object] | None = None
    ) -> None:
        if not is_count(every) or every == 0:
            raise ConfigurationError("Labels: every is a whole number above 0")
        if when is not None and (not callable(when) or is_async(when)):
            raise ConfigurationError("Labels: when is a plain function of the LabelContext")
        self.every = every
        if not isinstance(prefix, str | None) or prefix == "":
            raise ConfigurationError("Labels: prefix is text that is not empty, or None")
        self.prefix = prefix
        self.when = when

    def of(self, name: str, scheme: Scheme, before: Known, after: Known) -> str | None:
        """The label for the checkpoint `after`, which follows `before`; None if it gets none."""
        unit, was, number = scheme.unit, scheme.units(before), scheme.units(after)
        if unit is None or number // self.every <= was // self.every:
            return None
        if self.when is not None and not self._agrees(scheme, unit, number, after):
            return None
        return self.text(name, unit, number)

    def text(self, name: str, unit: str, number: int) -> str:
        """The label of a unit in a pattern of this name. Raises `ConfigurationError` if it is too long to be stored."""
        return findable("a label", f"{name if self.prefix is None else self.prefix}:{unit}-{number}")

    def _agrees(self, scheme: Scheme, unit: str, number: int, known: Known) -> bool:
        context = LabelContext(
            pattern=scheme.kind,
            unit=unit,
            number=number,
            output=json.loads(canonical(known.output)),
            facts=json.loads(canonical(scheme.facts(known))),
            satisfaction=known.noted.get("satisfaction"),
        )
        assert self.when is not None
        try:
            return is_true(self.when(context))
        except Exception as error:  # what it says may quote what it looked at
            _log.error("the condition of labels of a %s raised %s", scheme.kind, type(error).__name__)
            return False
