"""Conditional reads of JSON, and the coding of large responses."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

from liverank_service.http.responses import MIN_COMPRESSED_BYTES
from tests.service.server import Server, wait_for

READS = [
    "",
    "/personalized/a?k=2",
    "/watched/mine",
    "/watched/mine/ranks/a",
    "/sets/some",
    *("/ranks", "/edges", "/ranks/a", "/top?k=3", "/neighbors/a"),
]
"""Paths below that of a graph."""

MANY = [[f"vertex-{number}", "hub"] for number in range(3_000)]


@pytest.fixture
def path(server: Server) -> str:
    created = server.new_graph()
    for call in (
        server.http.post(f"{created}/batches", json={"insert": [["a", "b"], ["b", "c"]]}),
        server.http.put(f"{created}/watched/mine", json={"seeds": {"a": 1}, "k": 3}),
        server.http.put(f"{created}/sets/some", json={"vertices": ["a"]}),
    ):
        assert call.is_success
    return created


@pytest.fixture(scope="module")
def large(server: Server) -> Iterator[str]:
    created = server.new_graph()
    server.http.post(f"{created}/batches", json={"insert": MANY}).raise_for_status()
    yield created
    server.http.delete(created)


def get(server: Server, url: str, **headers: str) -> httpx.Response:
    return server.http.get(url, headers={name.replace("_", "-"): v for name, v in headers.items()})


def test_every_read_of_a_graph_has_a_tag_but_those_of_batches_and_changes(
    server: Server, path: str
) -> None:
    analysis = server.http.post(f"{path}/analyses/cores").json()["id"]
    url = f"{path}/analyses/{analysis}"
    wait_for(lambda: server.http.get(url).json()["state"] == "finished")
    parts = {"graph": path.rpartition("/")[2], "vertex": "a", "analysis": analysis, "version": 1}
    parts["view"] = "mine"
    server.http.put(f"{path}/views/mine", json={"teleport": {"weights": {"a": 1}}})
    untagged = set()
    for template, methods in server.http.get("/openapi.json").json()["paths"].items():
        if "get" not in methods or not template.startswith("/graphs/{graph}"):
            continue
        if template.endswith("/changes"):  # a stream without an end
            continue
        name = "some" if "/sets/" in template else "mine"
        read = template.format(**parts, name=name)
        first = server.http.get(read).raise_for_status()
        if "etag" not in first.headers:
            untagged.add(template)
            continue
        again = get(server, read, If_None_Match=first.headers["etag"])
        assert (again.status_code, again.content) == (304, b""), read
    assert untagged == {"/graphs/{graph}/batches/{version}"}


@pytest.mark.parametrize("read", READS)
def test_a_known_response_is_not_sent_again(server: Server, path: str, read: str) -> None:
    first = get(server, path + read)
    tag = first.headers["etag"]
    assert {"Accept", "Authorization"} <= set(first.headers["vary"].split(", "))
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        again = get(server, path + read, If_None_Match=known)
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert again.headers["vary"] == first.headers["vary"]
    assert get(server, path + read, If_None_Match='"x"').content == first.content
    batch = {"insert": [["a", "c"]], "sets": {"some": {"add": ["c"]}}}
    assert server.http.post(f"{path}/batches", json=batch).status_code == 200
    changed = get(server, path + read, If_None_Match=tag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    assert changed.content != first.content


def test_a_replaced_watched_query_has_another_tag(server: Server, path: str) -> None:
    """Its version and revision are those of the one before it."""
    tag = get(server, f"{path}/watched/mine").headers["etag"]
    server.http.put(f"{path}/watched/mine", json={"seeds": {"b": 1}, "k": 3}).raise_for_status()
    assert get(server, f"{path}/watched/mine", If_None_Match=tag).status_code == 200


def test_a_known_personalized_answer_is_not_solved_again(server: Server, path: str) -> None:
    tag = get(server, f"{path}/personalized/a").headers["etag"]
    submitted: list[object] = []
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "submit_query", submitted.append)
        assert get(server, f"{path}/personalized/a", If_None_Match=tag).status_code == 304
    assert submitted == []


def test_an_unknown_vertex_is_not_found_whatever_the_client_has(server: Server, path: str) -> None:
    for known in ("*", '"x"'):
        answer = get(server, f"{path}/personalized/nobody", If_None_Match=known)
        assert answer.status_code == 404


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_large_response_is_compressed(server: Server, large: str, coding: str) -> None:
    url = f"{large}/top?k=2000"
    plain = get(server, url, Accept_Encoding="identity")
    assert "content-encoding" not in plain.headers
    request = server.http.build_request("GET", url, headers={"Accept-Encoding": coding})
    coded = server.http.send(request, stream=True)
    try:
        body = b"".join(coded.iter_raw())
    finally:
        coded.close()
    assert coded.headers["content-encoding"] == coding
    assert int(coded.headers["content-length"]) == len(body) < len(plain.content) / 3
    if coding == "gzip":
        assert zlib.decompress(body, wbits=31) == plain.content
    else:
        decompressed = pa.decompress(body, len(plain.content), codec="zstd", asbytes=True)
        assert decompressed == plain.content
    for response in (plain, coded):
        assert response.headers["vary"] == "Accept, Accept-Encoding, Authorization"


def test_each_coding_has_a_tag_of_its_own_and_all_are_known(server: Server, large: str) -> None:
    url = f"{large}/top?k=2000"
    tags = {
        coding: get(server, url, Accept_Encoding=coding).headers["etag"]
        for coding in ("identity", "gzip", "zstd")
    }
    assert len(set(tags.values())) == 3
    for coding, tag in tags.items():
        again = get(server, url, Accept_Encoding=coding, If_None_Match=tag)
        assert (again.status_code, again.headers["etag"]) == (304, tag)


def test_responses_without_a_tag_are_compressed_too(server: Server, large: str) -> None:
    vertices = {"vertices": [source for source, _ in MANY]}
    answer = server.http.post(f"{large}/ranks", json=vertices, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert len(answer.json()["ranks"]) == len(MANY)


def test_small_responses_and_those_of_clients_that_accept_no_coding_are_plain(
    server: Server, path: str, large: str
) -> None:
    for url, accepted in (
        (f"{path}/top", "gzip"),
        (f"{large}/top?k=2000", "br"),
        (f"{large}/top?k=2000", "br, identity;q=0"),
    ):
        answer = get(server, url, Accept_Encoding=accepted)
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
    assert len(get(server, f"{path}/top").content) < MIN_COMPRESSED_BYTES
