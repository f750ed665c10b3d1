"""Everything that phronomy raises.

    PhronomyError
    ├── ConfigurationError              an agent, a tool or an argument is wrong; nothing has run
    │   ├── ToolDefinitionError         a function or class cannot be a tool
    │   ├── GraphError                  a graph, or the class of its state, cannot be built
    │   ├── RegistrationError           a type, or how its pieces are joined, cannot be registered
    │   ├── InvalidField                a value cannot be made: a field of it is wrong, missing or unknown
    │   └── AsyncRequired               something async was met in a sync call
    ├── CheckpointError                 a checkpoint cannot be read, or cannot be used here
    │   ├── CheckpointNotFound          the store knows no such checkpoint or run
    │   ├── CheckpointEdited            the text is not what was stored or sealed
    │   ├── CheckpointUntrusted         the configured store has never seen this checkpoint
    │   ├── AgentChanged                the agent differs from the one that suspended
    │   ├── UnknownType                 a value is of a type that is not registered here
    │   ├── NotAuthorized               a call reached the executor without a recorded approval
    │   └── CheckpointAlreadyResumed    somebody decided this before
    ├── DecisionError                   a decision cannot be taken; nothing has happened
    │   ├── NothingDecided              something is pending and no decision was given
    │   ├── UnknownPending              no pending approval of that id waits here
    │   ├── ApprovalExpired             the decision came after the request had lapsed
    │   └── InvalidDecision             the decision is malformed, or its arguments are
    ├── ThreadBusy                      the thread has a run that has not ended
    ├── RunBusy                         another worker holds the run
    ├── LeaseLost                       this worker's claim was taken over by another
    ├── StoreError                      a store cannot do what was asked
    │   └── StillNeeded                 what was to be taken away is not over yet
    ├── MCPError                        an MCP server cannot be reached, or nobody knows what became of a call
    ├── WaitTimeout                     a run that was waited for has not ended yet
    ├── GuardrailRefused                a guardrail did not let the input, an answer or a call through; the run has ended
    ├── BreakpointTimeout               nobody answered a breakpoint in time; the run is cancelled
    ├── RunFailed                       a run stopped on a failure; resume continues it
    │   ├── ModelError                  the model could not be reached, or refused
    │   │   ├── AuthenticationError     the provider does not accept the key (401, 403)
    │   │   ├── RateLimitError          the provider asks for fewer requests (429), or has no quota left
    │   │   ├── ContextLengthError      the conversation is longer than the model can read
    │   │   ├── ContentFilterError      the provider refused the request or the reply by its content policy
    │   │   └── ModelConnectionError    no answer came back: no route, a timeout, a connection or a stream cut off
    │   ├── ApprovalHandlerError        the approval handler raised or gave no valid answer
    │   ├── GuardrailFailed             a guardrail raised, or gave no valid answer
    │   ├── InputFilterFailed           the input filter of a handoff raised, or gave no messages
    │   ├── InstructionsError           the instructions could not be made from the input
    │   ├── MemoryFailed                the tokens of a message could not be counted
    │   ├── OutputError                 the final answer is not what was asked for
    │   ├── NodeFailed                  a node of a graph failed for good
    │   ├── StateError                  the state of a graph could not be changed or read
    │   │   ├── InvalidUpdate           what was written to the state is no update of it
    │   │   ├── ConflictingWrites       two nodes of one wave wrote to a channel that holds one value
    │   │   ├── ReducerFailed           a reducer raised, or gave no value of its channel
    │   │   └── StateIncomplete         a required channel was read before anything was written to it
    │   └── LimitExceeded               a limit of the logical run was reached
    └── IllegalOutcome                  an outcome met a state in which it is not legal

Rejected, cancelled and skipped runs are results, not errors. A tool's own exception goes to the model as a failed result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from phronomy.records.checkpoint import Checkpoint
    from phronomy.records.decisions import Decision
    from phronomy.records.result import Result

Progress = Literal["running", "suspended", "ended", "failed", "unknown"]
"""How far a run is: `unknown` means that the worker which held it is gone, and `recover` can tell."""


class Portable:
    """Makes an exception whole after a copy, and in another process: class, message, attributes and notes.

    By itself Python makes an exception anew by calling its class with the message alone. A class that also needs ids cannot be
    called so, and a pool of processes breaks on what it cannot make anew. Its cause and traceback stay behind, as Python has it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        error: Any = self
        state = dict(vars(error))
        if "__notes__" in state:
            state["__notes__"] = list(state["__notes__"])  # a note on a copy is none on the other
        return _anew, (type(error), error.args), state


