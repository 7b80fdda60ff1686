"""Files of generated edges, in formats that service.formats.edge_files reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from numpy.typing import NDArray

from gpu import generate
from service.cli.errors import CommandError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
PIECE_EDGES = 1 << 18


def write_rmat(path: Path, scale: int, edges_per_vertex: int, seed: int) -> int:
    """Writes an R-MAT graph of 2^scale vertices and returns the number of edges.

    Raises CommandError for an unusable path, OSError.
    """
    _check_path(path)
    sources, targets = generate.rmat(scale, edges_per_vertex, seed=seed)
    _write_edge_list(path, sources, targets)
    return len(sources)


def write_grid(path: Path, rows: int, columns: int, keep: float, seed: int) -> int:
    """Writes a grid in which each edge is kept with probability `keep`; returns the number of
    edges.

    Raises CommandError for an unusable path, InvalidValue, OSError.
    """
    _check_path(path)
    sources, targets = generate.grid(rows, columns, keep=keep, seed=seed)
    _write_edge_list(path, sources, targets)
    return len(sources)


def _write_edge_list(path: Path, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
    """Writes the edges in the format of the path's suffix.

    `.txt` (two columns separated by a tab), `.csv` (with a header), `.parquet`, `.arrow`; text also
    compressed: `.gz`, `.zst`, `.bz2`. Raises OSError if writing fails; an incomplete file is
    removed.
    """
    table = pa.table({"source": sources, "target": targets})
    try:
        _write(path, table)
    except BaseException:
        # An incomplete file would be read as a smaller graph. Devices are not removed.
        if path.is_file():
            path.unlink()
        raise


def _write(path: Path, table: pa.Table) -> None:
    kind, compression = _suffixes(path)
    if kind == ".parquet":
        pyarrow.parquet.write_table(table, path, compression="zstd")
    elif kind == ".arrow":
        pyarrow.feather.write_feather(table, str(path), compression="zstd")
    else:
        options = pyarrow.csv.WriteOptions(
            include_header=kind == ".csv",
            delimiter="," if kind == ".csv" else "\t",
            quoting_style="none",
        )
        with (
            pa.output_stream(str(path), compression=compression) as stream,
            pyarrow.csv.CSVWriter(stream, table.schema, write_options=options) as writer,
        ):
            # Ctrl-C takes effect between pieces
            for piece in table.to_batches(max_chunksize=PIECE_EDGES):
                writer.write_batch(piece)


def _check_path(path: Path) -> None:
    """Raises CommandError for a path that `_write_edge_list` cannot write."""
    kind, compression = _suffixes(path)
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
