"""The providers that are reached without litellm: where each is, and which variables of the environment hold its address and key.

The names before the slash, and the variables, are those that litellm has, so that a name means the same with it and without it.
The addresses are those of the providers' own references.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import Final

from phronomy.errors import ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_name


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider is reached, up to and with `/v1` or what stands for it, and what it needs.

    `address` is a variable that names another place, `keys` those of which the first that is set holds the key. Without a
    `url` there is no place but that. `path` is what the variable leaves out at the end.
    """

    url: str | None
    keys: tuple[str, ...]
    address: str | None = None
    path: str = ""
    counts_streams: bool = True
    """Whether it takes `stream_options`, by which the usage of a stream is asked for. The others give it unasked."""

    def base_url(self, name: str) -> str:
        """The address for the model of this name. Raises `ConfigurationError` where nothing says it."""
        if self.address is not None and (found := (os.environ.get(self.address) or "").rstrip("/")):
            if not found.startswith(("http://", "https://")):
                raise ConfigurationError(f"{self.address} is an address that begins with http:// or https://")
            return self.whole(found)
        if self.url is None:
            raise ConfigurationError(
                f"nothing says where {quoted_name(name)} is: set {self.address}, or give a ChatCompletionsModel its base_url"
            )
        return self.url

    def whole(self, url: str) -> str:
        """The address with the path that people leave out."""
        url = url.rstrip("/")
        return url if url.endswith(self.path) else url + self.path

    def key(self) -> str:
        """The key that the environment holds; empty without one."""
        return next((found for name in self.keys if (found := os.environ.get(name))), "")


OPENAI: Final = Provider("https://api.openai.com/v1", ("OPENAI_API_KEY",), "OPENAI_BASE_URL")

ANTHROPIC: Final = Provider("https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", path="/v1")
"""It speaks a protocol of its own: the Messages API."""

_OLLAMA: Final = Provider("http://localhost:11434/v1", ("OLLAMA_API_KEY",), "OLLAMA_API_BASE", path="/v1")

PROVIDERS: Final = {
    "openai": OPENAI,
    "cerebras": Provider("https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), "CEREBRAS_API_BASE"),
    "deepinfra": Provider("https://api.deepinfra.com/v1/openai", ("DEEPINFRA_API_KEY",), "DEEPINFRA_API_BASE"),
    "deepseek": Provider("https://api.deepseek.com", ("DEEPSEEK_API_KEY",), "DEEPSEEK_API_BASE"),
    "fireworks_ai": Provider(
        "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"), "FIREWORKS_API_BASE"
    ),
    "groq": Provider("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), "GROQ_API_BASE"),
    "hosted_vllm": Provider(None, ("HOSTED_VLLM_API_KEY",), "HOSTED_VLLM_API_BASE"),
    "lm_studio": Provider(None, ("LM_STUDIO_API_KEY",), "LM_STUDIO_API_BASE"),
    "mistral": Provider("https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), counts_streams=False),
    "moonshot": Provider("https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY",), "MOONSHOT_API_BASE"),
    "nvidia_nim": Provider("https://integrate.api.nvidia.com/v1", ("NVIDIA_NIM_API_KEY",), "NVIDIA_NIM_API_BASE"),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "openrouter": Provider("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY", "OR_API_KEY"), "OPENROUTER_API_BASE"),
    "perplexity": Provider(
        "https://api.perplexity.ai", ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"), "PERPLEXITY_API_BASE"
    ),
    "sambanova": Provider("https://api.sambanova.ai/v1", ("SAMBANOVA_API_KEY",), "SAMBANOVA_API_BASE"),
    "together_ai": Provider(
        "https://api.together.ai/v1", ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY"), "TOGETHER_AI_API_BASE"
    ),
    "xai": Provider("https://api.x.ai/v1", ("XAI_API_KEY",), "XAI_API_BASE"),
}
"""The providers that speak chat completions."""

_WITH_COLON: Final = {
    **{name: name for name in (*PROVIDERS, "anthropic", "azure", "bedrock", "cohere", "gemini", "vertex_ai")},
    **dict.fromkeys(("openai-chat", "openai-responses"), "openai"),
    **dict.fromkeys(("google", "google-gla", "google_genai"), "gemini"),
    **dict.fromkeys(("google-vertex", "google_vertexai"), "vertex_ai"),
    **dict.fromkeys(("azure_openai", "azure_ai"), "azure"),
    **dict.fromkeys(("mistralai", "mistral"), "mistral"),
    "bedrock_converse": "bedrock",
    "together": "together_ai",
    "fireworks": "fireworks_ai",
}
"""Providers as they stand before a colon in the names of Pydantic AI and LangChain, each with its name here."""

_OPENAIS_OWN: Final = re.compile(r"(gpt|chatgpt|o\d)[\w.-]*")
"""Names of models that need none of a provider before them."""

_ANTHROPICS: Final = re.compile(r"anthropic/.+|claude-[\w.-]+")


def is_anthropics(name: str) -> bool:
    """True if the name is that of a model of Anthropic, which speaks the Messages API."""
    return isinstance(name, str) and _ANTHROPICS.fullmatch(name) is not None


def provider_of(name: str) -> tuple[Provider, str]:
    """The provider of the model of this name that speaks chat completions, and the provider's own name for the model.

    Raises `ConfigurationError` for a name of which the table knows no provider.
    """
    if not isinstance(name, str):
        raise ConfigurationError(f"a model is named by text, such as 'openai/gpt-4o-mini', not by {quoted_name(name)}")
    before, slash, model = name.partition("/")
    if slash and model and before in PROVIDERS:
        return PROVIDERS[before], model
    if _OPENAIS_OWN.fullmatch(name):
        return OPENAI, name
    if is_anthropics(name):
        raise ConfigurationError(
            f"{quoted_name(name)} is reached by the Messages API, and not by chat completions: use a MessagesModel, or set "
            "PHRONOMY_MODEL_BACKEND=direct"
        )
    check_slash(name)
    gateway = "; PHRONOMY_MODEL_BACKEND=chat_completions has every name go to OPENAI_BASE_URL"
    raise ConfigurationError(
        f"{quoted_name(name)} names no provider that is reached without litellm: pip install 'phronomy[litellm]', begin the "
        f"name with one of {', '.join(sorted(('anthropic', *PROVIDERS)))} and a slash, or give a ChatCompletionsModel its base_url"
        f"{gateway if os.environ.get('OPENAI_BASE_URL') else ''}"
    )


def check_slash(name: str) -> None:
    """Refuse a provider before a colon, as other libraries write it. Raises `ConfigurationError`."""
    before, colon, model = name.partition(":")
    if colon and model and before in _WITH_COLON:
        meant = f"{_WITH_COLON[before]}/{model}"
        raise ConfigurationError(f"{quoted_name(name)}: a slash divides provider and model: write {quoted_name(meant)}")


def has_litellm() -> bool:
    """Whether litellm is installed, which this does not load."""
    return find_spec("litellm") is not None
