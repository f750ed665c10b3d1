"""The description of the API: it is valid, it has every route, and the server answers as it says, whatever is sent."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from inbox_api_scenes import ROBOT, bearer, described, inbox_by_token
from inbox_scenes import Visitor, asked, desk, inbox_of
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

from phronomy import MemoryStore
from phronomy.inbox.api.events import Watching
from phronomy.inbox.api.table import API
from phronomy.inbox.auth.limits import Limits
from phronomy.inbox.problems import TYPES


def test_the_description_is_valid_and_has_every_route() -> None:
    found = described()
    OpenAPIV31SpecValidator(found).validate()
    told = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert told == {(route.method, route.path.replace(":path}", "}")) for route in API}
    names = [one["operationId"] for methods in found["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("route", API, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_declares_what_any_may_answer_with(route: Any) -> None:
    operation = described()["paths"][route.path.replace(":path}", "}")][route.method.lower()]
    expected = {"400", "404", "405", "413", "415", "421", "429", "500", "503", str(route.status)}
    if not route.public:
        expected |= {"401", "403"}
        assert "security" not in operation
    expected |= {str(TYPES[name].status) for name in route.problems}
    assert expected <= set(operation["responses"])
    assert ("requestBody" in operation) == (route.body is not None) and operation["summary"]
    headers = {each["name"] for each in operation["parameters"] if each["in"] == "header" and each["required"]}
    assert ("Idempotency-Key" in headers) == route.acts


def test_the_description_is_served_under_its_prefix() -> None:
    answer = Visitor(inbox_of(), who=None, prefix="/admin/inbox").get("/openapi.json")
    assert answer.status_code == 200 and answer.json()["servers"] == [{"url": "/admin/inbox"}]
    assert answer.json()["openapi"] == "3.1.0" and answer.json()["info"]["title"] == "Approvals"


def test_the_page_about_the_api_has_every_route_and_every_problem() -> None:
    visitor = Visitor(inbox_of(), prefix="/in")
    page = visitor.get("/api", headers={"accept": "text/html"})
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    for route in API:
        assert f"{route.method} /in{route.path.replace(':path}', '}')}" in page.text
        told = [f"<code>{each}</code>" for each in route.scopes]
        needs = f"Needs the scope{'s' if len(told) > 1 else ''} {' and '.join(told)}."
        assert not told or f"<p>{route.summary}. {needs}" in page.text
    for name in TYPES:
        assert f'href="/in/problems/{name}"' in page.text
        assert visitor.get(f"/problems/{name}").status_code == 200
    assert 'href="/in/openapi.json"' in page.text
    assert Visitor(visitor.inbox, who=None).get("/api", headers={"accept": "text/html"}).status_code == 303


def test_the_documentation_has_every_route_and_every_problem() -> None:
    page = (Path(__file__).parents[1] / "docs" / "inbox-api.md").read_text()
    told = set(re.findall(r"`(GET|POST|DELETE) ([^`]+)`", page))
    short = {(each.method, each.path.removeprefix("/api/v1").replace(":path}", "}")) for each in API}
    assert short - told == {("GET", "/openapi.json")} and told <= short
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", page, re.MULTILINE))
    assert rows == {name: str(kind.status) for name, kind in TYPES.items()}


def test_whatever_is_sent_is_answered_as_described() -> None:
    """Schemathesis makes calls of the description; half of them are about a request, a run or a grant that is there."""
    store = MemoryStore()
    inbox = inbox_by_token(store, agents=desk(store), limits=Limits(store, decisions=10_000))
    inbox.site.kept(Watching).close()  # a stream would not end
    items = [asked(store, number) for number in range(40)]
    runs = {each.id: store.request(each.id).run_id for each in items}
    checkpoints = {each.id: store.request(each.id).checkpoint_id for each in items}
    grant = store.grant_like(items[0].id, digest=items[0].digest, by=ROBOT, scope="tenant", uses=5)
    config = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})
    schema = schemathesis.openapi.from_asgi("/openapi.json", inbox, config=config)
    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
    ]
    seen: Counter[str] = Counter()

    def real(case: Any, item: Any) -> None:
        """Make the call be about something that is there."""
        parameters = case.path_parameters
        if parameters is None or "id" not in parameters:
            return
        of_run, of_grant = "/runs/" in case.path, "/grants/" in case.path
        parameters["id"] = runs[item.id] if of_run else grant.id if of_grant else item.id
        if "checkpoint" in parameters:
            parameters["checkpoint"] = checkpoints[item.id]
        if isinstance(case.body, dict) and "digest" in case.body:
            case.body["digest"] = item.digest

    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=25,
            database=None,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
        )
        @given(case=operation.as_strategy(), item=st.sampled_from(items), is_real=st.booleans())
        def check(case: Any, item: Any, is_real: bool) -> None:
            if is_real:
                real(case, item)
            answer = case.call(headers=bearer("robot"))
            case.validate_response(answer, checks=wanted)
            seen[f"{case.method} {answer.status_code}"] += 1

        check()
    # It reached good answers, and not only refusals.
    assert {"GET 200", "GET 404", "POST 200", "POST 422"} <= set(seen), seen
