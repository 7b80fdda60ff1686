"""Batches of edges, and the bodies in which they are sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from liverank.client.call import JSON, Call, T, decoder, given, json_body, path_of
from liverank.client.responses import Key, Pair, Rank, Strategy
from liverank.edges import EdgeColumns, read_edges
from liverank.errors import InvalidInput

if TYPE_CHECKING:
    pass

Edges = Iterable[Pair] | Any
"""Pairs of keys, or what liverank.edges reads."""

ARROW_STREAM = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Batch:
    """Edges to delete, then edges to insert, and vertices to add: see `Client.send`."""

    insert: Edges = ()
    delete: Edges = ()
    vertices: Iterable[Key] = ()
    strategy: Strategy | None = None


def new_key() -> str:
    """An idempotency key that no other batch has."""
    return uuid.uuid4().hex


def batch_call(
    graph: str,
    batch: Batch,
    source: str | None,
    target: str | None,
    wait: str,
    key: str | None,
    result: type[T],
    rank: Rank = "now",
) -> Call[T]:
    """Sends the batch; `wait` is `ranked` or `durable`."""
    body, content_type = batch_body(batch, source, target)
    return Call(
        method="POST",
        path=path_of("graphs", graph, "batches"),
        query=given(wait=wait, rank=None if rank == "now" else rank, strategy=batch.strategy),
        body=body,
        headers={"Content-Type": content_type, "Idempotency-Key": key or new_key()},
        parse=decoder(result),
        repeatable=True,
    )


def batch_body(batch: Batch, source: str | None, target: str | None) -> tuple[bytes, str]:
    """The body and its content type: an Arrow stream if there are only columns of edges.

    Raises InvalidInput.
    """
    vertices = keys_of(batch.vertices)
    insert = read_edges(batch.insert, source, target)
    delete = read_edges(batch.delete, source, target)
    vertices = [*vertices, *insert.isolated()]
    if not vertices and (insert.is_arrow or delete.is_arrow):
        return _arrow_stream(insert, delete), ARROW_STREAM
    document = {"insert": insert.pairs(), "delete": delete.pairs(), "vertices": vertices}
    return json_body(document), JSON


def keys_of(column: Iterable[Key]) -> list[Key]:
    """The keys of a list, a Series, or an Arrow or NumPy array."""
    if isinstance(column, str | bytes):
        raise InvalidInput("vertices", f"expected several keys, got the one key {column!r}")
    for name in ("to_pylist", "to_list", "tolist"):  # Arrow, Polars, pandas and NumPy
        if hasattr(column, name):
            keys: list[Key] = getattr(column, name)()
            return keys
    return list(column)


def _arrow_stream(insert: EdgeColumns, delete: EdgeColumns) -> bytes:
    import pyarrow as pa

    tables = []
    for operation, edges in (("insert", insert), ("delete", delete)):
        if len(edges):
            table = edges.table()
            if len(delete):
                names = pa.repeat(operation, len(table))
                table = table.append_column("operation", names)
            tables.append(table)
    try:
        table = pa.concat_tables(tables or [insert.table()], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput("delete", f"expected the type of the keys in insert: {error}") from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body
