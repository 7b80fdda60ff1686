"""Generated graphs: files that liverank_service.formats.edge_files reads, and batches for a
server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, generate
from liverank_service.cli.errors import CommandError
from liverank_service.cli.table_files import (
    check_path,
    suffixes,
    write_table,
    write_text,
)
from liverank_service.formats.edge_list import EdgeList

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]

KINDS = (".txt", ".csv", ".parquet", ".arrow")
"""Files that liverank_service.formats.edge_files reads."""


def write_edges(path: Path, draw: Callable[[], Edges]) -> int:
    """Draws a graph and writes its edges in the format of the path's suffix; returns their number.

    `.txt` (two columns separated by a tab), `.csv` (with a header), `.parquet`, `.arrow`; text also
    compressed: `.gz`, `.zst`, `.bz2`. Raises CommandError for an unusable path before drawing, and
    OSError if writing fails; a file there is replaced once it is complete.
    """
    check_path(path, KINDS)
    sources, targets = draw()
    table = pa.table({"source": sources, "target": targets})
    write_table(path, table)
    return len(sources)


def write_events(path: Path, batches: Iterable[EdgeBatch]) -> tuple[int, int]:
    """Writes a stream as lines `batch +|- source target`, as `liverank replay` reads them; returns
    the numbers of vertices and of events.

    The path ends in `.txt`, also compressed. Raises as `write_edges`.
    """
    if suffixes(path)[0] != ".txt":
        raise CommandError(f"{path}: the name must end in .txt, .txt.gz, .txt.zst or .txt.bz2")
    check_path(path, KINDS)
    schema = pa.schema(
        [("batch", pa.int64()), ("operation", pa.string())]
        + [(name, pa.int64()) for name in ("source", "target")]
    )
    vertices = events = 0

    def pieces() -> Iterator[pa.RecordBatch]:
        nonlocal vertices, events
        for number, batch in enumerate(batches):
            vertices = max(vertices, batch.vertices)
            for sign, sources, targets in (
                ("-", batch.delete_sources, batch.delete_targets),
                ("+", batch.insert_sources, batch.insert_targets),
            ):
                count = len(sources)
                events += count
                columns = [np.full(count, number), [sign] * count, sources, targets]
                yield pa.record_batch([pa.array(column) for column in columns], schema=schema)

    write_text(path, schema, pieces(), " ", header=False)
    return vertices, events


def arrivals(graph: generate.PreferentialAttachment, size: int) -> tuple[int, Iterator[EdgeList]]:
    """The graph as insertions: the number of batches, and the batches, in which `size` vertices
    each arrive in order. Batches without edges are left out.
    """
    firsts = range(0, graph.vertices, size)
    bounds = [(first, min(first + size, graph.vertices)) for first in firsts]
    bounds = [ends for ends in bounds if len(set(map(graph.edges_before, ends))) == 2]
    lists = (graph.edge_list(first, last) for first, last in bounds)
    return len(bounds), (
        EdgeList(pa.array(sources), pa.array(targets)) for sources, targets in lists
    )
