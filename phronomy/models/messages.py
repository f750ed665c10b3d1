"""`MessagesModel`: Anthropic's Messages API, and any endpoint that speaks it, without a provider's library.

Nothing is kept at the provider: each request holds the whole conversation, and what the model thought goes along in the record, with
the signatures of it. So a run can be resumed anywhere, by whoever has its checkpoint.
The protocol: https://platform.claude.com/docs/en/api/messages/create.
"""

from __future__ import annotations

import re
from typing import Final

from phronomy.foundation.json_text import JsonDict, object_of
from phronomy.models.formats.message_events import MessageAssembler
from phronomy.models.formats.messages import read_message, request_conversation, request_options
from phronomy.models.http.direct import DirectModel, WireFormat
from phronomy.models.providers import ANTHROPIC
from phronomy.models.settings import ModelSettings

_VERSION: Final = "2023-06-01"

_MAX_TOKENS: Final = 32_000
"""No model since Claude 3.7 refuses so many: https://platform.claude.com/docs/en/about-claude/models/overview."""

_SHORT: Final = re.compile(r"claude-3-(?!7)")
_SHORT_MAX_TOKENS: Final = 4_096
_ANSWER_TOKENS: Final = 8_192  # beside a budget of thinking that is as large as all

_BUDGETED: Final = re.compile(r"claude-(3-|(opus|sonnet|haiku)-4(-[0-5])?(-?\d{8}|[^\d-]|$))")
_BUDGETS: Final = {"minimal": 1_024, "low": 1_024, "medium": 2_048, "high": 4_096, "xhigh": 8_192, "max": 16_384}
"""Models before 4.6 think for a number of tokens. The numbers are those of litellm, so that a setting means the same by either way."""


class MessagesModel(DirectModel):
    """A model at any endpoint that speaks Anthropic's Messages API. It needs no litellm.

    `model` is the provider's own name of the model; an `anthropic/` before it is left out. `base_url` is the address,
    with or without `/v1`; by default that in `ANTHROPIC_BASE_URL`, else Anthropic's. `api_key` is by default read from
    `ANTHROPIC_API_KEY` at the first call. The other arguments are those of `ChatCompletionsModel`.

    The API needs `max_tokens`. If it is not set, it is 32,000, and 4,096 for models before Claude 3.7. `reasoning_effort`
    and `response_format` in `extra` are as for chat completions, and `stop` is sent as `stop_sequences`. The API has no
    `seed`: with it, a call raises `ConfigurationError`. Any other option is sent under its own name, such as `thinking`
    and `cache_control`. `tools` in `extra` are the provider's own tools; the provider runs most of them, and for those
    no approval is asked for.
    """

    _FORMAT = WireFormat(
        path="/messages",
        options=request_options,
        conversation=request_conversation,
        read=read_message,
        assembler=MessageAssembler,
    )
    _PROVIDER = ANTHROPIC
    _PREFIX = "anthropic/"

    def _credentials(self) -> dict[str, str]:
        key = {"x-api-key": self._api_key} if self._api_key else {}
        return {"anthropic-version": _VERSION, **key}

    def _options(self, settings: ModelSettings, tools: tuple[JsonDict, ...]) -> JsonDict:
        options = super()._options(settings, tools)
        if (effort := options.pop("reasoning_effort", None)) is not None:
            _reason(options, str(effort), budgeted=_BUDGETED.search(self._asked_for) is not None)
        budget = object_of(options.get("thinking")).get("budget_tokens")
        most = _SHORT_MAX_TOKENS if _SHORT.search(self._asked_for) else _MAX_TOKENS
        least = budget + _ANSWER_TOKENS if isinstance(budget, int) else 0
        return {"max_tokens": max(most, least), **options}


def _reason(options: JsonDict, effort: str, *, budgeted: bool) -> None:
    """Say how much the model thinks, unless the provider's own options say it."""
    if effort == "none":
        options.setdefault("thinking", {"type": "disabled"})
    elif budgeted and effort in _BUDGETS:
        options.setdefault("thinking", {"type": "enabled", "budget_tokens": _BUDGETS[effort]})
    else:
        options.setdefault("thinking", {"type": "adaptive", "display": "summarized"})
        said = {"effort": "low" if effort == "minimal" else effort}
        options["output_config"] = {**said, **object_of(options.get("output_config"))}
