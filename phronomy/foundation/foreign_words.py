"""Names that people of other libraries write, and what to write here: the one table, for every error about an unknown name.

The names are those of LangChain and LangGraph, the OpenAI Agents SDK, Pydantic AI, CrewAI, AutoGen and HumanLayer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("system_prompt", "system_message", "system_instruction", "state_modifier"), ("instructions",)),
    **dict.fromkeys(("response_format", "response_model", "result_type", "output_schema"), ("output_type",)),
    **dict.fromkeys(("checkpointer", "checkpoint_saver"), ("store",)),
    **dict.fromkeys(("needs_approval", "require_human_approval", "human_approval"), ("requires_approval",)),
    **dict.fromkeys(("requires_confirmation", "needs_confirmation"), ("requires_approval",)),
    **dict.fromkeys(("model_settings", "model_kwargs"), ("settings",)),
    **dict.fromkeys(("approvers", "reviewers", "assignees", "approved_by"), ("by",)),
    **dict.fromkeys(("min_approvals", "required_approvals", "quorum"), ("needed",)),
    "groups": ("roles", "by"),
    "roles": ("by",),
    "ttl": ("expires",),
    "recursion_limit": ("max_steps",),
    "usage_limits": ("limits",),
    "history_processors": ("memory",),
    "handoff_description": ("description",),
    "name_override": ("name",),
    "description_override": ("description",),
    "max_turns": ("turns", "limits"),
    "request_limit": ("turns",),
    **dict.fromkeys(("message", "comment", "feedback"), ("reason",)),
    **dict.fromkeys(("arguments", "edited_args", "modified_args", "override_args", "tool_input"), ("args",)),
    **dict.fromkeys(("answer", "response", "value"), ("content",)),
}
"""Options of others, each with ours that mean the same: the first one that there is, where the name is written."""

_GATED: Final = (
    "write @tool(requires_approval=True), or name the tools in the policy of the agent: approval_policy=['refund']"
)
_TEXT: Final = "write it into instructions"
_LIMITED: Final = "write limits=Limits(...), which has turns, tool_calls, tokens, cost and seconds"
_THREAD: Final = "write thread_id='...' in the call"
_DEPS: Final = "write deps=... in the call, which tools read as ToolContext.deps"
_MODEL: Final = "write model='provider/name'"
_ASKED: Final = "write settings=ModelSettings(...)"

OPTIONS: Final[Mapping[str, str]] = {
    # what holds a call back
    **dict.fromkeys(("interrupt_on", "human_in_the_loop", "hitl", "human_input", "human_input_mode"), _GATED),
    **dict.fromkeys(("needs_approval", "requires_confirmation", "tool_approval", "ask_human"), _GATED),
    **dict.fromkeys(("approvers", "reviewers"), "write requires_approval=Approval(by='role') where a tool is made"),
    # who the agent is
    **dict.fromkeys(("prompt", "role", "goal", "backstory", "persona", "messages_modifier"), _TEXT),
    **dict.fromkeys(("llm", "llm_config", "model_name", "model_client", "chat_model"), _MODEL),
    **dict.fromkeys(("temperature", "max_tokens", "top_p"), _ASKED),
    **dict.fromkeys(("api_key", "base_url"), "write model=ChatCompletionsModel('name', api_key=..., base_url=...)"),
    **dict.fromkeys(("functions", "toolsets", "builtin_tools", "toolkits"), "write tools=[...]"),
    "mcp_servers": "write tools=[MCPServer(...)]",
    "agents": "write handoffs=[...], tools=[agent.as_tool()], or a team such as Orchestrator([...])",
    "allow_delegation": "write handoffs=[...]",
    "middleware": (
        "write approval_policy to ask a human, guardrails to check what goes in and out, and hooks=[...] to watch"
    ),
    **dict.fromkeys(("callbacks", "verbose", "step_callback", "instrument", "debug"), "write hooks=[...]"),
    "tool_use_behavior": "write @tool(return_direct=True)",
    "args_schema": "the types of the function's parameters are the schema",
    # how far a run goes, and what it keeps
    **dict.fromkeys(("max_turns", "max_iter", "max_iterations", "usage_limits", "recursion_limit"), _LIMITED),
    "timeout": "write limits=Limits(seconds=...) for a run, ModelSettings(timeout=...), @tool(timeout=...), or Approval(expires=...)",
    "retries": "write output_retries for the answer, and @tool(retries=...) for a tool",
    **dict.fromkeys(("session", "session_id", "conversation_id", "thread", "message_history"), _THREAD),
    "config": "write thread_id='...' and deps=... in the call",
    **dict.fromkeys(("context", "context_schema", "deps_type", "dependencies"), _DEPS),
    "state_schema": "write the state of a StateGraph; an agent keeps its conversation",
    **dict.fromkeys(("user", "user_id"), "write requester=Principal(id='...') in the call"),
    "interrupt_before": "write breakpoints=[Breakpoint('pre_tool_call')] to look, or requires_approval to ask",
    "interrupt_after": "write breakpoints=[Breakpoint('post_tool_call')]",
}
"""Options of others that have no one option of ours, each with what to write."""

_INVOKE: Final = "write invoke(...), or await ainvoke(...)"
_STREAM: Final = "write stream(...), or async for ... in astream(...)"
_DECIDE: Final = "write resume(checkpoint, approved=True), or resume(checkpoint, decisions={pending_id: Approve()})"
_STATE: Final = "write result.checkpoint, or store.head(run_id)"
_PENDING: Final = "write result.checkpoint.pending"

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "Runs": {
        **dict.fromkeys(("run", "run_sync", "arun", "run_async", "kickoff", "kickoff_async", "akickoff"), _INVOKE),
        **dict.fromkeys(("call", "chat", "ask", "generate", "execute", "start", "predict", "initiate_chat"), _INVOKE),
        **dict.fromkeys(
            ("run_stream", "run_streamed", "run_stream_events", "stream_events", "astream_events"), _STREAM
        ),
        **dict.fromkeys(("iter", "stream_text", "stream_log", "astream_log"), _STREAM),
        **dict.fromkeys(("batch", "abatch", "kickoff_for_each"), "write invoke(...) for each input"),
        **dict.fromkeys(("approve", "reject", "respond", "continue_run", "submit_tool_outputs"), _DECIDE),
        **dict.fromkeys(("get_state", "aget_state"), _STATE),
        **dict.fromkeys(("get_state_history", "aget_state_history"), "write store.history(checkpoint_id)"),
        **dict.fromkeys(
            ("update_state", "aupdate_state"), "write resume(checkpoint, update=...), or fork(checkpoint, update=...)"
        ),
        **dict.fromkeys(("bind_tools", "add_tool", "register_tool"), "write tools=[...] where the agent is made"),
        **dict.fromkeys(("tool_plain", "tool"), "write @tool, from phronomy, and give the tool in tools=[...]"),
        "with_structured_output": "write output_type=... where the agent is made",
        "system_prompt": "write instructions=..., a text or a function",
        **dict.fromkeys(("output_validator", "result_validator"), "write output_guardrails=[...]"),
        "override": "write the option in the call, such as invoke(..., model=...)",
        **dict.fromkeys(
            ("get_graph", "draw_mermaid"),
            "write graph.to_mermaid(), or tree_mermaid(store, run_id) of phronomy.drawing",
        ),
        **dict.fromkeys(
            ("to_cli", "cli", "print_response", "to_web"), "use the command: phronomy chat --app module:agent"
        ),
    },
    "StateGraph": {
        **dict.fromkeys(
            ("invoke", "ainvoke", "stream", "astream", "resume", "aresume", "run"),
            "compile() first: it makes the graph that runs",
        ),
    },
    "Result": {
        **dict.fromkeys(("final_output", "data", "content", "text", "response", "value", "raw"), "write output"),
        **dict.fromkeys(("interruptions", "interrupts", "pending", "approvals", "requires_action"), _PENDING),
        **dict.fromkeys(("all_messages", "new_messages", "new_items", "to_input_list"), "write messages"),
        **dict.fromkeys(("state", "to_state", "values", "snapshot"), "write checkpoint"),
        **dict.fromkeys(("approve", "reject"), f"{_DECIDE} on the agent"),
    },
}
"""Attributes of objects of others, by the class of ours in whose place they are written, each with what to write."""

_TOOL: Final = "write @tool"
_CONTEXT: Final = "write a parameter of the type ToolContext in the tool"
_MEMORY: Final = "MemoryStore()"
_SQLITE: Final = "SQLiteStore('runs.db')"

NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Runner", "AgentExecutor"), "write agent.invoke(...)"),
    **dict.fromkeys(("create_agent", "create_react_agent", "ConversableAgent", "AssistantAgent"), "write Agent(...)"),
    **dict.fromkeys(("function_tool", "StructuredTool", "FunctionTool", "BaseTool"), _TOOL),
    **dict.fromkeys(("RunContext", "RunContextWrapper", "Runtime", "ToolRuntime", "InjectedState"), _CONTEXT),
    "Command": (
        "resume(checkpoint, decisions={pending_id: Respond(content=...)}) takes the place of Command(resume=...), and"
        " Replan(update, to=...) that of Command(goto=...)"
    ),
    **dict.fromkeys(("InMemorySaver", "MemorySaver", "InMemoryStore"), f"write {_MEMORY}"),
    **dict.fromkeys(("SqliteSaver", "AsyncSqliteSaver", "SQLiteSession"), f"write {_SQLITE}"),
    **dict.fromkeys(("PostgresSaver", "AsyncPostgresSaver"), "write PostgresStore('postgresql://...')"),
    **dict.fromkeys(("RedisSaver", "AsyncRedisSaver"), "write RedisStore('redis://...')"),
    **dict.fromkeys(("HumanInTheLoopMiddleware", "InterruptOnConfig", "HumanApproval", "HumanLayer"), _GATED),
    **dict.fromkeys(("require_approval", "requires_approval", "human_feedback"), "write @tool(requires_approval=True)"),
    **dict.fromkeys(("human_as_tool", "UserProxyAgent"), "write interrupt('question') in the body of a tool"),
    **dict.fromkeys(("ToolApproved", "ApprovalResponse"), "write Approve()"),
    **dict.fromkeys(("ToolDenied", "Deny", "Denied"), "write Reject(reason='...')"),
    "Edit": "write Approve(args={...})",
    "ApprovalRequired": "write @tool(requires_approval=...), or interrupt('question') in the body",
    "CallDeferred": "write ExternalTool(...), or wait_for_first(...) of phronomy.triggers in the body",
    **dict.fromkeys(("DeferredToolRequests", "ToolApprovalItem"), _PENDING),
    "DeferredToolResults": "write resume(checkpoint, decisions={pending_id: Approve()})",
    **dict.fromkeys(("RunState", "StateSnapshot"), "write Checkpoint"),
    **dict.fromkeys(("RunResult", "AgentRunResult"), "write Result"),
    **dict.fromkeys(("GraphInterrupt", "Interrupt"), f"a stop is no exception: {_PENDING}"),
    "GraphRecursionError": "write LimitExceeded",
    "ModelRetry": "raise any exception in the tool: the model reads that it failed",
    **dict.fromkeys(
        ("MessagesState", "add_messages"), "write a TypedDict with a channel of your own, joined by append"
    ),
    "RetryPolicy": "write retries=..., timeout=... and retry_on=... where the node is added",
    **dict.fromkeys(("InputGuardrail", "OutputGuardrail", "input_guardrail", "output_guardrail"), "write @guardrail"),
    **dict.fromkeys(
        ("Crew", "Team", "GroupChat", "Swarm"), "write Orchestrator([...]), or a pattern such as sequential(...)"
    ),
    "Task": "write the input of agent.invoke(...), or a Step of a pattern",
    "UsageLimits": "write Limits(...)",
    **dict.fromkeys(("TestModel", "FunctionModel"), "write ScriptedModel([...]), from phronomy.testing"),
    **dict.fromkeys(("MCPServerStdio", "MCPServerStreamableHttp", "MultiServerMCPClient"), "write MCPServer(...)"),
}
"""Names that others import, each with what to write."""

HOMES: Final[Mapping[str, str]] = {
    "phronomy": "Agent Approval Approve Checkpoint Continue Defer Escalate ExternalTool Limits MemoryStore Orchestrator"
    " PostgresStore Principal RedisStore Reject Replan Respond Result SQLiteStore Send Store ToolContext guardrail"
    " open_store tool",
    "phronomy.graph": "add append merge replace register_concat",
    "phronomy.workers": "Health SetAside Worker",
    "phronomy.people": "Deputy Directory Person StoreDirectory",
    "phronomy.tokens": "Token Tokens",
    "phronomy.triggers": "ExternalEvent Question RunEnd Timer wait_for_all wait_for_first",
    "phronomy.timeline": "Timeline TimelineRecorder timeline",
    "phronomy.drawing": "flow_mermaid flow_svg tree_mermaid tree_svg",
    "phronomy.long_term_store": "EmbeddingIndex LongTermStore WordIndex",
    "phronomy.testing": "ChatServer Fault ModelContract ScriptExhausted ScriptedModel StoreContract call check_history say sweep",
    "phronomy.testing.chat": "ChannelContract FakeDiscord FakeMail FakeReceiver FakeSlack FakeTeams FakeTelegram",
    "phronomy.inbox": "ApiTokens AsyncInboxClient Auth Identity Inbox InboxClient MailLinks OIDC OneTimeLink Sessions TrustedProxy",
    "phronomy.chat": "ChatApprovals ChatBot Channel Outbox asgi aws_lambda wsgi",
    "phronomy.chat.slack": "Slack SocketMode",
    "phronomy.chat.discord": "Discord Gateway",
    "phronomy.chat.teams": "Teams",
    "phronomy.chat.telegram": "Polling Telegram",
    "phronomy.chat.email": "Email",
    "phronomy.chat.webhooks": "Endpoint Webhooks",
}
"""Names of ours that are looked for in another module than theirs, by the module that has them."""


def instead_of(name: str) -> str | None:
    """The words to write in place of an import of this name; None for a name that nobody is known to look for."""
    for module, names in HOMES.items():
        if name in names.split():
            return f"write from {module} import {name}"
    return NAMES.get(name)


def attribute(kind: type, name: str) -> str | None:
    """The words to write in place of this attribute of such an object; None for a name that is not in the table."""
    for owner in kind.__mro__:
        if (found := ATTRIBUTES.get(owner.__name__, {}).get(name)) is not None:
            return found
    return None
