"""LIVERANK_DEVICE_MEMORY, from the settings to where it bounds the arrays of a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import BackendName, InvalidValue, Options
from liverank_service.catalog import Catalog
from liverank_service.settings import Settings

Asked = list[tuple[Any, ...]]


def asked_of(data: Path, **settings: Any) -> str | None:
    """Opens a data directory where the bound is refused. Returns why it cannot be used."""
    catalog = Catalog(Settings(data=data, device_memory="1GiB", **settings))
    try:
        with pytest.raises(InvalidValue, match="device_memory: 1 is not allowed; it must be other"):
            catalog.open()
        return catalog.not_ready
    finally:
        catalog.close()


def test_this_process_is_bounded_before_any_graph_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Asked = []

    def refuse(most: int | None, backend: BackendName) -> None:
        asked.append((most, backend))
        raise InvalidValue("device_memory", 1, "other")

    monkeypatch.setattr("liverank_service.catalog.limit_device_memory", refuse)
    reason = asked_of(tmp_path)
    assert reason is not None
    assert reason.startswith("bounding the memory of the device failed: device_memory: 1")
    assert asked == [(1 << 30, "auto")]


def test_with_shards_their_processes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Asked = []

    def refuse(_: Options, shards: int, backend: BackendName, most: int | None) -> None:
        asked.append((shards, backend, most))
        raise InvalidValue("device_memory", 1, "other")

    def not_here(*_: Any) -> None:
        raise AssertionError("this process has no arrays on a device")

    monkeypatch.setattr("liverank_gpu.sharded.cluster.local_workers", refuse)
    monkeypatch.setattr("liverank_service.catalog.limit_device_memory", not_here)
    asked_of(tmp_path, shards=2)
    assert asked == [(2, "auto", 1 << 30)]
