"""Sizes in bytes as people write them."""

from __future__ import annotations

import re

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

SIZE = "bytes, or a number with KiB, MiB, GiB or TiB"


def parse_size(text: str | int) -> int:
    """8589934592 for ``8GiB``, ``8 GiB`` or ``8589934592``. Raises ValueError."""
    found = re.fullmatch(r"([0-9]+(?:[.][0-9]+)?) ?([KMGT]iB)?", str(text))
    if found is None:
        raise ValueError(f"expected {SIZE}, got {text!r}")
    return int(float(found[1]) * UNITS.get(found[2], 1))