def _anew(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An exception that is made without its constructor: what that would set follows as its state."""
    return kind.__new__(kind, *args)


class PhronomyError(Portable, Exception):
    """The base of every error raised by phronomy."""


class ConfigurationError(PhronomyError):
    """An agent, a tool or an argument is wrong. Nothing has run."""


class ToolDefinitionError(ConfigurationError):
    """A function or class cannot be offered to a model as a tool."""


class GraphError(ConfigurationError):
    """A graph cannot be built: its state, its nodes or its edges do not fit. The message names what to change."""


class RegistrationError(ConfigurationError):
    """A type, or how the pieces of one are joined, cannot be registered. Nothing was registered."""


class InvalidField(ConfigurationError, ValueError):
    """A value, such as `Limits` or `ModelSettings`, cannot be made: a field of it is wrong, missing or unknown."""


class AsyncRequired(ConfigurationError):
    """A sync method met something async (a tool, a handler, instructions). The message names both and the method to use."""


class CheckpointError(PhronomyError):
    """A checkpoint cannot be read, or cannot be used here. Nothing was consumed."""


class CheckpointNotFound(CheckpointError):
    """The store knows no checkpoint, run or branch of this id."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class CheckpointEdited(CheckpointError):
    """The checkpoint is not what was sealed or stored: it was changed on the way."""

    def __init__(self, message: str, *, checkpoint_id: str) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id


class CheckpointUntrusted(CheckpointError):
    """The configured store has never seen this checkpoint, and unknown ones are not accepted as authority."""

    def __init__(self, message: str, *, checkpoint_id: str) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id


class AgentChanged(CheckpointError):
    """The agent is not the one that suspended, in a way that matters to what is pending. Nothing was consumed.

    `changes` lists each difference in words.
    """

    def __init__(self, message: str, *, checkpoint_id: str, changes: Sequence[str]) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id
        self.changes: tuple[str, ...] = tuple(changes)


class UnknownType(CheckpointError):
    """The checkpoint holds a value of a type that is not registered here: call `register_type(cls, name)` before it is read."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class NotAuthorized(CheckpointError):
    """A call reached the executor without a recorded approval of exactly it, and was not run.

    No decision leads here: the checkpoint was forged, or the tool's gate was tightened after it was judged.
    """

    def __init__(self, message: str, *, run_id: str, call_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.call_id = call_id


class CheckpointAlreadyResumed(CheckpointError):
    """Somebody decided this pending approval before. This call has changed nothing, and did not wait.

    `decision` is the one that counts (None where the whole run was ended or carried on without one), `progress` how far the run
    is, and `result` what it came to, once it is there.
    """

    def __init__(
        self,
        message: str,
        *,
        checkpoint_id: str,
        pending_id: str | None = None,
        decision: Decision | None = None,
        progress: Progress = "unknown",
        result: Any = None,
    ) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id
        self.pending_id = pending_id
        self.decision = decision
        self.progress: Progress = progress
        self.result = result


class DecisionError(PhronomyError):
    """A decision cannot be taken. Nothing has happened: what was pending still is."""


class NothingDecided(DecisionError):
    """The run waits for decisions and none was given. `pending_ids` are the ones that wait."""

    def __init__(self, message: str, *, pending_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)


class UnknownPending(DecisionError):
    """No pending approval of this id waits at this checkpoint: it is unknown, stale or belongs to another run."""

    def __init__(self, message: str, *, pending_id: str) -> None:
        super().__init__(message)
        self.pending_id = pending_id


class ApprovalExpired(DecisionError):
    """The decision came after the request had lapsed, and did not count: nothing of it ran.

    The call is settled as expired, and the run has gone on from there: `result` is what it has come to.
    """

    def __init__(self, message: str, *, pending_ids: Sequence[str], result: Result[Any]) -> None:
        super().__init__(message)
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)
        self.result = result


class InvalidDecision(DecisionError, ValueError):
    """The decision, or who is said to decide, is malformed, or the arguments it edits in are not valid for the tool."""

    def __init__(self, message: str, *, pending_id: str | None = None) -> None:
        super().__init__(message)
        self.pending_id = pending_id


class ThreadBusy(PhronomyError):
    """The thread has a pending approval, or a run that has not ended, so no new run was started on it.

    Decide or cancel it first, or start with `on_pending="supersede"`. One that stopped on a failure can be resumed, or superseded alone
    with `on_pending="supersede_failed"`.
    """

    def __init__(
        self, message: str, *, thread_id: str, run_id: str, checkpoint_id: str, pending_ids: Sequence[str]
    ) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.run_id = run_id
        self.checkpoint_id = checkpoint_id
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)


class RunBusy(PhronomyError):
    """Another worker holds the run and its lease has not expired. Try again later."""

    def __init__(self, message: str, *, run_id: str, owner: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.owner = owner


class LeaseLost(PhronomyError):
    """This worker's claim on the run was taken over by another, so what it has just done was not recorded."""

    def __init__(self, message: str, *, run_id: str, branch_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.branch_id = branch_id


class StoreError(PhronomyError):
    """A store cannot be opened, read or written as asked."""


class StillNeeded(StoreError):
    """What was to be taken away is not over: it waits, runs or can be resumed, or something that follows needs it."""

    def __init__(self, message: str, *, run_id: str, branch_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.branch_id = branch_id


class MCPError(PhronomyError):
    """An MCP server cannot be reached, or does not say what became of a call. `server` is the name that it was given here."""

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class WaitTimeout(PhronomyError):
    """The run has not ended within the time that was given; `status` is how it stands. Nothing was changed."""

    def __init__(self, message: str, *, run_id: str, status: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.status = status


class GuardrailRefused(PhronomyError):
    """A guardrail did not let the input, the answer or a call through, and the run has ended as rejected: `result` is that end.

    `code` is for programs, `user_message` for the user, `stage` is `"input"`, `"output"` or `"tool"`. What was refused is no part
    of the conversation that a next run of the thread goes on from.
    """

    def __init__(
        self, message: str, *, stage: str, guardrail: str, code: str, user_message: str, result: Result[Any]
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.guardrail = guardrail
        self.code = code
        self.user_message = user_message
        self.result = result


class BreakpointTimeout(PhronomyError):
    """Nobody answered a breakpoint while the call held there: the run is cancelled, and `result` is that end."""

    def __init__(self, message: str, *, pending_ids: Sequence[str], result: Result[Any]) -> None:
        super().__init__(message)
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)
        self.result = result


class RunFailed(PhronomyError):
    """A run stopped on a failure. Nothing that settled is lost: `agent.resume(error.checkpoint)` continues from there.

    `checkpoint` is the last one stored, `run_id` names the run. Both are None of an error that is of no run, as that of a model which
    is asked directly, and never of one that a run raises.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.checkpoint: Checkpoint | None = None
        self.run_id: str | None = None


class GuardrailFailed(RunFailed):
    """A guardrail raised, as often as it may, or gave no valid answer: nothing got past it. Mend it and resume the checkpoint."""

    def __init__(self, message: str, *, guardrail: str, stage: str) -> None:
        super().__init__(message)
        self.guardrail = guardrail
        self.stage = stage


class ModelError(RunFailed):
    """The model could not be reached, refused the request, or answered with something that is no reply."""

    def __init__(self, message: str, *, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


class AuthenticationError(ModelError):
    """The provider does not accept the key, or not for this model (status 401 or 403). Asking again does not help."""


class RateLimitError(ModelError):
    """The provider asks for fewer requests (status 429), or the quota is used up. `retry_after` is in seconds, if it said."""

    def __init__(self, message: str, *, status_code: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, status_code=status_code)
        self.retry_after = retry_after


class ContextLengthError(ModelError):
    """The conversation and the tools are longer than the model can read. Asking again does not help."""


class ContentFilterError(ModelError):
    """The provider refused the request, or withheld the reply, by its content policy. Asking again does not help."""


class ModelConnectionError(ModelError):
    """No whole answer came back: no route, a timeout, a connection or a stream that was cut off."""


class ApprovalHandlerError(RunFailed):
    """The approval handler raised, or answered with something that is no decision. Nothing ran."""


class InputFilterFailed(RunFailed):
    """The input filter of a handoff raised, or gave no list of messages. The model was not asked."""


class InstructionsError(RunFailed):
    """The instructions could not be made from the original input."""


class MemoryFailed(RunFailed):
    """The function that counts tokens for a memory raised, or gave no whole number of 0 or more. The model was not asked."""


class OutputError(RunFailed):
    """The final answer of the model is not of the output type that was asked for."""


class NodeFailed(RunFailed):
    """A node, or a tool with `on_failure="stop"`, failed after its retries and fallbacks. Resuming the checkpoint runs it again, whole.

    `failures` is what went wrong, by name; what was raised is the cause of this error.
    """

    def __init__(self, message: str, *, failures: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failures: dict[str, str] = dict(failures)


class StateError(RunFailed):
    """The state of a graph could not be changed or read as asked. It is as it was."""


class InvalidUpdate(StateError):
    """What was written to the state of a graph is no update of it. The message quotes no value.

    `node` wrote it (None for the caller of the graph), `channel` is the one concerned (None for the update as a whole), and `path`
    leads to the value at fault, such as `results[3].when`.
    """

    def __init__(
        self, message: str, *, node: str | None = None, channel: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(message)
        self.node = node
        self.channel = channel
        self.path = path


class ConflictingWrites(StateError):
    """Several nodes of one wave wrote to a channel that holds one value. `nodes` are the first two, in the order of the wave."""

    def __init__(self, message: str, *, channel: str, nodes: Sequence[str]) -> None:
        super().__init__(message)
        self.channel = channel
        self.nodes: tuple[str, ...] = tuple(nodes)


class ReducerFailed(StateError):
    """The reducer of a channel raised (its error is the cause of this one), or gave what is no value of the channel."""

    def __init__(self, message: str, *, channel: str, reducer: str) -> None:
        super().__init__(message)
        self.channel = channel
        self.reducer = reducer


class StateIncomplete(StateError):
    """The state was read while required channels had no value yet. `channels` are these."""

    def __init__(self, message: str, *, channels: Sequence[str]) -> None:
        super().__init__(message)
        self.channels: tuple[str, ...] = tuple(channels)


class LimitExceeded(RunFailed):
    """A limit of the logical run was reached, counted over all its resumes: `limit` names it, `used` is None if not known.

    `path` is that of the run whose limit it is, empty for the run that was begun.
    """

    def __init__(self, message: str, *, limit: str, maximum: float, used: float | None = None, path: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.limit = limit
        self.maximum = maximum
        self.used = used


class IllegalOutcome(PhronomyError):
    """An outcome met a state in which it is not legal. The state was not changed."""

    def __init__(self, phase: str, outcome: str, detail: str = "") -> None:
        super().__init__(f"outcome {outcome} is not legal while the run is {phase}" + (f": {detail}" if detail else ""))
        self.phase = phase
        self.outcome = outcome
