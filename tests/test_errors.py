"""Errors: each can be copied and sent to another process, and quotes nothing that somebody gave."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, cast

import psycopg_pool
import pytest
from drivers import Driver, decide_first
from redis.exceptions import ConnectionError as RedisConnectionError
from tables import each

import phronomy
from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Breakpoint,
    CheckpointError,
    CheckpointNotFound,
    Hold,
    InvalidDecision,
    MemoryStore,
    NothingDecided,
    PhronomyError,
    PostgresStore,
    Principal,
    RedisStore,
    Respond,
    RunFailed,
    UnknownPending,
    guardrail,
    open_store,
    tool,
)
from phronomy.cli.apps import find as cli_found
from phronomy.debugger.debugger import Debugger
from phronomy.foundation.quoting import kept_id, quoted, quoted_id, quoted_name, quoted_word
from phronomy.observability.drawings.drawing import tree_mermaid
from phronomy.observability.events import replay
from phronomy.observability.timeline import timeline
from phronomy.records.decisions import Decision
from phronomy.stores.rows import Branch
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Report


def modules() -> Iterator[Any]:
    """Every module that can be named without an underscore."""
    for found in pkgutil.walk_packages(phronomy.__path__, "phronomy."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield importlib.import_module(found.name)


INSIDE = {"Answered", "InDoubt", "NotStorable", "StepFailed"}
"""Raised and caught inside the package: no user, and no other process, ever has one."""


def errors() -> list[type[BaseException]]:
    """Every class of the package that can be raised and may reach a user."""
    found = {
        each
        for module in modules()
        for name, each in vars(module).items()
        if inspect.isclass(each) and issubclass(each, BaseException) and each.__module__ == module.__name__
        if not name.startswith("_") and name not in INSIDE
    }
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


ERRORS = errors()


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"{order} is refunded"


def facts() -> dict[str, Any]:
    """A value for whatever an error is made with, by the name of the parameter."""
    model = ScriptedModel.by_turn([call("refund", {"order": 1042}), "Done."])
    result = Agent(name="desk", model=model, tools=[refund]).invoke("Refund order 1042")
    pending = result.checkpoint.pending[0]
    decision = Decision(
        pending_id=pending.id, digest=pending.digest, kind="approve", by=Principal(id="ada"), at=pending.requested_at
    )
    return {
        "args": '{"order":1042}',
        "branch": Branch.of(result.checkpoint),
        "changes": ["the agent was 'desk' and is 'till'"],
        "channel": "totals",
        "channels": ["totals", "names"],
        "checkpoint": result.checkpoint,
        "decision": decision,
        "failures": {"look": "it raised OSError"},
        "maximum": 3.0,
        "nodes": ("a", "b"),
        "pending_ids": [pending.id],
        "progress": "suspended",
        "report": Report(scenario="desk", places=1, kills=1, broken=("the tool ran twice",)),
        "result": result,
        "retry_after": 1.5,
        "status_code": 429,
        "used": None,
    }


FACTS = facts()


def made(kind: type[BaseException]) -> BaseException:
    """An error of this class, with a value for each parameter, more that was set on it, and notes."""
    own = kind.__init__ is not BaseException.__init__ and kind.__init__ is not Exception.__init__
    given: list[Any] = [] if own else ["what was wrong"]
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items() if own else ():
        if name != "self" and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            given.append(FACTS.get(name, f"what is under {name}"))
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = FACTS.get(name, f"what is under {name}")
    error = kind(*given, **named)
    if isinstance(error, RunFailed):
        error.checkpoint = FACTS["checkpoint"]
    error.add_note("while the desk was asked")
    return error


def the_same(one: BaseException, other: BaseException) -> None:
    """Type, message, everything that is set, and notes: all of it is there."""
    assert type(other) is type(one) and other is not one
    assert (str(other), other.args) == (str(one), one.args)
    assert vars(other) == vars(one)
    assert other.__notes__ == one.__notes__


def throw(error: BaseException) -> None:
    """What a worker does."""
    raise error


def test_the_walk_finds_errors_in_every_corner() -> None:
    assert {kind.__module__ for kind in ERRORS} > {
        "phronomy.errors",
        "phronomy.tools.context",
        "phronomy.conversation.output",
    }
    assert len(ERRORS) > 50


@each("kind", ERRORS)
def test_an_error_is_the_same_after_pickle_and_copy(kind: type[BaseException]) -> None:
    error = made(kind)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        the_same(error, pickle.loads(pickle.dumps(error, protocol)))
    the_same(error, copy.copy(error))
    the_same(error, copy.deepcopy(error))


def test_a_note_on_a_copy_is_none_on_the_error() -> None:
    error = made(PhronomyError)
    copy.copy(error).add_note("of the copy alone")
    assert error.__notes__ == ["while the desk was asked"]


@pytest.mark.usefixtures("fresh_fork_server")
def test_an_error_comes_out_of_a_pool_of_processes() -> None:
    """As long as one could not be rebuilt, the pool was broken, and everything else that was asked of it lost."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_errors"])
    with ProcessPoolExecutor(max_workers=2, mp_context=context) as pool:
        asked = [
            (error, pool.submit(throw, error))
            for kind in ERRORS
            if issubclass(kind, Exception)
            for error in [made(kind)]
        ]
        for error, future in asked:
            found = future.exception(timeout=120)
            assert found is not None
            the_same(error, found)


