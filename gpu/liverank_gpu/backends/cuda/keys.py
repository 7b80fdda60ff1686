"""Ids and keys on the host, as the kernels of ``cuda`` take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import BUCKET_BITS
from liverank_gpu.operations.device import Array
from liverank_gpu.types import VERTEX_LIMIT

_NO_KEY = np.iinfo(np.int64).max


def first_row(bucket: int) -> int:
    """The first row in a bucket of rebuild.cu."""
    shift = max(0, (bucket >> BUCKET_BITS) - 1)
    return (bucket - (shift << BUCKET_BITS)) << shift


def narrow(ids: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Ids that no graph has, negative or above 32 bits, become 2³¹-1, which none has either."""
    if ids.dtype == np.int32:
        return ids.astype(np.int32, copy=False)
    return np.minimum(ids.view(np.uint64), VERTEX_LIMIT).astype(np.int32)


def id_type(ids: Array) -> str:
    """The C++ type of a column, as in the names of the kernels."""
    return "int" if ids.dtype.itemsize == 4 else "int64"


def packed_keys(
    operation: int, sources: NDArray[np.int64], targets: NDArray[np.int64], vertices: int
) -> NDArray[np.int64]:
    keys = sources << 32
    keys |= targets << 1
    keys |= operation
    # one comparison finds ids that are negative or too large
    unknown = np.maximum(sources.view(np.uint64), targets.view(np.uint64)) >= vertices
    keys[unknown] = _NO_KEY
    return keys
