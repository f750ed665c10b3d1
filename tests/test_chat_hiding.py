"""`hide` names values that no chat shows: at every depth, in texts that quote them, and on each surface."""

from __future__ import annotations

import logging
from typing import Any, TypedDict

import pytest
from chat_scenes import PLATFORMS, RITA, approvals_of, emptied, with_people
from drivers import Driver
from pydantic import BaseModel, field_validator
from tables import each

from phronomy import Agent, Approval, Approve, MemoryStore, Reject, interrupt, tool
from phronomy.chat import ChatApprovals
from phronomy.chat.hiding import Hiding
from phronomy.graph import END, START, StateGraph
from phronomy.inbox import MailLinks
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import FakeSlack

IBAN = "DE89370400440532013000"


class Payment(BaseModel):
    iban: str
    amount: int


@tool(requires_approval=True)
def pay(payment: Payment, others: list[Payment], notes: dict[str, str]) -> str:
    """Pay."""
    return "paid"


ARGS = {
    "payment": {"iban": IBAN, "amount": 7},
    "others": [{"iban": IBAN, "amount": 8}],
    "notes": {"old.IBAN": IBAN, "more": "fine"},
}


class Desk:
    """Chat approvals over one platform, which hide `iban`."""

    def __init__(self, platform: Any, hide: Any = ("iban",)) -> None:
        self.platform = platform
        self.store = with_people(MemoryStore(clock=platform.clock), platform)
        self.approvals: ChatApprovals = approvals_of(self.store, platform, hide=hide)

    def agent(self, *tools: Any, args: Any = None, **options: Any) -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call(tools[0].name, args or {}), "Done."])
        return Agent(
            name="desk", model=model, tools=[*tools], store=self.store, announcements=[self.approvals], **options
        )

    def shown(self) -> str:
        emptied(self.approvals, self.platform.clock)
        return "\n".join([*(each.text for each in self.platform.messages()), *self.platform.reminders()])


@pytest.fixture(params=["slack", "discord", "teams", "telegram", "email", "webhook"])
def desk(request: pytest.FixtureRequest) -> Any:
    from phronomy.testing.chat import Clock  # a clock for each

    platform = PLATFORMS[request.param](Clock(), False)
    yield Desk(platform)
    platform.close()


@pytest.fixture
def slack() -> Any:
    with FakeSlack() as platform:
        yield Desk(platform)


def test_members_are_hidden_at_every_depth_and_on_each_platform(desk: Desk) -> None:
    agent = desk.agent(pay, args=ARGS)
    item = agent.invoke("go").checkpoint.pending[0]
    text = desk.shown()
    assert IBAN not in text and "amount" in text and "fine" in text
    edited = {**ARGS, "payment": {"iban": IBAN[::-1], "amount": 7}}
    desk.store.decide(item.id, Approve(args=edited), by="otto", digest=item.digest)
    agent.recover_all()
    text = desk.shown()
    assert IBAN not in text and IBAN[::-1] not in text


def test_nothing_hidden_is_edited_in_a_chat(slack: Desk) -> None:
    slack.agent(pay, args=ARGS).invoke("go")
    emptied(slack.approvals, slack.platform.clock)
    slack.platform.click(slack.platform.messages()[0], "edit", RITA)
    assert slack.platform.form(RITA) is None
    assert "inbox.example" in slack.platform.told(RITA)[-1]


class State(TypedDict, total=False):
    iban: str
    amount: int


def test_the_state_of_a_graph_is_hidden(slack: Desk) -> None:
    graph = StateGraph(State)
    graph.add_node("review", lambda state: {"amount": 1}, requires_approval=True)
    graph.add_edge(START, "review")
    graph.add_edge("review", END)
    graph.compile(name="desk", store=slack.store, announcements=[slack.approvals]).invoke({"iban": IBAN, "amount": 7})
    text = slack.shown()
    assert IBAN not in text and "amount" in text


def test_the_payload_of_a_question_is_hidden(slack: Desk) -> None:
    @tool
    def ask() -> str:
        """Ask."""
        return f"{interrupt({'iban': IBAN, 'to': 'ACME'})}"

    slack.agent(ask).invoke("go")
    text = slack.shown()
    assert IBAN not in text and "ACME" in text


UNTOLD = "The reason may quote what is hidden here: it is in the inbox."
QUOTES: dict[str, Any] = {
    "as it is": lambda iban: iban,
    "in small letters": lambda iban: iban.lower(),
    "in groups": lambda iban: " ".join(iban[at : at + 4] for at in range(0, len(iban), 4)),
    "backwards": lambda iban: iban[::-1],
    "its end": lambda iban: iban[-6:],
    "in bytes": lambda iban: iban.encode().hex(),
}
"""The forms in which an error quotes a value."""


