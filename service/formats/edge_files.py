"""Files → edges: the formats that public graphs come in, as they are, compressed or not.

    text             one edge a line, columns separated by blanks, tabs, commas or semicolons; lines
                     that begin with # or % are comments; a header line is known by its words
    events           lines `snapshot +|- source target`: edges that come and go
    Matrix Market    coordinate; symmetric ones give each edge both ways; weights are not read
    Parquet, Arrow   (file or stream) columns named source and target, or else the first two
    *.gr.bin         little-endian int32 pairs, source and target
    *.links.bin      little-endian int32: -(i + 1) opens source i, each j + 1 after it is a target

The compression (gzip, zstd, bzip2, xz, lz4) and the format are told by the first bytes; only the
two binary formats, which have no such mark, by the name. Rows stay as they are: a file that has one
row for an undirected edge, as road networks do, gives one direction.

Keys are 64-bit integers if all of both columns read as such, strings otherwise. A text file has
times

- in the last column that a header calls t, time or timestamp;
- without a header, in the last of three or more columns, if each of its values is 10⁸ or more (Unix
  times since 1973), or if they are at least 0 and never fall from row to row but do rise. Other
  columns, weights among them, are not read.
"""

from __future__ import annotations

import csv
import lzma
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

_SOURCE_NAMES = ("source", "src", "from", "srcid", "fromnodeid", "source_id", "from_id")
_TARGET_NAMES = ("target", "dst", "to", "dstid", "tonodeid", "target_id", "to_id", "destination")
_TIME_NAMES = ("t", "time", "timestamp")
_EARLIEST_UNIX_TIME = 1e8
# Blank lines and comments, up to the first line that is neither.
_PREAMBLE = re.compile(rb"(?:[ \t\r]*(?:[#%][^\n]*)?\n)*(?:[ \t]*[#%][^\n]*\Z)?")
_COMMENT = re.compile(rb"(?m)^[ \t]*[#%].*\n?")

_CODECS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\x04\x22\x4d\x18": "lz4",
}
_XZ = b"\xfd7zXZ\x00"
_ACCEPTED = (
    "text edge lists, CSV, event lists, Matrix Market, Parquet, Arrow, .gr.bin and .links.bin are "
    "read, plain or as gzip, zstd, bzip2, xz or lz4"
)


class EdgeListError(ValueError):
    """The file cannot be read as edges.

    path     the file
    line     which line, from 1; None where none is to blame
    message  what was found, and what is accepted
    """

    def __init__(self, path: Path, line: int | None, message: str) -> None:
        self.path = path
        self.line = line
        self.message = message
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {message}")


@dataclass(frozen=True)
class EdgeList:
    """The edges of a file, in its order, repeats and self-loops included.

    sources, targets  pa.int64() or pa.string(), one row an edge, without nulls
    times             float64[rows], finite, in the file's unit; None where it has no times
    operations        bool[rows], True to insert, False to delete; None where all are insertions
    vertices          keys of all vertices, where the format states them (isolated ones count)
    """

    sources: pa.Array
    targets: pa.Array
    times: NDArray[np.float64] | None = None
    operations: NDArray[np.bool_] | None = None
    vertices: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def by_time(self) -> EdgeList:
        """The same rows by rising time; rows of one time keep their order.

        Raises ValueError where there are no times.
        """
        if self.times is None:
            raise ValueError("these edges have no times to sort them by")
        order = np.argsort(self.times, kind="stable")
        return EdgeList(
            self.sources.take(pa.array(order)),
            self.targets.take(pa.array(order)),
            self.times[order],
            None if self.operations is None else self.operations[order],
            self.vertices,
        )


