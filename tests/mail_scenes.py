"""Approvals by mail in tests: a desk whose refunds wait, people with mailboxes, an inbox with their links, and browsers."""

from __future__ import annotations

from typing import Any

from chat_scenes import OTTO, RITA, approvals_of, desk, emptied, with_people
from inbox_scenes import ByHeader, Visitor
from page_reader import Element, read

from phronomy import MemoryStore, PendingApproval, Principal
from phronomy.chat import ChatApprovals
from phronomy.inbox import Inbox, MailLinks
from phronomy.stores.base import Store
from phronomy.testing.chat import Clock, FakeMail
from phronomy.testing.chat.mail.platform import ORIGIN

__all__ = ["OTTO", "RITA", "MailDesk"]

SIGNED_IN = (Principal(id="rita", name="Rita", roles=("lead",)), Principal(id="otto", name="Otto", roles=("lead",)))


class MailDesk:
    """A store, approvals by mail, and an inbox with `MailLinks`. People sign in by the header `x-user`."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        clock: Clock | None = None,
        links: dict[str, Any] | None = None,
        inbox: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock if clock is not None else Clock()
        self.mail = FakeMail(self.clock, web=self.web, person=RITA)
        self.links, self.options = links or {}, inbox or {}
        self.store = with_people(store if store is not None else MemoryStore(clock=self.clock), self.mail)
        self.approvals = approvals_of(self.store, self.mail, **options)

    def web(self, approvals: ChatApprovals) -> Inbox:
        given: dict[str, Any] = {"auth": ByHeader(*SIGNED_IN), "public_url": ORIGIN, **self.options}
        self.inbox = Inbox(approvals.store, links=MailLinks(approvals, **self.links), **given)
        return self.inbox

    def __enter__(self) -> MailDesk:
        return self

    def __exit__(self, *error: object) -> None:
        self.mail.close()

    def asked(self, gate: Any = True) -> PendingApproval:
        """A request that waits, and whose mail is sent."""
        item = desk(self.approvals, self.store, gate).invoke("Refund order 7").checkpoint.pending[0]
        self.send()
        return item

    def send(self) -> None:
        emptied(self.approvals, self.clock)

    def carried_out(self, gate: Any = True) -> None:
        desk(self.approvals, self.store, gate).recover_all()
        self.send()

    def link(self, action: str = "approve") -> str:
        """The path of a link in Rita's newest mail."""
        return f"/mail/{self.mail.messages()[-1].buttons[action]}"

    def token(self, item: PendingApproval, **changes: Any) -> str:
        """The path of a link as the approvals make it, with something else in it."""
        given = {"pending_id": item.id, "digest": item.digest, "by": self.mail.place, "seconds": 3600.0, "once": False}
        purpose = changes.pop("purpose", "chat:email")
        return "/mail/a" + self.approvals.tokens.issue(purpose, **{**given, **changes})

    def browser(self, who: str | None = None, **headers: str) -> Visitor:
        return Visitor(self.inbox, who, **headers)

    def page(self, path: str, who: str | None = None, *, status: int = 200) -> Element:
        """The page of a link."""
        answer = self.browser(who).get(path)
        assert answer.status_code == status, answer.text
        return read(answer.text).one("main")

    def form(self, path: str, way: str = "approve", who: str | None = None) -> Element:
        """The form of a way to answer, on the page of a link."""
        return self.page(path, who).one("details", data_way=way).one("form")

    def press(self, form: Element, who: str | None = None, **changes: str | None) -> Any:
        """The answer to a form, sent as a browser does."""
        return self.browser(who).post(form.attributes["action"], data=form.filled(**changes))

    def notice(self, answer: Any) -> str:
        """What a page tells."""
        return read(answer.text).one(id="notice").text

    def trail(self) -> list[tuple[str, str, bool, str | None]]:
        return [(each.by.id if each.by else "", each.kind, each.refused, each.channel) for each in self.store.audit()]
