"""Asking the model: what it is asked, how long it is waited for, and what comes of its reply or failure.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Generator
from contextlib import closing

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.leaving import Overran, Patience
from phronomy.conversation.instructions import InstructionsContext
from phronomy.conversation.memory import shown
from phronomy.engine import clock
from phronomy.engine.run import Asking, Runner
from phronomy.engine.spec import Conversation, Spec
from phronomy.engine.usage import limit_reached, out_of_time, seconds_left
from phronomy.errors import (
    ConfigurationError,
    ModelConnectionError,
    ModelError,
    ReplyIncomplete,
    RunFailed,
)
from phronomy.models.base import DELTAS, Delta, Model, ModelReply, ModelRequest, StreamingModel
from phronomy.models.endings import why_incomplete
from phronomy.models.patience import ain_time, apieces_in_time, in_time, pieces_in_time
from phronomy.models.settings import ModelSettings
from phronomy.records.calls import (
    Outcome,
    Replied,
)
from phronomy.rules.added_messages import is_ending


def ask_model(runner: Runner) -> Generator[Outcome | Asking | Delta]:
    """Render the instructions from the input, and ask the model. The pieces of a reply pass on if they are wanted."""
    # Made anew each time, from the input of the run (law 11). What they said when the run began is not in the record: it may have
    # been of another day, or of a function that has been mended since.
    system = conversation_of(runner.spec).instructions.render(runner.state.input, instructions_context(runner))
    rendered = clock.monotonic()
    model, request = request_of(runner, system, rendered)
    reply: object = None
    # Whoever watches is told before the wait, which may be a minute of nothing.
    yield Asking(path=runner.state.path, model=model.name)
    # After the yield: the time that whoever watches took is not the time of the model (law 13).
    started = clock.monotonic()
    timeout, inline = request.settings.timeout, keeps_time(model)
    request.patience.extend(started - rendered)
    runner.shared.exchanged(runner.state.path, model, request)
    try:
        if gives_pieces(runner) and isinstance(model, StreamingModel):
            stream = model.stream(request) if inline else pieces_in_time(model.stream, request, timeout)
            with closing(stream) as pieces:
                for piece in pieces:
                    if isinstance(piece, DELTAS):
                        paused = clock.monotonic()
                        yield piece
                        paused = clock.monotonic() - paused  # whoever watches may be slow, which is not work
                        started += paused
                        request.patience.extend(paused)
                    else:
                        reply = piece
        else:
            reply = model.complete(request) if inline else in_time(model.complete, request, timeout)
    except Exception as error:
        # The run was cancelled, or lost, while the model was asked. What the provider raised then is about a connection that we
        # closed ourselves. The loop plans again, and finds the end.
        if request.patience.leave.said:
            if runner.root:  # those inside have heard it by now
                runner.ledger.catch_up()
            return
        # Nothing is recorded of it: the last checkpoint stands, and a resume asks the model again, as a whole (law 7).
        failure = model_failed(runner, model, request, error, started)
        if failure is error:
            raise
        raise failure from error
    yield replied(runner, model, request, reply, started)


async def aask_model(runner: Runner) -> AsyncGenerator[Outcome | Asking | Delta]:
    """As `ask_model`."""
    system = await conversation_of(runner.spec).instructions.arender(runner.state.input, instructions_context(runner))
    rendered = clock.monotonic()
    model, request = request_of(runner, system, rendered)
    reply: object = None
    yield Asking(path=runner.state.path, model=model.name)
    started = clock.monotonic()
    timeout, inline = request.settings.timeout, keeps_time(model)
    request.patience.extend(started - rendered)
    runner.shared.exchanged(runner.state.path, model, request)
    try:
        if gives_pieces(runner) and isinstance(model, StreamingModel):
            stream = model.astream(request) if inline else apieces_in_time(model.astream, request, timeout)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if isinstance(piece, DELTAS):
                        paused = clock.monotonic()
                        yield piece
                        paused = clock.monotonic() - paused  # whoever watches may be slow, which is not work
                        started += paused
                        request.patience.extend(paused)
                    else:
                        reply = piece
        else:
            reply = await (model.acomplete(request) if inline else ain_time(model.acomplete, request, timeout))
    except Exception as error:
        if request.patience.leave.said:  # whatever it raised: the run is over, and the log says how
            if runner.root:
                await runner.ledger.acatch_up()
            return
        failure = model_failed(runner, model, request, error, started)
        if failure is error:
            raise
        raise failure from error
    yield replied(runner, model, request, reply, started)


def replied(runner: Runner, model: Model, request: ModelRequest, reply: object, started: float) -> Replied:
    """The outcome of a model call."""
    # A model may be anybody's code. A reply of another type would fail deep in the rules, in words that name no model.
    if not isinstance(reply, ModelReply):
        raise ModelError(f"model {model.name} answered with {type(reply).__name__}, not with a ModelReply")
    runner.shared.exchanged(runner.state.path, model, reply)
    guarded = bool(runner.spec.output_guardrails)
    message = reply.message
    if (reason := why_incomplete(reply)) is not None:
        # Calls stay: judging tells the model that none of them ran. Half a text would be taken for the answer.
        if not message.tool_calls and not (message.text and accepts_incomplete(model, request)):
            raise ReplyIncomplete(
                f"model {model.name} gave no whole reply: it ended with {reason!r}. Raise max_tokens if that is why, and"
                " resume the checkpoint to ask it again; accept_incomplete=True in the settings takes half a text",
                finish_reason=reason,
                text=message.text,
            )
        message = message.evolve(finish_reason=reason)
    read = len(runner.state.messages)
    return Replied(message=message, usage=reply.usage, elapsed=clock.since(started), guarded=guarded, read=read)


def accepts_incomplete(model: Model, request: ModelRequest) -> bool:
    """True if a text that was cut off counts as an answer, by the settings of the request, else by those of the model."""
    own = getattr(model, "settings", None)
    settings = own.merged(request.settings) if isinstance(own, ModelSettings) else request.settings
    return settings.accept_incomplete is True


def model_failed(runner: Runner, model: Model, request: ModelRequest, error: Exception, started: float) -> RunFailed:
    """The error for a model that has raised, or has not answered in time."""
    # Of the two reasons to stop waiting, a limit is told as such: raising the timeout would not help against it.
    bounded = seconds_left(runner) is not None  # a patience that is over may be that of the attempt alone
    if bounded and request.patience.is_over and isinstance(error, Overran | ModelConnectionError):
        return limit_reached(runner, out_of_time(runner, clock.since(started)))
    if isinstance(error, RunFailed):
        return error
    again = "resume the checkpoint to ask it again"
    if isinstance(error, Overran):
        return ModelConnectionError(f"model {model.name} gave no whole answer before the timeout; {again}")
    # One of ours says what to change, and quotes no value.
    why = f": {error}" if isinstance(error, ConfigurationError) else ""
    return ModelError(f"model {model.name} raised {type(error).__name__}{why}; {again}")


# The request


def instructions_context(runner: Runner) -> InstructionsContext[object]:
    """What a callable that makes instructions may know of the run."""
    state = runner.state
    return InstructionsContext(
        run_id=state.run_id,
        thread_id=state.thread_id,
        deps=runner.deps,
        messages=state.messages,
        requester=state.requester,
        _store=runner.ledger.store,
        facts=runner.facts,
    )


def request_of(runner: Runner, system: str | None, at: float) -> tuple[Model, ModelRequest]:
    """The model, and what it is asked, if it is asked at this time."""
    conversation, output = conversation_of(runner.spec), runner.spec.output
    settings = conversation.settings
    if output is not None and conversation.output_mode == "schema":
        settings = ModelSettings(extra={"response_format": output.request_format()}).merged(settings)
    elif output is not None:
        system = "\n\n".join(part for part in (system, output.paragraph()) if part)
    # The limit of seconds bounds the request too. It is not a signal that cuts it off: the client then closes its connection by
    # itself, and can say so.
    left = seconds_left(runner)
    if left is not None:
        settings = settings.evolve(timeout=min(settings.timeout or left, left))
    # The system text is no message of the record (law 11), and what a memory leaves out is left out for this request alone: the
    # record keeps all.
    messages = shown(conversation.memory, runner.state, conversation_of(runner.home).seen(runner.state))
    request = ModelRequest(
        system=system,
        messages=messages,
        tools=runner.definitions,
        settings=settings,
        # It is waited for until a limit is reached, or the run is over.
        patience=Patience(runner.shared.over, math.inf if left is None else at + left),
    )
    return conversation.model, request


def conversation_of(spec: Spec) -> Conversation:
    """What a model is asked with, by rules that plan to ask one."""
    conversation = spec.conversation
    assert conversation is not None, "the rules of a graph ask no model"
    return conversation


def keeps_time(model: Model) -> bool:
    """Whether a model itself holds its timeout and the patience of a request: it is asked as it is, in the caller's thread."""
    return getattr(model, "keeps_time", False) is True


def prepare_model(runner: Runner) -> None:
    """Have the model load what it needs while the calls run, if it is certain that it will be asked after them."""
    conversation = runner.spec.conversation
    prepare = getattr(conversation.model, "prepare", None) if conversation is not None else None
    # Where a call may still need a human, the model is not asked for days.
    last = {call.status for call in runner.state.calls} <= {"started", "settled"}
    if prepare is not None and last and not is_ending(runner.state):
        prepare()


def gives_pieces(runner: Runner) -> bool:
    """Whether pieces of the reply are passed on as they come: not where guardrails are yet to see it whole."""
    return runner.streams and not runner.spec.output_guardrails
