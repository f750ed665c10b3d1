"""The checkpoint: a run, stopped at a boundary, as an immutable record that can be resumed anywhere.

Schema history, one sentence a version; an example of each is frozen under `tests/corpus/`:

1. The first: messages, calls of the open turn, decisions, journal.
"""

import json
from collections.abc import Mapping
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
from phronomy.foundation.json_text import MAX_BYTES, JsonError, JsonText, canonical, parse
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
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.messages import NO_USAGE, Message, Settlement, Usage
from phronomy.records.record import EMPTY, NULL, Json, JsonObject, Record, Text, Time, digest_of, explain, later

VERSION: Final = 1
"""The schema version that this release writes."""

DERIVED: Final = ("status", "pending", "digest")
"""Keys of a dump that are computed from the rest, and must agree with it when they are read back."""


class AgentRef(Record):
    """The agent that made the checkpoint: its name, and what drift is judged by."""

    name: Text
    fingerprint: JsonObject = Field(default=EMPTY, repr=False)

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools, or nodes, that it had, and of those of agents that it could hand over to.

        A bearer's text may note anything; what is no such note counts as none.
        """
        facts = self.fingerprint
        team = facts.get("team")
        noted = [facts, *(team.values() if isinstance(team, dict) else ())]
        found = [each.get("tools") for each in noted if isinstance(each, dict)]
        return frozenset(name for each in found if isinstance(each, dict) for name in each)


class Fields(Record):
    """The fields of a checkpoint. They are apart so that a text can be read strictly, without the derived keys."""

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
    unguarded: Unguarded | None = None
    refusal: Refusal | None = None
    ended: End | None = None
    output: Json = Field(default=NULL, repr=False)
    usage: Usage = NO_USAGE
    elapsed: int = 0
    salt: str = ""
    state: Json = Field(default=NULL, repr=False)
    journal: tuple[AnyOutcome, ...] = Field(default=(), repr=False)
    nested: "tuple[Checkpoint, ...]" = Field(default=(), repr=False)


class Checkpoint(Fields):
    """A run stopped at a boundary: everything that is needed to go on, and nothing that can change.

    `messages` are all messages of the conversation, `calls` the calls of the open turn, `decisions` those taken in this run,
    `handoffs` how the conversation went from agent to agent,
    `turn`, `called` and `refused` count model calls, the calls they asked for, and answers that were not of the output type;
    `blocked` the digests of calls rejected for good; `added` is what was said with decisions and waits for the calls of the turn.
    `new_input` is the input where a guardrail or a human changed it, `unguarded` what guardrails have yet to let through, `refusal`
    what they did not; `passed` are the breakpoints behind it.
    `journal` holds what has happened since the boundary, up to when this copy was read: another copy of the same id may hold more,
    and has another digest then; `sealed` is alike in all of them. `elapsed` is the active time of the run in
    milliseconds; waiting for a human is not in it. `nested` are the stopped runs inside this one. `state` belongs to the kind of
    run: None for an agent.

    `model_dump_json()` is the form to keep anywhere; `Checkpoint.model_validate_json(text)` reads it back, and raises
    `CheckpointError` for whatever is not exactly such a text. The dump holds the whole conversation in the clear.
    """

    wire_adds: ClassVar[tuple[str, ...]] = ("status", "pending")
    wire_omits: ClassVar[tuple[str, ...]] = ("version", "salt")  # idempotency keys are made with the salt

    @property
    def status(self) -> Status:
        """Where the run stands: an end, `suspended` while approvals are pending, else `running`."""
        return self.ended or ("suspended" if self.pending else "running")

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The approvals that wait for a human, those of nested runs included, in the order of the calls."""
        found: list[PendingApproval] = []
        for call in self.calls:
            if call.status == "pending":
                found.append(pending_of(call, self.path, self.speaker))
            elif call.status != "settled":
                found.extend(call.waiting)
        return tuple(found)

    @property
    def speaker(self) -> str:
        """The name of the agent, or graph, that has the conversation: that of the run, unless it was handed over."""
        return self.handoffs[-1].target if self.handoffs else self.agent.name

    def sealed(self) -> Self:
        """The checkpoint without what has happened since, and without the runs inside: what its id names, in every copy of it.

        It is for keeping and comparing; a run whose calls have begun, or that waits inside another, goes on from a whole copy.
        """
        return self.evolve(journal=(), nested=())

    def has_tool(self, name: str) -> bool:
        """Whether a call of this name is of a tool: one that was judged, or that the agent had. Else the model made the name up."""
        judged = any(call.tool is not None and name in (call.name, call.tool.name) for call in self.calls)
        return judged or self.kind != "agent" or name in self.agent.tools

    @property
    def input(self) -> Any:
        """What the run is asked: the original input, unless a guardrail or a human changed it."""
        return self.original_input if self.__dict__["new_input"] is None else self.new_input

    @property
    def digest(self) -> str:
        """The SHA-256 over everything in the checkpoint. It shows damage and careless edits; it is no signature."""
        digest: str = self.model_dump(mode="json")["digest"]
        return digest

    @property
    def pending_tool_name(self) -> str | None:
        """The name of the first tool that waits, None if none does."""
        return self.pending[0].tool_name if self.pending else None

    @property
    def pending_tool_args(self) -> dict[str, Any] | None:
        """The validated arguments of the first tool that waits, None if none does."""
        return self.pending[0].args if self.pending else None

    @property
    def pending_tool_call_id(self) -> str | None:
        """The provider's id of the first call that waits, None if none does."""
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
        """The checkpoint as a text to keep anywhere. Raises `CheckpointError` for one that is too long to be read back."""
        text = super().model_dump_json(**options)
        if len(text) > MAX_BYTES:
            raise CheckpointError(
                f"checkpoint {self.id} makes a text of {len(text)} characters, and none of more than {MAX_BYTES} is read back:"
                " resume the run by this id, where it is or in a store, or set PHRONOMY_MAX_JSON_BYTES wherever it is written or read"
            )
        return text

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """The checkpoint in this text, read strictly. Raises `CheckpointError` for anything else."""
        try:
            record: Self = cls._from_dump(parse(json_data))
        except (ValidationError, JsonError) as error:
            raise CheckpointError(explain(error)) from None
        return record

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """The checkpoint in this mapping. Raises `CheckpointError` for anything else."""
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


