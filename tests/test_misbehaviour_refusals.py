"""What is refused, and how: options that do not exist, forged text of a bearer, what no record can hold, secrets in errors."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from drivers import Driver, rows
from pydantic import AfterValidator
from selection import scaled
from test_misbehaviour_edits import Desk, all_edits, edited, forged

from phronomy import Agent, Approve, Checkpoint, CheckpointError, ConfigurationError, PhronomyError, tool
from phronomy.stores.base import Store
from phronomy.stores.storeless_runs import HOMES
from phronomy.testing import ScriptedModel, call

# Options


@pytest.mark.parametrize("name", ["inputs", "message", "messages", "state", "aproved", "edited_args", "thread"])
@pytest.mark.parametrize("method", ["resume", "step", "recover"])
def test_an_option_that_does_not_exist_is_refused(driver: Driver, store: Store, method: str, name: str) -> None:
    """No option that is spelt wrongly passes in silence. Law 15"""
    done: list[str] = []

    def pay() -> str:
        """Pay."""
        done.append("pay")
        return "paid"

    gated = tool(requires_approval=True)(driver.function(pay))
    agent = Agent(name="desk", model=ScriptedModel([call("pay"), "done"]), tools=[gated], store=store)
    checkpoint = driver.invoke(agent, "go").checkpoint
    before = rows(store)
    options: dict[str, Any] = {} if method == "recover" else {"approved": True}

    with pytest.raises(ConfigurationError, match=name):
        driver.call(agent, method, checkpoint, **options, **{name: "x"})
    with pytest.raises(ConfigurationError, match="tread_id"):
        driver.call(agent, "invoke", "go", tread_id="t")

    assert (rows(store), done) == (before, [])
    assert driver.resume(agent, checkpoint, approved=True).output == "done"


# Bearer text, with all digests recomputed


@pytest.mark.few(4)
@pytest.mark.parametrize("state", ["suspended", "interrupted"])
@pytest.mark.parametrize("part", range(4))
def test_forged_text_of_a_bearer_is_a_checkpoint_or_a_typed_error(driver: Driver, state: str, part: int) -> None:
    """Checkpoint text edited anywhere, with all digests recomputed, without a store: it runs as what it shows, and each
    call at most once, or is a typed error; whatever comes of it can be loaded again.
    """
    first = Desk(strike=state == "interrupted")
    data = json.loads((first.suspend() if state == "suspended" else first.interrupt()).model_dump_json())
    wrong: list[str] = []
    tried = ran = 0
    for path, other, document in list(all_edits(data))[part + 4 * driver.is_async :: scaled(40, sweep=8)]:
        try:
            given = Checkpoint.model_validate_json(json.dumps(forged(document)))
        except CheckpointError:
            continue
        tried += 1
        shown = [(item.tool_name, *item.args.values()) for item in given.pending]
        shown += [
            (each.name, *each.args.values())
            for each in given.calls
            if each.status in ("ready", "started") and each.args
        ]
        desk = Desk()
        HOMES.forget()  # this is a process that has never seen the run: where it is known, what was edited is refused
        try:
            result = driver.resume(desk.agent, given, decisions={item.id: Approve() for item in given.pending})
            assert Checkpoint.model_validate_json(result.checkpoint.model_dump_json()) == result.checkpoint
        except PhronomyError:
            pass
        except Exception as error:
            wrong.append(f"{path} = {other!r}: {error!r}")
        ran += len(desk.done)
        asked = [each for each in desk.done if each[0] == "refund"]
        if any(asked.count(each) > shown.count(each) for each in asked):
            wrong.append(f"{path} = {other!r}: ran {desk.done}, shown was {shown}")
    assert wrong == []
    many = scaled(4, sweep=20)
    assert tried > many
    assert (ran > many) == (state == "suspended")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("calls", 1, "fallback"), -1),
        (("calls", 1, "attempt"), -1),
        (("calls", 1, "fallback"), 10**6),
        (("agent", "fingerprint"), '{"tools":0}'),
        (("agent", "fingerprint"), '{"tools":{"refund":7}}'),
        (("agent", "fingerprint"), "{}"),
    ],
    ids=str,
)
def test_forged_numbers_and_fingerprints_are_no_crash(driver: Driver, path: Any, value: Any) -> None:
    """Checkpoint text edited, with all digests recomputed: odd numbers and fingerprints are met as data or refused."""
    data = json.loads(Desk().suspend().model_dump_json())
    desk = Desk()
    try:
        given = Checkpoint.model_validate_json(json.dumps(forged(edited(data, path, value))))
        desk.agent.drift(given)
        driver.resume(desk.agent, given, approved=True)
    except PhronomyError:
        assert desk.done == []
    else:
        assert desk.done == [("refund", 2, 5.0)]


# What no record can hold


def test_a_result_that_no_record_can_hold_settles_the_call_and_says_that_it_ran(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A huge result, over what a record can hold: the call has run, is settled, and never runs again."""
    monkeypatch.setattr("phronomy.foundation.json_text.MAX_BYTES", 20_000)
    done: list[str] = []

    def dump() -> str:
        """Dump everything."""
        done.append("dump")
        return "x" * 20_000

    def dumps() -> list[str]:
        """Dump all."""
        done.append("dumps")
        return ["\x00" * 4_000]

    tools = [tool(max_result_size=10**9)(driver.function(body)) for body in (dump, dumps)]
    agent = Agent(model=ScriptedModel([[call("dump"), call("dumps")], "end"]), tools=tools, store=store)

    result = driver.invoke(agent, "go")

    assert (result.output, sorted(done)) == ("end", ["dump", "dumps"])
    told = [message for message in result.messages if message.role == "tool"]
    assert [message.settlement for message in told] == ["failed", "failed"]
    assert all("The tool ran, but its result" in message.text for message in told)
    assert Checkpoint.model_validate_json(result.checkpoint.model_dump_json()) == store.load(result.checkpoint.id)


