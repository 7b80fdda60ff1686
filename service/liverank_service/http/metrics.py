"""Prometheus metrics: the response to GET /metrics.

Counters and histograms are updated by events; the state of the graphs (versions, bounds, queues,
memory) is read from the catalog at each scrape, so that it is current and has no dropped graphs.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from liverank_gpu import Result
from liverank_service.catalog import Catalog, Graph
from liverank_service.http.limits import ConcurrencyLimit
from liverank_service.logs import request_id
from liverank_service.pipeline.batch import Observer, RankedBatch, StageSeconds

log = logging.getLogger("liverank.batches")

MetricType = TypeVar("MetricType", Counter, Gauge, Histogram)
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)

MakeSpans = Callable[[Sequence[RankedBatch], Result], None]

CONTENT_TYPE = CONTENT_TYPE_LATEST
UNMATCHED = "unmatched"
"""Label for unmatched requests: method and path are chosen freely by the client."""

STAGES = tuple(stage.name for stage in fields(StageSeconds))
_SENT = ("inserted", "already_present", "reweighted", "deleted", "not_found", "lowered")
CHANGES = (*_SENT, "expired")

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_EDGES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Described(NamedTuple):
    """What a metric means, and its labels."""

    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()


_OF_GRAPH = ("graph",)

METRICS = {
    "liverank_build_info": Described("gauge", "Always 1", ("version",)),
    "liverank_ready": Described("gauge", "1 once the graphs can be used"),
    "liverank_graphs": Described("gauge", "Number of graphs"),
    "liverank_version": Described("gauge", "Published version", _OF_GRAPH),
    "liverank_committed_version": Described(
        "gauge",
        "Newest version on disk; ahead of the published one by the unfinished batches",
        _OF_GRAPH,
    ),
    "liverank_revision": Described("gauge", "Published revision", _OF_GRAPH),
    "liverank_error_bound": Described(
        "gauge", "Proven upper bound on the L1 error of the published ranks", _OF_GRAPH
    ),
    "liverank_vertices": Described("gauge", "Number of vertices", _OF_GRAPH),
    "liverank_graph_edges": Described("gauge", "Number of edges", _OF_GRAPH),
    "liverank_memory_bytes": Described(
        "gauge", "Memory of a graph by purpose, on host and device", ("graph", "purpose")
    ),
    "liverank_expiry_delayed": Described(
        "gauge",
        "1 while edges that are too old stay: the description of the graph says why",
        _OF_GRAPH,
    ),
    "liverank_queue_batches": Described("gauge", "Batches waiting or in progress", _OF_GRAPH),
    "liverank_queue_bytes": Described("gauge", "Bytes held by these batches", _OF_GRAPH),
    "liverank_queue_computations": Described(
        "gauge", "Personalized queries and recomputations waiting or in progress", _OF_GRAPH
    ),
    "liverank_analyses": Described("gauge", "Analyses queued or running", _OF_GRAPH),
    "liverank_analysis_seconds": Described(
        "histogram",
        "Seconds that the program of an analysis ran, by outcome: finished, failed, cancelled",
        ("graph", "program", "outcome"),
    ),
    "liverank_shard_vertices": Described(
        "gauge", "Vertices of a shard; none while the graph recovers", ("graph", "shard")
    ),
    "liverank_shard_edges": Described(
        "gauge",
        "Entries of the out-lists of a shard; none while the graph recovers",
        ("graph", "shard"),
    ),
    "liverank_stopped": Described(
        "gauge",
        "1 for a graph that is not served, or takes no more batches: /readyz has the reason",
        _OF_GRAPH,
    ),
    "liverank_recovering": Described(
        "gauge", "1 while a graph recovers from the loss of shards", _OF_GRAPH
    ),
    "liverank_shard_restarts": Described(
        "counter", "Times that the workers of a graph were started again", _OF_GRAPH
    ),
    "liverank_subscribers": Described("gauge", "Subscribers of changes", _OF_GRAPH),
    "liverank_subscribers_dropped": Described(
        "counter", "Subscribers of changes dropped because they read too slowly", _OF_GRAPH
    ),
    "liverank_refused": Described(
        "counter",
        "Refused with 429 because the queue was full, by kind: batch, computation",
        ("graph", "kind"),
    ),
    "liverank_batches": Described(
        "counter",
        "Batches by outcome: ranked, rejected, failed (not committed, or not ranked)",
        ("graph", "outcome"),
    ),
    "liverank_ranks_refused": Described(
        "counter",
        "Solves whose ranks were no distribution, by what was published: static (the ranks of a "
        "static solve), equal (equal ranks), kept (nothing: the ranks before stay)",
        ("graph", "fallback"),
    ),
    "liverank_personalized_refused": Described(
        "counter",
        "Personalized queries whose ranks were no distribution, so that they were solved again by "
        "plain sweeps: query, or watched, after each solve",
        ("graph", "kind"),
    ),
    "liverank_edges": Described(
        "counter",
        f"Edges of ranked batches by change, as in their receipts: {', '.join(CHANGES)}",
        ("graph", "change"),
    ),
    "liverank_batch_edges": Described("histogram", "Edges per batch", _OF_GRAPH),
    "liverank_group_batches": Described("histogram", "Batches per ranking", _OF_GRAPH),
    "liverank_stage_seconds": Described(
        "histogram", "Seconds per batch by stage, as in its receipt", ("graph", "stage")
    ),
    "liverank_http_requests": Described(
        "counter",
        "HTTP responses by call (method and route) and status; 0: the client disconnected",
        ("call", "status"),
    ),
    "liverank_http_request_seconds": Described(
        "histogram",
        "Seconds from the parsed head of a request to the end of its response",
        ("call",),
    ),
    "liverank_http_requests_in_progress": Described("gauge", "HTTP requests in progress"),
    "liverank_exports": Described("gauge", "Exports in progress"),
    "liverank_receiving_bytes": Described(
        "gauge", "Bytes of request bodies being received or parsed"
    ),
}
"""By their names, without the `_total` of counters. Those of the process are of the library."""


def _updated(
    kind: type[MetricType], name: str, registry: CollectorRegistry, **options: Any
) -> MetricType:
    """A metric of the table that events update."""
    _, meaning, labels = METRICS[name]
    return kind(name, meaning, labels, registry=registry, **options)


def _read(kind: type[Family], name: str, value: float | None = None) -> Family:
    """A metric of the table that is read at each scrape; one without labels has its value."""
    _, meaning, labels = METRICS[name]
    return kind(name, meaning, value, labels or None)


class HttpMetrics:
    """HTTP requests and responses."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_progress = _updated(Gauge, "liverank_http_requests_in_progress", registry)
        self._requests = _updated(Counter, "liverank_http_requests", registry)
        self._seconds = _updated(
            Histogram, "liverank_http_request_seconds", registry, buckets=SECONDS
        )

        # calling `labels` each time would take longer than counting
        self._requests_of = cache(lambda call, status: self._requests.labels(call, str(status)))
        self._seconds_of = cache(self._seconds.labels)

    def count(self, call: str | None, status: int, seconds: float) -> None:
        """Counts a response; status 0: the client disconnected first."""
        call = call or UNMATCHED
        self._requests_of(call, status).inc()
        self._seconds_of(call).observe(seconds)


