"""Edge lists as text, event lists, NDJSON and Matrix Market files → edges. In NDJSON, an object for
each edge, keys are strings or 64-bit integers, as they are written in the file.
"""

from __future__ import annotations

import csv
import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from liverank.choices import named_ends
from liverank_service.formats.arrow import json_table, read_table
from liverank_service.formats.edge_list import (
    ACCEPTED,
    EdgeList,
    EdgeListError,
    WantedColumns,
    file_times,
    has_empty,
    numbers_of,
)
from liverank_service.formats.values import EXPECTED_TEXTS, EXPECTED_WEIGHT, is_weight, parsed_times

_EARLIEST_UNIX_TIME = 1e8
# Blank lines and comments before the first row.
_PREAMBLE = re.compile(rb"(?:[ \t\r]*(?:[#%][^\n]*)?\n)*(?:[ \t]*[#%][^\n]*\Z)?")
_OTHER_MARKS = (BOM_UTF16_LE, BOM_UTF16_BE, BOM_UTF32_BE)  # of UTF-32 LE, the first is a part
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_INTEGER = r"[+-]?\d+"
_NAME = re.compile(r"(?!(?:nan|na|null|none|inf|infinity)$)[^\W\d][\w .-]*", re.IGNORECASE)
"""Of a column: a word, but none for a number that is missing."""

_COMMENT = re.compile(rb"(?m)^[ \t]*[#%].*\n?")


