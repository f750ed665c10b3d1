"""The inbox as an application: its headers, its problems, and who gets in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from inbox_scenes import ORIGIN, RITA, ByHeader, Visitor, inbox_of
from tables import each

from phronomy import ConfigurationError, MemoryStore, Telemetry
from phronomy.inbox import Identity, Inbox, Sessions, TrustedProxy, security


def test_there_is_no_inbox_without_somebody_who_says_who_comes_in() -> None:
    with pytest.raises(ConfigurationError, match="auth says who may come in"):
        Inbox(MemoryStore())
    with pytest.raises(ConfigurationError, match="auth says who may come in"):
        Inbox(MemoryStore(), auth=object())  # type: ignore[arg-type]


class Plain:
    """An `Auth` that forgot to be async."""

    def identify(self, request: object) -> Identity | None:
        return None


class Saying:
    """An `Auth` that says whatever the test gives it."""

    def __init__(self, said: Any) -> None:
        self.said = said

    async def identify(self, request: object) -> Any:
        return self.said() if callable(self.said) else self.said


async def later(who: object) -> set[str]:
    return {"read"}


@each(
    ("options", "said"),
    [
        ({"auth": ByHeader}, r"auth is an object, not the class ByHeader: write ByHeader\(\.\.\.\)"),
        ({"auth": [ByHeader(), Plain]}, r"not the class Plain: write Plain\(\.\.\.\)"),
        ({"auth": Plain()}, r"Plain: identify is awaited: write async def identify\(self, request\)"),
        ({"scopes": {"read"}}, "scopes is a plain function of the principal .* not set"),
        ({"scopes": later}, "scopes is a plain function of the principal .* not the function later"),
        ({"trusted_hosts": "desk.example"}, "trusted_hosts is a list of host names, .* not text of length 12"),
        ({"trusted_hosts": ["https://desk.example"]}, "trusted_hosts is a list of host names"),
    ],
)
def test_a_wrong_option_is_refused_when_the_inbox_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        inbox_of(**options)


@each(
    ("given", "said"),
    [
        ({"principal": "rita"}, r"principal is a Principal, such as Principal\(id='rita'\), not text of length 4"),
        ({"via": ""}, "via is a name of your own for the way, not ''"),
        ({"tenant": 7}, "tenant is the name of a tenant, or None, not 7"),
        ({"scopes": "read decide"}, "scopes are some of read, decide, .* in a list or a set, not text of length 11"),
        ({"scopes": ["read", "deside"]}, "scopes are some of read, decide, .* not 'deside'"),
        ({"scopes": None}, "scopes are some of read, decide, .* not None"),
    ],
)
def test_an_identity_is_checked_when_it_is_made(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^Identity: {said}"):
        Identity(**{"principal": RITA, "via": "app", **given})
    assert Identity(principal=RITA, via="app", scopes=["read"]).scopes == {"read"}


def test_a_proxy_gives_scopes_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"TrustedProxy: scopes are some of read, decide, .* not 'deside'"):
        TrustedProxy(peers=["10.0.0.5"], secret="s" * 32, scopes=["deside"])  # type: ignore[list-item]


@each(
    ("options", "said"),
    [
        ({"auth": Saying("rita")}, "Saying: identify returns an Identity, or None, not text of length 4"),
        ({"auth": Saying(RITA)}, "Saying: identify returns an Identity, or None, not Principal"),
        ({"auth": Saying(lambda: Identity(principal="rita", via="x"))}, "Identity: principal is a Principal"),  # type: ignore[arg-type]
        (
            {"scopes": lambda _: ["read", "deside"]},
            "the names that scopes returns are some of read, decide, .* not 'deside'",
        ),
        ({"scopes": lambda _: "read"}, "the names that scopes returns are some of .* not text of length 4"),
        ({"scopes": lambda _: None}, "the names that scopes returns are some of .* not None"),
    ],
)
def test_what_an_application_says_wrongly_of_people_lets_nobody_in_and_is_in_the_log(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    answer = Visitor(inbox_of(**options)).get("/api/v1/me")
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/failed")
    assert "deside" not in answer.text and "identify" not in answer.text
    (line,) = [each for each in caplog.records if each.name == "phronomy"]
    assert answer.json()["instance"] in line.getMessage() and re.search(f"ConfigurationError: .*{said}", caplog.text)


def test_the_sessions_of_another_store_are_refused() -> None:
    store = MemoryStore()
    for other in (MemoryStore(), store.for_tenant("acme")):
        with pytest.raises(ConfigurationError, match="make them with the store object of the Inbox"):
            Inbox(store, auth=ByHeader(), sessions=Sessions(other))


def test_people_read_and_decide_and_no_more_until_it_is_said() -> None:
    """Whoever can sign in may be anybody of a company: who grants, audits, starts and cancels is chosen."""
    inbox = Inbox(MemoryStore(), auth=ByHeader(), public_url=ORIGIN)
    visitor = Visitor(inbox, accept="text/html")
    assert visitor.get("/api/v1/me", headers={"accept": "application/json"}).json()["scopes"] == ["read", "decide"]
    paths = ("/", "/runs", "/history", "/audit.ndjson", "/grants")
    assert [visitor.get(path).status_code for path in paths] == [200, 200, 200, 403, 403]
    assert set(re.findall(r'href="(/history|/audit|/grants|/runs)"', visitor.get("/").text)) == {"/runs", "/history"}


@pytest.mark.parametrize(
    "url", ["ftp://a", "example.org", "https://", "https://u:p@example.org", "https://example.org?a"]
)
def test_a_public_url_is_an_address(url: str) -> None:
    with pytest.raises(ConfigurationError, match="public_url"):
        Inbox(MemoryStore(), auth=ByHeader(), public_url=url)


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/problems/expired", "/problems/none"])
def test_each_answer_has_the_headers(path: str) -> None:
    answer = Visitor(inbox_of()).get(path)
    for name, value in security.HEADERS.items():
        assert answer.headers[name] == value
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


def test_what_is_not_there_is_a_problem_for_programs_and_a_page_for_people() -> None:
    visitor = Visitor(inbox_of())
    found = visitor.get("/api/v1/nothing")
    assert (found.status_code, found.headers["content-type"]) == (404, "application/problem+json")
    assert found.json()["type"] == "/problems/not-found" and found.json()["title"] == "There is nothing here"
    page = visitor.get("/problems/none", headers={"accept": "text/html"})
    assert page.status_code == 404 and "There is nothing here" in page.text


def test_a_wrong_method_is_told_which_ones_there_are() -> None:
    answer = Visitor(inbox_of()).post("/healthz")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_other_hosts_are_not_answered() -> None:
    visitor = Visitor(inbox_of(trusted_hosts=["inbox.example"]))
    assert visitor.get("/healthz").status_code == 200
    assert visitor.get("/healthz", headers={"host": "evil.example"}).status_code == 421


def test_it_answers_under_a_prefix() -> None:
    visitor = Visitor(inbox_of(), prefix="/admin/inbox")
    assert visitor.get("/healthz").status_code == 200
    assert visitor.get("/problems/none", headers={"accept": "application/json"}).status_code == 404
    assert visitor.get("/api/v1/nothing").json()["type"] == "/admin/inbox/problems/not-found"


def test_an_inbox_says_its_store_and_nothing_secret() -> None:
    store = MemoryStore()
    assert repr(inbox_of(store)) == f"Inbox({store!r})"


def test_the_access_log_says_who_and_what_came_of_it_and_no_ids_of_paths(caplog: pytest.LogCaptureFixture) -> None:
    visitor = Visitor(inbox_of())
    with caplog.at_level("INFO", logger="phronomy.inbox"):
        visitor.get("/problems/expired?token=s3cret")
        visitor.get("/problems/s3cret", headers={"accept": "text/html"})
        visitor.request("BREW", "/healthz")
    first, second, third = [record.getMessage() for record in caplog.records]
    assert first.startswith("GET /problems/{name} 200, rita by header, ")
    assert re.match(r"GET /problems/{name} 404 \(not-found, id [0-9a-f]{16}\), rita by header, ", second)
    assert re.match(r"_OTHER /healthz 405 \(wrong-method, id [0-9a-f]{16}\), rita by header, ", third)
    assert "s3cret" not in caplog.text


def test_the_id_that_somebody_is_told_is_in_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    inbox = inbox_of(store, scopes=lambda _: {"read"}, trusted_hosts=["inbox.example"])
    api = {"accept": "application/json"}
    told = []
    with caplog.at_level("INFO", logger="phronomy.inbox"):
        for who, path, headers in (
            ("rita", "/nowhere/s3cret", api),
            ("rita", "/api/v1/requests/s3cret", api),
            ("rita", "/api/v1/audit", api),
            (None, "/api/v1/me", api),
            ("rita", "/healthz", {**api, "host": "evil.example"}),
        ):
            answer = Visitor(inbox, who=who).get(path, headers=headers)
            told.append((answer.status_code, answer.json()["instance"]))
        page = Visitor(inbox).get("/nowhere", headers={"accept": "text/html"})
        told.append((404, re.search(r"<code>([0-9a-f]{16})</code>", page.text)[1]))  # type: ignore[index]
        away = Visitor(inbox, who=None).get("/", headers={"accept": "text/html"})
        assert away.status_code == 303
    lines = [record.getMessage() for record in caplog.records]
    assert [status for status, _ in told] == [404, 404, 403, 401, 421, 404]
    for (status, id), line in zip(told, lines, strict=False):
        assert f" {status} (" in line and f", id {id}), " in line
    assert lines[0].startswith("GET (no route) 404 (not-found, ") and ", rita by header, " in lines[0]
    assert ", nobody, " in lines[3] and ", nobody, " in lines[4], "nobody is looked up under a wrong name"
    assert len(lines) == 7 and "303 (not-signed-in, id " in lines[6]
    assert "s3cret" not in caplog.text


def test_a_wrong_address_is_not_there_even_if_nobody_can_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = inbox_of()

    async def broken(request: object) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(inbox, "identify", broken)
    assert Visitor(inbox).get("/nowhere", headers={"accept": "application/json"}).status_code == 404


def test_how_long_answers_take_is_measured_by_route() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    inbox = inbox_of(telemetry=Telemetry(meter_provider=MeterProvider(metric_readers=[reader])))
    Visitor(inbox).get("/healthz")
    Visitor(inbox).get("/problems/none")
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    points = {point.attributes["http.route"]: point for point in metric.data.data_points}
    assert metric.name == "http.server.request.duration"
    assert points["/healthz"].attributes["http.response.status_code"] == 200
    assert points["/problems/{name}"].attributes["error.type"] == "not-found"


def test_telemetry_is_one() -> None:
    with pytest.raises(ConfigurationError, match="telemetry is a Telemetry"):
        inbox_of(telemetry=object())
