"""The floor with litellm in place of httpx, no dearer than need be.

The client is kept, litellm tries nothing again, and reads no list of prices from afar.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from floor import Ask, AsyncFloorDesk, Floor, Messages, body, opened

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def message_of(response: Any) -> dict[str, Any]:
    """The message of a response, without what was not sent."""
    message: dict[str, Any] = response.choices[0].message.model_dump()
    return {name: value for name, value in message.items() if value is not None}


class LiteLLMFloor(Floor):
    """Asks by litellm."""

    def asks(self, calls: int) -> Ask:
        """Asks by `litellm.completion`."""
        import litellm  # noqa: PLC0415  # takes seconds

        if self.client is None:
            import openai  # noqa: PLC0415

            self.client = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0)
        client = self.client

        def ask(messages: Messages) -> dict[str, Any]:
            return message_of(litellm.completion(**self.arguments(messages, calls), client=client))

        return ask

    async def async_desk(self, path: Path) -> AsyncFloorDesk:
        """See `Side.async_desk`."""
        import litellm  # noqa: PLC0415
        import openai  # noqa: PLC0415

        client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)

        async def ask(messages: Messages) -> dict[str, Any]:
            return message_of(await litellm.acompletion(**self.arguments(messages, 0), client=client))

        return AsyncFloorDesk(self.steps(opened(path)), ask, client)

    def arguments(self, messages: Messages, calls: int) -> dict[str, Any]:
        """Of both functions. Without `_skip_mcp_handler` litellm imports its MCP gateway for any call with tools."""
        asked = body(messages, calls)
        return {
            **asked,
            "model": f"openai/{asked['model']}",
            "base_url": self.url,
            "api_key": "none",
            "num_retries": 0,
            "max_retries": 0,
            "_skip_mcp_handler": True,
        }
