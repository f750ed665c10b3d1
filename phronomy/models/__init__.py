"""Models: who answers the conversation. Nothing here loads a provider's library before the first call."""

from __future__ import annotations

from phronomy.models.base import (
    Delta,
    Model,
    ModelReply,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    StreamingModel,
    TextDelta,
    ToolCallDelta,
    as_model,
)
from phronomy.models.chat_completions import ChatCompletionsModel
from phronomy.models.litellm import LiteLLMModel

__all__ = [
    "ChatCompletionsModel",
    "Delta",
    "LiteLLMModel",
    "Model",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "ReasoningDelta",
    "StreamingModel",
    "TextDelta",
    "ToolCallDelta",
    "as_model",
]
