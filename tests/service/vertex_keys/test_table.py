"""Keys ↔ ids: compared with a dictionary, with collisions, after failures, during reads."""

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverank.choices import KeyKind
from liverank_service import vertex_keys as keys_module
from liverank_service.vertex_keys import ARROW_TYPES, KeyTable


class CollidingKeyTable(KeyTable):
    """Only four hashes: nearly every probe meets another key with the same hash."""

    _hash_mask = 3


STRINGS = st.text(max_size=20) | st.sampled_from(
    ["\u00e9", "e\u0301", "a\0", "a", "12345678", "123456789"]
)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
STEPS = st.sampled_from(["assign", "assign", "lookup", "truncate"])


@pytest.mark.parametrize("table_class", [KeyTable, CollidingKeyTable])
@pytest.mark.parametrize("kind", ["string", "integer"])
def test_any_sequence_of_steps_agrees_with_a_dictionary(
    kind: KeyKind, table_class: type[KeyTable]
) -> None:
    arrow_type = ARROW_TYPES[kind]

    @settings(max_examples=75, deadline=None)
    @given(st.data())
    def agrees(data: st.DataObject) -> None:
        table = table_class(kind)
        model: dict[Any, int] = {}
        for step in data.draw(st.lists(STEPS, max_size=8)):
            if step == "truncate":
                count = data.draw(st.integers(0, len(model)))
                table.truncate(count)
                model = {key: number for key, number in model.items() if number < count}
            else:
                keys: st.SearchStrategy[Any] = STRINGS if kind == "string" else INTEGERS
                batch: list[Any] = data.draw(st.lists(keys, max_size=40))
                column = pa.array(batch, arrow_type)
                if step == "assign":
                    expected = [model.setdefault(key, len(model)) for key in batch]
                    assert table.assign(column).tolist() == expected
                else:
                    expected = [model.get(key, -1) for key in batch]
                    assert table.lookup(column).tolist() == expected
                    assert [table.id_of(key) for key in batch] == expected
            assert len(table) == len(model)
        everything = pa.array(list(model), arrow_type)
        assert table.keys(np.arange(len(model))).equals(everything)
        assert table.lookup(everything).tolist() == list(model.values())
        assert [table.id_of(key) for key in model] == list(model.values())

    agrees()


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_ids_stay_through_every_growth_and_a_truncation_far_back(kind: KeyKind) -> None:
    count = 300_000
    numbers = np.random.default_rng(1).permutation(count)
    column = pa.array(numbers).cast(ARROW_TYPES[kind])
    table = KeyTable(kind)
    assert np.array_equal(table.assign(column), np.arange(count))
    assert np.array_equal(table.lookup(column), np.arange(count))
    assert table.keys(np.arange(count)).equals(column)
    table.truncate(1_000)
    assert np.array_equal(table.lookup(column)[:1_000], np.arange(1_000))
    assert (table.lookup(column)[1_000:] == -1).all()
    reversed_column = column.take(pa.array(np.arange(count)[::-1]))
    ids = table.assign(reversed_column)
    assert np.array_equal(ids[-1_000:], np.arange(1_000)[::-1])
    assert np.array_equal(ids[:-1_000], np.arange(1_000, count))


def test_a_slice_of_a_column_is_read_from_where_it_begins() -> None:
    strings, integers = KeyTable("string"), KeyTable("integer")
    assert strings.assign(pa.array(["x", "a", "bc", "a"]).slice(1)).tolist() == [0, 1, 0]
    assert integers.assign(pa.array([9, 4, 5, 4]).slice(1)).tolist() == [0, 1, 0]
    assert strings.keys(np.array([1, 0])).to_pylist() == ["bc", "a"]
    assert integers.keys(np.array([1, 1, 0])).to_pylist() == [5, 5, 4]


def test_keys_are_not_normalised() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert KeyTable("string").assign(pa.array([composed, decomposed])).tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_a_table_is_restored_from_a_capture_of_an_earlier_moment(kind: KeyKind) -> None:
    column = pa.array(np.arange(1_000) * 7919).cast(ARROW_TYPES[kind])
    table = KeyTable(kind)
    table.assign(column[:600])
    capture = table.capture()
    table.assign(column)
    arrays = {name: array.copy() for name, array in capture.arrays().items()}
    restored = KeyTable.restored(kind, arrays)
    assert restored.keys(np.arange(600)).equals(column[:600])
    expected = np.where(np.arange(1_000) < 600, np.arange(1_000), -1)
    assert np.array_equal(restored.lookup(column), expected)
    assert restored.assign(column).tolist() == list(range(1_000))


def test_lookup_adds_nothing() -> None:
    table = KeyTable("string")
    assert table.lookup(pa.array(["a"])).tolist() == [-1]
    assert len(table) == 0


@pytest.mark.parametrize("text", ["a", "abcdefg", "abcdefgh", "abcdefghi", "日本語" * 30])
def test_the_hash_is_the_one_of_cpython(text: str) -> None:
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip(f"this Python hashes strings with {sys.hash_info.algorithm}, not siphash13")
    program = f"print(hash({text.encode()!r}) % 2**64)"
    unseeded = os.environ | {"PYTHONHASHSEED": "0"}
    expected = subprocess.check_output([sys.executable, "-c", program], env=unseeded, text=True)
    table = KeyTable("string")
    table._seed[:] = 0
    table.assign(pa.array([text]))
    assert int(table.capture().arrays()["slots"].max()) >> 32 == int(expected) >> 32


