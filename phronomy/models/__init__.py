"""Models: the objects that answer a conversation. No provider's library is loaded before the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phronomy.foundation import lazy_names
from phronomy.models.base import (
    Delta,
    Model,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    StreamingModel,
    TextDelta,
    ToolCallDelta,
)
from phronomy.models.by_name import as_model
from phronomy.models.settings import ModelSettings

if TYPE_CHECKING:
    from phronomy.models.chat_completions import ChatCompletionsModel
    from phronomy.models.litellm import LiteLLMModel
    from phronomy.models.messages import MessagesModel
    from phronomy.models.responses import ResponsesModel

__all__ = [
    "ChatCompletionsModel",
    "Delta",
    "LiteLLMModel",
    "MessagesModel",
    "Model",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "ReasoningDelta",
    "ResponsesModel",
    "StreamingModel",
    "TextDelta",
    "ToolCallDelta",
    "as_model",
]

# An agent needs one of them, and `import phronomy` none.
_LAZY = {
    "ChatCompletionsModel": ".chat_completions",
    "LiteLLMModel": ".litellm",
    "MessagesModel": ".messages",
    "ResponsesModel": ".responses",
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> Any:
        return lazy_names.load(__name__, name, _LAZY)
