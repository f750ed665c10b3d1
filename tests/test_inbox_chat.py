"""The chat of the inbox: somebody talks to an agent, which asks people for what it may not do alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from inbox_scenes import ORIGIN, OTTO, RITA, ByHeader, inbox_of, run
from page_reader import Element, read
from typing_extensions import TypedDict

from phronomy import Agent, Approval, Approve, MemoryStore, Reject, Respond, tool
from phronomy.errors import ModelError
from phronomy.graph import END, START, StateGraph
from phronomy.inbox.auth.identity import SCOPES
from phronomy.testing import ScriptedModel, call


class Chat:
    """An inbox with an agent, and somebody who talks to it with the forms of its pages, in one event loop."""

    def __init__(self, *replies: Any, gate: Any = True, who: str = "rita", **inbox: Any) -> None:
        @tool(requires_approval=gate)
        def refund(order: int) -> str:
            """Refund an order."""
            return f"order {order} is refunded"

        self.store = MemoryStore()
        self.model = ScriptedModel([*replies] or self.answer)
        self.agent: Any = Agent(name="desk", model=self.model, tools=[refund], store=self.store)
        self.who = who
        self.inbox = inbox_of(
            self.store, **{"agents": [self.agent], "auth": ByHeader(RITA, OTTO), "scopes": lambda _: SCOPES, **inbox}
        )
        self.at = ""
        self.page = Element("html", {})

    def answer(self, request: Any) -> Any:
        """Says what was said, and refunds if it is asked to."""
        last = request.messages[-1]
        if last.role == "user" and last.text.startswith("Refund"):
            return call("refund", {"order": int(last.text.split()[-1])})
        return f"You said: {last.text}" if last.role == "user" else "Done."

    async def sends(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"sec-fetch-site": "same-origin", "x-user": self.who, **options.pop("headers", {})}
        transport = httpx2.ASGITransport(app=self.inbox, raise_app_exceptions=True)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            return await client.request(method, path, headers=headers, **options)

    async def opens(self, path: str, *, status: int = 200) -> Element:
        answer = await self.sends("GET", path)
        assert answer.status_code == status, answer.text
        self.at, self.page = path.partition("#")[0], read(answer.text)
        return self.page

    async def submits(self, form: Element, *, status: int = 303, **fields: str | None) -> httpx2.Response:
        answer = await self.sends("POST", form.attributes["action"], data=form.filled(**fields))
        assert answer.status_code == status, answer.text
        return answer

    async def says(self, text: str) -> Element:
        """Say it with the form of the page, and go where that leads."""
        (form,) = self.page.all("form", class_="say")
        answer = await self.submits(form, text=text)
        return await self.opens(answer.headers["location"])

    async def settles(self) -> Element:
        """Look again until the agent is not at work."""
        while "data-follows" in (await self.opens(self.at)).one("section", id="talk").attributes:  # noqa: ASYNC110  # as the page does
            await asyncio.sleep(0)
        return self.page

    @property
    def lines(self) -> list[str]:
        """The messages on the page, each with who said it."""
        found = []
        for line in self.page.one("section", id="talk").all("li"):
            kind = line.attributes["class"]
            words = (
                line.one("summary")
                if kind == "step"
                else line.one("h2")
                if kind == "ask"
                else line.one(class_="bubble")
            )
            late = " (not read yet)" if "not read yet" in line.text else ""
            found.append(f"{kind}: {words.text}{late}")
        return found


def story(*replies: Any, **options: Any) -> Callable[[Callable[[Chat], Awaitable[None]]], Callable[[], None]]:
    def decorate(body: Callable[[Chat], Awaitable[None]]) -> Callable[[], None]:
        def test() -> None:
            run(body(Chat(*replies, **options)))  # type: ignore[arg-type]

        return test

    return decorate


@story()
async def test_a_conversation_with_a_request_in_it(chat: Chat) -> None:
    page = await chat.opens("/chat")
    assert page.one("h1").text == "Talk to desk"
    await chat.says("Hello")
    await chat.settles()
    assert chat.lines == ["mine: Hello", "theirs: You said: Hello"]
    assert chat.at.startswith("/chat/chat-")
    await chat.says("Refund order 7")
    page = await chat.settles()
    assert chat.lines[2:] == ["mine: Refund order 7", "step: It calls refund", "ask: Run refund?"]
    # A message meanwhile waits, and decides nothing.
    await chat.says("And write to the customer.")
    assert chat.lines[-1] == "mine: And write to the customer. (not read yet)"
    (item,) = [row.approval for row in chat.store.pending()]
    conversation = chat.at
    page = await chat.opens(page.one("li", class_="ask").one("a").attributes["href"])
    form = page.one("form", data_way="approve")
    await chat.submits(form)
    page = await chat.opens(f"/requests/{item.id}")
    assert "The conversation of this run" in [each.text for each in page.all("a", href=conversation)]
    chat.agent.recover_all()
    await chat.opens(conversation)
    assert chat.lines[4:] == [
        "step: refund: completed",
        "mine: And write to the customer.",
        "theirs: You said: And write to the customer.",
    ]
    page = await chat.opens("/chat")
    assert [each.text for each in page.one("ul", class_="rows").all("h3")] == ["Hello"]


@story()
async def test_a_form_that_is_sent_twice_begins_and_says_one_thing(chat: Chat) -> None:
    (form,) = (await chat.opens("/chat")).all("form", class_="say")
    first = await chat.submits(form, text="Hello")
    assert (await chat.submits(form, text="Hello")).headers["location"] == first.headers["location"]
    await chat.submits(form, text="Another", status=422)
    await chat.opens(first.headers["location"])
    await chat.settles()
    (form,) = chat.page.all("form", class_="say")
    for _ in range(2):
        await chat.submits(form, text="Again")
    await chat.settles()
    assert [line for line in chat.lines if line.startswith("mine")] == ["mine: Hello", "mine: Again"]
    assert len(chat.store.branches()) == 2


@story(ModelError("the provider is down"), "I am back.", "You said more.")
async def test_a_run_that_failed_is_tried_again(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Hello")
    page = await chat.settles()
    assert page.one(id="end").text == "The agent could not go on."
    (again,) = [form for form in page.all("form") if ("again", "yes") in form.sent()]
    await chat.submits(again)
    await chat.settles()
    assert chat.lines == ["mine: Hello", "theirs: I am back."]
    await chat.submits(again, status=303)  # the same press
    assert len(chat.model.requests) == 2


@story(ModelError("the provider is down"), ModelError("still down"), ModelError("still"), "I am back.")
async def test_a_run_that_fails_again_can_be_tried_again_and_told_more(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Hello")
    page = await chat.settles()
    for _ in range(2):
        (again,) = [form for form in page.all("form") if ("again", "yes") in form.sent()]
        await chat.submits(again)
        page = await chat.settles()
        assert page.one(id="end").text == "The agent could not go on."
    await chat.says("Are you there?")
    await chat.settles()
    assert chat.lines[:2] == ["mine: Hello", "theirs: I am back."]


@story(ModelError("the provider is down"), "I am back.", "Yes.")
async def test_a_message_to_a_run_that_failed_has_it_go_on(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Hello")
    await chat.settles()
    await chat.says("Are you there?")
    await chat.settles()
    assert chat.lines == ["mine: Hello", "theirs: I am back.", "mine: Are you there?", "theirs: Yes."]


@story(gate=Approval(by="lead", needed=2, not_requester=True))
async def test_who_waits_for_others_is_told_for_whom(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Refund order 7")
    page = await chat.settles()
    asked = page.one("li", class_="ask").text
    assert "This waits for others: 2 of lead, but not the requester" in asked and "Look at it" in asked
    (item,) = [row.approval for row in chat.store.pending()]
    before = page.one("section", id="talk").attributes["data-digest"]
    chat.store.decide(item.id, Approve(), by=RITA.evolve(id="mia"), digest=item.digest)
    part = await chat.sends("GET", f"{chat.at}/talk")
    assert read(part.text).one("section", id="talk").attributes["data-digest"] != before
    assert "1 of 2 so far" in read(part.text).one("li", class_="ask").text


@story()
async def test_nobody_talks_in_the_conversation_of_somebody_else(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Hello")
    page = await chat.settles()
    (form,) = page.all("form", class_="say")
    chat.who = "otto"
    page = await chat.opens(chat.at)
    assert page.all("form", class_="say") == []
    assert "You can read this conversation." in page.one("main").text
    answer = await chat.submits(form, text="I am Rita", status=403)  # the form of another person
    assert "Another" not in answer.text
    assert chat.store.current(chat.at.rpartition("/")[2]).messages[-1].text == "You said: Hello"
    assert (await chat.opens("/chat")).all("ul", class_="rows") == []


@story()
async def test_what_nobody_has_read_is_shown_to_its_author_alone(chat: Chat) -> None:
    """Guardrails look at it before the model does, and may mask a part of it."""
    await chat.opens("/chat")
    await chat.says("Refund order 7")
    await chat.settles()
    await chat.says("My card is 4111111111111111.")
    assert chat.lines[-1] == "mine: My card is 4111111111111111. (not read yet)"
    chat.who = "otto"
    page = await chat.opens(chat.at)
    assert "4111" not in page.text and "not shown: no guardrail has let it through" in chat.lines[-1]


@pytest.mark.parametrize("answer", [Reject(reason="Not today."), Respond(content="It was refunded by hand.")])
def test_the_words_of_who_decides_do_not_close_the_conversation(answer: Any) -> None:
    async def body() -> None:
        chat = Chat(gate=Approval(by="clerk"))
        await chat.opens("/chat")
        await chat.says("Refund order 7")
        await chat.settles()
        (item,) = [row.approval for row in chat.store.pending()]
        chat.agent.decide(item.id, answer, by=OTTO)
        await chat.opens(chat.at)
        await chat.says("Thank you.")
        await chat.settles()
        assert chat.lines[-1] == "theirs: You said: Thank you."
        assert chat.store.current(chat.at.rpartition("/")[2]).requesters == ("otto",)

    run(body())


@story(ModelError("the provider is down"), "You said both.", "And once more.")
async def test_a_message_that_somebody_else_had_the_run_read_is_said_once(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Hello")
    await chat.settles()
    (form,) = chat.page.all("form", class_="say")
    send, store = type(chat.store).asend, chat.store

    async def sent(run: str, text: str, **options: Any) -> Any:
        head = await send(store, run, text, **options)
        await chat.agent.aresume(head)  # in another tab, somebody has pressed "Try again"
        return head

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "asend", sent)
        await chat.submits(form, text="Pay once")
    await chat.opens(chat.at)
    assert [line for line in chat.lines if line.startswith("mine")] == ["mine: Hello", "mine: Pay once"]
    # The process died before it noted that: the form is sent again a minute later.
    for document in store.select_documents("inbox-sent"):
        store.delete_document("inbox-sent", document.key, version=document.version)
    await chat.submits(form, text="Pay once")
    await chat.opens(chat.at)
    assert [line for line in chat.lines if line.startswith("mine")] == ["mine: Hello", "mine: Pay once"]


@story()
async def test_nobody_begins_a_conversation_in_the_name_of_another(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says("Hello")
    thread = chat.at.rpartition("/")[2]
    body = {"agent": "desk", "input": "Pay Mallory", "thread": f"{thread[:-4]}0000"}
    for who, status in (("otto", 409), ("rita", 202)):
        chat.who = who
        me = (await chat.sends("GET", "/api/v1/me")).json()
        keys = {"idempotency-key": who, "x-csrf-token": me["csrf"]}
        answer = await chat.sends("POST", "/api/v1/runs", json=body, headers=keys)
        assert answer.status_code == status, answer.text


@story(scopes=lambda who: {"read", "decide"} if who.id == "rita" else {"start"})
async def test_who_may_not_start_runs_or_read_has_no_chat(chat: Chat) -> None:
    page = await chat.opens("/")
    assert "Chat" not in [each.text for each in page.one("nav", class_="nav").all("a")]
    for who in ("rita", "otto"):
        chat.who = who
        for method, path in (("GET", "/chat"), ("GET", "/chat/t"), ("GET", "/chat/t/talk")):
            assert (await chat.sends(method, path)).status_code == 403


@story()
async def test_a_thread_that_is_not_there_and_what_is_no_agent(chat: Chat) -> None:
    await chat.opens("/chat/none", status=404)
    await chat.opens("/chat/%00", status=404)
    (form,) = (await chat.opens("/chat")).all("form", class_="say")
    for fields in ({"agent": "other"}, {"text": " \n "}, {"text": "x" * 20_001}, {"key": 'a"b'}):
        status = 400 if "key" in fields else 422
        await chat.submits(form, status=status, **{"text": "Hello", **fields})
    assert chat.store.branches() == []


class State(TypedDict):
    words: str


def test_a_graph_takes_no_words() -> None:
    async def body() -> None:
        graph = StateGraph(State)
        graph.add_node("think", lambda state: {})
        graph.add_edge(START, "think")
        graph.add_edge("think", END)
        store = MemoryStore()
        chat = Chat(agents=[graph.compile(name="flow", store=store)])
        assert "This server has no agent that takes words." in (await chat.opens("/chat")).one("main").text

    run(body())


@story()
async def test_words_from_outside_are_text(chat: Chat) -> None:
    await chat.opens("/chat")
    await chat.says('<img src=x onerror="alert(1)">')
    page = await chat.settles()
    assert page.one("main").all("img") == []
    assert chat.lines[0] == 'mine: <img src=x onerror="alert(1)">'
