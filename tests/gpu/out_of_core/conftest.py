"""What tests of graphs out of core share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liverank_gpu.operations.backend import Backend


@pytest.fixture(scope="session")
def backend(backend: Backend) -> Backend:
    """With budgets of which little is left for windows."""
    return replace(backend, sizes=replace(backend.sizes, least_stream=1 << 12))
