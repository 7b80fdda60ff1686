from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from liverank_service.errors import NotReady
from liverank_service.pipeline import expiry
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage.journal import Journal
from tests.service.graphs import opened
from tests.service.pipeline.losing_workers import Cluster
from tests.service.pipeline.windows import Clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    Journal.create(path)
    return path


@pytest.fixture
def pipeline(path: Path) -> Iterator[Pipeline]:
    pipeline = opened(path.parent)
    yield pipeline
    pipeline.close(NotReady("the test ends"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the expiry takes for the wall clock."""
    clock = Clock()
    monkeypatch.setattr(expiry, "time", clock)
    monkeypatch.setattr(expiry, "_LONGEST_PAUSE", 0.01)
    return clock


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Where graphs with shards get them from."""
    cluster = Cluster()
    monkeypatch.setattr("liverank_gpu.sharded.cluster.local_workers", cluster.start)
    return cluster