class BatchMetrics:
    """Batches of all graphs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.batches = _updated(Counter, "liverank_batches", registry)
        self.refused = _updated(Counter, "liverank_ranks_refused", registry)
        self.queries_refused = _updated(Counter, "liverank_personalized_refused", registry)
        self.edges = _updated(Counter, "liverank_edges", registry)
        self.batch_edges = _updated(Histogram, "liverank_batch_edges", registry, buckets=_EDGES)
        self.group_batches = _updated(
            Histogram, "liverank_group_batches", registry, buckets=_BATCHES
        )
        self.analyses = _updated(Histogram, "liverank_analysis_seconds", registry, buckets=SECONDS)
        self.stages = StageHistograms()
        registry.register(self.stages)

    def forget(self, graph: str) -> None:
        """Removes the metrics of a dropped graph."""
        refused = (self.refused, self.queries_refused)
        of_batches = (self.batches, self.edges, self.batch_edges, self.group_batches)
        for metric in (*refused, *of_batches, self.analyses):
            metric.remove_by_labels({"graph": graph})
        self.stages.forget(graph)


class StageHistograms(Collector):
    """Seconds per batch and stage, of all graphs, counted in a part of the time that the library's
    own histogram takes. Not with NumPy: a search there releases the interpreter lock, and to get it
    back while clients are answered takes far longer than to count.
    """

    def __init__(self) -> None:
        # by graph and stage: the number in each bucket; and the sum
        self._counts: dict[str, list[tuple[list[int], list[float]]]] = {}

    def observe(self, graph: str, seconds: Sequence[StageSeconds]) -> None:
        """Counts batches of one graph; called on its writer's thread."""
        counts = self._counts.get(graph)
        if counts is None:
            counts = self._counts[graph] = [([0] * (len(SECONDS) + 1), [0.0]) for _ in STAGES]
        for stage, (buckets, total) in zip(STAGES, counts, strict=True):
            for one in seconds:
                spent = getattr(one, stage)
                buckets[bisect_left(SECONDS, spent)] += 1
                total[0] += spent

    def forget(self, graph: str) -> None:
        self._counts.pop(graph, None)

    def collect(self) -> Iterator[Metric]:
        _, meaning, labels = METRICS["liverank_stage_seconds"]
        family = HistogramMetricFamily("liverank_stage_seconds", meaning, labels=labels)
        bounds = [*map(floatToGoString, SECONDS), "+Inf"]
        for graph, counts in list(self._counts.items()):
            for stage, (row, (total,)) in zip(STAGES, counts, strict=True):
                buckets = list(zip(bounds, accumulate(row), strict=True))
                family.add_metric([graph, stage], buckets, total)
        yield family


