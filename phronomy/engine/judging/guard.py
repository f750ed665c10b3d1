"""Asking guardrails about the input of a run, and about the reply that is to end it.

The async function is the sync one with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import field

from phronomy.conversation.input import read_input
from phronomy.conversation.output import InvalidOutput, is_same
from phronomy.engine.run import Runner
from phronomy.errors import ConfigurationError, GuardrailFailed
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, canonical, plain
from phronomy.guardrails.guardrail import Guardrail, GuardrailContext, Stage
from phronomy.guardrails.verdict import Verdict, acheck, check
from phronomy.records.calls import Guarded, Looked, Outcome
from phronomy.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Subject:
    """What guardrails are asked about, as canonical JSON, and what is stored of it: nothing of an input, nor of a text."""

    shown: JsonText = field(repr=False)
    stored: JsonText | None = field(default=None, repr=False)


def guard(runner: Runner, stage: Looked) -> Generator[Outcome]:
    """Ask the guardrails about the input, or about the reply that is to end the run."""
    # They look at what stands in the record, and not at what the caller holds: after a crash the next worker asks them about the
    # same.
    text, context = said(runner, stage), guarding(runner, stage)
    subject = subject_of(runner, stage, text)
    verdict = check(guardrails_of(runner, stage), subject.shown, context)
    # Asked twice where what comes out of the answer type is not what they looked at: they must see the value that leaves, and not
    # only the text that it came from.
    if (read := brought_out(runner, stage, subject, verdict)) is not None:
        subject, verdict = read, check(guardrails_of(runner, stage), read.shown, context)
    yield said_of(runner, stage, text, subject, verdict)


async def aguard(runner: Runner, stage: Looked) -> AsyncGenerator[Outcome]:
    """As `guard`."""
    text, context = said(runner, stage), guarding(runner, stage)
    subject = subject_of(runner, stage, text)
    verdict = await acheck(guardrails_of(runner, stage), subject.shown, context)
    if (read := brought_out(runner, stage, subject, verdict)) is not None:
        subject, verdict = read, await acheck(guardrails_of(runner, stage), read.shown, context)
    yield said_of(runner, stage, text, subject, verdict)


def guardrails_of(runner: Runner, stage: Looked) -> Sequence[Guardrail]:
    """Who is asked."""
    return runner.spec.input_guardrails if stage == "input" else runner.spec.output_guardrails


def said(runner: Runner, stage: Looked) -> JsonText:
    """What stands in the conversation."""
    state = runner.state
    if state.unguarded == "message":
        return JsonText(state.messages[-1].json_text("content"))
    # As the model will read it, or has written it. What was redacted before is not shown to them again.
    return canonical(state.input if stage == "input" else state.messages[-1].text)


def subject_of(runner: Runner, stage: Looked, text: JsonText) -> Subject:
    """The value that guardrails check.

    For an answer that fits the output type, it is the value that the caller gets. For a text that does not fit, it is
    the text; the model is told of the fault, and answers again.
    """
    if stage == "input" or runner.spec.output is None:
        return Subject(text)
    try:
        stored = runner.spec.output.read(str(plain(text)))
        return Subject(runner.spec.output.shown(stored), stored)
    # It will be refused as no answer. It is shown all the same: the model is told of it, so it stays in the conversation.
    except InvalidOutput:
        return Subject(text)


def brought_out(runner: Runner, stage: Looked, subject: Subject, verdict: Verdict) -> Subject | None:
    """The answer that comes out of what they made of it, if they have yet to look at that. None in every other case.

    It is the one that they made of a text which was none, or one that the type makes another of: by what it computes, or adds.
    """
    # What they left alone, they have seen. An input has no type that could make another of it.
    if stage == "input" or verdict.value is None:
        return None
    read = subject_of(runner, stage, text_of(runner, subject, verdict))
    if read.stored is None or (subject.stored is not None and is_same(plain(verdict.value), plain(read.shown))):
        return None
    return read


def text_of(runner: Runner, subject: Subject, verdict: Verdict) -> JsonText:
    """What is to stand in the conversation after what they said."""
    if subject.stored is None or runner.spec.output is None:
        return verdict.value or subject.shown
    made = subject.stored
    if verdict.value is not None:
        made = runner.spec.output.taken(verdict.value, subject.shown, subject.stored)
    return canonical(str(runner.spec.output.written(made)))


def said_of(runner: Runner, stage: Looked, text: JsonText, subject: Subject, verdict: Verdict) -> Guarded:
    """The outcome of what they said. An answer of a type stands in the conversation as it is read, with nothing beside.

    Raises `GuardrailFailed` for what cannot count as they left it.
    """
    content = None
    # A refused text is taken out of the conversation, so nobody needs to know what it would have become.
    if verdict.refusal is None:
        made = text_of(runner, subject, verdict)
        content = made if made != text else None
    if stage == "input" and verdict.value is not None:
        try:
            # A guardrail may make of the input what no run can begin with. It is refused here, by the name of the guardrail, before
            # anything counts.
            read_input(plain(verdict.value))
        except ConfigurationError as error:
            raise _unusable(stage, verdict, f"made of the input what no run can begin with: {error}") from None
    # They have looked twice by now, and it comes out changed once more. To go on would be a race between their code and that of the
    # type.
    if brought_out(runner, stage, subject, verdict) is not None:
        raise _unusable(
            stage,
            verdict,
            "changed what the output type makes of the answer by itself, so it would come back: have it refuse, or change"
            " the fields that it is made of. Nothing was let through",
        )
    return Guarded(stage=stage, said=dict(verdict.passed), content=content, refusal=verdict.refusal)


def _unusable(stage: Looked, verdict: Verdict, why: str) -> GuardrailFailed:
    changed = next(name for name, found in reversed(verdict.passed) if found == "transformed")
    return GuardrailFailed(f"guardrail {changed!r} {why}", guardrail=changed, stage=stage)


def guarding(runner: Runner, stage: Stage, tool: Tool | None = None) -> GuardrailContext[object]:
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
        messages=runner.messages,
        facts=runner.facts,
    )
