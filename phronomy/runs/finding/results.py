"""What a run has come to, for whoever drove it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phronomy.conversation.output import InvalidOutput
from phronomy.engine.run import Runner
from phronomy.errors import ApprovalExpired, BreakpointTimeout, GuardrailRefused, OutputError
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.result import Result
from phronomy.rules import transitions


def answer_of(runner: Runner) -> Result[Any]:
    """The result of a driven run.

    Raises `ApprovalExpired` if a given decision came too late, `BreakpointTimeout` if nobody answered a breakpoint in
    time, and `GuardrailRefused` if guardrails have ended the run.
    """
    # The decision that was too late is told even where the run went well: somebody believes that they have approved something.
    result = in_time(result_of(runner), runner.late)
    lapsed = {item.pending_id for item in result.checkpoint.decisions if item.kind == "expire"}
    if lapsed.intersection(runner.timed_out):  # else somebody has answered at the last moment
        raise BreakpointTimeout(
            f"nobody answered breakpoint {', '.join(runner.timed_out)} of run {result.run_id} in time, so it is cancelled",
            pending_ids=runner.timed_out,
            result=result,
        )
    # A guardrail refused, so there is no answer. It is an error, since a caller who reads the output only would show nothing and
    # not know why.
    if (refusal := result.checkpoint.refusal) is not None and result.status == "rejected":
        raise GuardrailRefused(
            f"guardrail {refusal.guardrail!r} refused the {refusal.stage} of run {result.run_id} ({refusal.code})",
            stage=refusal.stage,
            guardrail=refusal.guardrail,
            code=refusal.code,
            user_message=refusal.message,
            result=result,
        )
    return result


def in_time(result: Result[Any], late: Sequence[str]) -> Result[Any]:
    """The result. Raises `ApprovalExpired` with it if decisions came too late, under these pending ids."""
    if late:
        raise ApprovalExpired(
            f"pending {', '.join(late)} had lapsed before the decision came, so it did not count: the call is settled as expired,"
            f" and the run is {result.status}",
            pending_ids=late,
            result=result,
        )
    return result


def result_of(runner: Runner, checkpoint: Checkpoint | None = None) -> Result[Any]:
    """The result of a run, by its last stored checkpoint."""
    base = checkpoint if checkpoint is not None else runner.base
    # What is inside is only of interest while its call is open: the result carries no runs that are over.
    if checkpoint is None and runner.shared.nested:
        open_ids = {call.id for call in base.calls if call.result is None}
        parts = sorted(runner.shared.nested.items())
        base = base.evolve(nested=tuple(part for path, part in parts if path.split("/")[0] in open_ids))
    # The status is that of the state with its journal: a call that settled after the last checkpoint counts.
    state = transitions.current(base, runner.spec.apply)
    return Result(
        status=state.status,
        output=output_of(runner, state) if state.ended == "completed" else None,
        checkpoint=base,
    )


def output_of(runner: Runner, state: Checkpoint) -> Any:
    """The output of a run that has completed, as the type that was asked for. Raises `OutputError`."""
    # Without an output type the text is the answer, and there is nothing that could fail.
    if runner.spec.output is None:
        return state.output
    try:
        # Read by the type that the agent has now. It may have been another when the run ended, and then the text no longer fits.
        return runner.spec.output.value(state.json_text("output"))
    except InvalidOutput as error:
        raise OutputError(
            f"the output of run {state.run_id} is not of the agent's output type, which was another then: {error}"
        ) from None
