"""The checkpoint: a run, stopped at a boundary, as an immutable record that can be resumed anywhere.

Schema history, one sentence a version; an example of each is frozen under `tests/corpus/`:

1. The first: messages, calls of the open turn, decisions, journal.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from operator import not_
from typing import Any, ClassVar, Final, Literal, Self, cast

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import to_json

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import MAX_BYTES, JsonDict, JsonError, JsonText, canonical, list_of, object_of, parse
from phronomy.records.calls import (
    Added,
    AnyOutcome,
    Call,
    CallResult,
    End,
    Ending,
    HandedOver,
    Judgement,
    Refusal,
    Status,
    Unguarded,
)
from phronomy.records.decisions import NO_BRIEF, Decision, PendingApproval
from phronomy.records.messages import NO_USAGE, Message, Settlement, Usage
from phronomy.records.principals import KnownAs, Principal, Recorded
from phronomy.records.record import EMPTY, NULL, Json, JsonObject, Record, Text, Time, digest_of, explain, later
from phronomy.records.scopes import Scope
from phronomy.records.triggers import KeptEvent

VERSION: Final = 1
"""The schema version that this release writes."""

DERIVED: Final = ("status", "pending", "digest")
"""Keys of a dump that are computed from the rest, and must agree with it when they are read back."""


class AgentRef(Record):
    """The agent that made a checkpoint: its name, and the facts with which drift is found."""

    name: Text
    fingerprint: JsonObject = Field(default=EMPTY, repr=False)

    @property
    def tools(self) -> frozenset[str]:
        """The names of its tools or nodes, and of the tools of agents to which it could hand over.

        A checkpoint that a bearer brings can contain anything here; values of the wrong type are ignored.
        """
        facts = self.fingerprint
        team = facts.get("team")
        noted = [facts, *(team.values() if isinstance(team, dict) else ())]
        found = [each.get("tools") for each in noted if isinstance(each, dict)]
        return frozenset(name for each in found if isinstance(each, dict) for name in each)


class Fields(Record):
    """The fields of a checkpoint, without the derived keys, so that a text can be read strictly."""

    version: Literal[1] = VERSION
    id: str = Field(min_length=1)
    parent_id: str | None = None
    branch_id: str
    run_id: str
    thread_id: Text | None = None
    kind: str = "agent"
    path: str = ""
    step: int = 0
    created_at: Time
    label: Text | None = None
    metadata: JsonObject = Field(default=EMPTY, repr=False)
    agent: AgentRef
    original_input: Json = Field(repr=False)
    new_input: Json | None = Field(default=None, repr=False)
    messages: tuple[Message, ...] = Field(default=(), repr=False)
    turn: int = 0
    called: int = 0
    refused: int = 0
    calls: tuple[Call, ...] = ()
    decisions: tuple[Decision, ...] = ()
    handoffs: tuple[HandedOver, ...] = ()
    blocked: tuple[str, ...] = ()
    ending: Ending | None = None
    rejecting: bool = False
    skipping: bool = False
    passed: tuple[str, ...] = ()
    added: tuple[Added, ...] = Field(default=(), exclude_if=not_)  # the first texts of this version have no such key
    unread: tuple[Added, ...] = Field(default=(), exclude_if=not_)  # nor this one
    unguarded: Unguarded | None = None
    refusal: Refusal | None = None
    ended: End | None = None
    output: Json = Field(default=NULL, repr=False)
    usage: Usage = NO_USAGE
    elapsed: int = 0
    salt: str = ""
    state: Json = Field(default=NULL, repr=False)
    requester: Recorded | None = Field(default=None, exclude_if=not_)  # nor this one
    requesters: tuple[Text, ...] = Field(default=(), exclude_if=not_)  # nor this
    known: tuple[KnownAs, ...] = Field(default=(), exclude_if=not_)  # nor this
    scopes: tuple[Scope, ...] = Field(default=(), exclude_if=not_)  # nor this
    events: tuple[KeptEvent, ...] = Field(default=(), exclude_if=not_)  # nor this
    journal: tuple[AnyOutcome, ...] = Field(default=(), repr=False)
    nested: "tuple[Checkpoint, ...]" = Field(default=(), repr=False)


class Checkpoint(Fields):
    """A run at a boundary: an immutable record with everything that is needed to resume the run.

    Messages and calls: `messages` are all messages of the conversation. `calls` are the calls of the open turn.
    `decisions` are the decisions of this run, and `handoffs` its handoffs. `added` are messages that were sent, by
    themselves or with decisions, and that the model reads after the open calls; `unread` are those which are in the conversation since
    the last reply. `blocked` are the digests of calls, and the
    keys of tools, that are rejected for the rest of the run. `passed` are the breakpoints that the run has passed.

    Input and guardrails: `new_input` is the input after a guardrail or a human changed it. `unguarded` is the part that
    guardrails have not checked yet. `refusal` is the refusal that ended the run.

    Numbers: `turn` counts model calls, `called` the calls that they asked for, and `refused` the answers that did not
    fit the output type. `elapsed` is the active time of the run in milliseconds, without the time of humans.

    `journal` has the outcomes since the boundary, up to the time when this copy was read. So another copy with the same
    id can have a longer journal and another digest; `sealed` returns the same for all copies. `nested` are the nested
    runs that have stopped. `state` is the state of a graph; for an agent it is None. `requester` is who asked for the
    run, `requesters` are the ids of the others who have written in its conversation, with an empty one for somebody of whom nobody
    knows. `known` says which person had an alias when somebody wrote under it: a pair for each alias. `scopes` are those that the
    run has: a tool that needs another one is not there for it. `events` are events that arrived before the run waited for them.

    `model_dump_json()` makes a text that you can keep anywhere, and `Checkpoint.model_validate_json(text)` reads it
    back. The text contains the whole conversation, unencrypted. Reading any other text raises `CheckpointError`.
    """

    wire_adds: ClassVar[tuple[str, ...]] = ("status", "pending")
    wire_omits: ClassVar[tuple[str, ...]] = ("version", "salt")  # idempotency keys are made with the salt

    # Beside the fields: no dump and no comparison has it, and no copy that is changed.
    __slots__ = ("_requests",)

    @property
    def status(self) -> Status:
        """The status of the run: an end, `suspended` if requests are pending, else `running`."""
        if self.ended is not None:
            return self.ended
        waits = any(call.status == "pending" or (call.status != "settled" and call.waiting) for call in self.calls)
        return "suspended" if waits else "running"

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The requests that wait for a human, in the order of the calls, including those of nested runs."""
        if not self.calls:
            return ()
        try:
            return _requests_of(self)
        except AttributeError:
            requests = tuple(self._waiting())
            _keep_requests(self, requests)
            return requests

    def _waiting(self) -> Iterator[PendingApproval]:
        for call in self.calls:
            if call.status == "pending":
                yield pending_of(call, self.path, self.speaker, self.requester)
            if call.status != "settled":
                yield from call.waiting

    @property
    def speaker(self) -> str:
        """The name of the agent or graph that has the conversation: after a handoff, the target of the last one."""
        return self.handoffs[-1].target if self.handoffs else self.agent.name

    def sealed(self) -> Self:
        """The checkpoint without its journal and its nested runs. It is the same for every copy with this id.

        Use it to keep and to compare checkpoints. To resume a run whose calls have started, or that has nested runs,
        use the whole checkpoint.
        """
        return self.evolve(journal=(), nested=())

    def has_tool(self, name: str) -> bool:
        """Whether the agent had a tool with this name, or a call of this name was checked.

        If not, the model invented the name.
        """
        judged = any(call.tool is not None and name in (call.name, call.tool.name) for call in self.calls)
        return judged or self.kind != "agent" or name in self.agent.tools

    @property
    def input(self) -> Any:
        """The input of the run: the original input, unless a guardrail or a human changed it."""
        return self.original_input if self.__dict__["new_input"] is None else self.new_input

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole checkpoint. It reveals damage and careless edits, but it is not a signature."""
        digest: str = self.model_dump(mode="json")["digest"]
        return digest

    @property
    def pending_tool_name(self) -> str | None:
        """The name of the tool in the first pending request. None if nothing is pending."""
        return self.pending[0].tool_name if self.pending else None

    @property
    def pending_tool_args(self) -> dict[str, Any] | None:
        """The validated arguments in the first pending request. None if nothing is pending."""
        return self.pending[0].args if self.pending else None

    @property
    def pending_tool_call_id(self) -> str | None:
        """The provider's id of the call in the first pending request. None if nothing is pending."""
        return self.pending[0].call_id if self.pending else None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if info.include is None and info.exclude is None:
            digest = _digest(data) if info.mode == "json" else self.digest
            pending = [item.model_dump(mode=info.mode) for item in self.pending]
            data |= {"status": self.status, "pending": pending, "digest": digest}
        return data

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if isinstance(data, dict) and (info.mode == "json" or "digest" in data):
            try:
                record: Self = cls._from_dump(json.loads(to_json(data)))
            except (ValueError, CheckpointError) as error:
                raise ValueError(explain(error)) from None
            return record
        return handler(data)

    def model_dump_json(self, **options: Any) -> str:
        """Turn the checkpoint into a text that you can keep anywhere.

        Raises `CheckpointError` if the text would be too long to be read back.
        """
        text = super().model_dump_json(**options)
        if len(text) > MAX_BYTES:
            raise CheckpointError(
                f"checkpoint {self.id} makes a text of {len(text)} characters, and none of more than {MAX_BYTES} is read back:"
                " resume the run by this id, where it is or in a store, or set PHRONOMY_MAX_JSON_BYTES wherever it is written or read"
            )
        return text

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """Read a checkpoint from its text, strictly. Raises `CheckpointError` for anything else."""
        try:
            record: Self = cls._from_dump(parse(json_data))
        except (ValidationError, JsonError) as error:
            raise CheckpointError(explain(error)) from None
        return record

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """Read a checkpoint from a mapping. Raises `CheckpointError` for anything else."""
        try:
            return super().model_validate(obj)
        except (ValidationError, JsonError) as error:
            raise CheckpointError(explain(error)) from None

    @classmethod
    def _from_dump(cls, data: Any) -> Any:
        _check_version(data)
        text = canonical({key: value for key, value in data.items() if key not in DERIVED})
        record = cls.model_construct(**Fields.model_validate_json(text).__dict__)
        again = record.model_dump(mode="json")
        wrong = [key for key in (*DERIVED, *again) if key not in data or _sorted(data[key]) != _sorted(again[key])]
        if wrong:
            raise CheckpointError(f"{wrong[0]!r} does not agree with the rest: the checkpoint was edited or damaged")
        return record


