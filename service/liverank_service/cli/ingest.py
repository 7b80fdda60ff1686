"""Edge lists sent to a server in batches: `liverank load` and `liverank replay`."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liverank.client.responses import GraphOptions
from liverank.errors import ServerError
from liverank_service.cli import CommandError
from liverank_service.formats.edge_list import EdgeList
from liverank_service.vertex_keys import kind_of

if TYPE_CHECKING:
    from liverank.client import Batch, Client, Receipt

LOAD_BATCH_EDGES = 1_000_000
"""16 MB of integer keys: below the server's limits, but enough for fixed costs not to matter."""

WEIGHT, TIME = "weight", "time"
"""The columns of weights and times in batches."""

INITIAL_SHARE = 0.9
"""Of a temporal edge list, loaded before the rest is replayed (Sahu, DF-P PageRank, 5.1.4)."""


@dataclass(frozen=True)
class Replay:
    """An edge list as an initial graph and the batches that change it."""

    initial: EdgeList
    batches: list[EdgeList]


@dataclass(frozen=True)
class ReplayedBatch:
    """One batch of a replay: its number from 1, the seconds to its response, and the receipt.

    superseded  events that a later one on the same edge replaces
    """

    number: int
    latency: float
    receipt: Receipt
    superseded: int = 0

    @property
    def not_new(self) -> dict[str, int]:
        """The numbers of edges that were neither inserted nor deleted."""
        return _not_new(self.receipt, self.superseded)


def window(edges: EdgeList, start: int, stop: int) -> EdgeList:
    """Edges start … stop-1, without isolated vertices."""
    return dataclasses.replace(edges.rows(slice(start, stop)), vertices=None)


def last_operations(edges: EdgeList) -> EdgeList:
    """Only the last operation on each edge.

    A batch deletes before it inserts, but events are in order of time; with one event per edge the
    result is the same.
    """
    if edges.operations is None:
        return edges
    count = len(edges)
    codes = pa.concat_arrays([edges.sources, edges.targets]).dictionary_encode()
    ids = codes.indices.to_numpy().astype(np.int64)
    ends = ids[:count], ids[count:]
    if not edges.directed:
        ends = np.minimum(*ends), np.maximum(*ends)
    pairs = ends[0] * len(codes.dictionary) + ends[1]
    from_end = np.unique(pairs[::-1], return_index=True)[1]
    return edges.rows(np.sort(count - 1 - from_end))


def final_graph(edges: EdgeList) -> EdgeList:
    """The edges that are present after all events; the list itself if it has no operations.

    A vertex that has lost all its edges remains, as in the service.
    """
    reduced = last_operations(edges)
    if reduced.operations is None:
        return reduced
    return dataclasses.replace(
        reduced.rows(np.flatnonzero(reduced.operations)),
        operations=None,
        vertices=pa.concat_arrays([reduced.sources, reduced.targets]),
    )


def plan_replay(edges: EdgeList, batch_size: int | None, batches: int) -> Replay:
    """The list as a replay, in order of time.

    Insertions only: the first 90 %, then up to `batches` windows of `batch_size` edges. With
    operations: the events of the first time, then a batch for each later time, or windows of
    `batch_size` events. Raises CommandError for a list without times, and for a missing size.
    """
    if edges.times is None:
        raise CommandError(
            "the file has no times, so there is no order to replay it in; try `liverank load`"
        )
    ordered = edges.by_time()
    times = ordered.times
    assert times is not None
    count = len(times)
    if ordered.operations is None:
        if batch_size is None:
            raise CommandError(
                "a file of insertions needs --batch-size, the number of edges in a batch"
            )
        start = int(count * INITIAL_SHARE)
        stop = min(count, start + batches * batch_size)
        bounds = list(range(start, stop, batch_size))
    else:
        changes = np.flatnonzero(np.diff(times)) + 1
        start = int(changes[0]) if len(changes) else count
        stop = count
        bounds = changes.tolist() if batch_size is None else list(range(start, stop, batch_size))
        if len(bounds) > batches:
            stop = bounds[batches]
            bounds = bounds[:batches]
    windows = [
        window(ordered, first, last)
        for first, last in zip(bounds, [*bounds[1:], stop], strict=True)
    ]
    initial = dataclasses.replace(window(ordered, 0, start), vertices=ordered.vertices)
    return Replay(initial, windows)


def prepare_graph(
    client: Client,
    graph: str,
    edges: EdgeList,
    options: Mapping[str, Any] | None = None,
    timed: bool = False,
) -> GraphOptions:
    """The options of the graph. A new graph is created with the file's kind of keys and these
    options, and weighted if the edges are, and a notice on stderr says so.

    timed  whether the times of the edges are to be sent

    Raises ServerError if the graph has other options, CommandError if it does not accept the keys,
    the weights or the times of the edges.
    """
    keys = kind_of(edges.sources)
    try:
        information = client.graph(graph)
    except ServerError as error:
        if error.status != 404:
            raise
        if timed and not GraphOptions(**(options or {})).timed:
            raise CommandError(
                f"graph {graph!r} does not exist: with --half-life or --window a graph is created "
                "whose edges have times, without --time they are not sent"
            ) from None
        weighted = None if edges.weights is None else True
        information = client.create(graph, keys=keys, weighted=weighted, **(options or {}))
        print(f"note: graph {graph!r} did not exist and was created", file=sys.stderr)
    else:
        if options:
            client.create(graph, **options)
    if edges.weights is not None and not information.options.weighted:
        raise CommandError(
            f"graph {graph!r} is unweighted; --graph NAME creates a weighted graph, without "
            "--weights the edges have no weights"
        )
    if timed and not information.options.timed:
        raise CommandError(
            f"the edges of graph {graph!r} have no times; --graph NAME with --half-life or "
            "--window creates a graph of edges that have, without --time they are not sent"
        )
    if information.options.keys == "integer" and keys == "string":
        raise CommandError(f"graph {graph!r} has integer keys, but the file has string keys")
    return information.options


