"""Messages to batches, without a broker and without a server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverank.choices import OnConflict
from liverank.client.responses import GraphOptions
from liverank.errors import InvalidInput
from liverank.sources.broker import Address, credentials_of
from liverank.sources.messages import (
    MAX_EDGE_MIB,
    Columns,
    EdgeChange,
    Form,
    InvalidMessage,
    Message,
    Reader,
)
from liverank.sources.settling import loses_newest_time, settled

OPTIONS = GraphOptions(0.85, "uniform", "auto", 1e-6, "float64", "string")
TIME = 1_700_000_000.0


def options(**changes: Any) -> GraphOptions:
    return msgspec.structs.replace(OPTIONS, **changes)


def read(body: Any, form: Form = "edge", columns: Columns | None = None, **given: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reader = Reader(form, options(**given), columns or Columns())
    return reader.read(Message("1", content, TIME))


Weights = dict[tuple[str, str], float]


def apply(weights: Weights, changes: list[EdgeChange], on_conflict: str, directed: bool) -> None:
    """As the server applies one batch: deletions first."""

    def edge_of(change: EdgeChange) -> tuple[str, str]:
        ends = (str(change.source), str(change.target))
        return ends if directed else (min(ends), max(ends))

    for change in changes:
        if change.operation == "delete":
            weights.pop(edge_of(change), None)
    for change in changes:
        if change.operation == "insert":
            edge, weight = edge_of(change), change.weight or 0.0
            weights[edge] = weight + (weights.get(edge, 0.0) if on_conflict == "add" else 0.0)


def rows(body: bytes) -> list[EdgeChange]:
    """The batch of a body."""
    document = json.loads(body)
    delete = document.get("delete", {"source": [], "target": []})
    insert = document.get("insert", {"source": [], "target": [], "weight": []})
    pairs = zip(delete["source"], delete["target"], strict=True)
    triples = zip(insert["source"], insert["target"], insert["weight"], strict=True)
    return [
        *(EdgeChange(*pair, "delete") for pair in pairs),
        *(EdgeChange(source, target, "insert", weight) for source, target, weight in triples),
    ]


vertices = st.sampled_from("abc")
operations = st.sampled_from(["insert", "delete"])
some_changes = st.lists(
    st.builds(EdgeChange, vertices, vertices, operations, st.integers(1, 9).map(float))
)


@given(some_changes, some_changes, st.sampled_from(["replace", "add"]), st.booleans())
def test_a_settled_batch_does_what_its_changes_do_one_after_the_other(
    before: list[EdgeChange], changes: list[EdgeChange], on_conflict: OnConflict, directed: bool
) -> None:
    expected: Weights = {}
    for change in before:
        apply(expected, [change], on_conflict, directed)
    found = dict(expected)
    for change in changes:
        apply(expected, [change], on_conflict, directed)
    batch = rows(settled(changes, on_conflict, directed))
    apply(found, batch, on_conflict, directed)
    assert found == expected


timed_changes = st.lists(
    st.builds(EdgeChange, vertices, vertices, operations, st.none(), st.integers(1, 9).map(float))
)


@given(timed_changes, st.sampled_from(["replace", "add"]), st.booleans())
def test_a_settled_batch_makes_the_same_vertices_and_moves_the_clock(
    changes: list[EdgeChange], on_conflict: OnConflict, directed: bool
) -> None:
    for change in changes:
        if change.operation == "delete":
            change.time = None
    inserted = [change for change in changes if change.operation == "insert"]
    document = json.loads(settled(changes, on_conflict, directed))
    insert = document.get("insert", {"source": [], "target": [], "time": []})
    ends = [*insert["source"], *insert["target"], *document.get("vertices", [])]
    assert set(ends) == {end for change in inserted for end in (change.source, change.target)}
    assert len(document.get("vertices", [])) == len(set(document.get("vertices", [])))
    newest = max((change.time for change in inserted if change.time is not None), default=None)
    is_lost = max(insert["time"], default=None) != newest
    assert loses_newest_time(changes, directed) == is_lost
    for edge in zip(insert["source"], insert["target"], strict=True):
        assert edge in [(change.source, change.target) for change in inserted]


def test_of_repeats_only_the_last_is_sent_unless_an_earlier_one_is_younger() -> None:
    for times, sent in (([1.0, 2.0], [2.0]), ([2.0, 1.0], [2.0, 1.0])):
        changes = [EdgeChange("a", "b", "insert", None, time) for time in times]
        assert json.loads(settled(changes, "replace", True))["insert"]["time"] == sent


def test_no_changes_are_an_empty_batch() -> None:
    assert settled([], "replace", True) == b"{}"
    unweighted = settled([EdgeChange("a", "b"), EdgeChange("a", "b")], "replace", True)
    assert json.loads(unweighted) == {"insert": {"source": ["a"], "target": ["b"]}}


def test_single_edges_get_what_the_graph_has() -> None:
    edge = {"source": "a", "target": "b"}
    assert read(edge) == [EdgeChange("a", "b")]
    assert read({**edge, "operation": "delete"}) == [EdgeChange("a", "b", "delete")]
    assert read(edge, weighted=True) == [EdgeChange("a", "b", "insert", 1.0)]
    assert read({**edge, "weight": 3}, weighted=True) == [EdgeChange("a", "b", "insert", 3.0)]
    assert read(edge, window=60.0) == [EdgeChange("a", "b", "insert", None, TIME)]
    assert read({**edge, "time": 7}, window=60.0) == [EdgeChange("a", "b", "insert", None, 7.0)]
    assert read({"source": 1, "target": -2}, keys="integer") == [EdgeChange(1, -2)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "invalid message"),
        (b"\xff", "invalid message"),
        (b'{"source": "\xff", "target": "b"}', "invalid message"),
        (b'{"source": "\\ud800", "target": "b"}', "invalid message"),
        (b'{"source": ' + b"[" * 100_000, "invalid message"),
        (
            b" " * (MAX_EDGE_MIB << 20) + b"1",
            "message of 16,777,217 bytes exceeds the 16 MiB limit",
        ),
        ([1, 2], "Expected `object`, got `array`"),
        ({"source": "a"}, "missing required field `target`"),
        ({"source": "a", "target": "b", "wieght": 1}, "unknown field `wieght`"),
        ({"source": "a", "target": ""}, "target: expected a non-empty string, got ''"),
        ({"source": True, "target": "b"}, "source"),
        ({"source": "a", "target": "b", "operation": "drop"}, "Invalid enum value 'drop'"),
        ({"source": "a", "target": "b", "weight": 1}, "weight: the graph has none, got 1.0"),
        ({"source": "a", "target": "b", "time": 1}, "time: the graph has none, got 1.0"),
        (
            {"source": "a", "target": "b", "weight": 1, "operation": "delete"},
            "a deletion has no weight and no time",
        ),
    ],
)
def test_what_cannot_be_an_edge_is_said(body: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read(body)
    assert reason in str(caught.value)


bodies = st.one_of(
    st.builds(
        lambda *members: json.dumps(dict(member for member in members if member)).encode(),
        st.tuples(st.just("source"), st.sampled_from(["a", "\n", "", 1, None])),
        st.tuples(st.just("target"), st.sampled_from(["b", "ü"])),
        st.none() | st.tuples(st.just("operation"), st.sampled_from(["insert", "delete", "x"])),
        st.none() | st.tuples(st.just("weight"), st.sampled_from([2, 0.5, None, "1"])),
        st.none() | st.tuples(st.just("time"), st.sampled_from([5, None])),
    ),
    st.sampled_from(
        [b"", b" ", b"\n", b"{}", b'{"source": "a",\n"target": "b"}', b"null", b"\xff"]
    ),
    st.just(b'{"source": "a", "target": "b"}\n{"source": "a", "target": "b"}'),
    st.just(b'{"source": "a", "target": "b"}'),
)


@given(st.lists(bodies, max_size=6), st.booleans(), st.sampled_from([None, 60.0]))
def test_messages_read_together_say_what_each_says(
    contents: list[bytes], weighted: bool, window: float | None
) -> None:
    reader = Reader("edge", options(weighted=weighted, window=window), Columns())
    messages = [Message(str(n), body, TIME + n) for n, body in enumerate(contents)]
    try:
        expected = [change for message in messages for change in reader.read(message)]
    except InvalidMessage:
        with pytest.raises(InvalidMessage):
            reader.read_all(messages)
    else:
        found = reader.read_all(messages)
        assert list(map(msgspec.structs.astuple, found)) == list(
            map(msgspec.structs.astuple, expected)
        )


def test_valid_messages_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader("edge", options(weighted=True), Columns())
    monkeypatch.setattr(Reader, "read", None)
    edges = [{"source": "a", "target": "b"}, {"source": "a", "target": "c", "operation": "delete"}]
    found = reader.read_all([Message("1", json.dumps(edge).encode(), TIME) for edge in edges])
    assert [(edge.target, edge.operation, edge.weight) for edge in found] == [
        ("b", "insert", 1.0),
        ("c", "delete", None),
    ]


TABLE = Columns("follower", "followed", "strength", "since")


def row(operation: str, before: Any, after: Any) -> dict[str, Any]:
    def of(values: Any) -> Any:
        names = ("follower", "followed", "strength", "since")
        return values and dict(zip(names, values, strict=True))

    return {"op": operation, "before": of(before), "after": of(after), "ts_ms": 1}


def test_changed_rows_are_changes_of_edges() -> None:
    kept: dict[str, Any] = {"columns": TABLE, "weighted": True, "window": 9.0}
    first, second = ("a", "b", 2, 5), ("a", "c", None, None)
    inserted = EdgeChange("a", "b", "insert", 2.0, 5.0)
    assert read(row("c", None, first), "debezium", **kept) == [inserted]
    assert read({"payload": row("r", None, first)}, "debezium", **kept) == [inserted]
    assert read(row("d", first, None), "debezium", **kept) == [EdgeChange("a", "b", "delete")]
    assert read(row("u", first, second), "debezium", **kept) == [
        EdgeChange("a", "b", "delete"),
        EdgeChange("a", "c", "insert", 1.0, TIME),
    ]
    for tombstone in (b"", b"null", b'{"schema": {}, "payload": null}'):
        assert read(tombstone, "debezium", **kept) == []


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (row("t", None, None), "op: expected c, r, u or d, got 't'"),
        ([], "op: expected c, r, u or d, got None"),
        (row("u", None, ("a", "b", 1, 1)), "before: expected a row, got None"),
        ({"op": "c", "after": {"follower": "a"}}, "after: expected a column 'followed'"),
        (row("c", None, ("a", "b", "x", 1)), "after.strength: expected a number, got 'x'"),
        (row("c", None, (1, "b", 1, 1)), "source: expected a non-empty string, got 1"),
        (row("c", None, ("a", "b", 10**400, 1)), "invalid message"),
    ],
)
def test_what_cannot_be_a_row_is_said(document: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read(document, "debezium", TABLE, weighted=True, window=9.0)
    assert reason in str(caught.value)


def test_credentials_come_from_a_file_or_the_environment(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text("me:se:cret\n")
    assert credentials_of(file) == ("me", "se:cret")
    monkeypatch.setenv("LIVERANK_SOURCE_CREDENTIALS", "other:text")
    assert credentials_of(None) == ("other", "text")
    monkeypatch.delenv("LIVERANK_SOURCE_CREDENTIALS")
    assert credentials_of(None) is None
    file.write_text("secret")
    with pytest.raises(InvalidInput) as caught:
        credentials_of(file)
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        Address("redis://me:secret@127.0.0.1", "edges")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Address("redis://localhost", "edges", ("me", "secret")))
