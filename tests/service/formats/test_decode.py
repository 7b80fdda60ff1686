"""Request bodies → columns of keys, in four formats; refusals and their messages."""

# ruff: noqa: E501 - tables of cases have a case a line

import json
import re
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverank.choices import KeyKind
from liverank_service.errors import FormatError, UnsupportedFormat
from liverank_service.formats import json_body
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.decode import decode_batch
from liverank_service.formats.payload import decode_payload, encode_batch
from liverank_service.vertex_keys import ARROW_TYPES

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"


def lists(columns: EdgeColumns) -> list[list[Any]]:
    return [
        columns.insert_sources.to_pylist(),
        columns.insert_targets.to_pylist(),
        columns.delete_sources.to_pylist(),
        columns.delete_targets.to_pylist(),
        columns.vertices.to_pylist(),
    ]


def arrow_stream(**columns: pa.Array) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def refusal(content_type: str | None, body: bytes, kind: KeyKind = "string") -> str:
    with pytest.raises(FormatError) as caught:
        decode_batch(content_type, body, kind)
    error = caught.value
    place = error.field if error.index is None else f"{error.field}[{error.index}]"
    assert str(error) == f"{place}: {error.message}"
    return str(error)


@pytest.mark.parametrize(
    "content_type", [None, "application/json", "Application/JSON; charset=UTF-8"]
)
def test_json_pairs_become_columns(content_type: str | None) -> None:
    body = b'{"insert": [["a","b"],["c","d"]], "delete": [["e","f"]], "vertices": ["g"]}'
    columns = decode_batch(content_type, body, "string")
    assert lists(columns) == [["a", "c"], ["b", "d"], ["e"], ["f"], ["g"]]


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_every_column_has_the_type_of_the_graphs_keys_even_when_empty(kind: KeyKind) -> None:
    columns = decode_batch(None, b"{}", kind)
    assert lists(columns) == [[], [], [], [], []]
    assert {column.type for column in columns.keys.values()} == {ARROW_TYPES[kind]}


def test_json_objects_become_columns() -> None:
    edges = [{"source": 1, "target": -(2**63)}, {"target": 2**63 - 1, "source": 2}]
    body = orjson.dumps({"insert": edges, "delete": edges[:1]})
    expected = [[1, 2], [-(2**63), 2**63 - 1], [1], [-(2**63)], []]
    assert lists(decode_batch(None, body, "integer")) == expected


def test_json_by_column_is_accepted() -> None:
    body = b'{"insert": {"source": [1, -9223372036854775808], "target": [2, 9223372036854775807]}}'
    assert lists(decode_batch(None, body, "integer"))[:2] == [[1, -(2**63)], [2, 2**63 - 1]]


