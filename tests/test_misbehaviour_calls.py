"""What a misbehaving model gets: bad arguments, unknown tools, repeated ids, too much at once, text that is no text."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from drivers import PATIENCE, Driver, outline, rows

from phronomy import Agent, Approve, Checkpoint, CheckpointError, ConfigurationError, ModelError, Reject, tool
from phronomy.records.messages import Message
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say

Done = list[tuple[Any, ...]]


def clerk(driver: Driver, replies: list[Any], **options: Any) -> tuple[Agent[Any, str], Done, ScriptedModel]:
    """An agent that may `look` unasked and `refund` when approved; what its tools did; and its model."""
    done: Done = []

    def look(order: int, note: str = "none") -> str:
        """Look an order up."""
        done.append(("look", order, note))
        return f"order {order}"

    def refund(order: int, amount: float = 5.0, why: Any = None) -> str:
        """Refund an order."""
        done.append(("refund", order, amount))
        return f"refunded {order}"

    model = ScriptedModel(replies)
    tools = [tool(driver.function(look)), tool(requires_approval=True)(driver.function(refund))]
    return Agent(name="clerk", model=model, tools=tools, instructions="Be exact.", **options), done, model


def kept(checkpoint: Checkpoint, store: Store) -> None:
    """The checkpoint can be read back from its dump and from its store, and is the same."""
    text = checkpoint.model_dump_json()
    assert json.loads(text)["id"] == checkpoint.id
    assert Checkpoint.model_validate_json(text) == checkpoint
    assert Checkpoint.model_validate_json(text.encode()).model_dump_json() == text
    assert store.load(checkpoint.id).model_dump_json() == text
    assert [each.id for each in store.history(checkpoint.id)][-1] == checkpoint.id


# Arguments


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param("refund order one, please", "not JSON", id="not-json"),
        pytest.param('{"order": 1, "amount": 2.', "not JSON", id="cut-by-the-length-limit"),
        pytest.param('{"order": 1, "why": "bro', "not JSON", id="cut-in-a-string"),
        pytest.param('{"order": 1}{"order": 2}', "not JSON", id="two-objects"),
        pytest.param("{'order': 1}", "not JSON", id="python-repr"),
        pytest.param("[1]", "must be a JSON object", id="list"),
        pytest.param('"1"', "must be a JSON object", id="text"),
        pytest.param("null", "must be a JSON object", id="null"),
        pytest.param("true", "must be a JSON object", id="true"),
        pytest.param('{"order": 1, "order": 2}', "stands twice", id="key-twice"),
        pytest.param("", "order: Field required", id="no-text-at-all"),
        pytest.param("{}", "order: Field required", id="missing"),
        pytest.param('{"order": 1, "to": "me"}', "to: Extra inputs", id="extra"),
        pytest.param('{"order": "one"}', "order: ", id="wrong-type"),
        pytest.param('{"order": null}', "order: ", id="null-for-a-number"),
        pytest.param('{"order": 1.5}', "order: ", id="not-whole"),
        pytest.param('{"order": [1]}', "order: ", id="list-for-a-number"),
        pytest.param('{"order": 1, "amount": NaN}', "NaN is not JSON", id="nan"),
        pytest.param('{"order": 1, "amount": -Infinity}', "-Infinity is not JSON", id="infinity"),
        pytest.param('{"order": 1, "amount": 1e999}', "out of range", id="too-large"),
        pytest.param('{"order": 1, "__class__": "x"}', "two underscores", id="dunder-key"),
        pytest.param('{"order": 1, "why": {"__init__": {}}}', "two underscores", id="nested-dunder-key"),
        pytest.param('{"order":1,"why":' + "[" * 1000 + "]" * 1000 + "}", "nested deeper than 64", id="depth-1000"),
        pytest.param(
            '{"order":1,"why":' + '{"a":' * 1000 + "1" + "}" * 1000 + "}", "deeper than 64", id="objects-1000"
        ),
        pytest.param("[" * 100_000, "nested deeper than 64", id="depth-100000"),
    ],
)
def test_arguments_that_cannot_be_used_are_an_error_result_to_the_model(
    driver: Driver, store: Store, arguments: str, why: str
) -> None:
    """Arguments that are not JSON, not an object, or cut by the length limit; a missing, extra or wrongly typed
    argument; args with dunder keys, NaN or a depth of a thousand: an error result to the model; the run stays loadable.
    """
    replies = [say(None, call("refund", arguments), finish_reason="length"), "sorry"]
    agent, done, model = clerk(driver, replies, store=store)

    result = driver.invoke(agent, "go", thread_id="t")

    assert (result.status, result.output, done) == ("completed", "sorry", [])
    _, asked, told, _ = result.messages
    assert asked.tool_calls[0].arguments == arguments
    assert (told.settlement, told.tool_call_id) == ("invalid", "call_1")
    assert told.text.startswith("The arguments are not valid, so nothing was run.")
    assert why in told.text
    assert [message.text for message in model.requests[1].messages] == ["go", "", told.text]
    assert store.pending() == []
    for checkpoint in store.history(result.checkpoint.id):
        kept(checkpoint, store)


def test_an_error_in_one_call_does_not_touch_its_siblings(driver: Driver) -> None:
    """A missing, extra or wrongly typed argument beside calls that are right: each call is judged by itself."""
    replies = [
        [call("look", "{"), call("look", {"order": 2}), call("refund", {"order": "x"}), call("refund", {"order": 3})],
        "done",
    ]
    agent, done, _ = clerk(driver, replies)

    result = driver.invoke(agent, "go")

    assert done == [("look", 2, "none")]
    assert [(item.tool_name, item.args) for item in result.checkpoint.pending] == [
        ("refund", {"order": 3, "amount": 5.0, "why": None})
    ]
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert done == [("look", 2, "none"), ("refund", 3, 5.0)]
    assert [message.settlement for message in result.messages[2:6]] == ["invalid", "completed", "invalid", "completed"]


def test_what_is_shown_is_what_was_validated_and_default_filled(driver: Driver) -> None:
    """A wrongly typed argument that can be read as the right type is shown, and run, as that type. Law 2."""
    agent, done, _ = clerk(driver, [call("refund", '{ "amount": 7, "order": "12" }'), "done"])

    result = driver.invoke(agent, "go")

    assert result.checkpoint.pending_tool_args == {"order": 12, "amount": 7.0, "why": None}
    driver.resume(agent, result.checkpoint, approved=True)
    assert done == [("refund", 12, 7.0)]
    assert result.messages[1].tool_calls[0].arguments == '{ "amount": 7, "order": "12" }'


def test_an_unknown_tool_is_an_error_result_that_names_the_tools(driver: Driver) -> None:
    """An unknown tool: the model is told, and nothing else happens."""
    agent, done, model = clerk(driver, [[call("wire", {"order": 1}), call("look", {"order": 1})], "sorry"])

    result = driver.invoke(agent, "go")

    assert (result.status, done) == ("completed", [("look", 1, "none")])
    assert outline(result) == [
        "user: go",
        "assistant:  [wire] [look]",
        "tool (invalid): There is no tool named 'wire'. The tools are: look, refund.",
        "tool (completed): order 1",
        "assistant: sorry",
    ]
    assert len(model.requests) == 2


@pytest.mark.parametrize("name", ["", "look ", "Look", "__import__", "look\x00", "n" * 5000, "\ud800", "../look"])
def test_a_strange_tool_name_is_an_unknown_tool(driver: Driver, store: Store, name: str) -> None:
    """An unknown tool, whatever its name looks like."""
    agent, done, _ = clerk(driver, [call(name, {"order": 1}), "sorry"], store=store)

    result = driver.invoke(agent, "go")

    assert (result.output, done, result.messages[2].settlement) == ("sorry", [], "invalid")
    assert len(result.messages[2].text) < 300
    kept(result.checkpoint, store)


# Call ids


@pytest.mark.parametrize("ids", [("same", "same"), ("", ""), ("", "call_1_1"), ("call_1_1", "")])
def test_two_calls_with_one_id_or_an_empty_one_get_a_result_each(
    driver: Driver, store: Store, ids: tuple[str, str]
) -> None:
    """Two calls with one id, or with an empty one: each has an id of its own, and its own result."""
    replies = [[call("look", {"order": order}, id=id) for order, id in enumerate(ids)], "done"]
    agent, done, _ = clerk(driver, replies, store=store)

    result = driver.invoke(agent, "go")

    assert result.output == "done"
    assert sorted(done) == [("look", 0, "none"), ("look", 1, "none")]
    made = result.messages[1].tool_calls
    assert len({each.id for each in made}) == 2
    assert all(each.id for each in made)
    assert tuple(each.id if each.original_id is None else each.original_id for each in made) == ids
    assert [(message.tool_call_id, message.text) for message in result.messages[2:4]] == [
        (made[0].id, "order 0"),
        (made[1].id, "order 1"),
    ]
    kept(result.checkpoint, store)


@pytest.mark.parametrize("id", ["same", ""])
def test_two_gated_calls_with_one_id_are_two_approvals(driver: Driver, store: Store, id: str) -> None:
    """Two calls with one id, both gated: the approval of one says nothing about the other. field failure 5, 42"""
    replies = [[call("refund", {"order": 1}, id=id), call("refund", {"order": 1}, id=id)], "done"]
    agent, done, _ = clerk(driver, replies, store=store)

    result = driver.invoke(agent, "go")
    first, second = result.checkpoint.pending
    assert first.id != second.id
    assert first.call_id != second.call_id

    result = driver.resume(agent, result.checkpoint, decisions={second.id: Approve()})
    assert done == [("refund", 1, 5.0)]
    assert [item.id for item in result.checkpoint.pending] == [first.id]

    result = driver.resume(agent, result.checkpoint, decisions={first.id: Reject()})
    assert done == [("refund", 1, 5.0)]
    assert [message.settlement for message in result.messages[2:4]] == ["rejected", "completed"]


def test_the_same_id_in_a_later_turn_is_asked_about_anew(driver: Driver, store: Store) -> None:
    """The same id again in a later turn: no approval is carried over, even of the same call. field failure 5, 7"""
    again = [call("refund", {"order": 1}, id="one")]
    agent, done, _ = clerk(driver, [again, again, again, "done"], store=store)

    result = driver.invoke(agent, "go")
    first = result.checkpoint.pending[0]
    result = driver.resume(agent, result.checkpoint, approved=True)
    second = result.checkpoint.pending[0]
    assert (len(done), first.call_id, first.digest) == (1, "one", second.digest)
    assert second.id != first.id
    assert second.call_id != "one"

    result = driver.resume(agent, result.checkpoint, approved=False)
    third = result.checkpoint.pending[0]
    assert len({first.id, second.id, third.id}) == len({first.call_id, second.call_id, third.call_id}) == 3
    result = driver.resume(agent, result.checkpoint, approved=False)

    assert (result.output, len(done)) == ("done", 1)
    assert [message.settlement for message in result.messages if message.role == "tool"] == [
        "completed",
        "rejected",
        "rejected",
    ]
    assert [each.original_id for message in result.messages for each in message.tool_calls] == [None, "one", "one"]
    kept(result.checkpoint, store)


@pytest.mark.parametrize("thread", ["same-thread", "another-thread", None])
def test_the_same_id_in_another_run_is_asked_about_anew(driver: Driver, store: Store, thread: str | None) -> None:
    """The same id again in another run, of the same thread or another: nothing is inherited. field failure 7, 34"""
    one = call("refund", {"order": 1}, id="one")
    agent, done, _ = clerk(driver, [one, "first", one, "second"], store=store)

    result = driver.invoke(agent, "go", thread_id="same-thread")
    first = result.checkpoint.pending[0]
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.output, len(done)) == ("first", 1)

    result = driver.invoke(agent, "go", thread_id=thread)
    assert (result.status, len(done)) == ("suspended", 1)
    second = result.checkpoint.pending[0]
    assert second.id != first.id
    assert (second.call_id == "one") == (thread != "same-thread")
    result = driver.resume(agent, result.checkpoint, approved=False)
    assert (result.output, len(done)) == ("second", 1)
    kept(result.checkpoint, store)


# Many calls


def test_ten_parallel_calls_keep_their_order_and_only_the_gated_wait(driver: Driver, store: Store) -> None:
    """Ten parallel calls: those that need no approval run, all others wait together, results stand in call order."""
    gated = (1, 4, 5, 9)
    calls = [call("refund" if n in gated else "look", {"order": n}) for n in range(10)]
    agent, done, model = clerk(driver, [calls, "done"], store=store)

    result = driver.invoke(agent, "go")

    assert result.suspended
    assert sorted(done) == [("look", n, "none") for n in range(10) if n not in gated]
    assert [item.args["order"] for item in result.checkpoint.pending] == list(gated)
    assert [each.status for each in result.checkpoint.calls] == [
        "pending" if n in gated else "settled" for n in range(10)
    ]
    kept(result.checkpoint, store)

    ids = [item.id for item in result.checkpoint.pending]
    answers = {ids[3]: Approve(), ids[0]: Approve(), ids[2]: Reject(), ids[1]: Approve()}
    result = driver.resume(agent, result.checkpoint, decisions=answers)

    assert result.output == "done"
    assert sorted(each for each in done if each[0] == "refund") == [("refund", n, 5.0) for n in (1, 4, 9)]
    wanted = [f"refunded {n}" if n in gated else f"order {n}" for n in range(10)]
    wanted[5] = "A human rejected this call, so it was not run."
    assert [message.text for message in result.messages[2:12]] == wanted
    assert [message.tool_call_id for message in result.messages[2:12]] == [f"call_{n}" for n in range(1, 11)]
    assert len(model.requests) == 2
    kept(result.checkpoint, store)


def test_parallel_calls_run_side_by_side_within_the_bound(driver: Driver) -> None:
    """Ten parallel calls: three at a time, which meet; never a fourth."""
    meeting = threading.Barrier(3)
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    def work(n: int) -> str:
        """Work until three do."""
        with lock:
            running.append(n)
            most.append(len(running))
        if n < 9:
            meeting.wait(PATIENCE)
        with lock:
            running.remove(n)
        return str(n)

    model = ScriptedModel([[call("work", {"n": n}) for n in range(10)], "done"])
    agent = Agent(model=model, tools=[work], max_parallel=3)

    result = driver.invoke(agent, "go")

    assert max(most) == 3
    assert [message.text for message in result.messages[2:12]] == [str(n) for n in range(10)]


# Text


def test_text_beside_tool_calls_is_kept_and_is_not_the_output(driver: Driver, store: Store) -> None:
    """Text beside tool calls: it stays in the message, and the model reads it again after the resume."""
    agent, _, model = clerk(driver, [say("One moment.", call("refund", {"order": 1})), "done"], store=store)

    result = driver.invoke(agent, "go")
    assert (result.status, result.output) == ("suspended", None)
    assert outline(result) == ["user: go", "assistant: One moment. [refund]"]
    kept(result.checkpoint, store)

    result = driver.resume(agent, result.checkpoint.id, approved=True)
    assert result.output == "done"
    assert [message.text for message in model.requests[1].messages] == ["go", "One moment.", "refunded 1"]


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param("", id="empty-text"),
        pytest.param(Message(role="assistant", content=None), id="null"),
        pytest.param(Message(role="assistant", content=[]), id="no-parts"),
        pytest.param(Message(role="assistant", content=[{"type": "thinking", "thinking": "hm"}]), id="no-text-part"),
    ],
)
def test_an_empty_reply_ends_the_run_with_an_empty_output(driver: Driver, store: Store, empty: Any) -> None:
    """An empty reply: the run completes, and its thread can go on."""
    agent, _, model = clerk(driver, [empty, "there"], store=store)

    result = driver.invoke(agent, "hello?", thread_id="t")
    assert (result.status, result.output, len(model.requests)) == ("completed", "", 1)
    kept(result.checkpoint, store)

    result = driver.invoke(agent, "still there?", thread_id="t")
    assert result.output == "there"
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "user"]


def test_an_empty_input_and_empty_args_are_fine(driver: Driver, store: Store) -> None:
    """An empty reply's mirror: empty input, and a call of a tool without parameters whose arguments are no text."""
    done: list[str] = []

    def now() -> str:
        """Say what time it is."""
        done.append("now")
        return ""

    model = ScriptedModel([[call("now", ""), call("now", " "), call("now", "{}")], ""])
    agent = Agent(model=model, tools=[driver.function(now)], store=store)

    result = driver.invoke(agent, "")

    assert (result.status, result.output, done) == ("completed", "", ["now"] * 3)
    assert [message.settlement for message in result.messages[2:5]] == ["completed"] * 3
    kept(result.checkpoint, store)


