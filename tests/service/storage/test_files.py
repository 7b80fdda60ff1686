"""A directory that cannot be synced after a rename: what is refused is not there, and can be tried
again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from liverank_service.catalog import Catalog
from liverank_service.errors import GraphStopped, StorageFailed, UnknownGraph
from liverank_service.settings import Settings
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.api_keys import ApiKeyStore
from liverank_service.storage.backup import backup, restore
from liverank_service.storage.files import replace_file
from liverank_service.storage.graph_store import GraphStore, read_manifest
from tests.service.graphs import batch, send, working

Failing = Callable[..., AbstractContextManager[None]]

for_a_moment_or_for_good = pytest.mark.parametrize("for_good", [False, True])


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """The disk refuses to sync a directory while a condition holds; `for_good`: and from then on to
    rename and to remove anything.
    """
    original = os.fsync

    @contextmanager
    def fail(
        directory: Path, condition: Callable[[], bool], for_good: bool = False
    ) -> Iterator[None]:
        refused: list[int] = []

        def unless_refused(function: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: Any, **others: Any) -> None:
                if refused:
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                function(*arguments, **others)

            return call

        def fsync(descriptor: int) -> None:
            if os.path.samestat(os.fstat(descriptor), directory.stat()) and condition():
                refused.append(descriptor)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            original(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            for name in ("rename", "unlink", "rmdir") if for_good else ():
                patch.setattr(os, name, unless_refused(getattr(os, name)))
            with pytest.raises(StorageFailed, match="Input/output error"):
                yield
        assert refused

    return fail


@for_a_moment_or_for_good
def test_a_checkpoint_that_was_refused_is_taken_the_next_time(
    tmp_path: Path, failing: Failing, for_good: bool
) -> None:
    directory = tmp_path / "checkpoints"
    with working(tmp_path) as pipeline:
        send(pipeline, batch([("a", "b")]))
        with failing(directory, lambda: bool(checkpoints.stored(directory)), for_good):
            pipeline.checkpoint().result(60)
        assert len(list(directory.iterdir())) == for_good
        assert pipeline.checkpoint().result(60).version == 1
        (taken,) = directory.iterdir()
        assert checkpoints.read(taken).version == 1


@for_a_moment_or_for_good
def test_a_graph_that_was_refused_can_be_created(
    tmp_path: Path, failing: Failing, for_good: bool
) -> None:
    store = GraphStore(tmp_path)
    store.open()
    graphs = tmp_path / "graphs"
    with failing(graphs, lambda: (graphs / "g").exists(), for_good):
        store.create("g", {"damping": 0.5})
    assert len(store.directories()) == for_good
    store.close()
    assert store.directories() == []
    store.open()
    with failing(graphs, lambda: (graphs / "g").exists(), for_good):
        store.create("g", {"damping": 0.5})
    assert read_manifest(store.create("g", {"damping": 0.6})) == {"damping": 0.6}
    with pytest.raises(StorageFailed, match="not empty"):
        store.create("g", {})
    assert read_manifest(graphs / "g") == {"damping": 0.6}
    with failing(graphs, lambda: not (graphs / "g").exists(), for_good):
        store.remove("g")
    assert (graphs / "g").exists() != for_good
    store.remove("g")
    assert store.directories() == []
    store.close()


def test_a_graph_that_could_be_neither_opened_nor_removed_can_be_created(
    tmp_path: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(Settings(data=tmp_path, backend="cpu"))
    catalog.open()
    graphs = tmp_path / "graphs"
    left: list[Path] = []

    def refuse(directory: Path) -> None:
        left.append(directory)
        raise StorageFailed(directory, "Input/output error")

    try:
        with (
            monkeypatch.context() as patch,
            failing(graphs, lambda: bool(left) and not (graphs / "g").exists()),
        ):
            patch.setattr("liverank_service.catalog.read_manifest", refuse)
            catalog.create("g", {"damping": 0.5})
        assert left == [graphs / "g"]
        with pytest.raises(UnknownGraph):
            catalog.get("g")
        graph, is_new = catalog.create("g", {"damping": 0.6})
        assert (is_new, graph.options.damping) == (True, 0.6)
        catalog.drop("g")
        assert [path.name for path in graphs.iterdir()] == ["default"]
    finally:
        catalog.close()


@for_a_moment_or_for_good
def test_a_graph_whose_files_stay_says_so_until_it_is_dropped_again(
    tmp_path: Path, failing: Failing, for_good: bool
) -> None:
    catalog = Catalog(Settings(data=tmp_path, backend="cpu"))
    catalog.open()
    graphs = tmp_path / "graphs"
    try:
        catalog.create("g", {})
        with failing(graphs, lambda: not (graphs / "g").exists(), for_good):
            catalog.drop("g")
        for refused in (lambda: catalog.get("g"), lambda: catalog.create("g", {})):
            with pytest.raises(GraphStopped, match="drop it again"):
                refused()
        assert [graph.name for graph in catalog.graphs()] == ["default"]
        catalog.drop("g")
        with pytest.raises(UnknownGraph):
            catalog.get("g")
        assert catalog.create("g", {})[1]
    finally:
        catalog.close()


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("before", [None, b"before"])
def test_a_file_that_was_not_replaced_is_the_one_before(
    tmp_path: Path,
    failing: Failing,
    before: bytes | None,
    links: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    file = tmp_path / "file"
    if before is not None:
        replace_file(file, before)
    with failing(tmp_path, lambda: file.exists() and file.read_bytes() == b"after"):
        replace_file(file, b"after")
    assert (file.read_bytes() if file.exists() else None) == before
    if before is not None:
        assert file.stat().st_mode & 0o777 == 0o600
    replace_file(file, b"after")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_removal_leaves_what_is_left_of_other_graphs(tmp_path: Path) -> None:
    store = GraphStore(tmp_path)
    store.open()
    left = tmp_path / "graphs" / ".dropped-a-b-7"
    left.mkdir()
    store.create("a", {})
    store.remove("a")
    assert list((tmp_path / "graphs").iterdir()) == [left]
    store.close()


def test_a_key_that_nobody_was_told_is_not_required(tmp_path: Path, failing: Failing) -> None:
    store = ApiKeyStore(tmp_path)
    with failing(tmp_path, (tmp_path / "keys.json").exists):
        store.create("first", "admin", None)
    assert not ApiKeyStore(tmp_path, may_be_missing=False)


def test_a_backup_that_was_refused_is_not_there(tmp_path: Path, failing: Failing) -> None:
    data = tmp_path / "data"
    store = GraphStore(data)
    store.open()
    with working(store.create("g", {})) as pipeline:
        send(pipeline, batch([("a", "b")]))
    store.close()
    saved, again = tmp_path / "saved", tmp_path / "again"
    again.mkdir()
    with failing(tmp_path, saved.exists):
        backup(data, saved)
    assert not saved.exists()
    assert backup(data, saved) == restore(saved, again)