EXPECTED_STRING = "expected a non-empty string, got"
EXPECTED_INTEGER = "expected an integer from -2⁶³ to 2⁶³-1, got"


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("string", '{"insert": [["a","b"],["c","d","e"]]}', "insert[1]: the graph is unweighted: send edges without weights, or create a graph with "),
        ("string", '{"insert": [["a","b"],["c","d","e","f","g"]]}', "insert[1]: expected a pair [source, target], got 5 items"),
        ("string", '{"delete": [["a"]]}', "delete[0]: expected a pair [source, target], got 1 item"),
        ("string", '{"delete": ["ab"]}', 'delete[0]: expected a pair [source, target], got the string "ab"'),
        ("string", '{"insert": [["a","b"],null]}', "insert[1]: expected a pair [source, target], got null"),
        ("string", '{"insert": 3}', "insert: expected an array of pairs [source, target] or an object of source and target, got the number 3"),
        ("string", '{"insert": null}', "insert: expected an array of pairs [source, target] or an object of source and target, got null"),
        ("string", '{"insert": [["a","b"],["c",3]]}', f"insert[1]: target: {EXPECTED_STRING} the number 3"),
        ("string", '{"insert": [["a","b"],["",""]]}', f'insert[1]: source: {EXPECTED_STRING} the string ""'),
        ("string", '{"vertices": ["a", null]}', f"vertices[1]: {EXPECTED_STRING} null"),
        ("string", '{"vertices": [["a"]]}', f"vertices[0]: {EXPECTED_STRING} an array"),
        ("string", '{"vertices": {"a": 1}}', "vertices: expected an array of keys, got an object"),
        ("integer", '{"insert": [[1,2],[true,2]]}', f"insert[1]: source: {EXPECTED_INTEGER} true"),
        ("integer", '{"insert": [[1,2.0]]}', f"insert[0]: target: {EXPECTED_INTEGER} the number 2.0"),
        ("integer", '{"insert": [[1,"2"]]}', f'insert[0]: target: {EXPECTED_INTEGER} the string "2"'),
        ("integer", '{"vertices": [9223372036854775808]}', f"vertices[0]: {EXPECTED_INTEGER} the number 9223372036854775808"),
        ("integer", '{"vertices": [-9223372036854775809]}', f"vertices[0]: {EXPECTED_INTEGER} the number -9.223372036854776e+18"),
        ("string", '{"insert": {"source": ["a"], "target": []}}', "insert.target: expected 1 keys, as in source, got 0"),
        ("string", '{"insert": {"source": ["a"]}}', "insert.target: expected an array of keys, got nothing"),
        ("string", '{"insert": {"source": ["a", 1], "target": ["b", "c"]}}', f"insert.source[1]: {EXPECTED_STRING} the number 1"),
        ("string", '{"insert": [{"source": "a", "target": "b"}, {"source": "a", "target": 1}]}', f"insert[1]: target: {EXPECTED_STRING} the number 1"),
        ("string", '{"insert": [{"source": "a", "target": "b"}, {"source": "a"}]}', "insert[1]: expected an object of source and target, as in the first edge, got an object of source"),
        ("string", '{"insert": [{"source": "a", "target": "b"}, ["a", "b"]]}', "insert[1]: expected an object of source and target, as in the first edge, got an array"),
        ("string", '{"insert": [["a", "b"], {"source": "a", "target": "b"}]}', "insert[1]: expected a pair [source, target], got an object"),
        ("string", '{"insert": [{"source": "a"}]}', f"insert[0]: target: {EXPECTED_STRING} nothing"),
        ("string", '{"insert": [{}]}', f"insert[0]: source: {EXPECTED_STRING} nothing"),
        ("string", '{"delete": [{"source": "a", "target": "b", "label": 1}]}', "delete[0]: label: unknown member; expected source and target"),
        ("string", '{"insert": [{"source": "a", "target": "b", "weight": 1}]}', "insert[0]: weight: the graph is unweighted"),
        ("string", '{"insert": [{"source": "a", "target": "b", "source": "c"}]}', "source: duplicate member"),
        ("string", '{"insert": {"sources": []}}', "insert.sources: unknown member; expected source and target"),
        ("string", '{"inserts": []}', "inserts: unknown member; expected insert, delete, vertices, remove, sets and replace"),
        ("string", "[]", "body: expected a JSON object, got an array"),
        ("string", "", "body: malformed JSON at line 1, column 1: Input is a zero-length, empty document"),
        ("string", '{"insert":\n []]}', "body: malformed JSON at line 2, column 4: unexpected character"),
        ("string", '{"vertices": ["\\ud800"]}', "body: malformed JSON at line 1, column 16: no low surrogate in string"),
        ("integer", '{"vertices": [NaN]}', "body: malformed JSON at line 1, column 15: unexpected character, expected a JSON value"),
    ],
)  # fmt: skip
def test_json_that_is_wrong_is_refused_by_field_and_index(
    kind: KeyKind, body: str, message: str
) -> None:
    assert refusal(None, body.encode(), kind).startswith(message)


def test_bytes_that_are_not_utf_8_are_placed() -> None:
    body = b'{"vertices":\n ["a\xff"]}'
    assert refusal(None, body) == "body: not UTF-8 at line 2, byte 5: invalid start byte"


LARGE = 20_000


def test_a_large_body_becomes_the_same_columns_as_a_small_one() -> None:
    pairs = [[f"a{i}", f"é{i}"] for i in range(LARGE)]
    body = orjson.dumps({"insert": pairs, "delete": pairs[:3], "vertices": ["x"]})
    assert len(body) > json_body.LARGE_BODY
    sources, targets = ([pair[end] for pair in pairs] for end in (0, 1))
    columns = decode_batch(None, body, "string")
    assert lists(columns) == [sources, targets, sources[:3], targets[:3], ["x"]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (["a", 3], f"insert[{LARGE}]: target: {EXPECTED_STRING} the number 3"),
        (["a", ""], f'insert[{LARGE}]: target: {EXPECTED_STRING} the string ""'),
        (["a", None], f"insert[{LARGE}]: target: {EXPECTED_STRING} null"),
        (["a"], f"insert[{LARGE}]: expected a pair [source, target], got 1 item"),
        (None, f"insert[{LARGE}]: expected a pair [source, target], got null"),
        ({}, f"insert[{LARGE}]: expected a pair [source, target], got an object"),
    ],
)
def test_the_one_fault_of_a_large_body_is_found(fault: Any, message: str) -> None:
    pairs: list[Any] = [["source", "target"]] * LARGE + [fault]
    assert refusal(None, orjson.dumps({"insert": pairs})) == message


