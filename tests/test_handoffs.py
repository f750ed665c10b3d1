"""Handoffs: one conversation in one chain, which goes from agent to agent; what each of them brings, and what the run keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from drivers import DRIVERS, Driver, outline, rows
from handoff_scenes import Office, to, went
from pydantic import BaseModel
from stop_scenes import EVERY

from phronomy import (
    Agent,
    AsyncRequired,
    ConfigurationError,
    GuardrailRefused,
    Handoff,
    InputFilterFailed,
    LimitExceeded,
    Limits,
    Memory,
    Message,
    ModelSettings,
    RunFailed,
    Store,
    ToolDefinitionError,
    tool,
    without_tool_calls,
)
from phronomy.guardrails.guardrail import MaxLength, Refuse, RefusePatterns, guardrail
from phronomy.models.base import ModelRequest
from phronomy.testing import ScriptedModel, call, say

OVER = "The conversation was handed over to"


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


def agent(name: str, *replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent with a model of its own."""
    return Agent(name=name, instructions=f"I am {name}.", model=ScriptedModel(list(replies), name=name), **options)


def requests_of(agent: Agent[Any, Any]) -> list[ModelRequest]:
    """What its own model was asked."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


# One chain


def test_a_conversation_goes_from_agent_to_agent_and_back_in_one_chain(driver: Driver, store: Store) -> None:
    office = Office(store, to("billing", "Paid twice."), to("triage"), to("refunds"), "All done.", driver=driver)
    result = office.run("I paid twice.")
    assert (result.status, result.output) == ("completed", "All done.")
    assert office.asked == ["triage", "billing", "triage", "refunds"]
    assert went(result) == ["triage > billing", "billing > triage", "triage > refunds"]
    assert outline(result) == [
        "user: I paid twice.",
        "assistant:  [transfer_to_billing]",
        f"tool (completed): {OVER} billing.\nPaid twice.",
        "assistant:  [transfer_to_triage]",
        f"tool (completed): {OVER} triage.",
        "assistant:  [transfer_to_refunds]",
        f"tool (completed): {OVER} refunds.",
        "assistant: All done.",
    ]
    stored = store.load(result.checkpoint.id)
    assert stored == result.checkpoint
    assert (stored.agent.name, stored.speaker, stored.original_input) == ("triage", "refunds", "I paid twice.")
    assert [(made.call, made.said) for made in stored.handoffs] == [("1.0", 3), ("2.0", 5), ("3.0", 7)]
    assert len({branch.run_id for branch in store.branches()}) == 1


def test_the_target_brings_all_that_is_its_own(driver: Driver) -> None:
    class Bill(BaseModel):
        amount: int

    @tool
    def bill() -> str:
        """Write the bill."""
        return "written"

    billing = agent(
        "billing",
        call("bill"),
        '{"amount": 7}',
        tools=[bill],
        settings=ModelSettings(temperature=0.5),
        output_type=Bill,
        memory=Memory(max_messages=2, trim_run=True),
    )
    triage = agent("triage", to("billing"), handoffs=[billing], settings=ModelSettings(temperature=0.1))
    assert driver.invoke(triage, "hi").output == Bill(amount=7)
    [first] = requests_of(triage)
    second, third = requests_of(billing)
    assert [request.system for request in (first, second, third)] == ["I am triage.", *["I am billing."] * 2]
    assert [request.settings.temperature for request in (first, second, third)] == [0.1, 0.5, 0.5]
    assert [[each["function"]["name"] for each in request.tools] for request in (first, second)] == [
        ["transfer_to_billing"],
        ["bill"],
    ]
    assert "response_format" in second.settings.extra
    assert "response_format" not in first.settings.extra
    assert [message.role for message in third.messages] == ["user", "assistant", "tool"]  # its memory holds two


def test_the_tool_says_who_the_target_is() -> None:
    office = Office(None, "done", way={"name": "ask_billing", "description": "For bills alone."})
    office.run()
    told = {each["function"]["name"]: each["function"] for each in office.model.requests[0].tools}
    assert told["ask_billing"]["description"] == "For bills alone."
    assert told["transfer_to_refunds"]["description"] == "Hands the conversation over to refunds. For refunds."
    [parameter] = told["transfer_to_refunds"]["parameters"]["properties"].items()
    assert parameter[0] == "message"
    assert parameter[1]["description"] == "What refunds should know beside the conversation."


def test_an_input_makes_the_message_of_its_own_parameters(driver: Driver) -> None:
    def about(order: int, why: str = "unknown") -> Any:
        """Ask billing.

        Args:
            order: The number of it.
        """
        return {"order": order, "why": why}

    ways = {"input": about}
    given = [call("transfer_to_billing", {"order": "x"}), call("transfer_to_billing", {"order": 3}), "done"]
    result = Office(None, *given, driver=driver, way=ways).run()
    assert outline(result)[2].startswith("tool (invalid): The arguments are not valid")
    assert outline(result)[4] == f'tool (completed): {OVER} billing.\n{{"order":3,"why":"unknown"}}'


@pytest.mark.parametrize("broken", ["raises", "nonsense"])
def test_an_input_that_fails_hands_nothing_over(driver: Driver, broken: str) -> None:
    def about() -> Any:
        """Ask billing."""
        if broken == "raises":
            raise LookupError("no order")
        return object()

    office = Office(None, call("transfer_to_billing"), "I do it myself.", driver=driver, way={"input": about})
    result = office.run()
    assert (went(result), office.asked, result.output) == ([], ["triage", "triage"], "I do it myself.")
    assert outline(result)[2].startswith("tool (failed): ")


# Several in a reply, and in a run


def test_of_two_handoffs_in_a_reply_the_first_is_made(driver: Driver) -> None:
    office = Office(None, [to("billing"), to("refunds"), call("look")], "done", driver=driver)
    result = office.run()
    assert (went(result), office.asked, office.done) == (["triage > billing"], ["triage", "billing"], ["look 1"])
    assert outline(result)[2:5] == [
        f"tool (completed): {OVER} billing.",
        "tool (invalid): The conversation goes to one agent at a time, so this handoff was not made.",
        "tool (completed): order 1 was paid twice",
    ]


def test_a_run_is_handed_over_so_often_and_no_more(driver: Driver) -> None:
    ways = [to("billing"), to("triage"), to("refunds"), "I am still triage."]
    office = Office(None, *ways, driver=driver, triage={"max_handoffs": 2}, billing={"max_handoffs": 50})
    result = office.run()
    assert (went(result), office.asked[-1]) == (["triage > billing", "billing > triage"], "triage")
    assert "There were 2 handoffs in this run, and no more are made" in outline(result)[6]
    office = Office(None, to("billing"), "alone", driver=driver, triage={"max_handoffs": 0})
    assert went(office.run()) == []


def test_limits_are_those_of_the_run_whoever_speaks(driver: Driver) -> None:
    ways = [to("billing"), to("triage")] * 5
    office = Office(None, *ways, driver=driver, triage={"limits": Limits(turns=3)}, billing={"limits": Limits(turns=1)})
    with pytest.raises(LimitExceeded) as stopped:
        office.run()
    assert office.asked == ["triage", "billing", "triage"]
    assert stopped.value.checkpoint is not None
    assert stopped.value.checkpoint.speaker == "billing"


# Refused at construction


def test_ways_that_lead_nowhere_are_refused_and_nothing_is_fixed() -> None:
    billing = agent("billing")
    twin = agent("billing")

    async def twice(messages: Sequence[Message]) -> Sequence[Message]:
        return messages

    @tool
    def transfer_to_billing() -> str:
        """Not a handoff."""
        return ""

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"handoffs": ["nobody"]}, "hands over to 'nobody', which is none of the agents"),
        ({"handoffs": [billing, twin]}, "are named 'billing'"),
        ({"handoffs": [agent("triage")]}, "are named 'triage'"),
        ({"handoffs": ["triage"]}, "hands over to itself"),
        ({"handoffs": [billing, "billing"]}, "two handoffs to 'billing'"),
        ({"handoffs": [billing], "tools": [transfer_to_billing]}, "a tool are both named 'transfer_to_billing'"),
        ({"handoffs": [Agent]}, "hands over to the class Agent"),
        ({"handoffs": [billing.as_tool]}, "hands over to a method"),
        ({"handoffs": "billing"}, "handoffs is a list"),
        ({"handoffs": billing}, "handoffs is a list"),
        ({"handoffs": [Handoff(billing, name="a b")]}, "'a b' cannot name a tool"),
        ({"handoffs": [Handoff(billing, requires_approval="yes")]}, "requires_approval"),  # type: ignore[arg-type]
        ({"handoffs": [Handoff(billing, approval_timeout=-1)]}, "approval_timeout"),
        ({"handoffs": [billing], "max_handoffs": -1}, "max_handoffs"),
        ({"handoffs": [Agent(name="mute")]}, "agent 'mute' has no model"),
    ]
    billing = agent("billing")  # the one above has made a tool of itself
    for options, why in wrong:
        with pytest.raises(ConfigurationError, match=why):
            agent("triage", **options).invoke("go")
    twin.name = "another"
    with pytest.raises(ConfigurationError, match="plain function of the messages"):
        Handoff(billing, input_filter=twice)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="plain function, whose parameters"):
        Handoff(billing, input=twice)
    with pytest.raises(ToolDefinitionError):
        agent("triage", handoffs=[Handoff(billing, input=lambda *rest: "")]).invoke("go")


def test_who_is_part_of_the_runs_is_fixed_once_they_have_begun() -> None:
    class Billing(Agent[Any, Any]):
        model: Any = "none"

    billing = Billing()
    triage = agent("triage", "done", handoffs=[billing], tools=[lambda: ""])
    with pytest.raises(ConfigurationError):
        triage.invoke("go")
    billing.model = ScriptedModel(["mended"])  # a configuration that was refused has fixed nothing
    triage = agent("triage", "done", handoffs=[billing])
    assert triage.invoke("go").output == "done"
    with pytest.raises(ConfigurationError, match=r"agent 'Billing' is part of the runs of 'triage'"):
        billing.model = ScriptedModel([])
    assert billing.invoke("go").output == "mended"  # and runs by itself, as it was


# What the target is shown


def test_an_input_filter_says_what_the_target_is_shown_and_changes_no_record(driver: Driver) -> None:
    office = Office(
        None,
        call("look"),
        to("billing", "Paid twice."),
        "done",
        driver=driver,
        way={"input_filter": without_tool_calls},
    )
    office.model = office.billing.model = model = ScriptedModel([call("look"), to("billing", "Paid twice."), "done"])
    office.triage.model = model
    result = office.run("hi")
    assert [message.text for message in model.requests[-1].messages] == ["hi", f"{OVER} billing.\nPaid twice."]
    assert len(outline(result)) == 6
    assert outline(result)[2] == "tool (completed): order 1 was paid twice"


def test_filters_are_one_after_the_other_and_see_what_the_one_before_has_left(driver: Driver) -> None:
    seen: list[list[str]] = []

    def last(messages: Sequence[Message]) -> list[Message]:
        seen.append([message.text for message in messages])
        return [message for message in messages if message.role != "user"][-2:]

    model = ScriptedModel([to("billing"), to("refunds"), "done"])
    refunds = Agent(name="refunds", model=model)
    billing = Agent(name="billing", model=model, handoffs=[Handoff(refunds, input_filter=last)])
    triage = Agent(name="triage", model=model, handoffs=[Handoff(billing, input_filter=without_tool_calls)])
    assert driver.invoke(triage, "hi").output == "done"
    assert seen == [["hi", f"{OVER} billing.", "", f"{OVER} refunds."]]
    assert [message.role for message in model.requests[-1].messages] == ["assistant", "tool"]


@pytest.mark.parametrize("dropped", [*combinations(range(5), 1), *combinations(range(5), 2), (0, 1, 2, 3, 4)], ids=str)
def test_a_filter_never_leaves_a_call_without_its_result(dropped: tuple[int, ...]) -> None:
    """The model of these tests refuses what a provider would."""

    def cut(messages: Sequence[Message]) -> list[Message]:
        return [message for place, message in enumerate(messages) if place not in dropped]

    model = ScriptedModel([call("look"), [call("look"), to("billing", "Hear me.")], "done"])
    assert Office(None, model=model, way={"input_filter": cut}).run("hi").output == "done"
    assert model.requests[-1].messages[-1].text == f"{OVER} billing.\nHear me."


@pytest.mark.parametrize("broken", ["raises", "none", "text", "others", "generator", "coroutine"])
def test_a_filter_that_fails_stops_the_run_before_the_model_and_it_goes_on_once_that_is_mended(
    driver: Driver, store: Store, broken: str
) -> None:
    async def later() -> list[Message]:
        return []

    def some(messages: Sequence[Message]) -> Any:
        yield messages[0]
        raise LookupError("secret")

    def bad(messages: Sequence[Message]) -> Any:
        if broken == "raises":
            raise LookupError("secret")
        if broken == "coroutine":
            return later()
        return {"none": None, "text": "hi", "others": [1], "generator": some(messages)}[broken]

    replies = [to("billing"), "done"]
    office = Office(store, *replies, driver=driver, way={"input_filter": bad})
    with pytest.raises(InputFilterFailed, match="input filter of handoff transfer_to_billing") as failed:
        office.run()
    assert isinstance(failed.value, RunFailed)
    assert "secret" not in str(failed.value)
    assert office.asked == ["triage"]
    at = failed.value.checkpoint
    assert at is not None
    assert (at.speaker, [branch.status for branch in store.branches()]) == ("billing", ["failed"])
    mended = Office(store, *replies, driver=driver)
    assert mended.resume(at).output == "done"
    assert mended.asked == ["billing"]


# What the run keeps, and what is of both


def test_options_of_a_call_are_for_whoever_speaks(driver: Driver) -> None:
    office = Office(
        None,
        driver=driver,
        model=ScriptedModel([]),
        billing={"settings": ModelSettings(temperature=0.5, max_tokens=9)},
        triage={"settings": ModelSettings(temperature=0.1)},
    )
    model = ScriptedModel([to("billing"), "secret"])
    with pytest.raises(GuardrailRefused):
        office.run(model=model, settings=ModelSettings(top_p=0.9), output_guardrails=[RefusePatterns(["secret"])])
    first, second = (request.settings for request in model.requests)
    assert (first.temperature, first.max_tokens, first.top_p) == (0.1, None, 0.9)
    assert (second.temperature, second.max_tokens, second.top_p) == (0.5, 9, 0.9)


def test_guardrails_of_the_run_and_of_whoever_speaks_both_look(driver: Driver) -> None:
    looked: list[str] = []

    def looks(name: str) -> Any:
        @guardrail(name=name)
        def look(value: Any) -> None:
            looked.append(name)

        return look

    def rails(name: str) -> dict[str, Any]:
        return {f"{stage}_guardrails": [looks(f"{name}-{stage}")] for stage in ("input", "output", "tool")}

    shared = MaxLength(100)
    home, member = rails("home"), rails("member")
    home["output_guardrails"] += [shared]
    member["output_guardrails"] = [shared, *member["output_guardrails"]]
    office = Office(None, call("look"), to("billing"), "done", driver=driver, triage=home, billing=member)
    assert office.run().output == "done"
    assert looked == ["home-input", "home-tool", "home-tool", "home-output", "member-output"]
    looked.clear()
    office = Office(None, to("billing"), to("triage"), "done", driver=driver, triage=home, billing=member)
    assert office.run().output == "done"
    assert looked == ["home-input", "home-tool", "home-tool", "member-tool", "home-output"]


def test_a_guardrail_may_refuse_a_handoff(driver: Driver) -> None:
    @guardrail
    def never(value: Any) -> Refuse:
        return Refuse("Not to billing.")

    office = Office(None, to("billing"), "alone", driver=driver, triage={"tool_guardrails": [never]})
    result = office.run()
    assert (went(result), office.asked, result.output) == ([], ["triage", "triage"], "alone")
    assert "Not to billing." in outline(result)[2]


def test_an_answer_that_waits_for_the_guardrails_of_a_member_waits_for_them_alone(driver: Driver, store: Store) -> None:
    """The run began with no guardrails of its own: that is no drift."""
    broken = [True]

    @guardrail
    def shaky(value: Any) -> None:
        if broken:
            raise LookupError

    office = Office(store, to("billing"), "done", driver=driver, billing={"output_guardrails": [shaky]})
    with pytest.raises(RunFailed) as failed:
        office.run()
    assert failed.value.checkpoint is not None
    broken.clear()
    assert office.resume(failed.value.checkpoint).output == "done"
    assert office.asked == ["triage", "billing"]


@pytest.mark.parametrize("what", ["tool", "filterless", "instructions", "predicate", "guardrail", "handler"])
def test_a_sync_call_is_refused_where_a_member_is_async(what: str) -> None:
    async def work(n: int = 1) -> str:
        """Work."""
        return ""

    async def asks(context: Any) -> Any:
        return False

    async def handler(name: str, args: dict[str, Any]) -> bool:
        return True

    async def look(value: Any) -> None:
        return None

    options: dict[str, dict[str, Any]] = {
        "tool": {"tools": [tool(work)]},
        "filterless": {},
        "instructions": {"instructions": asks},
        "predicate": {"handoffs": [Handoff("triage", requires_approval=asks)]},
        "guardrail": {"output_guardrails": [guardrail(look)]},
        "handler": {"on_approval_required": handler},
    }
    model = ScriptedModel(["done"] * 2)
    billing = Agent(**{"name": "billing", "model": model, **options[what]})
    triage = Agent(name="triage", model=model, handoffs=[billing])
    if what == "filterless":
        assert triage.invoke("go").output == "done"
        return
    with pytest.raises(AsyncRequired, match="of agent 'billing' is async: call ainvoke"):
        triage.invoke("go")
    assert (rows(triage.store), model.requests) == (rows(triage.store), [])
    assert asyncio.run(triage.ainvoke("go")).output == "done"


def test_what_is_async_of_home_is_told_of_home() -> None:
    async def handler(name: str, args: dict[str, Any]) -> bool:
        return True

    with pytest.raises(AsyncRequired, match="the approval handler of agent 'triage' is async"):
        Office(None, "done", triage={"on_approval_required": handler}).run()


def test_answers_of_an_output_type_are_asked_for_anew_of_whoever_speaks(driver: Driver) -> None:
    class Bill(BaseModel):
        amount: int

    billing = agent("billing", "seven", '{"amount": 7}', output_type=Bill)
    triage = agent("triage", to("billing"), handoffs=[billing])
    result = driver.invoke(triage, "hi")
    assert (result.output, result.checkpoint.refused) == (Bill(amount=7), 1)
    assert len(requests_of(triage)) == 1


def test_text_beside_the_handoff_stays_in_the_conversation(driver: Driver) -> None:
    office = Office(None, say("One moment.", to("billing")), "done", driver=driver)
    assert outline(office.run())[1] == "assistant: One moment. [transfer_to_billing]"


def test_the_answer_goes_to_the_run_and_both_drivers_give_the_same() -> None:
    found = [Office(None, to("billing"), to("refunds"), "x", driver=driver).run() for driver in (*DRIVERS, *EVERY)]
    assert len({tuple(outline(result)) for result in found}) == 1
    assert {result.checkpoint.speaker for result in found} == {"refunds"}