def as_in_graph(edges: EdgeList, graph: GraphOptions) -> EdgeList:
    """The same edges as a graph has them: directed or not, and with its kind of keys. Integers are
    converted to strings if needed.
    """
    edges = dataclasses.replace(edges, directed=graph.directed)
    if graph.keys == "integer" or not pa.types.is_integer(edges.sources.type):
        return edges
    return dataclasses.replace(
        edges,
        sources=pc.cast(edges.sources, pa.string()),
        targets=pc.cast(edges.targets, pa.string()),
        vertices=None if edges.vertices is None else pc.cast(edges.vertices, pa.string()),
    )


@dataclass(frozen=True)
class Loaded:
    """What a load did, over all its batches.

    superseded      events that a later one on the same edge replaces
    unused_columns  columns of the file that were not sent
    """

    edges: int
    batches: int
    inserted: int
    already_present: int
    reweighted: int
    deleted: int
    not_found: int
    expired: int
    new_vertices: int
    superseded: int
    unused_columns: tuple[str, ...]

    @property
    def not_new(self) -> dict[str, int]:
        """The numbers of edges that were neither inserted nor deleted."""
        return _not_new(self, self.superseded)

    @classmethod
    def of(cls, edges: EdgeList, receipts: list[Receipt], timed: bool) -> Loaded:
        names = ("inserted", "already_present", "reweighted", "deleted", "not_found")
        sums = {
            name: sum(getattr(receipt, name) for receipt in receipts)
            for name in (*names, "expired", "new_vertices")
        }
        operations = sum(sums[name] for name in names)
        return cls(
            edges=len(edges),
            batches=len(receipts),
            superseded=len(edges) - operations,
            unused_columns=edges.unread if timed else unused_columns(edges),
            **sums,
        )


def _not_new(counts: Receipt | Loaded, superseded: int) -> dict[str, int]:
    names = ("already_present", "reweighted", "not_found")
    return {**{name: getattr(counts, name) for name in names}, "superseded": superseded}


def unused_columns(edges: EdgeList) -> tuple[str, ...]:
    """The columns of the file that do not count where its edges are all one graph."""
    has_times = edges.times is not None and edges.operations is None
    return (*edges.unread, "times") if has_times else edges.unread


def load(
    client: Client,
    graph: str,
    edges: EdgeList,
    sent: Callable[[int], object],
    timed: bool = False,
) -> tuple[Receipt, Loaded]:
    """Sends the whole list; returns the receipt of the last batch, whose ranks are for all of it,
    and the counts of all batches.

    All other batches are only applied, each while the next one is sent. `sent` is called with the
    number of edges of each batch when the next one is to be sent; `timed`: whether times are sent.

    Raises ServerError if a batch is rejected.
    """

    from liverank.client import Batch

    def batches() -> Iterator[Batch]:
        names = edges.vertices if edges.vertices is not None else edges.sources[:0]
        for start in range(0, len(names), LOAD_BATCH_EDGES):
            yield Batch(vertices=names[start : start + LOAD_BATCH_EDGES])
        for start in range(0, len(edges), LOAD_BATCH_EDGES):
            part = window(edges, start, start + LOAD_BATCH_EDGES)
            yield batch_of(part, timed)
            sent(len(part))

    receipts = client.send_all(graph, batches(), **_columns(edges, timed))
    return receipts[-1], Loaded.of(edges, receipts, timed)


def replay(
    client: Client,
    graph: str,
    batches: Iterable[EdgeList],
    sending: Mapping[str, Any],
    timed: bool = False,
) -> Iterator[ReplayedBatch]:
    """Sends batches in sequence, each after the ranks of the previous one are published.

    sending  options of each batch, as Client.send takes them
    timed    whether times are sent
    """
    for number, part in enumerate(batches, start=1):
        batch, columns = batch_of(part, timed), _columns(part, timed)
        started = time.perf_counter()
        receipt = client.send(graph, batch.insert, batch.delete, **columns, **sending)
        latency = time.perf_counter() - started
        superseded = len(part) - len(last_operations(part))
        yield ReplayedBatch(number, latency, receipt, superseded)


def _columns(edges: EdgeList, timed: bool) -> dict[str, Any]:
    """The names of columns, as Client.send takes them."""
    return {"weight": None if edges.weights is None else WEIGHT, "time": TIME if timed else None}


def batch_of(edges: EdgeList, timed: bool = False) -> Batch:
    """A batch with the last operation on each edge; timed: with times."""
    from liverank.client import Batch

    reduced = last_operations(edges)
    columns = pa.table({"source": reduced.sources, "target": reduced.targets})
    if reduced.weights is not None:
        columns = columns.append_column(WEIGHT, pa.array(reduced.weights))
    if timed:
        columns = columns.append_column(TIME, pa.array(reduced.times))
    if reduced.operations is None:
        return Batch(columns)
    inserts = pa.array(reduced.operations)
    deleted = columns.filter(pc.invert(inserts)).select(["source", "target"])
    return Batch(columns.filter(inserts), deleted)