KEYS = (
    st.text(max_size=3) | st.integers(-(2**63), 2**64) | st.sampled_from([None, True, 1.5, "null"])
)
PAIRS = st.lists(st.lists(KEYS, min_size=2, max_size=2) | st.lists(KEYS, max_size=3), max_size=3)


def test_a_byte_order_mark_of_csv_is_no_text() -> None:
    body = "\ufeffsource,target\n1,2\n".encode()
    assert lists(decode_batch("text/csv", body, "integer"))[:2] == [[1], [2]]
    wrong = "\ufeffsource,target\n1,0x2\n".encode()
    expected = 'target[0]: expected an integer from -2⁶³ to 2⁶³-1, got the string "0x2"'
    assert refusal("text/csv", wrong, "integer") == expected


def _plain(body: bytes, kind: KeyKind) -> list[list[Any]] | None:
    """The columns of a batch of pairs, by the standard library; None if it is not valid."""

    def distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in members}) == len(members)
        return dict(members)

    def is_key(key: object) -> bool:
        if kind == "string":
            # which json takes, as half of a pair
            return isinstance(key, str) and key != "" and not re.search("[\ud800-\udfff]", key)
        return type(key) is int and -(2**63) <= key < 2**63

    try:
        document = json.loads(body.decode(), object_pairs_hook=distinct)
        assert isinstance(document, dict)
        assert document.keys() <= {"insert", "delete", "vertices"}
        edges = [document.get(name, []) for name in ("insert", "delete")]
        assert all(isinstance(pairs, list) for pairs in edges)
        assert all(isinstance(pair, list) and len(pair) == 2 for pairs in edges for pair in pairs)
        columns = [[pair[end] for pair in pairs] for pairs in edges for end in (0, 1)]
        columns.append(document.get("vertices", []))
        assert isinstance(columns[-1], list)
        assert all(is_key(key) for column in columns for key in column)
    except (AssertionError, ValueError):
        return None
    return columns


_PIECES = '\\ \\u \\ud834 \\udd1e \\n " [ ] { } , : 0 - -0 1.5 e5 null "insert":[], \x00 \x7f é 𝄞'
PIECES = [b"", b" ", b"\n", b"\xff", b"\xed\xa0\x80", b"\xf0\x80", *_PIECES.encode().split(b" ")]


@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("large", [False, True])
def test_json_is_read_as_by_the_standard_library_or_refused(
    kind: KeyKind, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_body, "LARGE_BODY", 0 if large else 1 << 30)
    clean = (
        st.text(min_size=1, max_size=3) if kind == "string" else st.integers(-(2**63), 2**63 - 1)
    )
    pair = st.lists(clean, min_size=2, max_size=2)
    documents = st.fixed_dictionaries(
        {},
        optional={
            "insert": st.lists(pair, max_size=3) | PAIRS,
            "delete": st.lists(pair, max_size=3),
            "vertices": st.lists(clean, max_size=3) | st.lists(KEYS, max_size=3),
        },
    )
    faults = st.tuples(st.integers(0, 80), st.integers(0, 2), st.sampled_from(PIECES))

    @settings(max_examples=150, deadline=None)
    @given(documents, st.booleans(), st.sampled_from([None, 1]), st.none() | faults)
    def agree(
        document: dict[str, Any],
        escaped: bool,
        indent: int | None,
        fault: tuple[int, int, bytes] | None,
    ) -> None:
        body = json.dumps(document, ensure_ascii=escaped, indent=indent).encode()
        if fault is not None:
            place, removed, piece = fault
            body = body[:place] + piece + body[place + removed :]
        expected = _plain(body, kind)
        if expected is None:
            assert refusal(None, body, kind)
        else:
            assert lists(decode_batch(None, body, kind)) == expected

    agree()


