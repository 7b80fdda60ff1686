"""Traces and metrics by OTLP, as a collector receives them."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from liverank_service.app import create_app
from liverank_service.http.telemetry import BatchSpans, stages
from liverank_service.pipeline.batch import StageSeconds
from liverank_service.settings import Settings
from tests.service.server import Server, running, wait_for

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"


class Collector(ThreadingHTTPServer):
    """An OTLP collector: keeps the spans, and the newest metrics with their resource."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[Span] = []
        self.metrics: dict[str, Any] = {}
        self.resource: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str, trace: str = TRACE) -> list[Span]:
        """The spans of a trace with this name."""
        return [one for one in self.spans if (one.name, one.trace_id.hex()) == (name, trace)]


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    self.server.spans.extend(scope.spans)
        else:
            assert self.path == "/v1/metrics"
            (all_of_it,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
            self.server.resource = attributes(all_of_it.resource)
            (scope_metrics,) = all_of_it.scope_metrics
            self.server.metrics = {metric.name: metric for metric in scope_metrics.metrics}
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a span, a resource or a data point."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as receiving:
        thread = threading.Thread(target=receiving.serve_forever, args=(0.02,))
        thread.start()
        yield receiving
        receiving.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as receiving:
        yield receiving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    """A server that sends to the collector."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
            environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
            environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
            started = stack.enter_context(running(tmp_path_factory.mktemp("data")))
        yield started


def test_a_batch_is_a_trace_from_the_caller_to_its_stages(
    server: Server, collector: Collector
) -> None:
    path = server.new_graph()
    before = time.time_ns()
    answer = server.http.post(
        f"{path}/batches",
        json={"insert": [["a", "b"], ["b", "c"]], "delete": [["c", "a"]]},
        headers={"traceparent": TRACEPARENT, "X-Request-ID": "traced-one"},
    )
    after = time.time_ns()
    receipt = answer.json()
    wait_for(lambda: collector.named("liverank.batch") and collector.named("liverank.publish"))
    wait_for(lambda: collector.named("POST /graphs/{graph}/batches"))

    (request,) = collector.named("POST /graphs/{graph}/batches")
    assert request.parent_span_id.hex() == CALLER
    assert request.kind == Span.SPAN_KIND_SERVER
    told = attributes(request)
    assert told["http.route"] == "/graphs/{graph}/batches"
    assert told["http.response.status_code"] == 200

    (batch,) = collector.named("liverank.batch")
    assert batch.parent_span_id == request.span_id
    told = attributes(batch)
    assert told.pop("liverank.error_bound") == receipt["error_bound"]
    assert told == {
        "liverank.graph": path.rsplit("/", 1)[1],
        "liverank.version": 1,
        "liverank.request_id": "traced-one",
        "liverank.inserted": 2,
        "liverank.deleted": 0,
        "liverank.group_batches": 1,
        "liverank.strategy": receipt["strategy"],
        "liverank.iterations": receipt["iterations"],
        "liverank.touched_vertices": receipt["touched_vertices"],
    }
    assert before < batch.start_time_unix_nano < batch.end_time_unix_nano < after

    children = [one for one in collector.spans if one.parent_span_id == batch.span_id]
    seconds = receipt["seconds"]
    spent = {
        stage: value
        for stage, value in seconds.items()
        if value >= 1e-9 and stage not in ("others", "total")
    }
    assert {one.name for one in children} == {f"liverank.{stage}" for stage in spent}
    assert {"queue", "journal", "keys", "mutate", "solve", "publish"} <= set(spent)
    for one in children:
        assert batch.start_time_unix_nano <= one.start_time_unix_nano
        assert one.end_time_unix_nano <= batch.end_time_unix_nano + 20  # each is rounded
        length = (one.end_time_unix_nano - one.start_time_unix_nano) / 1e9
        assert length == pytest.approx(spent[one.name.removeprefix("liverank.")], abs=2e-9)


def test_batches_at_the_same_time_have_the_spans_of_their_own_requests(
    server: Server, collector: Collector
) -> None:
    path = server.new_graph()
    traces = [f"{number:032x}" for number in range(0xA0, 0xA6)]

    def send(trace: str, wait: str) -> None:
        with httpx.Client(base_url=server.http.base_url, timeout=60) as http:
            http.post(
                f"{path}/batches",
                params={"wait": wait},
                json={"insert": [["a", trace]]},
                headers={"traceparent": f"00-{trace}-{CALLER}-01"},
            )

    with ThreadPoolExecutor(len(traces)) as pool:
        list(pool.map(send, traces, ["ranked", "durable"] * 3))
    wait_for(lambda: all(collector.named("liverank.batch", trace) for trace in traces))
    wait_for(
        lambda: all(collector.named("POST /graphs/{graph}/batches", trace) for trace in traces)
    )
    for trace in traces:
        (request,) = collector.named("POST /graphs/{graph}/batches", trace)
        (batch,) = collector.named("liverank.batch", trace)
        assert batch.parent_span_id == request.span_id
    versions = {
        attributes(collector.named("liverank.batch", trace)[0])["liverank.version"]
        for trace in traces
    }
    assert versions == set(range(1, 7))


def test_an_sdk_that_fails_does_not_stop_the_graph(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = server.new_graph()

    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as faulty:
        faulty.setattr(BatchSpans, "_trace", fail)
        server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
        wait_for(lambda: "spans of 1 batches are missing" in caplog.text)
    answer = server.http.post(f"{path}/batches", json={"insert": [["b", "c"]]})
    assert answer.json()["version"] == 2


def test_an_unsampled_trace_has_no_spans(server: Server, collector: Collector) -> None:
    path = server.new_graph()
    for trace, flag in (("1" * 32, "00"), ("2" * 32, "01")):
        sent = {"traceparent": f"00-{trace}-{CALLER}-{flag}"}
        server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}, headers=sent)
    wait_for(lambda: collector.named("liverank.batch", "2" * 32))
    assert [one for one in collector.spans if one.trace_id.hex() == "1" * 32] == []


def test_requests_without_a_parent_and_refusals_have_spans(
    server: Server, collector: Collector
) -> None:
    server.http.get("/graphs/none/top", headers={"traceparent": f"00-{'3' * 32}-{CALLER}-01"})
    server.http.get("/graphs/default/top?k=3")
    wait_for(lambda: any(one.name == "GET /graphs/{graph}/top" for one in collector.spans))
    wait_for(lambda: any(not one.parent_span_id for one in collector.spans))
    (refused,) = collector.named("GET /graphs/{graph}/top", "3" * 32)
    assert attributes(refused)["http.response.status_code"] == 404


def test_no_key_of_the_api_or_a_vertex_is_in_a_span(server: Server, collector: Collector) -> None:
    trace, name = "4" * 32, "GET /graphs/{graph}/ranks/{vertex}"
    sent = {"Authorization": "Bearer secret-of-a-caller", "traceparent": f"00-{trace}-{CALLER}-01"}
    server.http.get("/graphs/default/ranks/secret/of/ada?min_version=0", headers=sent)
    wait_for(lambda: collector.named(name, trace))
    assert b"secret" not in b"".join(one.SerializeToString() for one in collector.spans)
    (span,) = collector.named(name, trace)
    assert attributes(span)["url.path"] == "/graphs/default/ranks/…"
    assert attributes(span)["url.query"] == "min_version=0"


def test_metrics_are_those_of_prometheus(server: Server, collector: Collector) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    graph = path.rsplit("/", 1)[1]
    solving = {"graph": graph, "stage": "solve"}
    wait_for(lambda: points(collector, "liverank_stage_seconds", **solving))
    shown = {
        family.name: family
        for family in text_string_to_metric_families(server.http.get("/metrics").text)
        if not family.name.endswith("_created")
    }
    assert set(collector.metrics) == {name for name, family in shown.items() if family.samples}
    assert points(collector, "liverank_batches", graph=graph, outcome="ranked") == [1]
    assert collector.metrics["liverank_batches"].sum.is_monotonic
    (solve,) = points(collector, "liverank_stage_seconds", **solving)
    sampled = {
        (sample.name, float(sample.labels.get("le", 0))): sample.value
        for sample in shown["liverank_stage_seconds"].samples
        if solving.items() <= sample.labels.items()
    }
    assert solve.sum == sampled["liverank_stage_seconds_sum", 0]
    assert solve.count == sum(solve.bucket_counts) == 1
    assert len(solve.bucket_counts) == len(solve.explicit_bounds) + 1
    for place, bound in enumerate(solve.explicit_bounds):
        upto = sum(solve.bucket_counts[: place + 1])
        assert upto == sampled["liverank_stage_seconds_bucket", bound]
    assert collector.resource["service.name"] == "liverank"
    assert collector.resource["deployment.environment"] == "test"


def points(collector: Collector, name: str, **labels: str) -> list[Any]:
    """Values of a metric's series with these labels; of a histogram its data points."""
    metric = collector.metrics.get(name)
    if metric is None:
        return []
    kind = metric.WhichOneof("data")
    found = [
        one
        for one in getattr(metric, kind).data_points
        if labels.items() <= attributes(one).items()
    ]
    return found if kind == "histogram" else [one.as_double or one.as_int for one in found]


def test_what_is_left_is_sent_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "last-words")
    trace = "5" * 32
    # of its own: the server of the other tests keeps sending, and the collector keeps the newest
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with running(tmp_path) as server:
            server.http.get("/graphs", headers={"traceparent": f"00-{trace}-{CALLER}-01"})
        assert collector.named("GET /graphs", trace)
        assert collector.resource["service.name"] == "last-words"


