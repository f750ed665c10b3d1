"""The same work with the OpenAI Agents SDK: a tool that needs approval, and the run's state as text in SQLite.

https://openai.github.io/openai-agents-python/human_in_the_loop/
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    RunState,
    Usage,
    function_tool,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from peer_states import Library, StateSide
from work import ASK, SYSTEM, Script, look_up, model_name, refund


class ScriptModel(Model):
    """A model inside the process."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """The next reply."""
        said = self.script.next()
        text = ResponseOutputText(text=said["content"], type="output_text", annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        ]
        output += [
            ResponseFunctionToolCall(
                type="function_call", call_id=each["id"], name=each["function"]["name"],
                arguments=each["function"]["arguments"],
            )
            for each in said.get("tool_calls", ())
        ]  # fmt: skip
        usage = Usage(requests=1, input_tokens=100, output_tokens=20, total_tokens=120)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """It does not stream."""
        raise TypeError("this model does not stream")


class AgentOfOpenAI(Library):
    """One agent."""

    def __init__(self, model: Model) -> None:
        self.config = RunConfig(tracing_disabled=True)
        self.agent = Agent(
            name="desk",
            instructions=SYSTEM,
            model=model,
            tools=[function_tool(look_up), function_tool(refund, needs_approval=True)],
        )

    async def begun(self) -> str:
        """See `Library.begun`."""
        result = await Runner.run(self.agent, ASK, max_turns=None, run_config=self.config)
        assert result.interruptions
        return result.to_state().to_string()

    async def resumed(self, state: str) -> tuple[str, str]:
        """See `Library.resumed`."""
        found = await RunState.from_string(self.agent, state)
        for each in found.get_interruptions():
            found.approve(each)
        result = await Runner.run(self.agent, found, max_turns=None, run_config=self.config)
        return str(result.final_output), result.to_state().to_string()


class OpenAIAgents(StateSide):
    """The OpenAI Agents SDK."""

    def over_http(self, client: AsyncOpenAI, calls: int) -> AgentOfOpenAI:
        """See `StateSide.over_http`."""
        return AgentOfOpenAI(OpenAIChatCompletionsModel(model=model_name(calls), openai_client=client))

    def scripted(self, script: Script) -> AgentOfOpenAI:
        """See `StateSide.scripted`."""
        return AgentOfOpenAI(ScriptModel(script))
