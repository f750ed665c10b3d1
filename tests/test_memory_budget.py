"""Memory: a thread's conversation goes on from run to run; a budget bounds what the model is shown of it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pytest
from drivers import DRIVERS, STREAMED, Driver, open_kind, outline, rows
from hypothesis import given
from hypothesis import strategies as st
from redis_server import redis_url
from servers import postgres_schema, postgres_url

from phronomy import (
    Agent,
    Checkpoint,
    ConfigurationError,
    InstructionsContext,
    Memory,
    MemoryFailed,
    MemoryStore,
    Message,
    PostgresStore,
    RedisStore,
    RunFailed,
    StateGraph,
    Store,
    ToolCall,
    tool,
)
from phronomy.conversation.memory import estimate, shown
from phronomy.conversation.views import units, whole
from phronomy.models.formats.chat_completions import wire_message
from phronomy.testing import ScriptedModel, call, check_history, say


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind. One whose server does not start fails the test."""
    if request.param == "postgres":
        with postgres_schema() as schema, PostgresStore(postgres_url(), schema=schema) as store:
            yield store
    elif request.param == "redis":
        with RedisStore(redis_url()) as store:
            yield store
    else:
        with open_kind(request.param, tmp_path) as store:
            yield store


def one(message: Message) -> int:
    """Each message is one token."""
    return 1


def user(text: str) -> Message:
    return Message(role="user", content=text)


def says(text: str, *ids: str) -> Message:
    return Message(
        role="assistant", content=text, tool_calls=tuple(ToolCall(id=id, name="f", arguments="{}") for id in ids)
    )


def result(id: str, content: Any = "ok") -> Message:
    return Message(role="tool", tool_call_id=id, content=content, settlement="completed")


def lines(messages: Sequence[Message]) -> list[str]:
    """The messages as lines to compare."""
    return [f"{said.role}: {said.text}{''.join(f' [{each.name}]' for each in said.tool_calls)}" for said in messages]