class GraphObserver(Observer):
    """Counts what one graph's pipeline reports; logs the slowest batch of a slow group."""

    def __init__(
        self,
        metrics: BatchMetrics,
        graph: str,
        slow_seconds: float,
        spans: MakeSpans | None = None,
    ) -> None:
        self._metrics = metrics
        self._graph = graph
        self._slow_seconds = slow_seconds
        self._spans = spans
        # looked up once: a lookup takes longer than counting
        self._ranked = metrics.batches.labels(graph, "ranked")
        self._group_batches = metrics.group_batches.labels(graph)
        self._batch_edges = metrics.batch_edges.labels(graph)
        self._edges = [(kind, metrics.edges.labels(graph, kind)) for kind in CHANGES]
        # from 0 on, so that the first one is an increase
        self._refused = {
            fallback: metrics.refused.labels(graph, fallback)
            for fallback in ("static", "equal", "kept")
        }
        self._queries_refused = {
            kind: metrics.queries_refused.labels(graph, kind) for kind in ("query", "watched")
        }

    def ranked(self, batches: Sequence[RankedBatch], result: Result) -> None:
        if not batches:  # a recovery or recomputation
            return
        self._ranked.inc(len(batches))
        self._group_batches.observe(len(batches))
        for kind, counter in self._edges:
            if count := sum(getattr(batch.change, kind) for batch in batches):
                counter.inc(count)
        for batch in batches:
            self._batch_edges.observe(_edges_of(batch))
        self._metrics.stages.observe(self._graph, [batch.seconds for batch in batches])
        slowest = max(batches, key=lambda batch: batch.seconds.total)
        if slowest.seconds.total >= self._slow_seconds:
            self._log_slow(slowest, len(batches), result)
        if self._spans is not None:
            self._spans(batches, result)

    def _log_slow(self, batch: RankedBatch, group: int, result: Result) -> None:
        request = batch.context.get(request_id)
        log.warning(
            "slow batch",
            extra={
                "graph": self._graph,
                "version": batch.version,
                "edges": _edges_of(batch),
                "together": group,
                "strategy": result.strategy,
                "iterations": result.iterations,
                "touched_vertices": result.touched_vertices,
                "seconds": {
                    stage: round(spent, 6) for stage, spent in asdict(batch.seconds).items()
                },
                "request_id": request,
            },
        )

    def refused(self, fallback: str) -> None:
        self._refused[fallback].inc()

    def query_refused(self, kind: str) -> None:
        self._queries_refused[kind].inc()

    def rejected(self) -> None:
        self._metrics.batches.labels(self._graph, "rejected").inc()

    def failed(self, batches: int) -> None:
        self._metrics.batches.labels(self._graph, "failed").inc(batches)

    def analysed(self, program: str, outcome: str, seconds: float) -> None:
        self._metrics.analyses.labels(self._graph, program, outcome).observe(seconds)

    def dropped(self) -> None:
        self._metrics.forget(self._graph)


def _edges_of(batch: RankedBatch) -> int:
    return sum(getattr(batch.change, kind) for kind in _SENT)


