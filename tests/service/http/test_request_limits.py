"""Every list in a request, and every product of two of its numbers, is limited: a refusal has the
figures, and comes before the work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import httpx
import orjson
import pytest

from liverank.options import MAX_K
from liverank_service.errors import RequestTooLarge, TooBusy
from liverank_service.formats.columns import MAX_SETS
from liverank_service.formats.json_body import values_in
from liverank_service.http.body import MAX_VALUES
from liverank_service.http.framing import MAX_HEAD_BYTES
from liverank_service.http.limits import ConcurrencyLimit, RequestContext
from liverank_service.http.schemas import MAX_QUERIES
from liverank_service.queries.changes import MAX_CHANGES, MAX_TOP
from liverank_service.settings import Settings
from tests.service.formats.test_decode import ARROW, arrow_stream
from tests.service.http.test_problems import problem
from tests.service.server import Server, connection_to, openapi, running, wait_for

PLACES = 500
KEYS = 100
EDGES = 2_000
VERTICES = 60

SEED = {"v0": 1.0}
MANY = [f"v{place}" for place in range(VERTICES)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(
        tmp_path_factory.mktemp("data"),
        max_places=PLACES,
        max_query_keys=KEYS,
        max_batch_edges=EDGES,
        programs=True,
    ) as server:
        server.http.put("/graphs/g")
        edges = [[MANY[place - 1], MANY[place]] for place in range(VERTICES)]
        server.http.post("/graphs/g/batches", json={"insert": edges}).raise_for_status()
        server.http.put("/graphs/g/sets/all", json={"vertices": MANY}).raise_for_status()
        started = server.http.post("/graphs/g/analyses/cores", json={}).json()["id"]
        path = f"/graphs/g/analyses/{started}"
        wait_for(lambda: server.http.get(path).json()["state"] == "finished")
        yield server


def seeds(count: int) -> dict[str, float]:
    return {f"s{place}": 1.0 for place in range(count)}


def queries(count: int, **query: Any) -> dict[str, Any]:
    return {"queries": [{"seeds": SEED, **query}] * count}


def lists(count: int, each: int) -> dict[str, list[str]]:
    return {f"s{place}": MANY[:each] for place in range(count)}


def values(count: int) -> dict[str, Any]:
    return {"more": list(range(count))}


TOO_LARGE = "request-too-large"

BODIES: list[tuple[str, str, dict[str, Any], int, str, str]] = [
    # places: queries × k, or the number of vertices if that is smaller
    *(
        ("POST", "personalized", queries(9, k=k), 413, TOO_LARGE, f"queries: 540 places; {limit}")
        for k in (VERTICES, MAX_K)
        for limit in [f"the limit of a request is {PLACES}"]
    ),
    ("POST", "personalized", queries(51), 413, TOO_LARGE, "queries: 510 places"),
    ("POST", "personalized", queries(1, k=MAX_K + 1), 422, "invalid-value", f"at most {MAX_K}"),
    ("POST", "personalized", queries(MAX_QUERIES + 1), 422, "invalid-value", f"{MAX_QUERIES}"),
    ("POST", "personalized", queries(1, trace=True), 413, TOO_LARGE, "queries: 1,010 places"),
    # keys: queries × (seeds + among + within)
    ("POST", "personalized", queries(1, seeds=seeds(101)), 413, TOO_LARGE, "queries: 101 seeds"),
    ("POST", "personalized", queries(3, seeds=seeds(40), k=1), 413, TOO_LARGE, "queries: 120 "),
    ("POST", "personalized", queries(2, among=MANY, k=1), 413, TOO_LARGE, "queries: 122 seeds and"),
    (
        "POST",
        "personalized",
        queries(2, within=MANY, k=1),
        413,
        TOO_LARGE,
        "queries: 122 seeds and",
    ),
    ("POST", "personalized", queries(1, seeds=seeds(200_000)), 413, TOO_LARGE, "body: 199,999"),
    ("PUT", "watched/w", {"seeds": seeds(101)}, 413, TOO_LARGE, "seeds: 101 seeds"),
    ("PUT", "watched/w", {"seeds": SEED, "among": MANY * 2}, 413, TOO_LARGE, "seeds: 121 seeds"),
    ("PUT", "watched/w", {"seeds": seeds(20_000)}, 413, TOO_LARGE, "body: 19,999 values"),
    ("PUT", "watched/w", {"seeds": SEED, "k": MAX_K + 1}, 422, "invalid-value", f"{MAX_K}"),
    (
        *("PUT", "views/v", {"teleport": {"weights": seeds(101)}}),
        *(413, TOO_LARGE, "teleport.weights: 101 seeds"),
    ),
    (
        *("PUT", "views/v", {"teleport": "uniform", "within": MANY * 2}),
        *(413, TOO_LARGE, "within: 120 seeds and vertices"),
    ),
    # vertices
    ("POST", "ranks", {"vertices": MANY * 9}, 413, TOO_LARGE, "vertices: 540 places"),
    ("POST", "subgraph", {"vertices": MANY * 9}, 413, TOO_LARGE, "vertices: 540 places"),
    # batches
    ("POST", "batches", {"insert": [["a", "b"]] * 2001}, 413, "batch-too-large", "2,001 edges"),
    ("POST", "batches", {"delete": [["a", "b"]] * 2001}, 413, "batch-too-large", "2,001 edges"),
    ("POST", "batches", {"vertices": MANY * 40}, 413, "batch-too-large", "2,400 edges"),
    ("POST", "batches", {"remove": MANY * 40}, 413, "batch-too-large", "2,400 edges"),
    (
        *("POST", "batches", {"sets": {"s": {"add": MANY * 20, "remove": MANY * 20}}}),
        *(413, "batch-too-large", "2,400 edges and vertices; the limit is 2,000"),
    ),
    (
        *("POST", "batches", {"sets": {f"s{place}": {} for place in range(MAX_SETS + 1)}}),
        *(422, "invalid-body", "sets: expected at most 10,000 sets, got 10,001"),
    ),
    ("POST", "batches", {"replace": lists(2001, 0)}, 413, "batch-too-large", "2,001 edges"),
    ("POST", "batches", {"replace": lists(100, 20)}, 413, "batch-too-large", "2,100 edges"),
    ("PUT", "sets/s", {"vertices": MANY * 40}, 413, "batch-too-large", "2,400 edges"),
    # documents without long lists
    *(
        (method, path, body, 413, TOO_LARGE, f"body: {MAX_VALUES + 1:,} values")
        for method, path, body in (
            ("POST", "analyses/cores", {"parameters": seeds(MAX_VALUES + 2)}),
            ("PUT", "consumers/s", values(MAX_VALUES + 2)),
            ("PUT", "", values(MAX_VALUES + 2)),
            ("PUT", "/programs/p", values(MAX_VALUES + 2)),
            ("POST", "/keys", {"graphs": ["g"] * (MAX_VALUES + 2)}),
        )
    ),
]
"""Method, path in the graph, body; status, type and a part of the detail."""

LONGEST = "&".join(f"min_position=s:p:{place:05d}" for place in range(MAX_HEAD_BYTES // 20))

PATHS: list[tuple[str, int, str]] = [
    (f"top?k={MAX_K + 1}", 422, f"at most {MAX_K}, got '{MAX_K + 1}'"),
    (f"top?k={10**30}", 422, f"at most {MAX_K}"),
    (f"personalized/v0?k={MAX_K + 1}", 422, f"at most {MAX_K}"),
    (f"neighbors/v0?limit={MAX_K + 1}", 422, f"at most {MAX_K}"),
    (f"analyses/{{analysis}}/top?k={MAX_K + 1}", 422, f"at most {MAX_K}"),
    (f"changes?top={MAX_TOP + 1}", 422, f"at most {MAX_TOP}"),
    (f"changes?limit={MAX_CHANGES + 1}", 422, f"at most {MAX_CHANGES}"),
    (f"top?{LONGEST}", 400, f"exceeds {MAX_HEAD_BYTES:,} bytes"),
]

UNLIMITED = {"offset", "min_version"}
"""Numbers that no list is as long as."""


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind", "detail"),
    BODIES,
    ids=[f"{method} {path} {detail}" for method, path, *_, detail in BODIES],
)
def test_a_body_that_asks_for_too_much_is_refused_with_figures(
    small: Server, method: str, path: str, body: dict[str, Any], status: int, kind: str, detail: str
) -> None:
    url = path if path.startswith("/") else f"/graphs/g/{path}".rstrip("/")
    refused = problem(small.http.request(method, url, json=body), status)
    assert refused["type"] == f"urn:liverank:problem:{kind}"
    assert detail in refused["detail"]
    assert small.app.state.limit.places == 0


def lists_of(schema: dict[str, Any], schemas: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of what may be long: lists of no given length, and objects with any names."""
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for one in schema.get("anyOf", []):
        yield from lists_of(one, schemas, path)
    if schema.get("type") == "array" and schema.get("maxItems") != schema.get("minItems", -1):
        yield path
        yield from lists_of(schema["items"], schemas, f"{path}.*")
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield path
        yield from lists_of(values, schemas, f"{path}.*")
    for name, member in schema.get("properties", {}).items():
        yield from lists_of(member, schemas, f"{path}.{name}")


