"""Personalized queries whose seeds or answers are Arrow streams."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pyarrow as pa
import pytest

from liverank_service.http.routes import personalized
from tests.service.http.test_personalized import EDGES
from tests.service.http.test_problems import problem
from tests.service.server import Server

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    created = server.new_graph()
    server.http.post(f"{created}/batches", json={"insert": EDGES}).raise_for_status()
    chosen = [f"v{number}" for number in range(0, 60, 3)]
    server.http.put(f"{created}/sets/third", json={"vertices": chosen}).raise_for_status()
    return created


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return bytes(sink.getvalue())


def asked(
    server: Server, path: str, table: Any, accept: str = ARROW, **parameters: Any
) -> httpx.Response:
    body = table if isinstance(table, bytes) else stream(pa.table(table))
    headers = {"Content-Type": f"{ARROW}; charset=utf-8", "Accept": accept}
    return server.http.post(
        f"{path}/personalized", content=body, headers=headers, params=parameters
    )


def read(answer: httpx.Response) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows, and what the metadata says of the answers."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.content).read_all()
    return table.to_pylist(), json.loads(table.schema.metadata[b"liverank.answers"])


def in_json(server: Server, path: str, queries: list[dict[str, Any]]) -> dict[str, Any]:
    answer = server.http.post(f"{path}/personalized", json={"queries": queries})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@pytest.mark.parametrize("labels", [["b", "a", "c"], [30, -2, 7]])
def test_seeds_and_answers_in_columns_are_those_in_json(
    server: Server, path: str, labels: list[Any]
) -> None:
    """The seeds of queries may be mixed; the order of the queries is that of first appearance."""
    seeds = [{"v0": 2.0, "v1": 1.0}, {"v5": 1.0}, {"v7": 0.1, "v8": 0.2, "v9": 0.7, "nobody": 4.0}]
    rows = [
        (label, key, weight)
        for label, one in zip(labels, seeds, strict=True)
        for key, weight in one.items()
    ]
    order = [0, 2, 3, 1, 6, 4, 5]
    query, seed, weight = zip(*(rows[place] for place in order), strict=True)
    options: dict[str, Any] = {"damping": 0.5, "among": "third", "unknown": "ignore", "k": 4}
    table = {"weight": weight, "query": query, "seed": pa.array(seed).dictionary_encode()}
    found, facts = read(asked(server, path, table, **options))
    expected = in_json(server, path, [{"seeds": one, **options} for one in seeds])
    assert [fact.pop("query") for fact in facts] == labels
    for label, fact, one in zip(labels, facts, expected["answers"], strict=True):
        places = [{"query": label, **place} for place in one.pop("ranks")]
        own = [row for row in found if row["query"] == label]
        assert [place["vertex"] for place in own] == [place["vertex"] for place in places]
        for row, place in zip(own, places, strict=True):
            assert row["rank"] == pytest.approx(place["rank"], abs=2e-6)
        assert fact["ignored"] == one["ignored"]
        assert fact["error_bound"] <= 1e-6
    # either form of the seeds has either form of the answers
    answer = asked(server, path, table, "application/json", **options).json()
    assert [one["ignored"] for one in answer["answers"]] == [[], [], ["nobody"]]
    body = {"queries": [{"seeds": one, **options} for one in seeds]}
    both = server.http.post(f"{path}/personalized", json=body, headers={"Accept": ARROW})
    assert [row["query"] for row in read(both)[0]] == [0] * 4 + [1] * 4 + [2] * 4


def test_one_query_needs_neither_labels_nor_weights(server: Server, path: str) -> None:
    found, (fact,) = read(asked(server, path, {"seed": ["v3", "v4", "v3"]}, k=2))
    (expected,) = in_json(server, path, [{"seeds": {"v3": 2, "v4": 1}, "k": 2}])["answers"]
    assert [row["vertex"] for row in found] == [one["vertex"] for one in expected["ranks"]]
    assert [row["rank"] for row in found] == pytest.approx(
        [one["rank"] for one in expected["ranks"]], abs=2e-6
    )
    assert fact["query"] == 0
    nothing, (fact,) = read(asked(server, path, {"seed": ["nobody"]}, unknown="ignore"))
    assert (nothing, fact["ignored"]) == ([], ["nobody"])


def test_the_trace_of_a_published_query_is_beside_its_columns(server: Server, path: str) -> None:
    seeds = {"seed": ["v1", "v2"], "query": [7, 8]}
    parameters: dict[str, Any] = {"form": "published", "method": "pushopt", "target_error": 0.1}
    rows, answers = read(asked(server, path, seeds, **parameters, trace=True))
    for answer in answers:
        assert answer["iterations"] == len(answer["trace"]["steps"])
        assert answer["method"] == "pushopt"
    again, untraced = read(asked(server, path, seeds, **parameters))
    assert all("trace" not in answer for answer in untraced)
    assert [row["vertex"] for row in again] == [row["vertex"] for row in rows]


def test_integer_keys_are_integers_in_columns(server: Server) -> None:
    path = server.new_graph(keys="integer")
    server.http.post(f"{path}/batches", json={"insert": [[-5, 7], [7, 9]]}).raise_for_status()
    for kind in (pa.int64(), pa.int8()):
        found, _ = read(asked(server, path, {"seed": pa.array([-5, 7], kind)}, k=1))
        assert found[0]["vertex"] == 7
    wrong = problem(asked(server, path, {"seed": ["-5"]}), 422)
    assert (wrong["field"], wrong["detail"]) == (
        "seed",
        "seed: expected a column of integers, got string",
    )


@pytest.mark.parametrize(
    ("table", "parameters", "field", "index"),
    [
        ({"seeds": ["v0"]}, {}, "seeds", None),
        ({"weight": [1.0]}, {}, "seed", None),
        ({"seed": ["v0", None]}, {}, "seed", 1),
        ({"seed": ["v0", ""]}, {}, "seed", 1),
        ({"seed": [1, 2]}, {}, "seed", None),
        ({"seed": ["v0", "v1"], "weight": [1.0, -1.0]}, {}, "weight", 1),
        ({"seed": ["v0", "v1"], "weight": [1.0, float("nan")]}, {}, "weight", 1),
        ({"seed": ["v0", "v1"], "weight": [float("inf"), 1.0]}, {}, "weight", 0),
        ({"seed": ["v0", "v1"], "weight": [1.0, None]}, {}, "weight", 1),
        ({"seed": ["v0"], "weight": ["much"]}, {}, "weight", None),
        ({"seed": ["v0"], "query": [1.5]}, {}, "query", None),
        ({"seed": ["v0", "v1"], "query": ["a", None]}, {}, "query", 1),
        ({"seed": pa.array([], pa.string()), "query": pa.array([], pa.int8())}, {}, "query", None),
        ({"seed": pa.array([], pa.string())}, {}, "query[0].seeds", None),
        (
            {"seed": ["v0", "v1"], "query": ["a", "b"], "weight": [1, 0]},
            {},
            "query['b'].seeds",
            None,
        ),
        ({"seed": ["v0"], "query": ["a"]}, {"method": "walk"}, "query['a'].method", None),
        ({"seed": ["v0"]}, {"damping": 2}, "query[0].damping", None),
        ({"seed": ["v0"]}, {"k": 0}, "k", None),
        ({"seed": ["v0"]}, {"unknown": "drop"}, "unknown", None),
        ({"seed": ["v0"], "query": [1]}, {"depth": 3}, "depth", None),
        (b"no stream", {}, "body", None),
    ],
)
def test_what_is_wrong_is_named_by_column_and_row(
    server: Server, path: str, table: Any, parameters: dict[str, Any], field: str, index: int | None
) -> None:
    document = problem(asked(server, path, table, **parameters), 422)
    assert (document["field"], document.get("index")) == (field, index)


def test_what_does_not_exist_is_named_with_its_query(server: Server, path: str) -> None:
    table = {"seed": ["v0", "nobody"], "query": [8, 9]}
    document = problem(asked(server, path, table), 404)
    assert (document["field"], document["value"]) == ("query[9].seeds", "nobody")
    assert problem(asked(server, path, table, among="none"), 404)["field"] == "query[8].among"


def test_parameters_of_columns_are_refused_beside_json(server: Server, path: str) -> None:
    body = {"queries": [{"seeds": {"v0": 1}}]}
    answer = server.http.post(f"{path}/personalized", json=body, params={"k": 3})
    assert problem(answer, 422)["field"] == "k"


def test_an_answer_that_no_one_accepts_is_refused(server: Server, path: str) -> None:
    answer = asked(server, path, {"seed": ["v0"]}, "text/csv")
    assert problem(answer, 406)["accepted"] == ["application/json", ARROW]


def test_columns_have_the_limits_of_bodies(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"seed": pa.array(["v" * 60_000, "w"]).take(pa.array([0, 1, 0]))})
    assert problem(asked(server, path, stream(table)), 413)
    short = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int8()), pa.array(["v" * 200]))
    assert problem(asked(server, path, {"seed": short}), 413)
    monkeypatch.setattr(personalized, "MAX_QUERIES", 3)
    document = problem(asked(server, path, {"seed": ["v0"] * 4, "query": [1, 2, 3, 4]}), 422)
    assert document["detail"] == "query: expected at most 3 queries, got 4"


def test_a_duplicate_seed_in_json_is_found_however_it_is_written(server: Server, path: str) -> None:
    seeds = ", ".join(f'"v{number}": 1' for number in range(50))
    for twice in ('"v7": 2', '"v7" : 2', '"v7"\n:2', '"\\u0076\\u0037": 2'):
        body = f'{{"queries": [{{"seeds": {{{seeds}, {twice}}}}}]}}'
        answer = server.http.post(f"{path}/personalized", content=body)
        document = problem(answer, 422)
        assert (document["field"], document["detail"]) == ("v7", "v7: duplicate member")
    for once in ('"a\\":b": 0', '"\\": ": 0'):
        body = f'{{"queries": [{{"unknown": "ignore", "seeds": {{{seeds}, {once}}}}}]}}'
        answer = server.http.post(f"{path}/personalized", content=body)
        assert answer.json()["answers"][0]["ignored"] == list(json.loads(f"{{{once}}}"))
    # one more colon in a text, one less by a space
    body = f'{{"queries": [{{"seeds": {{{seeds}, "v7" : 2, "a\\":b": 0}}}}]}}'
    assert problem(server.http.post(f"{path}/personalized", content=body), 422)["field"] == "v7"
