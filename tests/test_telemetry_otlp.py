"""Spans over the wire: what an exporter for OTLP sends to a collector, read by a receiver that knows nothing of phronomy."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from drivers import DRIVERS, STREAMED, Driver
from loopback import loopback
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

import phronomy
from phronomy import Agent, ModelSettings, Telemetry, tool
from phronomy.models import ChatCompletionsModel
from phronomy.testing import ChatServer, call, say

NAMES = {
    value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_") and isinstance(value, str)
}


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def each(request: pytest.FixtureRequest) -> Driver:
    """Each driver, streamed and not."""
    found: Driver = request.param
    return found


class Collector:
    """A receiver of OTLP over HTTP: `requests` is what has come, in order."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []

    def spans(self) -> list[Span]:
        """All spans that have come, by when they began."""
        found = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def text(self) -> str:
        """Everything that has come, as text."""
        return "".join(str(request) for request in self.requests)


@contextmanager
def collecting() -> Iterator[tuple[Collector, TracerProvider]]:
    """A collector on this machine, and a provider that sends each span to it once it has ended."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.requests.append(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with loopback(Handler) as (_, url):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{url}/v1/traces")))
        try:
            yield collector, provider
        finally:
            provider.shutdown()


def facts(span: Span) -> dict[str, Any]:
    """The attributes of a span, by name."""

    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [plain(one) for one in value.array_value.values]
        return getattr(value, kind)

    return {item.key: plain(item.value) for item in span.attributes}


def drive_twice(each: Driver, provider: TracerProvider, **options: Any) -> None:
    """A run by a real client that stops for a human, with a secret in all that is said."""

    @tool(requires_approval=True, redact=["card"])
    def pay(card: str, to: str) -> str:
        """Pay, canary-tool."""
        return f"canary-result for {to}"

    script = [say(None, call("pay", {"card": "hidden-card", "to": "canary-to \ud800"})), "canary-answer"]
    with ChatServer(script) as server:
        agent = Agent(
            name="clerk",
            model=ChatCompletionsModel("gpt-4o", base_url=server.base_url, api_key="k"),
            tools=[pay],
            instructions="canary-instructions",
            settings=ModelSettings(temperature=0.5, max_tokens=70, stop=("END",), extra={"top_k": 40}),
            hooks=[Telemetry(tracer_provider=provider, **options)],
        )
        waiting = each.invoke(agent, "canary-input", thread_id="t-1").checkpoint
        assert each.resume(agent, waiting, approved=True).output == "canary-answer"


def test_without_content_a_collector_is_told_nothing_that_was_said(each: Driver) -> None:
    with collecting() as (collector, provider):
        drive_twice(each, provider)
    first, chat, second, ran, last = collector.spans()
    names = [span.name for span in (first, chat, second, ran, last)]
    assert names == ["invoke_agent clerk", "chat gpt-4o", "invoke_agent clerk", "execute_tool pay", "chat gpt-4o"]
    assert chat.trace_id == first.trace_id != second.trace_id
    assert [link.span_id for link in second.links] == [first.span_id]
    told = facts(chat)
    assert told["gen_ai.response.id"] and told["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert (told["gen_ai.request.stop_sequences"], told["gen_ai.request.top_k"]) == (["END"], 40.0)

    found = {name for span in collector.spans() for name in facts(span) if name.startswith("gen_ai.")}
    assert found <= NAMES
    assert "canary" not in collector.text() and "hidden" not in collector.text()
    (scope,) = {
        (scope.scope.name, scope.scope.version, scope.schema_url)
        for request in collector.requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
    }
    assert scope[:2] == ("phronomy", phronomy.__version__) and scope[2].startswith("https://opentelemetry.io/schemas/")


def test_with_content_a_collector_is_told_all_but_what_a_tool_redacts(each: Driver) -> None:
    with collecting() as (collector, provider):
        drive_twice(each, provider, content=True)
    assert len(collector.spans()) == 5  # what cannot be written as UTF-8 would have taken a span along
    assert {name for span in collector.spans() for name in facts(span) if name.startswith("gen_ai.")} <= NAMES
    for word in ("input", "instructions", "tool", "to", "result", "answer"):
        assert f"canary-{word}" in collector.text()
    assert "hidden" not in collector.text()
    asked, called, settled = json.loads(facts(collector.spans()[-1])["gen_ai.input.messages"])
    assert [message["role"] for message in (asked, called, settled)] == ["user", "assistant", "tool"]
    assert settled["parts"][0]["response"].startswith("canary-result for canary-to")


def test_a_run_is_one_trace_to_a_collector_if_it_is_wanted(each: Driver) -> None:
    with collecting() as (collector, provider):
        drive_twice(each, provider, traces="run")
    first, _, second, _, _ = collector.spans()
    assert len({span.trace_id for span in collector.spans()}) == 1
    assert second.parent_span_id == first.span_id and not second.links