def test_a_collector_that_does_not_respond_delays_the_end_by_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverank_service.http.telemetry.CLOSING_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        telemetry = create_app(Settings(data=tmp_path)).state.telemetry
        provider = telemetry.config["tracer_provider"]
        provider.get_tracer("test").start_span("one").end()
        began = time.monotonic()
        telemetry.close()
        assert 0.5 <= time.monotonic() - began < 3


# Configuration


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"},
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
        },
    ],
    ids=["nothing", "disabled", "none"],
)
def test_it_is_off_unless_configured(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    app = create_app(Settings(data=tmp_path))
    assert app.state.telemetry is None
    assert not app._native_telemetry.enabled()
    assert [one for one in caplog.records if one.name == "liverank.telemetry"] == []


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "'grpc' must be http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "console", "'console' must be otlp"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "'soon' must be a positive number"),
    ],
)
def test_what_cannot_be_used_is_reported(
    name: str,
    value: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING):
        assert create_app(Settings(data=tmp_path)).state.telemetry is None
    (record,) = [one for one in caplog.records if one.name == "liverank.telemetry"]
    assert record.getMessage().startswith(f"no telemetry is sent: {name}: {reason}")


def test_a_missing_package_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with caplog.at_level(logging.WARNING):
        assert create_app(Settings(data=tmp_path)).state.telemetry is None
    (record,) = [one for one in caplog.records if one.name == "liverank.telemetry"]
    assert record.getMessage().endswith("pip install -e '.[telemetry]' in the clone of liverank")


def test_stages_are_laid_from_both_ends() -> None:
    seconds = StageSeconds(queue=1, journal=2, mutate=1, solve=3, publish=1)
    seconds.close(10)
    assert [
        (name, (start - 7) / 1e9, (end - 7) / 1e9) for name, start, end in stages(seconds, 7)
    ] == [
        ("queue", 0, 1),
        ("journal", 1, 3),
        ("mutate", 3, 4),
        ("solve", 6, 9),
        ("publish", 9, 10),
    ]
