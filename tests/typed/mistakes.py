"""A user's program with mistakes: each line that says so is an error to both type checkers, strict, and no other line is one."""

# ruff: noqa: B018, F401, I001  (some of the mistakes are of that kind)

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

import phronomy
import phronomy.stores
import phronomy.testing
from phronomy import (
    Agent,
    Approval,
    Checkpoint,
    Escalate,
    MaxLength,
    Orchestrator,
    Reject,
    StateGraph,
    sequential,
    tool,
)
from phronomy import Agnet  # error: no such name
from phronomy import Worker  # error: no such name
from phronomy.chat import Slack  # error: no such name
from phronomy.graph import StateGrahp  # error: no such name
from phronomy.models import Modle  # error: no such name
from phronomy.stores import SQLStore  # error: no such name
from phronomy.testing import ChatSever  # error: no such name


class Answer(BaseModel):
    amount: float


class Other(BaseModel):
    text: str


class Clerk(BaseModel):
    name: str


phronomy.Agnet  # error: no such name
phronomy.stores.SQLStore  # error: no such name
phronomy.testing.ChatSever  # error: no such name

# The options of an agent and of a call.

Agent(instruction="x")  # error: no such option
Agent(output_type=Answer, instruction="x")  # error: no such option
Agent(max_handoffs="many")  # error: not of its type
Agent(output_type=Answer, max_handoffs="many")  # error: not of its type
Agent(output_type=1)  # error: no type
Agent(output_type=Answer(amount=1.0))  # error: no type
Agent("m")  # error: by name alone
agent = Agent(output_type=Answer)
agent.output_type = Other  # error: another type
agent.instruction = "x"  # error: no such option
agent.invoke("x", approved=True)  # error: no such option
agent.invoke("x", dep=Clerk(name="Ann"))  # error: no such option
agent.resume("id", approved="yes")  # error: not of its type
agent.invoke(thread_id="t")  # error: no input
agent.invok("x")  # error: no such method
agent.run("x")  # error: no such method
agent.run_sync("x")  # error: no such method
Agent(system_prompt="x")  # error: no such option
StateGraph(Answer).invoke({})  # error: no such method
Approval(not_requestor=True)  # error: no such option
Escalate("lead", 3600)  # error: by name alone
Reject("too short")  # error: by name alone
agent.invoke("x", on_pending="forget")  # error: not of its type

# The answer.

result = agent.invoke("x")
result.final_output  # error: no such attribute
result.output.amount  # error: None, unless the run has completed
if result.output is not None:
    result.output.text  # error: an Answer has no text
    text: str = result.output  # error: an Answer is no text
number: int | None = Agent().invoke("x").output  # error: text
answers: Agent[Any, Other] = Agent(output_type=Answer)  # error: another type
Agent[Any, Other](output_type=Answer)  # error: another type
Agent[Clerk, Answer](output_type=Answer).invoke("x", deps="Ann")  # error: deps are a Clerk


async def awaited() -> None:
    (await agent.ainvoke("x")).output.amount  # error: None, unless the run has completed
    agent.ainvoke("x").output  # error: not awaited


# An agent that is a class says the type of its answer in its base.


class Desk(Agent):
    output_type = Answer  # error: write class Desk(Agent[Any, Answer])


class Waiter(Agent[Any, Answer]):
    pass


Waiter.invoke()  # error: no input
Waiter.invoke("x", approved=True)  # error: no such option
Waiter.resume("id", approved="yes")  # error: not of its type


class Unlike(Agent[Any, Other]):
    output_type = Answer  # error: another type


class Typed(Agent[Any, Answer]):
    output_type = Answer
    max_handoffs = "many"  # error: not of its type


Typed(instruction="x")  # error: no such option
Typed(output_type=Other)  # error: another type

# Tools and guardrails.


@tool(require_approval=True)  # error: no such option
def refund(order_id: int) -> str:
    return f"refunded {order_id}"


@tool(requires_approval=True)
def look(order_id: int) -> str:
    return f"order {order_id}"


look.require_approval = True  # error: no such option
MaxLength(100).retires = 3  # error: no such option

# Graphs and teams.

graph = StateGraph(Answer).compile()
StateGraph(Answer).compile(nme="g")  # error: no such option
StateGraph(Answer).add_node("a", awaited, retrys=1)  # error: no such option
graph.invoke({}).output.text  # error: the state has no text
graph.state_of("id")  # error: no checkpoint
graph.interrupt_befor = ["a"]  # error: no such option
Orchestrator([agent], hooks=3)  # error: not of its type
Orchestrator([agent], entyr="a")  # error: no such option
sequential(agent, agent, on_eror="skip")  # error: no such option


def shown(checkpoint: Checkpoint) -> str:
    checkpoint.pending = ()  # error: it is frozen
    return checkpoint.pendnig  # error: no such attribute


class Odd(Agent):
    def on_approval_required(self, name: int) -> bool:  # error: a handler is given a name and arguments
        return bool(name)


Agent().on_approval_required(5)  # error: no function
Agent[None, str]().on_approval_required(lambda name: name == "refund")  # error: it is given the arguments as well
