"""Weights in files of edges."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.service.formats.edges_of_files import Read, pairs, refusal


def table_bytes(columns: dict[str, pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


TABLE = {"source": pa.array(["a", "b"]), "target": pa.array(["b", "c"])}


@pytest.mark.parametrize(
    ("content", "name", "weight", "unread"),
    [
        ("source,target,Cost,note\na,b,2,x\nb,c,0.5,y\n", "e.csv", "cost", ("note",)),
        ("source,target,cost\na,b,2\nb,c,0.5\n", "e.csv", 3, ()),
        ("from\tto\tcost\na\tb\t2\nb\tc\t5e-1\n", "e.tsv", "cost", ()),
        ("a b 2\nb c 0.5\n", "e.txt", 3, ()),
        ("a b 0.5 2\nb c 9 0.5\n", "e.txt", 4, ("column 3",)),
        (table_bytes({**TABLE, "cost": pa.array([2.0, 0.5])}), "e.parquet", "cost", ()),
        (table_bytes({**TABLE, "cost": pa.array([2.0, 0.5], pa.float32())}), "e.parquet", 3, ()),
    ],
)
def test_weights_are_in_the_column_that_is_named(
    read: Read, content: str | bytes, name: str, weight: str | int, unread: tuple[str, ...]
) -> None:
    edges = read(content, name, weight=weight)
    assert pairs(edges) == [("a", "b"), ("b", "c")]
    assert edges.weights is not None
    assert edges.weights.tolist() == [2.0, 0.5]
    assert edges.unread == unread
    without = read(content, name)
    assert without.weights is None
    assert len(without.unread) + (without.times is not None) == len(unread) + 1


def test_a_matrix_has_weights_in_its_values(read: Read) -> None:
    general = "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 2.5\n2 3 4\n"
    edges = read(general, "m.mtx", weight="values")
    assert edges.weights is not None
    assert (pairs(edges), edges.weights.tolist()) == ([(1, 2), (2, 3)], [2.5, 4.0])
    assert (edges.unread, read(general, "m.mtx").unread) == ((), ("values",))
    symmetric = read(
        "%%MatrixMarket matrix coordinate integer symmetric\n3 3 2\n1 1 5\n3 1 7\n",
        "m.mtx",
        weight=3,
    )
    assert symmetric.weights is not None
    assert pairs(symmetric) == [(1, 1), (3, 1), (1, 3)]
    assert symmetric.weights.tolist() == [5, 7, 7]


EXPECTED = (
    "expected a weight, a finite number above 0, in the normal range of float32 "
    "(1.2e-38 to 3.4e+38), in column"
)


@pytest.mark.parametrize(
    ("content", "name", "weight", "message"),
    [
        ("source,target,w\na,b,1\na,c,0\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got '0'"),
        ("source,target,w\na,b,1\na,c,-2\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got '-2'"),
        ("source,target,w\na,b,1\na,c,nan\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got 'nan'"),
        ("source,target,w\na,b,1\na,c,1e39\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got '1e39'"),
        ("source,target,w\na,b,1\na,c,high\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got 'high'"),
        ("source,target,w\na,b,1\na,c,\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got ''"),
        ("source,target\na,b\n", "e.csv", "w", "e.csv: there is no column 'w' for the weight; the file has the columns source, target"),
        ("a b\n", "e.txt", 3, "e.txt: there is no column 3 for the weight; the file has 2"),
        ("a b 1\n", "e.txt", "w", "e.txt: there is no column 'w' for the weight; the file has no header: give the number of the column, from 1 to 3"),
        ("0 + a b\n", "e.txt", 3, "e.txt: there is no column 3 for the weight in a list of events"),
        (b"\1\0\0\0\2\0\0\0", "e.gr.bin", "w", "e.gr.bin: there is no column 'w' for the weight in a .gr.bin file"),
        ("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n", "m.mtx", "values", "m.mtx: there is no column 'values' for the weight; the file has the columns row, column"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 0\n", "m.mtx", "values", f"m.mtx, line 3: {EXPECTED} 3, got '0'"),
        (table_bytes({**TABLE, "w": pa.array(["1", "2"])}), "e.parquet", "w", "e.parquet: expected weights, a column of numbers, in column 'w', got string"),
        (table_bytes({**TABLE, "w": pa.array([1.0, None])}), "e.parquet", "w", f"e.parquet: row 2: {EXPECTED} 'w', got None"),
        (table_bytes({**TABLE, "w": pa.array([0, 1])}), "e.parquet", "w", f"e.parquet: row 1: {EXPECTED} 'w', got 0"),
    ],
)  # fmt: skip
def test_wrong_weights_are_named_with_line_and_value(
    read: Read, content: str | bytes, name: str, weight: str | int, message: str
) -> None:
    assert refusal(read, content, name, weight=weight) == message
