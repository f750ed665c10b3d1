"""Agents that stop for a human, and resume exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phronomy.agents.agent import Agent
from phronomy.agents.handoffs import Handoff, without_tool_calls
from phronomy.approvals.policy import DryRun
from phronomy.conversation.instructions import InstructionsContext, PromptTemplate
from phronomy.conversation.memory import Memory
from phronomy.errors import (
    AgentChanged,
    AlreadyVoted,
    ApprovalExpired,
    ApprovalHandlerError,
    AsyncRequired,
    AuthenticationError,
    BreakpointTimeout,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    CheckpointUntrusted,
    ConfigurationError,
    ConflictingWrites,
    ContentFilterError,
    ContextLengthError,
    DecisionError,
    GrantRefused,
    GraphError,
    GuardrailFailed,
    GuardrailRefused,
    IllegalOutcome,
    InputFilterFailed,
    InstructionsError,
    InvalidDecision,
    InvalidField,
    InvalidUpdate,
    LeaseLost,
    LimitExceeded,
    LongTermStoreError,
    MCPError,
    MemoryFailed,
    ModelConnectionError,
    ModelError,
    NodeFailed,
    NotAnApprover,
    NotAuthorized,
    NothingDecided,
    OutputError,
    PersonExists,
    PhronomyError,
    RateLimitError,
    ReducerFailed,
    RegistrationError,
    ReplyIncomplete,
    ReplyUnsupported,
    RequestExpired,
    RunBusy,
    RunFailed,
    StateError,
    StateIncomplete,
    StillNeeded,
    StoreError,
    ThreadBusy,
    TokenError,
    TokenExpired,
    TokenInvalid,
    TokenUsed,
    ToolCallCancelled,
    ToolCallError,
    ToolCallExpired,
    ToolCallFailed,
    ToolCallRejected,
    ToolDefinitionError,
    TooManyMessages,
    UnknownPending,
    UnknownPerson,
    UnknownType,
    UnreadableRow,
    WaitTimeout,
)
from phronomy.foundation.version import VERSION
from phronomy.guardrails.guardrail import (
    AllowedTools,
    Guardrail,
    GuardrailContext,
    JsonSchemaOutput,
    MaxLength,
    Pass,
    RedactPatterns,
    Refuse,
    RefusePatterns,
    Transform,
    guardrail,
)
from phronomy.models.base import Model, ModelReply, ModelRequest, StreamingModel
from phronomy.models.settings import ModelSettings
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Approve, Decision, Defer, PendingApproval, Reject, Respond, Skip
from phronomy.records.grants import Grant
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.records.principals import Principal
from phronomy.records.result import Result
from phronomy.records.trigger_errors import NotASender, NotWaiting, TooManyEvents, TriggerFired, TriggerSuperseded
from phronomy.records.validation import Problem, create_checkpoint_id, validate_checkpoint
from phronomy.rules.limits import Limits
from phronomy.runs.finding.drift import Drift
from phronomy.runs.recovery import Recovery
from phronomy.runs.stream import AsyncStream, Stream
from phronomy.stops.breakpoints import Breakpoint, BreakpointContext, BreakpointHit, Breakpoints, Hold, match_breakpoint
from phronomy.stops.interrupts import Interruption, interrupt, interruption
from phronomy.stores import MemoryStore, Store, Waiting, open_store
from phronomy.tools.approval import Approval
from phronomy.tools.approvers import Escalate
from phronomy.tools.context import OutcomeUnknown, ToolContext
from phronomy.tools.images import Image
from phronomy.tools.tool import Tool, tool

if TYPE_CHECKING:
    from phronomy.debugger.debugger import Debugger
    from phronomy.graph.flow.graph import Graph, StateGraph
    from phronomy.graph.signals import END, START, Abort, Continue, Pause, Replan, Send
    from phronomy.graph.state.registry import register_type
    from phronomy.mcp.server import MCPServer
    from phronomy.models.chat_completions import ChatCompletionsModel
    from phronomy.models.litellm import LiteLLMModel
    from phronomy.models.messages import MessagesModel
    from phronomy.models.responses import ResponsesModel
    from phronomy.observability.events import Event
    from phronomy.observability.telemetry import Telemetry
    from phronomy.records.diff import CheckpointDiff, diff
    from phronomy.runs.wire import to_wire
    from phronomy.stores.key_value.store import KeyValueStore
    from phronomy.stores.redis.store import RedisStore
    from phronomy.stores.sql.postgres import PostgresStore
    from phronomy.stores.sql.sqlite import SQLiteStore
    from phronomy.teams.debate import debate
    from phronomy.teams.goal import GoalNode, Relaxation, goal
    from phronomy.teams.labels import LabelContext, Labels
    from phronomy.teams.local import HandoffState, LocalState, MemberState
    from phronomy.teams.orchestrator import Orchestrator, TeamState
    from phronomy.teams.pattern import PatternState
    from phronomy.teams.patterns import (
        DagNode,
        Pattern,
        PatternDiff,
        PatternProgress,
        Step,
        dag,
        parallel,
        race,
        reflect,
        round_robin,
        sequential,
        supervisor,
    )
    from phronomy.tools.external import ExternalTool


__version__ = VERSION

# What is heavy and not always needed loads on first use.
_LAZY = {
    "Abort": "phronomy.graph.signals",
    "ChatCompletionsModel": "phronomy.models.chat_completions",
    "CheckpointDiff": "phronomy.records.diff",
    "Continue": "phronomy.graph.signals",
    "DagNode": "phronomy.teams.patterns",
    "Debugger": "phronomy.debugger.debugger",
    "END": "phronomy.graph.signals",
    "Event": "phronomy.observability.events",
    "ExternalTool": "phronomy.tools.external",
    "GoalNode": "phronomy.teams.goal",
    "Graph": "phronomy.graph.flow.graph",
    "HandoffState": "phronomy.teams.local",
    "KeyValueStore": "phronomy.stores.key_value.store",
    "LabelContext": "phronomy.teams.labels",
    "Labels": "phronomy.teams.labels",
    "LiteLLMModel": "phronomy.models.litellm",
    "LocalState": "phronomy.teams.local",
    "MCPServer": "phronomy.mcp.server",
    "MessagesModel": "phronomy.models.messages",
    "MemberState": "phronomy.teams.local",
    "Orchestrator": "phronomy.teams.orchestrator",
    "Pattern": "phronomy.teams.patterns",
    "PatternDiff": "phronomy.teams.patterns",
    "PatternProgress": "phronomy.teams.patterns",
    "PatternState": "phronomy.teams.pattern",
    "Pause": "phronomy.graph.signals",
    "PostgresStore": "phronomy.stores.sql.postgres",
    "RedisStore": "phronomy.stores.redis.store",
    "Relaxation": "phronomy.teams.goal",
    "Replan": "phronomy.graph.signals",
    "ResponsesModel": "phronomy.models.responses",
    "SQLiteStore": "phronomy.stores.sql.sqlite",
    "START": "phronomy.graph.signals",
    "Send": "phronomy.graph.signals",
    "StateGraph": "phronomy.graph.flow.graph",
    "Step": "phronomy.teams.patterns",
    "TeamState": "phronomy.teams.orchestrator",
    "Telemetry": "phronomy.observability.telemetry",
    "dag": "phronomy.teams.patterns",
    "debate": "phronomy.teams.debate",
    "diff": "phronomy.records.diff",
    "goal": "phronomy.teams.goal",
    "parallel": "phronomy.teams.patterns",
    "race": "phronomy.teams.patterns",
    "reflect": "phronomy.teams.patterns",
    "register_type": "phronomy.graph.state.registry",
    "round_robin": "phronomy.teams.patterns",
    "sequential": "phronomy.teams.patterns",
    "supervisor": "phronomy.teams.patterns",
    "to_wire": "phronomy.runs.wire",
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> Any:
        from phronomy.foundation import lazy_names  # noqa: PLC0415  # what is imported above is public

        return lazy_names.load(__name__, name, _LAZY)


__all__ = [
    "END",
    "START",
    "Abort",
    "Agent",
    "AgentChanged",
    "AllowedTools",
    "AlreadyVoted",
    "Announcements",
    "Approval",
    "ApprovalExpired",
    "ApprovalHandlerError",
    "Approve",
    "AsyncRequired",
    "AsyncStream",
    "AuditRecord",
    "AuthenticationError",
    "Breakpoint",
    "BreakpointContext",
    "BreakpointHit",
    "BreakpointTimeout",
    "Breakpoints",
    "ChatCompletionsModel",
    "Checkpoint",
    "CheckpointAlreadyResumed",
    "CheckpointDiff",
    "CheckpointEdited",
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointUntrusted",
    "ConfigurationError",
    "ConflictingWrites",
    "ContentFilterError",
    "ContextLengthError",
    "Continue",
    "DagNode",
    "Debugger",
    "Decision",
    "DecisionError",
    "Defer",
    "Drift",
    "DryRun",
    "Escalate",
    "Event",
    "ExternalTool",
    "GoalNode",
    "Grant",
    "GrantRefused",
    "Graph",
    "GraphError",
    "Guardrail",
    "GuardrailContext",
    "GuardrailFailed",
    "GuardrailRefused",
    "Handoff",
    "HandoffState",
    "Hold",
    "Hooks",
    "IllegalOutcome",
    "Image",
    "InputFilterFailed",
    "InstructionsContext",
    "InstructionsError",
    "Interruption",
    "InvalidDecision",
    "InvalidField",
    "InvalidUpdate",
    "JsonSchemaOutput",
    "KeyValueStore",
    "LabelContext",
    "Labels",
    "LeaseLost",
    "LimitExceeded",
    "Limits",
    "LiteLLMModel",
    "LocalState",
    "LongTermStoreError",
    "MCPError",
    "MCPServer",
    "MaxLength",
    "MemberState",
    "Memory",
    "MemoryFailed",
    "MemoryStore",
    "Message",
    "MessagesModel",
    "Model",
    "ModelConnectionError",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NodeFailed",
    "NotASender",
    "NotAnApprover",
    "NotAuthorized",
    "NotWaiting",
    "NothingDecided",
    "Orchestrator",
    "OutcomeUnknown",
    "OutputError",
    "Pass",
    "Pattern",
    "PatternDiff",
    "PatternProgress",
    "PatternState",
    "Pause",
    "PendingApproval",
    "PersonExists",
    "PhronomyError",
    "PostgresStore",
    "Principal",
    "Problem",
    "PromptTemplate",
    "RateLimitError",
    "Recovery",
    "RedactPatterns",
    "RedisStore",
    "ReducerFailed",
    "Refuse",
    "RefusePatterns",
    "RegistrationError",
    "Reject",
    "Relaxation",
    "Replan",
    "ReplyIncomplete",
    "ReplyUnsupported",
    "RequestExpired",
    "Respond",
    "ResponsesModel",
    "Result",
    "RunBusy",
    "RunFailed",
    "SQLiteStore",
    "Send",
    "Skip",
    "StateError",
    "StateGraph",
    "StateIncomplete",
    "Step",
    "StillNeeded",
    "Store",
    "StoreError",
    "Stream",
    "StreamingModel",
    "TeamState",
    "Telemetry",
    "ThreadBusy",
    "TokenError",
    "TokenExpired",
    "TokenInvalid",
    "TokenUsed",
    "TooManyEvents",
    "TooManyMessages",
    "Tool",
    "ToolCall",
    "ToolCallCancelled",
    "ToolCallError",
    "ToolCallExpired",
    "ToolCallFailed",
    "ToolCallRejected",
    "ToolContext",
    "ToolDefinitionError",
    "Transform",
    "TriggerFired",
    "TriggerSuperseded",
    "UnknownPending",
    "UnknownPerson",
    "UnknownType",
    "UnreadableRow",
    "Usage",
    "WaitTimeout",
    "Waiting",
    "create_checkpoint_id",
    "dag",
    "debate",
    "diff",
    "goal",
    "guardrail",
    "interrupt",
    "interruption",
    "match_breakpoint",
    "open_store",
    "parallel",
    "race",
    "reflect",
    "register_type",
    "round_robin",
    "sequential",
    "supervisor",
    "to_wire",
    "tool",
    "validate_checkpoint",
    "without_tool_calls",
]
