"""Traces and metrics by OTLP over HTTP, with the SDK of OpenTelemetry: the extra `telemetry`.

Off, and without cost, unless a standard variable names an endpoint: OTEL_EXPORTER_OTLP_ENDPOINT, or
that of one signal. FastAPI's own hooks make the span of a request; BatchSpans adds those of a batch
and its stages. Metrics are those of Prometheus, converted when they are sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import environ
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric as Family

from liverank_gpu import Result
from liverank_service.http.metrics import Metrics
from liverank_service.logs import request_id
from liverank_service.pipeline.batch import Observer, RankedBatch, StageSeconds

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig
    from opentelemetry.context import Context
    from opentelemetry.sdk.metrics.export import Metric
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Span, TracerProvider
    from opentelemetry.trace import Tracer

log = logging.getLogger("liverank.telemetry")

OFF: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""For FastAPI. Otherwise it would look for a collector at each request, which takes 8 µs."""

BEFORE_RANKING = ("queue", "journal", "keys", "mutate")
RANKING = ("mark", "solve", "certify", "watched", "publish")
"""Stages of a batch in their order; between the two parts it waits for others of its group."""

SECOND = 10**9
CLOSING_SECONDS = 5.0
DEFAULT_INTERVAL = "60000"
"""Milliseconds between two exports of metrics, as the specification has it."""


def telemetry_of(metrics: Metrics, version: str) -> Telemetry | None:
    """What the environment configures; None, with a warning if it cannot be had, without it."""
    signals = [signal for signal in ("TRACES", "METRICS") if _endpoint(signal)]
    if not signals or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        for signal in signals:
            _check_protocol(signal)
        return Telemetry(metrics, version, "TRACES" in signals, "METRICS" in signals)
    except ModuleNotFoundError as error:
        reason = (
            f"{error.name} is not installed: pip install -e '.[telemetry]' in the clone of liverank"
        )
    except ValueError as error:
        reason = str(error)
    log.warning("no telemetry is sent: %s", reason)
    return None


class Telemetry:
    """Sends traces and metrics until it is closed."""

    def __init__(self, metrics: Metrics, version: str, traces: bool, with_metrics: bool) -> None:
        """Raises ModuleNotFoundError without the SDK, ValueError for a variable that is wrong."""
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource

        given = OTELResourceDetector().detect().attributes
        resource = Resource.create(
            {"service.name": "liverank", "service.version": version, **given}
        )
        self._version = version
        self._export = MetricExport(metrics.families, resource, version) if with_metrics else None
        self._provider = _tracer_provider(resource) if traces else None
        if self._export is not None:  # nothing can fail any more
            self._export.start()

    @property
    def config(self) -> TelemetryConfig:
        """For FastAPI, whose metrics and logs would count and report a second time."""
        if self._provider is None:
            return OFF
        return {
            "tracer_provider": self._provider,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        }

    def spans(self, graph: str) -> BatchSpans | None:
        """What makes those of the batches of `graph`; None without traces."""
        if self._provider is None:
            return None
        return BatchSpans(self._provider.get_tracer("liverank", self._version), graph)

    def close(self) -> None:
        """Sends what is left, for some seconds at most."""
        # each waits for the collector, and several seconds if it does not respond
        closing = [each.shutdown for each in (self._provider, self._export) if each is not None]
        threads = [threading.Thread(target=shutdown, daemon=True) for shutdown in closing]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + CLOSING_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def observer_of(metrics: Metrics, telemetry: Telemetry | None) -> Callable[[str], Observer]:
    """What makes the observer of a graph."""
    if telemetry is None:
        return metrics.observer
    return lambda graph: metrics.observer(graph, telemetry.spans(graph))


class BatchSpans:
    """Makes the spans of ranked batches from the times in their receipts: measured once."""

    def __init__(self, tracer: Tracer, graph: str) -> None:
        self._tracer = tracer
        self._graph = graph

    def __call__(self, batches: Sequence[RankedBatch], result: Result) -> None:
        offset = time.time_ns() - int(time.perf_counter() * SECOND)
        try:
            for batch in batches:
                if batch.submitted is not None:
                    start = offset + int(batch.submitted * SECOND)
                    # in the context of the request, whose span is then the parent
                    batch.context.run(self._trace, batch, start, len(batches), result)
        except Exception:  # a fault of the SDK must not stop the graph
            log.exception("graph %s: spans of %d batches are missing", self._graph, len(batches))

    def _trace(self, batch: RankedBatch, start: int, group: int, result: Result) -> None:
        from opentelemetry.trace import set_span_in_context

        attributes: dict[str, str | float] = {
            "graph": self._graph,
            "version": batch.version,
            "request_id": request_id.get() or "",
            "inserted": batch.change.inserted,
            "deleted": batch.change.deleted,
            "group_batches": group,
            "strategy": result.strategy,
            "iterations": result.iterations,
            "touched_vertices": result.touched_vertices,
            "error_bound": result.error_bound,
        }
        span = self._tracer.start_span(
            "liverank.batch",
            start_time=start,
            attributes={f"liverank.{name}": value for name, value in attributes.items()},
        )
        if span.is_recording():
            within = set_span_in_context(span)
            for stage, began, ended in stages(batch.seconds, start):
                self._tracer.start_span(f"liverank.{stage}", within, start_time=began).end(ended)
        span.end(start + int(batch.seconds.total * SECOND))


