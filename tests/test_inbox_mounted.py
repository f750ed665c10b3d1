"""The inbox inside other web applications, under a prefix."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from inbox_scenes import Visitor, inbox_of
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from phronomy import ConfigurationError
from phronomy.inbox import mounted


def in_fastapi() -> Any:
    app = FastAPI()
    app.mount("/admin/approvals", inbox_of())

    @app.get("/hello")
    def hello() -> str:
        return "hello"

    return app


def in_starlette() -> Any:
    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/hello", hello), Mount("/admin/approvals", inbox_of())])


def in_django() -> Any:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
        django.setup()
    from django.core.asgi import get_asgi_application

    return mounted(inbox_of(), "/admin/approvals", get_asgi_application())


def hello_of_django(request: Any) -> Any:
    from django.http import HttpResponse

    return HttpResponse("hello")


def __getattr__(name: str) -> Any:
    if name != "urlpatterns":  # what Django looks for here, once it is set up
        raise AttributeError(name)
    from django.urls import path

    return [path("hello", hello_of_django)]


@pytest.mark.parametrize("make", [in_fastapi, in_starlette, in_django])
def test_it_lives_under_a_prefix_of_another_application(make: Any) -> None:
    app = make()
    outside = Visitor(app)
    assert "hello" in outside.get("/hello").text
    inside = Visitor(app)
    answer = inside.get("/admin/approvals/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    nothing = inside.get("/admin/approvals/api/v1/nothing")
    assert (nothing.status_code, nothing.json()["type"]) == (404, "/admin/approvals/problems/not-found")
    assert inside.get("/admin/approvals" + "/problems/expired").status_code == 200


def test_the_prefix_alone_is_its_first_page() -> None:
    seen = []

    async def inbox(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["path"], scope["root_path"]))
        await PlainTextResponse("in")(scope, receive, send)

    async def other(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("out")(scope, receive, send)

    visitor = Visitor(mounted(inbox, "/approvals", other))
    assert [visitor.get(path).text for path in ("/approvals", "/approvals/a", "/approvals2", "/")] == [
        "in",
        "in",
        "out",
        "out",
    ]
    assert seen == [("/approvals/", "/approvals"), ("/approvals/a", "/approvals")]


@pytest.mark.parametrize("at", ["", "/", "approvals", "/approvals/", "//evil.example"])
def test_a_prefix_is_a_path(at: str) -> None:
    with pytest.raises(ConfigurationError, match="at is a path"):
        mounted(inbox_of(), at, inbox_of())
