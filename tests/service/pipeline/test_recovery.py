"""Recovery from a checkpoint: watched queries, vertex order, limits."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liverank_gpu import Engine, Options, Solve
from liverank_service.errors import FileDamaged, NotReady, QueueFull, StorageFailed, UnknownVertex
from liverank_service.formats.seeds import SeedColumns
from liverank_service.pipeline.checkpointer import CheckpointLimits
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.writer import QueueLimits
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.storage.journal import Journal
from liverank_service.storage.kept_files import read_watched
from tests.service.graphs import batch, engine_of, send, started, submit
from tests.service.server import running, wait_for

NEVER = CheckpointLimits(1 << 30, 3600.0)
RING = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "c"), ("e", "c")]


def answers(pipeline: Pipeline) -> dict[str, Any]:
    watched = pipeline.view.watched
    assert watched is not None
    return {
        name: dict(zip(one.vertices.to_pylist(), one.answer.ranks.tolist(), strict=True))
        for name, one in watched.items()
        if one.answer is not None
    }


def restarted(directory: Path, options: Options) -> Pipeline:
    pipeline = Pipeline("test", directory, options, "string", "cpu", NEVER)
    pipeline.recover()
    pipeline.wait_until_open()
    return pipeline


@pytest.mark.parametrize("later", [False, True])
def test_order_and_watched_queries_survive_a_restart_from_a_checkpoint(
    tmp_path: Path, later: bool
) -> None:
    options = Options(vertex_order="degree", target_error=1e-5)
    Journal.create(tmp_path / "journal.db")
    pipeline = restarted(tmp_path, options)
    send(pipeline, batch(RING))
    query = WatchedQuery(seeds=SeedColumns.of({"a": 1.0}), k=5, target_error=1e-5)
    watch = WatchRequest([query], 60.0, "from a")
    pipeline.submit_query(watch)
    assert watch.answer.result(60)[0]
    pipeline.checkpoint().result(60)
    if later:
        send(pipeline, batch([("c", "f")], [("b", "c")]))
    before, watched = pipeline.view, answers(pipeline)
    keys = pa.array(["a", "b", "c", "d", "e", "f"])
    ids, ranks = before.ids(keys), before.ranks.to_numpy()
    pipeline.close(NotReady("restart"))

    again = restarted(tmp_path, options)
    view = again.view
    assert (view.version, view.vertices, view.edges) == (
        (before.version, before.vertices, before.edges)
    )
    assert view.ids(keys).tolist() == ids.tolist()
    # the checkpoint's ranks unchanged; after later batches, within both bounds
    slack = before.error_bound + view.error_bound if later else 0.0
    assert np.abs(view.ranks.to_numpy() - ranks).sum() <= slack
    found, expected = answers(again)["from a"], watched["from a"]
    # vertices that a does not reach have ranks of 0 or of rounding errors, in any order
    for key in found.keys() | expected.keys():
        assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), abs=2e-5)
    assert not engine_of(again).internals.graph.permutation.is_identity
    # and it is updated from now on
    send(again, batch([("a", "g")]))
    assert "g" in answers(again)["from a"]
    again.close(NotReady("the test ends"))


def test_reads_of_watched_queries_are_refused_during_recovery(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.http.post("/graphs/default/batches", json={"insert": RING})
        server.http.put("/graphs/default/watched/mine", json={"seeds": {"a": 1}})
        server.http.post("/graphs/default/checkpoint").raise_for_status()
    compiling, may_go_on = threading.Event(), threading.Event()

    def wait(_: Engine) -> None:
        compiling.set()
        may_go_on.wait(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "compiles_kernels", True)  # as on a GPU
        patch.setattr(Engine, "warm_up", wait)
        with running(tmp_path) as server:
            assert compiling.wait(60)
            answer = server.http.get("/graphs/default/watched/mine")
            assert (answer.status_code, answer.json()["detail"]) == (
                503,
                "the server is not ready: graph 'default' is being recovered",
            )
            metrics = server.http.get("/metrics").text
            assert 'liverank_committed_version{graph="default"} 1.0' in metrics
            may_go_on.set()
            path = "/graphs/default/watched/mine"
            wait_for(lambda: server.http.get(path).status_code == 200)
            assert server.http.get(path).json()["version"] == 1


def test_a_checkpoint_needs_no_place_among_the_computations(tmp_path: Path) -> None:
    Journal.create(tmp_path / "journal.db")
    limits = QueueLimits(1, 1 << 30)
    pipeline = Pipeline("test", tmp_path, Options(), "string", "cpu", NEVER, limits)
    pipeline.recover()
    pipeline.wait_until_open()
    gate = threading.Event()
    held = pipeline.call(lambda _: gate.wait(60))
    with pytest.raises(QueueFull):
        pipeline.recompute(Solve("auto"))
    asked = pipeline.checkpoint()
    gate.set()
    assert held.result(60)
    assert asked.result(60).version == 0
    pipeline.close(NotReady("the test ends"))


def test_batches_sent_while_a_graph_recovers_are_admitted_up_to_the_limit(tmp_path: Path) -> None:
    pipeline = started(tmp_path)
    pipeline.batches._limits = QueueLimits(2, 1 << 30)
    waiting = [batch([("a", "b")]), batch([("b", "c")])]
    submit(pipeline, *waiting)
    with pytest.raises(QueueFull):
        submit(pipeline, batch([("c", "d")]))
    pipeline.recover()
    assert [one.durable.result(60) for one in waiting] == [1, 2]
    pipeline.close(NotReady("the test ends"))


def test_a_watched_query_with_a_lost_seed_is_an_error_until_the_seed_exists(
    tmp_path: Path,
) -> None:
    """As after a salvaged journal: the batch that added the seed could not be read."""
    Journal.create(tmp_path / "journal.db")
    query = {"seeds": [["lost", 1.0]], "k": 9, "method": "hybrid", "target_error": 1e-6}
    document = {"format": 1, "watched": {"one": query}}
    (tmp_path / "watched.json").write_text(json.dumps(document))
    pipeline = restarted(tmp_path, Options())
    assert answers(pipeline) == {}
    assert pipeline.view.watched is not None
    problem = pipeline.view.watched["one"].error
    assert isinstance(problem, UnknownVertex)
    assert "'lost'" in str(problem)
    send(pipeline, batch(RING))
    assert answers(pipeline) == {}
    send(pipeline, batch([("lost", "a")]))
    assert set(answers(pipeline)["one"]) == {"lost", "a", "b", "c"}
    pipeline.unwatch("one").result(60)
    assert pipeline.view.watched == {}
    pipeline.close(NotReady("the test ends"))


QUERY = {"seeds": [["a", 1.0]], "k": 9, "method": "hybrid", "target_error": 1e-6}


def written(path: Path, **changes: Any) -> Path:
    """A file with one query, with changed fields."""
    path.write_text(json.dumps({"format": 1, "watched": {"one": {**QUERY, **changes}}}))
    return path


@pytest.mark.parametrize("watched", ["[]", '{"one": []}', '{"one": {"seeds": [3]}}', "7"])
def test_what_lists_no_watched_queries_is_named(tmp_path: Path, watched: str) -> None:
    file = tmp_path / "watched.json"
    file.write_text(f'{{"format": 1, "watched": {watched}}}')
    with pytest.raises(FileDamaged, match=r"watched\.json: is not a file of watched queries"):
        read_watched(file)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"seeds": []}, "seeds"),
        ({"seeds": [["a", -1.0]]}, r"seeds\[0\]\[1\]"),
        ({"seeds": [["a", "1"]]}, r"seeds\[0\]\[1\]"),
        ({"seeds": [["", 1.0]]}, r"seeds\[0\]\[0\]"),
        ({"seeds": [[True, 1.0]]}, r"seeds\[0\]\[0\]"),
        ({"seeds": [["a", 0.0]]}, "seeds"),
        ({"seeds": [[7, 1.0]]}, r"seeds\[0\]\[0\]: 7 is not a string key"),
        ({"k": 0}, "k"),
        ({"k": True}, "k"),
        ({"k": 100_001}, "k"),
        ({"method": "guess"}, "method"),
        ({"target_error": 0.0}, "target_error"),
        ({"target_error": "1e-6"}, "target_error"),
        ({"more": 1}, "more"),
        ({"unknown": "drop"}, "unknown"),
        ({"damping": 1.0}, "damping"),
        ({"damping": "0.5"}, "damping"),
        ({"among": []}, "among"),
        ({"among": [7]}, r"among\[0\]: 7 is not a string key"),
    ],
)
def test_every_field_of_a_watched_query_is_validated(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    assert list(read_watched(written(tmp_path / "watched.json"), "string")) == ["one"]
    with pytest.raises(FileDamaged, match=rf"watched\.one\.{place}"):
        read_watched(written(tmp_path / "watched.json", **changes), "string")


def test_a_file_of_a_later_format_is_not_taken_for_damage(tmp_path: Path) -> None:
    file = tmp_path / "watched.json"
    file.write_text('{"format": 3, "queries": {}}')
    with pytest.raises(StorageFailed, match="has format 3, expected 1 or 2") as caught:
        read_watched(file)
    assert not isinstance(caught.value, FileDamaged)


def test_damaged_watched_queries_stop_their_graph_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as server:
        for name in ("stopped", "served"):
            server.http.put(f"/graphs/{name}").raise_for_status()
            answer = server.http.post(f"/graphs/{name}/batches", json={"insert": RING})
            answer.raise_for_status()
    file = tmp_path / "graphs" / "stopped" / "watched.json"
    written(file, k=0)
    with running(tmp_path) as server:
        assert server.http.get("/graphs/served").json()["edges"] == len(RING)
        assert server.http.get("/metrics").status_code == 200
        names = [graph["graph"] for graph in server.http.get("/graphs").json()["graphs"]]
        assert names == ["default", "served"]
        for answer in (
            server.http.get("/graphs/stopped"),
            server.http.put("/graphs/stopped"),
            server.http.get("/graphs/stopped/top"),
            server.http.post("/graphs/stopped/batches", json={"insert": RING}),
        ):
            assert answer.status_code == 503
            assert answer.json()["type"].endswith(":storage-failed")
            assert f"{file}: is not a file of watched queries: " in answer.json()["detail"]
            assert "watched.one.k 0" in answer.json()["detail"]
    assert "graph 'stopped' is not served" in caplog.text
    file.unlink()
    with running(tmp_path) as server:
        assert server.http.get("/graphs/stopped").json()["edges"] == len(RING)
    written(file, seeds=[])
    with running(tmp_path) as server:
        assert server.http.delete("/graphs/stopped").status_code == 204
        assert server.http.get("/graphs/stopped").status_code == 404
