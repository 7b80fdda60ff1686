"""Generated graphs: files that service.formats.edge_files reads, and batches for a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from gpu import EdgeBatch, generate
from service.cli.errors import CommandError
from service.formats.edge_list import EdgeList

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
PIECE_EDGES = 1 << 18


def write_edges(path: Path, draw: Callable[[], Edges]) -> int:
    """Draws a graph and writes its edges in the format of the path's suffix; returns their number.

    `.txt` (two columns separated by a tab), `.csv` (with a header), `.parquet`, `.arrow`; text also
    compressed: `.gz`, `.zst`, `.bz2`. Raises CommandError for an unusable path before drawing, and
    OSError if writing fails; an incomplete file is removed.
    """
    _check_path(path)
    sources, targets = draw()
    table = pa.table({"source": sources, "target": targets})
    kind, _ = _suffixes(path)
    with _removed_if_incomplete(path):
        if kind == ".parquet":
            pyarrow.parquet.write_table(table, path, compression="zstd")
        elif kind == ".arrow":
            pyarrow.feather.write_feather(table, str(path), compression="zstd")
        else:
            # Ctrl-C takes effect between pieces
            pieces = table.to_batches(max_chunksize=PIECE_EDGES)
            _write_text(path, table.schema, pieces, "," if kind == ".csv" else "\t", kind == ".csv")
    return len(sources)


def write_events(path: Path, batches: Iterable[EdgeBatch]) -> tuple[int, int]:
    """Writes a stream as lines `batch +|- source target`, as `liverank replay` reads them; returns
    the numbers of vertices and of events.

    The path ends in `.txt`, also compressed. Raises as `write_edges`.
    """
    _check_path(path, events=True)
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

    with _removed_if_incomplete(path):
        _write_text(path, schema, pieces(), " ", header=False)
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


@contextmanager
def _removed_if_incomplete(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # An incomplete file would be read as a smaller graph. Devices are not removed.
        if path.is_file():
            path.unlink()
        raise


def _write_text(
    path: Path, schema: pa.Schema, pieces: Iterable[pa.RecordBatch], delimiter: str, header: bool
) -> None:
    options = pyarrow.csv.WriteOptions(
        include_header=header, delimiter=delimiter, quoting_style="none"
    )
    with (
        pa.output_stream(str(path), compression=_suffixes(path)[1]) as stream,
        pyarrow.csv.CSVWriter(stream, schema, write_options=options) as writer,
    ):
        for piece in pieces:
            writer.write_batch(piece)


def _check_path(path: Path, events: bool = False) -> None:
    """Raises CommandError for a path that `write_edges` or, if `events`, `write_events` cannot
    write.
    """
    kind, compression = _suffixes(path)
    if events and kind != ".txt":
        raise CommandError(f"{path}: the name must end in .txt, .txt.gz, .txt.zst or .txt.bz2")
    if kind not in (".txt", ".csv", ".parquet", ".arrow"):
        raise CommandError(
            f"{path}: the name must end in .txt, .csv, .parquet or .arrow; "
            ".txt and .csv may be compressed: .gz, .zst or .bz2"
        )
    if compression and kind in (".parquet", ".arrow"):
        raise CommandError(f"{path}: {kind} files are compressed internally; omit {path.suffix}")
    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no directory {path.parent}")


def _suffixes(path: Path) -> tuple[str, str | None]:
    """The suffix of the format, and the compression."""
    compression = COMPRESSIONS.get(path.suffix)
    return (path.with_suffix("").suffix if compression else path.suffix), compression
