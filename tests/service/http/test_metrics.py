"""Metrics: counters of requests and batches, and the state of the graphs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from liverank_gpu import Engine, OutOfMemory
from liverank_gpu.pagerank.gate import Gate
from liverank_service.catalog import Catalog
from liverank_service.http import metrics
from liverank_service.pipeline.batch import StageSeconds
from tests.service.server import Server, running, wait_for

Sample = tuple[str, frozenset[tuple[str, str]]]


def scraped(server: Server) -> dict[Sample, float]:
    answer = server.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own: a scrape of the graphs of all tests takes long."""
    with running(tmp_path_factory.mktemp("data"), max_body_bytes=100_000) as started:
        yield started


def value(server: Server, name: str, **labels: str) -> float | None:
    return scraped(server).get((name, frozenset(labels.items())))


def test_stages_are_counted_as_the_library_counts_one_by_one() -> None:
    random = np.random.default_rng(5)
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram(
        "liverank_stage_seconds", "", ["graph", "stage"], buckets=metrics.SECONDS, registry=theirs
    )
    stages = metrics.StageHistograms()
    ours.register(stages)
    for graph, count in (("a", 1), ("b", 300), ("a", 40)):
        # including exact bounds of buckets
        values = random.choice(
            [*metrics.SECONDS, 0.0, 1e-5, 0.3, 40.0], (count, len(metrics.STAGES))
        )
        batches = [StageSeconds(*row) for row in values.tolist()]
        stages.observe(graph, batches)
        for batch in batches:
            for stage, seconds in asdict(batch).items():
                histogram.labels(graph, stage).observe(seconds)

    def samples(registry: CollectorRegistry) -> dict[Sample, Any]:
        return {
            (sample.name, frozenset(sample.labels.items())): pytest.approx(sample.value)
            for family in registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    assert len(samples(ours)) == 2 * len(metrics.STAGES) * 18
    assert samples(ours) == {place: like.expected for place, like in samples(theirs).items()}
    stages.forget("b")
    assert len(samples(ours)) == len(metrics.STAGES) * 18


def test_a_batch_is_counted_with_its_edges_and_stages(server: Server) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"], ["a", "b"], ["b", "c"]]})
    receipt = server.http.post(
        f"{path}/batches", json={"delete": [["a", "b"], ["x", "y"]], "vertices": ["z"]}
    ).json()
    # Batches are counted after the response.
    wait_for(lambda: value(server, "liverank_stage_seconds_count", graph=graph, stage="total") == 2)
    samples = scraped(server)

    def of(name: str, **labels: str) -> float:
        return samples[name, frozenset({"graph": graph, **labels}.items())]

    assert of("liverank_batches_total", outcome="ranked") == 2
    changes = {"inserted": 2, "already_present": 1, "deleted": 1, "not_found": 1}
    for change, count in changes.items():
        assert of("liverank_edges_total", change=change) == count
    assert of("liverank_batch_edges_sum") == 5
    assert of("liverank_group_batches_count") == 2
    assert of("liverank_stage_seconds_count", stage="solve") == 2
    assert of("liverank_stage_seconds_sum", stage="total") >= receipt["seconds"]["total"]
    assert (of("liverank_version"), of("liverank_committed_version")) == (2, 2)
    assert of("liverank_revision") == receipt["revision"]
    assert of("liverank_error_bound") == receipt["error_bound"]
    assert (of("liverank_vertices"), of("liverank_graph_edges")) == (4, 1)
    memory = server.http.get(path).json()["memory"]
    for purpose, count in memory.items():
        assert of("liverank_memory_bytes", purpose=purpose) == count
    assert of("liverank_queue_batches") == of("liverank_queue_bytes") == 0


def test_what_waits_and_what_is_refused_is_counted(tmp_path: Path) -> None:
    with running(tmp_path, max_queue_batches=1) as server:
        pipeline = server.catalog.get("default").pipeline
        gate = threading.Event()
        pipeline.call(lambda _: gate.wait(60))
        sent = threading.Thread(target=lambda: server.http.post("/graphs/default/batches", json={}))
        sent.start()
        while not pipeline.batches.jobs:
            pass
        assert server.http.post("/graphs/default/batches", json={}).status_code == 429
        samples = scraped(server)
        graph = ("graph", "default")
        assert samples["liverank_queue_batches", frozenset([graph])] == 1
        assert samples["liverank_queue_bytes", frozenset([graph])] > 0
        assert samples["liverank_queue_computations", frozenset([graph])] == 1
        refused = frozenset([graph, ("kind", "batch")])
        assert samples["liverank_refused_total", refused] == 1
        gate.set()
        sent.join()
        assert value(server, "liverank_queue_batches", graph="default") == 0


def test_a_batch_that_is_rejected_or_fails_is_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]

    def out_of_memory(*_: object) -> None:
        raise OutOfMemory("the batch", 1000, 10)

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "apply", out_of_memory)
        answer = server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
        assert answer.status_code == 507
    with monkeypatch.context() as patched:
        patched.setattr(Engine, "update", out_of_memory)
        answer = server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
        assert answer.status_code == 500
    name = "liverank_batches_total"
    wait_for(lambda: value(server, name, graph=graph, outcome="rejected") == 1)
    wait_for(lambda: value(server, name, graph=graph, outcome="failed") == 1)


