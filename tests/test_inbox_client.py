"""The clients of the inbox's API: what they send, how often, and what they make of the answers. One tells both what to expect."""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
import uvicorn
from inbox_api_scenes import ROBOT, bearer, inbox_by_token
from inbox_scenes import asked, desk, inbox_of, run

from phronomy import (
    Agent,
    AlreadyVoted,
    Approval,
    Breakpoint,
    ConfigurationError,
    MemoryStore,
    NotAnApprover,
    RequestExpired,
    UnknownPending,
    tool,
)
from phronomy.inbox import ApiTokens, AsyncInboxClient, Inbox, InboxClient, InboxEvent, Problem
from phronomy.inbox.api.events import Pace, Watching
from phronomy.inbox.auth.identity import DEFAULT_SCOPES, SCOPES
from phronomy.inbox.client.asks import EventLines
from phronomy.records.calls import Added
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, wait_for_first

URL = "https://inbox.example/in"


def client(inbox: Inbox, who: str = "rita", **options: Any) -> AsyncInboxClient:
    """A client of an inbox in this process, under a prefix."""
    transport = httpx2.ASGITransport(app=inbox, root_path="/in")
    return AsyncInboxClient(URL, transport=transport, headers=bearer(who), pause=0, **options)


def inbox_for(store: Store, **options: Any) -> Inbox:
    return inbox_by_token(store, **options)


def test_a_program_lists_reads_and_decides() -> None:
    store = MemoryStore()
    agent = desk(store, gate=Approval(standing=True))
    items = [
        agent.invoke(f"Refund order {number}", thread_id=f"t{number}").checkpoint.pending[0] for number in range(6)
    ]

    async def scene() -> None:
        async with client(inbox_for(store, agents=agent)) as rita:
            assert (await rita.me()).principal.id == "rita"
            rows = [each async for each in rita.requests(page=2, tool="refund", mine=True)]
            assert [each.id for each in rows] == [each.id for each in items]
            assert (await rita.count()).text == "6"
            full = await rita.request(rows[0].id)
            assert full.schema_ is not None and full.arguments["order"] == 0
            assert (await rita.check(full, {**full.arguments, "amount": 5.0})).valid
            assert (await rita.approve(full)).status == "decided"
            assert (await rita.reject(rows[1], reason="no", then="block")).decision is not None
            answered = await rita.respond(rows[2], None, key="mine")
            assert answered.decision is not None and answered.decision.decision == "respond"
            assert (await rita.sent(rows[2].id, "mine")).recorded
            edited = await rita.edit(rows[3], {"order": 3, "amount": 5.0, "note": "é"})
            assert edited.decision is not None and edited.decision.args == '{"order":3,"amount":5.0,"note":"é"}'
            assert (await rita.decision(rows[3].id)).status == "decided"
            assert [each.kind async for each in rita.audit(page=2)] == ["approve", "reject", "respond", "approve"]
            later = datetime.now(UTC) + timedelta(hours=1)
            grant = await rita.grant(rows[4], scope="thread", until=later, uses=2)
            assert [each.id for each in await rita.grants()] == [grant.id]
            async with client(inbox_for(store), "otto") as otto:
                signed = await otto.sign_grant(grant, key="s")
                assert signed.giver_count == 2 and await otto.sign_grant(grant, key="s") == signed
            assert [each.person.id for each in signed.givers] == ["rita", "otto"]
            grant = signed
            assert (await rita.revoke(grant)).revoked_at is not None and await rita.grants() == ()
            runs = [each async for each in rita.runs(status=["suspended"], page=4)]
            assert len(runs) == 6 and (await rita.run(runs[0].id)).agent == "desk"
            assert (await rita.timeline(runs[0].id)).entries and (await rita.messages(runs[0].id)).total == 2
            assert (await rita.cancel(runs[0].id, reason="over")).status == "cancelled"
            (result,) = await rita.decide_all([rows[4]], "reject", reason="all")
            assert result.problem is not None and result.problem.title

    run(scene())


