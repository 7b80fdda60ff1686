"""Columns of every Arrow type, of many equal values, in every place of a body: the server answers
with what it reads, and a short body does not take its memory.
"""

from __future__ import annotations

import decimal
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank_service.formats import ARROW_STREAM, PARQUET
from tests.service.server import ServerProcess, serving

LIMIT = 2 << 20
MOST = 10 * LIMIT
"""Bytes that the server may take for one body beyond those that it has."""

ROWS = 40_000
TEXT = "x" * 1000
NUMBERS = [0] * 125


class Unregistered(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.string(), "test.unregistered")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def _values() -> Iterator[tuple[pa.DataType, Any]]:
    """Types with a value. Where it can be long, all rows together are 20 times the limit."""
    for width in (8, 16, 32, 64):
        for name in (f"int{width}", f"uint{width}"):
            yield getattr(pa, name)(), 1
    for name in ("float16", "float32", "float64"):
        yield getattr(pa, name)(), 1.0
    for decimals in (pa.decimal128(20, 2), pa.decimal256(40, 2)):
        yield decimals, decimal.Decimal(1)
    yield pa.bool_(), True
    yield pa.null(), None
    for unit in ("s", "ms", "us", "ns"):
        yield pa.timestamp(unit), 1
    yield pa.timestamp("us", "Europe/Berlin"), 1
    for times in (pa.date32(), pa.time32("s"), pa.time64("ns"), pa.duration("s")):
        yield times, 1
    yield pa.date64(), 86_400_000
    yield pa.month_day_nano_interval(), (1, 1, 1)
    for texts in (pa.string(), pa.large_string(), pa.string_view()):
        yield texts, TEXT
    for texts in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(len(TEXT))):
        yield texts, TEXT.encode()
    item = pa.int64()
    for lists in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        yield lists(item), NUMBERS
    yield pa.list_(item, len(NUMBERS)), NUMBERS
    yield pa.struct({"a": pa.string()}), {"a": TEXT}
    yield pa.map_(pa.string(), pa.string()), [("a", TEXT)]


def _ones() -> Iterator[pa.Array]:
    """An array of one value for each type."""
    for arrow_type, value in _values():
        yield pa.array([value], arrow_type)
    codes, texts = pa.array([0], pa.int8()), pa.array([TEXT])
    yield pa.UnionArray.from_dense(codes, pa.array([0], pa.int32()), [texts])
    yield pa.UnionArray.from_sparse(codes, [texts])
    numbers = pa.array([NUMBERS], pa.list_(pa.int64(), len(NUMBERS)))
    for extension, storage in (
        (pa.json_(), texts),
        (pa.opaque(pa.string(), "a", "b"), texts),
        (pa.bool8(), pa.array([1], pa.int8())),
        (pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
        (pa.fixed_shape_tensor(pa.int64(), [len(NUMBERS)]), numbers),
        (Unregistered(), texts),
    ):
        yield pa.ExtensionArray.from_storage(extension, storage)


def _plain(one: pa.Array) -> pa.Array:
    if one.type in (pa.string_view(), pa.binary_view()):  # all views refer to the same bytes
        _, views, *texts = one.buffers()
        return pa.Array.from_buffers(
            one.type, ROWS, [None, pa.py_buffer(views.to_pybytes() * ROWS), *texts]
        )
    many = one
    while len(many) < ROWS:
        many = pa.concat_arrays([many, many])
    return many[:ROWS]


def _dictionary(one: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int8)), one)


