"""Asking guardrails about the input of a run, and about the reply that is to end it.

The async function is the sync one with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from typing import Any

from phronomy._guarding import Verdict, acheck, check
from phronomy._input import read_input
from phronomy._json import JsonText, canonical, plain
from phronomy._runner import Runner
from phronomy.errors import ConfigurationError, GuardrailFailed
from phronomy.guardrails import Guardrail, GuardrailContext, Stage
from phronomy.tools import Tool
from phronomy.types import Guarded, Outcome, Unguarded


def guard(runner: Runner, stage: Unguarded) -> Generator[Outcome]:
    """Ask the guardrails about the input, or about the reply that is to end the run."""
    yield said_of(stage, check(guardrails_of(runner, stage), subject_of(runner, stage), guarding(runner, stage)))


async def aguard(runner: Runner, stage: Unguarded) -> AsyncGenerator[Outcome]:
    """As `guard`."""
    yield said_of(stage, await acheck(guardrails_of(runner, stage), subject_of(runner, stage), guarding(runner, stage)))


def guardrails_of(runner: Runner, stage: Unguarded) -> Sequence[Guardrail]:
    """Who is asked."""
    return runner.spec.input_guardrails if stage == "input" else runner.spec.output_guardrails


def subject_of(runner: Runner, stage: Unguarded) -> JsonText:
    """What they are asked about."""
    return canonical(runner.state.input if stage == "input" else runner.state.messages[-1].text)


def said_of(stage: Unguarded, verdict: Verdict) -> Guarded:
    """The outcome of what they said."""
    if stage == "input" and verdict.value is not None:
        try:
            read_input(plain(verdict.value))
        except ConfigurationError as error:
            changed = next(name for name, said in reversed(verdict.passed) if said == "transformed")
            raise GuardrailFailed(
                f"guardrail {changed!r} made of the input what no run can begin with: {error}",
                guardrail=changed,
                stage=stage,
            ) from None
    return Guarded(stage=stage, said=dict(verdict.passed), content=verdict.value, refusal=verdict.refusal)


def guarding(runner: Runner, stage: Stage, tool: Tool | None = None) -> GuardrailContext[Any]:
    """What a guardrail may know of the run."""
    state = runner.state
    return GuardrailContext(
        stage=stage,
        run_id=state.run_id,
        thread_id=state.thread_id,
        agent=runner.spec.name,
        path=state.path,
        tool_name=tool.name if tool is not None else None,
        deps=runner.deps,
        messages=state.messages,
    )
