"""The mistakes of people who come from other libraries, or who write a name wrongly: each error says what to write."""

from __future__ import annotations

import copy
import importlib
import pickle
import typing
from typing import Any

import pytest
from pydantic import BaseModel
from tables import each

import phronomy
import phronomy.chat
import phronomy.graph
from phronomy import (
    Agent,
    Approval,
    Approve,
    ConfigurationError,
    Escalate,
    InvalidDecision,
    InvalidField,
    Limits,
    MemoryStore,
    NothingDecided,
    PendingApproval,
    Principal,
    Reject,
    Respond,
    Result,
    Step,
    ThreadBusy,
    ToolDefinitionError,
    sequential,
    tool,
)
from phronomy.chat import ChatBot
from phronomy.errors import GraphError
from phronomy.foundation import foreign_words
from phronomy.graph import StateGraph
from phronomy.models import as_model
from phronomy.runs.options import AgentOptions
from phronomy.runs.runs import Runs
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker


class Job(BaseModel):
    said: str = ""


def pay(n: int) -> str:
    """Pay."""
    return "paid"


GATED = tool(requires_approval=True)(pay)


def desk(**options: Any) -> Any:
    replies = [[call("pay", {"n": 1}), call("pay", {"n": 2})], "Done."]
    return Agent(name="desk", model=ScriptedModel.by_turn(replies), tools=[GATED], **options)


def asked() -> Any:
    return desk().invoke("go")


def twice_in_a_thread() -> None:
    agent = desk(store=MemoryStore())
    agent.invoke("go", thread_id="t")
    agent.invoke("go", thread_id="t")


def imported(line: str) -> Any:
    return lambda: exec(line)


MISTAKES: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    # what a newcomer met
    (lambda: desk().resume(asked().checkpoint), NothingDecided, ("decisions={pending_id: Approve()}", "approve_all")),
    (lambda: desk().resume(asked().checkpoint, approved=True), NothingDecided, ("decisions=", "approve_all")),
    (lambda: Principal(id="ada", roles="finance"), InvalidDecision, ("roles", "a list or a tuple", "['finance']")),  # type: ignore[arg-type]
    (lambda: as_model("openai:gpt-4o"), ConfigurationError, ("write 'openai/gpt-4o'",)),
    (lambda: as_model("google-gla:gemini-2.5-pro"), ConfigurationError, ("write 'gemini/gemini-2.5-pro'",)),
    (lambda: Worker(desk()), ConfigurationError, ("has no store", "give it the store")),
    (lambda: Approval(not_requestor=True), ConfigurationError, ("did you mean not_requester?",)),  # type: ignore[call-arg]
    (lambda: Approval(approvers=["finance"]), ConfigurationError, ("did you mean by?",)),  # type: ignore[call-arg]
    (lambda: Escalate("lead", 3600), ConfigurationError, ("write Escalate(after=..., by=",)),  # type: ignore[call-arg, misc]
    (lambda: Agent("openai/gpt-4o"), ConfigurationError, ("write Agent(name=..., model=",)),  # type: ignore[call-overload, misc]
    (lambda: desk().run("go"), AttributeError, ("write invoke(...)", "ainvoke(...)")),
    (lambda: desk().run_sync("go"), AttributeError, ("write invoke(...)",)),
    (lambda: desk().stream_events("go"), AttributeError, ("write stream(...)", "astream(...)")),
    (lambda: desk(system_prompt="Be kind."), ConfigurationError, ("did you mean instructions?",)),
    (lambda: desk(human_in_the_loop=True), ConfigurationError, ("requires_approval=True", "approval_policy=")),
    (lambda: desk(interrupt_on={"pay": True}), ConfigurationError, ("requires_approval=True", "approval_policy=")),
    (lambda: desk(needs_approval=True), ConfigurationError, ("requires_approval=True", "approval_policy=")),
    (lambda: desk(checkpointer=MemoryStore()), ConfigurationError, ("did you mean store?",)),
    (imported("from phronomy import Worker"), ImportError, ("from phronomy.workers import Worker",)),
    (imported("from phronomy import Inbox"), ImportError, ("from phronomy.inbox import Inbox",)),
    (imported("from phronomy import ScriptedModel"), ImportError, ("from phronomy.testing import ScriptedModel",)),
    (imported("from phronomy.chat import Slack"), ImportError, ("from phronomy.chat.slack import Slack",)),
    (imported("from phronomy import Command"), ImportError, ("resume(checkpoint", "Replan(update, to=...)")),
    (
        lambda: desk().invoke({"messages": [{"role": "user", "content": "Hello"}]}),
        ConfigurationError,
        ("invoke('the last message')", "messages=[...]"),
    ),
    (twice_in_a_thread, ThreadBusy, ("on_pending='supersede'",)),
    # and others of the kind
    (imported("from phronomy.graph import MessagesState"), ImportError, ("TypedDict", "append")),
    (imported("from phronomy.stores import InMemorySaver"), ImportError, ("write MemoryStore()",)),
    (lambda: phronomy.Worker, ImportError, ("from phronomy.workers import Worker",)),  # type: ignore[attr-defined]
    (lambda: phronomy.Runner.run_sync, ImportError, ("write agent.invoke(...)",)),  # type: ignore[attr-defined]
    (lambda: Reject("too short"), InvalidDecision, ("write Reject(reason=",)),  # type: ignore[call-arg, misc]
    (lambda: Reject(message="too short"), InvalidDecision, ("did you mean reason?",)),  # type: ignore[call-arg]
    (lambda: Respond(value=3), InvalidDecision, ("did you mean content?",)),  # type: ignore[call-arg]
    (lambda: Approve(edited_args={"n": 3}), InvalidDecision, ("did you mean args?",)),  # type: ignore[call-arg]
    (lambda: Principal("ada"), InvalidDecision, ("write Principal(id=",)),  # type: ignore[call-arg, misc]
    (lambda: Principal(id="ada", groups=["finance"]), InvalidDecision, ("did you mean roles?",)),  # type: ignore[call-arg]
    (lambda: Limits(max_turns=3), InvalidField, ("did you mean turns?",)),  # type: ignore[call-arg]
    (lambda: Approval("finance"), ConfigurationError, ("write Approval(when=",)),  # type: ignore[call-arg, misc]
    (lambda: Approval(quorum=2), ConfigurationError, ("did you mean needed?",)),  # type: ignore[call-arg]
    (lambda: desk(output_schema=Job), ConfigurationError, ("did you mean output_type?",)),
    (lambda: desk(role="clerk", backstory="..."), ConfigurationError, ("write it into instructions",)),
    (lambda: desk(llm="gpt-4o"), ConfigurationError, ("write model='provider/name'",)),
    (lambda: desk(middleware=[]), ConfigurationError, ("approval_policy", "guardrails", "hooks=[...]")),
    (lambda: desk(temperature=0), ConfigurationError, ("settings=ModelSettings(...)",)),
    (
        lambda: desk().invoke("go", config={"thread_id": "7"}),
        ConfigurationError,
        ("thread_id='...'", "nothing was done"),
    ),
    (lambda: desk().invoke("go", context={}), ConfigurationError, ("write deps=",)),
    (lambda: desk().get_state({}), AttributeError, ("result.checkpoint",)),
    (lambda: desk().approve("pend_1"), AttributeError, ("resume(checkpoint, approved=True)",)),
    (lambda: asked().interruptions, AttributeError, ("write result.checkpoint.pending",)),
    (lambda: asked().final_output, AttributeError, ("write output",)),
    (lambda: tool(needs_approval=True)(pay), ToolDefinitionError, ("did you mean requires_approval?",)),  # type: ignore[call-overload]
    (lambda: tool(args_schema=Job)(pay), ToolDefinitionError, ("types of the function's parameters",)),  # type: ignore[call-overload]
    (lambda: ChatBot(desk(), None), ConfigurationError, ("write ChatBot(approvals, agent)",)),  # type: ignore[arg-type]
    (lambda: StateGraph(Job).invoke({}), AttributeError, ("compile() first",)),  # type: ignore[attr-defined]
    (lambda: StateGraph(Job).add_node("a", pay, timeout=-1), GraphError, ("timeout",)),
    (lambda: sequential(Step(pay, on_failure="never")), GraphError, ("on_failure",)),  # type: ignore[call-arg]
    (lambda: StateGraph(Job).compile(checkpointer=1), GraphError, ("did you mean store?",)),  # type: ignore[call-arg]
]