def test_ten_million_keys_would_fit_in_well_under_a_gigabyte_and_a_half() -> None:
    table = KeyTable("string")
    count = 1_000_000
    table.assign(pa.array(np.arange(count) + 10_000_000_000).cast(pa.string()))
    assert table.nbytes() / count < 70  # 0.7 GB at 10⁷, with capacity for growth


def test_a_growth_that_fails_leaves_the_table_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    table = KeyTable("string")
    first = pa.array([f"kept {i}" for i in range(500)])
    table.assign(first)
    monkeypatch.setattr(keys_module, "_CHUNK", 64)
    grow = keys_module._grown

    def no_memory_beyond(array: Any, used: int, needed: int) -> Any:
        if needed > 20_000:
            raise MemoryError
        return grow(array, used, needed)

    monkeypatch.setattr(keys_module, "_grown", no_memory_beyond)
    rejected = pa.array([f"rejected {i}" for i in range(5_000)])
    with pytest.raises(MemoryError):
        table.assign(rejected)
    monkeypatch.setattr(keys_module, "_grown", grow)
    assert len(table) == np.count_nonzero(table._published.slots) == 500
    assert (table.lookup(rejected) == -1).all()
    assert table.lookup(first).tolist() == list(range(500))
    assert table.assign(pa.array(["next", "rejected 7"])).tolist() == [500, 501]


def test_more_vertices_than_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "VERTEX_LIMIT", 2)
    table = KeyTable("integer")
    table.assign(pa.array([1, 2]))
    with pytest.raises(OverflowError, match=r"a graph has at most 2 vertices"):
        table.assign(pa.array([1, 3]))
    assert table.lookup(pa.array([2, 3])).tolist() == [1, -1]


def test_what_is_not_a_column_of_the_kind_is_refused() -> None:
    strings = KeyTable("string")
    with pytest.raises(TypeError, match=r"^keys: expected an Arrow array of string, got int64$"):
        strings.assign(pa.array([1]))
    with pytest.raises(TypeError, match=r"^keys: expected an Arrow array of string, got list$"):
        strings.lookup(["a"])
    with pytest.raises(ValueError, match=r"^keys: expected no nulls, got 1$"):
        strings.assign(pa.array(["a", None]))
    with pytest.raises(ValueError, match=r"^kind: expected 'string' or 'integer', got 'float'$"):
        KeyTable("float")  # type: ignore[arg-type]


def test_ids_and_counts_out_of_range_are_refused() -> None:
    table = KeyTable("integer")
    table.assign(pa.array([7]))
    with pytest.raises(IndexError, match=r"^ids\[1\]: expected 0 to 0, got 1$"):
        table.keys(np.array([0, 1]))
    with pytest.raises(IndexError, match=r"^ids\[0\]: expected 0 to 0, got -1$"):
        table.keys(np.array([-1]))
    with pytest.raises(ValueError, match=r"^count: expected 0 to 1, the number of keys, got 2$"):
        table.truncate(2)


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_what_a_reader_took_stays_as_it_was(kind: KeyKind) -> None:
    def column(*keys: int) -> pa.Array:
        return pa.array(keys, pa.int64()).cast(ARROW_TYPES[kind])

    table = KeyTable(kind)
    table.assign(column(10, 11, 12))
    taken = table._published
    table.assign(column(13))
    table.truncate(1)
    table.assign(column(2000, 2100, 2200))
    table._published = taken  # like a reader in progress
    assert table.lookup(column(10, 11, 12, 13, 2000)).tolist() == [0, 1, 2, -1, -1]
    assert table.keys(np.arange(3)).equals(column(10, 11, 12))


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_a_concurrent_reader_sees_every_published_id_and_no_wrong_one(kind: KeyKind) -> None:
    kept, batches, size = 2_000, 60, 3_000
    numbers = np.arange(kept + batches * size) * 1_000_003
    column = pa.array(numbers).cast(ARROW_TYPES[kind])
    table = KeyTable(kind)
    table.assign(column.slice(0, kept))
    stop = threading.Event()
    faults: list[str] = []
    rounds = 0
    settled = kept

    def read() -> None:
        nonlocal rounds
        while not stop.is_set():
            published = settled
            ids = table.lookup(column)
            wrong = (ids != np.arange(len(ids))) & (ids != -1)
            if wrong.any():
                faults.append(f"a wrong id for {np.flatnonzero(wrong)[:3]}")
            if (ids[:published] == -1).any():
                faults.append("a published key was not found")
            if not table.keys(np.arange(kept)).equals(column.slice(0, kept)):
                faults.append("a key changed")
            rounds += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for batch in range(batches):
            # Every other batch is rolled back and sent again, so that ids are reused.
            table.assign(column.slice(kept + batch * size, size))
            if batch % 2:
                table.truncate(kept + batch * size)
                table.assign(column.slice(kept + batch * size, size))
            settled = len(table)
    finally:
        stop.set()
        reader.join()
    assert faults == []
    assert rounds > 0
    assert len(table) == len(column)
