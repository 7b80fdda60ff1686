from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.server import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for tests without special needs; each creates its own graph."""
    with running(
        tmp_path_factory.mktemp("data"), max_body_bytes=100_000, max_graphs=1000
    ) as started:
        yield started