def stages(seconds: StageSeconds, start: int) -> Iterator[tuple[str, int, int]]:
    """The stages that took time, each with its start and end, in nanoseconds like `start`.

    The first follow one another from the start, the others end one after the other with the batch.
    """
    ranking = int(sum(getattr(seconds, stage) for stage in RANKING) * SECOND)
    for part, began in (
        (BEFORE_RANKING, start),
        (RANKING, start + int(seconds.total * SECOND) - ranking),
    ):
        for stage in part:
            ended = began + int(getattr(seconds, stage) * SECOND)
            if ended > began:
                yield stage, began, ended
            began = ended


class MetricExport(threading.Thread):
    """Sends metrics of Prometheus at intervals, and once more when it is shut down."""

    def __init__(
        self, families: Callable[[], Iterable[Family]], resource: Resource, version: str
    ) -> None:
        """Raises ValueError for an interval that is no positive number."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        super().__init__(name="liverank-telemetry", daemon=True)
        self._families = families
        self._resource = resource
        self._scope = InstrumentationScope("liverank", version)
        self._interval = _interval()
        self._started_at = time.time_ns()
        self._stopping = threading.Event()
        self._exporter = OTLPMetricExporter()

    def run(self) -> None:
        while not self._stopping.wait(self._interval):
            self._send()
        self._send()
        self._exporter.shutdown()

    def shutdown(self) -> None:
        self._stopping.set()
        self.join()

    def _send(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

        try:
            metrics = list(converted(self._families(), self._started_at, time.time_ns()))
            scoped = ScopeMetrics(self._scope, metrics, "")
            self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scoped], "")]))
        except Exception:  # the next may succeed
            log.exception("metrics were not sent")


def converted(families: Iterable[Family], started: int, now: int) -> Iterator[Metric]:
    """Metrics of Prometheus as those of OTLP, cumulative since `started`, with the same names and
    labels. Times in nanoseconds.
    """
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        Sum,
    )

    def number(labels: Mapping[str, str], value: float) -> NumberDataPoint:
        return NumberDataPoint(labels, started, now, value)

    def histogram(labels: Mapping[str, str], of: Mapping[str, Any]) -> HistogramDataPoint:
        bounds = sorted(of["buckets"])
        upto = [of["buckets"][bound] for bound in bounds]
        counts = [count - below for count, below in zip(upto, [0, *upto], strict=False)]
        return HistogramDataPoint(
            labels,
            started,
            now,
            count=upto[-1],
            sum=of["sum"],
            bucket_counts=counts,
            explicit_bounds=bounds[:-1],
            min=None,  # type: ignore[arg-type]  # optional in OTLP, and not known
            max=None,  # type: ignore[arg-type]
        )

    cumulative = AggregationTemporality.CUMULATIVE
    for family in families:
        data: Any
        if family.type == "histogram":
            points = [histogram(*series) for series in _histograms(family)]
            data = Histogram(points, cumulative)
        elif family.type == "counter":
            counted = [one for one in family.samples if one.name.endswith("_total")]
            data = Sum([number(one.labels, one.value) for one in counted], cumulative, True)
        else:
            data = Gauge([number(one.labels, one.value) for one in family.samples])
        if data.data_points:
            yield Metric(family.name, family.documentation, "", data)


def _histograms(family: Family) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """The labels of each series, with its cumulative counts by upper bound and its sum."""
    series: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        one = series.setdefault(tuple(labels.items()), {"buckets": {}, "sum": 0.0})
        if sample.name.endswith("_bucket"):
            one["buckets"][float(sample.labels["le"])] = int(sample.value)
        elif sample.name.endswith("_sum"):
            one["sum"] = sample.value
    for pairs, one in series.items():
        yield dict(pairs), one


def _tracer_provider(resource: Resource) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    class ShortPaths(SpanProcessor):
        """Cuts `url.path` behind the kind of call: keys of vertices follow."""

        def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
            path = str((span.attributes or {}).get("url.path", ""))
            if path.count("/") > 3:
                span.set_attribute("url.path", "/".join([*path.split("/")[:4], "…"]))

    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(ShortPaths())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _endpoint(signal: str) -> str:
    """The collector of a signal; empty if it is not to be sent."""
    if environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return ""
    general = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "") or general


def _check_protocol(signal: str) -> None:
    """Raises ValueError for another exporter or protocol than OTLP over HTTP."""
    for names, accepted in (
        ((f"OTEL_{signal}_EXPORTER",), "otlp"),
        ((f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"),
    ):
        name = next((name for name in names if environ.get(name)), None)
        if name is not None and environ[name].strip().lower() != accepted:
            raise ValueError(f"{name}: {environ[name]!r} must be {accepted}")


def _interval() -> float:
    """Seconds between two exports of metrics. Raises ValueError."""
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    text = environ.get(name, "").strip() or DEFAULT_INTERVAL
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{name}: {text!r} must be a positive number of milliseconds")
    return int(text) / 1000
