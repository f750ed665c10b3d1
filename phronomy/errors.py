"""Everything that phronomy raises. The errors of triggers, which extend these, are in `records/trigger_errors.py`.

    PhronomyError
    ├── ConfigurationError              an agent, a tool or an argument is wrong; nothing has run
    │   ├── ToolDefinitionError         a function or class cannot be a tool
    │   ├── GraphError                  a graph, or the class of its state, cannot be built
    │   ├── RegistrationError           a type, or the function that joins its pieces, cannot be registered
    │   ├── InvalidField                a value cannot be made: a field of it is wrong, missing or unknown
    │   └── AsyncRequired               a sync method met something async
    ├── CheckpointError                 a checkpoint cannot be read, or cannot be used here
    │   ├── CheckpointNotFound          the store knows no such checkpoint or run
    │   ├── CheckpointEdited            the text is not what was stored or sealed
    │   ├── CheckpointUntrusted         the configured store has never seen this checkpoint
    │   ├── AgentChanged                the agent differs from the one that suspended
    │   ├── UnknownType                 a value is of a type that is not registered here
    │   ├── NotAuthorized               a call reached the executor without a recorded approval
    │   └── CheckpointAlreadyResumed    somebody has already decided this
    ├── DecisionError                   a decision cannot be taken; nothing has happened
    │   ├── NothingDecided              something is pending and no decision was given, or one for several
    │   ├── UnknownPending              no pending approval with this id waits here
    │   ├── ApprovalExpired             the decision came after the request had expired
    │   ├── RequestExpired              the same, with the store alone: nothing was recorded
    │   ├── NotAnApprover               this person may not decide on the request
    │   ├── AlreadyVoted                this person has voted on the request before
    │   └── InvalidDecision             the decision is malformed, or its arguments are
    ├── ThreadBusy                      the thread has a run that has not ended
    ├── RunBusy                         another worker holds the run
    ├── LeaseLost                       this worker's claim was taken over by another
    ├── StoreError                      a store cannot do what was asked
    │   ├── LongTermStoreError          nothing can be kept or found under these terms; the entries are as before
    │   ├── StillNeeded                 a run cannot be deleted: it has not ended, or other data needs it
    │   ├── TooManyMessages             the model of a run has as many messages to read as the run keeps
    │   └── UnreadableRow               a stored row is damaged, or was written by a later release
    ├── PersonExists                    an id or an alias belongs to a person already
    ├── GrantRefused                    a standing grant cannot be given or signed so
    ├── UnknownPerson                   no person has this id
    ├── TokenError                      a token of a link or a button does not count
    │   ├── TokenInvalid                it was not made here, or for something else
    │   ├── TokenExpired                its time is over
    │   └── TokenUsed                   it was used for something else
    ├── ToolCallError                   a call that the body of a tool made of another gave no result
    │   ├── ToolCallRejected            a human, a policy or a guardrail rejected it
    │   ├── ToolCallExpired             nobody decided on it in time
    │   ├── ToolCallCancelled           it was cancelled
    │   └── ToolCallFailed              its tool failed, or its arguments are not valid
    ├── MCPError                        an MCP server cannot be reached, or does not say how a call ended
    ├── WaitTimeout                     a run that was waited for has not ended yet
    ├── GuardrailRefused                a guardrail refused the input, the answer or a call; the run has ended
    ├── BreakpointTimeout               nobody answered a breakpoint in time; the run is cancelled
    ├── RunFailed                       a run stopped on a failure; resume continues it
    │   ├── ModelError                  the model could not be reached, or refused
    │   │   ├── AuthenticationError     the provider does not accept the key (401, 403)
    │   │   ├── RateLimitError          the provider asks for fewer requests (429), or has no quota left
    │   │   ├── ContextLengthError      the conversation is longer than the model can read
    │   │   ├── ContentFilterError      the provider refused the request or the reply by its content policy
    │   │   ├── ReplyIncomplete         the reply was cut off before its end, so it is no answer
    │   │   ├── ReplyUnsupported        the reply asks for something that phronomy cannot answer
    │   │   └── ModelConnectionError    no complete answer arrived: no route, a timeout, or a connection broke off
    │   ├── ApprovalHandlerError        the approval handler raised, or returned no valid answer
    │   ├── GuardrailFailed             a guardrail raised, or returned no valid answer
    │   ├── InputFilterFailed           the input filter of a handoff raised, or returned no messages
    │   ├── InstructionsError           the instructions could not be made from the input
    │   ├── MemoryFailed                the tokens of a message could not be counted
    │   ├── OutputError                 the final answer does not fit the output type
    │   ├── NodeFailed                  a node of a graph failed for good
    │   ├── StateError                  the state of a graph could not be changed or read
    │   │   ├── InvalidUpdate           a value that was written to the state is not a valid update
    │   │   ├── ConflictingWrites       two nodes of one wave wrote to a channel that holds one value
    │   │   ├── ReducerFailed           a reducer raised, or returned no valid value for its channel
    │   │   └── StateIncomplete         a required channel was read before anything was written to it
    │   └── LimitExceeded               a limit of the run was reached
    └── IllegalOutcome                  an outcome is not legal in the present state

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
"""How far a run is. `unknown` means that its worker is gone; `recover` finds out what happened."""


class Portable:
    """Lets an error be copied, pickled and raised in another process, with its class, message, attributes and notes."""

    # By default Python rebuilds an exception by calling its class with the message alone. That call fails for a class that also
    # needs ids, and the failure breaks a process pool. The cause and the traceback are not kept, as for any exception.

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
    """The base class of every error that phronomy raises."""


class ConfigurationError(PhronomyError):
    """An agent, a tool or an argument is wrong. Nothing has run."""


class ToolDefinitionError(ConfigurationError):
    """A function or class cannot be offered to a model as a tool."""


class GraphError(ConfigurationError):
    """A graph cannot be built: its state, its nodes or its edges do not fit. The message names what to change."""


class RegistrationError(ConfigurationError):
    """A type, or the function that joins its pieces, cannot be registered. Nothing was registered."""


class InvalidField(ConfigurationError, ValueError):
    """A value, such as `Limits` or `ModelSettings`, cannot be made: a field of it is wrong, missing or unknown."""


class AsyncRequired(ConfigurationError):
    """A sync method met something async, such as a tool. The message names it, and the method to use instead."""


class CheckpointError(PhronomyError):
    """A checkpoint cannot be read, or cannot be used here. Nothing has changed."""


class CheckpointNotFound(CheckpointError):
    """The store knows no checkpoint, run or branch with this id."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class CheckpointEdited(CheckpointError):
    """The checkpoint differs from the sealed or stored one: somebody changed it."""

    def __init__(self, message: str, *, checkpoint_id: str) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id