def desk(store: Any, *script: Any, done: list[int] | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent that looks orders up, and refunds them once it may."""

    @tool
    def look(order: int) -> str:
        """Look an order up."""
        return f"saw {order}"

    @tool(requires_approval=True)
    def refund(order: int) -> str:
        """Refund an order."""
        if done is not None:
            done.append(order)
        return f"refunded {order}"

    return Agent(name="desk", model=ScriptedModel(script), tools=[look, refund], store=store, **options)


def asked(agent: Agent[Any, Any]) -> list[list[str]]:
    """What the model of the agent was shown, at each call of it."""
    assert isinstance(agent.model, ScriptedModel)
    return [lines(request.messages) for request in agent.model.requests]


TALK = (
    user("u1"),
    says("", "a", "b"),
    result("b"),
    result("a"),
    says("a1"),
    user("u2"),
    says("a2"),
    user("u3"),
    says("", "c"),
    result("c"),
)
"""Two runs that have ended, and one under way: 5, 2 and 3 messages."""


class State(TypedDict, total=False):
    said: str


# The view


@pytest.mark.parametrize(
    ("room", "expected"),
    [(1, TALK[7:]), (3, TALK[7:]), (4, TALK[7:]), (5, TALK[5:]), (9, TALK[5:]), (10, TALK), (100, TALK)],
)
def test_as_many_of_the_newest_messages_are_shown_as_fit_from_a_user_message_on(room: int, expected: Any) -> None:
    assert Memory(room, count=one).view(TALK) == expected
    assert Memory(max_messages=room).view(TALK) == expected
    assert Memory(1000, max_messages=room, count=one).view(list(TALK)) == expected
    assert Memory(room, max_messages=1000, count=one, trim_run=room > 3).view(TALK) == expected


@pytest.mark.parametrize(
    ("room", "expected"),
    [(1, [0, 5, 6]), (3, [0, 5, 6]), (4, [0, 5, 6]), (5, [0, 3, 4, 5, 6]), (6, [0, 3, 4, 5, 6]), (7, range(7))],
)
def test_a_run_that_is_too_long_by_itself_is_shown_whole_unless_it_may_be_trimmed(room: int, expected: Any) -> None:
    run = (user("u"), says("", "a"), result("a"), says("", "b"), result("b"), says("", "c"), result("c"))
    before = (user("before"), says("then"))
    assert Memory(room, count=one).view(before + run) == run
    assert Memory(room, count=one, trim_run=True).view(before + run) == tuple(run[place] for place in expected)
    assert Memory(max_messages=room, trim_run=True).view(before + run) == tuple(run[place] for place in expected)


def test_what_fits_is_shown_as_it_is_and_what_has_no_user_message_as_well_as_can_be() -> None:
    greeted = (says("Hello"), user("u1"), says("a1"), user("u2"))
    assert Memory(4, count=one).view(greeted) is greeted
    assert Memory(3, count=one).view(greeted) == greeted[1:]
    alone = (says("Hello"), says("", "a"), result("a"))
    assert Memory(1, count=one).view(alone) is alone
    assert Memory(1, count=one, trim_run=True).view(alone) == alone[1:]
    assert Memory(1).view(()) == ()


def test_no_more_is_counted_than_is_shown_and_one_message() -> None:
    counted: list[str] = []

    def count(message: Message) -> int:
        counted.append(message.text)
        return 1

    long = tuple(user(str(number)) for number in range(10_000))
    assert len(Memory(5, count=count).view(long)) == 5
    assert counted == ["9999", "9998", "9997", "9996", "9995", "9994"]
    counted.clear()
    assert len(Memory(2, count=count).view([user("u"), *(says(str(number)) for number in range(10))])) == 11
    assert counted == ["u", "9", "8"]  # the rest of the run is shown all the same


def test_tokens_are_estimated_from_bytes_calls_and_parts() -> None:
    assert estimate(user("x" * 400)) == 104
    assert estimate(user("я" * 200)) == 104
    assert estimate(Message(role="assistant")) == 4
    assert estimate(says("", "a")) == 4 + 4 + 1  # the call "f" with "{}" is three bytes
    thought = Message(role="assistant", content="", provider={"reasoning_content": "x" * 376})
    assert estimate(thought) == 4 + 100  # 400 bytes as JSON
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert estimate(Message(role="user", content=[{"type": "text", "text": "What is this?"}, picture])) == 4 + 4 + 1000
    assert Memory(1).count is estimate


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "give max_tokens, max_messages or both"),
        ({"max_tokens": 0}, "max_tokens is a whole number above 0"),
        ({"max_tokens": True}, "max_tokens is a whole number above 0"),
        ({"max_tokens": 1.5}, "max_tokens is a whole number above 0"),
        ({"max_messages": -1}, "max_messages is a whole number above 0"),
        ({"max_tokens": 1, "trim_run": 1}, "trim_run is True or False, not int"),
        ({"max_tokens": 1, "count": 3}, "count is a function of one message"),
        ({"max_tokens": 1, "count": str}, "count is a function of one message"),
        ({"max_tokens": 1, "count": None}, "count is a function of one message"),
    ],
)
def test_a_memory_that_cannot_be_is_refused_when_it_is_made(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Memory(**options)


def test_an_async_count_and_what_is_no_memory_are_refused() -> None:
    async def count(message: Message) -> int:
        return 1

    with pytest.raises(ConfigurationError, match="count is async"):
        Memory(1, count=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="agent 'desk': memory is a Memory or None, not int"):
        desk(None, memory=8000).invoke("Hi")


# The properties of views

TEXTS = st.text(alphabet="abя", max_size=6)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A conversation that a provider accepts; the last turn may be the user's, a call's or the assistant's."""
    said: list[Message] = []
    for number in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["user", "text", "calls"])):
            case "user":
                said.append(user(f"{number}{draw(TEXTS)}"))
            case "text":
                said.append(says(f"{number}{draw(TEXTS)}"))
            case _:
                ids = [f"{number}.{index}" for index in range(draw(st.integers(1, 3)))]
                said += [says(draw(TEXTS), *ids), *(result(id, draw(TEXTS)) for id in draw(st.permutations(ids)))]
    return tuple(said)