class Refused(phronomy.DecisionError):
    """An error that an application derives, with a constructor of its own."""

    def __init__(self, *, desk: str, left: int) -> None:
        super().__init__(f"{desk} may refund {left} more")
        self.desk = desk
        self.left = left


def test_a_class_that_is_derived_needs_nothing_of_its_own() -> None:
    error = Refused(desk="till", left=2)
    error.add_note("on Sunday")
    the_same(error, pickle.loads(pickle.dumps(error)))
    the_same(error, copy.deepcopy(error))


# What an error quotes


SECRET = "sk-4242424242424242"
KEY = {"api_key": SECRET}
TEXT = f"the key is {SECRET}"


def told(work: Callable[[], Any], kind: type[Exception] = PhronomyError) -> str:
    """All that is printed of the error that this raises, without lines of code."""
    with pytest.raises(kind) as caught:
        work()
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    return "\n".join([line for line in lines if not line.startswith("  ")] + [repr(vars(caught.value))])


def agent_with(**options: Any) -> Callable[[], Any]:
    return lambda: Agent(**{"name": "desk", "model": ScriptedModel(["Done."])} | options).invoke("Hello")


def tool_with(**options: Any) -> Callable[[], Any]:
    def work(order: int) -> str:
        """Work."""
        return str(order)

    return lambda: tool(**options)(work)


GIVEN = [
    pytest.param(agent_with(model=KEY), "this is dict", id="a model"),
    pytest.param(agent_with(instructions=KEY), "not dict", id="instructions"),
    pytest.param(agent_with(tools=[KEY]), "dict is not a tool", id="a tool"),
    pytest.param(agent_with(input_guardrails=[KEY]), "dict is no guardrail", id="a guardrail"),
    pytest.param(agent_with(output_type=KEY), "dict cannot be described", id="an output type"),
    pytest.param(agent_with(output_type=[TEXT]), "list cannot be described", id="an output type in a list"),
    pytest.param(agent_with(settings=KEY), "not dict", id="settings"),
    pytest.param(agent_with(hooks=[KEY]), "hooks", id="hooks"),
    pytest.param(agent_with(announcements=[KEY]), "announcements", id="announcements"),
    pytest.param(agent_with(store=TEXT), "not str", id="a store"),
    *(
        pytest.param(
            tool_with(**{option: value}), f"{option} must be", id=f"{option} of a tool, {type(value).__name__}"
        )
        for option in ("timeout", "retries", "retry_wait", "on_failure", "on_expiry", "idempotent", "requires_approval")
        for value in (KEY, TEXT)
    ),
    pytest.param(tool_with(redact=[KEY]), "redact names dict", id="what a tool redacts"),
    pytest.param(lambda: tool(KEY), "dict is not a function", id="a function"),  # type: ignore[call-overload]
    pytest.param(
        lambda: cast("Any", guardrail)(KEY), "dict cannot be made a guardrail", id="a function of a guardrail"
    ),
    pytest.param(lambda: Breakpoint(KEY), "no breakpoint of type dict", id="the type of a breakpoint"),  # type: ignore[arg-type]
    pytest.param(lambda: Breakpoint(TEXT), f"of type text of length {len(TEXT)}", id="a breakpoint's type"),  # type: ignore[arg-type]
    pytest.param(lambda: phronomy.MCPServer(KEY), "not dict", id="the name of an MCP server"),  # type: ignore[arg-type]
    pytest.param(lambda: open_store(KEY), "not dict", id="the URL of a store"),  # type: ignore[arg-type]
    pytest.param(lambda: open_store(f"sqlite:///x?lease={SECRET}"), "must be a number", id="an option of a URL"),
    pytest.param(lambda: open_store(f"{TEXT}://"), "(a scheme)", id="the scheme of a URL"),
    pytest.param(lambda: MemoryStore(lease=KEY), "above 0, not dict", id="a lease"),  # type: ignore[arg-type]
    pytest.param(lambda: MemoryStore().prune(keep_last=KEY), "not dict", id="a number of runs"),  # type: ignore[arg-type]
    pytest.param(lambda: MemoryStore().pending(older_than=SECRET), "not text of length", id="an age"),  # type: ignore[arg-type]
    pytest.param(lambda: MemoryStore().audit(since=KEY), "not dict", id="a time"),  # type: ignore[arg-type]
    pytest.param(lambda: MemoryStore().pending(after=SECRET), "`next` of a page", id="a cursor"),
]