def test_ndjson_lines_are_edges_and_an_absent_operation_inserts() -> None:
    body = (
        b'{"source":"a","target":"b"}\n\n'
        b'{"target":"d","source":"c","operation":"delete"}\n'
        b'{"source":"e","target":"f","operation":"insert"}'
    )
    assert lists(decode_batch(NDJSON, body, "string")) == [["a", "e"], ["b", "f"], ["c"], ["d"], []]
    assert lists(decode_batch(NDJSON, b"\n", "integer")) == [[], [], [], [], []]


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        ("string", '{"source":"a","target":1}', f"target[1]: {EXPECTED_STRING} the number 1"),
        ("string", '{"source":"","target":"b"}', f'source[1]: {EXPECTED_STRING} the string ""'),
        ("string", '{"source":"a"}', f"target[1]: {EXPECTED_STRING} null"),
        ("string", '{"source":"a","target":"b","weight":1}', "weight[1]: the graph is unweighted: send edges without weights, or create a graph with "),
        ("string", '{"source":"a","target":"b","operation":"upsert"}', 'operation[1]: expected "insert", "delete", "remove" or "replace", got the string "upsert"'),
        ("string", '["a","b"]', "body[1]: expected a JSON object, got an array"),
        ("string", '{"source":"a" "target":"b"}', "body[1]: malformed JSON at line 2, column 15"),
        ("string", '{"source":"a","source":"b","target":"c"}', "body: not NDJSON: JSON parse error: Column(/source) was specified twice"),
        ("integer", '{"source":1.5,"target":1}', f"source[1]: {EXPECTED_INTEGER} the number 1.5"),
        ("integer", '{"source":true,"target":1}', f"source[1]: {EXPECTED_INTEGER} true"),
        ("integer", '{"source":1,"target":9223372036854775808}', f"target[1]: {EXPECTED_INTEGER} the number 9223372036854775808"),
    ],
)  # fmt: skip
def test_ndjson_that_is_wrong_is_refused_by_field_and_line(
    kind: KeyKind, line: str, message: str
) -> None:
    good = {"string": '{"source":"a","target":"b"}', "integer": '{"source":1,"target":2}'}[kind]
    assert refusal(NDJSON, f"{good}\n{line}\n".encode(), kind).startswith(message)


@pytest.mark.parametrize("blank", ["", "\n", " \n", "\r\n\t\n"])
def test_ndjson_with_two_objects_in_a_line_is_refused(blank: str) -> None:
    good = '{"source":"a","target":"b"}'
    body = f"{blank}{good}\n{blank}{good} {good}\n{blank}"
    assert refusal(NDJSON, body.encode(), "string").startswith("body[1]: malformed JSON at line ")
    fine = f"{blank}{good}\n{blank}{good}\n{blank}{good}"
    assert lists(decode_batch(NDJSON, fine.encode(), "string"))[:2] == [["a"] * 3, ["b"] * 3]


def test_csv_rows_are_edges() -> None:
    body = b'source,target,operation\na,"b,\nc",insert\n\nNA, d,delete\n'
    columns = decode_batch("text/csv; header=present", body, "string")
    assert lists(columns) == [["a"], ["b,\nc"], ["NA"], [" d"], []]
    assert lists(decode_batch("text/csv", b"target,source\n1,2\n", "integer"))[:2] == [[2], [1]]


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("string", b"", "body: expected a header source,target[,operation], got nothing"),
        ("string", b"a,b\nc,d\n", "a: unknown column; expected source, target and operation"),
        ("string", b"source\na\n", "target: missing column; got source"),
        ("string", b"source,target,source\na,b,c\n", "source: expected one column, got 2"),
        ("string", b"source,target\na,b\nc\n", "body[1]: expected 2 columns, as in the header, got 1"),
        ("string", b"source,target\na,b\nc,\n", f'target[1]: {EXPECTED_STRING} the string ""'),
        ("string", b"source,target\na,\xff\n", "body: not UTF-8 at line 2, byte 3: invalid start byte"),
        ("string", b"source,target,operation\na,b,\n", 'operation[0]: expected "insert", "delete", "remove" or "replace", got the string ""'),
        ("integer", b"source,target\n1,2\n3,0x1\n", f'target[1]: {EXPECTED_INTEGER} the string "0x1"'),
        ("integer", b"source,target\n1,\x1c2\n", f'target[0]: {EXPECTED_INTEGER} the string "\\u001c2"'),
        ("integer", b"source,target\n1\xc2\xa0,2\n", f'source[0]: {EXPECTED_INTEGER} the string "1\xa0"'),
        ("integer", b"source,target\n1,2\n-0XFF,1\n", f'source[1]: {EXPECTED_INTEGER} the string "-0XFF"'),
        ("integer", b"source,target\n1,2\n3,x\n", f'target[1]: {EXPECTED_INTEGER} the string "x"'),
        ("integer", b"source,target\n1.0,2\n", f'source[0]: {EXPECTED_INTEGER} the string "1.0"'),
        ("integer", b"source,target\n,2\n", f'source[0]: {EXPECTED_INTEGER} the string ""'),
    ],
)  # fmt: skip
def test_csv_that_is_wrong_is_refused_by_column_and_row(
    kind: KeyKind, body: bytes, message: str
) -> None:
    assert refusal("text/csv", body, kind) == message


