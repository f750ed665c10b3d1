"""The API of the inbox in tests: programs that are known as by a token, and what they send."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import httpx2
from inbox_scenes import OTTO, RITA, Visitor, inbox_of
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from starlette.requests import Request

from phronomy import PendingApproval, Principal
from phronomy.inbox import Identity, Inbox, Problem
from phronomy.inbox.api.openapi import description
from phronomy.inbox.api.table import API as TABLE
from phronomy.inbox.auth.identity import SCOPES
from phronomy.stores.base import Store

API = "/api/v1"
ROBOT = Principal(id="robot", kind="service")
_keys = itertools.count(1)


class ByToken:
    """Stands in for the API tokens of an inbox: each of these people has the token `phr_{id}`, of a tenant and with scopes."""

    def __init__(self, *people: Principal, tenants: dict[str, str] | None = None, scopes: Any = SCOPES) -> None:
        self.people = {f"Bearer phr_{each.id}": each for each in people or (RITA, OTTO, ROBOT)}
        self.scopes = scopes
        self.tenants = tenants or {}

    async def identify(self, request: Request) -> Identity | None:
        who = self.people.get(request.headers.get("authorization", ""))
        if who is None:
            raise Problem("not-signed-in", headers={"WWW-Authenticate": "Bearer"})
        return Identity(principal=who, tenant=self.tenants.get(who.id), scopes=self.scopes, via="token")


def inbox_by_token(store: Store, tokens: ByToken | None = None, **options: Any) -> Inbox:
    """An inbox of which these people have tokens, who may do everything unless it is said."""
    inbox = inbox_of(store, **{"scopes": lambda _: SCOPES, **options})
    inbox.site.tokens = tokens or ByToken()  # type: ignore[assignment]
    return inbox


def bearer(who: str) -> dict[str, str]:
    """The header of somebody with a token."""
    return {"authorization": f"Bearer phr_{who}"}


def api_of(store: Store, who: str = "rita", *, tokens: ByToken | None = None, **options: Any) -> Api:
    """Somebody with the API of an inbox over this store, who may do everything."""
    return Api(inbox_by_token(store, tokens, **options), who)


class Api(Visitor):
    """Somebody with the API."""

    def __init__(self, inbox: Inbox, who: str | None = "rita", **options: Any) -> None:
        super().__init__(inbox, None, **options)
        self.headers = bearer(who) if who is not None else {}  # no browser

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """The answer to one request, which is as it is described."""
        answer = super().request(method, path, **options)
        check_described(method, path, answer)
        return answer

    def as_(self, who: str | None) -> Api:
        """Somebody else, with the same inbox."""
        return Api(self.inbox, who)

    def read(self, path: str, **params: Any) -> Any:
        """What a good answer says."""
        answer = self.get(API + path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, path: str, body: Any, *, key: str | None = "", **headers: str) -> httpx2.Response:
        """The answer to a body, under a key of its own unless it is said; None: without one."""
        if key is not None:
            headers["idempotency-key"] = key or f"key-{next(_keys)}"
        return self.post(API + path, json=body, headers=headers)

    def decide(
        self, item: PendingApproval, answer: str, *, key: str | None = "", digest: str | None = None, **body: Any
    ) -> httpx2.Response:
        """The answer to a decision."""
        sent = {"answer": answer, "digest": item.digest if digest is None else digest, **body}
        return self.send(f"/requests/{item.id}/decision", sent, key=key)

    def pages(self, path: str, **params: Any) -> list[Any]:
        """All items of a list, by the cursor of each page."""
        found: list[Any] = []
        while True:
            page = self.read(path, **params)
            found += page["items"]
            if page["next"] is None:
                return found
            params["cursor"] = page["next"]


@cache
def described() -> dict[str, Any]:
    """The description of the API."""
    return description(TABLE, title="Approvals", base="")


@cache
def _paths() -> list[tuple[re.Pattern[str], str]]:
    """What the address of each path looks like, the plain ones first."""
    paths = sorted(described()["paths"], key=lambda path: path.count("{"))
    return [(re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), path) for path in paths]


def check_described(method: str, path: str, answer: httpx2.Response) -> None:
    """Assert that an answer of the API is one that the description has: its status, its type, and what is in it."""
    address = path.partition("?")[0]
    found = next((name for pattern, name in _paths() if pattern.fullmatch(address)), None)
    operation = described()["paths"].get(found, {}).get(method.lower()) if found is not None else None
    if operation is None:
        assert answer.status_code in (400, 404, 405, 421), (method, path, answer.status_code)
        return
    told = operation["responses"][str(answer.status_code)]
    media = answer.headers.get("content-type", "").partition(";")[0]
    if "content" not in told:
        assert answer.content == b""
        return
    schema = told["content"][media]["schema"]
    if media in ("application/json", "application/problem+json"):
        _validator(schema.get("$ref", "")).validate(answer.json())


@cache
def _validator(ref: str) -> Draft202012Validator:
    resource = Resource.from_contents(described(), default_specification=DRAFT202012)
    schema = {"$ref": f"urn:api{ref}"} if ref else {"type": "object"}
    return Draft202012Validator(schema, registry=Registry().with_resource("urn:api", resource))


def problem(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the type of a problem, which is one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    body = answer.json()
    assert body["status"] == answer.status_code
    return answer.status_code, body["type"].rpartition("/")[2]


def ids(items: Sequence[Any]) -> list[str]:
    """The ids of items."""
    return [each["id"] for each in items]
