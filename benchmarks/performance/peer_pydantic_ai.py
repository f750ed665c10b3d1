"""The same work with Pydantic AI: a deferred tool, and the message history as text in SQLite.

https://ai.pydantic.dev/deferred-tools/
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from peer_states import Library, StateSide
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from work import ASK, SYSTEM, Script, look_up, model_name, refund


class AgentOfPydantic(Library):
    """One agent."""

    def __init__(self, model: Any) -> None:
        self.limits = UsageLimits(request_limit=None)
        self.agent: Agent[object, Any] = Agent(
            model,
            name="desk",
            instructions=SYSTEM,
            tools=[Tool(look_up), Tool(refund, requires_approval=True)],
            output_type=[str, DeferredToolRequests],
        )

    async def begun(self) -> str:
        """See `Library.begun`."""
        result = await self.agent.run(ASK, usage_limits=self.limits)
        assert isinstance(result.output, DeferredToolRequests)
        return result.all_messages_json().decode()

    async def resumed(self, state: str) -> tuple[str, str]:
        """See `Library.resumed`. What waits is what the last message calls."""
        history = ModelMessagesTypeAdapter.validate_json(state)
        waits = [part.tool_call_id for part in history[-1].parts if isinstance(part, ToolCallPart)]
        decided = DeferredToolResults(approvals=dict.fromkeys(waits, True))
        result = await self.agent.run(message_history=history, deferred_tool_results=decided, usage_limits=self.limits)
        return str(result.output), result.all_messages_json().decode()


class PydanticAI(StateSide):
    """Pydantic AI."""

    def over_http(self, client: AsyncOpenAI, calls: int) -> AgentOfPydantic:
        """See `StateSide.over_http`."""
        return AgentOfPydantic(OpenAIChatModel(model_name(calls), provider=OpenAIProvider(openai_client=client)))

    def scripted(self, script: Script) -> AgentOfPydantic:
        """See `StateSide.scripted`."""

        async def reply(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
            said = script.next()
            called = [
                ToolCallPart(each["function"]["name"], each["function"]["arguments"], tool_call_id=each["id"])
                for each in said.get("tool_calls", ())
            ]
            return ModelResponse(parts=[TextPart(said["content"]), *called])

        return AgentOfPydantic(FunctionModel(reply))