@each(("work", "said"), GIVEN)
def test_a_value_of_the_wrong_type_is_not_quoted(work: Callable[[], Any], said: str) -> None:
    text = told(work)
    assert said in text and SECRET not in text


@each(
    ("value", "plain", "word"),
    [
        (None, "None", "None"),
        (True, "True", "True"),
        (-5, "-5", "-5"),
        (0.25, "0.25", "0.25"),
        (10**30, "int", "int"),
        ("", "''", "''"),
        ("30", "'30'", "'30'"),
        ("refus", "text of length 5", "'refus'"),
        (SECRET, f"text of length {len(SECRET)}", f"text of length {len(SECRET)}"),
        (int, "the class int", "the class int"),
        (told, "the function told", "the function told"),
        (list[int], "list[int]", "list[int]"),
        (partial(print, SECRET), "partial", "partial"),
        (b"bytes", "bytes", "bytes"),
    ],
)
def test_how_a_value_is_quoted(value: object, plain: str, word: str) -> None:
    assert quoted(value) == plain
    assert quoted_word(value) == word
    assert quoted_name(value) == (repr(value) if isinstance(value, str) else plain)


# What is given for an id


@tool(requires_approval=True, redact={"card"})
def charge(card: str) -> str:
    """Charge a card."""
    return "charged"


DUMP = "(no id, but text of length {}; Checkpoint.model_validate_json reads that of a checkpoint)"


def test_a_checkpoint_that_is_given_for_an_id_is_not_quoted(place: Any, driver: Driver) -> None:
    store = place.open()
    agent = Agent(name="till", model=ScriptedModel([call("charge", {"card": SECRET})]), tools=[charge], store=store)
    asked = driver.invoke(agent, "Charge it").checkpoint
    text = asked.model_dump_json()
    assert SECRET in text

    def told_of(work: Callable[[], Any]) -> str:
        said = told(work)
        assert SECRET not in said and len(said) < 1000
        return said

    for work in (
        partial(driver.resume, agent, text, approved=True),
        partial(driver.cancel, agent, text),
        partial(driver.recover, agent, text),
        partial(driver.fork, agent, text),
        partial(store.load, text),
        partial(store.locate, text),
        partial(store.history, text),
        partial(store.head, text),
        partial(store.fork, text),
        partial(store.diff, text, text),
        partial(store.wait, text, timeout=0),
        partial(replay, store, text),
        partial(timeline, store, text),
        partial(tree_mermaid, store, text),
        partial(cli_found, store, text),
    ):
        assert DUMP.format(len(text)) in told_of(work)
    assert store.delete(text) is False and store.pending(run_id=text) == []
    assert "id of an event" in told_of(partial(replay, store, asked.run_id, after=text))
    assert [item.approval.tool_name for item in store.pending()] == ["charge"]


def test_a_checkpoint_that_is_given_for_a_pending_id_is_not_quoted(driver: Driver) -> None:
    agent = Agent(name="till", model=ScriptedModel([call("charge", {"card": SECRET})]), tools=[charge])
    asked = driver.invoke(agent, "Charge it").checkpoint
    text = asked.model_dump_json()
    for answer in (Approve(), True):
        said = told(partial(driver.resume, agent, asked, decisions={text: answer}))
        assert DUMP.format(len(text)) in said and SECRET not in said
    debugger = Debugger(agent)
    debugger.attach(asked)
    said = told(partial(debugger.select, text))
    assert DUMP.format(len(text)) in said and SECRET not in said
    said = told(partial(Hold().resume_breakpoint, text))
    assert DUMP.format(len(text)) in said and SECRET not in said


