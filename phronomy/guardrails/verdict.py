"""Asking guardrails one after the other, and making one verdict of what they say.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from phronomy.concurrency.retries import atried, tried
from phronomy.concurrency.workers import in_either
from phronomy.errors import AsyncRequired, GuardrailFailed
from phronomy.foundation.checks import close_unawaited
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, JsonText, canonical, plain
from phronomy.guardrails.guardrail import Answer, Guardrail, GuardrailContext, Pass, Refuse, Transform
from phronomy.records.calls import Refusal

Said = Literal["passed", "transformed", "refused"]
"""What one guardrail made of what it looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of asking guardrails about a value.

    `value` is the canonical JSON of what is to take its place, None if it is left as it was, or refused. `passed` is what each
    guardrail said, by name, in order: those after one that refused were not asked.
    """

    value: JsonText | None = field(default=None, repr=False)
    passed: tuple[tuple[str, Said], ...] = ()
    refusal: Refusal | None = None


def check(guardrails: Sequence[Guardrail], value: JsonText, context: GuardrailContext[object]) -> Verdict:
    """Ask the guardrails about a value, given as canonical JSON: each looks at the value that the one before it left.

    Raises `GuardrailFailed` where one gives no answer, and `AsyncRequired` for an async one.
    """
    verdict = Verdict()
    for guardrail in guardrails:
        answer = ask(guardrail, verdict.value or value, context)
        verdict = verdict_with(verdict, guardrail, answer, value, context)
        if verdict.refusal is not None:
            break
    return verdict


async def acheck(guardrails: Sequence[Guardrail], value: JsonText, context: GuardrailContext[object]) -> Verdict:
    """As `check`, for guardrails of both kinds: a sync one is asked in a thread."""
    verdict = Verdict()
    for guardrail in guardrails:
        answer = await aask(guardrail, verdict.value or value, context)
        verdict = verdict_with(verdict, guardrail, answer, value, context)
        if verdict.refusal is not None:
            break
    return verdict


def ask(guardrail: Guardrail, value: JsonText, context: GuardrailContext[object]) -> object:
    """Ask the guardrail about its own copy of the value. One that raises is asked again, as often as its `retries` say."""

    def once() -> object:
        return guardrail._asked(plain(value), context)

    try:
        return tried(once, guardrail.retries, guardrail.retry_wait)
    except Exception as error:
        raise error_after_raising(guardrail, context, error) from error


async def aask(guardrail: Guardrail, value: JsonText, context: GuardrailContext[object]) -> object:
    """As `ask`."""

    async def once() -> object:
        return await in_either(guardrail._asked, guardrail.is_async, plain(value), context)

    try:
        return await atried(once, guardrail.retries, guardrail.retry_wait)
    except Exception as error:
        raise error_after_raising(guardrail, context, error) from error


def verdict_with(
    verdict: Verdict, guardrail: Guardrail, answer: object, value: JsonText, context: GuardrailContext[object]
) -> Verdict:
    """The verdict with what one more guardrail said. `value` is what the first one looked at."""
    match checked_answer(guardrail, answer, context):
        case Refuse() as refuse:
            then = refuse.then if context.stage == "tool" else "end"
            refusal = Refusal(
                stage=context.stage,
                guardrail=guardrail.name,
                code=refuse.code,
                message=refuse.message,
                then=then,
            )
            return Verdict(passed=(*verdict.passed, (guardrail.name, "refused")), refusal=refusal)
        case Transform() as transform:
            made = checked_replacement(guardrail, transform, context, is_text=value[0] == '"')
            said: Said = "passed" if made == (verdict.value or value) else "transformed"
            return Verdict(value=made if made != value else None, passed=(*verdict.passed, (guardrail.name, said)))
        case _:
            return Verdict(value=verdict.value, passed=(*verdict.passed, (guardrail.name, "passed")))


def checked_answer(guardrail: Guardrail, answer: object, context: GuardrailContext[object]) -> Answer:
    """The answer, if it is one: what cannot be understood lets nothing through."""
    if answer is None or isinstance(answer, Pass | Transform | Refuse):
        return answer
    if guardrail.is_async and hasattr(type(answer), "__await__"):
        close_unawaited(answer)
        raise AsyncRequired(
            f"guardrail {guardrail.name!r} is async, and nobody awaited it: use the agent's async methods"
        )
    if hasattr(type(answer), "__await__"):
        close_unawaited(answer)
        raise error_of(guardrail, context, "returned an awaitable from a sync function: declare it with 'async def'")
    what = f"the class {answer.__name__}" if isinstance(answer, type) else type(answer).__name__
    raise error_of(
        guardrail,
        context,
        f"returned {what}: return Pass(), Transform(value) or Refuse(message), or None to let it pass",
    )


def checked_replacement(
    guardrail: Guardrail, transform: Transform, context: GuardrailContext[object], *, is_text: bool
) -> JsonText:
    """The canonical JSON of what a guardrail puts in the place of what it looked at, which may have been text."""
    try:
        made = canonical(transform.value)
    except (JsonError, RecursionError):  # what it says may quote the value
        raise error_of(guardrail, context, "returned a Transform of what is not JSON") from None
    if context.stage == "tool" and made[0] != "{":
        raise error_of(guardrail, context, "returned a Transform of what are no arguments: give them all, in a dict")
    if context.stage == "output" and is_text and made[0] != '"':
        raise error_of(guardrail, context, "returned a Transform of what is no text")
    return made


def error_after_raising(guardrail: Guardrail, context: GuardrailContext[object], error: Exception) -> GuardrailFailed:
    """The error for a guardrail that raised for the last time."""
    times = f" {guardrail.retries + 1} times, in the end" if guardrail.retries else ""
    return error_of(guardrail, context, f"raised{times} {type(error).__name__}")


def error_of(guardrail: Guardrail, context: GuardrailContext[object], what: str) -> GuardrailFailed:
    """The error for a guardrail that gave no answer. It quotes no value."""
    error = GuardrailFailed(
        f"{context.stage} guardrail {guardrail.name!r} of {context.agent!r} {what}. Nothing was let through; resume the run to"
        " have it asked again",
        guardrail=guardrail.name,
        stage=context.stage,
    )
    error.run_id = context.run_id
    return error