@dataclass(frozen=True)
class TextRows:
    """The part of a text file that holds edges.

    content    the whole file, or a piece of it in whole lines
    start      position of the first row
    separator  of columns; a blank means any run of blanks and tabs
    columns    number of columns in each row
    line       number of the first line of the content, from 1
    """

    path: Path
    content: bytes
    start: int
    separator: str
    columns: int
    line: int = 1

    def read(self, types: dict[int, pa.DataType]) -> list[pa.Array]:
        """The columns with these numbers, as strings unless all values have the type."""
        rows = self.content[self.start :]
        if b"#" in rows or b"%" in rows:
            rows = _COMMENT.sub(b"", rows)
        if self.separator == " ":
            rows = _with_single_blanks(rows)
        strings = dict.fromkeys(types, pa.string())
        if b"0x" in rows or b"0X" in rows:  # Arrow would read hexadecimal numbers
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
        read = partial(
            pyarrow.csv.read_csv,
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
        return [column.combine_chunks() for column in read_table(read, rows).columns]

    def split(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "replace").strip("\r\n")
        if self.separator == " ":
            return text.split()
        if self.separator == "\t":
            return text.split("\t")
        return next(csv.reader([text], delimiter=self.separator), [])

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Line number and line of every row. Slow: only for the position of an error."""
        first = self.content.count(b"\n", 0, self.start) + self.line
        for number, line in enumerate(self.content[self.start :].split(b"\n"), first):
            if line.strip() and not line.lstrip().startswith((b"#", b"%")):
                yield number, line

    def bad_cell(self, column: int, expected: str, is_good: Callable[[str], bool]) -> EdgeListError:
        """The error that names the first row with a bad cell."""
        for number, line in self.numbered():
            cell = self.split(line)[column]
            if not is_good(cell):
                message = f"expected {expected} in column {column + 1}, got {_shown(cell)}"
                return EdgeListError(self.path, number, message)
        return EdgeListError(self.path, None, f"expected {expected} in column {column + 1}")

    def _ragged(self, error: Exception) -> EdgeListError:
        """The error that names the first row with a wrong number of columns, or not in UTF-8."""
        for number, line in self.numbered():
            try:
                text = line.decode()
            except UnicodeDecodeError as reason:
                return EdgeListError(self.path, number, f"not UTF-8: {reason}; {ACCEPTED}")
            got = len(self.split(line))
            if got != self.columns:
                message = f"expected {self.columns} columns, as in the first row, got {got}"
                return EdgeListError(self.path, number, f"{message}: {_shown(text)}")
        return EdgeListError(self.path, None, f"cannot be read: {error}; {ACCEPTED}")


@dataclass(frozen=True)
class TextLayout:
    """How a text file is laid out, as its first rows say.

    rows    from the first edge on
    header  names of the columns, in lower case; None if there are none
    events  whether rows are `snapshot +|- source target`
    """

    rows: TextRows
    header: list[str] | None
    events: bool

    @property
    def names(self) -> list[str]:
        """A name for each column."""
        return self.header or [f"column {number}" for number in range(1, self.rows.columns + 1)]


def layout_of(path: Path, content: bytes, wanted: WantedColumns) -> TextLayout:
    """The layout of a text file, or of one that begins with this. Raises EdgeListError.

    wanted  if the first row has a column that it names, that row is a header
    """
    start = first_row(content, 0)
    first, _, rest = content[start:].partition(b"\n")
    if not first.strip():
        raise EdgeListError(path, None, f"the file has comments but no edges; {ACCEPTED}")
    rows = TextRows(path, content, start, _separator(first), 0)
    cells = rows.split(first)
    rows = replace(rows, columns=len(cells))
    if len(cells) < 2:
        line = next(rows.numbered())[0]
        message = f"expected a source and a target, got one column: {_shown(cells[0])}"
        raise EdgeListError(path, line, f"{message}; {ACCEPTED}")
    if len(cells) == 4 and cells[1] in ("+", "-"):
        return TextLayout(rows, None, events=True)
    header = None
    second = rest[first_row(rest, 0) :].partition(b"\n")[0]
    following = rows.split(second) if second.strip() else []
    if wanted.are_named_in(cells) or _is_header(cells, following):
        header = [cell.strip().lower() for cell in cells]
        rows = replace(rows, start=start + len(first) + 1)
        if not second.strip():
            raise EdgeListError(path, None, f"the file has a header but no edges; {ACCEPTED}")
    return TextLayout(rows, header, events=False)


def read_text(path: Path, content: bytes, wanted: WantedColumns) -> EdgeList:
    layout = layout_of(path, content, wanted)
    rows, header = layout.rows, layout.header
    if layout.events:
        wanted.refuse(path, "a list of events")
        return _read_events(rows)
    places = wanted.places(path, header, rows.columns)
    ends, time, weight = places[:2], places.time, places.weight
    guessed = time is None and header is None and rows.columns >= 3 and weight != rows.columns - 1
    if guessed:
        time = rows.columns - 1
    types = dict.fromkeys(ends, pa.int64())
    types |= {place: pa.float64() for place in (time, weight) if place is not None}
    columns = dict(zip(types, rows.read(types), strict=True))
    sources, targets = keys_of(rows, ends, *(columns[end] for end in ends))
    weights = None if weight is None else weights_of_rows(rows, weight, columns[weight])
    times = None if time is None else file_times(columns[time])
    if guessed and not _look_like_times(times):
        time = times = None
    if time is not None and times is None:
        raise _wrong_time(rows, time)
    unread = places._replace(time=time).unread(layout.names)
    return EdgeList(sources, targets, times, unread=unread, weights=weights)


def weights_of_rows(rows: TextRows, place: int, column: pa.Array) -> NDArray[np.float64]:
    """The weights in the column with the number `place`. Raises EdgeListError."""
    weights = numbers_of(column)
    if weights is None or not is_weight(weights).all():
        raise rows.bad_cell(
            place,
            f"a weight, {EXPECTED_WEIGHT},",
            lambda cell: _is_number(cell) and is_weight(float(cell)),
        )
    return weights


def _wrong_time(rows: TextRows, place: int) -> EdgeListError:
    """The error that names the first row whose time is not like that of the first row."""
    _, first = next(rows.numbered())
    wanted = _time_type(rows.split(first)[place])
    expected = f"a time, a finite number {EXPECTED_TEXTS},"
    return rows.bad_cell(
        place, expected, lambda cell: wanted is not None and _time_type(cell) == wanted
    )


def _read_events(rows: TextRows) -> EdgeList:
    types = {2: pa.int64(), 3: pa.int64(), 0: pa.float64(), 1: pa.string()}
    sources, targets, snapshots, signs = rows.read(types)
    sources, targets = keys_of(rows, (2, 3), sources, targets)
    times = numbers_of(snapshots)
    if times is None:
        raise rows.bad_cell(0, "a number, the snapshot,", _is_number)
    operations = pc.equal(signs, "+").to_numpy(zero_copy_only=False)
    if not pc.all(pc.is_in(signs, pa.array(["+", "-"]))).as_py():
        raise rows.bad_cell(1, "+ or -", lambda cell: cell in ("+", "-"))
    return EdgeList(sources, targets, times, operations)


def read_matrix_market(path: Path, content: bytes, wanted: WantedColumns) -> EdgeList:
    banner = content.partition(b"\n")[0]
    words = banner.decode("utf-8", "replace").lower().split()[2:]
    if (
        len(words) != 3
        or words[0] != "coordinate"
        or words[1] not in ("pattern", "real", "integer")
        or words[2] not in ("general", "symmetric")
    ):
        expected = "a matrix `coordinate pattern|real|integer general|symmetric`"
        raise EdgeListError(path, 1, f"expected {expected}, got {_shown(' '.join(words))}")
    start = first_row(content, len(banner) + 1)
    size_line = content[start:].partition(b"\n")[0]
    sizes = [int(cell) for cell in size_line.split() if cell.isdigit()]
    if len(sizes) != 3 or len(size_line.split()) != 3 or sizes[0] != sizes[1]:
        line = content.count(b"\n", 0, start) + 1
        expected = "the size of a square matrix, `rows columns entries`"
        got = _shown(size_line.decode("utf-8", "replace"))
        raise EdgeListError(path, line, f"expected {expected}, got {got}")
    header = ["row", "column"] if words[1] == "pattern" else ["row", "column", "values"]
    wanted.refuse(path, "a Matrix Market file", ("source", "target"))
    places = WantedColumns(weight=wanted.weight).places(path, header, len(header))
    weights = None if places.weight is None else np.empty(0)
    count, _, entries = sizes
    vertices = pa.array(np.arange(1, count + 1))
    start += len(size_line) + 1
    if not content[first_row(content, start) :].strip():
        sources = targets = vertices.slice(0, 0)
    else:
        rows = TextRows(path, content, start, " ", len(header))
        types = {0: pa.int64(), 1: pa.int64()}
        if places.weight == 2:
            types[2] = pa.float64()
        sources, targets, *others = rows.read(types)
        if others:
            weights = weights_of_rows(rows, 2, others[0])
        for number, ends in enumerate((sources, targets)):
            whole = ends.type == pa.int64()
            if not whole or pc.min(ends).as_py() < 1 or pc.max(ends).as_py() > count:
                raise rows.bad_cell(
                    number,
                    f"an index from 1 to {count}",
                    lambda cell: cell.isdigit() and 1 <= int(cell) <= count,
                )
    if len(sources) != entries:
        raise EdgeListError(path, None, f"expected {entries} entries, got {len(sources)}")
    if words[2] == "symmetric":
        mirrored = pc.not_equal(sources, targets)
        sources, targets = (
            pa.concat_arrays([sources, targets.filter(mirrored)]),
            pa.concat_arrays([targets, sources.filter(mirrored)]),
        )
        if weights is not None:
            weights = np.concatenate([weights, weights[mirrored.to_numpy(zero_copy_only=False)]])
    unread = places.unread(header)
    return EdgeList(sources, targets, vertices=vertices, unread=unread, weights=weights)


def without_mark(path: Path, content: bytes) -> bytes:
    """What begins a file, without the byte order mark of UTF-8. Raises EdgeListError for that of
    another encoding.
    """
    if content.startswith(_OTHER_MARKS):
        message = (
            "the text is UTF-16 or UTF-32, expected UTF-8: iconv -f UTF-16 -t UTF-8 converts it"
        )
        raise EdgeListError(path, None, message)
    return content.removeprefix(BOM_UTF8)


def first_row(content: bytes, position: int) -> int:
    """The position of the first line from `position` on that is neither blank nor a comment."""
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
    """Whether the first row is a header: it names source and target, or it has no numbers where the
    second one has: for both keys, or for what stands behind them.
    """
    if named_ends(first) is not None:
        return True
    if any(map(_is_number, first[:2])):
        return False
    if len(second) >= 2 and all(map(_is_number, second[:2])):
        return True
    behind = zip(first[2:], second[2:], strict=False)
    return any(_is_number(cell) and _NAME.fullmatch(name.strip()) for name, cell in behind)


def _look_like_times(times: NDArray[np.float64] | None) -> bool:
    if times is None:
        return False
    if times.min() >= _EARLIEST_UNIX_TIME:
        return True
    return bool(times[0] >= 0 and times[0] < times[-1] and (np.diff(times) >= 0).all())


def keys_of(
    rows: TextRows, ends: tuple[int, int], sources: pa.Array, targets: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Both as integers or both as strings."""
    if sources.type == targets.type == pa.int64():
        return sources, targets
    if pa.int64() in (sources.type, targets.type):
        # Not cast back from integers: as strings, 007 and 7 are different keys.
        sources, targets = rows.read(dict.fromkeys(ends, pa.string()))
    for number, keys in zip(ends, (sources, targets), strict=True):
        check_keys(rows, number, keys)
    return sources, targets


def check_keys(rows: TextRows, number: int, keys: pa.Array) -> None:
    """Raises EdgeListError for keys, the strings of the column with this number, of which one is
    empty; or all are numbers, not all of them integers. The first may be the name of the column.
    """
    if has_empty(keys):
        raise rows.bad_cell(number, "a key", lambda cell: cell != "")
    if len(keys) > 1 and not re.fullmatch(_NUMBER, keys[0].as_py()):
        keys = keys[1:]
    for part in (keys[:1], keys):  # one key tells most columns apart
        if not pc.all(pc.match_substring_regex(part, f"^{_NUMBER}$")).as_py():
            return
    if not pc.all(pc.match_substring_regex(keys, f"^{_INTEGER}$")).as_py():
        expected = "a key, a string or an integer,"
        raise rows.bad_cell(number, expected, lambda cell: not _is_fraction(cell))


def _is_fraction(cell: str) -> bool:
    return bool(re.fullmatch(_NUMBER, cell)) and not re.fullmatch(_INTEGER, cell)


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _time_type(cell: str) -> pa.DataType | None:
    """float64 for a finite number, or the type of a timestamp, which has a zone or none."""
    if _is_number(cell):
        return pa.float64()
    found = parsed_times(pa.array([cell]))
    return found.type if found is not None and pa.types.is_timestamp(found.type) else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


_OBJECTS = re.compile(rb'\s*\{\s*"[^"]*"\s*:')
_ARRAY = re.compile(rb'\s*\[\s*(?:\[\s*["\d-]|\{\s*")')
_NO_OBJECT = re.compile(rb"(?m)^[ \t\r]*[^{\s]")


def is_json(path: Path, content: bytes) -> bool:
    """Whether the content begins with a JSON object. Raises EdgeListError for a JSON array, which
    would otherwise be rows of text.
    """
    if _ARRAY.match(content):
        message = f"a JSON array is not read, but an object a line (NDJSON) is; {ACCEPTED}"
        raise EdgeListError(path, None, message)
    return _OBJECTS.match(content) is not None


def read_json_rows(path: Path, content: bytes, wanted: WantedColumns) -> pa.Table:
    """The objects as rows, their members as columns. Raises EdgeListError."""
    if other := _NO_OBJECT.search(content):
        raise _no_object(path, content.count(b"\n", 0, other.end()) + 1, content)
    try:
        table = json_table(content, pa.schema([]), others="infer")
        names = [name.lower() for name in table.column_names]
        ends = wanted.places(path, names, len(names))[:2] if len(names) > 1 else ()
        return _with_keys(content, table, ends)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                json.loads(line.strip() or b"{}")
            except ValueError:  # also of bytes that are not UTF-8
                raise _no_object(path, number, content) from error
        raise EdgeListError(path, None, f"cannot be read: {error}; {ACCEPTED}") from error


def _with_keys(content: bytes, table: pa.Table, ends: Sequence[int]) -> pa.Table:
    """The table with the keys, the columns `ends`, as they are written: Arrow reads strings like
    dates as times.
    """
    names = table.column_names
    types = {name: table.schema.field(name).type for at, name in enumerate(names) if at in ends}
    if texts := [name for name, found in types.items() if pa.types.is_timestamp(found)]:
        schema = pa.schema([(name, pa.string()) for name in texts])
        table = json_table(content, schema, others="infer").select(names)
    return table


def _no_object(path: Path, number: int, content: bytes) -> EdgeListError:
    text = content.split(b"\n", number)[number - 1].decode("utf-8", "replace").strip()
    return EdgeListError(path, number, f"expected a JSON object, got {_shown(text)}")
