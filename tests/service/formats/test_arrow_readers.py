"""Readers whose threads outlive them."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import sys
import threading
import time
from functools import partial
from typing import NoReturn

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from liverank_service.errors import FormatError
from liverank_service.formats import ARROW_STREAM, CSV, JSON, NDJSON, PARQUET
from liverank_service.formats.arrow import read_table
from liverank_service.formats.columns import Attributes
from liverank_service.formats.decode import decode_batch


def test_a_failure_waits_for_threads_that_hold_the_content() -> None:
    given_back = []

    def hold(pieces: list[pa.Buffer]) -> None:
        time.sleep(0.2)
        given_back.append(len(pieces.pop()))

    def read(source: pa.BufferReader) -> NoReturn:
        pieces = [source.read_buffer(3)]
        threading.Thread(target=hold, args=(pieces,)).start()
        raise pa.ArrowInvalid("wrong")

    with pytest.raises(pa.ArrowInvalid, match="wrong"):
        read_table(read, b"content")
    assert given_back == [3]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each waiting for an event returned: whether it came in time."""
    waits = list[bool]()

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(super().wait(timeout))
            return waits[-1]

    monkeypatch.setattr(threading, "Event", Event)
    return waits


@pytest.mark.parametrize("content", [b"", b"a,b\n\xff,c\n" * 20, b"a,b\nc\n" * 100_000])
def test_a_reader_that_fails_gives_the_content_back(content: bytes, waits: list[bool]) -> None:
    texts = pyarrow.csv.ConvertOptions(column_types={"a": pa.string()})
    with pytest.raises(pa.ArrowInvalid):
        read_table(partial(pyarrow.csv.read_csv, convert_options=texts), content)
    assert waits == [True]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/csv", b"source,target\na,b\nc\n"),
        ("application/x-ndjson", b'{"source": "a", "target": "b"}\n{"source": '),
    ],
)
def test_bodies_are_given_back_too(kind: str, body: bytes, waits: list[bool]) -> None:
    with pytest.raises(FormatError):
        decode_batch(kind, body, "string")
    assert waits == [True]


EDGES = [["a", "b"]] * 10_000
COLUMNS = pa.table({"source": ["a"] * 10_000, "target": ["b"] * 10_000})


def _stream() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, COLUMNS.schema) as writer:
        writer.write_table(COLUMNS)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _file() -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(COLUMNS, sink)
    return sink.getvalue()


ROWS = b"".join(b'{"source":"a","target":"b"}\n' for _ in EDGES)
CELLS = b"source,target\n" + b"a,b\n" * 20_000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, json.dumps({"insert": EDGES}).encode()),
        (JSON, json.dumps({"insert": [[*edge, 0.5] for edge in EDGES]}).encode()),
        (
            JSON,
            json.dumps({"insert": {"source": ["a"] * 20_000, "target": ["b"] * 20_000}}).encode(),
        ),
        (JSON, json.dumps({"insert": EDGES, "sets": {"s": {"add": ["a"]}}}).encode()),
        (JSON, json.dumps({"insert": EDGES, "other": 1}).encode()),
        (JSON, json.dumps({"insert": [*EDGES, ["a", None]]}).encode()),
        (JSON, json.dumps({"insert": EDGES}).encode()[:-1]),
        (JSON, json.dumps({"insert": EDGES}).encode()[:-1] + b',"insert":[]}'),
        (NDJSON, ROWS),
        (NDJSON, ROWS + b'{"source":1,"target":2}'),
        (NDJSON, ROWS + b'{"source":'),
        (CSV, CELLS),
        (CSV, CELLS + b"a\n"),
        (CSV, CELLS + b"a,\xff\n"),
        (ARROW_STREAM, _stream()),
        (ARROW_STREAM, _stream()[:-1000]),
        (PARQUET, _file()),
        (PARQUET, _file()[:-1]),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_nothing_holds_a_body_once_it_is_decoded(kind: str, body: bytes, weighted: bool) -> None:
    def decode() -> None:
        with contextlib.suppress(FormatError):
            decode_batch(kind, body, "string", attributes=Attributes(weighted))

    decode()
    gc.collect()
    gc.disable()  # a cycle would end with the next search for garbage
    try:
        before = sys.getrefcount(body)
        decode()
        deadline = time.monotonic() + 10
        while sys.getrefcount(body) > before:  # a thread of the reader may be about to end
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        gc.enable()
