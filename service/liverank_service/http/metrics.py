"""Prometheus metrics: the response to GET /metrics.

Counters and histograms are updated by events; the state of the graphs (versions, bounds, queues,
memory) is read from the catalog at each scrape, so that it is current and has no dropped graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray
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
from liverank_service.pipeline.observer import Observer, RankedBatch, StageSeconds

log = logging.getLogger("liverank.batches")

CONTENT_TYPE = CONTENT_TYPE_LATEST
UNMATCHED = "unmatched"
"""Label for unmatched requests: method and path are chosen freely by the client."""

STAGES = tuple(stage.name for stage in fields(StageSeconds))
_SENT = ("inserted", "already_present", "reweighted", "deleted", "not_found", "lowered")
CHANGES = (*_SENT, "expired")

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_EDGES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class HttpMetrics:
    """HTTP requests and responses."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_progress = Gauge(
            "liverank_http_requests_in_progress", "HTTP requests in progress", registry=registry
        )
        self._requests = Counter(
            "liverank_http_requests",
            "HTTP responses by call and status",
            ["call", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "liverank_http_request_seconds",
            "Seconds from the head of a request to the end of its response",
            ["call"],
            buckets=SECONDS,
            registry=registry,
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
        self.batches = Counter(
            "liverank_batches",
            "Batches by outcome: ranked, rejected, failed (not committed, or not ranked)",
            ["graph", "outcome"],
            registry=registry,
        )
        self.refused = Counter(
            "liverank_ranks_refused",
            "Solves whose ranks were no distribution, by what was published: static (the ranks of"
            " a static solve), equal (equal ranks), kept (nothing: the ranks before stay)",
            ["graph", "fallback"],
            registry=registry,
        )
        self.queries_refused = Counter(
            "liverank_personalized_refused",
            "Personalized queries whose ranks were no distribution, so that they were solved again"
            " by plain sweeps: query, watched",
            ["graph", "kind"],
            registry=registry,
        )
        self.edges = Counter(
            "liverank_edges",
            f"Edges of ranked batches by change: {', '.join(CHANGES)}",
            ["graph", "change"],
            registry=registry,
        )
        self.batch_edges = Histogram(
            "liverank_batch_edges",
            "Edges per batch",
            ["graph"],
            buckets=_EDGES,
            registry=registry,
        )
        self.group_batches = Histogram(
            "liverank_group_batches",
            "Batches per ranking",
            ["graph"],
            buckets=_BATCHES,
            registry=registry,
        )
        self.analyses = Histogram(
            "liverank_analysis_seconds",
            "Seconds that the program of an analysis ran, by outcome: finished, failed, cancelled",
            ["graph", "program", "outcome"],
            buckets=SECONDS,
            registry=registry,
        )
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
    """Seconds per batch and stage, of all graphs. Counts many batches in one call, which the
    library's own histogram cannot.
    """

    def __init__(self) -> None:
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: dict[str, NDArray[np.float64]] = {}

    def observe(self, graph: str, seconds: Sequence[StageSeconds]) -> None:
        """Counts batches of one graph; called on its writer's thread."""
        values = np.array([[getattr(one, stage) for stage in STAGES] for one in seconds])
        buckets = len(SECONDS) + 1
        places = np.searchsorted(SECONDS, values) + buckets * np.arange(len(STAGES))
        counts = np.bincount(places.ravel(), minlength=buckets * len(STAGES))
        self._counts[graph] = self._counts.get(graph, 0) + counts.reshape(-1, buckets)
        self._sums[graph] = self._sums.get(graph, 0.0) + values.sum(axis=0)

    def forget(self, graph: str) -> None:
        self._counts.pop(graph, None)
        self._sums.pop(graph, None)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "liverank_stage_seconds",
            "Seconds per batch by stage, as in its receipt",
            labels=["graph", "stage"],
        )
        bounds = [*map(floatToGoString, SECONDS), "+Inf"]
        for graph, counts in list(self._counts.items()):
            sums = self._sums.get(graph)
            if sums is None:  # the graph is being dropped, or counted for the first time
                continue
            for stage, row, total in zip(STAGES, counts.cumsum(axis=1), sums, strict=True):
                buckets = list(zip(bounds, row.tolist(), strict=True))
                family.add_metric([graph, stage], buckets, float(total))
        yield family


class GraphObserver(Observer):
    """Counts what one graph's pipeline reports; logs the slowest batch of a slow group."""

    def __init__(self, metrics: BatchMetrics, graph: str, slow_seconds: float) -> None:
        self._metrics = metrics
        self._graph = graph
        self._slow_seconds = slow_seconds
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
            counter.inc(sum(getattr(batch.change, kind) for batch in batches))
        for batch in batches:
            self._batch_edges.observe(_edges_of(batch))
        self._metrics.stages.observe(self._graph, [batch.seconds for batch in batches])
        slowest = max(batches, key=lambda batch: batch.seconds.total)
        if slowest.seconds.total >= self._slow_seconds:
            self._log_slow(slowest, len(batches), result)

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
        yield GaugeMetricFamily("liverank_ready", "1 once the graphs can be used", float(ready))
        yield GaugeMetricFamily("liverank_graphs", "Number of graphs", len(graphs))
        ended = GaugeMetricFamily(
            "liverank_stopped",
            "1 for a graph that is not served, or takes no more batches",
            labels=["graph"],
        )
        for name in sorted({*stopped, *(graph.name for graph in graphs)}):
            ended.add_metric([name], float(name in stopped))
        yield ended
        yield GaugeMetricFamily(
            "liverank_receiving_bytes",
            "Bytes of request bodies being received or parsed",
            self._limit.receiving,
        )
        yield GaugeMetricFamily("liverank_exports", "Exports in progress", self._limit.exports)
        for name, help_text, value in _GRAPH_GAUGES:
            family = GaugeMetricFamily(name, help_text, labels=["graph"])
            for graph in graphs:
                family.add_metric([graph.name], value(graph))
            yield family
        refused = CounterMetricFamily(
            "liverank_refused",
            "Batches and computations refused because the queue was full",
            labels=["graph", "kind"],
        )
        dropped = CounterMetricFamily(
            "liverank_subscribers_dropped",
            "Subscribers of changes dropped because they read too slowly",
            labels=["graph"],
        )
        memory = GaugeMetricFamily(
            "liverank_memory_bytes", "Memory of a graph by purpose", labels=["graph", "purpose"]
        )
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
    each = ["graph", "shard"]
    vertices = GaugeMetricFamily("liverank_shard_vertices", "Vertices of a shard", labels=each)
    edges = GaugeMetricFamily(
        "liverank_shard_edges", "Entries of the out-lists of a shard", labels=each
    )
    recovering = GaugeMetricFamily(
        "liverank_recovering", "1 while a graph recovers from the loss of shards", labels=["graph"]
    )
    restarts = CounterMetricFamily(
        "liverank_shard_restarts", "Times that the workers were started again", labels=["graph"]
    )
    for graph in graphs:
        shards = graph.pipeline.shards
        for family, counts in ((vertices, shards.vertices), (edges, shards.edges)):
            for shard, count in enumerate(counts):
                family.add_metric([graph.name, str(shard)], count)
        recovering.add_metric([graph.name], float(shards.loss is not None))
        restarts.add_metric([graph.name], shards.restarts)
    yield from (vertices, edges, recovering, restarts)


_GRAPH_GAUGES: tuple[tuple[str, str, Callable[[Graph], float]], ...] = (
    (
        "liverank_committed_version",
        "Newest version on disk",
        lambda graph: graph.pipeline.committed,
    ),
    ("liverank_version", "Published version", lambda graph: graph.pipeline.view.version),
    ("liverank_revision", "Published revision", lambda graph: graph.pipeline.view.revision),
    (
        "liverank_error_bound",
        "Proven upper bound on the L1 error of the published ranks",
        lambda graph: graph.pipeline.view.error_bound,
    ),
    ("liverank_vertices", "Number of vertices", lambda graph: graph.pipeline.view.vertices),
    ("liverank_graph_edges", "Number of edges", lambda graph: graph.pipeline.view.edges),
    (
        "liverank_expiry_delayed",
        "1 while edges that are too old stay: the description of the graph says why",
        lambda graph: float(graph.pipeline.expiry_delay is not None),
    ),
    (
        "liverank_queue_batches",
        "Batches waiting or in progress",
        lambda graph: graph.pipeline.batches.jobs,
    ),
    (
        "liverank_queue_bytes",
        "Bytes held by these batches",
        lambda graph: graph.pipeline.batches.bytes,
    ),
    (
        "liverank_queue_computations",
        "Personalized queries and recomputations waiting or in progress",
        lambda graph: graph.pipeline.computations.jobs,
    ),
    (
        "liverank_analyses",
        "Analyses queued or running",
        lambda graph: sum(one.is_unfinished for one in graph.all_analyses()),
    ),
    (
        "liverank_subscribers",
        "Subscribers of changes",
        lambda graph: graph.pipeline.changes.subscribers,
    ),
)


class Metrics:
    """All metrics of one server; `watch` adds the state of its graphs."""

    def __init__(self, version: str, slow_batch_seconds: float) -> None:
        self._registry = CollectorRegistry()
        self._slow_batch_seconds = slow_batch_seconds
        self._batches = BatchMetrics(self._registry)
        self.http = HttpMetrics(self._registry)
        build = Gauge("liverank_build_info", "Always 1", ["version"], registry=self._registry)
        build.labels(version).set(1)
        ProcessCollector(registry=self._registry)

    def observer(self, graph: str) -> Observer:
        """The observer for the pipeline of `graph`."""
        return GraphObserver(self._batches, graph, self._slow_batch_seconds)

    def watch(self, catalog: Catalog, limit: ConcurrencyLimit) -> None:
        self._registry.register(_GraphState(catalog, limit))

    def families(self) -> Iterable[Metric]:
        """All metrics."""
        return self._registry.collect()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