@pytest.mark.parametrize("how", QUOTES)
def test_an_error_of_a_call_with_a_hidden_value_is_not_quoted(driver: Driver, slack: Desk, how: str) -> None:
    def send(payment: Payment) -> str:
        """Send."""
        raise ValueError(f"account {QUOTES[how](payment.iban)} is blocked")

    gated = tool(requires_approval=True, on_failure="human")(driver.function(send))
    agent = slack.agent(gated, args={"payment": ARGS["payment"]})
    waits = driver.invoke(agent, "go").checkpoint
    again = driver.resume(agent, waits, approved=True).checkpoint.pending[0]
    assert QUOTES[how](IBAN) in (again.reason or "")
    text = slack.shown()
    assert QUOTES[how](IBAN) not in text and "is blocked" not in text and text.count(UNTOLD) == 1


def test_no_platform_quotes_such_an_error(desk: Desk) -> None:
    @tool(requires_approval=True, on_failure="human")
    def send(iban: str) -> str:
        """Send."""
        raise ValueError(f"{iban[:4]} {iban[4:]} is blocked")

    agent = desk.agent(send, args={"iban": IBAN})
    waits = agent.invoke("go").checkpoint
    desk.shown()
    agent.resume(waits, approved=True)
    text = desk.shown()
    assert IBAN[4:] not in text and "is blocked" not in text and "may quote what is hidden here" in text


def test_the_error_of_an_edit_that_did_not_fit_is_not_quoted(slack: Desk) -> None:
    """It is about another value than the request has."""

    class Checked(Payment):
        @field_validator("iban")
        @classmethod
        def known(cls, value: str) -> str:
            if value != IBAN:
                raise ValueError(f"no account {value[:4]} {value[4:]}")
            return value

    @tool(requires_approval=True)
    def send(payment: Checked) -> str:
        """Send."""
        return "sent"

    agent = slack.agent(send, args={"payment": ARGS["payment"]})
    item = agent.invoke("go").checkpoint.pending[0]
    edited = {"payment": {"iban": "GB99SECRET", "amount": 7}}
    slack.store.decide(item.id, Approve(args=edited), by="otto", digest=item.digest)
    agent.recover_all()
    (again,) = slack.store.pending()
    assert "no account GB99 SECRET" in (again.approval.reason or "")
    text = slack.shown()
    assert "SECRET" not in text and UNTOLD in text


def test_a_reason_that_quotes_it_is_told_without_it(slack: Desk) -> None:
    agent = slack.agent(pay, args=ARGS)
    item = agent.invoke("go").checkpoint.pending[0]
    slack.shown()
    agent.decide(item.id, Reject(reason=f"{IBAN} is not theirs"), by="otto")
    text = slack.shown()
    assert IBAN not in text and "is not theirs" in text


@each(
    ("names", "args", "hidden"),
    [
        (["iban"], {"a": {"b": [{"IBAN": 1}]}}, True),
        (["payment.iban"], {"payment": {"iban": 1}}, True),
        (["payment.iban"], {"payment": [{"iban": 1}]}, True),
        (["payment.iban"], {"payment.iban": 1}, True),
        (["payment.iban"], {"state": {"payment": {"iban": 1}}}, True),
        (["payment.iban"], {"iban": 1, "payment": {}}, False),
        (["iban"], {"a": "iban", "b": {"ibans": 1}}, False),
        ([], {"iban": 1}, False),
        (["iban"], {"d": {"iban ": 1}}, True),
        (["iban"], {"d": {"\ti ban\n": 1}}, True),
        (["iban"], {"d": {"i\u00a0b\u3000an": 1}}, True),
        (["iban"], {"d": {"\uff49ban": 1}}, True),
        (["iban"], {"d": {"\uff29\uff22\uff21\uff2e": 1}}, True),
        (["iban"], {"d": {"\U0001d422ban": 1}}, True),
        (["iban"], {"d": {"i\u200bban": 1}}, True),
        (["iban"], {"d": {"i\u00adban\ufe0f": 1}}, True),
        (["iban"], {"d": {"i\u3164ban": 1}}, True),
        (["iban"], {"d": {"\u0456b\u0430n": 1}}, True),  # Cyrillic
        (["iban"], {"d": {"\u0130BAN": 1, "ib\u00e1n": 2}}, True),
        (["\uff29BAN "], {"iban": 1}, True),
        (["payment.iban"], {"payment\uff0eiban": 1}, True),
        (["payment.iban"], {"p\u0430yment ": [{" IBAN": 1}]}, True),
        (["stra\u00dfe"], {"STRASSE": 1}, True),
        (["iban"], {"ibam": 1, "i-ban": 2, "i.ban": 3}, False),
    ],
)
def test_a_name_is_met_wherever_it_stands(names: list[str], args: Any, hidden: bool) -> None:
    item: Any = type("Item", (), {"args": args, "reason": None})
    hiding = Hiding(names)
    assert hiding.is_hidden(item) is hidden
    assert (hiding.view(args, "-") == args) is not hidden


