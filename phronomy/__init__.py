"""Agents that stop for a human, and resume exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phronomy._recovery import Recovery
from phronomy.agent import Agent
from phronomy.announcements import Announcements
from phronomy.approvals import Approve, Decision, Defer, PendingApproval, Principal, Reject, Respond, Skip
from phronomy.audit import AuditRecord
from phronomy.breakpoints import Breakpoint, BreakpointContext, BreakpointHit, Breakpoints, Hold, match_breakpoint
from phronomy.checkpoint import Checkpoint
from phronomy.diff import CheckpointDiff, diff
from phronomy.drift import Drift
from phronomy.errors import (
    AgentChanged,
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
    MCPError,
    MemoryFailed,
    ModelConnectionError,
    ModelError,
    NodeFailed,
    NotAuthorized,
    NothingDecided,
    OutputError,
    PhronomyError,
    RateLimitError,
    ReducerFailed,
    RegistrationError,
    RunBusy,
    RunFailed,
    StateError,
    StateIncomplete,
    StillNeeded,
    StoreError,
    ThreadBusy,
    ToolDefinitionError,
    UnknownPending,
    UnknownType,
    WaitTimeout,
)
from phronomy.guardrails import (
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
from phronomy.handoffs import Handoff, without_tool_calls
from phronomy.hooks import Hooks
from phronomy.images import Image
from phronomy.instructions import InstructionsContext, PromptTemplate
from phronomy.interrupts import interrupt
from phronomy.limits import Limits
from phronomy.memory import Memory
from phronomy.messages import Message, ToolCall, Usage
from phronomy.models.base import Model, ModelReply, ModelRequest, ModelSettings, StreamingModel
from phronomy.policy import DryRun
from phronomy.result import Result
from phronomy.stores import MemoryStore, Store, Waiting, open_store
from phronomy.stream import AsyncStream, Stream
from phronomy.tools import OutcomeUnknown, Tool, ToolContext, tool
from phronomy.validation import Problem, create_checkpoint_id, validate_checkpoint

if TYPE_CHECKING:
    from phronomy.debugger import Debugger
    from phronomy.events import Event
    from phronomy.external import ExternalTool
    from phronomy.graph.graph import Graph, StateGraph
    from phronomy.graph.registry import register_type
    from phronomy.graph.signals import END, START, Abort, Continue, Pause, Replan, Send
    from phronomy.mcp import MCPServer
    from phronomy.models.chat_completions import ChatCompletionsModel
    from phronomy.models.litellm import LiteLLMModel
    from phronomy.models.responses import ResponsesModel
    from phronomy.stores.postgres import PostgresStore
    from phronomy.stores.redis import RedisStore
    from phronomy.stores.sqlite import SQLiteStore
    from phronomy.teams._local import HandoffState, LocalState, MemberState
    from phronomy.teams._pattern import PatternState
    from phronomy.teams.orchestrator import Orchestrator, TeamState
    from phronomy.teams.patterns import (
        DagNode,
        Pattern,
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
    from phronomy.telemetry import Telemetry
    from phronomy.wire import to_wire

__version__ = "0.1.0"

# What is heavy and not always needed loads on first use.
_LAZY = {
    "Abort": "phronomy.graph.signals",
    "ChatCompletionsModel": "phronomy.models.chat_completions",
    "Continue": "phronomy.graph.signals",
    "DagNode": "phronomy.teams.patterns",
    "Debugger": "phronomy.debugger",
    "END": "phronomy.graph.signals",
    "Event": "phronomy.events",
    "ExternalTool": "phronomy.external",
    "Graph": "phronomy.graph.graph",
    "HandoffState": "phronomy.teams._local",
    "LiteLLMModel": "phronomy.models.litellm",
    "LocalState": "phronomy.teams._local",
    "MCPServer": "phronomy.mcp",
    "MemberState": "phronomy.teams._local",
    "Orchestrator": "phronomy.teams.orchestrator",
    "Pattern": "phronomy.teams.patterns",
    "PatternProgress": "phronomy.teams.patterns",
    "PatternState": "phronomy.teams._pattern",
    "Pause": "phronomy.graph.signals",
    "PostgresStore": "phronomy.stores.postgres",
    "RedisStore": "phronomy.stores.redis",
    "Replan": "phronomy.graph.signals",
    "ResponsesModel": "phronomy.models.responses",
    "SQLiteStore": "phronomy.stores.sqlite",
    "START": "phronomy.graph.signals",
    "Send": "phronomy.graph.signals",
    "StateGraph": "phronomy.graph.graph",
    "Step": "phronomy.teams.patterns",
    "TeamState": "phronomy.teams.orchestrator",
    "Telemetry": "phronomy.telemetry",
    "dag": "phronomy.teams.patterns",
    "parallel": "phronomy.teams.patterns",
    "race": "phronomy.teams.patterns",
    "reflect": "phronomy.teams.patterns",
    "register_type": "phronomy.graph.registry",
    "round_robin": "phronomy.teams.patterns",
    "sequential": "phronomy.teams.patterns",
    "supervisor": "phronomy.teams.patterns",
    "to_wire": "phronomy.wire",
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> Any:
        from phronomy import _lazy  # noqa: PLC0415  # what is imported above is public

        return _lazy.load(__name__, name, _LAZY)


__all__ = [
    "END",
    "START",
    "Abort",
    "Agent",
    "AgentChanged",
    "AllowedTools",
    "Announcements",
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
    "Event",
    "ExternalTool",
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
    "InvalidDecision",
    "InvalidField",
    "InvalidUpdate",
    "JsonSchemaOutput",
    "LeaseLost",
    "LimitExceeded",
    "Limits",
    "LiteLLMModel",
    "LocalState",
    "MCPError",
    "MCPServer",
    "MaxLength",
    "MemberState",
    "Memory",
    "MemoryFailed",
    "MemoryStore",
    "Message",
    "Model",
    "ModelConnectionError",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NodeFailed",
    "NotAuthorized",
    "NothingDecided",
    "Orchestrator",
    "OutcomeUnknown",
    "OutputError",
    "Pass",
    "Pattern",
    "PatternProgress",
    "PatternState",
    "Pause",
    "PendingApproval",
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
    "Replan",
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
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "Transform",
    "UnknownPending",
    "UnknownType",
    "Usage",
    "WaitTimeout",
    "Waiting",
    "create_checkpoint_id",
    "dag",
    "diff",
    "guardrail",
    "interrupt",
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