# Lone surrogates


def test_lone_surrogates_are_replaced_wherever_they_come_in(driver: Driver, store: Store) -> None:
    """Lone surrogates in input, arguments, results, tool text and answers: U+FFFD, and the run stays loadable."""
    bad, good = "a\ud800b", "a\ufffdb"
    seen: list[str] = []

    def echo(text: str) -> str:
        """Echo."""
        seen.append(text)
        return f"{text}|\udfff"

    def fail(text: str) -> str:
        """Fail."""
        raise RuntimeError(f"{text}|\udfff")

    def bag(text: str) -> dict[str, str]:
        """Give a mapping."""
        return {"text": text, "more": "\udfff"}

    replies = [
        say(
            bad,
            call("echo", json.dumps({"text": bad}), id=bad),
            call("echo", '{"text": "' + bad + '"}'),
            call("fail", {"text": bad}),
            call("bag", {"text": bad}),
            provider={"thinking": bad},
        ),
        bad,
    ]
    model = ScriptedModel(replies)
    tools = [
        tool(requires_approval=name == "echo", name=name)(driver.function(body))
        for name, body in (("echo", echo), ("fail", fail), ("bag", bag))
    ]
    agent = Agent(model=model, tools=tools, store=store, instructions=lambda given: f"for {given}")

    result = driver.invoke(agent, bad, thread_id=bad, metadata={"who": bad}, label=bad)
    assert [item.args for item in result.checkpoint.pending] == [{"text": good}, {"text": good}]
    kept(result.checkpoint, store)
    result = driver.resume(agent, result.checkpoint, decisions={result.checkpoint.pending[0].id: Reject(reason=bad)})
    result = driver.resume(agent, result.checkpoint, approved=True, by=bad, channel=bad)

    assert (result.status, result.output, seen) == ("completed", good, [good])
    assert result.checkpoint.original_input == good
    assert result.thread_id == good
    assert result.checkpoint.metadata == {"who": good}
    assert model.requests[0].system == f"for {good}"
    assert [message.text for message in result.messages[2:]] == [
        f"A human rejected this call, so it was not run. Reason: {good}",
        f"{good}|\ufffd",
        f"RuntimeError: {good}|\ufffd",
        f'{{"text":"{good}","more":"\ufffd"}}',
        good,
    ]
    kept(result.checkpoint, store)
    latest = store.latest(good)
    assert latest is not None
    assert latest.id == result.checkpoint.id