class Paid(TypedDict):
    iban: str


def failing(state: Paid) -> Paid:
    raise ValueError(f"blocked {state['iban']}")


def failed_node(desk: Desk, **options: Any) -> Any:
    """The request about a node that failed on a hidden value."""
    builder = StateGraph(Paid, name="payments")
    builder.add_node("pay", failing, on_failure="human", **options)
    builder.add_edge(START, "pay")
    builder.add_edge("pay", END)
    graph = builder.compile(store=desk.store, announcements=[desk.approvals])
    result = graph.invoke({"iban": IBAN})
    if options:
        result = graph.resume(result.checkpoint, approved=True)
    return result.checkpoint.pending[0]


@tool(requires_approval=Approval(title="Pay {iban} {amount}, {note}"))
def wire(iban: str, amount: int, note: dict[str, str]) -> str:
    """Pay."""
    return "paid"


@each("iban", [IBAN, f"{IBAN}\t{'9' * 80}"])
def test_a_title_does_not_quote_it(iban: str) -> None:
    """Nor the beginning of it, which stands in the title of a value that is long."""
    for platform in ("slack", "webhook"):
        from phronomy.testing.chat import Clock

        made: Any = PLATFORMS[platform](Clock(), False)
        desk = Desk(made)
        item = desk.agent(wire, args={"iban": iban, "amount": 7, "note": {}}).invoke("go").checkpoint.pending[0]
        assert IBAN in (item.title or "")
        shown = desk.shown()
        assert IBAN not in shown and "[redacted] 7, no members" in shown.replace("\\", "").replace("…", "")
        made.close()


@tool(requires_approval=Approval(title="Pay {note} {more} {rest} to {iban}"))
def wire_long(note: str, more: str, rest: str, iban: str) -> str:
    """Pay."""
    return "paid"


@each("length", [50, 54, 58])
def test_a_title_that_is_cut_within_it_does_not_quote_its_beginning(length: int) -> None:
    from phronomy.testing.chat import Clock

    desk = Desk(PLATFORMS["slack"](Clock(), False))
    args = {"note": "x" * 60, "more": "y" * 60, "rest": "z" * length, "iban": IBAN}
    item = desk.agent(wire_long, args=args).invoke("go").checkpoint.pending[0]
    assert (item.title or "").endswith("…") and IBAN[:4] in (item.title or "")
    assert IBAN[:4] not in desk.shown()


@each("options", [{}, {"requires_approval": True}])
def test_the_error_of_a_node_that_failed_is_not_quoted(options: Any) -> None:
    """The request may have the state, as that of a gated node has, or not."""
    with FakeSlack() as platform:
        desk = Desk(platform)
        item = failed_node(desk, **options)
        shown = desk.shown()
        assert IBAN in (item.reason or "") and IBAN not in shown and shown
        assert UNTOLD in shown and "blocked" not in shown
        assert desk.approvals.hides(item)


def test_the_error_of_a_node_is_shown_where_nothing_is_hidden() -> None:
    with FakeSlack() as platform:
        desk = Desk(platform, hide=())
        item = failed_node(desk)
        assert f"blocked {IBAN}" in desk.shown() and not desk.approvals.hides(item)


def test_a_link_alone_does_not_show_it() -> None:
    from phronomy.testing.chat import Clock

    platform: Any = PLATFORMS["email"](Clock(), False)
    desk = Desk(platform)
    item = desk.agent(pay, args=ARGS).invoke("go").checkpoint.pending[0]
    asks: Any = MailLinks(desk.approvals)
    assert desk.approvals.hides(item)
    assert asks._asks_for_sign_in(type("Visit", (), {"maybe": None}), item)
    platform.close()


def test_a_misspelt_name_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with FakeSlack() as platform, caplog.at_level(logging.WARNING, "phronomy"):
        desk = Desk(platform, hide=["ibann", "iban", "pin"])
        for _ in range(21):
            desk.agent(pay, args=ARGS).invoke("go")
            desk.shown()
    said = [record.getMessage() for record in caplog.records if "hide names" in record.getMessage()]
    assert said == [
        "hide names 'ibann (did you mean iban?)', which no request has had so far, so that it hides nothing",
        "hide names 'pin', which no request has had so far, so that it hides nothing",
    ]
