"""Models: who answers the conversation. Nothing here loads a provider's library before the first call."""

from __future__ import annotations

from phronomy.models.base import Model, ModelReply, ModelRequest, ModelSettings, as_model
from phronomy.models.litellm import LiteLLMModel

__all__ = ["LiteLLMModel", "Model", "ModelReply", "ModelRequest", "ModelSettings", "as_model"]