class CheckpointUntrusted(CheckpointError):
    """The store of this agent does not know the checkpoint, and the agent does not trust unknown checkpoints."""

    def __init__(self, message: str, *, checkpoint_id: str) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id


class AgentChanged(CheckpointError):
    """The agent differs from the one that was suspended, in a way that affects pending requests. Nothing has changed.

    `changes` lists each difference in words.
    """

    def __init__(self, message: str, *, checkpoint_id: str, changes: Sequence[str]) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id
        self.changes: tuple[str, ...] = tuple(changes)


class UnknownType(CheckpointError):
    """The checkpoint holds a value of a type that is not registered here: call `register_type(cls, name)` first."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class NotAuthorized(CheckpointError):
    """A call was about to run without a recorded approval of exactly this call. It did not run.

    No decision causes this error. Either somebody forged the checkpoint, or the tool needs approval only since the call
    was checked.
    """

    def __init__(self, message: str, *, run_id: str, call_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.call_id = call_id


class CheckpointAlreadyResumed(CheckpointError):
    """Somebody has already decided this pending approval. This attempt has changed nothing, and did not wait.

    `decision` is the decision that counts; it is None if the whole run was ended or continued without one. `progress`
    says how far the run is. `result` is the result of the run, or None if there is no result yet.
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
    """A decision cannot be taken. Nothing has happened: all requests are still pending.

    `pending_id` is the id of the request, or None if the error is about none, or about several.
    """

    def __init__(self, message: str, *, pending_id: str | None = None) -> None:
        super().__init__(message)
        self.pending_id = pending_id


