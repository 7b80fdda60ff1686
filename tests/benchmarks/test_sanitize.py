"""The stream for compute-sanitizer, on the kernels compiled for the CPU."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from benchmarks import sanitize
from tests.cuda_emulator.emulated import emulated_backend

FOR_DEVICE_COLUMNS = {
    "rebuild: count_buckets<int64>",
    "rebuild: keys_of_range<int64>",
    "rebuild_weighted: keys_of_range<int64>",
    "rebuild: pack_keys<int64>",
}
"""Kernels for 64-bit ids that are on a device; emulated, all arrays are on the host."""


def test_the_stream_launches_every_kernel_of_either_kind(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--all"):
        pytest.skip("takes minutes: run with --all, as with every new kernel")
    # the smallest graph with a row for several warps
    with patch.object(sanitize, "SCALE", 12):
        left = sanitize.run(emulated_backend())
    assert left == FOR_DEVICE_COLUMNS
