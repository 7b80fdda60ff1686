"""Data of releases before, written by their code, and what this release tells them apart by.

stored/float32.tar.gz has graphs whose ranks are stored as float32: `single` with removed vertices,
a watched query and a checkpoint before its last batch; `ranked`, undirected with weights, with a
checkpoint of its last version; `young` with integer keys, in the journal alone.
stored/layout-4.tar.gz has a data directory and a backup of it: graph `living` with a window by the
`event` clock, a removed vertex, a checkpoint before two batches, and an expiry.
stored/layout-3.tar.gz has a data directory and a backup of it: graph `heavy` with weights, a set, a
watched query and a checkpoint before two batches; graph `both`, undirected, in the journal alone.
stored/layout-2.tar.gz has a data directory and a backup of it: graph `default` with a checkpoint,
two later batches, an idempotency key and a watched query; graph `papers` with integer keys and
batches in the journal alone.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liverank_service.errors import StorageFailed
from liverank_service.pipeline.checkpointer import snapshot_of
from liverank_service.storage import checkpoint, journal
from liverank_service.storage.backup import restore
from liverank_service.storage.graph_store import GraphStore, read_manifest
from liverank_service.storage.journal import Journal
from tests.service.dask_cluster import settings_for, workers_here
from tests.service.server import DEFAULT_OPTIONS, Server, running

STORED = Path(__file__).parents[1] / "stored"
GRAPH = "/graphs/default"


def extracted(name: int | str, directory: Path) -> Path:
    """name: of the archive, or the layout that it has."""
    file = f"layout-{name}" if isinstance(name, int) else name
    with tarfile.open(STORED / f"{file}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return extracted(2, tmp_path)


def layout_of(directory: Path) -> int:
    with closing(sqlite3.connect(directory / journal.FILE)) as connection:
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
    return int(layout)


def assert_served(server: Server) -> None:
    """The graphs of the fixture, with the defaults that they had."""
    http = server.http
    info = http.get(GRAPH).json()
    assert (info["version"], info["vertices"], info["edges"]) == (3, 72, 63)
    assert info["options"] == DEFAULT_OPTIONS

    papers = http.get("/graphs/papers").json()
    assert (papers["version"], papers["vertices"], papers["edges"]) == (1, 3, 4)
    assert papers["options"]["damping"] == 0.5
    ranks = [place["rank"] for place in http.get(f"{GRAPH}/top?k=5").json()["ranks"]]
    # told by the release before
    expected = [0.06850264309300365] * 4 + [0.06177116949444161]
    assert ranks == pytest.approx(expected, abs=1e-6)
    watched = http.get(f"{GRAPH}/watched/mine").json()
    assert watched["seeds"] == {"d": 2.0, "a": 1.0}
    repeat = http.post(
        f"{GRAPH}/batches",
        json={"insert": [["a", "b"], ["b", "c"], ["c", "a"]]},
        headers={"Idempotency-Key": "one"},
    ).json()
    assert (repeat["version"], repeat["inserted"]) == (1, 3)
    old = http.get(f"{GRAPH}/batches/3").json()
    assert (old["inserted"], "reweighted" in old) == (60, False)
    assert http.post(f"{GRAPH}/batches", json={"insert": [["x", "y"]]}).json()["version"] == 4


@pytest.mark.parametrize("name", ["data", "backup"])
def test_a_directory_of_the_release_before_is_served(stored: Path, name: str) -> None:
    with running(stored / name) as server:
        assert_served(server)
        server.http.post(f"{GRAPH}/checkpoint").raise_for_status()
    graph = stored / name / "graphs" / "default"
    assert layout_of(graph) == 6
    with running(stored / name) as server:
        assert server.http.get(GRAPH).json()["version"] == 4


@pytest.mark.parametrize("name", ["data", "backup"])
def test_weights_and_sets_of_layout_3_are_served(tmp_path: Path, name: str) -> None:
    path = "/graphs/heavy"
    with running(extracted(3, tmp_path) / name) as server:
        http = server.http
        info = http.get(path).json()
        assert (info["version"], info["vertices"], info["edges"]) == (4, 63, 64)
        ranks = http.post(f"{path}/ranks", json={"vertices": ["b", "c", "v0"]}).json()["ranks"]
        # told by that release
        assert ranks == pytest.approx([0.0212847237, 0.0204729675, 0.0158730158], abs=1e-8)
        assert http.get(f"{path}/sets/mine").json()["vertices"] == ["a", "b", "c"]
        assert http.get(f"{path}/watched/seen").json()["seeds"] == {"a": 1.0, "b": 2.0}
        repeat = http.post(
            f"{path}/batches",
            json={"insert": [["a", "b", 2], ["b", "c", 0.5], ["c", "a", 1]]},
            headers={"Idempotency-Key": "one"},
        ).json()
        assert (repeat["version"], repeat["inserted"]) == (1, 3)
        both = http.get("/graphs/both").json()
        assert (both["vertices"], both["edges"], both["options"]["directed"]) == (3, 3, False)
        removed = http.post(f"{path}/batches", json={"remove": ["a"]}).json()
        assert (removed["removed"], removed["removed_edges"]) == (1, 2)
        http.post(f"{path}/checkpoint").raise_for_status()
    assert layout_of(tmp_path / name / "graphs" / "heavy") == 6
    with running(tmp_path / name) as server:
        assert server.http.get(path).json()["vertices"] == 62
        assert server.http.get(f"{path}/sets/mine").json()["vertices"] == ["b", "c"]


@pytest.mark.parametrize("name", ["data", "backup"])
def test_times_and_removed_vertices_of_layout_4_are_served(tmp_path: Path, name: str) -> None:
    path = "/graphs/living"
    with running(extracted(4, tmp_path) / name) as server:
        http = server.http
        info = http.get(path).json()
        assert (info["version"], info["vertices"], info["edges"]) == (5, 4, 4)
        ranks = http.post(f"{path}/ranks", json={"vertices": ["a", "b", "d", "e"]}).json()["ranks"]
        # told by that release
        told = [0.2175572698757412, None, 0.2824427301242587, 0.282442730124259]
        assert [rank and pytest.approx(rank, abs=1e-6) for rank in ranks] == told
        assert http.get(f"{path}/sources").json()["sources"] == []
        position = {"source": "s", "to": "1"}
        following = {"insert": [["e", "d", None, 1151]]}  # then c → d is too old
        sent = http.post(f"{path}/batches", params=position, json=following).json()
        assert (sent["version"], sent["inserted"]) == (6, 1)
        http.post(f"{path}/checkpoint").raise_for_status()
    assert layout_of(tmp_path / name / "graphs" / "living") == 6
    with running(tmp_path / name) as server:
        info = server.http.get(path).json()
        assert (info["vertices"], info["edges"]) == (4, 4)
        (found,) = server.http.get(f"{path}/sources").json()["sources"]
        assert (found["position"], found["version"]) == ("1", 6)


FLOAT32: dict[str, tuple[tuple[int, int, int], float, dict[Any, float]]] = {
    "single": (
        (3, 57, 129),
        6.596846084065746e-07,
        {"v1": 0.04592061990089551, "v3": 0.016121962555516216, "new": 0.012934306511062461},
    ),
    "ranked": (
        (2, 36, 61),
        8.500310938578823e-07,
        {"v0": 0.1113912020823487, "v1": 0.039335301193669, "v2": 0.051494204892041553},
    ),
    "young": (
        (1, 4, 4),
        7.848029284689904e-06,
        {1: 0.33085271760474727, 2: 0.30975968067174897, 4: 0.06521739389585365},
    ),
}
"""Version, vertices and edges, error bound, and ranks, as that release told them."""


def test_ranks_that_were_stored_as_float32_become_float64(tmp_path: Path) -> None:
    _assert_upgraded(tmp_path)


@pytest.mark.filterwarnings("default")  # Dask's own
def test_so_they_do_in_shards(tmp_path: Path) -> None:
    with workers_here(2) as cluster:
        _assert_upgraded(tmp_path, shards=2, **settings_for(cluster, tmp_path))


def _assert_upgraded(tmp_path: Path, **settings: Any) -> None:
    data = extracted("float32", tmp_path) / "data"
    for before in (True, False):
        with running(data, **settings) as server:
            http = server.http
            for name, (size, told_bound, told) in FLOAT32.items():
                path = f"/graphs/{name}"
                info = http.get(path).json()
                found = (info["version"], info["vertices"], info["edges"])
                assert found == (size if before else tuple(each + 1 for each in size))
                assert info["options"]["storage"] == "float64"
                assert http.put(path, json={"storage": "float64"}).status_code == 200
                if before:
                    asked = {"vertices": list(told)}
                    ranks = http.post(f"{path}/ranks", json=asked).json()["ranks"]
                    off = sum(map(abs, np.subtract(ranks, list(told.values()))))
                    # its checkpoint is published as it is
                    assert off <= (1e-15 if name == "ranked" else told_bound + info["error_bound"])
                    other = next(iter(told))
                    new = 99 if name == "young" else "another"
                    receipt = http.post(f"{path}/batches", json={"insert": [[other, new]]}).json()
                    assert (receipt["inserted"], receipt["converged"]) == (1, True)
                    http.post(f"{path}/checkpoint").raise_for_status()
            assert http.get("/graphs/single/watched/mine").json()["seeds"] == {"v1": 1.0, "v2": 2.0}
    for name in FLOAT32:
        dtypes = []
        for stored in checkpoint.stored(data / "graphs" / name / checkpoint.DIRECTORY):
            kept = checkpoint.read(stored)
            dtypes.append(kept.arrays["values"].dtype)
            assert snapshot_of(kept).arrays["values"].dtype == np.float64
        # the newest first; the oldest is that of the release before
        assert dtypes == [np.float64, np.float32][: 1 if name == "young" else 2]


def test_a_backup_of_the_release_before_is_restored(stored: Path) -> None:
    copied = restore(stored / "backup", stored / "again")
    assert [(one.graph, one.version) for one in copied] == [("default", 3), ("papers", 1)]
    with running(stored / "again") as server:
        assert_served(server)


def test_what_the_release_before_reads_has_another_number(tmp_path: Path) -> None:
    """It refuses a journal of another layout than 1 to 4, and checkpoints of another format than 1
    to 3, before it changes anything.
    """
    with running(tmp_path) as server:
        server.http.put("/graphs/heavy", json={"weighted": True}).raise_for_status()
        server.http.post("/graphs/heavy/batches", json={"insert": [["a", "b", 2]]})
        server.http.post("/graphs/heavy/checkpoint").raise_for_status()
    graph = tmp_path / "graphs" / "heavy"
    assert layout_of(graph) == 6
    assert json.loads((graph / "graph.json").read_text())["format"] == 3
    (written,) = checkpoint.stored(graph / checkpoint.DIRECTORY)
    _, _, manifest = (written / "manifest.json").read_bytes().partition(b"\n")
    assert json.loads(manifest)["format"] == 4


def test_a_later_release_is_refused_and_its_files_stay_as_they_are(tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.open()
    graph = store.create("later", {})
    store.close()
    with closing(sqlite3.connect(graph / journal.FILE)) as connection:
        connection.execute("PRAGMA user_version = 7")
    manifest = json.loads((graph / "graph.json").read_text()) | {"format": 4}
    (graph / "graph.json").write_text(json.dumps(manifest))
    before = (graph / journal.FILE).read_bytes()
    with pytest.raises(StorageFailed, match=r"graph\.json: has format 4, expected 1 to 3"):
        read_manifest(graph)
    with pytest.raises(StorageFailed, match=r"journal\.db: has layout 7, expected 1 to 6"):
        Journal(graph / journal.FILE)
    assert (graph / journal.FILE).read_bytes() == before
