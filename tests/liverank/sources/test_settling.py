"""Messages to batches, without a broker and without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
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
    Replacement,
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


def edge_of(source: Any, target: Any, directed: bool) -> tuple[str, str]:
    ends = (str(source), str(target))
    return ends if directed else (min(ends), max(ends))


def apply(weights: Weights, document: Any, on_conflict: str, directed: bool) -> None:
    """As the server applies one batch: lists and deletions first."""
    adds = on_conflict == "add"

    def edge(row: Sequence[Any]) -> tuple[str, str]:
        return edge_of(row[0], row[1], directed)

    lists = document.get("replace", {})
    for old in list(weights):
        if any(end in lists for end in (old[:1] if directed else old)):
            del weights[old]
    rows = [
        (vertex, *(target if isinstance(target, list | tuple) else (target, 1.0)))
        for vertex, targets in lists.items()
        for target in targets
    ]
    present = dict(weights)
    for row in rows_of(document.get("delete", {})):
        assert row[2] is None or (adds and not lists)
        if row[2] is None:
            weights.pop(edge(row), None)
        elif edge(row) in weights:
            weights[edge(row)] -= row[2]
    for gone in [each for each in weights if weights[each] <= 0.0 and each in present]:
        del weights[gone]
    for row in [*rows, *rows_of(document.get("insert", {}))]:
        weights[edge(row)] = row[2] + (weights.get(edge(row), 0.0) if adds else 0.0)


def rows_of(columns: Any) -> list[tuple[Any, Any, Any]]:
    """Source, target and weight of columns of edges."""
    ends = columns.get("source", []), columns.get("target", [])
    weights = columns.get("weight", [None] * len(ends[0]))
    return list(zip(*ends, weights, strict=True))


def document_of(message: Any) -> Any:
    """A message as a batch of its own."""
    if "replace" in message:
        targets = list(zip(message["targets"], message["weights"], strict=True))
        return {"replace": {message["replace"]: targets}}
    columns = {name: [message[name]] for name in ("source", "target", "weight") if name in message}
    return {message["operation"]: columns}


vertices = st.sampled_from("abc")
weights = st.integers(1, 5).map(float)
edges = st.fixed_dictionaries({"source": vertices, "target": vertices})
insertions = st.builds(lambda e, w: {**e, "operation": "insert", "weight": w}, edges, weights)
deletions = st.builds(lambda e: {**e, "operation": "delete"}, edges)
subtractions = st.builds(lambda e, w: {**e, "operation": "delete", "weight": w}, edges, weights)
new_lists = st.builds(
    lambda vertex, rows: {
        "replace": vertex,
        "targets": [target for target, _ in rows],
        "weights": [weight for _, weight in rows],
    },
    vertices,
    st.lists(st.tuples(vertices, weights), max_size=3),
)
OF = {
    "replace": st.lists(insertions | deletions | new_lists, max_size=9),
    "add": st.lists(insertions | deletions | subtractions | new_lists, max_size=9),
}
cases = st.sampled_from(["replace", "add"]).flatmap(
    lambda kind: st.tuples(st.just(kind), OF[kind], OF[kind])
)


@settings(max_examples=400)
@given(cases, st.booleans())
def test_settled_batches_do_what_their_messages_do_one_after_the_other(
    case: tuple[OnConflict, list[Any], list[Any]], directed: bool
) -> None:
    on_conflict, before, given = case
    expected: Weights = {}
    for message in before:
        apply(expected, document_of(message), on_conflict, directed)
    found = dict(expected)
    for message in given:
        apply(expected, document_of(message), on_conflict, directed)
    reader = Reader("edge", options(weighted=True), Columns(), on_conflict == "add")
    messages = [Message("1", json.dumps(message).encode(), TIME) for message in given]

    def take(group: list[Message]) -> None:
        body = settled(reader.read_all(group), on_conflict, directed)
        if body is None:  # as the consumer does
            assert len(group) > 1
            assert on_conflict == "add"
            assert any(b"replace" in message.body for message in group)
            take(group[: len(group) // 2])
            take(group[len(group) // 2 :])
        else:
            apply(found, json.loads(body), on_conflict, directed)

    take(messages)
    assert found == expected


def test_what_is_taken_back_in_a_group_is_not_sent() -> None:
    changes = [
        EdgeChange("a", "b", "insert", 2.0),
        EdgeChange("a", "b", "insert", 3.0),
        EdgeChange("a", "b", "delete", 4.0),
        EdgeChange("c", "d", "insert", 2.0),
        EdgeChange("c", "d", "delete", 2.0),
        EdgeChange("e", "f", "insert", 1.0),
        EdgeChange("e", "f", "delete", 3.0),
    ]
    assert json.loads(settled(changes, "add", True) or b"") == {
        "insert": {"source": ["a"], "target": ["b"], "weight": [1.0]},
        "delete": {"source": ["e"], "target": ["f"], "weight": [2.0]},
        "vertices": ["c", "d", "e", "f"],
    }


def test_where_edges_have_times_weights_are_not_taken_from_each_other() -> None:
    given, taken = (EdgeChange("a", "b", operation, 2.0, 5.0) for operation in ("insert", "delete"))
    assert settled([given, taken], "add", True) is None
    assert json.loads(settled([taken, given], "add", True) or b"") == {
        "insert": {"source": ["a"], "target": ["b"], "weight": [2.0], "time": [5.0]},
        "delete": {"source": ["a"], "target": ["b"], "weight": [2.0], "time": [5.0]},
    }


operations = st.sampled_from(["insert", "delete"])
timed_changes = st.lists(
    st.builds(EdgeChange, vertices, vertices, operations, st.none(), st.integers(1, 9).map(float))
    | st.builds(Replacement, vertices)
)


@given(timed_changes, st.sampled_from(["replace", "add"]), st.booleans())
def test_a_settled_batch_makes_the_same_vertices_and_moves_the_clock(
    changes: list[EdgeChange | Replacement], on_conflict: OnConflict, directed: bool
) -> None:
    for change in changes:
        if isinstance(change, EdgeChange) and change.operation == "delete":
            change.time = None
    inserted = [
        change
        for change in changes
        if isinstance(change, EdgeChange) and change.operation == "insert"
    ]
    document = json.loads(settled(changes, on_conflict, directed) or b"")
    insert = document.get("insert", {"source": [], "target": [], "time": []})
    for vertex, targets in document.get("replace", {}).items():
        for target, _, time in targets:
            for name, value in (("source", vertex), ("target", target), ("time", time)):
                insert[name].append(value)
    ends = [*insert["source"], *insert["target"], *document.get("vertices", [])]
    assert set(ends) == {end for change in inserted for end in (change.source, change.target)}
    assert len(document.get("vertices", [])) == len(set(document.get("vertices", [])))
    newest = max((change.time for change in inserted if change.time is not None), default=None)
    is_lost = max(insert["time"], default=None) != newest
    assert loses_newest_time(changes, directed) == is_lost
    sent = [edge_of(change.source, change.target, directed) for change in inserted]
    for edge in zip(insert["source"], insert["target"], strict=True):
        assert edge_of(*edge, directed) in sent


def test_of_repeats_only_the_last_is_sent_unless_an_earlier_one_is_younger() -> None:
    for times, sent in (([1.0, 2.0], [2.0]), ([2.0, 1.0], [2.0, 1.0])):
        changes = [EdgeChange("a", "b", "insert", None, time) for time in times]
        assert json.loads(settled(changes, "replace", True) or b"")["insert"]["time"] == sent


def test_no_changes_are_an_empty_batch() -> None:
    assert settled([], "replace", True) == b"{}"
    unweighted = settled([EdgeChange("a", "b"), EdgeChange("a", "b")], "replace", True)
    assert json.loads(unweighted or b"") == {"insert": {"source": ["a"], "target": ["b"]}}


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
        ({"replace": "a"}, "missing required field `targets`"),
        ({"replace": "", "targets": []}, "replace: expected a non-empty string, got ''"),
        ({"replace": "a", "targets": ["b", 3]}, "target: expected a non-empty string, got 3"),
        ({"replace": "a", "targets": ["b"], "weights": [1]}, "weight: the graph has none, got 1.0"),
        (
            {"replace": "a", "targets": ["b"], "weights": [1, 2]},
            "weights: expected 1 items, as in targets, got 2",
        ),
        (
            {"replace": "a", "targets": ["b"], "wieghts": [1]},
            "unknown field `wieghts`",
        ),
    ],
)
def test_what_cannot_be_an_edge_is_said(body: Any, reason: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        read(body)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("body", "given", "reason"),
    [
        ({"weight": -1}, {}, "weight: expected a finite number above 0, got -1.0"),
        ({"time": 3}, {"half_life": 9.0}, "time: a deletion has one only with a weight, got 3.0"),
        ({"weight": 1, "time": 3}, {"window": 9.0}, "one only where weights decay, got 3.0"),
    ],
)
def test_what_cannot_be_taken_is_said(body: Any, given: Any, reason: str) -> None:
    reader = Reader("edge", options(weighted=True, **given), Columns(), adds=True)
    edge = {"source": "a", "target": "b", "operation": "delete", **body}
    with pytest.raises(InvalidMessage) as caught:
        reader.read(Message("1", json.dumps(edge).encode(), TIME))
    assert reason in str(caught.value)


def test_what_is_taken_has_the_time_of_the_broker_where_weights_decay() -> None:
    edge = {"source": "a", "target": "b", "operation": "delete", "weight": 2}
    kinds: list[tuple[Any, float | None]] = [({}, None), ({"window": 9.0}, None)]
    for kind, time in (*kinds, ({"half_life": 9.0}, TIME)):
        reader = Reader("edge", options(weighted=True, **kind), Columns(), adds=True)
        message = Message("1", json.dumps(edge).encode(), TIME)
        for read in (reader.read(message), reader.read_all([message])):
            assert msgspec.to_builtins(read) == [{**edge, "time": time}]


def test_a_list_is_a_vertex_and_the_insertions_of_its_new_targets() -> None:
    message = {"replace": "a", "targets": ["b", "c"], "weights": [2, 3]}
    assert read(message, weighted=True, window=60.0) == [
        Replacement("a"),
        EdgeChange("a", "b", "insert", 2.0, TIME),
        EdgeChange("a", "c", "insert", 3.0, TIME),
    ]
    assert read({"replace": 1, "targets": []}, keys="integer") == [Replacement(1)]


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
    st.just(b'{"replace": "a", "targets": ["b"]}'),
    st.just(b'{"source": "replace", "target": "b"}'),
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
    assert [msgspec.structs.astuple(edge)[1:4] for edge in found] == [
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