# Retries


def test_a_tool_that_is_tried_very_often_ends(driver: Driver, store: Store) -> None:
    """A tool that raises, each of 1,100 times: the wait between attempts has a bound, and the run goes on."""
    done: list[int] = []

    def look() -> str:
        """Look."""
        done.append(1)
        raise OSError("down")

    often = tool(idempotent=True, retries=1_100, retry_wait=0)(driver.function(look))
    agent = Agent(model=ScriptedModel([call("look"), "it is down"]), tools=[often])

    result = driver.invoke(agent, "go")

    assert (result.output, result.messages[2].settlement, len(done)) == ("it is down", "failed", 1_101)


# What is shown is what runs


WORLD: dict[str, str] = {}


def looked_up(name: str) -> str:
    return WORLD.get(name, name)


@pytest.mark.parametrize("how", ["accepted", "handler", "predicate"])
def test_arguments_that_are_read_as_something_else_by_now_do_not_run(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What was approved is one text; where a transform reads the world, and it has changed since, nothing runs: not when
    the caller accepts changes, and not when the approval was just given. field failure 1
    """
    done: list[str] = []

    def change(*_: Any) -> bool:
        monkeypatch.setitem(WORLD, "ann", "mallory")
        return how == "handler"

    def pay(name: Annotated[str, AfterValidator(looked_up)]) -> str:
        """Pay."""
        done.append(name)
        return "paid"

    gate = driver.function(lambda args: change()) if how == "predicate" else True
    gated = tool(requires_approval=gate)(driver.function(pay))
    options: dict[str, Any] = {"on_approval_required": driver.function(change)} if how == "handler" else {}
    model = ScriptedModel([call("pay", {"name": "ann"}), "end"])
    agent = Agent(name="desk", model=model, tools=[gated], store=store, **options)

    result = driver.invoke(agent, "go")
    if how == "accepted":
        change()
        result = driver.resume(agent, result.checkpoint, approved=True, accept_changes=True)

    assert (result.status, done) == ("completed", [])
    assert result.messages[2].settlement == "failed"
    assert "not valid" in result.messages[2].text


# Secrets


@pytest.mark.parametrize("given", ["input", "metadata", "messages"])
def test_what_is_refused_is_not_quoted(driver: Driver, store: Store, given: str) -> None:
    """What a run cannot begin with is refused without a word of it in the error. Law 15"""
    secret, nan = "hunter2", float("nan")
    agent = Agent(model=ScriptedModel(["end"]), store=store)
    parts = [{secret: secret, "type": "text", "text": secret, "weight": nan}]
    attempts: dict[str, dict[str, Any]] = {
        "input": {"input": parts},
        "metadata": {"input": "go", "metadata": {secret: {"deep": [secret, nan]}}},
        "messages": {"input": "go", "messages": [{"role": "user", "content": parts}]},
    }
    with pytest.raises(ConfigurationError) as refused:
        driver.call(agent, "invoke", **attempts[given])
    shown = "".join(map(str, (refused.value, refused.value.__cause__)))
    assert secret not in shown
    assert store.branches() == []