BLANK: Final[Checkpoint] = cast("Any", Checkpoint).model_construct(
    **{name: None for name, field in Fields.model_fields.items() if field.is_required()}
)
"""What valid fields are laid over. The names are all there, in the order of a dump, so that `evolve` finds those to replace."""


# They are asked for a dozen times while a run waits and is resumed, and follow from the record alone: made once.
_requests_of: Final[Callable[[Checkpoint], tuple[PendingApproval, ...]]] = vars(Checkpoint)["_requests"].__get__
_keep_requests: Final[Callable[[Checkpoint, tuple[PendingApproval, ...]], None]] = vars(Checkpoint)["_requests"].__set__


def encode(checkpoint: Checkpoint) -> str:
    """The text of a checkpoint, to keep anywhere."""
    return checkpoint.model_dump_json()


def decode(text: str | bytes | bytearray) -> Checkpoint:
    """The checkpoint in a text. Raises `CheckpointError` for anything else."""
    return Checkpoint.model_validate_json(text)


_REQUEST: Final[PendingApproval] = cast("Any", PendingApproval).model_construct(
    **dict.fromkeys(PendingApproval.model_fields)
)


def waits_under(checkpoint: Checkpoint, pending_id: str | None) -> PendingApproval | None:
    """The request that waits under this pending id; None if none does. The other requests are not made for it."""
    for call in checkpoint.calls:
        if call.status == "pending" and call.pending_id == pending_id:
            return pending_of(call, checkpoint.path, checkpoint.speaker, checkpoint.requester)
        if (
            call.waiting
            and call.status != "settled"
            and (found := next((each for each in call.waiting if each.id == pending_id), None))
        ):
            return found
    return None


