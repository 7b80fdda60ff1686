"""Weights in request bodies and in the journal's payloads, in every format."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from liverank_service.errors import FormatError
from liverank_service.formats import json_body
from liverank_service.formats.columns import Attributes, EdgeColumns
from liverank_service.formats.decode import decode_batch
from liverank_service.formats.payload import decode_payload, encode_batch
from tests.service.formats.test_decode import ARROW, NDJSON, arrow_stream, lists

JSON = "application/json"
CSV = "text/csv"
TINY, LARGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
RANGE = "a finite number above 0, in the normal range of float32 (1.2e-38 to 3.4e+38)"

ROWS = [("a", "b", 0.5), ("b", "c", 3.0), ("a", "c", 1e-3)]
BODIES = {
    "pairs": (JSON, orjson.dumps({"insert": ROWS, "delete": [["x", "y"]]})),
    "columns": (
        JSON,
        orjson.dumps(
            {
                "insert": dict(
                    zip(("source", "target", "weight"), zip(*ROWS, strict=True), strict=True)
                ),
                "delete": {"source": ["x"], "target": ["y"]},
            }
        ),
    ),
    "objects": (
        JSON,
        orjson.dumps(
            {
                "insert": [dict(zip(("target", "weight", "source"), (t, w, s), strict=True)) for s, t, w in ROWS],
                "delete": [{"source": "x", "target": "y"}],
            }
        ),
    ),
    "ndjson": (
        NDJSON,
        b"\n".join(
            [
                *(orjson.dumps(dict(zip(("source", "target", "weight"), row, strict=True))) for row in ROWS),
                b'{"source":"x","target":"y","operation":"delete"}',
            ]
        ),
    ),
    "csv": (
        CSV,
        b"weight,source,target,operation\n0.5,a,b,insert\n3,b,c,insert\n,x,y,delete\n1e-3,a,c,insert\n",
    ),
    "arrow": (
        ARROW,
        arrow_stream(
            source=pa.array(["a", "b", "x", "a"]),
            target=pa.array(["b", "c", "y", "c"]),
            weight=pa.array([0.5, 3.0, None, 1e-3]),
            operation=pa.array(["insert", "insert", "delete", "insert"]),
        ),
    ),
}  # fmt: skip


def decoded(content_type: str, body: bytes, *, weighted: bool = True) -> EdgeColumns:
    return decode_batch(content_type, body, "string", attributes=Attributes(weighted))


def refusal(content_type: str, body: bytes, *, weighted: bool = True) -> str:
    with pytest.raises(FormatError) as caught:
        decoded(content_type, body, weighted=weighted)
    return str(caught.value)


@pytest.mark.parametrize("form", BODIES)
def test_every_format_carries_weights(form: str) -> None:
    columns = decoded(*BODIES[form])
    assert lists(columns)[:4] == [["a", "b", "a"], ["b", "c", "c"], ["x"], ["y"]]
    assert columns.weights is not None
    assert columns.weights.type == pa.float32()
    assert columns.weights.to_pylist() == [0.5, 3.0, float(np.float32(1e-3))]


@pytest.mark.parametrize("form", BODIES)
def test_weights_for_an_unweighted_graph_say_what_to_do(form: str) -> None:
    assert refusal(*BODIES[form], weighted=False).endswith(
        "the graph is unweighted: send edges without weights, or create a graph with the option weighted"
    )


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b'{"insert": [["a","b"]]}'),
        (JSON, b'{"insert": {"source": ["a"], "target": ["b"]}}'),
        (JSON, b'{"insert": []}'),
        (NDJSON, b'{"source":"a","target":"b"}'),
        (CSV, b"source,target\na,b\n"),
        (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]))),
    ],
)
def test_a_batch_without_weights_has_none(content_type: str, body: bytes) -> None:
    assert decoded(content_type, body).weights is None


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()])
def test_arrow_weights_of_any_number_type(kind: pa.DataType) -> None:
    weights = pa.array([1, 2], pa.int64()).cast(kind)
    body = arrow_stream(source=pa.array(["a", "b"]), target=pa.array(["b", "c"]), weight=weights)
    columns = decoded(ARROW, body)
    assert columns.weights is not None
    assert columns.weights.to_pylist() == [1.0, 2.0]


WRONG = [0, -1.5, 1e-39, 1e39, TINY / 2, LARGE * 2]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("form", ["pairs", "columns", "ndjson", "csv", "arrow"])
def test_weights_out_of_range_are_named_with_their_value(form: str, wrong: float) -> None:
    rows = [*ROWS[:2], ("a", "c", wrong)]
    sources, targets, weights = zip(*rows, strict=True)
    if form == "pairs":
        content_type, body, place = JSON, orjson.dumps({"insert": rows}), "insert[2]: weight"
    elif form == "columns":
        inserted = {"source": sources, "target": targets, "weight": weights}
        content_type, body, place = JSON, orjson.dumps({"insert": inserted}), "insert.weight[2]"
    elif form == "ndjson":
        lines = [
            orjson.dumps(dict(zip(("source", "target", "weight"), row, strict=True)))
            for row in rows
        ]
        content_type, body, place = NDJSON, b"\n".join(lines), "weight[2]"
    elif form == "csv":
        text = "".join(f"{source},{target},{weight!r}\n" for source, target, weight in rows)
        content_type, body, place = CSV, f"source,target,weight\n{text}".encode(), "weight[2]"
    else:
        columns: dict[str, Any] = {"source": pa.array(sources), "target": pa.array(targets)}
        columns["weight"] = pa.array(list(map(float, weights)))
        content_type, body, place = ARROW, arrow_stream(**columns), "weight[2]"
    message = refusal(content_type, body)
    assert message.startswith(f"{place}: expected {RANGE}, got ")
    assert f"got the number {wrong}" in message or f"got the number {float(wrong)}" in message


@pytest.mark.parametrize("weight", [TINY, LARGE, 1])
def test_the_limits_are_weights(weight: float) -> None:
    columns = decoded(JSON, orjson.dumps({"insert": [["a", "b", weight]]}))
    assert columns.weights is not None
    assert columns.weights.to_pylist() == [weight]


def test_the_limits_that_a_message_names_are_weights() -> None:
    message = refusal(JSON, b'{"insert": [["a","b",-1]]}')
    least, largest = (float(limit) for limit in re.findall(r"\d\.\d+e[+-]\d+", message))
    assert TINY <= least < 1.03 * TINY
    assert 0.99 * LARGE < largest <= LARGE


EXPECTED = f"expected {RANGE}, got"
ONLY_ADDED = "a deletion has a weight, which it takes away, only with on_conflict=add"


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        (JSON, b'{"insert": [["a","b",1],["b","c","2"]]}', f'insert[1]: weight: {EXPECTED} the string "2"'),
        (JSON, b'{"insert": [["a","b",true]]}', f"insert[0]: weight: {EXPECTED} true"),
        (JSON, b'{"insert": [["a","b",null]]}', f"insert[0]: weight: {EXPECTED} null"),
        (JSON, b'{"insert": [["a","b",1],["b","c"]]}', "insert[1]: expected [source, target, weight], as in the first edge, got 2 items"),
        (JSON, b'{"insert": [["a","b"],["b","c",2]]}', "insert[1]: expected a pair [source, target], as in the first edge, got 3 items"),
        (JSON, b'{"insert": [["a","b",1],["b",2,3]]}', 'insert[1]: target: expected a non-empty string, got the number 2'),
        (JSON, b'{"delete": [["a","b",1]]}', f"delete[0]: {ONLY_ADDED}"),
        (JSON, b'{"delete": {"source":["a"],"target":["b"],"weight":[1]}}', f"delete.weight: {ONLY_ADDED}"),
        (JSON, b'{"insert": {"source":["a"],"target":["b"],"weight":[1,2]}}', "insert.weight: expected 1 weights, as many as keys in source, got 2"),
        (JSON, b'{"insert": {"source":["a"],"target":["b"],"weight":3}}', "insert.weight: expected an array of numbers, got the number 3"),
        (JSON, b'{"insert": {"source":["a"],"target":["b"],"weights":[3]}}', "insert.weights: unknown member; expected source, target and weight"),
        (NDJSON, b'{"source":"a","target":"b","weight":1}\n{"source":"a","target":"c"}', f"weight[1]: {EXPECTED} null; give every insertion a weight, or none"),
        (NDJSON, b'{"source":"a","target":"b","weight":"1"}', f'weight[0]: {EXPECTED} the string "1"'),
        (NDJSON, b'{"source":"a","target":"b","weight":true}', f"weight[0]: {EXPECTED} true"),
        (NDJSON, b'{"source":"a","target":"b","weight":1,"operation":"delete"}', "weight[0]: expected null, because only insertions have one unless on_conflict is add, got the number 1.0"),
        (CSV, b"source,target,weight\na,b,1\na,c,heavy\n", f'weight[1]: {EXPECTED} the string "heavy"'),
        (CSV, b"source,target,weight\na,b,1\na,c,\n", f"weight[1]: {EXPECTED} null; give every insertion a weight, or none"),
        (CSV, b"source,target,weight\na,b,nan\n", f"weight[0]: {EXPECTED} the number nan"),
        (CSV, b"source,target,weight\na,b,-inf\n", f"weight[0]: {EXPECTED} the number -inf"),
        (CSV, b"source,target,weight,weight\na,b,1,1\n", "weight: expected one column, got 2"),
        (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]), weight=pa.array(["1"])), "weight: expected a column of numbers, got string"),
        (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]), weight=pa.array([True])), "weight: expected a column of numbers, got bool"),
        (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]), weight=pa.array([float("nan")])), f"weight[0]: {EXPECTED} the number nan"),
    ],
)  # fmt: skip
def test_wrong_weights_are_refused_by_field_index_and_value(
    content_type: str, body: bytes, message: str
) -> None:
    assert refusal(content_type, body) == message


def test_the_row_of_a_wrong_weight_counts_deletions_too() -> None:
    body = b"source,target,operation,weight\na,b,delete,\na,c,insert,0\n"
    assert refusal(CSV, body).startswith("weight[1]: ")


def test_a_large_body_has_the_same_weights_as_a_small_one() -> None:
    rows = [[f"a{i}", f"é{i}", i + 1] for i in range(json_body.LARGE_BODY // 8)]
    body = orjson.dumps({"insert": rows})
    assert len(body) > json_body.LARGE_BODY
    columns = decoded(JSON, body)
    assert columns.weights is not None
    assert columns.weights.to_pylist() == [row[2] for row in rows]
    assert columns.insert_targets.to_pylist() == [row[1] for row in rows]


@pytest.mark.parametrize("conflict", ["replace", "add"])
@pytest.mark.parametrize("count", [5, 500])
def test_a_payload_keeps_weights_and_what_they_do(count: int, conflict: Any) -> None:
    column = pa.array(range(count))
    weights = pa.array(np.random.default_rng(count).random(count, np.float32) + np.float32(0.1))
    columns = EdgeColumns(column, column, column[:1], column[:1], column[:0], weights, conflict)
    payload = encode_batch(columns)
    assert payload.startswith(b"{") == (count == 5)
    assert decode_payload(payload) == columns
    assert encode_batch(decode_payload(payload)) == payload


@pytest.mark.parametrize("count", [5, 500])
def test_a_payload_keeps_what_deletions_take_away(count: int) -> None:
    column, given = pa.array(range(count)), [None if n % 3 == 0 else n + 0.5 for n in range(count)]
    columns = EdgeColumns(
        column[:0],
        column[:0],
        column,
        column,
        column[:0],
        on_conflict="add",
        delete_weights=pa.array(given, pa.float32()),
        delete_times=pa.array(given, pa.float64()),
    )
    payload = encode_batch(columns)
    assert payload.startswith(b"{") == (count == 5)
    assert decode_payload(payload) == columns
    assert encode_batch(decode_payload(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b'{"keys":"string","delete_sources":["a"],"delete_targets":["b"],"delete_weights":[0]}',
        b'{"keys":"string","delete_sources":["a"],"delete_targets":["b"],"delete_weights":[1,2]}',
        b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"weights":[null]}',
        b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"weights":[1,2]}',
        b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"weights":[0]}',
        b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"weights":1}',
        b'{"keys":"string","on_conflict":"multiply"}',
        b'{"keys":"string","on_conflict":["add"]}',
    ],
)
def test_a_payload_with_wrong_weights_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError, match=r"^payload"):
        decode_payload(payload)
