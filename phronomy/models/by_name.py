"""Which model a name means, by what is installed and what the environment says."""

from __future__ import annotations

import os

from phronomy.errors import ConfigurationError
from phronomy.foundation.quoting import quoted, quoted_word
from phronomy.models.base import Model
from phronomy.models.providers import check_slash, has_litellm, is_anthropics


def as_model(model: str | Model) -> Model:
    """Make a model from its name. A `Model` is returned unchanged.

    If litellm is installed, a name becomes a `LiteLLMModel`. Else `"anthropic/..."` becomes a `MessagesModel`, and any
    other name the result of `ChatCompletionsModel.from_name`. The variable `PHRONOMY_MODEL_BACKEND` overrides this. It
    is `litellm`; `direct`, which does as if litellm were not installed; `chat_completions`; or `responses`, which makes
    a `ResponsesModel("gpt-5")` of `"openai/gpt-5"`. With `chat_completions`, if `OPENAI_BASE_URL` is set, every model is
    reached at that address.

    Raises `ConfigurationError` for any other object, for an unknown backend, and for a name that needs litellm if
    litellm is not installed.
    """
    if isinstance(model, str):
        return _named(model, os.environ.get("PHRONOMY_MODEL_BACKEND") or None)
    if isinstance(model, type) or not isinstance(model, Model):
        raise ConfigurationError(
            f"a model is a name or has `name`, `complete` and `acomplete`; this is {quoted(model)}"
        )
    return model


def _named(name: str, backend: str | None) -> Model:
    if backend == "litellm" or (backend is None and has_litellm()):
        from phronomy.models.litellm import LiteLLMModel  # noqa: PLC0415  # loads HTTP or litellm, which `import phronomy` does not

        check_slash(name)
        return LiteLLMModel(name)
    if backend in (None, "direct") and is_anthropics(name):
        from phronomy.models.messages import MessagesModel  # noqa: PLC0415  # loads HTTP or litellm, which `import phronomy` does not

        return MessagesModel(name)
    if backend in (None, "direct", "chat_completions"):
        from phronomy.models.chat_completions import ChatCompletionsModel  # noqa: PLC0415  # loads HTTP or litellm, which `import phronomy` does not

        if backend == "chat_completions" and os.environ.get("OPENAI_BASE_URL"):
            return ChatCompletionsModel(name.removeprefix("openai/"))
        return ChatCompletionsModel.from_name(name)
    if backend == "responses":
        from phronomy.models.responses import ResponsesModel  # noqa: PLC0415  # loads HTTP or litellm, which `import phronomy` does not

        return ResponsesModel(name.removeprefix("openai/"))
    raise ConfigurationError(
        f"PHRONOMY_MODEL_BACKEND is litellm, direct, chat_completions or responses, not {quoted_word(backend)}"
    )
