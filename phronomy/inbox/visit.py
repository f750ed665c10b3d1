"""One request of the inbox, as a handler has it: who sends it, the store that they see, and its body, read with care."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_origin
from urllib.parse import parse_qsl, quote

from pydantic import BaseModel, ValidationError

from phronomy.errors import ConfigurationError, PhronomyError
from phronomy.foundation.json_text import JsonDict, JsonError, JsonValue, canonical, parse, pointer_part
from phronomy.inbox.auth.returning import HOME, app_address, return_path
from phronomy.inbox.problems import TYPES, Problem
from phronomy.inbox.security import csrf_token

if TYPE_CHECKING:
    from starlette.requests import Request

    from phronomy.inbox.auth.identity import Identity, Scope
    from phronomy.inbox.site import Site
    from phronomy.records.principals import Principal
    from phronomy.stores.base import Store

M = TypeVar("M", bound=BaseModel)

SECONDS: Final = 10.0
"""How long a body may take to arrive. The server has no such limit of its own."""

FIELDS: Final = 200
"""The most fields of a form or of a query."""

_DIGITS: Final = 18
"""Digits of a Content-Length."""

_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"


class CutOff(Exception):
    """An answer ends in the middle, so that nobody takes what has arrived for all of it."""


class Form:
    """The fields of a form: each name with its values, in their order."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs

    def get(self, name: str) -> str | None:
        """The value of a field; None if there is none. Raises `Problem` if there are several."""
        found = self.getlist(name)
        if len(found) > 1:
            raise Problem("bad-request", f"The field {name[:80]} is there more than once.")
        return found[0] if found else None

    def getlist(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self.pairs if key == name]

    def needed(self, name: str) -> str:
        """The value of a field that must be there. Raises `Problem`."""
        if (found := self.get(name)) is None:
            raise Problem("bad-request", f"The field {name} is missing.")
        return found


