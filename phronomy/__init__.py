"""Agents that stop for a human, and resume exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phronomy.agent import Agent
from phronomy.approvals import Approve, Decision, Defer, PendingApproval, Principal, Reject, Respond
from phronomy.checkpoint import Checkpoint
from phronomy.drift import Drift
from phronomy.errors import (
    AgentChanged,
    ApprovalHandlerError,
    AsyncRequired,
    AuthenticationError,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    CheckpointUntrusted,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    DecisionError,
    IllegalOutcome,
    InstructionsError,
    InvalidDecision,
    LeaseLost,
    LimitExceeded,
    ModelConnectionError,
    ModelError,
    NotAuthorized,
    NothingDecided,
    OutputError,
    PhronomyError,
    RateLimitError,
    RunBusy,
    RunFailed,
    StoreError,
    ThreadBusy,
    ToolDefinitionError,
    UnknownPending,
)
from phronomy.events import Event
from phronomy.hooks import Hooks
from phronomy.instructions import InstructionsContext, PromptTemplate
from phronomy.limits import Limits
from phronomy.messages import Message, ToolCall, Usage
from phronomy.models.base import Model, ModelReply, ModelRequest, ModelSettings, StreamingModel
from phronomy.result import Result
from phronomy.stores import MemoryStore, Store, open_store
from phronomy.stream import AsyncStream, Stream
from phronomy.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from phronomy.models.chat_completions import ChatCompletionsModel
    from phronomy.models.litellm import LiteLLMModel
    from phronomy.stores.sqlite import SQLiteStore

__version__ = "0.1.0"

# What is heavy and not always needed loads on first use.
_LAZY = {
    "ChatCompletionsModel": "phronomy.models.chat_completions",
    "LiteLLMModel": "phronomy.models.litellm",
    "SQLiteStore": "phronomy.stores.sqlite",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'phronomy' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_LAZY[name]), name)


__all__ = [
    "Agent",
    "AgentChanged",
    "ApprovalHandlerError",
    "Approve",
    "AsyncRequired",
    "AsyncStream",
    "AuthenticationError",
    "ChatCompletionsModel",
    "Checkpoint",
    "CheckpointAlreadyResumed",
    "CheckpointEdited",
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointUntrusted",
    "ConfigurationError",
    "ContentFilterError",
    "ContextLengthError",
    "Decision",
    "DecisionError",
    "Defer",
    "Drift",
    "Event",
    "Hooks",
    "IllegalOutcome",
    "InstructionsContext",
    "InstructionsError",
    "InvalidDecision",
    "LeaseLost",
    "LimitExceeded",
    "Limits",
    "LiteLLMModel",
    "MemoryStore",
    "Message",
    "Model",
    "ModelConnectionError",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "NotAuthorized",
    "NothingDecided",
    "OutputError",
    "PendingApproval",
    "PhronomyError",
    "Principal",
    "PromptTemplate",
    "RateLimitError",
    "Reject",
    "Respond",
    "Result",
    "RunBusy",
    "RunFailed",
    "SQLiteStore",
    "Store",
    "StoreError",
    "Stream",
    "StreamingModel",
    "ThreadBusy",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "UnknownPending",
    "Usage",
    "open_store",
    "tool",
]
