"""Readers whose threads outlive them."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import NoReturn

import pyarrow as pa
import pyarrow.csv
import pytest

from service.errors import FormatError
from service.formats.arrow_readers import read_table
from service.formats.decode import decode_batch


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
        ("application/json", b'{"insert": [["a", "b"], [' + b" " * (1 << 20)),
    ],
)
def test_bodies_are_given_back_too(kind: str, body: bytes, waits: list[bool]) -> None:
    with pytest.raises(FormatError):
        decode_batch(kind, body, "string")
    assert waits == [True]