def test_a_program_looks_at_the_versions_of_a_run_and_operates_it() -> None:
    """By what it was shown: an operation that has changed since is refused, and nothing is done."""
    store = MemoryStore()

    @tool
    def refund(order: int) -> str:
        """Refund an order."""
        return "refunded"

    model = ScriptedModel.by_turn([call("refund", {"order": 1}), "Done."])
    stops = [Breakpoint("pre_tool_call")]
    agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[refund], store=store, breakpoints=stops)
    at = agent.invoke("Refund order 1").checkpoint

    async def scene() -> None:
        async with client(inbox_for(store, agents=agent)) as rita:
            tree = await rita.versions(at.run_id)
            assert (tree.items[-1].id, tree.total) == (at.id, len(store.history(at.id)))
            first = await rita.checkpoint(at.run_id, tree.items[0].id, limit=1)
            last = await rita.checkpoint(at.run_id, at.id)
            changes = await rita.diff(at.run_id, first.id, last.id, limit=1)
            assert changes.total > 1 == len(changes.items) == changes.next
            fork = await rita.fork(last, label="what if")
            assert (fork.label, fork.parent, fork.status) == ("what if", at.run_id, "suspended")
            pause, cancel, step = await rita.operations(at.run_id)
            assert (pause.why_not, cancel.what, step.request) == ("The run waits already.", "cancel", at.pending[0].id)
            with pytest.raises(Problem) as refused:
                await rita.pause(at.run_id, pause, reason="wait")
            assert refused.value.type == "refused"
            assert (await rita.step(at.run_id, step, pace="step")).id == at.run_id
            with pytest.raises(Problem) as stale:
                await rita.step(at.run_id, cancel.model_copy(update={"request": step.request}))
            assert stale.value.type in ("stale", "withdrawn", "not-found", "already-decided")
            began = await rita.fork(first)
            (pause, *_) = await rita.operations(began.id)
            assert (await rita.pause(began.id, pause, reason="wait", key="k")).status == "suspended"
            assert store.head(began.id)[1].pending[0].reason == "wait"
            back = await rita.restore(last)
            assert back.id != at.run_id and store.head(back.id)[1].parent_id == at.id
        async with client(inbox_by_token(store, scopes=lambda _: {"read"})) as reader:
            with pytest.raises(Problem) as hidden:
                await reader.fork(await reader.checkpoint(at.run_id, at.id))
            assert (hidden.value.type, hidden.value.members["scope"]) == ("forbidden", "operate")

    run(scene())
    kinds = [(each.kind, each.by and each.by.id) for each in store.audit() if each.kind in ("fork", "restore")]
    assert kinds == [("fork", "rita"), ("fork", "rita"), ("restore", "rita")]


def test_a_program_sends_events_to_runs() -> None:
    """The trigger says who may: a token alone fires nothing. Sent again under its key, an event is recorded once."""
    store = MemoryStore()

    @tool
    def ship() -> str:
        """Ship."""
        return str(wait_for_first({"paid": ExternalEvent("payment", senders=ROBOT, payload=int)}).value)

    model = ScriptedModel.by_turn([call("ship"), lambda request: request.messages[-1].text])
    agent: Agent[Any, str] = Agent(name="shop", model=model, tools=[ship], store=store)
    at = agent.invoke("Go").checkpoint

    async def scene() -> None:
        inbox = inbox_for(store)
        async with client(inbox, "rita") as rita, client(inbox, "robot") as robot:
            with pytest.raises(NotAnApprover):
                await rita.send_event(at.run_id, "payment", 5)
            with pytest.raises(Problem) as wrong:
                await robot.send_event(at.run_id, "payment", "five", key="k")
            assert wrong.value.type == "invalid"
            kept = await robot.send_event(at.run_id, "parcel", {"left": True})
            assert (kept.status, kept.pending_id, kept.branch_id) == ("kept", None, at.run_id)
            with pytest.raises(Problem) as never:
                await robot.send_event(at.run_id, "letter", early="never")
            assert never.value.type == "refused"
            sent = [await robot.send_event(at.run_id, "payment", 5, key="k") for _ in range(2)]
            assert sent[0] == sent[1] and (sent[0].status, sent[0].pending_id) == ("fired", at.pending[0].id)
            for key, problem in (("k", "key-reused"), ("other", "already-decided")):
                with pytest.raises(Problem) as late:
                    await robot.send_event(at.run_id, "payment", 6, key=key)
                assert late.value.type == problem
            with pytest.raises(Problem) as gone:
                await robot.send_event("run_0", "payment", 5)
            assert gone.value.type == "not-found"
        async with client(inbox_by_token(store, scopes=lambda _: DEFAULT_SCOPES), "robot") as robot:
            with pytest.raises(Problem) as without:
                await robot.send_event(at.run_id, "payment", 5)
            assert (without.value.type, without.value.members["scope"]) == ("forbidden", "send")

    run(scene())
    records = [(each.kind, each.refused, each.by and each.by.id) for each in store.audit()]
    assert records == [("respond", True, "rita"), ("respond", False, "robot")]
    (done,) = agent.recover_all()
    assert done.result is not None and done.result.output == "5"