def test_a_dropped_graph_leaves_nothing_behind(server: Server) -> None:
    path = server.new_graph()
    graph = path.rsplit("/", 1)[1]
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    wait_for(lambda: value(server, "liverank_stage_seconds_count", graph=graph, stage="total") == 1)
    assert f'"{graph}"' in server.http.get("/metrics").text
    server.http.delete(path)
    assert f'"{graph}"' not in server.http.get("/metrics").text


def test_answers_are_counted_by_call_and_status(server: Server) -> None:
    def count(call: str, status: str) -> float:
        return value(server, "liverank_http_requests_total", call=call, status=status) or 0

    call = "GET /graphs/{graph}/ranks/{vertex}"
    before = {status: count(call, status) for status in ("404", "422")}
    server.http.get("/graphs/default/ranks/nobody")
    server.http.get("/graphs/default/ranks/also/nobody?min_version=-1")
    assert count(call, "404") == before["404"] + 1
    assert count(call, "422") == before["422"] + 1
    unmatched = count("unmatched", "404")
    server.http.request("PURGE", "/made-up-by-the-client")
    assert count("unmatched", "404") == unmatched + 1
    assert "made-up" not in server.http.get("/metrics").text
    assert "PURGE" not in server.http.get("/metrics").text
    # The scrape itself is in progress.
    assert value(server, "liverank_http_requests_in_progress") == 1
    assert value(server, "liverank_receiving_bytes") == 0


def test_metrics_are_there_before_the_server_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(Catalog, "open", lambda _catalog: gate.wait(60))
    with running(tmp_path, wait_until_ready=False) as server:
        assert value(server, "liverank_ready") == 0
        gate.set()


def test_the_process_and_the_version_have_metrics(server: Server) -> None:
    samples = scraped(server)
    assert samples["process_resident_memory_bytes", frozenset()] > 1e7
    assert samples["liverank_build_info", frozenset({("version", server.app.version)})] == 1


def test_refused_ranks_are_counted_by_what_was_published() -> None:
    registry = CollectorRegistry()
    counted = metrics.BatchMetrics(registry)
    for fallback in ("static", "kept", "kept"):
        metrics.GraphObserver(counted, "g", 1.0).refused(fallback)

    def of(fallback: str) -> float | None:
        labels = {"graph": "g", "fallback": fallback}
        return registry.get_sample_value("liverank_ranks_refused_total", labels)

    assert [of(each) for each in ("static", "equal", "kept")] == [1.0, 0.0, 2.0]
    counted.forget("g")
    assert of("kept") is None


def test_refused_ranks_of_queries_are_counted_and_logged_once_a_solve(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = server.new_graph()
    name = path.rsplit("/", 1)[1]

    def counts() -> list[float | None]:
        metric = "liverank_personalized_refused_total"
        return [value(server, metric, graph=name, kind=kind) for kind in ("query", "watched")]

    def send(**edges: Any) -> None:
        server.http.post(f"{path}/batches", json=edges).raise_for_status()

    send(insert=[["a", "b"], ["b", "c"], ["c", "a"]])
    query = {"seeds": {"a": 1}, "k": 1}
    server.http.put(f"{path}/watched/before", json=query).raise_for_status()
    assert counts() == [0, 0]
    monkeypatch.setattr(Gate, "fault", lambda _: "they are not there")
    body = {"queries": [query]}
    answer = server.http.post(f"{path}/personalized", json=body).raise_for_status().json()
    assert answer["answers"][0]["refused"] == "they are not there"
    assert counts() == [1, 0]
    server.http.put(f"{path}/watched/mine", json=query).raise_for_status()
    assert counts() == [1, 1]
    assert "the ranks of the watched query 'mine' were refused: they are not" in caplog.text
    send(insert=[["a", "b"]])  # which is there
    assert counts() == [1, 1]
    send(insert=[["b", "d"], ["d", "b"]])
    assert counts() == [1, 3]
    assert "the ranks of the watched query 'before' were refused" in caplog.text
    server.http.delete(path).raise_for_status()
    assert counts() == [None, None]
