"""What generators return, and how their arguments are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import VERTEX_LIMIT, BackendName

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Sources and targets, int64[m] each, on the host."""

Columns = tuple[Array, Array]
"""Sources and targets, int32[m] each, where the backend computes."""


def chosen(backend: BackendName | Backend) -> Backend:
    """The backend itself, or the one of this name."""
    return backend if isinstance(backend, Backend) else backend_named(backend)


def check_count(name: str, value: Any, least: int = 1, most: int = VERTEX_LIMIT) -> None:
    """Raises InvalidValue unless `value` is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidValue(name, value, f"an integer from {least} to {most}")


def check_probability(name: str, value: Any) -> None:
    """Raises InvalidValue unless `value` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise InvalidValue(name, value, "a number from 0 to 1")


def edge_list(columns: Columns, backend: BackendName | Backend) -> Edges:
    """The columns that a generator drew on `backend`, as int64 on the host."""
    sources, targets = (chosen(backend).device.to_host(ends) for ends in columns)
    return sources.astype(np.int64), targets.astype(np.int64)