def long_in(value: Any, path: str = "") -> Iterator[str]:
    """The paths of lists and objects with more than ten members."""
    if not isinstance(value, dict | list):
        return
    if len(value) > 10:
        yield path
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for name, member in members:
        # a name that any other could have is written as in `lists_of`
        any_name = isinstance(value, list) or re.fullmatch("s\\d*|v0", str(name))
        yield from long_in(member, f"{path}.{'*' if any_name else name}")


def test_every_list_of_every_body_is_in_the_table() -> None:
    document = openapi()
    schemas = document["components"]["schemas"]
    expected = {
        (f"{method.upper()} {path}", each)
        for path, methods in document["paths"].items()
        for method, call in methods.items()
        if "requestBody" in call
        for schema in [call["requestBody"]["content"]["application/json"]["schema"]]
        for each in ["", *lists_of(schema, schemas)]
    }
    tested = set()
    for method, path, body, *_ in BODIES:
        url = path if path.startswith("/") else f"/graphs/{{graph}}/{path}".rstrip("/")
        url = re.sub("/(sets|watched|programs)/.*", r"/\1/{name}", url)
        url = re.sub("/(views)/.*", r"/\1/{view}", url)
        url = re.sub("/(analyses)/.*", r"/\1/{analysis}", url)
        url = re.sub("/(consumers)/.*", r"/\1/{source}", url)
        tested |= {(f"{method} {url}", each) for each in ["", *long_in(body)]}
    assert expected - tested == set()
    assert {call for call, _ in tested} == {call for call, _ in expected}