BOUNDS = st.none() | st.integers(1, 60)


@given(conversations(), BOUNDS, BOUNDS, st.booleans())
def test_each_view_is_accepted_by_a_provider_and_is_as_much_as_fits(
    said: tuple[Message, ...], tokens: int | None, number: int | None, trim_run: bool
) -> None:
    if tokens is None and number is None:
        tokens = 5
    memory = Memory(tokens, max_messages=number, trim_run=trim_run)
    copy = [message.model_dump_json() for message in said]
    view = memory.view(said)
    assert [message.model_dump_json() for message in said] == copy
    check_history(view)
    assert whole(view) == view
    assert memory.view(view) == view
    assert view[-1:] == said[-1:]

    users = [place for place, message in enumerate(said) if message.role == "user"]
    began = users[-1] if users else -1
    places = [next(place for place, each in enumerate(said) if each is message) for message in view]
    assert places == sorted(set(places))
    assert began < 0 or began in places
    before, run = [place for place in places if place < began], [place for place in places if place > began]
    assert not before or before == list(range(before[0], began))  # the newest before the run
    assert not run or run == list(range(run[0], len(said)))  # and of the run, if it is trimmed
    assert view == said or began < 0 or view[0].role == "user"

    def fits(messages: Sequence[Message]) -> bool:
        return (tokens is None or sum(map(estimate, messages)) <= tokens) and (
            number is None or len(messages) <= number
        )

    if (
        run and run[0] > began + 1
    ):  # the run is trimmed: then nothing stands before it, and its next older piece does not fit
        assert trim_run and not before
        older = max(place for place in range(began + 1, run[0]) if said[place].role == "assistant")
        assert not fits([*said[max(began, 0) : began + 1], *said[older:]])
    elif view != said:
        older = next((place for place in reversed(range(places[0])) if said[place].role == "user"), 0)
        assert not fits(said[older:])
    assert fits(view) or not before


@given(conversations(), st.integers(1, 60), st.integers(0, 20), st.booleans())
def test_a_larger_budget_shows_no_less(said: tuple[Message, ...], room: int, more: int, trim_run: bool) -> None:
    for small, large in (
        (Memory(room, trim_run=trim_run), Memory(room + more, trim_run=trim_run)),
        (Memory(max_messages=room, trim_run=trim_run), Memory(max_messages=room + more, trim_run=trim_run)),
        (Memory(room, trim_run=True), Memory(room, trim_run=False)),
    ):
        most = {id(message) for message in large.view(said)}
        assert all(id(message) in most for message in small.view(said))


@given(st.lists(st.sampled_from(TALK) | st.builds(result, st.sampled_from("abcx")), max_size=14))
def test_whatever_is_made_whole_is_accepted_and_what_was_whole_is_untouched(said: list[Message]) -> None:
    used: set[str] = set()
    told = []
    for message in said:  # a provider takes each id once, which is not what this is about
        if used.isdisjoint(each.id for each in message.tool_calls):
            used.update(each.id for each in message.tool_calls)
            told.append(message)
    mended = whole(told)
    check_history(mended)
    assert whole(mended) == mended
    assert [message for message in mended if message.role == "user"] == [each for each in told if each.role == "user"]
    spoken = [each.text for each in told if each.role == "assistant" and each.text]
    assert [each.text for each in mended if each.role == "assistant" and each.text] == spoken
    assert [message for unit in units(told) for message in unit] == told