class Visit:
    """A request of the inbox. Attributes that are not there for a public route raise `Problem`."""

    def __init__(
        self,
        request: Request,
        inbox: Site,
        place: str | None,
        identify: Callable[[Request], Awaitable[Identity | None]] | None = None,
    ) -> None:
        self.request = request
        self.inbox = inbox
        self.place = place  # the path of the route, with the names of its parts
        self.maybe: Identity | None = None
        self.key: bytes = b""
        self.body: bytes = b""
        self.about: list[str] = []  # the ids of what was decided and operated, for the access log
        self._identify = identify

    async def known(self) -> Identity | None:
        """Identify the sender of the request. Raises `Problem`."""
        try:
            return await self._identify(self.request) if self._identify is not None else None
        except ConfigurationError as error:
            # Nothing that whoever sends it could correct.
            raise Problem("failed") from error

    async def identify_again(self) -> Identity | None:
        """Identify the sender anew: None if it is another one, or they do not count any more. Raises `Problem`."""
        now = await self.known()
        before = self.maybe
        if before is None or now is None:
            return now if before is None else None
        is_same = (now.principal.kind, now.principal.id, now.tenant, now.via) == (
            before.principal.kind,
            before.principal.id,
            before.tenant,
            before.via,
        )
        # A proxy names them still. But they were removed from the directory, so its word does not bring them back.
        is_gone = before.principal.listed and not now.principal.listed
        return now if is_same and not is_gone else None

    async def confirm(self, scope: Scope) -> None:
        """Look once more before what took a while is written. Raises `Problem` for somebody who may not do it any more."""
        self.maybe = await self.identify_again()
        if scope not in self.identity.scopes:
            raise Problem("forbidden", f"You need the scope {scope}.", scope=scope)

    async def is_still(self, scope: Scope) -> bool:
        """Whether whoever the answer is for is signed in still, as the same person, and has this scope."""
        before = self.identity
        try:
            now = await self.identify_again()
        except PhronomyError:
            return False
        return now is not None and now.principal == before.principal and scope in now.scopes

    async def check_still(self, scope: Scope) -> None:
        """Cut an answer off that is on its way to somebody who may not have the rest. Raises `CutOff`."""
        if not await self.is_still(scope):
            raise CutOff

    @property
    def nonce(self) -> str:
        """What the policy of the answer has its one script and its one style sheet carry."""
        return str(self.request.scope["phronomy.nonce"])

    @property
    def identity(self) -> Identity:
        """Who sends the request. Raises `Problem` if nobody is signed in."""
        if self.maybe is None:
            raise Problem("not-signed-in", headers={"WWW-Authenticate": "Bearer"})
        return self.maybe

    @cached_property
    def store(self) -> Store:
        """The store of the tenant whose data this person sees."""
        return self.inbox.store_of(self.identity.tenant)

    @property
    def params(self) -> Mapping[str, str]:
        """The parts of the path that the route names."""
        return self.request.path_params

    @property
    def csrf(self) -> str:
        """What each form of a page carries, in the field `csrf`."""
        return csrf_token(self.key, self.identity, self.inbox.store.clock())

    def url(self, path: str) -> str:
        """A path of the inbox as browsers see it, with what stands before it; never absolute, so that no header leads elsewhere."""
        mounted, public = str(self.request.scope.get("root_path", "")).rstrip("/"), self.inbox.prefix
        # Where a proxy takes a prefix away, nothing but `public_url` knows it. What the inbox is mounted under comes behind that.
        return (public if public.endswith(mounted) else mounted) + path

    def login(self, to: str | None, *, said: str | None = None) -> str:
        """Where somebody signs in who wants a page of the inbox: the login of an application, or the sign-in page, with `said`."""
        if self.inbox.login_url is not None:
            return app_address(self.inbox.login_url, self.url(return_path(to)))
        more = "" if said is None else f"&said={said}"
        return self.url(f"/login?to={quote(to or HOME, safe='/')}{more}")

    @property
    def logout(self) -> str | None:
        """Where the application signs somebody out whom it has signed in; None for a session of the inbox, and if nobody has said."""
        if self.maybe is None or self.maybe.session is not None or self.inbox.logout_url is None:
            return None
        return app_address(self.inbox.logout_url, self.url("/login?said=out"))

    def told(self, problem: Problem, **more: JsonValue) -> JsonDict:
        """A problem as the API tells it: problem details (RFC 9457)."""
        return {
            "type": self.url(f"/problems/{problem.type}"),
            "title": TYPES[problem.type].title,
            "status": problem.status,
            "detail": problem.detail,
            **more,
            **problem.members,
        }

    def may(self, *scopes: str) -> bool:
        """True if this person has one of these scopes."""
        return self.maybe is not None and any(each in self.maybe.scopes for each in scopes)

    @property
    def history_of(self) -> Principal | None:
        """Whose decisions this person may see: their own, or None for those of everybody."""
        return None if self.may("audit") else self.identity.principal

    def json(self, model: type[M], *, read: Callable[[object], JsonValue] = parse) -> M:
        """The body as this model: strict JSON, without keys that are there twice. Raises `Problem`.

        `read` may be `parse_exactly`, which refuses a number that would be rounded.
        """
        if self.content_type != _JSON:
            raise Problem("wrong-type")
        try:
            value = read(self.body.decode("utf-8"))
        except (UnicodeDecodeError, JsonError) as error:
            raise Problem("bad-request", f"The body is no JSON: {_why(error)}.") from None
        return validated(model, value, "body")

    def form(self) -> Form:
        """The body as a form. Raises `Problem`."""
        if self.content_type != _FORM:
            raise Problem("wrong-type")
        return Form(pairs_of(self.body))

    def query(self, model: type[M]) -> M:
        """The parameters after the question mark as this model; several of one name are a list. Raises `Problem`."""
        found: dict[str, Any] = {}
        for name, value in pairs_of(self.request.scope.get("query_string", b"")):
            found.setdefault(name, []).append(value)
        lists = {name for name, field in model.model_fields.items() if get_origin(field.annotation) is tuple}
        for name, values in found.items():
            if name not in lists:
                if len(values) > 1:
                    raise Problem("bad-request", f"The parameter {name[:80]} is there more than once.")
                found[name] = values[0]
        return validated(model, found, "query")

    @property
    def content_type(self) -> str:
        """The type of the body, without its parameters."""
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()


def pairs_of(text: bytes) -> list[tuple[str, str]]:
    """The fields of a form or a query. Raises `Problem`."""
    try:
        return parse_qsl(
            text.decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        raise Problem(
            "bad-request", f"The fields cannot be read: they are at most {FIELDS}, in percent-encoded UTF-8."
        ) from None


def validated(model: type[M], value: JsonValue | Mapping[str, Any], where: str) -> M:
    """The value as this model. Raises `Problem`, which names each member that is wrong, and quotes none."""
    try:
        if where == "body":  # as JSON, in which a list may be a tuple and a text a time, and a number is no text
            return model.model_validate_json(canonical(value), strict=True)
        return model.model_validate(value)
    except ValidationError as error:
        errors: list[JsonValue] = [
            {"pointer": "/" + "/".join(pointer_part(each) for each in one["loc"]), "detail": one["msg"]}
            for one in error.errors(include_input=False, include_url=False, include_context=False)
        ]
        raise Problem("invalid", f"The {where} is not valid.", errors=errors) from None


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request, of so many bytes at most. Raises `Problem` for a longer one, and one that takes too long."""
    length = request.headers.get("content-length")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) <= _DIGITS):
        raise Problem("bad-request", "Content-Length is no number of bytes that can be.")
    if length is not None and int(length) > most:
        raise Problem("too-large", f"A body has at most {most:,} bytes here.")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise Problem("too-large", f"A body has at most {most:,} bytes here.")
                chunks.append(chunk)
    except TimeoutError:
        raise Problem("timed-out", headers={"Connection": "close"}) from None
    return b"".join(chunks)


def _why(error: Exception) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).removeprefix("not JSON: ")