def pending_of(call: Call, path: str, agent: str | None = None, requester: Principal | None = None) -> PendingApproval:
    """The request for approval that a pending call stands for."""
    assert call.pending_id and call.tool and call.digest and call.requested_at
    brief = call.brief or NO_BRIEF
    return _REQUEST.evolve(  # every value is that of a valid call
        id=call.pending_id,
        call_id=call.call_id,
        tool=call.tool,
        args=call.__dict__["args"],
        digest=call.digest,
        path=path,
        agent=agent,
        why=call.why or "approval",
        reason=call.reason,
        point=call.point,
        label=call.label,
        requested_at=call.requested_at,
        expires_at=call.expires_at,
        on_expiry=call.on_expiry,
        title=brief.title,
        context=brief.context,
        answers=brief.answers,
        conversation=brief.conversation,
        description_hash=brief.description_hash,
        returns_hash=brief.returns_hash,
        requester=requester,
        approvers=brief.approvers,
        votes=call.votes,
        policy=brief.policy,
        remind=brief.remind,
        reminded=call.reminded,
    )


def asked_next(call: Call, decision: Decision) -> Judgement | None:
    """The request for the approval that a call needs after a breakpoint that it passed unchanged.

    None if it needs none. Handlers are asked first. If none of them answers, a human is asked, and has the whole time
    to decide.
    """
    if decision.asks is None:
        return None
    given = call.expires_at - call.requested_at if call.expires_at and call.requested_at else None
    lapses = later(decision.at, seconds=given.total_seconds()) if given is not None else None
    asked: dict[str, Any] = {"pending_id": decision.asks, "requested_at": decision.at, "expires_at": lapses}
    asked |= {"on_expiry": call.on_expiry, "reason": call.reason, "asked_by": call.asked_by, "brief": call.brief}
    return Judgement(id=call.id, verdict="ask", **asked)


