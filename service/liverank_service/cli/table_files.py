"""Tables written to files, in the format and compression of their suffixes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from liverank.files import whole_file
from liverank_service.cli.errors import CommandError
from liverank_service.formats.encode import json_lines

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
        text = [each for each in kinds if each not in BINARY]
        raise CommandError(
            f"{path}: the name must end in {_either(list(kinds))}; "
            f"{_both(text)} may be compressed: .gz, .zst or .bz2"
        )
    if compression and kind in BINARY:
        raise CommandError(f"{path}: {kind} files are compressed internally; omit {path.suffix}")
    if not path.parent.is_dir():
        raise CommandError(f"{path}: there is no directory {path.parent}")
    if path != STANDARD and path.is_dir():
        raise CommandError(f"{path}: expected the name of a file, got that of a directory")


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


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _both(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
