"""What the operations of ``reference`` share: entries and sums of rows, and what happens at one
vertex. α is the damping, d the out-degree or strength, ℓ the loop: see GraphView.
"""

from __future__ import annotations

from inspect import isfunction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import Csr, GraphView, Rows
from liverank_gpu.operations.device import Array

Operations = TypeVar("Operations", bound=type)

LARGEST_FLOAT = float(np.finfo(np.float32).max)

ALL = slice(None)
"""All vertices."""


AS_IEEE = np.errstate(all="ignore")
"""Operations take what is infinite or no number as every backend does: without a word."""


def as_ieee(operations: Operations) -> Operations:
    """AS_IEEE for each method of a class."""
    for name, each in list(vars(operations).items()):
        if isfunction(each):
            setattr(operations, name, AS_IEEE(each))
    return operations


def all_rows(order: Array) -> Rows:
    """Some rows in one group."""
    return Rows(order, np.array([0, len(order)]))


def entries_of(csr: Csr, rows: Array | slice = ALL) -> tuple[Array, Array]:
    """The entries of some rows, one row after the other: int64[m] each, the place of its row among
    these rows, and its slot.
    """
    lengths = csr.row_lengths[rows].astype(np.int64)
    places = np.repeat(np.arange(len(lengths)), lengths)
    begins = csr.row_starts[rows] - (np.cumsum(lengths) - lengths)
    return places, np.arange(len(places)) + begins[places]


def weights_at(csr: Csr, slots: Array) -> NDArray[np.float64]:
    """float64[m]: the weights of the edges in these slots; 1 if there are none."""
    if csr.weights is None:
        return np.ones(len(slots))
    weights: NDArray[np.float64] = csr.weights[slots].astype(np.float64)
    return weights


def row_sums(csr: Csr, rows: Array | slice, values: Array) -> NDArray[np.float64]:
    """float64[k]: Σ w(u,v)·values[u] over the entries u of each row, in the order of the slots."""
    places, slots = entries_of(csr, rows)
    terms = values[csr.column_indices[slots]] * weights_at(csr, slots)
    return np.bincount(places, terms, len(csr.row_lengths[rows])).astype(np.float64)


def contributions_of(values: Array, degree: Array) -> NDArray[np.float64]:
    """y/d, and 0 where d = 0."""
    return np.divide(values, degree, out=np.zeros(len(values)), where=degree != 0)


def diagonal_of(graph: GraphView, damping: float, at: Array | slice = ALL) -> NDArray[np.float64]:
    """1 - αℓ/d: the diagonal of A = I - αP̄ᵀ."""
    return 1.0 - damping * contributions_of(graph.loop[at].astype(np.float64), graph.degree[at])


def is_isolated(graph: GraphView, at: Array | slice = ALL) -> NDArray[np.bool_]:
    """Where a vertex has no edge but its own loop: it receives and sends nothing, so its y follows
    β at once.
    """
    alone: NDArray[np.bool_] = graph.degree[at] == graph.loop[at]
    alone &= graph.incoming.row_lengths[at] == 0
    return alone


def quantized(graph: GraphView, amounts: Array) -> NDArray[np.float32]:
    """float32[k]: rounded contributions. One that a tiny strength makes larger than any float32 is
    bounded; the rest of its residual stays.
    """
    bounded = np.clip(amounts, -LARGEST_FLOAT, LARGEST_FLOAT) if graph.weighted else amounts
    rounded: NDArray[np.float32] = bounded.astype(np.float32)
    return rounded