def test_what_a_provider_put_beside_a_call_goes_along_with_it() -> None:
    beside = {"signature": "s", "phronomy": {"own": 1, "calls": {"0": {"index": 0}, "2": {"index": 2}}}}
    said = says("Let me look.", "a", "b", "c").evolve(
        provider=Message(role="assistant", provider=beside).json_text("provider")
    )
    mended = whole([said, result("c"), result("c"), user("u"), result("a")])
    assert [(each.role, each.tool_call_id) for each in mended] == [("assistant", None), ("tool", "c"), ("user", None)]
    assert mended[0].provider == {"signature": "s", "phronomy": {"own": 1, "calls": {"0": {"index": 2}}}}
    wire = wire_message(mended[0])
    assert (wire["signature"], [(each["id"], each["index"]) for each in wire["tool_calls"]]) == ("s", [("c", 2)])

    only = says("", "a").evolve(
        provider=Message(role="assistant", provider={"phronomy": {"calls": {}}}).json_text("provider")
    )
    assert whole([user("u"), only]) == (user("u"),)
    spoken = only.evolve(content=user("Wait.").json_text("content"))
    assert [(wire_message(each), each.provider) for each in whole([spoken])] == [
        ({"role": "assistant", "content": "Wait."}, {})
    ]
    assert whole([says("Wait.", "a")]) == (says("Wait."),)


def test_an_assistants_message_and_what_answers_it_are_one_unit() -> None:
    said = [result("x"), user("u"), result("x"), says("", "a", "b"), result("b"), result("a"), says("a1"), user("u")]
    assert [len(unit) for unit in units(said)] == [1, 1, 1, 3, 1, 1]


def test_of_two_calls_of_one_id_with_one_result_one_stays() -> None:
    assert lines(whole([says("", "a", "a"), result("a")])) == ["assistant:  [f]", "tool: ok"]


# Threads


def test_a_thread_is_the_memory_of_all_agents_that_share_its_store(driver: Driver, everywhere: Store) -> None:
    agent = desk(everywhere, call("look", {"order": 7}), "A kettle.", memory=Memory(max_messages=4))
    driver.invoke(agent, "What is order 7?", thread_id="t")
    agent = desk(everywhere, "Yes.", memory=Memory(max_messages=4))
    driver.invoke(agent, "Is it blue?", thread_id="t")
    assert asked(agent) == [["user: Is it blue?"]]  # the run before it has four messages

    agent = desk(everywhere, "Two pounds.", memory=Memory(max_messages=4))
    last = driver.invoke(agent, "How heavy?", thread_id="t")
    assert asked(agent) == [["user: Is it blue?", "assistant: Yes.", "user: How heavy?"]]
    record = [
        "user: What is order 7?",
        "assistant:  [look]",
        "tool (completed): saw 7",
        "assistant: A kettle.",
        "user: Is it blue?",
        "assistant: Yes.",
        "user: How heavy?",
        "assistant: Two pounds.",
    ]
    assert outline(everywhere.load(last.checkpoint.id)) == record
    driver.invoke(agent := desk(everywhere, "Bye."), "Thanks", thread_id="t")
    assert len(asked(agent)[0]) == 9  # an agent without a budget is shown all of it
    driver.invoke(agent := desk(everywhere, "Hello.", memory=Memory(1)), "Hi", thread_id="another")
    assert asked(agent) == [["user: Hi"]]


def test_an_approval_is_decided_elsewhere_and_the_model_sees_the_same_trimmed_view(
    driver: Driver, everywhere: Store
) -> None:
    done: list[int] = []
    driver.invoke(desk(everywhere, "Hello."), "Hi", thread_id="t")
    memory = Memory(2, count=one)
    first = desk(everywhere, [call("look", {"order": 7}), call("refund", {"order": 7})], memory=memory, done=done)
    waits = driver.invoke(first, "Refund 7", thread_id="t")
    assert (waits.status, asked(first), done) == ("suspended", [["user: Refund 7"]], [])

    second = desk(everywhere, "Refunded.", memory=memory, done=done)
    end = driver.resume(second, waits.checkpoint.id, approved=True)
    run = ["user: Refund 7", "assistant:  [look] [refund]", "tool: saw 7", "tool: refunded 7"]
    assert (end.output, asked(second), done) == ("Refunded.", [run], [7])
    assert lines(end.messages) == ["user: Hi", "assistant: Hello.", *run, "assistant: Refunded."]
    assert second.drift(waits.checkpoint).compatible == ()


