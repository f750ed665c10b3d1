"""How long a model is waited for: as long as `timeout` and `Limits(seconds=)` say, and not once the run is over.

The provider answers for ever, a blank or a comment at a time. What ends is the waiting, and then the connection.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any

import pytest
from drips import Dripping
from drivers import DRIVERS, PATIENCE, STREAMED, Driver, run
from places import Place
from pydantic import BaseModel

from phronomy import (
    END,
    START,
    Agent,
    LeaseLost,
    LimitExceeded,
    Limits,
    LiteLLMModel,
    ModelConnectionError,
    ModelError,
    ModelSettings,
    StateGraph,
    Usage,
    tool,
)
from phronomy.models import ChatCompletionsModel, ModelReply, ModelRequest
from phronomy.models.base import Delta, TextDelta
from phronomy.records.messages import Message
from phronomy.stores.base import Store
from phronomy.stores.rows import Append
from phronomy.testing import ChatServer, Fault, ScriptedModel, call, say

pytestmark = [
    # litellm has a thread make its coroutine: whoever is cancelled in that moment leaves it unawaited.
    pytest.mark.filterwarnings("ignore:coroutine 'OpenAIChatCompletion.acompletion' was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*OpenAIChatCompletion.acompletion:pytest.PytestUnraisableExceptionWarning"),
]

USER = Message(role="user", content="Refund order 1042")
WAYS = ("complete", "acomplete", "stream", "astream")
TIMEOUT = 0.3


@pytest.fixture(scope="module", autouse=True)
def litellm_is_loaded() -> None:
    """The first call loads half of what there is of it, and would be over before it has begun."""
    with ChatServer(["Hello."]) as server:
        LiteLLMModel("openai/gpt-4o", base_url=server.base_url, api_key="key").complete(ModelRequest(messages=(USER,)))


@pytest.fixture(autouse=True)
def no_event_loop() -> None:
    asyncio.set_event_loop(None)  # litellm makes a loop in a thread that has not said it has none, and leaves it open


def direct(server: Dripping, **options: Any) -> ChatCompletionsModel:
    return ChatCompletionsModel("gpt-4o", base_url=server.base_url, api_key="key", retry_wait=0, **options)


def litellm(server: Dripping, **options: Any) -> LiteLLMModel:
    return LiteLLMModel("openai/gpt-4o", base_url=server.base_url, api_key="key", retry_wait=0, **options)


def ask(model: Any, way: str, **settings: Any) -> Any:
    """What the model answers, asked in this way."""
    request = ModelRequest(messages=(USER,), settings=ModelSettings(**settings))
    if way == "complete":
        return model.complete(request)
    if way == "stream":
        return list(model.stream(request))

    async def aask() -> Any:
        if way == "acomplete":
            return await model.acomplete(request)
        return [piece async for piece in model.astream(request)]

    return run(aask())


# One attempt


@pytest.mark.few(16)
@pytest.mark.parametrize("kind", ["nothing", "head", "body", "error", "comments", "blanks", "empty", "pieces"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [direct, litellm])
def test_an_attempt_is_over_when_its_time_is(make: Callable[..., Any], way: str, kind: str) -> None:
    with Dripping(kind) as server:
        with pytest.raises(ModelConnectionError, match=r"(?i)timeout"):
            ask(make(server, max_attempts=1), way, timeout=TIMEOUT)
        if not way.startswith("a") and (kind == "head" or (make is litellm and (way == "complete" or kind == "error"))):
            return  # the library reads this by itself, in a thread that cannot be told: it ends with the connection
        assert server.all_gone()


@pytest.mark.parametrize("way", ["complete", "acomplete"])
def test_so_it_is_while_the_connection_is_made(way: str) -> None:
    with Dripping("nothing") as server:
        model = ChatCompletionsModel("gpt-4o", base_url=server.base_url.replace("http:", "https:"), max_attempts=1)
        with pytest.raises(ModelConnectionError, match=r"(?i)timeout"):
            ask(model, way, timeout=TIMEOUT)
        assert server.all_gone()


@pytest.mark.few(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [direct, litellm])
def test_each_attempt_has_the_time(make: Callable[..., Any], way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"complete": "_ask", "acomplete": "_aask", "stream": "_pieces", "astream": "_apieces"}[way]
    times: list[float | None] = []
    with Dripping("blanks" if "stream" in way else "body") as server:
        model = make(server, max_attempts=3)
        plain = getattr(model, name)

        def attempt(request: ModelRequest) -> Any:
            times.append(request.patience.left())
            return plain(request)

        monkeypatch.setattr(model, name, attempt)
        with pytest.raises(ModelConnectionError, match="before the timeout"):
            ask(model, way, timeout=TIMEOUT)
    assert len(times) == 3
    assert all(seconds is not None and seconds <= TIMEOUT for seconds in times)


@pytest.mark.parametrize("is_async", [False, True])
def test_whoever_takes_the_pieces_of_a_stream_may_be_slow(is_async: bool) -> None:
    """The time in which a piece is looked at is none of the provider's."""
    request = ModelRequest(messages=(USER,), settings=ModelSettings(timeout=TIMEOUT))

    async def watch(model: ChatCompletionsModel) -> None:
        stream = model.astream(request)
        for _ in range(2):
            assert await anext(stream) == TextDelta(text="la ")
            await asyncio.sleep(2 * TIMEOUT)
        await stream.aclose()

    with Dripping("pieces") as server:
        if is_async:
            run(watch(direct(server)))
        else:
            stream = direct(server).stream(request)
            for _ in range(2):
                assert next(stream) == TextDelta(text="la ")
                time.sleep(2 * TIMEOUT)
            stream.close()
        assert server.all_gone()