@each(("mistake", "kind", "words"), MISTAKES)
def test_each_mistake_is_an_error_that_says_what_to_write(
    mistake: Any, kind: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as error:
        mistake()
    assert type(error.value) is kind
    assert [word for word in words if word not in str(error.value)] == []
    # An error that we raised for another is no news for whoever made the mistake.
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_what_asks_for_an_attribute_hears_that_there_is_none() -> None:
    agent, result = desk(), asked()
    for owner, name in ((agent, "run"), (result, "final_output"), (phronomy, "Agnet"), (phronomy.chat, "__wrapped__")):
        assert not hasattr(owner, name)
        assert getattr(owner, name, None) is None
    assert copy.copy(agent).name == "desk"
    assert copy.deepcopy(result) == result
    assert pickle.loads(pickle.dumps(result)) == result
    assert typing.get_type_hints(Result)["status"] is not None


def test_a_module_is_imported_where_a_name_is_looked_for() -> None:
    """Python asks the package first, before it looks for a module of the name."""
    for name in ("workers", "testing", "graph"):
        space: dict[str, Any] = {}
        exec(f"from phronomy import {name}", space)
        assert space[name] is importlib.import_module(f"phronomy.{name}")


def test_the_words_of_others_are_none_of_ours() -> None:
    """An entry for a name that there is would never be read, or would stand before it."""
    assert {*foreign_words.OPTIONS, *foreign_words.SYNONYMS} & AgentOptions.__annotations__.keys() == set()
    assert {*foreign_words.NAMES} & {*phronomy.__all__} == set()
    for name in foreign_words.ATTRIBUTES["Runs"]:
        assert not hasattr(Runs, name), name
    for name in foreign_words.ATTRIBUTES["Result"]:
        assert not hasattr(Result, name), name
    for name in foreign_words.ATTRIBUTES["StateGraph"]:
        assert not hasattr(StateGraph, name), name


def test_each_name_that_is_looked_for_elsewhere_is_where_the_error_says() -> None:
    for module, names in foreign_words.HOMES.items():
        missing = {*names.split()} - {*importlib.import_module(module).__all__}
        assert missing == set(), module


def test_a_class_of_an_agent_names_the_option_of_ours() -> None:
    for name in ("system_prompt", "checkpointer", "response_format"):
        with pytest.raises(ConfigurationError, match=f"class Desk: {name} is no option of Agent.*did you mean"):
            type("Desk", (Agent,), {name: "x"})
    type("Desk", (Agent,), {"role": "clerk", "prompt": "Hello"})  # somebody's own


def test_a_field_is_told_by_name_where_it_is_given_by_place() -> None:
    assert PendingApproval.__signature__.parameters.keys() == PendingApproval.model_fields.keys()
