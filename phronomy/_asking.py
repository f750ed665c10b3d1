"""What a model is asked, and how: of a run as it stands, with nothing done yet."""

from __future__ import annotations

import math
from typing import Any

from phronomy._leave import Patience
from phronomy._runner import Runner
from phronomy._said import is_ending
from phronomy._spent import seconds_left
from phronomy.instructions import InstructionsContext
from phronomy.memory import shown
from phronomy.models.base import Model, ModelRequest, ModelSettings


def instructions_context(runner: Runner) -> InstructionsContext[Any]:
    """What a callable that makes instructions may know of the run."""
    state = runner.state
    return InstructionsContext(
        run_id=state.run_id, thread_id=state.thread_id, deps=runner.deps, messages=state.messages
    )


def request_of(runner: Runner, system: str | None) -> tuple[Model, ModelRequest]:
    """The model, and what it is asked."""
    spec = runner.spec
    assert spec.model is not None, "a spec whose rules ask the model has one"
    settings = spec.settings
    if spec.output is not None and spec.output_mode == "schema":
        settings = ModelSettings(extra={"response_format": spec.output.request_format()}).merged(settings)
    elif spec.output is not None:
        system = "\n\n".join(part for part in (system, spec.output.paragraph()) if part)
    if (left := seconds_left(runner)) is not None:
        settings = settings.evolve(timeout=min(settings.timeout or left, left))
    messages = shown(spec.memory, runner.state, runner.home.seen(runner.state))
    return spec.model, ModelRequest(system=system, messages=messages, tools=runner.definitions, settings=settings)


def keeps_time(model: Model) -> bool:
    """Whether a model itself holds its timeout and the patience of a request: it is asked as it is, in the caller's thread."""
    return getattr(model, "keeps_time", False) is True


def patience_of(runner: Runner, started: float) -> Patience:
    """How long the model is waited for: until a limit is reached, or the run is over."""
    left = seconds_left(runner)
    return Patience(runner.ledger.over, math.inf if left is None else started + left)


def prepare_model(runner: Runner) -> None:
    """Have the model load what it needs while the calls run, if it is certain that it will be asked after them."""
    prepare = getattr(runner.spec.model, "prepare", None)
    last = all(call.status in ("started", "settled") for call in runner.state.calls)
    if prepare is not None and last and not is_ending(runner.state):
        prepare()


def gives_pieces(runner: Runner) -> bool:
    """Whether pieces of the reply are passed on as they come: not where guardrails are yet to see it whole."""
    return runner.streams and not runner.spec.output_guardrails
