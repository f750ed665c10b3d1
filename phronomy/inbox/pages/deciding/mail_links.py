"""The links of mails: each opens a page with one request, for the one person to whom it was sent, and a button there decides.

Mail programs and scanners open every link, some of them in a browser that runs scripts. So to open the page changes nothing, it has no
script, and nothing on it sends by itself. What a link says is a token of the store, which `ChatApprovals` has made: who was shown which
request. What is pressed is handed to `ChatApprovals`, as a click in a chat is, and comes to the same.

Whoever has a link can open it. If somebody is signed in here, they must be the person whose link it is; for what is risky somebody must
be signed in.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.responses import RedirectResponse, Response

from phronomy.chat.approvals import ACTIONS, ChatApprovals
from phronomy.chat.channel import LETTERS, Action, Click, Submitted
from phronomy.chat.deciding import may_begin, person_behind
from phronomy.chat.email.addresses import alias_of
from phronomy.chat.forms import REASON
from phronomy.errors import ConfigurationError, TokenExpired, TokenInvalid, UnknownPending
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.foundation.quoting import quoted
from phronomy.inbox.auth.identity import Identity, Scope
from phronomy.inbox.auth.limits import address_of
from phronomy.inbox.pages.deciding.given import MOST_WORDS
from phronomy.inbox.pages.deciding.requests import rejected_before, request_parts, state_parts
from phronomy.inbox.pages.deciding.states import State, is_me
from phronomy.inbox.pages.view import aside, render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.pages.words import answer_schema, verb
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import Shown, is_risky, show
from phronomy.inbox.visit import Visit
from phronomy.records.decisions import PendingApproval
from phronomy.records.principals import Principal
from phronomy.stores.derived.standing import Way
from phronomy.stores.native import apart, in_store

if TYPE_CHECKING:
    from phronomy.chat.http import Response as Answered
    from phronomy.inbox.visit import Form
    from phronomy.tokens import Token

_log = logging.getLogger("phronomy")

SignInFor: TypeAlias = "Collection[str] | Callable[[PendingApproval], bool]"
"""The risks of tools whose links ask for a sign-in, or a function that says so of a request."""

_CHANNEL: Final = "email"
_DATA: Final = 45
_DAY: Final = 86_400.0
_SCOPES: Final[frozenset[Scope]] = frozenset({"decide"})
_HERE: Final[tuple[Way, ...]] = ("approve", "reject", "skip")
_OTHERS: Final = {"edit": "change the values", "respond": "write an answer"}
_OVER: Final = "This request is over: its run has ended, or was deleted."
_CHANGED: Final = "Something else waits here by now. Nothing was decided: see the newer mail, or the inbox."
_FORGED: Final = "The form is not from a page of yours: open the link again and press the button anew."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    way: Way
    verb: str
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """A link that counts: its token, the button that it was, whose it is, and the visit as theirs."""

    data: str = field(repr=False)
    action: Action
    token: Token
    alias: str
    owner: Principal
    visit: Visit
    asked_by: Visit

    @property
    def path(self) -> str:
        return f"/mail/{self.data}"


class MailLinks:
    """Answers the links of mails, which `phronomy.chat.email.Email` sends: `Inbox(..., links=MailLinks(approvals))`.

    `approvals` has the channel `Email`, and the same store and keys as where the mails are sent from. `sign_in_for` are the risks of
    tools for which a link is not enough: then whoever opens it must be signed in to the inbox, as the person whose link it is. It may
    be a function of the request. By default that is each risk but none, low and medium. Requests with arguments that the approvals
    hide ask for it always. Raises `ConfigurationError`.
    """

    def __init__(self, approvals: ChatApprovals, *, sign_in_for: SignInFor = is_risky) -> None:
        if not isinstance(approvals, ChatApprovals) or _CHANNEL not in approvals.channels:
            raise ConfigurationError("MailLinks: approvals is a ChatApprovals that has the channel Email")
        if isinstance(sign_in_for, str) or not (callable(sign_in_for) or isinstance(sign_in_for, Collection)):
            raise ConfigurationError(
                f"MailLinks: sign_in_for is a list of risks, or a function of a request, not {quoted(sign_in_for)}"
            )
        self._approvals = approvals
        self._sign_in_for = sign_in_for if callable(sign_in_for) else _one_of(sign_in_for)

    def __repr__(self) -> str:
        return f"MailLinks({self._approvals!r})"

    def routes(self) -> Sequence[Route]:
        """The page of a link, and its button."""
        path = "/mail/{data}"
        return (
            Route(method="GET", path=path, handler=self._page, public=True, page=True, secret=True),
            Route(method="POST", path=path, handler=self._press, public=True, page=True, secret=True, acts=True),
        )

    async def _page(self, visit: Visit) -> Response:
        """Show the request. It changes nothing, whoever opens it, however often."""
        link = await self._link(visit)
        if isinstance(link, Response):
            return link
        return await self._shown(link)

    async def _press(self, visit: Visit) -> Response:
        """Decide, if this is a form of the page and nothing else stands against it."""
        link = await self._link(visit, pressed=True)
        if isinstance(link, Response):
            return link
        form = visit.form()
        way = _way_of(form)
        found = await self._found(link)
        if found is not None and self._asks_for_sign_in(visit, found.request.approval):
            return self._sign_in(link, HTTPStatus.FORBIDDEN)
        visit.inbox.limits.decision(link.visit.identity)
        if not self._is_of_page(link, form.get("page")):
            # Whoever may not decide hears why, and the trail has it. Nobody decides by such a form.
            store = self._approvals.store
            why = await in_store(store, may_begin, store, link.token, way, link.owner, _CHANNEL)
            if not isinstance(why, str):
                raise Problem("cross-site", _FORGED)
            return await self._shown(link, notice=why, status=HTTPStatus.FORBIDDEN)
        reason = (form.get("reason") or "").replace("\r\n", "\n").replace("\r", "\n")
        if len(reason) > MOST_WORDS:
            told = f"A reason has at most {MOST_WORDS:,} characters. Nothing is decided."
            return await self._shown(link, notice=told, status=HTTPStatus.UNPROCESSABLE_ENTITY, reason=reason)
        link.visit.about.append(link.token.pending_id)
        answered = await self._answer(link, way, reason if way == "reject" else "")
        notice = answered.body.decode()
        if notice:
            response = await self._shown(link, notice=notice, status=await self._status(link), reason=reason)
        else:
            response = RedirectResponse(visit.url(f"{link.path}#result"), HTTPStatus.SEE_OTHER)
        if answered.after is not None:
            response.background = BackgroundTask(_done, answered.after)
        return _closed(response)

    # Whose link it is

    async def _link(self, visit: Visit, *, pressed: bool = False) -> _Link | Response:
        """The link of a visit, or the page that says why it leads nowhere. Raises `Problem`, `StoreError`."""
        data = visit.params["data"]
        action = ACTIONS.get(data[:1])
        try:
            if action is None or len(data) != _DATA:
                raise TokenInvalid("no link of a mail")
            token = await self._approvals.tokens.averify(data[1:], purpose=f"chat:{_CHANNEL}")
        except TokenExpired as error:
            told = "This link is too old. Nothing was decided. Look in the inbox whether it still waits."
            to = path_of(error.pending_id) if error.pending_id else None
            return _end(visit, HTTPStatus.GONE, "The time of this link is over", told, to=to)
        except TokenInvalid:
            await visit.inbox.limits.failures.count("mail", address_of(visit.request))
            told = "This link is not known here, or not any more. Nothing was decided. Perhaps a part of it is missing."
            return _end(visit, HTTPStatus.NOT_FOUND, "This is no link of this server", told)
        visit.inbox.limits.link(token.id)
        store, alias = self._approvals.store, alias_of(token.by)
        owner = await apart(store, person_behind, self._approvals.directory, alias)
        if owner is None:
            return await self._stranger(visit, data, alias, pressed=pressed)
        if not await in_store(store, self._approvals.is_still_theirs, token, owner):
            told = "It was sent to somebody who had this address before. Nothing was decided."
            return _end(visit, HTTPStatus.FORBIDDEN, "This link is not yours", told, to=path_of(token.pending_id))
        if "decide" not in visit.inbox.scopes_of(owner):
            raise Problem("forbidden", "You need the scope decide.", scope="decide")
        theirs = Visit(visit.request, visit.inbox, visit.place)
        theirs.maybe = Identity(principal=owner, tenant=store.tenant, scopes=_SCOPES, via="mail")
        theirs.key, theirs.body = visit.key, visit.body
        visit.request.scope["phronomy.visit"] = theirs  # the log names the person whose link it is
        link = _Link(data=data, action=action, token=token, alias=alias, owner=owner, visit=theirs, asked_by=visit)
        if visit.maybe is not None and not self._is_owner(visit, owner):
            told = "You are signed in as somebody else, and nothing is decided by the link of another. Decide it as yourself."
            return _end(
                visit, HTTPStatus.FORBIDDEN, "This link is not yours", told, owner=owner, to=path_of(token.pending_id)
            )
        return link

    async def _stranger(self, visit: Visit, data: str, alias: str, *, pressed: bool) -> Response:
        """What is told to somebody whom the directory does not know, or not any more. The request is not shown."""
        if pressed:
            click = Click(alias=alias, delivery=data[1:23], data=LETTERS[_way_of(visit.form())] + data[1:])
            answered = await in_store(self._approvals.store, self._approvals.answer, _CHANNEL, click)
            told = _told(answered)
        else:
            told = f"Nobody is known here as {alias}. Ask whoever runs this to add you."
        return _end(visit, HTTPStatus.FORBIDDEN, "You cannot decide this", told)

    def _is_owner(self, visit: Visit, owner: Principal) -> bool:
        who = visit.identity
        tenant = visit.inbox.store.tenant if who.tenant is None else who.tenant
        same = (who.principal.id, who.principal.kind) == (owner.id, owner.kind)
        return same and tenant == self._approvals.store.tenant

    def _asks_for_sign_in(self, visit: Visit, item: PendingApproval) -> bool:
        """Whether somebody must be signed in and is not. That it is the right person was looked at before."""
        if visit.maybe is not None:
            return False
        return self._approvals.hides(item) or self._sign_in_for(item)

    # What is shown

    async def _found(self, link: _Link) -> Shown | None:
        try:
            return await show(self._approvals.store, link.visit.identity, link.token.pending_id)
        except UnknownPending:
            return None

    async def _shown(self, link: _Link, *, notice: str = "", status: int = HTTPStatus.OK, reason: str = "") -> Response:
        """The page as things are now: the request with its form, its outcome, or why there is neither."""
        visit, found = link.visit, await self._found(link)
        if found is None:
            return _end(visit, HTTPStatus.GONE, "This does not wait", notice or _OVER, owner=link.owner)
        item = found.request.approval
        if item.digest != link.token.digest:
            to = path_of(item.id)
            return _end(visit, HTTPStatus.CONFLICT, "This has changed", notice or _CHANGED, owner=link.owner, to=to)
        if self._asks_for_sign_in(link.asked_by, item):
            return self._sign_in(link, HTTPStatus.OK)
        parts = await state_parts(visit, found, "")
        state = parts["state"]
        assert isinstance(state, State)
        size = len(item.json_text("args"))
        asked_by = link.asked_by
        return _closed(
            await aside(
                size,
                render,
                visit,
                "mail.html",
                {
                    **await aside(size, request_parts, visit, item, found.standing.partial),
                    **parts,
                    **{"here_path": link.path, "state_path": link.path, "back_path": None, "next_path": None},
                },
                status=status,
                owner=link.owner,
                notice=notice,
                reason=reason,
                choices=_choices(link, found) if state.waits else [],
                elsewhere=" or ".join(_OTHERS[each] for each in found.standing.answers if each in _OTHERS),
                before=await rejected_before(visit, found) if state.waits else None,
                request_path=path_of(item.id),
                page=self._page_token(link, self._approvals.store.clock()),
                csrf=asked_by.csrf if asked_by.maybe is not None else None,
            )
        )

    def _sign_in(self, link: _Link, status: int) -> Response:
        """The way to the inbox's own page of the request, after a sign-in. The link itself goes into no other address."""
        told = "A link alone is not enough to decide this. Sign in as the person to whom it was sent."
        to = f"/login?to={quote(path_of(link.token.pending_id), safe='/')}"
        return _end(link.visit, status, "Sign in to decide this", told, owner=link.owner, to=to, label="Sign in")

    # What is pressed

    async def _answer(self, link: _Link, way: Action, reason: str) -> Answered:
        """Hand what was pressed to the approvals. Raises `Problem` if the store fails."""
        token, text = link.token, link.data[1:]
        received: Click | Submitted
        if reason.strip():
            values = {REASON: reason}
            received = Submitted(alias=link.alias, delivery=token.id, data=LETTERS["reason"] + text, values=values)
        else:
            received = Click(alias=link.alias, delivery=token.id, data=LETTERS[way] + text)
        answered = await in_store(self._approvals.store, self._approvals.answer, _CHANNEL, received)
        if answered.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Problem("unavailable", headers={"Retry-After": "1"})
        return answered

    async def _status(self, link: _Link) -> int:
        """The status of a page that tells something: 200 if an answer of this person counts, 409 if none does."""
        found = await self._found(link)
        if found is None:
            return HTTPStatus.CONFLICT
        mine = any(is_me(link.visit, vote.by) for vote in found.votes)
        return HTTPStatus.OK if mine and found.request.status == "pending" else HTTPStatus.CONFLICT

    def _page_token(self, link: _Link, at: float) -> str:
        """What the form of the page carries: it is of this link, this person, this session if there is one, and this day."""
        who, token = link.asked_by.maybe, link.token
        of: list[JsonValue] = [self._approvals.store.tenant, token.id, token.digest, token.by, link.owner.id]
        of += [who.via, who.session] if who is not None else []
        of.append(int(at // _DAY))
        return hmac.new(link.visit.key, b"mail\0" + canonical(of).encode(), hashlib.sha256).hexdigest()

    def _is_of_page(self, link: _Link, given: str | None) -> bool:
        """Whether a form is of the page of this link, of today or the day before."""
        now = self._approvals.store.clock()
        right = [self._page_token(link, at) for at in (now, now - _DAY)]
        return given is not None and any(hmac.compare_digest(each.encode(), given.encode()) for each in right)


def _one_of(risks: Collection[str]) -> Callable[[PendingApproval], bool]:
    named = frozenset(each.casefold() for each in risks)
    return lambda item: (item.tool.risk or "").casefold() in named


def _choices(link: _Link, found: Shown) -> list[_Choice]:
    """The ways to answer here; that of the button in the mail is open."""
    item = found.request.approval
    chosen = "reject" if link.action == "reason" else link.action
    ways: list[Way] = [each for each in _HERE if each in found.standing.answers]
    # A yes is no address: where the answer has a type, it is given in that type, in the inbox.
    if (wanted := answer_schema(item)) is not None and wanted.get("type") != "boolean":
        ways = [each for each in ways if each != "approve"]
    return [_Choice(way=each, verb=verb(item, each), open=each == chosen) for each in ways]


def _way_of(form: Form) -> Action:
    given = form.needed("answer")
    for way in ("approve", "reject", "skip"):
        if given == way:
            return way
    raise Problem("bad-request", "The form has no answer that is known.")


def _told(answered: Answered) -> str:
    if answered.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Problem("unavailable", headers={"Retry-After": "1"})
    return answered.body.decode()


def _end(
    visit: Visit,
    status: int,
    title: str,
    notice: str,
    *,
    owner: Principal | None = None,
    to: str | None = None,
    label: str = "Open it in the inbox",
) -> Response:
    return _closed(
        render(visit, "mail_end.html", status=status, title=title, notice=notice, owner=owner, to=to, label=label)
    )


def _closed(response: Response) -> Response:
    """The answer with what keeps its address to itself."""
    # The link is in the path. With this a form says that its origin is null: the browser's Sec-Fetch-Site tells where it is from.
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-store"
    return response


def _done(after: Callable[[], None]) -> None:
    """Do what follows an answer. What fails is done by the outbox later."""
    try:
        after()
    except Exception as error:
        _log.warning("what follows an answer by mail could not be done now: %s", type(error).__name__)