@pytest.mark.parametrize(
    "arrow_type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)  # fmt: skip
def test_arrow_columns_of_any_string_type_are_edges(arrow_type: pa.DataType) -> None:
    values = pa.array(["a", "b", "a"]).cast(arrow_type)
    operations = pa.array(["insert", "delete", "insert"]).dictionary_encode()
    body = arrow_stream(source=values, target=values, operation=operations)
    assert lists(decode_batch(ARROW, body, "string")) == [["a", "a"], ["a", "a"], ["b"], ["b"], []]


@pytest.mark.parametrize("arrow_type", [pa.int8(), pa.int64(), pa.uint32(), pa.uint64()])
def test_arrow_columns_of_any_integer_type_are_edges(arrow_type: pa.DataType) -> None:
    body = arrow_stream(source=pa.array([1, 2], arrow_type), target=pa.array([2, 3], arrow_type))
    columns = decode_batch(ARROW, body, "integer")
    assert lists(columns) == [[1, 2], [2, 3], [], [], []]
    assert columns.insert_sources.type == pa.int64()


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        ("string", {"source": pa.array(["a", None]), "target": pa.array(["b", "c"])}, f"source[1]: {EXPECTED_STRING} null"),
        ("string", {"source": pa.array(["a", ""]), "target": pa.array(["b", "c"])}, f'source[1]: {EXPECTED_STRING} the string ""'),
        ("string", {"source": pa.array([1]), "target": pa.array(["b"])}, "source: expected a column of strings, got int64"),
        ("integer", {"source": pa.array([1.0]), "target": pa.array([1])}, "source: expected a column of integers, got double"),
        ("integer", {"source": pa.array([True]), "target": pa.array([1])}, "source: expected a column of integers, got bool"),
        ("integer", {"source": pa.array([1, 2**63], pa.uint64()), "target": pa.array([1, 2])}, f"source[1]: {EXPECTED_INTEGER} the number 9223372036854775808"),
        ("integer", {"source": pa.array([1])}, "target: missing column; got source"),
        ("integer", {"source": pa.array([1]), "target": pa.array([1]), "operation": pa.array([1])}, 'operation: expected a column of "insert", "delete", "remove" or "replace", got int64'),
        ("integer", {"source": pa.array([1]), "target": pa.array([1]), "operation": pa.array([None], pa.string())}, 'operation[0]: expected "insert", "delete", "remove" or "replace", got null'),
    ],
)  # fmt: skip
def test_arrow_that_is_wrong_is_refused_by_column_and_row(
    kind: KeyKind, columns: dict[str, pa.Array], message: str
) -> None:
    assert refusal(ARROW, arrow_stream(**columns), kind) == message


