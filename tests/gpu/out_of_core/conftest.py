"""What tests of graphs out of core share."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from liverank_gpu.out_of_core import ranking


@pytest.fixture
def small_windows() -> Iterator[None]:
    """Budgets of which little is left for windows."""
    with patch.object(ranking, "_LEAST_STREAM", 1 << 12):
        yield
