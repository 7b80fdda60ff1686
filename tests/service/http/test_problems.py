"""Invalid requests get a problem document (RFC 9457) that names the error, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from liverank_gpu import STRATEGIES
from liverank_service.errors import UnknownGraph
from liverank_service.formats.json_body import LARGE_BODY
from liverank_service.http.schemas import Problem
from liverank_service.queries.view import View
from tests.service.server import Server


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of `answer`, with the members of every document checked."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    Problem.model_validate(document)
    assert document["status"] == status
    assert document["type"].startswith("urn:liverank:problem:")
    assert document["instance"] == answer.request.url.path
    return document


@pytest.fixture(scope="module")
def paths(server: Server) -> dict[str, str]:
    return {kind: server.new_graph(keys=kind) for kind in ("string", "integer")}


@pytest.mark.parametrize(
    ("kind", "body", "field", "index"),
    [
        ("string", b"{", "body", None),
        ("string", b'{"insert": [["a", "b"],]}', "body", None),
        ("string", b"[]", "body", None),
        ("string", b"", "body", None),
        ("string", b"\xff\xfe", "body", None),
        ("string", b'{"insert": 5}', "insert", None),
        ("string", b'{"inserts": []}', "inserts", None),
        ("string", b'{"insert": [["a", "b"], ["a", "b", "c"]]}', "insert", 1),
        ("string", b'{"insert": [["a", "b"], ["a"]]}', "insert", 1),
        ("string", b'{"delete": [["a", "b"], ["a", "b"], "ab"]}', "delete", 2),
        ("string", b'{"insert": [["a", "b"], ["a", 5]]}', "insert", 1),
        ("string", b'{"insert": [["a", "b"], ["a", null]]}', "insert", 1),
        ("string", b'{"insert": [["a", "b"], ["a", ""]]}', "insert", 1),
        # A lone surrogate is not text: malformed JSON, with line and column.
        ("string", b'{"insert": [["a", "\\ud800"]]}', "body", None),
        ("string", b'{"vertices": ["a", true]}', "vertices", 1),
        ("string", b'{"vertices": ["a", ""]}', "vertices", 1),
        ("integer", b'{"insert": [[1, 2], [1, "2"]]}', "insert", 1),
        ("integer", b'{"insert": [[1, 2], [1, true]]}', "insert", 1),
        ("integer", b'{"insert": [[1, 2], [1, 2.5]]}', "insert", 1),
        ("integer", b'{"insert": [[1, 2], [1, 9223372036854775808]]}', "insert", 1),
        ("integer", b'{"delete": [[1, NaN]]}', None, None),
    ],
)
def test_a_batch_that_is_wrong_anywhere_changes_nothing(
    server: Server,
    paths: dict[str, str],
    kind: str,
    body: bytes,
    field: str | None,
    index: int | None,
) -> None:
    path = paths[kind]
    before = server.http.get(path).json()
    document = problem(
        server.http.post(
            f"{path}/batches", content=body, headers={"Content-Type": "application/json"}
        ),
        422,
    )
    if field is not None:
        assert (document["field"], document.get("index")) == (field, index), document
    assert server.http.get(path).json() == before


@pytest.mark.parametrize(
    ("body", "field", "detail"),
    [
        (b'{"damping": NaN}', "damping", "nan is not allowed; it must be a number above 0"),
        (b'{"damping": 1}', "damping", "above 0 and below 1"),
        (b'{"damping": 1.5}', "damping", "1.5 is not allowed; it must be a number above 0 and"),
        (b'{"damping": 0.0}', "damping", "above 0 and below 1"),
        (b'{"damping": true}', "damping", "expected a number, got True"),
        (b'{"damping": "0.5"}', "damping", "expected a number, got '0.5'"),
        (b'{"target_error": 3}', "target_error", "at most 2"),
        (b'{"target_error": Infinity}', "target_error", "inf is not allowed"),
        (b'{"strategy": "fastest"}', "strategy", "one of " + ", ".join(STRATEGIES)),
        (b'{"dangling": "none"}', "dangling", "'uniform' or 'self-loop'"),
        (
            b'{"storage": "float32"}',
            "storage",
            "'float32' saved about 4 % of a graph's memory, was slower, and is no longer offered",
        ),
        (b'{"keys": "uuid"}', "keys", "'string' or 'integer'"),
        (
            b'{"dampening": 0.5}',
            "dampening",
            "unknown member; expected damping, dangling, strategy, target_error, ",
        ),
        (b'{"damping": 0.5, "damping": 0.6}', "damping", "duplicate member"),
        (b"[0.5]", "body", "object"),
        (b'{"damping": ', "body", "not JSON"),
    ],
)
def test_a_graph_with_a_wrong_option_is_not_created(
    server: Server, body: bytes, field: str, detail: str
) -> None:
    document = problem(server.http.put("/graphs/never", content=body), 422)
    assert document["field"] == field
    assert detail in document["detail"]
    assert server.http.get("/graphs/never").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "field"),
    [
        ("GET", "/graphs/nowhere", 404, "graph"),
        ("DELETE", "/graphs/nowhere", 404, "graph"),
        ("POST", "/graphs/nowhere/batches", 404, "graph"),
        ("POST", "/graphs/nowhere/ranks", 404, "graph"),
        ("POST", "/graphs/nowhere/recompute", 404, "graph"),
        ("GET", "/graphs/nowhere/top", 404, "graph"),
        ("GET", "/graphs/nowhere/ranks/a", 404, "graph"),
        ("GET", "/graphs/default/ranks/nobody", 404, "vertex"),
        ("GET", "/graphs/default/personalized/nobody", 404, "vertex"),
        ("GET", "/graphs/default/ranks/", 422, "vertex"),
        ("GET", "/graphs/default/top?k=0", 422, "k"),
        ("GET", "/graphs/default/top?k=100001", 422, "k"),
        ("GET", "/graphs/default/top?k=1000000", 422, "k"),
        ("GET", "/graphs/default/top?k=ten", 422, "k"),
        ("GET", "/graphs/default/top?offset=-1", 422, "offset"),
        ("GET", "/graphs/default/top?min_version=-1", 422, "min_version"),
        ("GET", "/graphs/default/top?timeout=0", 422, "timeout"),
        ("GET", "/graphs/default/top?timeout=nan", 422, "timeout"),
        ("GET", "/graphs/default/personalized/a?k=0", 422, "k"),
        ("GET", "/graphs/default/batches/0", 404, "version"),
        ("GET", "/graphs/default/batches/99999999999999999999", 404, "version"),
        ("GET", "/graphs/default/batches/first", 422, "version"),
        ("POST", "/graphs/default/recompute?strategy=fastest", 422, "strategy"),
        ("POST", "/graphs/default/batches?wait=forever", 422, "wait"),
        ("GET", "/nothing/here", 404, None),
        ("GET", "/graphs/", 404, None),
        ("POST", "/graphs/default/batches/", 404, None),
        ("POST", "/graphs", 405, None),
        ("PATCH", "/graphs/default", 405, None),
    ],
)
def test_what_is_not_there_or_out_of_range_is_named(
    server: Server, method: str, path: str, status: int, field: str | None
) -> None:
    document = problem(server.http.request(method, path), status)
    assert document.get("field") == field


def test_a_whole_number_may_be_written_with_a_point(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"], ["b", "a"]]})
    for written, status in (("1.0", 200), ("1e0", 200), ("1.5", 422), ('"1"', 422), ("true", 422)):
        body = '{"queries": [{"seeds": {"a": 1}, "k": ' + written + "}]}"
        answer = server.http.post(f"{path}/personalized", content=body)
        assert answer.status_code == status, answer.text
        if status == 200:
            assert len(answer.json()["answers"][0]["ranks"]) == 1
        else:
            assert problem(answer, 422)["field"] == "queries.k"


def test_an_unknown_strategy_is_refused_with_the_known_ones(server: Server) -> None:
    answer = server.http.post("/graphs/default/batches?strategy=fastest", json={})
    expected = "strategy: 'fastest' is not allowed; it must be one of " + ", ".join(STRATEGIES)
    assert problem(answer, 422)["detail"] == expected


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_idempotency_key_has_1_to_255_characters(server: Server, key: str) -> None:
    answer = server.http.post("/graphs/default/batches", json={}, headers={"Idempotency-Key": key})
    assert problem(answer, 422)["field"] == "Idempotency-Key"


def test_an_unsupported_content_type_is_refused(server: Server) -> None:
    answer = server.http.post(
        "/graphs/default/batches", content=b"<a/>", headers={"Content-Type": "application/xml"}
    )
    document = problem(answer, 415)
    assert "application/json" in document["accepted"]


BODY_LIMIT = 100_000  # of the fixture `server`


@pytest.mark.parametrize("path", ["batches", "ranks"])
def test_a_body_over_the_limit_is_refused_by_its_length(server: Server, path: str) -> None:
    answer = server.http.post(f"/graphs/default/{path}", content=b" " * (BODY_LIMIT + 1))
    document = problem(answer, 413)
    assert document["detail"] == "body exceeds the 100,000-byte limit"


def test_a_body_over_the_limit_is_refused_while_it_streams(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(2 * BODY_LIMIT // 1000):
            yield b" " * 1000

    answer = server.http.post("/graphs/default/batches", content=pieces())
    problem(answer, 413)


def test_a_body_at_the_limit_is_accepted(server: Server) -> None:
    body = b"{}" + b" " * (BODY_LIMIT - 2)
    answer = server.http.post(
        f"{server.new_graph()}/batches", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 200


def test_an_unexpected_failure_is_a_problem_without_details(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_view: View, _key: object) -> float:
        raise RuntimeError("secret of the server")

    monkeypatch.setattr(View, "rank", fail)
    answer = server.http.get("/graphs/default/ranks/a")
    document = problem(answer, 500)
    assert answer.headers["connection"] == "close"
    assert document["detail"] == "the server failed with RuntimeError; see its log"


def test_a_query_parameter_that_a_call_does_not_have_is_refused(server: Server) -> None:
    answer = server.http.get("/graphs/default/top?min_versoin=3")
    document = problem(answer, 422)
    assert (document["field"], document["value"]) == ("min_versoin", "3")
    assert document["detail"] == (
        "min_versoin: unknown parameter; "
        "expected k, offset, among, min_version, min_position, timeout, view"
    )


@pytest.mark.parametrize(
    ("path", "field", "values"),
    [("top?k=1&k=2", "k", "'1', '2'"), ("edges?timeout=1&timeout=1", "timeout", "'1', '1'")],
)
def test_of_two_values_of_a_parameter_none_is_ignored(
    server: Server, path: str, field: str, values: str
) -> None:
    document = problem(server.http.get(f"/graphs/default/{path}"), 422)
    assert document["detail"] == f"{field}: expected one value, got {values}"
    assert document["field"] == field


@pytest.mark.parametrize(
    ("call", "body", "place", "expected"),
    [
        ("PUT views/v?refresh=soon", None, "refresh", "'batch' or 'read' or a number, got 'soon'"),
        (
            "PUT views/v",
            {"teleport": "uniform", "within": 3},
            "within",
            "a string or a list, got 3",
        ),
        (
            "PUT watched/w",
            {"seeds": {"a": 1}, "among": ["a", 1.5]},
            "among[1]",
            "a string or an integer, got 1.5",
        ),
        (
            "POST personalized",
            {"queries": [{"seeds": {"int": "x", "float": "y"}}]},
            "queries.seeds.int[0]",
            "a number, got 'x'",
        ),
        (
            "POST personalized",
            {"queries": [{"seeds": {"a": 1}, "within": {}}]},
            "queries.within[0]",
            "a string or a list",
        ),
        (
            "POST analyses/levels",
            {"parameters": {"source": [1]}},
            "parameters.source",
            "a string or a number",
        ),
    ],
)
def test_a_value_that_may_be_of_several_types_is_named(
    server: Server, call: str, body: Any, place: str, expected: str
) -> None:
    method, path = call.split()
    document = problem(server.http.request(method, f"/graphs/default/{path}", json=body), 422)
    assert document["detail"] == f"{place}: expected {expected}"
    assert document["field"] == place.partition("[")[0]


def test_a_missing_member_is_named(server: Server) -> None:
    answer = server.http.post("/graphs/default/personalized", json={})
    document = problem(answer, 422)
    assert document["detail"] == "queries: expected a value, since it has no default"


def test_titles_have_one_style(server: Server) -> None:
    assert problem(server.http.get("/nothing"), 404)["title"] == "Not found"
    assert problem(server.http.get("/graphs/nowhere"), 404)["title"] == "Unknown graph"


@pytest.mark.parametrize(
    ("names", "end"),
    [
        ("", ""),
        ("a", "; there are: a"),
        ("abcde", "; there are: a, b, c, d, e"),
        ("abcdef", "; there are: a, b, c, d, e and 1 other"),
        ("abcdefgh", "; there are: a, b, c, d, e and 3 others"),
    ],
)
def test_few_of_many_graphs_are_named(names: str, end: str) -> None:
    assert str(UnknownGraph("x", list(names))) == f"there is no graph 'x'{end}"


@pytest.mark.parametrize("size", [2, LARGE_BODY])
@pytest.mark.parametrize("call", ["PUT sets/mine", "POST ranks", "POST subgraph"])
def test_a_body_of_vertices_without_them_is_refused(server: Server, call: str, size: int) -> None:
    method, path = call.split()
    body = b"{}".ljust(size)
    answer = server.http.request(method, f"/graphs/default/{path}", content=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "vertices")
    assert answer.json()["detail"] == "vertices: expected an array of keys, got nothing"