class NothingDecided(DecisionError):
    """The run waits for decisions, and none was given, or one `approved=` for several. `pending_ids` are the ids of the requests."""

    def __init__(self, message: str, *, pending_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)


class UnknownPending(DecisionError):
    """No pending approval with this id waits at this checkpoint: it is unknown, out of date, or belongs to another run."""


class ApprovalExpired(DecisionError):
    """The decision came after the request had expired. It does not count, and nothing of it ran.

    The call is settled as expired, and the run has continued from there: `result` is the result of the run.
    """

    def __init__(self, message: str, *, pending_ids: Sequence[str], result: Result[Any]) -> None:
        super().__init__(message)
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)
        self.result = result


class RequestExpired(DecisionError):
    """The decision came after the time of the request was over, and was not recorded. Whoever drives the run settles the call."""


class NotAnApprover(DecisionError):
    """This person may not decide on the request: its approval asks for somebody else. The request is as before.

    `by` is the id of the person, or None if the decision names nobody. The refusal is in the audit trail.
    """

    def __init__(self, message: str, *, pending_id: str, by: str | None) -> None:
        super().__init__(message, pending_id=pending_id)
        self.by = by


class AlreadyVoted(DecisionError):
    """This person has voted on the request before, for themself or for another, and counts once. The request is as before."""

    def __init__(self, message: str, *, pending_id: str, by: str) -> None:
        super().__init__(message, pending_id=pending_id)
        self.by = by


class InvalidDecision(DecisionError, ValueError):
    """The decision or its principal is malformed, or the edited arguments are not valid for the tool."""


