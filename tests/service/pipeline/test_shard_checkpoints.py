"""Checkpoints of graphs in shards, which are threads here."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from liverank_gpu import ShardLost, UnknownVertex
from liverank_service.errors import NotReady, RankingDelayed, StorageFailed
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.backup import backup, restore
from liverank_service.storage.files import write_synced
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    batch,
    edges_of,
    engine_of,
    opened,
    send,
    timed_batch,
    vertices_of,
    weighted_batch,
    working,
    writer_of,
)
from tests.service.pipeline.losing_workers import EDGES, Cluster
from tests.service.server import wait_for


@pytest.fixture
def pipeline(tmp_path: Path, cluster: Cluster) -> Iterator[Pipeline]:  # noqa: ARG001
    with working(tmp_path, shards=2) as pipeline:
        yield pipeline


def test_a_graph_opens_with_any_number_of_shards_and_without(
    tmp_path: Path, cluster: Cluster
) -> None:
    sent: list[list[tuple[str, str, float]]] = [
        [("a", "b", 2.0), ("b", "c", 1.0), ("c", "c", 4.0), ("a", "d", 1.5)],
        [("d", "b", 1.0), ("b", "e", 0.5)],
        [("e", "a", 3.0)],
        [("f", "a", 1.0)],
    ]
    for shards, edges in zip((2, 0, 3, 0), sent, strict=True):
        with working(tmp_path, shards=shards, weighted=True, target_error=1e-9) as pipeline:
            if shards:
                (workers,) = cluster.started
                cluster.started.clear()
                assert workers.size == shards
            got = send(pipeline, weighted_batch(edges, [("a", "d")] if len(edges) == 1 else []))
            assert got["inserted"] == len(edges)
            assert got["error_bound"] <= 1e-9
            taken = pipeline.checkpoint().result(60)
            assert taken.version == got["version"]
            assert pipeline.view.version == taken.version
        assert not shards or workers.closed
    with working(tmp_path, weighted=True, target_error=1e-9) as pipeline:
        sources, targets = engine_of(pipeline).edge_list()
        keys = pipeline.view.keys.keys
        ends = (keys(column).to_pylist() for column in (sources, targets))
        weights = engine_of(pipeline).edge_weights().tolist()
        expected = {edge for edges in sent for edge in edges} - {("a", "d", 1.5)}
        assert set(zip(*ends, weights, strict=True)) == expected


@pytest.mark.parametrize("method", ["copy_lists", "entries"])
def test_a_checkpoint_is_taken_after_a_shard_was_lost_during_it(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path, method: str
) -> None:
    send(pipeline, batch(EDGES))
    cluster.failing = method
    with pytest.raises(ShardLost):
        pipeline.checkpoint().result(60)
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    assert checkpoints.stored(tmp_path / "checkpoints") == []
    assert pipeline.checkpoint().result(60).version == 1
    cluster.failing = "update"
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    # from the checkpoint, which one more batch follows
    assert pipeline.published(2).result(60).edges == 5


@pytest.mark.parametrize("where", ["checkpoint", "journal", "unanswered"])
def test_removed_vertices_come_back_with_any_number_of_shards_and_without(
    tmp_path: Path,
    cluster: Cluster,  # noqa: ARG001
    where: str,
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([*EDGES, ("b", "b")]))
    expected = {*EDGES, ("b", "b")}
    for shards, gone, back in ((2, "d", "e"), (0, "b", "d"), (3, "e", "f")):
        with working(tmp_path, shards=shards) as pipeline:
            limit = pipeline.view.ranks.id_limit
            with pytest.MonkeyPatch.context() as patch:
                if where == "unanswered":
                    patch.setattr(Journal, "add_receipts", lambda _, rows: list(rows))
                got = send(pipeline, timed_batch(remove=[gone, "nobody"]))
            lost = {edge for edge in expected if gone in edge}
            assert (got["removed"], got["removed_edges"]) == (1, len(lost))
            if where == "checkpoint":
                assert pipeline.checkpoint().result(60).version == got["version"]
        expected = (expected - lost) | {(back, "c")}
        with working(tmp_path, shards=3 - shards) as pipeline:
            with pytest.raises(UnknownVertex):
                pipeline.view.ranks.of(pipeline.view.ids(pa.array([gone])))
            # the id that is free is used again, after a recovery too
            got = send(pipeline, batch([(back, "c")]))
            assert (got["inserted"], got["new_vertices"]) == (1, 1)
            assert pipeline.view.ranks.id_limit == limit
            assert (pipeline.view.vertices, pipeline.view.edges) == (limit, len(expected))
    with working(tmp_path) as pipeline:
        assert edges_of(pipeline) == expected
        assert vertices_of(pipeline) == {"a", "c", "d", "f"}


def test_a_checkpoint_does_not_go_on_with_other_shards(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    send(pipeline, batch(EDGES))
    captured = pipeline._capture()
    cluster.failing = "apply"
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    pipeline.published(2).result(60)
    with pytest.raises(NotReady, match="the shards have ended"):
        checkpoints.write(tmp_path / "checkpoints", captured.checkpoint())
    assert list((tmp_path / "checkpoints").iterdir()) == []
    captured.release()
    assert pipeline.checkpoint().result(60).version == 2
    assert pipeline.shards.restarts == 1


def test_batches_are_ranked_while_a_checkpoint_is_written(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("liverank_gpu.sharded.dask_workers.Workers.piece", 4)
    send(pipeline, batch(EDGES))
    versions: list[int] = []

    def write_slowly(path: Path, parts: Iterable[memoryview]) -> None:
        def slowly() -> Iterator[memoryview]:
            for part in parts:
                if path.name == "neighbours.bin":
                    assert len(part) <= 4 * 4
                    versions.append(send(pipeline, batch([("a", str(len(versions)))]))["version"])
                yield part

        write_synced(path, slowly())

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_synced", write_slowly)
        taken = pipeline.checkpoint().result(60)
    assert (taken.version, versions) == (1, [2, 3, 4, 5])
    (path,) = checkpoints.stored(tmp_path / "checkpoints")
    stored = checkpoints.read(path)
    assert stored.nbytes == taken.bytes
    assert (len(stored.arrays["length"]), stored.numbers["engine"]["edges"]) == (4, 4)
    assert pipeline.checkpoint().result(60).version == 5


def test_the_copy_of_a_checkpoint_that_fails_is_freed(
    pipeline: Pipeline, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    send(pipeline, batch(EDGES))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_synced", full)
        with pytest.raises(StorageFailed):
            pipeline.checkpoint().result(60)
    (workers,) = cluster.started
    assert [shard._captured for shard in workers.shards] == [None, None]
    assert pipeline.checkpoint().result(60).version == 1
    assert [shard._captured for shard in workers.shards] == [None, None]


def grown_in_shards(graph: Path, shards: int) -> set[tuple[str, str]]:
    """Stores a graph with two checkpoints and a batch after them; returns its edges."""
    edges: set[tuple[str, str]] = set()
    with working(graph, shards=shards) as pipeline:
        for new in (EDGES, [("a", "c"), ("a", "a")], [("c", "d")]):
            send(pipeline, batch(new))
            edges.update(new)
            if len(edges) < 7:
                pipeline.checkpoint().result(60)
    return edges


def damage(path: Path, how: str) -> str:
    """Damages a file. Returns what a message says of it."""
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
        return "No such file or directory"
    path.write_bytes(content[:-4] if how == "short" else bytes([content[0] ^ 1]) + content[1:])
    if how == "short":
        return f"has {len(content) - 4:,} bytes, expected {len(content):,}"
    return "is damaged: its checksum does not match"


@pytest.mark.parametrize("how", ["missing", "short", "changed"])
@pytest.mark.parametrize("file", ["neighbours.bin", "values.bin"])
def test_a_damaged_checkpoint_of_shards_is_set_aside(
    tmp_path: Path,
    cluster: Cluster,  # noqa: ARG001
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    how: str,
) -> None:
    monkeypatch.setattr("liverank_gpu.sharded.dask_workers.Workers.piece", 4)
    edges = grown_in_shards(tmp_path, 3)
    newest, _ = checkpoints.stored(tmp_path / "checkpoints")
    said = damage(newest / file, how)
    with working(tmp_path, shards=2) as pipeline:
        assert (pipeline.view.version, edges_of(pipeline)) == (3, edges)
    set_aside = f"{newest / file}: {said}; the checkpoint was renamed to damaged-{newest.name}"
    assert set_aside in caplog.text


def test_shards_do_not_open_a_checkpoint_of_a_later_release(
    tmp_path: Path,
    cluster: Cluster,  # noqa: ARG001
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "FORMAT", 5)
        grown_in_shards(tmp_path, 3)
    stored = checkpoints.stored(tmp_path / "checkpoints")
    said = f"{stored[0] / 'manifest.json'}: has format 5, expected 1 to 4"
    with pytest.raises(StorageFailed, match=re.escape(said)):
        opened(tmp_path, shards=2)
    assert checkpoints.stored(tmp_path / "checkpoints") == stored


@pytest.mark.parametrize("how", ["missing", "short", "changed"])
def test_a_backup_of_shards_is_verified(
    tmp_path: Path,
    cluster: Cluster,  # noqa: ARG001
    how: str,
) -> None:
    data, saved, again = (tmp_path / name for name in ("data", "saved", "again"))
    graph = data / "graphs" / "default"
    graph.mkdir(parents=True)
    (graph / "graph.json").write_text('{"format": 1, "options": {}}')
    edges = grown_in_shards(graph, 3)
    backup(data, saved)
    restore(saved, again)
    with working(again / "graphs" / "default", shards=2) as pipeline:
        assert (pipeline.view.version, edges_of(pipeline)) == (3, edges)
    for source, copy in ((saved, restore), (data, backup)):
        (path, *_) = checkpoints.stored(source / "graphs" / "default" / "checkpoints")
        said = f"{path / 'neighbours.bin'}: {damage(path / 'neighbours.bin', how)}"
        with pytest.raises(StorageFailed, match=re.escape(said)):
            copy(source, tmp_path / "copied")
        assert not (tmp_path / "copied").exists()


def test_batches_stay_until_two_checkpoints_that_are_whole_have_them(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    directory = tmp_path / "checkpoints"
    for number in range(2):
        send(pipeline, batch([("a", f"b{number}")]))
        pipeline.checkpoint().result(60)
    damaged = checkpoints.stored(directory)[0]
    (damaged / "manifest.json").write_bytes(b"")
    cluster.started[0].lose()
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    send(pipeline, batch([("a", "b2")]))
    assert pipeline.checkpoint().result(60).version == 3
    older = checkpoints.read(checkpoints.stored(directory)[1])
    assert older.version == 1
    assert writer_of(pipeline).journal.retired <= older.version
