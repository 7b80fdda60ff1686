"""Files of edges."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverank_service.formats.edge_files import read_edge_list
from liverank_service.formats.edge_list import EdgeList, WantedColumns
from tests.service.formats.edges_of_files import Read


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(
        content: str | bytes,
        name: str = "edges.txt",
        time: str | int | None = None,
        weight: str | int | None = None,
        source: str | int | None = None,
        target: str | int | None = None,
    ) -> EdgeList:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_edge_list(path, WantedColumns(time, weight, source, target))

    return read