@pytest.mark.parametrize("trim_run", [False, True])
def test_a_run_with_many_calls_keeps_its_input_before_the_model(driver: Driver, store: Store, trim_run: bool) -> None:
    script = [call("look", {"order": number}) for number in range(4)]
    driver.invoke(desk(store, "Hello."), "Hi", thread_id="t")
    agent = desk(store, *script, "All seen.", memory=Memory(4, count=one, trim_run=trim_run))
    end = driver.invoke(agent, "Look", thread_id="t")
    pairs = [["assistant:  [look]", f"tool: saw {number}"] for number in range(4)]
    kept = [pairs[max(0, turn - 1) * trim_run : turn] for turn in range(1, 5)]
    assert asked(agent)[1:] == [["user: Look", *(line for pair in some for line in pair)] for some in kept]
    assert asked(agent)[0] == ["user: Hi", "assistant: Hello.", "user: Look"]
    assert len(end.messages) == 12


def test_a_refused_answer_is_not_taken_for_the_input(driver: Driver, store: Store) -> None:
    driver.invoke(desk(store, "Hello."), "Hi", thread_id="t")
    for trim_run, left in ((False, 5), (True, 3)):
        agent = desk(
            store, "one", "two", '{"answer": 3}', output_type=int, memory=Memory(1, count=one, trim_run=trim_run)
        )
        assert driver.invoke(agent, "How many?", thread_id="t").output == 3
        seen = asked(agent)[-1]
        assert (seen[0], seen[-2], len(seen)) == ("user: How many?", "assistant: two", left)
        assert seen[-1].startswith("user: That answer cannot be used")


def test_of_what_is_left_of_a_conversation_the_input_of_the_run_is_kept_where_it_is_there() -> None:
    state = desk(None, "one", '{"answer": 3}', output_type=int).invoke("How many?", messages=TALK[:7]).checkpoint
    assert lines(state.messages)[7:9] == ["user: How many?", "assistant: one"]
    state = state.evolve(messages=state.messages[:-1], turn=1)  # as it was when the model was asked anew
    memory = Memory(1, count=one)
    assert shown(None, state) is state.messages
    assert shown(memory, state) == state.messages[7:]
    assert shown(memory, state, state.messages[5:]) == state.messages[7:]
    assert shown(memory, state, state.messages[8:]) == state.messages[9:]  # without the input, the last of the user
    assert shown(None, state, TALK) is TALK
    assert shown(memory, state.evolve(turn=99), TALK[:7]) == TALK[5:7]


def test_a_history_of_ones_own_is_trimmed_as_the_threads(driver: Driver, store: Store) -> None:
    agent = desk(store, "Yes.", memory=Memory(6, count=one))
    end = driver.invoke(agent, "Really?", messages=TALK[:7])
    assert asked(agent) == [["user: u2", "assistant: a2", "user: Really?"]]
    assert end.messages[:7] == TALK[:7]


def test_a_fork_and_a_restored_checkpoint_remember_what_was_said_up_to_there(driver: Driver, store: Store) -> None:
    memory = Memory(3, count=one)
    first = driver.invoke(desk(store, "One."), "1", thread_id="t").checkpoint
    waits = driver.invoke(desk(store, call("refund", {"order": 7}), memory=memory), "2", thread_id="t").checkpoint
    forked = driver.fork(desk(store), waits)
    driver.resume(agent := desk(store, "No.", memory=memory), waits, approved=False)
    assert asked(agent)[0][0] == "user: 2"
    driver.resume(agent := desk(store, "Done.", memory=memory), forked, approved=True)
    assert asked(agent) == [["user: 2", "assistant:  [refund]", "tool: refunded 7"]]

    back: Checkpoint = driver.call(desk(store), "restore", first)
    driver.invoke(agent := desk(store, "Three.", memory=memory), "3", thread_id="t")
    assert (back.status, asked(agent)) == ("completed", [["user: 1", "assistant: One.", "user: 3"]])