class ThreadBusy(PhronomyError):
    """The thread has a pending approval, or a run that has not ended. So no new run was started on the thread.

    Decide or cancel that run first, or start with `on_pending="supersede"`. A run that stopped on a failure can be
    resumed; `on_pending="supersede_failed"` supersedes only such a run.
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
    """Another worker holds the run, and its lease has not expired. Try again later."""

    def __init__(self, message: str, *, run_id: str, owner: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.owner = owner


class LeaseLost(PhronomyError):
    """Another worker has the run, or the process that this one was forked from. The last work here was not recorded."""

    def __init__(self, message: str, *, run_id: str, branch_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.branch_id = branch_id


class StoreError(PhronomyError):
    """A store cannot be opened, read or written."""


class LongTermStoreError(StoreError):
    """A long-term store cannot keep or find what was asked: the message says why. Its entries are as before."""


class StillNeeded(StoreError):
    """The run or branch cannot be deleted: it waits, runs or can be resumed, or other data needs it."""

    def __init__(self, message: str, *, run_id: str, branch_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.branch_id = branch_id


class TooManyMessages(StoreError):
    """The model of the run has as many messages to read as the run keeps, or messages that are as large together. Nothing was sent."""


class UnreadableRow(StoreError):
    """A stored row cannot be read: it is damaged, or was written by a later release.

    `kind` says what is in it: `"request"`, `"checkpoint"`, `"grant"`, `"person"`, `"deputy"`, `"token"`,
    `"long-term"` for the entries of a long-term store, or `"decision"`: the line of the audit trail for a request. `id` is the id of
    that, and `run_id` and `branch_id` are those of its run, where there is one. A list has all other rows, and this error in its
    `unreadable`.
    """

    def __init__(
        self, message: str, *, kind: str, id: str, run_id: str | None = None, branch_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.id = id
        self.run_id = run_id
        self.branch_id = branch_id


class PersonExists(PhronomyError):
    """A person was not added, because the id or an alias belongs to somebody already. Nothing has changed.

    `id` is the id of the person who has it, and `alias` is the alias, or None if it is the id.
    """

    def __init__(self, message: str, *, id: str, alias: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.alias = alias


class GrantRefused(PhronomyError):
    """A standing grant was not given, or not signed. Nothing has changed. `id` is the id of the grant, if there is one."""

    def __init__(self, message: str, *, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class UnknownPerson(PhronomyError):
    """No person in the directory has the id that was given, which is `id`. Nothing has changed."""

    def __init__(self, message: str, *, id: str) -> None:
        super().__init__(message)
        self.id = id


class TokenError(PhronomyError):
    """A token of a link or a button does not count. Nothing has changed."""


class TokenInvalid(TokenError):
    """The token was not made with one of these keys, or was made for another purpose or tenant, or is not known any more."""


class TokenExpired(TokenError):
    """The time of the token is over. `pending_id` is the id of the request that it was made for."""

    def __init__(self, message: str, *, pending_id: str) -> None:
        super().__init__(message)
        self.pending_id = pending_id


class TokenUsed(TokenError):
    """The token counts once, and was redeemed before, for another use. `pending_id` is the id of the request."""

    def __init__(self, message: str, *, pending_id: str) -> None:
        super().__init__(message)
        self.pending_id = pending_id


class ToolCallError(PhronomyError):
    """A call that the body of a tool made of another (`call_tool`) gave no result.

    `kind` is how the call ended, as in a tool message. `pending_id` is its request, None if nobody was asked. `reason` is that of
    the decision, if there is one.
    """

    def __init__(
        self, message: str, *, tool_name: str, kind: str, pending_id: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.tool_name = tool_name
        self.kind = kind
        self.pending_id = pending_id
        self.reason = reason


class ToolCallRejected(ToolCallError):
    """A human, a policy or a guardrail rejected the call, so it was not run."""


class ToolCallExpired(ToolCallError):
    """Nobody decided on the call in time, so it was not run."""


class ToolCallCancelled(ToolCallError):
    """The call was cancelled."""


class ToolCallFailed(ToolCallError):
    """The tool of the call failed, or its arguments are not valid. The message says what the model would read."""


class MCPError(PhronomyError):
    """An MCP server cannot be reached, or does not say how a call ended.

    `server` is the name that you gave the server.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class WaitTimeout(PhronomyError):
    """The run did not end within the given time. `status` is the present status of the run. Nothing has changed."""

    def __init__(self, message: str, *, run_id: str, status: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.status = status


class GuardrailRefused(PhronomyError):
    """A guardrail refused the input, the answer or a call. The run has ended as rejected: `result` is its result.

    `code` is for programs, `user_message` is for the user, and `stage` is `"input"`, `"output"` or `"tool"`. The
    refused value is not in the conversation with which the next run of the thread starts.
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
    """Nobody answered a breakpoint before the timeout of the hold. The run is cancelled, and `result` is its result."""

    def __init__(self, message: str, *, pending_ids: Sequence[str], result: Result[Any]) -> None:
        super().__init__(message)
        self.pending_ids: tuple[str, ...] = tuple(pending_ids)
        self.result = result


class RunFailed(PhronomyError):
    """A run stopped on a failure. Settled calls are not lost: `agent.resume(error.checkpoint)` continues the run.

    `checkpoint` is the last stored checkpoint of the run, and `run_id` is the id of the run. An error that a run raises
    has both. Both are None if the error belongs to no run, for example if you ask a model directly.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.checkpoint: Checkpoint | None = None
        self.run_id: str | None = None


class GuardrailFailed(RunFailed):
    """A guardrail raised after all its retries, or returned no valid answer. The checked value has not passed.

    Correct the guardrail, then resume the checkpoint.
    """

    def __init__(self, message: str, *, guardrail: str, stage: str) -> None:
        super().__init__(message)
        self.guardrail = guardrail
        self.stage = stage


class ModelError(RunFailed):
    """The model could not be reached, refused the request, or sent an answer that is not a reply."""

    def __init__(self, message: str, *, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


class AuthenticationError(ModelError):
    """The provider does not accept the key, or not for this model (status 401 or 403). A retry does not help."""


class RateLimitError(ModelError):
    """The provider asks for fewer requests (status 429), or the quota is used up.

    `retry_after` is the number of seconds to wait, or None if the provider did not say.
    """

    def __init__(self, message: str, *, status_code: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, status_code=status_code)
        self.retry_after = retry_after


class ContextLengthError(ModelError):
    """The conversation and the tools are longer than the model can read. A retry does not help."""


class ContentFilterError(ModelError):
    """The provider refused the request or withheld the reply, because of its content policy. A retry does not help."""


class ReplyIncomplete(ModelError):
    """The reply ended before it was whole, for example at `max_tokens`, so it is no answer. It is not in the record.

    `finish_reason` is the provider's word for how the reply ended, or `"unknown"`. `text` is the text so far. A run that
    is resumed asks the model again. `ModelSettings(accept_incomplete=True)` takes such a text as the answer.
    """

    def __init__(
        self, message: str, *, finish_reason: str = "unknown", text: str = "", status_code: int | None = None
    ) -> None:
        super().__init__(message, status_code=status_code)
        self.finish_reason = finish_reason
        self.text = text


class ReplyUnsupported(ModelError):
    """The reply asks for something that phronomy cannot answer, such as an approval by the provider itself.

    `item_type` is the type of the item that asks. Nothing of the reply is in the record, and nothing ran.
    """

    def __init__(self, message: str, *, item_type: str = "unknown", status_code: int | None = None) -> None:
        super().__init__(message, status_code=status_code)
        self.item_type = item_type


class ModelConnectionError(ModelError):
    """No complete answer arrived: no connection, a timeout, or a connection or stream that broke off."""


class ApprovalHandlerError(RunFailed):
    """The approval handler raised, or returned something that is not a decision. Nothing ran."""


class InputFilterFailed(RunFailed):
    """The input filter of a handoff raised, or did not return a list of messages. The model was not asked."""


class InstructionsError(RunFailed):
    """The instructions could not be made from the original input of the run."""


class MemoryFailed(RunFailed):
    """The function that counts tokens for a memory raised, or returned no whole number of 0 or more.

    The model was not asked.
    """


class OutputError(RunFailed):
    """The final answer of the model does not fit the output type of the agent."""


class NodeFailed(RunFailed):
    """A node, or a tool with `on_failure="stop"`, failed after all retries and fallbacks.

    If you resume the checkpoint, the body of the node or tool runs again from its beginning. `failures` has the reasons
    by name. The cause of this error is the exception that was raised.
    """

    def __init__(self, message: str, *, failures: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failures: dict[str, str] = dict(failures)


class StateError(RunFailed):
    """The state of a graph could not be changed or read. The state has not changed."""


class InvalidUpdate(StateError):
    """A value that was written to the state of a graph is not a valid update. The message quotes no value.

    `node` wrote the value (None: the caller of the graph). `channel` is the channel (None: the update as a whole).
    `path` is the place of the wrong value, such as `results[3].when`.
    """

    def __init__(
        self, message: str, *, node: str | None = None, channel: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(message)
        self.node = node
        self.channel = channel
        self.path = path


class ConflictingWrites(StateError):
    """Several nodes of one wave wrote to a channel that holds one value.

    `nodes` are the first two, in the order of the wave.
    """

    def __init__(self, message: str, *, channel: str, nodes: Sequence[str]) -> None:
        super().__init__(message)
        self.channel = channel
        self.nodes: tuple[str, ...] = tuple(nodes)


class ReducerFailed(StateError):
    """The reducer of a channel raised, or returned a value that is not valid for the channel.

    If the reducer raised, its exception is the cause of this error.
    """

    def __init__(self, message: str, *, channel: str, reducer: str) -> None:
        super().__init__(message)
        self.channel = channel
        self.reducer = reducer


class StateIncomplete(StateError):
    """The state was read while required channels had no value. `channels` are the names of these channels."""

    def __init__(self, message: str, *, channels: Sequence[str]) -> None:
        super().__init__(message)
        self.channels: tuple[str, ...] = tuple(channels)


class LimitExceeded(RunFailed):
    """A limit of the run was reached, counted over all its resumes.

    `limit` is the name of the limit, `maximum` is its value, and `used` is the amount used (None: not known). `path` is
    the path of the run with this limit; it is empty for the outermost run.
    """

    def __init__(self, message: str, *, limit: str, maximum: float, used: float | None = None, path: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.limit = limit
        self.maximum = maximum
        self.used = used


class IllegalOutcome(PhronomyError):
    """An outcome is not legal in the present state. The state has not changed.

    This is a bug in phronomy or in a store.
    """

    def __init__(self, phase: str, outcome: str, detail: str = "") -> None:
        super().__init__(f"outcome {outcome} is not legal while the run is {phase}" + (f": {detail}" if detail else ""))
        self.phase = phase
        self.outcome = outcome
