"""Batches of edges, and the bodies in which they are sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as changed
from itertools import compress
from operator import ne
from typing import Any, Unpack

import msgspec

from liverank.choices import Form, Key, OnConflict, Pair, Rank, Strategy, Target, narrowed
from liverank.client.arrow import ARROW_STREAM, arrow_body
from liverank.client.call import (
    BYTES,
    JSON,
    Call,
    T,
    decoder,
    json_body,
    operation,
    path_of,
    refuse_bytes,
)
from liverank.client.responses import Accepted, Outcome, Pending, Receipt, Rejected
from liverank.client.sources import SourceRange, range_query
from liverank.edges import Columns, EdgeColumns, as_list, read_edges
from liverank.errors import InvalidInput
from liverank.options import BatchKeywords, BatchOptions, SolveKeywords, given

Edges = Iterable[Pair] | Iterable[tuple[Key, Key, float]] | Any
"""Pairs of keys, triples with weights, or what liverank.edges reads."""

Body = tuple[bytes, str]
"""Of a request, with its content type."""

Lists = Mapping[Key, Iterable[Key] | Iterable[Sequence[Any]]]
"""The targets of vertices, each a key, (target, weight) or (target, weight, time)."""


@dataclass(frozen=True, slots=True)
class SetChange:
    """Vertices to remove from a set, and then to add to it."""

    add: Sequence[Key] = ()
    remove: Sequence[Key] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Vertices to remove, then edges to delete, edges to insert, vertices to add, changes of sets
    of vertices by their names, and new out-lists of vertices: see `Client.send`.
    """

    insert: Edges = ()
    delete: Edges = ()
    vertices: Iterable[Key] = ()
    strategy: Strategy | None = None
    on_conflict: OnConflict | None = None
    form: Form | None = None
    trace: bool | None = None
    sets: Mapping[str, SetChange] = field(default_factory=dict)
    directed: bool | None = None
    remove: Iterable[Key] = ()
    source_range: SourceRange | None = None
    replace: Lists = field(default_factory=dict)


def new_key() -> str:
    """An idempotency key that no other batch has."""
    return uuid.uuid4().hex


def batch_call(
    graph: str,
    batch: Batch,
    body: Body,
    wait: str,
    key: str | None,
    result: type[T],
    **options: Any,
) -> Call[T]:
    """Sends the batch; `wait` is `ranked` or `durable`.

    body     of `batch_body`
    options  of BatchOptions, beside those that the batch has itself
    """
    content, content_type = body
    own = {name: getattr(batch, name, None) for name in BatchOptions.__struct_fields__}
    if options.get("rank") == "now":  # servers before it do not know it
        del options["rank"]
    return Call(
        method="POST",
        path=path_of("graphs", graph, "batches"),
        query=given(**own | options | {"wait": wait}) | range_query(batch.source_range),
        body=content,
        headers={"Content-Type": content_type, "Idempotency-Key": key or new_key()},
        parse=decoder(result),
        repeatable=True,
    )


def batch_body(batch: Batch, columns: Columns, deleted: Columns | None = None) -> Body:
    """The body and its content type: an Arrow stream if there are only columns of edges.

    deleted  the columns of deletions; None: as `columns`, without weights and times

    Raises InvalidInput.
    """
    vertices, remove = keys_of(batch.vertices), keys_of(batch.remove, "remove")
    insert = _directed(read_edges(batch.insert, columns), batch.directed)
    deleted = deleted or columns._replace(weight=None, time=None)
    delete = _directed(read_edges(batch.delete, deleted), batch.directed)
    if batch.on_conflict != "add" and (delete.weights is not None or delete.times is not None):
        message = "expected pairs: a deletion has a weight only with on_conflict='add'"
        raise InvalidInput("delete", message)
    if delete.times is not None and delete.weights is None:
        raise InvalidInput("delete", "expected a weight beside the time of a deletion")
    for name, edges in (("insert", insert), ("delete", delete)):
        for ends in (edges.sources, edges.targets):
            if isinstance(ends, list):
                refuse_bytes(ends, name)
    vertices = [*vertices, *insert.isolated()]
    named = vertices or remove or batch.sets or batch.replace
    # in a table, edges to insert and to delete have the same columns
    alike = not len(insert) or not (
        (delete.weights is not None and insert.weights is None)
        or (delete.times is not None and insert.times is None)
    )
    if not named and alike and (insert.is_arrow or delete.is_arrow):
        return _arrow_stream(insert, delete), ARROW_STREAM
    document: dict[str, Any] = {
        "vertices": vertices,
        "remove": remove,
        "sets": dict(batch.sets),
    }
    if batch.replace:
        lists = {vertex: keys_of(targets, "replace") for vertex, targets in batch.replace.items()}
        document["replace"] = lists
    refuse_bytes(document)
    if batch.replace:  # the names of members are strings, of integers too
        document["replace"] = {str(vertex): targets for vertex, targets in lists.items()}
    document = {"insert": insert.rows(), "delete": delete.rows(), **document}
    return json_body(document), JSON


