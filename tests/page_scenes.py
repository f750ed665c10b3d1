"""The pages of the inbox in tests: a desk whose calls wait, people who look at them, and what their pages say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inbox_scenes import OTTO, RITA, ByHeader, Visitor, inbox_of
from page_reader import Element, read

from phronomy import Agent, MemoryStore, PendingApproval, Principal, tool
from phronomy.inbox import Inbox
from phronomy.testing import ScriptedModel, call

MIA = Principal(id="mia", name="Mia", roles=("lead",))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_795_597_200.0  # 25 November 2026, 9:00 UTC

    def __call__(self) -> float:
        return self.now


class Pages:
    """A store, an inbox over it, and one tool that asks: `refund`."""

    def __init__(self, store: Any = None, *, body: Callable[[], None] | None = None, **inbox: Any) -> None:
        self.clock = Clock()
        self.store = store if store is not None else MemoryStore(clock=self.clock)
        self.body = body
        self.inbox: Inbox = inbox_of(self.store, **{"auth": ByHeader(RITA, OTTO, MIA), **inbox})
        self.agents: dict[str, Agent[Any, str]] = {}

    def agent(
        self, gate: Any = True, *, name: str = "desk", risk: str | None = None, **options: Any
    ) -> Agent[Any, str]:
        scene = self

        @tool(requires_approval=gate, risk=risk, **options)
        def refund(order: int, amount: float = 49.9, note: str | None = None) -> str:
            """Refund an order, in euros."""
            if scene.body is not None:
                scene.body()
            return f"order {order}: {amount} euros are on their way"

        return self.of(refund, {"order": 1042, "amount": 5.0}, name=name)

    def of(self, one: Any, args: dict[str, Any], *, name: str = "desk", **options: Any) -> Agent[Any, str]:
        model = ScriptedModel.by_turn([lambda request: call(one.name, args), "Done."])
        self.agents[name] = Agent(name=name, model=model, tools=[one], store=self.store, **options)
        return self.agents[name]

    def asked(self, gate: Any = True, **options: Any) -> PendingApproval:
        """A request that waits."""
        return self.waits(self.agent(gate, **options))

    def waits(self, agent: Agent[Any, str]) -> PendingApproval:
        return agent.invoke("Refund it", requester=Principal(id="ann", name="Ann")).checkpoint.pending[0]

    def carry_out(self, name: str = "desk") -> None:
        """What a worker does."""
        self.agents[name].recover_all()

    def visitor(self, who: str | None = "rita", **options: Any) -> Visitor:
        return Visitor(self.inbox, who, **options)

    def page(self, path: str, who: str = "rita", *, status: int = 200) -> Element:
        """The main part of a page."""
        answer = self.visitor(who).get(path)
        assert answer.status_code == status, answer.text
        return read(answer.text).one("main")

    def shown(self, item: PendingApproval, who: str = "rita") -> Element:
        return self.page(f"/requests/{item.id}", who)

    def state(self, item: PendingApproval, who: str = "rita") -> tuple[str, str]:
        """The name of the state of a request, and its words."""
        found = self.shown(item, who).one("section", id="state")
        return found.attributes["data-state"], found.text

    def send(self, form: Element, who: str = "rita", **changes: str | None) -> Any:
        """The answer to a form, sent as a browser does."""
        return self.visitor(who).post(form.attributes["action"], data=form.filled(**changes))

    def sent(self, form: Element, who: str = "rita", *, status: int = 200, **changes: str | None) -> Element:
        answer = self.send(form, who, **changes)
        assert answer.status_code == status, answer.text
        return read(answer.text).one("main")

    def form(self, item: PendingApproval, way: str, who: str = "rita") -> Element:
        """The form of a way to answer, on the page of a request."""
        choice = self.shown(item, who).one(data_way=way)
        return choice if choice.tag == "form" else choice.all("form")[0]

    def decided(self, item: PendingApproval, way: str, who: str = "rita", **changes: str | None) -> None:
        answer = self.send(self.form(item, way, who), who, **changes)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/requests/{item.id}#result"), answer.text