def read_edge_list(path: Path, time_column: str | int | None = None) -> EdgeList:
    """The edges of a file. It is held in memory once, uncompressed, while it is read.

    time_column  overrides the rules above for text, Parquet and Arrow: a column's name in the
                 header, or its number from 1

    Raises EdgeListError for a file that is missing, damaged, empty or in no accepted format.
    """
    content = _uncompressed(path)
    if not content or content.isspace():
        raise EdgeListError(path, None, f"the file is empty; {_ACCEPTED}")
    name = path.name.lower()
    if ".gr.bin" in name:
        return _read_pairs(path, content)
    if ".links.bin" in name:
        return _read_links(path, content)
    if content.startswith(b"%%MatrixMarket"):
        return _read_matrix_market(path, content)
    if content.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
        return _read_table(path, content, time_column)
    if b"\0" in content[:65536]:
        raise EdgeListError(path, None, f"this is binary, and in no known format; {_ACCEPTED}")
    return _read_text(path, content, time_column)


def _uncompressed(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(6)
            file.seek(0)
            if head.startswith(_XZ):
                return lzma.decompress(file.read())
            for magic, codec in _CODECS.items():
                if head.startswith(magic):
                    content: bytes = pa.CompressedInputStream(file, codec).read()
                    return content
            return file.read()
    except FileNotFoundError as error:
        raise EdgeListError(path, None, "there is no such file") from error
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise EdgeListError(path, None, f"cannot be read: {error}") from error


@dataclass(frozen=True)
class _Rows:
    """The part of a text file that holds edges.

    content    the whole file
    start      where the first row begins in it
    separator  of columns; a blank stands for any run of blanks and tabs
    columns    how many each row has
    """

    path: Path
    content: bytes
    start: int
    separator: str
    columns: int

    def read(self, types: dict[int, pa.DataType]) -> list[pa.Array]:
        """The columns of these numbers. Those that are not of their type come as strings."""
        rows = self.content[self.start :]
        if b"#" in rows or b"%" in rows:
            rows = _COMMENT.sub(b"", rows)
        if self.separator == " ":
            rows = _with_single_blanks(rows)
        strings = dict.fromkeys(types, pa.string())
        if b"0x" in rows or b"0X" in rows:  # which Arrow would take for hexadecimal numbers
            types = types | {n: pa.string() for n, column in types.items() if column == pa.int64()}
        try:
            return self._parsed(rows, types)
        except pa.ArrowInvalid:
            pass
        try:
            columns = self._parsed(rows, strings)
        except pa.ArrowInvalid as error:
            raise self._ragged(error) from error
        for place, (column, wanted) in enumerate(zip(columns, types.values(), strict=True)):
            try:
                columns[place] = column.cast(wanted)
            except pa.ArrowInvalid:
                continue
        return columns

    def _parsed(self, rows: bytes, types: dict[int, pa.DataType]) -> list[pa.Array]:
        names = [f"f{number}" for number in types]
        table = pyarrow.csv.read_csv(
            pa.BufferReader(rows),
            read_options=pyarrow.csv.ReadOptions(
                column_names=[f"f{number}" for number in range(self.columns)]
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.separator, quote_char='"' if self.separator in ",;" else False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict(zip(names, types.values(), strict=True)),
                include_columns=names,
                null_values=[],
                strings_can_be_null=False,
            ),
        )
        return [column.combine_chunks() for column in table.columns]

    def split(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "replace").strip("\r\n")
        if self.separator == " ":
            return text.split()
        if self.separator == "\t":
            return text.split("\t")
        return next(csv.reader([text], delimiter=self.separator), [])

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Line number and line of every row: slow, only for the place of an error."""
        first = self.content.count(b"\n", 0, self.start) + 1
        for number, line in enumerate(self.content[self.start :].split(b"\n"), first):
            if line.strip() and not line.lstrip().startswith((b"#", b"%")):
                yield number, line

    def bad_cell(self, column: int, due: str, is_good: Callable[[str], bool]) -> EdgeListError:
        """The error that names the first row with a cell that is not good."""
        for number, line in self.numbered():
            cell = self.split(line)[column]
            if not is_good(cell):
                message = f"{due} is due in column {column + 1}, got {_shown(cell)}"
                return EdgeListError(self.path, number, message)
        return EdgeListError(self.path, None, f"{due} is due in column {column + 1}")

    def _ragged(self, error: Exception) -> EdgeListError:
        """The error that names the first row with too many or too few columns, or not in UTF-8."""
        for number, line in self.numbered():
            try:
                text = line.decode()
            except UnicodeDecodeError as reason:
                return EdgeListError(self.path, number, f"this is not UTF-8: {reason}; {_ACCEPTED}")
            got = len(self.split(line))
            if got != self.columns:
                due = f"{self.columns} columns are due, as in the first row, got {got}"
                return EdgeListError(self.path, number, f"{due}: {_shown(text)}")
        return EdgeListError(self.path, None, f"cannot be read: {error}; {_ACCEPTED}")


def _read_text(path: Path, content: bytes, time_column: str | int | None) -> EdgeList:
    start = _first_row(content, 0)
    first, _, rest = content[start:].partition(b"\n")
    if not first.strip():
        raise EdgeListError(path, None, f"the file holds comments and no edges; {_ACCEPTED}")
    rows = _Rows(path, content, start, _separator(first), 0)
    cells = rows.split(first)
    rows = replace(rows, columns=len(cells))
    if len(cells) < 2:
        line = next(rows.numbered())[0]
        message = f"a source and a target are due, got one column: {_shown(cells[0])}"
        raise EdgeListError(path, line, f"{message}; {_ACCEPTED}")
    if len(cells) == 4 and cells[1] in ("+", "-"):
        return _read_events(rows)

    header = None
    second = rest[_first_row(rest, 0) :].partition(b"\n")[0]
    if _is_header(cells, rows.split(second) if second.strip() else []):
        header = [cell.strip().lower() for cell in cells]
        rows = replace(rows, start=start + len(first) + 1)
        if not second.strip():
            raise EdgeListError(path, None, f"the file holds a header and no edges; {_ACCEPTED}")
    ends = _end_columns(header)
    time = _time_column(path, header, len(cells), time_column)
    guessed = time is None and header is None and len(cells) >= 3
    if guessed:
        time = len(cells) - 1
    types = dict.fromkeys(ends, pa.int64())
    if time is not None:
        types[time] = pa.float64()
    sources, targets, *others = rows.read(types)
    sources, targets = _keys(rows, ends, sources, targets)
    if time is None:
        return EdgeList(sources, targets)
    times = _numbers(others[0])
    if guessed:
        return EdgeList(sources, targets, times if _look_like_times(times) else None)
    if times is None:
        raise rows.bad_cell(time, "a number, the time,", _is_number)
    return EdgeList(sources, targets, times)


def _read_events(rows: _Rows) -> EdgeList:
    types = {2: pa.int64(), 3: pa.int64(), 0: pa.float64(), 1: pa.string()}
    sources, targets, snapshots, signs = rows.read(types)
    sources, targets = _keys(rows, (2, 3), sources, targets)
    times = _numbers(snapshots)
    if times is None:
        raise rows.bad_cell(0, "a number, the snapshot,", _is_number)
    operations = pc.equal(signs, "+").to_numpy(zero_copy_only=False)
    if not pc.all(pc.is_in(signs, pa.array(["+", "-"]))).as_py():
        raise rows.bad_cell(1, "+ or -", lambda cell: cell in ("+", "-"))
    return EdgeList(sources, targets, times, operations)


def _read_matrix_market(path: Path, content: bytes) -> EdgeList:
    banner = content.partition(b"\n")[0]
    words = banner.decode("utf-8", "replace").lower().split()[2:]
    if (
        len(words) != 3
        or words[0] != "coordinate"
        or words[1] not in ("pattern", "real", "integer")
        or words[2] not in ("general", "symmetric")
    ):
        due = "a matrix `coordinate pattern|real|integer general|symmetric` is due"
        raise EdgeListError(path, 1, f"{due}, got {_shown(' '.join(words))}")
    start = _first_row(content, len(banner) + 1)
    size_line = content[start:].partition(b"\n")[0]
    sizes = [int(cell) for cell in size_line.split() if cell.isdigit()]
    if len(sizes) != 3 or len(size_line.split()) != 3 or sizes[0] != sizes[1]:
        line = content.count(b"\n", 0, start) + 1
        due = "the size of a square matrix, `rows columns entries`, is due"
        raise EdgeListError(
            path, line, f"{due}, got {_shown(size_line.decode('utf-8', 'replace'))}"
        )
    count, _, entries = sizes
    vertices = pa.array(np.arange(1, count + 1))
    start += len(size_line) + 1
    if not content[_first_row(content, start) :].strip():
        sources = targets = vertices.slice(0, 0)
    else:
        rows = _Rows(path, content, start, " ", 2 if words[1] == "pattern" else 3)
        sources, targets = rows.read({0: pa.int64(), 1: pa.int64()})
        for number, ends in enumerate((sources, targets)):
            whole = ends.type == pa.int64()
            if not whole or pc.min(ends).as_py() < 1 or pc.max(ends).as_py() > count:
                raise rows.bad_cell(
                    number,
                    f"an index from 1 to {count}",
                    lambda cell: cell.isdigit() and 1 <= int(cell) <= count,
                )
    if len(sources) != entries:
        raise EdgeListError(path, None, f"{entries} entries are due, got {len(sources)}")
    if words[2] == "symmetric":
        mirrored = pc.not_equal(sources, targets)
        sources, targets = (
            pa.concat_arrays([sources, targets.filter(mirrored)]),
            pa.concat_arrays([targets, sources.filter(mirrored)]),
        )
    return EdgeList(sources, targets, vertices=vertices)


def _read_table(path: Path, content: bytes, time_column: str | int | None) -> EdgeList:
    buffer = pa.py_buffer(content)
    try:
        if content.startswith(b"PAR1"):
            table = pyarrow.parquet.read_table(pa.BufferReader(buffer))
        elif content.startswith(b"ARROW1"):
            table = pa.ipc.open_file(buffer).read_all()
        else:
            table = pa.ipc.open_stream(buffer).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise EdgeListError(path, None, f"cannot be read: {error}; {_ACCEPTED}") from error
    names = table.column_names
    if len(names) < 2 or not table.num_rows:
        due = "two columns and a row are due at least"
        raise EdgeListError(path, None, f"{due}, got {len(names)} and {table.num_rows}")
    header = [name.lower() for name in names]
    ends = _end_columns(header)
    integers = all(pa.types.is_integer(table.column(number).type) for number in ends)
    keys = []
    for number in ends:
        column = table.column(number).combine_chunks()
        try:
            keys.append(column.cast(pa.int64() if integers else pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            message = f"column {names[number]!r} holds no keys: {error}"
            raise EdgeListError(path, None, message) from error
        if column.null_count or _has_empty(keys[-1]):
            raise EdgeListError(path, None, f"column {names[number]!r} has a row without a key")
    time = _time_column(path, header, len(names), time_column)
    if time is None:
        return EdgeList(keys[0], keys[1])
    times = _numbers(table.column(time).combine_chunks())
    if times is None:
        message = f"column {names[time]!r} must be times: finite numbers or timestamps"
        raise EdgeListError(path, None, message)
    return EdgeList(keys[0], keys[1], times)


def _read_pairs(path: Path, content: bytes) -> EdgeList:
    if len(content) % 8:
        raise EdgeListError(path, None, f"pairs of int32 are due; {len(content)} bytes are none")
    pairs = np.frombuffer(content, "<i4").reshape(-1, 2).astype(np.int64)
    return EdgeList(pa.array(pairs[:, 0]), pa.array(pairs[:, 1]))


def _read_links(path: Path, content: bytes) -> EdgeList:
    if len(content) % 4:
        raise EdgeListError(path, None, f"int32 values are due; {len(content)} bytes are none")
    values = np.frombuffer(content, "<i4").astype(np.int64)
    opens = np.flatnonzero(values < 0)
    if values[0] > 0 or not values.all():
        raise EdgeListError(path, None, "values other than 0 are due, and a negative one first")
    targets_each = np.diff(np.append(opens, len(values))) - 1
    sources = np.repeat(-values[opens] - 1, targets_each)
    return EdgeList(pa.array(sources), pa.array(values[values > 0] - 1))


def _first_row(content: bytes, position: int) -> int:
    """Where the first line from `position` on begins that is neither blank nor a comment."""
    match = _PREAMBLE.match(content, position)
    return match.end() if match else position


def _separator(line: bytes) -> str:
    if b"\t" in line and b" \t" not in line and b"\t " not in line:
        return "\t"
    if b"," in line:
        return ","
    return ";" if b";" in line else " "


def _with_single_blanks(rows: bytes) -> bytes:
    rows = rows.replace(b"\t", b" ").replace(b"\r", b"")
    while b"  " in rows:
        rows = rows.replace(b"  ", b" ")
    return rows.replace(b"\n ", b"\n").replace(b" \n", b"\n").strip(b" ")


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first row names columns: it says source and target, or alone has no numbers."""
    named = [cell.strip().lower() for cell in first[:2]]
    if named[0] in _SOURCE_NAMES and named[1] in _TARGET_NAMES:
        return True
    numbers_follow = len(second) >= 2 and all(map(_is_number, second[:2]))
    return numbers_follow and not any(map(_is_number, first[:2]))


def _end_columns(header: list[str] | None) -> tuple[int, int]:
    """The columns of source and target: by name if both are named, or else the first two."""
    for source, name in enumerate(header or []):
        if name in _SOURCE_NAMES:
            for target, other in enumerate(header or []):
                if other in _TARGET_NAMES:
                    return source, target
    return 0, 1


def _time_column(
    path: Path, header: list[str] | None, columns: int, wanted: str | int | None
) -> int | None:
    if isinstance(wanted, int):
        if not 1 <= wanted <= columns:
            message = f"there is no column {wanted} for the time; the file has {columns}"
            raise EdgeListError(path, None, message)
        return wanted - 1
    if wanted is not None:
        if header is None or wanted.lower() not in header:
            named = "no header" if header is None else f"the columns {', '.join(header)}"
            message = f"there is no column {wanted!r} for the time; the file has {named}"
            raise EdgeListError(path, None, message)
        return header.index(wanted.lower())
    named_times = [n for n, name in enumerate(header or []) if name in _TIME_NAMES]
    return named_times[-1] if named_times else None


def _look_like_times(times: NDArray[np.float64] | None) -> bool:
    if times is None:
        return False
    if times.min() >= _EARLIEST_UNIX_TIME:
        return True
    return bool(times[0] >= 0 and times[0] < times[-1] and (np.diff(times) >= 0).all())


def _keys(
    rows: _Rows, ends: tuple[int, int], sources: pa.Array, targets: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Both as integers or both as strings."""
    if sources.type == targets.type == pa.int64():
        return sources, targets
    if pa.int64() in (sources.type, targets.type):
        # Not cast back from integers: 007 is another key than 7 where keys are strings.
        sources, targets = rows.read(dict.fromkeys(ends, pa.string()))
    for number, keys in zip(ends, (sources, targets), strict=True):
        if _has_empty(keys):
            raise rows.bad_cell(number, "a key", lambda cell: cell != "")
    return sources, targets


def _has_empty(keys: pa.Array) -> bool:
    return bool(keys.type == pa.string() and pc.min(pc.binary_length(keys)).as_py() == 0)


def _numbers(column: pa.Array) -> NDArray[np.float64] | None:
    """The column as finite numbers, timestamps as Unix seconds; None if it is something else."""
    scale = 1.0
    try:
        if pa.types.is_timestamp(column.type):
            column, scale = column.cast(pa.timestamp("us")).cast(pa.int64()), 1e6
        numbers = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if numbers.null_count:
        return None
    values: NDArray[np.float64] = numbers.to_numpy() / scale
    return values if np.isfinite(values).all() else None


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