def test_a_program_sends_messages_to_its_runs() -> None:
    """To its own alone, unless the server says otherwise. A message is stored once under its key, and answers nothing."""
    store = MemoryStore()

    def told(request: Any) -> str:
        return " | ".join(each.text for each in request.messages if each.role == "user")

    model = ScriptedModel([call("ship"), told])

    @tool(requires_approval=Approval(not_requester=True))
    def ship() -> str:
        """Ship."""
        return "shipped"

    agent: Agent[Any, str] = Agent(name="shop", model=model, tools=[ship], store=store)
    at = agent.invoke("Go", requester="robot").checkpoint

    async def refused(work: Any) -> str:
        with pytest.raises(Problem) as error:
            await work
        return error.value.type

    async def scene() -> None:
        inbox, anywhere = inbox_for(store), inbox_for(store, threads="any")
        async with client(inbox, "robot") as robot, client(inbox, "rita") as rita, client(anywhere, "otto") as otto:
            sent = [await robot.send_message(at.run_id, "To Bern.", key="k") for _ in range(2)]
            assert sent[0] == sent[1] and (sent[0].run_id, sent[0].branch_id) == (at.run_id, at.run_id)
            assert (sent[0].status, store.head(at.run_id)[1].pending) == ("suspended", at.pending)
            assert await refused(robot.send_message(at.run_id, "To Rome.", key="k")) == "key-reused"
            assert await refused(rita.send_message(at.run_id, "To me.")) == "refused"
            for text in ("", "x" * 1_000_001):
                assert await refused(robot.send_message(at.run_id, text)) == "invalid"
            for id in ("run_0", "a b", "x" * 2_000):
                assert await refused(robot.send_message(id, "Hello?")) == "not-found"
            await otto.send_message(at.run_id, "Quickly.")
            with pytest.raises(NotAnApprover):
                await otto.approve(await otto.request(at.pending[0].id))
            await rita.approve(await rita.request(at.pending[0].id))
            stored = [each.id for each in store.head(at.run_id)[1].journal if isinstance(each, Added)]
            assert len(stored) == 2 and stored[0] == sent[0].id
        async with client(inbox_by_token(store, scopes=lambda _: DEFAULT_SCOPES), "robot") as robot:
            assert await refused(robot.send_message(at.run_id, "More.")) == "forbidden"

    run(scene())
    (done,) = agent.recover_all()
    assert done.result is not None and done.result.output == "Go | To Bern. | Quickly."
    kinds = [(each.kind, each.by and each.by.id, each.channel) for each in store.audit()]
    assert kinds[:2] == [("message", "robot", "api"), ("message", "otto", "api")]

    async def after() -> None:
        async with client(inbox_for(store, threads="any"), "robot") as robot:
            assert await refused(robot.send_message(at.run_id, "More.")) == "refused"
            assert (await robot.send_message(at.run_id, "To Bern.", key="k")).status == "completed"

    run(after())