def test_instructions_see_the_whole_conversation_and_may_tell_of_what_is_left_out(driver: Driver, store: Store) -> None:
    memory = Memory(1, count=one)

    def told(input: str, context: InstructionsContext[Any]) -> str:
        return f"{len(context.messages) - len(memory.view(context.messages))} messages before"

    driver.invoke(desk(store, "Hello."), "Hi", thread_id="t")
    driver.invoke(agent := desk(store, "Yes.", memory=memory, instructions=told), "Well?", thread_id="t")
    assert isinstance(agent.model, ScriptedModel)
    assert (agent.model.requests[0].system, asked(agent)) == ("2 messages before", [["user: Well?"]])


@pytest.mark.parametrize("driver", [*DRIVERS, *STREAMED], ids=str)
def test_an_agent_in_a_node_has_its_budget_streamed_or_not(driver: Driver, store: Store) -> None:
    looks = [call("look", {"order": 1}), call("look", {"order": 2})]
    agent = desk(None, *looks, "Seen.", memory=Memory(1, trim_run=True))
    graph = StateGraph(State, name="g")
    graph.add_node("ask", agent, input="said", output="said")
    graph.set_entry_point("ask")
    graph.set_finish_point("ask")
    compiled: Any = graph.compile(store=store)
    end: Any = driver.invoke(compiled, {"said": "Look"})
    assert end.output["said"] == "Seen."
    assert asked(agent)[-1] == ["user: Look", "assistant:  [look]", "tool: saw 2"]


# When it goes wrong


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ZeroDivisionError("secret"), "raised ZeroDivisionError"),
        (1.5, "whole number of 0 or more, not float 1.5"),
        (-1, "whole number of 0 or more, not int -1"),
        (True, "not bool True"),
        ("secret", "not str$"),
        (None, "not NoneType$"),
    ],
)
def test_a_count_that_fails_loses_nothing(driver: Driver, store: Store, given: Any, why: str) -> None:
    def count(message: Message) -> int:
        if message.role == "tool" and broken:
            if isinstance(given, Exception):
                raise given
            return given  # type: ignore[no-any-return]
        return 1

    broken, done = [1], list[int]()
    options: dict[str, Any] = {"memory": Memory(100, count=count), "done": done}
    waits = driver.invoke(desk(store, call("refund", {"order": 7}), **options), "Refund 7", thread_id="t")
    with pytest.raises(MemoryFailed, match=why) as failed:
        driver.resume(desk(store, **options), waits.checkpoint, approved=True)
    assert isinstance(failed.value, RunFailed) and "secret" not in str(failed.value)
    assert (failed.value.run_id, done) == (waits.run_id, [7])
    before = rows(store)
    with pytest.raises(MemoryFailed, match=why):
        Memory(1, count=count).view([user("u"), says("", "a"), result("a")])
    assert rows(store) == before

    broken.clear()
    assert failed.value.checkpoint is not None
    end = driver.resume(agent := desk(store, "Done.", **options), failed.value.checkpoint)
    assert (end.output, done, len(asked(agent)[0])) == ("Done.", [7], 3)


def test_a_count_is_only_asked_where_tokens_are_bounded() -> None:
    def count(message: Message) -> int:
        raise AssertionError("it was asked")

    assert Memory(max_messages=3, count=count).view(TALK) == TALK[7:]


def test_another_memory_is_compatible_drift(driver: Driver, store: Store) -> None:
    waits = driver.invoke(desk(store, call("refund", {"order": 7}), memory=Memory(100)), "Refund 7").checkpoint
    assert desk(store, memory=Memory(100)).drift(waits).compatible == ()
    for other in (None, Memory(99), Memory(100, max_messages=5), Memory(100, trim_run=True), Memory(100, count=one)):
        drift = desk(store, memory=other).drift(waits)
        assert (drift.changed, drift.compatible) == ((), ("the memory changed",))


def test_without_a_memory_the_messages_are_handed_on_as_they_are() -> None:
    agent = desk(MemoryStore(), say("Hello."))
    end = agent.invoke("Hi", messages=TALK[:7])
    assert isinstance(agent.model, ScriptedModel)
    assert all(a is b for a, b in zip(agent.model.requests[0].messages, end.messages, strict=False))
    assert "memory" not in end.checkpoint.agent.fingerprint