def test_a_thread_id_with_a_lone_surrogate_is_one_thread(driver: Driver, store: Store) -> None:
    """Lone surrogates in a thread id: the thread is found again under what was given."""
    agent, _, model = clerk(driver, ["one", "two"], store=store)

    driver.invoke(agent, "first", thread_id="a\ud800b")
    driver.invoke(agent, "second", thread_id="a\ud800b")

    assert [message.text for message in model.requests[1].messages] == ["first", "one", "second"]


# A huge result


def test_a_huge_result_is_cut_and_the_model_is_told(driver: Driver, store: Store) -> None:
    """A huge result: what is over `max_result_size` is left out, and the rest is on record."""

    def dump() -> str:
        """Dump everything."""
        return "x" * 5_000_000

    def rows() -> list[int]:
        """Dump rows."""
        return [7] * 1_000_000

    model = ScriptedModel([[call("dump"), call("rows")], "that was much"])
    agent = Agent(
        model=model, tools=[driver.function(dump), tool(max_result_size=10)(driver.function(rows))], store=store
    )

    result = driver.invoke(agent, "go")

    assert result.output == "that was much"
    assert result.messages[2].text == "x" * 100_000 + "\n[4900000 more characters were left out]"
    assert result.messages[3].text == "[7,7,7,7,7\n[1999991 more characters were left out]"
    kept(result.checkpoint, store)