def _directed(edges: EdgeColumns, directed: bool | None) -> EdgeColumns:
    """The edges as the graph on the server takes them: those of an undirected graph in both
    directions if it is directed. Raises InvalidInput.
    """
    if edges.directed or directed is False:
        return edges
    if directed is None:
        message = (
            "expected True or False, as the graph on the server is: the one sent is undirected"
        )
        raise InvalidInput("directed", message)
    sources, targets, weights = edges.sources, edges.targets, edges.weights
    different = list(map(ne, sources, targets))
    return changed(
        edges,
        sources=[*sources, *compress(targets, different)],
        targets=[*targets, *compress(sources, different)],
        weights=None if weights is None else [*weights, *compress(weights, different)],
    )


def keys_of(column: Iterable[Any], field: str = "vertices") -> list[Any]:
    """The keys of a list, a Series, or an Arrow or NumPy array, or the targets of `Lists`."""
    if isinstance(column, (str, *BYTES)):
        raise InvalidInput(field, f"expected several keys, got the one key {column!r}")
    return as_list(column)


def _arrow_stream(insert: EdgeColumns, delete: EdgeColumns) -> bytes:
    import pyarrow as pa

    tables = []
    for name, edges in (("insert", insert), ("delete", delete)):
        if len(edges):
            table = edges.table()
            if len(delete):
                table = table.append_column("operation", pa.repeat(name, len(table)))
            tables.append(table)
    try:
        table = pa.concat_tables(tables or [insert.table()], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput("delete", f"expected the type of the keys in insert: {error}") from error
    for place, name in enumerate(("source", "target")):
        table = table.set_column(place, name, narrowed(table[name]))
    return arrow_body(table)


class SentKeywords(BatchKeywords, total=False):
    """Of every batch: see `send`."""

    source_range: SourceRange | None
    key: str | None


class ReplacedKeywords(SentKeywords, total=False):
    """Of a batch with weights."""

    on_conflict: OnConflict | None


class EdgeKeywords(ReplacedKeywords, total=False):
    """Of a batch with edges."""

    source: str | None
    target: str | None
    weight: str | None
    time: str | None
    directed: bool | None


class ChangedKeywords(EdgeKeywords, total=False):
    """Of a batch of all kinds of changes."""

    remove: Iterable[Key] | None
    sets: Mapping[str, SetChange] | None
    replace: Lists | None


class RecomputeKeywords(SolveKeywords, total=False):
    """Of a solve without a batch."""

    target: Target | None
    k: int | None


class AppendedKeywords(ChangedKeywords, total=False):
    """Of a batch that is only written to disk."""

    rank: Rank | None


def _sent(graph: str, wait: str, result: type[T], **members: Any) -> Call[T]:
    """Sends a batch: members of Batch, and keywords of calls. Beside edges to insert, the columns
    of weights and times are theirs alone.
    """
    columns = Columns(*(members.pop(name, None) for name in Columns._fields))
    deleted = None if "insert" in members else columns
    key = members.pop("key", None)
    own = {each.name: members.pop(each.name, None) for each in fields(Batch)}
    batch = Batch(**given(**own))
    body = batch_body(batch, columns, deleted)
    return batch_call(graph, batch, body, wait, key, result, **members)


class BatchCalls:
    """A part of Calls."""

    @operation
    def send(
        self,
        graph: str,
        insert: Edges = (),
        delete: Edges = (),
        vertices: Iterable[Key] = (),
        **options: Unpack[ChangedKeywords],
    ) -> Call[Receipt]:
        """Sends a batch and waits for its ranks. The server removes vertices, deletes, inserts,
        then adds the vertices; all or nothing.

        insert, delete  pairs, or anything that liverank.edges reads: frames, sparse matrices,
                        graphs. Of `delete`, weights are read of (source, target, weight) alone: see
                        `delete`
        source, target  the columns of frames; None: columns of these names, or the only two
        weight          of a weighted graph: the column, the attribute of edges of a graph, or
                        `data` for the entries of a matrix
        time            of a graph whose edges have times: the column of a frame, Unix seconds or
                        timestamps; None: when the server receives the batch
        directed        whether the graph on the server is, which an undirected graph of NetworkX
                        or igraph needs: a directed one takes its edges in both directions
        on_conflict     `replace` the weight of an edge that is present or repeated, or `add` to it;
                        None: replace
        remove          vertices that go with their edges; one that is also inserted is a new one
        sets            changes of sets of vertices by their names: see `put_set`
        replace         new out-lists of vertices: see `replace`
        strategy, form  None: the graph's
        trace           whether the receipt says what each iteration did
        source_range    the messages of an external source that the batch has: see SourceRange
        key             the idempotency key: a batch that is sent twice with it is applied once;
                        None: a new one
        """
        changes = {"insert": insert, "delete": delete, "vertices": vertices}
        return _sent(graph, "ranked", Receipt, **changes, **options)

    @operation
    def append(
        self,
        graph: str,
        insert: Edges = (),
        delete: Edges = (),
        vertices: Iterable[Key] = (),
        **options: Unpack[AppendedKeywords],
    ) -> Call[Accepted]:
        """Like `send`, but returns once the batch is on disk. `batch` has the receipt later. With
        `rank="later"`, the next batch without it ranks this one too.
        """
        changes = {"insert": insert, "delete": delete, "vertices": vertices}
        return _sent(graph, "durable", Accepted, **changes, **options)

    @operation
    def insert(self, graph: str, edges: Edges, **options: Unpack[EdgeKeywords]) -> Call[Receipt]:
        """Sends a batch that inserts the edges, and waits for its ranks: see `send`."""
        return _sent(graph, "ranked", Receipt, insert=edges, **options)

    @operation
    def delete(self, graph: str, edges: Edges, **options: Unpack[EdgeKeywords]) -> Call[Receipt]:
        """Sends a batch that deletes the edges, and waits for its ranks: see `send`. With
        on_conflict `add`, an edge with a weight loses this much of its own, and leaves at 0; where
        weights decay, `time` is that of the weight. `Receipt.lowered` counts those that
        stay.
        """
        return _sent(graph, "ranked", Receipt, delete=edges, **options)

    @operation
    def remove(
        self, graph: str, vertices: Iterable[Key], **options: Unpack[SentKeywords]
    ) -> Call[Receipt]:
        """Sends a batch that removes vertices and their edges, and waits for its ranks: see
        `send`.
        """
        return _sent(graph, "ranked", Receipt, remove=vertices, **options)

    @operation
    def replace(
        self, graph: str, lists: Lists, **options: Unpack[ReplacedKeywords]
    ) -> Call[Receipt]:
        """Sends a batch that replaces the out-lists of vertices (in an undirected graph all their
        edges), and waits for its ranks: see `send`. What goes is counted as deleted, what stays as
        already present or reweighted.

        lists  the targets of each vertex: keys, (target, weight) or (target, weight, time)
        """
        return _sent(graph, "ranked", Receipt, replace=lists, **options)

    @operation
    def batch(self, graph: str, version: int) -> Call[Outcome]:
        """The outcome of a batch: its receipt, or that it is pending or rejected."""
        path = path_of("graphs", graph, "batches", version)
        return Call(method="GET", path=path, parse=_outcome, repeatable=True)

    @operation
    def recompute(self, graph: str, **options: Unpack[RecomputeKeywords]) -> Call[Receipt]:
        """Ranks the graph again, with `static` unless another strategy is given; its version does
        not change. With the target `settled-top-k` it ranks with `auto`, and goes on until the
        first k places (10) are proven: `Receipt.settled` says how many are. With `settled-set`, it
        goes on until it is proven which vertices have them, in any order: `Receipt.settled_set`.
        `TopRanks.ties` then names those that are proven to have equal ranks.
        """
        path = path_of("graphs", graph, "recompute")
        return Call(method="POST", path=path, query=given(**options), parse=decoder(Receipt))


def _outcome(body: bytes) -> Outcome:
    document = msgspec.json.decode(body)
    kinds: dict[str | None, type[Outcome]] = {None: Receipt, "pending": Pending}
    return msgspec.convert(document, kinds.get(document.get("status"), Rejected))