class _GraphState(Collector):
    """The state of the graphs at the time of the scrape."""

    def __init__(self, catalog: Catalog, limit: ConcurrencyLimit) -> None:
        self._catalog = catalog
        self._limit = limit

    def describe(self) -> Iterable[Metric]:
        return []  # otherwise registration would collect once

    def collect(self) -> Iterator[Metric]:
        ready = self._catalog.not_ready is None
        graphs = self._catalog.graphs() if ready else []
        stopped = self._catalog.stopped() if ready else {}
        yield _read(GaugeMetricFamily, "liverank_ready", float(ready))
        yield _read(GaugeMetricFamily, "liverank_graphs", len(graphs))
        ended = _read(GaugeMetricFamily, "liverank_stopped")
        for name in sorted({*stopped, *(graph.name for graph in graphs)}):
            ended.add_metric([name], float(name in stopped))
        yield ended
        yield _read(GaugeMetricFamily, "liverank_receiving_bytes", self._limit.receiving)
        yield _read(GaugeMetricFamily, "liverank_exports", self._limit.exports)
        for name, value in _GRAPH_GAUGES.items():
            family = _read(GaugeMetricFamily, name)
            for graph in graphs:
                family.add_metric([graph.name], value(graph))
            yield family
        refused = _read(CounterMetricFamily, "liverank_refused")
        dropped = _read(CounterMetricFamily, "liverank_subscribers_dropped")
        memory = _read(GaugeMetricFamily, "liverank_memory_bytes")
        for graph in graphs:
            refused.add_metric([graph.name, "batch"], graph.pipeline.batches.refused)
            refused.add_metric([graph.name, "computation"], graph.pipeline.computations.refused)
            dropped.add_metric([graph.name], graph.pipeline.changes.dropped)
            for purpose, count in graph.memory.items():
                memory.add_metric([graph.name, purpose], count)
        yield refused
        yield dropped
        yield memory
        yield from _shard_families([graph for graph in graphs if graph.pipeline.shards.count])


def _shard_families(graphs: Sequence[Graph]) -> Iterator[Metric]:
    """Of graphs in shards."""
    vertices = _read(GaugeMetricFamily, "liverank_shard_vertices")
    edges = _read(GaugeMetricFamily, "liverank_shard_edges")
    recovering = _read(GaugeMetricFamily, "liverank_recovering")
    restarts = _read(CounterMetricFamily, "liverank_shard_restarts")
    for graph in graphs:
        shards = graph.pipeline.shards
        for family, counts in ((vertices, shards.vertices), (edges, shards.edges)):
            for shard, count in enumerate(counts):
                family.add_metric([graph.name, str(shard)], count)
        recovering.add_metric([graph.name], float(shards.loss is not None))
        restarts.add_metric([graph.name], shards.restarts)
    yield from (vertices, edges, recovering, restarts)


_GRAPH_GAUGES: dict[str, Callable[[Graph], float]] = {
    "liverank_committed_version": lambda graph: graph.pipeline.committed,
    "liverank_version": lambda graph: graph.pipeline.view.version,
    "liverank_revision": lambda graph: graph.pipeline.view.revision,
    "liverank_error_bound": lambda graph: graph.pipeline.view.error_bound,
    "liverank_vertices": lambda graph: graph.pipeline.view.vertices,
    "liverank_graph_edges": lambda graph: graph.pipeline.view.edges,
    "liverank_expiry_delayed": lambda graph: float(graph.pipeline.expiry_delay is not None),
    "liverank_queue_batches": lambda graph: graph.pipeline.batches.jobs,
    "liverank_queue_bytes": lambda graph: graph.pipeline.batches.bytes,
    "liverank_queue_computations": lambda graph: graph.pipeline.computations.jobs,
    "liverank_analyses": lambda graph: sum(one.is_unfinished for one in graph.all_analyses()),
    "liverank_subscribers": lambda graph: graph.pipeline.changes.subscribers,
}


class Metrics:
    """All metrics of one server; `watch` adds the state of its graphs."""

    def __init__(self, version: str, slow_batch_seconds: float) -> None:
        self._registry = CollectorRegistry()
        self._slow_batch_seconds = slow_batch_seconds
        self._batches = BatchMetrics(self._registry)
        self.http = HttpMetrics(self._registry)
        build = _updated(Gauge, "liverank_build_info", self._registry)
        build.labels(version).set(1)
        ProcessCollector(registry=self._registry)

    def observer(self, graph: str, spans: MakeSpans | None = None) -> Observer:
        """The observer for the pipeline of `graph`; spans: called with what was ranked together."""
        return GraphObserver(self._batches, graph, self._slow_batch_seconds, spans)

    def watch(self, catalog: Catalog, limit: ConcurrencyLimit) -> None:
        self._registry.register(_GraphState(catalog, limit))

    def families(self) -> Iterable[Metric]:
        """All metrics."""
        return self._registry.collect()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