def test_arrow_with_damaged_bytes_is_refused() -> None:
    whole = arrow_stream(source=pa.array(["abc"] * 9), target=pa.array(["def"] * 9))
    assert refusal(ARROW, b"junk").startswith("body: expected an Arrow IPC stream: ")
    assert refusal(ARROW, whole[: len(whole) // 2]).startswith(
        "body: expected an Arrow IPC stream: "
    )
    not_text = whole.replace(b"abcabc", b"ab\xffabc")
    assert refusal(ARROW, not_text).startswith("body: expected an Arrow IPC stream: ")
    negative_offset = whole.replace(b"\x03\0\0\0\x06\0\0\0", b"\x03\0\0\0\xff\xff\xff\xff", 1)
    assert negative_offset != whole
    assert refusal(ARROW, negative_offset).startswith("body: expected an Arrow IPC stream: ")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "multipart/form-data; boundary=x", "text/csv; charset=latin-1"]
)
def test_other_formats_and_charsets_are_refused_with_what_is_accepted(content_type: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        decode_batch(content_type, b"{}", "string")
    assert caught.value.content_type == content_type
    assert caught.value.accepted == ("application/json", NDJSON, "text/csv", ARROW, PARQUET)
    assert str(caught.value) == (
        f"content type '{content_type}' is not supported; expected one of application/json, "
        "application/x-ndjson, text/csv, application/vnd.apache.arrow.stream, "
        "application/vnd.apache.parquet, in UTF-8"
    )


@pytest.mark.parametrize("count", [5, 500])
@pytest.mark.parametrize("kind", ["string", "integer"])
def test_a_payload_decodes_to_its_batch(kind: KeyKind, count: int) -> None:
    column = pa.array(range(-2, count - 2)).cast(ARROW_TYPES[kind])
    columns = EdgeColumns(
        column, column.slice(0), column.slice(1, 2), column.slice(2, 2), column[:0]
    )
    payload = encode_batch(columns)
    assert payload.startswith(b"{") == (count == 5), "small batches are JSON, others are Arrow"
    assert decode_payload(payload) == columns
    assert encode_batch(decode_payload(payload)) == payload


@pytest.mark.parametrize(("lowest", "width"), [(-1, 8), (0, 4), (2**32 - 500, 4), (2**32 - 499, 8)])
def test_a_payload_has_integers_in_four_bytes_if_all_of_a_column_fit(
    lowest: int, width: int
) -> None:
    column, none = pa.array(range(lowest, lowest + 500), pa.int64()), pa.array([], pa.int64())
    payload = encode_batch(EdgeColumns(column, column[::-1], none, none, none))
    assert 2 * 500 * width < len(payload) < 2 * 500 * width + 2_000
    columns = decode_payload(payload)
    assert columns.insert_sources.equals(column)
    assert columns.insert_targets.equals(column[::-1])
    assert columns.nbytes == 2 * 500 * 8
    names = ["insert_sources", "insert_targets", "delete_sources", "delete_targets", "vertices"]
    arrays = [column, column[::-1], none, none, none]
    lists = [pa.array([each.to_pylist()], pa.list_(pa.int64())) for each in arrays]
    of_layout_5 = dict(zip(names, lists, strict=True))
    assert decode_payload(arrow_stream(**of_layout_5)) == columns


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"{}",
        b'{"keys":"float"}',
        b'{"keys":["string"]}',
        b'{"keys":"string","insert":[["a","b"]]}',
        b'{"keys":"string","insert_sources":"a","insert_targets":["b"]}',
        b'{"keys":"string","insert_sources":[1],"insert_targets":["b"]}',
        b'{"keys":"integer","vertices":["a"]}',
    ],
)
def test_an_invalid_small_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError, match=r"^payload"):
        decode_payload(payload)


def test_an_invalid_payload_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^payload: expected an Arrow IPC stream: "):
        decode_payload(b"junk")
    with pytest.raises(
        FormatError, match=r"^payload: expected one row of insert_sources, insert_targets, "
    ):
        decode_payload(arrow_stream(source=pa.array(["a"])))


@pytest.mark.parametrize(
    "body", [b"null", b" null\n", b'{"source": "a", "target": "b"}\nnull', b"{}null", b"[null]"]
)
def test_a_line_that_is_null_is_refused(body: bytes) -> None:
    """pyarrow's JSON reader has a segmentation fault there."""
    with pytest.raises(FormatError):
        decode_batch("application/x-ndjson", body, "string")


def test_a_header_of_many_columns_is_refused_before_they_are_made() -> None:
    body = b"source,target" + b",x" * 100_000 + b"\na,b\n"
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with pytest.raises(FormatError, match="x: unknown column"):
        decode_batch("text/csv", body, "string")
    assert pool.max_memory() < before + (16 << 20)


def test_a_cell_too_long_for_the_search_for_errors_is_refused() -> None:
    with pytest.raises(FormatError, match="body: not CSV: field larger than"):
        decode_batch("text/csv", b"source,target\n" + b"a" * 200_000 + b",b\nc\n", "string")