def test_refusals_are_the_errors_of_phronomy() -> None:
    store = MemoryStore()
    led, two = asked(store, 1, gate=Approval(by="lead", expires=60)), asked(store, 2, gate=Approval(needed=2))

    async def refused(kind: type[Exception], work: Any) -> Any:
        with pytest.raises(kind) as error:
            await work
        return error.value

    async def scene() -> None:
        async with client(inbox_for(store), "otto") as otto, client(inbox_for(store)) as rita:
            first = await otto.request(led.id)
            assert (await refused(NotAnApprover, otto.approve(first))).pending_id == led.id
            missing = await refused(UnknownPending, otto.request("pend_x"))
            assert (missing.pending_id, str(missing)) == (
                "pend_x",
                "the inbox shows no request pend_x: it is deleted, or not yours to see",
            )
            assert (await refused(UnknownPending, otto.request("a b"))).pending_id == "a b"
            second = await rita.request(two.id)
            await rita.approve(second)
            assert isinstance((await refused(AlreadyVoted, rita.approve(second))).__cause__, Problem)
            moved = second.model_copy(update={"digest": "0" * 64})
            stale = await refused(Problem, otto.approve(moved))
            assert (stale.type, stale.members["digest"]) == ("digest-mismatch", two.digest)
            await otto.approve(second)
            late = await refused(Problem, otto.reject(second))
            assert late.type == "already-decided" and late.members["by"]["id"] == "otto"
            wrong = await refused(Problem, rita.edit(first, {"order": "x"}))
            assert (wrong.type, wrong.members["errors"][0]["pointer"]) == ("invalid-edit", "/order")
            store.clock = lambda: datetime.now(UTC).timestamp() + 120
            await refused(RequestExpired, rita.approve(first))
        async with client(inbox_for(store), "nobody") as nobody:
            assert (await refused(Problem, nobody.me())).type == "not-signed-in"

    run(scene())


class Line(httpx2.AsyncBaseTransport):
    """A line to an inbox that breaks after the request has arrived, as often as it is told."""

    def __init__(self, inbox: Inbox, breaks: int) -> None:
        self.inner = httpx2.ASGITransport(app=inbox, root_path="/in")
        self.breaks = breaks
        self.keys: list[str | None] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.keys.append(request.headers.get("idempotency-key"))
        answer = await self.inner.handle_async_request(request)
        if self.breaks:
            self.breaks -= 1
            raise httpx2.ReadError("broken", request=request)
        return answer


def test_a_decision_whose_answer_was_lost_is_sent_again_under_its_key() -> None:
    store = MemoryStore()
    item = asked(store)

    async def scene() -> None:
        inbox = inbox_for(store)
        line = Line(inbox, 2)
        rita = AsyncInboxClient(URL, transport=line, headers=bearer("rita"), pause=0, attempts=3)
        shown = await client(inbox).request(item.id)
        assert (await rita.approve(shown)).status == "decided"
        assert len(line.keys) == 3 and len(set(line.keys)) == 1
        line.breaks = 3
        with pytest.raises(Problem, match="send it again with the same") as error:
            await rita.approve(shown, key="k2")
        assert (error.value.type, error.value.members["key"]) == ("unavailable", "k2")
        line.breaks = 3
        with pytest.raises(
            Problem, match=r"server at https://inbox\.example/in did not answer, asked 3 times"
        ) as error:
            await rita.me()
        assert "key" not in error.value.members

    run(scene())
    assert len(list(store.audit())) == 1


def scripted(*answers: httpx2.Response) -> tuple[list[httpx2.Request], Callable[[httpx2.Request], httpx2.Response]]:
    """A server that gives these answers, and the requests that it got."""
    seen: list[httpx2.Request] = []
    left = iter(answers)

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return next(left)

    return seen, handle


def blocking(*answers: httpx2.Response, **options: Any) -> tuple[list[httpx2.Request], InboxClient]:
    seen, handle = scripted(*answers)
    return seen, InboxClient(URL, "phr_a_secret", transport=httpx2.MockTransport(handle), pause=0, **options)


COUNT = {"count": 1, "more": False, "text": "1"}


def test_the_blocking_client_waits_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("phronomy.inbox.client.clients.time.sleep", slept.append)
    busy = httpx2.Response(429, headers={"retry-after": "7"})
    away = httpx2.Response(503)
    seen, it = blocking(busy, away, httpx2.Response(200, json=COUNT))
    with it:
        assert it.count(tool="refund", mine=True).count == 1
    assert slept == [7.0, 0.0] and str(seen[0].url) == f"{URL}/api/v1/requests/count?tool=refund&mine=true"
    assert seen[0].headers["authorization"] == "Bearer phr_a_secret" and "phr_a" not in repr(it)
    _, it = blocking(away, away, attempts=2)
    with pytest.raises(Problem) as error:
        it.me()
    assert error.value.type == "unavailable"


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[]", b'{"type":"/problems/of-the-future","detail":"x"}', b'{"type":5}']
)
def test_an_answer_that_is_not_understood_is_a_problem(content: bytes) -> None:
    _, it = blocking(httpx2.Response(418, content=content))
    with pytest.raises(Problem, match="answered 418") as error:
        it.me()
    assert error.value.type == "failed"