def encode(checkpoint: Checkpoint) -> str:
    """The text of a checkpoint, to keep anywhere."""
    return checkpoint.model_dump_json()


def decode(text: str | bytes | bytearray) -> Checkpoint:
    """The checkpoint in a text. Raises `CheckpointError` for anything else."""
    return Checkpoint.model_validate_json(text)


_REQUEST: Final[PendingApproval] = cast("Any", PendingApproval).model_construct(
    **dict.fromkeys(PendingApproval.model_fields)
)


def pending_of(call: Call, path: str, agent: str | None = None) -> PendingApproval:
    """The request for approval that a pending call stands for."""
    assert call.pending_id and call.tool and call.digest and call.requested_at
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
    )


def asked_next(call: Call, decision: Decision) -> Judgement | None:
    """The request for the approval that a call needs next, which is let go on at a breakpoint as it is; None if it needs none.

    Handlers are asked, as if it had not stopped; what none of them answers is for a human, who has the whole time.
    """
    if decision.asks is None:
        return None
    given = call.expires_at - call.requested_at if call.expires_at and call.requested_at else None
    lapses = later(decision.at, seconds=given.total_seconds()) if given is not None else None
    asked: dict[str, Any] = {"pending_id": decision.asks, "requested_at": decision.at, "expires_at": lapses}
    asked |= {"on_expiry": call.on_expiry, "reason": call.reason, "asked_by": call.asked_by}
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