@pytest.mark.parametrize(("path", "status", "detail"), PATHS, ids=[path[:40] for path, *_ in PATHS])
def test_a_number_in_a_path_that_is_too_large_is_refused_with_figures(
    small: Server, path: str, status: int, detail: str
) -> None:
    (analysis,) = small.http.get("/graphs/g/analyses").json()["analyses"]
    target = f"/graphs/g/{path.format(analysis=analysis['id'])}"
    with connection_to(small) as connection:  # httpx has a limit of its own
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.status == status
        assert detail in json.loads(answer.read())["detail"]


def test_every_number_in_a_path_has_a_limit() -> None:
    for methods in openapi()["paths"].values():
        for call in methods.values():
            for parameter in call.get("parameters", []):
                schemas = parameter["schema"].get("anyOf", [parameter["schema"]])
                kinds = {schema.get("type") for schema in schemas}
                if parameter["in"] != "query" or "integer" not in kinds:
                    continue
                (schema,) = (schema for schema in schemas if schema.get("type") == "integer")
                name = parameter["name"]
                assert "maximum" in schema or name in UNLIMITED, f"{name} needs a maximum: le=…"


def test_the_edges_of_a_subgraph_are_limited(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the out-edges of its vertices, each of which has one here."""
    monkeypatch.setattr("liverank_service.pipeline.edge_reading.MAX_SUBGRAPH_EDGES", 40)
    body = {"vertices": MANY[:40]}
    assert small.http.post("/graphs/g/subgraph", json=body).status_code == 200
    refused = problem(small.http.post("/graphs/g/subgraph", json={"vertices": MANY}), 422)
    assert "at most 40 out-edges together, these have 60" in refused["detail"]


def test_a_stream_of_seeds_is_limited_too(small: Server) -> None:
    def ask(queries: int, each: int, k: int) -> httpx.Response:
        labels = [query for query in range(queries) for _ in range(each)]
        body = arrow_stream(query=labels, seed=[f"v{n % each}" for n in range(len(labels))])
        path = f"/graphs/g/personalized?k={k}"
        return small.http.post(path, content=body, headers={"Content-Type": ARROW})

    assert ask(8, 1, MAX_K).status_code == 200
    assert problem(ask(9, 1, MAX_K), 413)["detail"].startswith("queries: 540 places")
    assert problem(ask(2, 51, 1), 413)["detail"].startswith("seed: 102 seeds")
    refused = problem(ask(MAX_QUERIES + 1, 1, 1), 413)
    assert refused["detail"].startswith("seed: 10,001 seeds")


def test_what_is_within_the_limits_is_answered(small: Server) -> None:
    within = [
        ("personalized", queries(8, k=MAX_K)),
        ("personalized", queries(1, among=MANY, k=1)),
        ("ranks", {"vertices": MANY * 8}),
        ("subgraph", {"vertices": MANY * 8}),
    ]
    for path, body in within:
        assert small.http.post(f"/graphs/g/{path}", json=body).status_code == 200
    answers = small.http.post("/graphs/g/personalized", json=within[0][1]).json()["answers"]
    assert [len(answer["ranks"]) for answer in answers] == [VERTICES] * 8
    assert small.http.get(f"/graphs/g/top?k={MAX_K}&offset={10**30}").json()["ranks"] == []
    wait_for(lambda: small.app.state.limit.places == 0)


def test_places_are_counted_over_all_requests_until_they_are_sent() -> None:
    limit = ConcurrencyLimit(Settings(max_places=100, max_places_in_progress=150))
    first, second, third = (RequestContext(str(number)) for number in range(3))
    with pytest.raises(RequestTooLarge, match=r"k: 101 places; the limit of a request is 100"):
        limit.answer(first, 101, "k")
    limit.answer(first, 100, "k")
    limit.answer(second, 50, "k")
    with pytest.raises(TooBusy, match=r"places of answers are in progress; the limit is 150"):
        limit.answer(third, 1, "k")
    limit.leave(third)
    assert limit.places == 150
    limit.leave(first)
    limit.answer(third, 100, "k")
    limit.leave(second)
    limit.leave(third)
    limit.copy(first, 1000)  # a table is as long as it is, and is not refused if it is alone
    with pytest.raises(TooBusy):
        limit.answer(second, 1, "k")
    limit.leave(first)
    assert limit.places == 0


@pytest.mark.parametrize(
    ("document", "count"),
    [
        (b"", 0),
        (b'{"a": [1, 2, 3], "b": {"c": 1, "d": 2}}', 4),
        (orjson.dumps({"a,b": ["c,d", "e", 'f",g', "h\\", "i,\\"]}), 4),
        (b'["unfinished, ' + b"," * 100, 0),
        (b'["' + b'\\",' * 100 + b'", 1]', 1),
        (b'["a", ' * 700_000, 700_000),
    ],
    ids=["nothing", "objects", "texts", "unfinished", "escapes", "in pieces"],
)
def test_values_are_counted_without_parsing(document: bytes, count: int) -> None:
    assert values_in(document, 0) == count
    assert count <= values_in(document, 1_000) <= max(count, 1_000)