def test_pages_are_read_as_they_are_needed() -> None:
    store = MemoryStore()
    for number in range(5):
        asked(store, number)

    async def scene() -> int:
        line = Line(inbox_for(store), 0)
        rita = AsyncInboxClient(URL, transport=line, headers=bearer("rita"))
        async for row in rita.requests(page=2):
            assert row.id
            break
        return len(line.keys)

    assert run(scene()) == 1


@pytest.mark.parametrize("url", ["", "inbox.example", "ftp://x", None])
def test_a_url_is_an_address(url: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"https://.* or with http://, such as http://127\.0\.0\.1:8484"):
        InboxClient(url)
    with pytest.raises(ConfigurationError, match="attempts"):
        InboxClient(URL, attempts=0)


def test_an_address_with_a_password_is_told_without_it() -> None:
    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with InboxClient(
        "https://rita:hunter2@inbox.example/in?x=1", attempts=1, transport=httpx2.MockTransport(broken)
    ) as rita:
        with pytest.raises(Problem, match=r"server at https://inbox\.example/in did not answer, asked once") as error:
            rita.me()
        assert "hunter2" not in str(error.value)


# Events


def test_lines_become_events() -> None:
    lines = EventLines(None)
    text = (
        "retry: 250\n\n:\n\nid: 1-2\n\nid: 2-2\ndata: {\"id\": \"pend_1\",\ndata: \"kind\": \"asked\", \"version\": 3}\n\n"
        "event: reset\nid: 5-5\ndata: {}\n\ndata: {}\n\ndata: nonsense\n\nevent: other\ndata: {}\n\nid: a\0b\nretry: x\nnew: y\n\n"
    )  # fmt: skip
    found = [event for line in text.split("\n") if (event := lines.take(line)) is not None]
    assert found == [
        InboxEvent(id="2-2", kind="asked", subject="pend_1", version=3),
        InboxEvent(id="5-5", kind="reset"),
    ]
    assert (lines.pause, lines.last) == (0.25, "5-5")


