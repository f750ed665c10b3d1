"""The description of the API (OpenAPI 3.1), made of the table of routes and their models, so that it cannot say anything else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_origin

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import JSONResponse, Response

from phronomy.foundation.version import VERSION
from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.problems import ALWAYS, TYPES
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

_REF: Final = "#/components/schemas/{model}"
PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
"""A part of a path that has a name; its name is the first group."""

_UNSAFE_PROBLEMS: Final = ("too-large", "wrong-type", "timed-out", "cross-site")
_STATUS_TEXT: Final[Mapping[int, str]] = {200: "Done", 201: "Made", 202: "Begun"}


def description(routes: Sequence[Route], *, title: str, base: str) -> dict[str, Any]:
    """The OpenAPI document of these routes; `base` is the prefix under which they are reached, and empty for none."""
    described = [each for each in routes if not each.page]
    models = sorted(
        {model for each in described for model in (each.body, each.answer) if model is not None} | {schemas.ProblemOf},
        key=lambda model: model.__name__,
    )
    modes = [(model, "validation" if issubclass(model, inputs.Taken) else "serialization") for model in models]
    _, found = models_json_schema(modes, ref_template=_REF)  # type: ignore[arg-type]
    paths: dict[str, Any] = {}
    for each in described:
        paths.setdefault(PARAMETER.sub(r"{\1}", each.path), {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": VERSION,
            "description": "Requests that wait for a human: list them, read them, decide them.",
        },
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {
            "schemas": found["$defs"],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "__Host-phronomy",
                    "description": "The session of somebody who has signed in. Unsafe methods also need X-CSRF-Token.",
                },
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def operation_id(route: Route) -> str:
    """The name of an operation: that of its handler."""
    return route.handler.__name__


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_headers(route)],
        "responses": {str(route.status): _good(route), **_other(route), **_problems(route)},
    }
    if route.public:
        found["security"] = []
    if route.scopes:
        found["description"] = f"Needs the scope {' and '.join(f'`{each}`' for each in route.scopes)}."
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(route.body)}}}
    return found


def _ref(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REF.format(model=model.__name__)}


def _good(route: Route) -> dict[str, Any]:
    # A stream is a string here: 3.1 has no type for what is in it.
    schema = _ref(route.answer) if route.answer is not None else {"type": "string"}
    if route.media == "application/json" and route.answer is None:
        schema = {"type": "object"}
    content = {route.media: {"schema": schema}}
    for other in _others(route):
        content[other] = {"schema": {"type": "string"}}
    found: dict[str, Any] = {"description": _STATUS_TEXT[route.status], "content": content}
    headers = {}
    if _has_tag(route):
        headers["ETag"] = {"schema": {"type": "string"}, "description": "A weak tag over what you see."}
    if route.query is not None and "cursor" in route.query.model_fields:
        headers["Link"] = {"schema": {"type": "string"}, "description": "The next page (RFC 8288)."}
    return {**found, "headers": headers} if headers else found


def _others(route: Route) -> tuple[str, ...]:
    """The other media types of a good answer."""
    return ("text/csv", "application/x-ndjson") if route.query is inputs.AuditQuery else ()


def _has_tag(route: Route) -> bool:
    return route.method == "GET" and route.answer in (schemas.RequestFull, schemas.DecisionView, schemas.GrantView)


def _other(route: Route) -> dict[str, Any]:
    return {"304": {"description": "You have it already."}} if _has_tag(route) else {}


def _problems(route: Route) -> dict[str, Any]:
    """The problems that a route may answer with, by their status."""
    names = [*ALWAYS, *route.problems, *_UNSAFE_PROBLEMS]
    if not route.public:
        names += ["not-signed-in", "forbidden"]
    if route.query is not None or route.body is not None:
        names.append("invalid")
    by_status: dict[int, list[str]] = {}
    for name in dict.fromkeys(names):
        by_status.setdefault(TYPES[name].status, []).append(name)
    return {
        str(status): {
            "description": "; ".join(f"`{name}`: {TYPES[name].title.lower()}" for name in by_status[status]),
            "content": {"application/problem+json": {"schema": _ref(schemas.ProblemOf)}},
        }
        for status in sorted(by_status)
    }


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(route, name)}
        for name in PARAMETER.findall(route.path)
    ]


def _path_schema(route: Route, name: str) -> dict[str, Any]:
    # The paths beside a request, such as the one of the count, are no ids.
    if name == "id" and "/requests/{id}" in route.path:
        return {"type": "string", "pattern": "^pend_"}
    return {"type": "string"}


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = route.query.model_json_schema(mode="validation", ref_template=_REF)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _without_null(each),
            **({"style": "form", "explode": True} if _is_list(route.query, name) else {}),
        }
        for name, each in schema["properties"].items()
    ]


def _is_list(model: type[BaseModel], name: str) -> bool:
    return get_origin(model.model_fields[name].annotation) is tuple


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: it is left out, and never null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**kept, **kinds[0]}


def _headers(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def header(name: str, about: str, *, required: bool = False) -> None:
        found.append(
            {"name": name, "in": "header", "required": required, "description": about, "schema": {"type": "string"}}
        )

    if route.acts:
        header("Idempotency-Key", "A text of your own: the same when you send it again.", required=True)
    if "precondition-needed" in route.problems:
        header("If-Match", "The ETag of what you have read, and not `*`.", required=True)
    if _has_tag(route):
        header("If-None-Match", "The ETag of what you have.")
    if route.media == "text/event-stream":
        header("Last-Event-ID", "The id of the last event that you have seen.")
    return found


def described_by(routes: Sequence[Route]) -> Route:
    """The route of the description of these routes, and of itself."""

    async def openapi(visit: Visit) -> Response:
        """The description of the API."""
        return JSONResponse(description((*routes, route), title=visit.inbox.title, base=visit.url("")))

    route = Route(
        method="GET",
        path="/openapi.json",
        handler=openapi,
        public=True,
        summary="This description, as OpenAPI 3.1",
    )
    return route
