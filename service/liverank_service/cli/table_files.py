"""Tables written to files, in the format and compression of their suffixes. Generated graphs: files
that liverank_service.formats.edge_files reads, and batches for a server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from liverank.files import whole_file
from liverank_gpu import EdgeBatch, generate
from liverank_service.cli import CommandError
from liverank_service.formats.edge_list import EdgeList
from liverank_service.formats.encode import json_lines
from liverank_service.formats.values import listed

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
STANDARD = Path("-")
"""Stdin or stdout."""

BINARY = (".parquet", ".arrow")
PIECE_ROWS = 1 << 18


def check_path(path: Path, kinds: Iterable[str], format: str | None = None) -> None:  # noqa: A002
    """Raises CommandError for a path that cannot be written, or does not end in one of `kinds`.

    format  in place of the suffix; the path ``-`` is stdout, as csv
    """
    kind, compression = form_of(path, format)
    if kind not in kinds:
        *others, last = kinds
        text = [each for each in kinds if each not in BINARY]
        raise CommandError(
            f"{path}: the name must end in {', '.join(others)} or {last}; "
            f"{listed(text)} may be compressed: .gz, .zst or .bz2"
        )
    if compression and kind in BINARY:
        raise CommandError(f"{path}: {kind} files are compressed internally; omit {path.suffix}")
    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no directory {path.parent}")
    if path != STANDARD and path.is_dir():
        raise CommandError(f"{path}: expected the name of a file, got that of a directory")


def read_weights(path: Path) -> dict[str, float]:
    """The weight of each vertex, as text: of the second column, or 1; those of repeats add up.
    Raises CommandError.
    """
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        elif path.suffix == ".arrow":
            table = pyarrow.feather.read_table(path)
        else:
            names = pyarrow.csv.open_csv(path).schema.names
            as_text = pyarrow.csv.ConvertOptions(column_types={names[0]: pa.string()})
            table = pyarrow.csv.read_csv(path, convert_options=as_text)
        vertices = table.column(0).cast(pa.string()).to_pylist()
        weights = [1.0] * len(table)
        if table.num_columns > 1:
            weights = table.column(1).cast(pa.float64()).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise CommandError(f"{path}: {error}") from None
    if None in vertices or None in weights:
        raise CommandError(f"{path}: expected a vertex and a weight in each row")
    summed = dict.fromkeys(vertices, 0.0)
    for vertex, weight in zip(vertices, weights, strict=True):
        summed[vertex] += weight
    return summed


def write_table(path: Path, table: pa.Table, format: str | None = None) -> None:  # noqa: A002
    """Writes `.txt` (columns separated by a tab), `.csv` (with a header), `.ndjson`, `.parquet` or
    `.arrow`. Raises OSError if writing fails; see `written`.
    """
    kind, compression = form_of(path, format)
    if kind == ".parquet":
        with written(path, None) as stream:
            pyarrow.parquet.write_table(table, stream, compression="zstd")
    elif kind == ".arrow":
        with written(path, None) as stream:
            pyarrow.feather.write_feather(table, stream, compression="zstd")
    elif kind == ".ndjson":
        with written(path, compression) as stream:
            for piece in table.to_batches(max_chunksize=PIECE_ROWS):
                stream.write(json_lines(piece))
    else:
        # Ctrl-C takes effect between pieces
        pieces = table.to_batches(max_chunksize=PIECE_ROWS)
        is_csv = kind == ".csv"
        has_texts = any(pa.types.is_string(column.type) for column in table.schema)
        quoting: Literal["needed", "none"] = "needed" if is_csv and has_texts else "none"
        write_text(path, table.schema, pieces, "," if is_csv else "\t", is_csv, quoting)


def write_text(
    path: Path,
    schema: pa.Schema,
    pieces: Iterable[pa.RecordBatch],
    delimiter: str,
    header: bool,
    quoting: Literal["needed", "none"] = "none",
) -> None:
    """Raises CommandError for a value that needs quotes where there are none."""
    options = pyarrow.csv.WriteOptions(
        include_header=header, delimiter=delimiter, quoting_style=quoting
    )
    try:
        with (
            written(path, suffixes(path)[1]) as stream,
            pyarrow.csv.CSVWriter(stream, schema, write_options=options) as writer,
        ):
            for piece in pieces:
                writer.write_batch(piece)
    except pa.ArrowInvalid as error:
        raise CommandError(
            f"{path}: {error}; .csv, .ndjson, .parquet and .arrow hold any key"
        ) from (error)


@contextmanager
def written(path: Path, compression: str | None) -> Iterator[pa.NativeFile]:
    """The file to write to, or stdout for ``-``. A file at `path` is replaced once it is complete.

    Raises OSError.
    """
    if path != STANDARD:
        try:
            with (
                whole_file(path) as partial,
                pa.output_stream(str(partial), compression=compression) as stream,
            ):
                yield stream
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            # one of Arrow, which names no file
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        return
    with pa.PythonFile(os.fdopen(os.dup(sys.stdout.fileno()), "wb"), "w") as stdout:
        if compression is None:
            yield stdout
        else:
            with pa.CompressedOutputStream(stdout, compression) as stream:
                yield stream


def form_of(path: Path, format: str | None = None) -> tuple[str, str | None]:  # noqa: A002
    """The suffix of the format, and the compression."""
    kind, compression = suffixes(path)
    if format is not None:
        return f".{format}", compression
    return (".csv", None) if path == STANDARD else (kind, compression)


def suffixes(path: Path) -> tuple[str, str | None]:
    """The suffix of the format, and the compression."""
    compression = COMPRESSIONS.get(path.suffix)
    return (path.with_suffix("").suffix if compression else path.suffix), compression


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
