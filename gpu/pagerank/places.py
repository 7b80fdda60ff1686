"""Which places in the order of global ranks are proven.

Let e = R - R* be the error of the ranks R. Both sum to 1, so Σe = 0, and if ‖e‖₁ ≤ B, then no e_v
is further from 0 than B/2, and no two differ by more than B. So two vertices whose ranks differ by
more than B are in their true order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.types import Ranking

_ROUNDOFF = 2.0**-51
"""Of both ranks, which are quotients, relative to the larger one."""


def rank_error(error_bound: float) -> float:
    """How far any single rank can be off. error_bound: on the L1 error of all."""
    return 0.5 * error_bound


def proven_descents(ranks: Ranking, error_bound: float) -> NDArray[np.bool_]:
    """bool[max(k-1, 0)]: whether each place, and all before it, are proven to be above the next one
    and all behind it. Equal ranks never are.

    ranks  float64[k], descending
    """
    return ranks[:-1] - ranks[1:] > error_bound + _ROUNDOFF * ranks[:-1]