@each(
    ("id", "told_as"),
    [
        ("run_0123456789abcdef01234567", "run_0123456789abcdef01234567"),
        ("orders/42:draft@2026.11-1", "orders/42:draft@2026.11-1"),
        ("a" * 80, "a" * 80),
        ("a" * 81, "(no id, but text of length 81)"),
        ("", "(no id, but text of length 0)"),
        ("Refund order 1042", "(no id, but text of length 17)"),
        ("ckpt_1\n", "(no id, but text of length 7)"),
        (42, "(no id, but int)"),
        (KEY, "(no id, but dict)"),
    ],
)
def test_how_an_id_is_quoted(id: object, told_as: str) -> None:
    assert quoted_id(id) == told_as
    assert kept_id(id) == (id if isinstance(id, str) and len(id) <= 80 else told_as)


# Servers that cannot be reached


@each(
    ("conninfo", "where"),
    [
        ("postgresql://me:hun%2Fter%40@db.example.com:5433/orders", " at db.example.com:5433"),
        ("postgresql://me:hunter@db.example.com/orders", " at db.example.com:5432"),
        ("postgresql://me:hunter@[::1]:5433/orders", " at [::1]:5433"),
        ("postgresql://me:hunter@a:1,b:2/orders", " at a:1, b:2"),
        ("host=a,b password=hunter", " at a:5432, b:5432"),
        ("host=/run/postgresql user=me@home password=hunter", " at /run/postgresql:5432"),
        # A password that is not percent-encoded: libpq takes the user, or the rest of the password, for the host.
        ("postgresql://me:12/34@db.example.com/orders", ""),
        ("postgresql://me:hun@ter@db.example.com/orders", ""),
        ("postgresql://me:12?application_name=34@db.example.com/orders", " at db.example.com:5432"),
        ("dbname=orders", ""),
        ("service=orders", ""),
    ],
)
def test_where_a_postgresql_server_is(conninfo: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT"):
        monkeypatch.delenv(name, raising=False)
    assert PostgresStore(conninfo)._server.where == where


@each(
    ("url", "where"),
    [
        ("redis://me:hun%2Fter%40@cache.example.com:6380/1", " at cache.example.com:6380"),
        ("redis://cache.example.com", " at cache.example.com:6379"),
        ("rediss://:hunter@[::1]:6380/0", " at [::1]:6380"),
        ("redis://me:hun@ter@cache:6379/0", " at cache:6379"),
        ("unix://me:hunter@/run/redis.sock?db=1", " at /run/redis.sock"),
        # A password that is not percent-encoded: the user is taken for the host, and its beginning for the port.
        ("redis://me:12?34@cache:6379/0", ""),
        ("redis://me:12#34@cache:6379/0", ""),
    ],
)
def test_where_a_redis_server_is(url: str, where: str) -> None:
    assert RedisStore(url)._link._where == where


class Stranger:
    """A client of redis-py's that is made otherwise."""

    def execute_command(self, *_: Any, **__: Any) -> Any:
        raise RedisConnectionError("hunter")

    def close(self) -> None:
        """There is nothing to close."""


@each(
    ("store", "said"),
    [
        (
            lambda: PostgresStore("postgresql://me:hun%2Fter@127.0.0.1:1/orders"),
            "PostgreSQL at 127.0.0.1:1: no connection",
        ),
        (lambda: RedisStore("redis://me:hun%2Fter@127.0.0.1:1/0"), "Redis at 127.0.0.1:1 cannot be reached"),
        (lambda: RedisStore("redis://me:12?34@127.0.0.1:1/0"), "Redis cannot be reached"),
        (lambda: RedisStore(client=Stranger()), "Redis cannot be reached"),  # type: ignore[arg-type]
    ],
)
def test_a_server_that_cannot_be_reached_is_named_and_nobody_else(store: Callable[[], Any], said: str) -> None:
    with store() as opened:
        text = told(opened.branches)
    assert said in text
    assert not [word for word in ("me:", "hun", "ter@", "%2F", "12?") if word in text]


def test_where_a_pool_is_connected_to_is_said(own_postgres: Any) -> None:
    options = {"min_size": 0, "max_size": 1, "kwargs": {"autocommit": True}}
    with (
        psycopg_pool.ConnectionPool(own_postgres.url, **options) as pool,
        PostgresStore(pool=pool, timeout=0.5) as store,
    ):
        own_postgres.kill()
        assert f"PostgreSQL at {own_postgres.data}:5432: " in told(store.branches)


# What to do next


@pytest.mark.parametrize("given", ["my card is 4242 4242", "x" * 2_000_000], ids=["a secret", "a long text"])
def test_what_is_given_for_a_pending_id_is_not_quoted_by_decide(driver: Driver, given: str) -> None:
    agent = Agent(model=ScriptedModel(["Done."]), tools=[charge], store=MemoryStore())
    with pytest.raises(UnknownPending) as caught:
        driver.call(agent, "decide", given, Approve())
    assert str(caught.value).startswith(
        f"nothing waits under (no id, but text of length {len(given)}), and no decision"
    )
    assert given not in repr(caught.value)


def test_names_that_are_too_long_are_quoted_in_part() -> None:
    agent = Agent(model=ScriptedModel(["Done."]), tools=[charge], store=MemoryStore())
    long = "x" * 100_000
    works: list[Callable[[], Any]] = [
        lambda: agent.invoke("hi", breakpoints=[Breakpoint("tool", tools=[long])]),
        lambda: agent.dry_run(long, {}),
        lambda: agent.dry_run(f"{long}/a", {}),
        lambda: Agent(model="m", tools=[charge], approval_policy=[long]).spec,
    ]
    for work in works:
        assert len(told(work)) < 1000


@pytest.mark.parametrize("method", ["resume", "pause", "cancel", "approve_all"])
def test_a_pending_id_in_place_of_a_checkpoint_is_told_to_be_one(driver: Driver, method: str) -> None:
    agent = Agent(model=ScriptedModel(["Done."]), tools=[charge], store=MemoryStore())
    with pytest.raises(CheckpointNotFound, match="pend_1: that is a pending id, which decide takes"):
        driver.call(agent, method, "pend_1")


def test_that_nothing_was_decided_says_how_to_decide_and_that_a_tool_is_gone_is_said_once(driver: Driver) -> None:
    two = ScriptedModel.by_turn([[call("charge", {"card": "1"}), call("charge", {"card": "2"})], "Done."])
    agent = Agent(name="desk", model=two, tools=[charge], store=MemoryStore())
    asked = driver.invoke(agent, "hi").checkpoint
    for given in ({}, {"approved": True}, {"approved": False, "reason": "no"}):
        with pytest.raises(
            NothingDecided, match=r"give decisions={pending_id: Approve\(\)} .*, or use approve_all"
        ) as open_:
            driver.resume(agent, asked, **given)
        assert open_.value.pending_ids == tuple(item.id for item in asked.pending)
    bare = Agent(name="desk", model=two, store=agent.store)
    with pytest.raises(AgentChanged) as caught:
        driver.resume(bare, asked, decisions=decide_first(asked))
    assert caught.value.changes == ("tool 'charge' of a pending call is gone",)


@pytest.mark.parametrize(
    ("point", "ways"),
    [("post_tool_call", "approve it or reject it"), ("post_run", "approve it, skip it or reject it")],
)
def test_what_can_be_answered_at_a_stop_is_said_as_it_is(driver: Driver, point: Any, ways: str) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(model=ScriptedModel.by_turn([call("look"), "Done."]), tools=[look], store=MemoryStore())
    asked = driver.invoke(agent, "hi", breakpoints=[Breakpoint(point)]).checkpoint
    with pytest.raises(InvalidDecision, match=f"nothing to answer: {ways}$"):
        driver.resume(agent, asked, decisions={asked.pending[0].id: Respond(content="x")})


def test_a_text_that_could_not_be_read_back_is_not_written(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel.by_turn([call("charge", {"card": "x" * 4000}), "Done."])
    agent = Agent(model=model, tools=[charge])
    monkeypatch.setattr("phronomy.records.checkpoint.MAX_BYTES", 10_000)
    monkeypatch.setattr("phronomy.foundation.json_text.MAX_BYTES", 10_000)
    asked = driver.invoke(agent, "hi").checkpoint
    with pytest.raises(CheckpointError, match="none of more than 10000 is read back: resume the run by this id"):
        asked.model_dump_json()
    with pytest.raises(CheckpointError, match="resume the run by this id"):
        driver.resume(Agent(model=model, tools=[charge], store=MemoryStore(), trust="bearer"), asked, approved=True)
    assert driver.resume(agent, asked, approved=True).status == "completed"