# A run


class Own:
    """A model of a user's own, which heeds no time. `held` says that it is being asked."""

    name = "own"

    def __init__(self) -> None:
        self.held = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.ended = threading.Event()
        self.cancelled = threading.Event()

    def complete(self, request: ModelRequest) -> ModelReply:
        self.held.release()
        assert self.go_on.wait(PATIENCE)
        self.ended.set()
        return ModelReply(
            message=Message(role="assistant", content="Too late."), usage=Usage(requests=1, input_tokens=5)
        )

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        self.held.release()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            self.cancelled.set()
        raise AssertionError("nobody came")


class OwnStream(Own):
    """As `Own`, with a stream that gives one piece."""

    def stream(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        yield TextDelta(text="Well, ")
        yield self.complete(request)

    async def astream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        yield TextDelta(text="Well, ")
        yield await self.acomplete(request)


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def way(request: pytest.FixtureRequest) -> Driver:
    """Each driver, streamed and not."""
    found: Driver = request.param
    return found


@pytest.fixture
def own(way: Driver) -> Iterator[Own]:
    model = OwnStream() if "streamed" in way.name else Own()
    yield model
    model.go_on.set()


def kind_for(way: Driver) -> str:
    return "comments" if "streamed" in way.name else "body"


@pytest.mark.parametrize("make", [direct, litellm])
def test_a_limit_in_the_middle_of_a_model_call_is_told_as_what_it_is(way: Driver, make: Callable[..., Any]) -> None:
    """It holds over all attempts, and the pauses between them."""
    with Dripping(kind_for(way)) as server:
        agent = Agent(model=make(server, max_attempts=10_000), limits=Limits(seconds=TIMEOUT))
        with pytest.raises(LimitExceeded, match=r"limit seconds=0\.3: it used") as failed:
            way.invoke(agent, "Hi", settings=ModelSettings(timeout=0.1))
        assert (failed.value.limit, failed.value.maximum) == ("seconds", TIMEOUT)
        assert failed.value.used is not None and failed.value.used >= TIMEOUT - 0.01
        assert failed.value.checkpoint is not None and failed.value.checkpoint.step == 0


def test_so_it_is_in_the_pause_before_the_next_attempt(way: Driver) -> None:
    with ChatServer([Fault(status=429, headers={"Retry-After": "50"})]) as server:
        model = ChatCompletionsModel("gpt-4o", base_url=server.base_url, api_key="key")
        with pytest.raises(LimitExceeded):
            way.invoke(Agent(model=model, limits=Limits(seconds=TIMEOUT)), "Hi")


def test_a_model_of_your_own_is_held_to_the_limit_as_well(way: Driver, own: Own) -> None:
    with pytest.raises(LimitExceeded) as failed:
        way.invoke(Agent(model=own, limits=Limits(seconds=TIMEOUT)), "Hi")
    assert failed.value.limit == "seconds"
    assert not way.is_async or own.cancelled.wait(PATIENCE)


def test_and_to_the_timeout(way: Driver, own: Own) -> None:
    agent = Agent(model=own, settings=ModelSettings(timeout=TIMEOUT), limits=Limits(seconds=PATIENCE))
    with pytest.raises(ModelConnectionError, match="model own gave no whole answer before the timeout"):
        way.invoke(agent, "Hi")
    assert not way.is_async or own.cancelled.wait(PATIENCE)


def test_a_timeout_that_it_raises_itself_stays_what_it_is(way: Driver) -> None:
    class Raises(Own):
        def complete(self, request: ModelRequest) -> ModelReply:
            raise TimeoutError("of its own")

        async def acomplete(self, request: ModelRequest) -> ModelReply:
            return self.complete(request)

    with pytest.raises(ModelError, match="model own raised TimeoutError") as failed:
        way.invoke(Agent(model=Raises(), limits=Limits(seconds=PATIENCE)), "Hi")
    assert type(failed.value) is ModelError


def test_a_model_that_asks_others_keeps_time_by_itself(way: Driver) -> None:
    """Each of them has the timeout; it is asked in the caller's thread."""
    threads: list[threading.Thread] = []

    class Either:
        name = "either"
        keeps_time = True

        def __init__(self, *models: Any) -> None:
            self.models = models

        def complete(self, request: ModelRequest) -> ModelReply:
            threads.append(threading.current_thread())
            try:
                reply: ModelReply = self.models[0].complete(request)
            except ModelError:
                reply = self.models[1].complete(request)
            return reply

        async def acomplete(self, request: ModelRequest) -> ModelReply:
            threads.append(threading.current_thread())
            try:
                reply: ModelReply = await self.models[0].acomplete(request)
            except ModelError:
                reply = await self.models[1].acomplete(request)
            return reply

    with Dripping("body") as server:
        model = Either(direct(server, max_attempts=1), ScriptedModel(["From the other."]))
        result = way.invoke(Agent(model=model, settings=ModelSettings(timeout=TIMEOUT)), "Hi")
    assert (result.output, threads) == ("From the other.", [threading.current_thread()])


# A run that is over while its model is asked


class Elsewhere:
    """The run is driven in another thread, by a store of its own; here is another one, as of another process."""

    def __init__(self, way: Driver, place: Place) -> None:
        self.way = way
        self.ours = place.open()
        self.theirs = place.open()
        self.outcome: list[Any] = []

    def begin(self, make: Callable[[Store], Any], input: Any = "Hi", **options: Any) -> Any:
        """Drive it. What is returned is the same agent, here."""

        def work() -> None:
            try:
                self.outcome.append(self.way.invoke(make(self.theirs), input, **options))
            except BaseException as error:
                self.outcome.append(error)

        self.thread = threading.Thread(target=work)
        self.thread.start()
        return make(self.ours)

    def cancel(self, agent: Any) -> None:
        """End the run from here. Whoever drives it hears of that when the lease is renewed: now."""
        (branch,) = self.ours.branches()
        assert self.way.cancel(agent, branch.run_id, reason="enough").status == "running"
        self.renew()

    def renew(self) -> None:
        """The lease is renewed, as it is by itself now and then."""
        self.theirs.keeper.poke()

    def end(self) -> Any:
        """What it came to."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        (found,) = self.outcome
        if isinstance(found, BaseException):
            raise found
        return found


@pytest.fixture
def elsewhere(way: Driver, place: Place) -> Elsewhere:
    return Elsewhere(way, place)


@pytest.mark.parametrize("make", [direct, litellm])
def test_cancel_reaches_a_model_that_is_asked(elsewhere: Elsewhere, make: Callable[..., Any]) -> None:
    way = elsewhere.way
    with Dripping(kind_for(way)) as server:
        agent = elsewhere.begin(lambda store: Agent(name="desk", model=make(server), store=store))
        assert server.came.acquire(timeout=PATIENCE)
        elsewhere.cancel(agent)
        result = elsewhere.end()
        assert (result.status, result.checkpoint.ending.reason) == ("cancelled", "enough")
        assert result.usage == Usage(), "no answer came: what it cost nobody knows"
        assert server.asked == 1
        if way.is_async or make is direct or "streamed" in way.name:
            assert server.all_gone()


@pytest.mark.few(1)
def test_it_does_so_when_the_lease_is_renewed(way: Driver, own: Own, place: Place) -> None:
    elsewhere = Elsewhere(way, place)
    elsewhere.theirs = place.open(lease=9.0)
    agent = elsewhere.begin(lambda store: Agent(name="desk", model=own, store=store))
    assert own.held.acquire(timeout=PATIENCE)
    (branch,) = elsewhere.ours.branches()
    way.cancel(agent, branch.run_id)
    assert elsewhere.end().status == "cancelled"


def test_cancel_reaches_the_pause_before_the_next_attempt(elsewhere: Elsewhere) -> None:
    """R20."""
    asked = threading.Semaphore(0)

    def busy(body: dict[str, Any]) -> Fault:
        asked.release()
        return Fault(status=429, headers={"Retry-After": "50"})

    with ChatServer(busy) as server:
        model = ChatCompletionsModel("gpt-4o", base_url=server.base_url, api_key="key")
        agent = elsewhere.begin(lambda store: Agent(name="desk", model=model, store=store))
        assert asked.acquire(timeout=PATIENCE)
        elsewhere.cancel(agent)
        assert elsewhere.end().status == "cancelled"
        assert len(server.requests) == 1


def test_what_a_model_brings_that_was_left_is_dropped(elsewhere: Elsewhere, own: Own, place: Place) -> None:
    way = elsewhere.way

    @tool
    def look(order: int) -> str:
        """Look."""
        return "a kettle"

    first = say("", call("look", {"order": 1}), usage=Usage(requests=1, input_tokens=7, output_tokens=2))

    class Turns(OwnStream if "streamed" in way.name else Own):  # type: ignore[misc]
        """It answers at first."""

        script = ScriptedModel([first])

        def complete(self, request: ModelRequest) -> ModelReply:
            return self.script.complete(request) if not self.script.requests else own.complete(request)

        async def acomplete(self, request: ModelRequest) -> ModelReply:
            return self.script.complete(request) if not self.script.requests else await own.acomplete(request)

    model = Turns()
    agent = elsewhere.begin(lambda store: Agent(name="desk", model=model, tools=[look], store=store))
    assert own.held.acquire(timeout=PATIENCE)
    elsewhere.cancel(agent)
    result = elsewhere.end()
    assert (result.status, result.usage) == ("cancelled", Usage(requests=1, input_tokens=7, output_tokens=2))
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]
    before = place.text()
    own.go_on.set()
    assert (own.cancelled if way.is_async else own.ended).wait(PATIENCE)
    assert place.text() == before
    assert elsewhere.ours.load(result.checkpoint.id) == result.checkpoint


class Job(BaseModel):
    said: str = ""


@pytest.mark.parametrize("kind", ["agent as a tool", "node"])
def test_cancel_reaches_the_model_of_a_run_inside(elsewhere: Elsewhere, own: Own, kind: str) -> None:
    def make(store: Store) -> Any:
        inner = Agent(name="inner", model=own, store=store)
        if kind == "node":
            graph = StateGraph(Job, name="works").add_node("ask", inner, input=lambda state: "Hi", output="said")
            return graph.add_edge(START, "ask").add_edge("ask", END).compile(store=store)
        script = ScriptedModel([call("inner", {"input": "Hi"}), "Done."])
        return Agent(name="outer", model=script, tools=[inner.as_tool(description="Answers.")], store=store)

    agent = elsewhere.begin(make, {} if kind == "node" else "Hi")
    assert own.held.acquire(timeout=PATIENCE)
    elsewhere.cancel(agent)
    assert elsewhere.end().status == "cancelled"


def test_a_worker_that_has_lost_its_lease_waits_no_longer(elsewhere: Elsewhere, own: Own, place: Place) -> None:
    elsewhere.begin(lambda store: Agent(name="desk", model=own, store=store))
    assert own.held.acquire(timeout=PATIENCE)
    (branch,) = elsewhere.ours.branches()
    late = place.open(clock=lambda: time.time() + 3600)
    late.append(Append(branch_id=branch.id, seq=branch.seq, take="other", lease=60.0))
    elsewhere.renew()
    with pytest.raises(LeaseLost):
        elsewhere.end()
    (branch,) = elsewhere.ours.branches()
    assert (branch.owner, branch.status) == ("other", "running")