@pytest.mark.few(1)
def test_a_huge_result_that_the_tool_allows_is_kept_whole(driver: Driver, store: Store) -> None:
    """A huge result of 3 MB, allowed: it is stored once, and the checkpoint can be loaded and resumed."""

    def dump() -> str:
        """Dump everything."""
        return "€" * 3_000_000

    def wipe() -> str:
        """Wipe everything."""
        return "wiped"

    tools = [
        tool(max_result_size=4_000_000)(driver.function(dump)),
        tool(requires_approval=True)(driver.function(wipe)),
    ]
    agent = Agent(model=ScriptedModel([call("dump"), call("wipe"), "done"]), tools=tools, store=store)

    result = driver.invoke(agent, "go")
    assert len(result.messages[2].text) == 3_000_000
    kept(result.checkpoint, store)

    result = driver.resume(agent, Checkpoint.model_validate_json(result.checkpoint.model_dump_json()), approved=True)
    assert result.output == "done"
    kept(result.checkpoint, store)


def limited(monkeypatch: pytest.MonkeyPatch, size: int = 20_000) -> None:
    """Have records hold no more than this many characters: the limit is 32 MB otherwise."""
    monkeypatch.setattr("phronomy.foundation.json_text.MAX_BYTES", size)


def test_a_huge_reply_is_refused_before_it_is_recorded(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A huge result's limit is the record's: what no record can hold is a typed failure, and the run can go on."""
    limited(monkeypatch)
    huge = "x" * 20_000
    agent, done, model = clerk(driver, [call("look", {"order": 1}), huge, huge, "short"], store=store)

    with pytest.raises(ModelError) as failed:
        driver.invoke(agent, "go", thread_id="t")
    last = failed.value.checkpoint
    assert last is not None
    assert outline(last) == ["user: go", "assistant:  [look]", "tool (completed): order 1"]
    kept(last, store)
    entries = store.lineage(branch_id=last.branch_id).entries
    with pytest.raises(ModelError):
        driver.resume(agent, last)
    assert (store.load(last.id), done) == (last, [("look", 1, "none")])
    assert store.lineage(branch_id=last.branch_id).entries == entries

    result = driver.recover(agent, last)
    assert (result.output, len(done), len(model.requests)) == ("short", 1, 4)
    kept(result.checkpoint, store)


def test_a_huge_input_or_text_is_refused_and_nothing_is_stored(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A huge result's mirror: input, metadata, history and checkpoint text over the limit are typed errors."""
    agent, _, model = clerk(driver, ["first", "second"], store=store)
    text = driver.invoke(agent, "go").checkpoint.model_dump_json()
    limited(monkeypatch, len(text) - 1)
    before, huge = rows(store), "x" * len(text)

    for given in (huge, {"text": huge}, [{"type": "text", "text": huge}]):
        with pytest.raises(ConfigurationError):
            driver.invoke(agent, given, thread_id="t")
    with pytest.raises(ConfigurationError):
        driver.invoke(agent, "go", thread_id="t", metadata={"text": huge})
    with pytest.raises(ConfigurationError):
        driver.invoke(agent, "go", thread_id="t", messages=[{"role": "user", "content": huge}])
    for given in (text, text.encode()):
        with pytest.raises(CheckpointError, match="over the limit"):
            Checkpoint.model_validate_json(given)

    assert (rows(store), len(model.requests)) == (before, 1)
    monkeypatch.undo()
    assert Checkpoint.model_validate_json(text).model_dump_json() == text
    assert driver.invoke(agent, "go", thread_id="t").output == "second"