def _run(one: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([ROWS], pa.int32()), one)


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _parquet(table: pa.Table) -> bytes:
    """Raises pa.ArrowException for a type that Parquet does not have."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _is_text(found: pa.DataType) -> bool:
    texts = found.value_type if pa.types.is_dictionary(found) else found
    return texts in (pa.string(), pa.large_string(), pa.string_view())


def _is_number(found: pa.DataType) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found))


Read = Callable[[pa.DataType], bool]

PLACES: dict[str, dict[str, tuple[Read, str]]] = {
    "strings": {
        "source": (_is_text, "strings"),
        "target": (lambda found: _is_text(found) or pa.types.is_null(found), "strings"),
        "operation": (_is_text, '"insert", "delete", "remove" or "replace"'),
        "weight": (_is_number, "numbers"),
        "time": (
            lambda found: _is_number(found) or pa.types.is_timestamp(found),
            "numbers or timestamps",
        ),
    },
    "integers": {
        "source": (pa.types.is_integer, "integers"),
        "target": (lambda found: pa.types.is_integer(found) or pa.types.is_null(found), "integers"),
    },
    "seeds": {
        "seed": (_is_text, "strings"),
        "weight": (_is_number, "numbers"),
        "query": (
            lambda found: _is_text(found) or pa.types.is_integer(found),
            "strings or integers",
        ),
    },
}
"""Which types are read, and what a refusal calls them. (Rows that all remove need no target.)"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    with serving(data, max_body_bytes=LIMIT) as started:
        options = {"weighted": True, "half_life": 1e9}
        for name, keys in (("strings", "string"), ("integers", "integer")):
            path = f"/graphs/{name}"
            assert started.http.put(path, json={"keys": keys, **options}).status_code == 201
        warm = {**_others("strings", ""), "weight": pa.array([1] * ROWS)}
        body, headers = _arrow(pa.table(warm)), {"Content-Type": ARROW_STREAM}
        for _ in range(2):  # what the process takes once is not the body's
            answer = started.http.post("/graphs/strings/batches", content=body, headers=headers)
            assert answer.status_code == 200
        yield started


def _others(graph: str, place: str) -> dict[str, pa.Array]:
    """The columns that a body needs beside the one at `place`."""
    key = _dictionary(pa.array(["a"])) if graph != "integers" else pa.array([1] * ROWS)
    if graph == "seeds":
        return {} if place == "seed" else {"seed": key}
    columns = {name: key for name in ("source", "target") if name != place}
    if place == "target":
        columns["operation"] = _dictionary(pa.array(["remove" if graph == "strings" else "insert"]))
    return columns


@pytest.mark.parametrize(
    ("turn", "one"), [pytest.param(*each, id=str(each[1].type)) for each in enumerate(_ones())]
)
def test_a_column_is_read_or_refused_by_its_type(
    process: ServerProcess, turn: int, one: pa.Array
) -> None:
    """At each place, in one of the forms that Arrow has for it; the next type in the next form."""
    forms: list[Callable[[pa.Array], pa.Array]] = [_plain, _dictionary, _run]
    posted = 0
    for graph, places in PLACES.items():
        for place, (is_read, expected) in places.items():
            turn += 1
            column = forms[turn % 3](one)
            table = pa.table({place: column, **_others(graph, place)})
            for media_type, encode in ((ARROW_STREAM, _arrow), (PARQUET, _parquet)):
                if graph == "seeds" and media_type == PARQUET:
                    continue
                try:
                    body = encode(table)
                except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                    assert media_type == PARQUET
                    continue
                assert len(body) < LIMIT // 4
                posted += 1
                found = _type_read(body, media_type, place)
                _check(process, graph, place, media_type, body, found, is_read, expected)
    assert posted >= 8


def _type_read(body: bytes, media_type: str, place: str) -> pa.DataType | None:
    """The type as readers see it, or None if there is no reader for it."""
    try:
        if media_type == PARQUET:
            schema = pyarrow.parquet.read_schema(io.BytesIO(body))
        else:
            schema = pa.ipc.open_stream(body).schema
    except pa.ArrowException:
        return None
    return schema.field(place).type


def _check(
    process: ServerProcess,
    graph: str,
    place: str,
    media_type: str,
    body: bytes,
    found: pa.DataType | None,
    is_read: Read,
    expected: str,
) -> None:
    path = "/graphs/strings/personalized" if graph == "seeds" else f"/graphs/{graph}/batches"
    process.forget_peak()
    before = process.memory()
    answer = process.http.post(path, content=body, headers={"Content-Type": media_type})
    assert process.peak() - before < MOST, (graph, place, media_type)
    if answer.status_code == 200:
        assert found is not None
        assert is_read(found)
        return
    problem = answer.json()
    if found is None:
        assert (answer.status_code, problem["field"]) == (422, "body")
    elif is_read(found):
        # the texts decode to more than the limit; null is no key where a row inserts
        assert answer.status_code in (413, 422), problem
        assert "expected a column of" not in problem["detail"]
    else:
        assert (answer.status_code, problem["field"]) == (422, place)
        assert problem["detail"].startswith(f"{place}: expected a column of {expected}, got ")
