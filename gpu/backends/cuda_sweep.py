"""Sweeps over the transpose on the ``cuda`` backend: launches of gpu/kernels/pull.cu, relax.cu and
descend.cu.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import (
    Array,
    Descent,
    Frontier,
    Known,
    Relaxed,
    Rows,
    Step,
    Stepped,
)
from gpu.backends.cuda_graph import CudaGraphOperations
from gpu.kernels import LANES, URGENT, VALUES
from gpu.kernels import LONGEST as _LONGEST

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.graph import Graph

_BLOCK, _WARP = 256, 32
_MOST_BLOCKS = 8192
"""Some rounds on a large device; one block adds up what so many leave."""

_SUMS = 5
"""Sums that every sweep leaves."""

_GROUP_LANES = np.array(LANES[::-1])
_LONG_GROUPS = int((_GROUP_LANES > _WARP).sum())
"""Groups whose rows are shared by several warps."""

_PLAN = np.dtype(
    [("row", np.int64, len(LANES) + 1), ("unit", np.int64, len(LANES) + 1), ("each", np.int64)]
)
"""Plan of rows.cuh."""


@lru_cache(maxsize=64)
def _planned(groups: tuple[int, ...]) -> tuple[NDArray[np.void], int, int, int]:
    """The plan for rows in these groups, the number of blocks, of rows that are shared by several
    warps, and of their parts.
    """
    sizes = np.diff(groups)
    units = np.where(
        _GROUP_LANES > _WARP,
        sizes * (_GROUP_LANES // _WARP),
        -(-sizes * np.minimum(_GROUP_LANES, _WARP) // _WARP),
    )
    plan = np.zeros((), _PLAN)
    plan["row"] = groups
    plan["unit"][1:] = np.cumsum(units)
    total = int(plan["unit"][-1])
    warps = _BLOCK // _WARP
    plan["each"] = max(1, -(-total // (warps * _MOST_BLOCKS)))
    blocks = max(1, -(-total // (warps * int(plan["each"]))))
    return plan, blocks, groups[_LONG_GROUPS], int(plan["unit"][_LONG_GROUPS])


class CudaSweepOperations(CudaGraphOperations):
    """Operations that read in-lists; see Backend."""

    share_dtypes: ClassVar[dict[str, type[np.generic]]] = {
        "float64": np.uint16,
        "float32": np.float32,
    }
    _no_flags: Array
    _no_marks: Array
    _no_values: dict[str, Array]
    _nothing_known: Known
    _arrived: Array

    def find_residual(
        self,
        graph: Graph,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        rows, nowhere = graph.incoming.rows, (self._no_marks, self._no_flags)
        sums = self._pull(
            "false", graph, rows, values, contributions, base, damping, residual, *nowhere, 0.0, 0.0
        )
        residual_l1, residual_sum, *_ = self.to_host(sums).tolist()
        return residual_l1, residual_sum

    def step(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        new_values: Array,
        frontier: Frontier,
    ) -> Stepped:
        xp, kind = self.xp, values.dtype.name
        flags = (frontier.affected, frontier.spreading)
        sums = self._pull(
            "true",
            graph,
            rows,
            values,
            contributions,
            base,
            damping,
            new_values,
            *flags,
            frontier.prune_tolerance,
            frontier.frontier_tolerance,
        )
        grows = np.isfinite(frontier.frontier_tolerance)
        spreading, staying = xp.empty((2, rows.count if grows else 1), np.int32)
        found = xp.zeros(2, np.uint64)
        self._kernels["pull"][f"adopt_rows<{VALUES[kind]}>"](
            (max(1, min(_MOST_BLOCKS, -(-rows.count // _BLOCK))),),
            (_BLOCK,),
            (
                rows.order,
                np.int64(rows.count),
                graph.degree,
                new_values,
                values,
                self._no_values["float64"] if contributions is None else contributions,
                np.int32(contributions is not None),
                *flags,
                np.int32(grows),
                spreading,
                staying,
                found,
            ),
        )
        largest_change = float(self.to_host(sums)[-1])
        spread, stayed = self.to_host(found).tolist()
        return Stepped(
            largest_change, spreading[:spread], staying[:stayed] if grows else rows.order
        )

    def _pull(
        self,
        stepping: str,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        out: Array,
        affected: Array,
        spreading: Array,
        prune_tolerance: float,
        frontier_tolerance: float,
    ) -> Array:
        divided = str(contributions is None).lower()
        return self._over_rows(
            "pull",
            f"pull_rows<{VALUES[values.dtype.name]}, {stepping}, {divided}>",
            graph.incoming,
            rows,
            (
                graph.loop,
                graph.degree,
                values,
                self._no_values["float64"] if contributions is None else contributions,
                np.float64(base),
                np.float64(damping),
                out,
                affected,
                spreading,
                np.float64(prune_tolerance),
                np.float64(frontier_tolerance),
            ),
            self._sums(),
        )

    def contribute(self, graph: Graph, values: Array, contributions: Array) -> None:
        # one pass instead of four
        self._kernels["pull"]["contribute"](
            (min(_MOST_BLOCKS, -(-graph.vertices // _BLOCK)),),
            (_BLOCK,),
            (np.int64(graph.vertices), graph.degree, values, contributions),
        )

    def lower(self, residual: Array, places: Array, weights: Array, amount: float) -> None:
        count = len(places)
        self._kernels["relax"]["lower"](
            (min(_MOST_BLOCKS, -(-count // _BLOCK)),),
            (_BLOCK,),
            (places, weights, np.int64(count), np.float64(amount), residual),
        )

    def round_shares(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        damping: float,
        shift: float,
    ) -> Relaxed:
        kernel = f"round_shares<{VALUES[values.dtype.name]}>"
        arguments = (
            graph.incoming.length,
            np.float64(damping),
            np.float64(shift),
            values,
            residual,
            shares,
        )
        sums = self._over_vertices("relax", kernel, graph, arguments, self._sums())
        return Relaxed(*self.to_host(sums).tolist())

    def relax(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        new_shares: Array,
        damping: float,
        shift: float,
        known: Known | None = None,
        amount: float = 0.0,
    ) -> Relaxed:
        leaning = str(known is not None).lower()
        known = known or self._nothing_known
        sums = self._over_rows(
            "relax",
            f"relax_rows<{VALUES[values.dtype.name]}, {leaning}>",
            graph.incoming,
            graph.incoming.rows,
            (
                graph.loop,
                graph.degree,
                shares,
                np.float64(damping),
                np.float64(shift),
                known.values,
                known.residual,
                np.float64(known.base),
                np.float64(amount),
                values,
                residual,
                new_shares,
            ),
            self._sums(),
        )
        return Relaxed(*self.to_host(sums).tolist())

    def accelerate(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        descent: Descent,
        damping: float,
        mean: float,
        floor: float,
        followed: bool,
    ) -> tuple[Step, Relaxed]:
        products, sums = both = self.xp.empty((2, _SUMS))
        self._over_rows(
            "descend",
            "image_rows",
            graph.incoming,
            graph.incoming.rows,
            (
                graph.loop,
                graph.degree,
                shares,
                np.float64(damping),
                np.float64(mean),
                values,
                residual,
                np.int32(floor == 0.0),
                np.float64(floor),
                descent.weights,
                np.int32(followed),
                descent.last_image,
                descent.image,
            ),
            products,
        )
        self._over_vertices(
            "descend",
            "descend",
            graph,
            (
                graph.incoming.length,
                np.float64(damping),
                np.float64(mean),
                products,
                np.int32(followed),
                descent.image,
                descent.direction,
                descent.last_image,
                values,
                residual,
                shares,
            ),
            sums,
        )
        seen, left = self.to_host(both).tolist()
        return Step.of(seen, followed), Relaxed(*left)

    def sum_depth(self, longest_row: int) -> int:
        # a thread's own additions, in the class where a row of that length can be; the parts of a
        # row; shuffles
        own = [
            -(-min(longest_row, URGENT * longest) // lanes)
            for lanes, longest in zip(LANES, _LONGEST, strict=False)
        ]
        parts = LANES[-1] // _WARP
        return max(*own, -(-longest_row // LANES[-1])) + parts // _WARP + 2 * 5

    def _over_rows(
        self,
        file: str,
        kernel: str,
        adjacency: Adjacency,
        rows: Rows,
        arguments: Sequence[Any],
        sums: Array,
    ) -> Array:
        """Launches a kernel of rows.cuh with its own arguments; returns its sums, on the device."""
        plan, blocks, long_rows, parts = _planned(tuple(rows.groups.tolist()))
        if long_rows > len(self._arrived):
            self._arrived = self.xp.zeros(2 * long_rows, np.int32)
        partial_sums = self.xp.empty((blocks, _SUMS))
        self._kernels[file][kernel](
            (blocks,),
            (_BLOCK,),
            (
                rows.order,
                adjacency.start,
                adjacency.length,
                adjacency.pool,
                self.xp.empty(max(1, parts)),
                self._arrived,
                plan,
                *arguments,
                partial_sums,
            ),
        )
        return self._added_up(file, kernel, partial_sums, sums)

    def _over_vertices(
        self, file: str, kernel: str, graph: Graph, arguments: Sequence[Any], sums: Array
    ) -> Array:
        """Launches a kernel that takes each vertex once; returns its sums, on the device."""
        blocks = min(_MOST_BLOCKS // 4, -(-graph.vertices // _BLOCK))
        partial_sums = self.xp.empty((blocks, _SUMS))
        self._kernels[file][kernel](
            (blocks,),
            (_BLOCK,),
            (np.int64(graph.vertices), graph.loop, graph.degree, *arguments, partial_sums),
        )
        return self._added_up(file, kernel, partial_sums, sums)

    def _added_up(self, file: str, kernel: str, partial_sums: Array, sums: Array) -> Array:
        largest = kernel != "image_rows"
        self._kernels[file][f"add_up<{str(largest).lower()}>"](
            (1,), (_BLOCK,), (partial_sums, np.int32(len(partial_sums)), sums)
        )
        return sums

    def _sums(self) -> Array:
        return self.xp.empty(_SUMS)