_RESULT: Final = Message.model_construct(role="tool", tool_call_id="")


def result_message(call_id: str, result: CallResult) -> Message:
    """The message that tells the model how its call ended."""
    return tool_message(call_id, content_of(result), result.kind)


def tool_message(call_id: str, content: JsonText, kind: Settlement) -> Message:
    """The tool message of this content."""
    return _RESULT.evolve(content=content, tool_call_id=call_id, settlement=kind)


def content_of(result: CallResult) -> JsonText:
    """The content of that message, as canonical text."""
    parts: JsonText | None = result.__dict__["parts"]
    return canonical(result.content) if parts is None else parts


def _digest(data: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in data.items() if key not in DERIVED}
    return digest_of(_sorted(kept))


def _sorted(data: Any) -> str:
    """The text of a value, the same in whatever order its keys stand: other tools may have rewritten the document."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _check_version(data: Any) -> None:
    if not isinstance(data, dict):
        raise CheckpointError("this is no checkpoint: a JSON object is needed")
    version = data.get("version")
    if type(version) is not int:
        raise CheckpointError("this is no checkpoint: it has no version")
    if version > VERSION:
        raise CheckpointError(
            f"the checkpoint is of a newer schema version, and this release reads up to {VERSION}: upgrade phronomy"
        )


_STAGES: Final = ("input", "output", "tool")
"""The places of guardrails, in the order in which the fingerprint of an agent has them."""


def begun_with(state: Checkpoint) -> JsonDict:
    """The names of the guardrails with which the run began for the present speaker, by stage.

    In a checkpoint that a bearer brings, they may be anything.
    """
    if '"guardrails"' not in state.agent.json_text("fingerprint"):
        return {}
    facts = object_of(state.agent.fingerprint)
    if state.handoffs and state.speaker != state.agent.name:
        facts = object_of(object_of(facts.get("team")).get(str(state.speaker)))
    return dict(zip(_STAGES, list_of(facts.get("guardrails")), strict=False))
