"""Sizes in bytes as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

SIZE = "whole bytes, or a number with KiB, MiB, GiB or TiB"


def parse_size(text: str | int) -> int:
    """8589934592 for ``8GiB``, ``8 GiB`` or ``8589934592``; with a unit, rounded down to a byte.

    Raises ValueError for other texts, and for 2**63 bytes or more.
    """
    # a fraction only where a unit follows
    found = re.fullmatch(r"([0-9]+(?:[.][0-9]+(?= ?[KMGT]))?) ?([KMGT]iB)?", str(text))
    size = int(Decimal(found[1]) * UNITS.get(found[2], 1)) if found is not None else None
    if size is None or size >= 1 << 63:
        raise ValueError(f"expected {SIZE}, got {text!r}")
    return size