@contextmanager
def served(inbox: Inbox) -> Iterator[str]:
    """The address of a real server of this inbox."""
    server = uvicorn.Server(uvicorn.Config(inbox, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    started = threading.Event()
    startup = server.startup

    async def told(*args: Any, **options: Any) -> None:
        await startup(*args, **options)
        started.set()

    server.startup = told  # type: ignore[method-assign]
    thread.start()
    assert started.wait(20)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        inbox.site.kept(Watching).close()
        server.should_exit = True
        thread.join(20)


def test_events_are_heard_over_a_real_line_by_both_clients() -> None:
    store = MemoryStore()
    inbox = inbox_for(store)
    inbox.site.kept(Watching).pace = Pace(look=0.005, comment=0.01)
    with served(inbox) as url:
        with InboxClient(url, headers=bearer("rita")) as it:
            first = asked(store, 1)
            event = next(it.events(after="0-0"))
        assert (event.subject, event.kind) == (first.id, "asked")

        async def scene() -> list[InboxEvent]:
            async with AsyncInboxClient(url, headers=bearer("rita")) as client:
                second = asked(store, 2)
                found = []
                async for one in client.events(after=event.id):
                    found.append(one)
                    if one.subject == second.id:
                        return found
            return []

        assert run(scene())[-1].kind == "asked"


def test_the_blocking_client_does_all_of_it_with_a_token_over_a_real_line() -> None:
    store = MemoryStore()
    agent = desk(store, gate=Approval(standing=True))
    items = [agent.invoke(f"Refund order {number}").checkpoint.pending[0] for number in range(6)]
    inbox = inbox_of(store, agents=agent, scopes=lambda _: SCOPES)
    scopes = [each for each in SCOPES if each != "start"]
    issued = run(ApiTokens(store).issue("bot", ROBOT, scopes=scopes, seconds=60))
    with served(inbox) as url, InboxClient(url, issued.secret) as bot:
        assert (bot.me().principal.id, bot.me().via) == ("robot", "token")
        rows = list(bot.requests(page=4, order="newest"))
        assert [each.id for each in rows] == [each.id for each in reversed(items)]
        assert bot.request(rows[0].id).status == "pending" and bot.count().count == 6
        assert not bot.check(rows[0], '{"order": null}').valid
        assert bot.approve(rows[0], key="k").status == "decided" and bot.sent(rows[0].id, "k").recorded
        assert bot.edit(rows[1], '{"order": 4, "amount": 1.0, "note": ""}').status == "decided"
        assert bot.reject(rows[2]).status == bot.respond(rows[3], {"a": [1]}).status == "decided"
        with pytest.raises(Problem) as error:
            bot.skip(rows[4])
        assert error.value.type == "invalid"
        assert bot.decision(rows[0].id).decision is not None
        assert len(list(bot.audit(page=1, since=datetime(2020, 1, 1, tzinfo=UTC)))) == 4
        grant = bot.grant(rows[4], uses=1, scope="tenant", exactly=False)
        assert [each.id for each in bot.grants(tool="refund")] == [grant.id]
        with pytest.raises(Problem) as error:
            bot.sign_grant(grant)
        assert error.value.type == "refused" and grant.giver_count == 1  # it has given it
        store.use_grant(grant.id, "pend_1")
        with pytest.raises(Problem) as error:
            bot.revoke(grant)
        assert error.value.type == "stale"
        (result,) = bot.decide_all([rows[4]], "approve")
        assert result.problem is not None
        found = list(bot.runs(agent="desk", page=5))
        assert len(found) == 6 and bot.run(found[5].id).run_id == found[5].id
        assert bot.timeline(found[0].id, limit=1).dropped and bot.messages(found[0].id, before=1).total == 2
        assert bot.cancel(store.request(rows[4].id).run_id).status == "cancelled"
        with pytest.raises(Problem) as error:
            bot.start("desk", "Refund order 7")
        assert (error.value.type, error.value.members["scope"]) == ("forbidden", "start")
        run(ApiTokens(store).revoke(issued.token.id))
        with pytest.raises(Problem) as error:
            bot.me()
        assert error.value.type == "not-signed-in"


def test_a_stream_that_breaks_is_taken_up_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("phronomy.inbox.client.clients.time.sleep", slept.append)

    def block(number: int) -> str:
        return f'id: {number}-0\ndata: {{"id": "pend_{number}", "kind": "asked", "version": 0}}\n\n'

    seen, it = blocking(
        httpx2.Response(200, text="retry: 100\n\n" + block(1) + "id: 2-0\ndata: {"),
        httpx2.Response(503),
        httpx2.Response(200, text=block(3)),
        httpx2.Response(401, json={"type": "/problems/not-signed-in", "detail": "x"}),
    )
    events = it.events(after="0-0")
    found = [next(events), next(events)]
    with pytest.raises(Problem) as error:
        next(events)
    assert error.value.type == "not-signed-in"
    assert [each.subject for each in found] == ["pend_1", "pend_3"] and slept == [0.1, 0.1, 0.1]
    assert [each.headers["last-event-id"] for each in seen] == ["0-0", "1-0", "1-0", "3-0"]


def test_both_clients_say_the_same() -> None:
    from phronomy.inbox.client import clients, runs

    trees = [ast.parse(inspect.getsource(each)) for each in (clients, runs)]
    found = {each.name: each for tree in trees for each in tree.body if isinstance(each, ast.ClassDef)}

    def methods(name: str) -> dict[str, tuple[str, str]]:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return {
            each.name: (_plain(ast.unparse(each.args) + ast.unparse(each.returns or ast.Constant(None))), ast.get_docstring(each) or "")
            for each in found[name].body
            if isinstance(each, kinds) and not each.name.startswith("_") and each.name not in ("close", "aclose")
        }  # fmt: skip

    assert methods("InboxClient") == methods("AsyncInboxClient")
    assert methods("RunMethods") == methods("AsyncRunMethods")
    public = [name for name in methods("InboxClient") | methods("RunMethods") if name not in ("events", "send")]
    assert len(public) > 25
    for name in public:
        waits = inspect.iscoroutinefunction(getattr(AsyncInboxClient, name))
        assert waits == (name not in ("requests", "audit", "runs")), name


def _plain(text: str) -> str:
    return text.replace("AsyncIterator", "Iterator")
