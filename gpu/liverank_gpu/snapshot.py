"""What a graph and its ranks need to come back without a solve, as host arrays to store.

A snapshot holds the permutation of the vertices, the out-lists, the loops, y and β, by position
(see liverank_gpu.graph.vertices). The rest is derived: degrees from the lengths, strengths from
the weights, in-lists by transposing, the residual by the sweep with which the first solve after
`restore` begins (so no accumulated rounding is carried over). A snapshot is taken when everything
applied is ranked, so what batches touched since the last solve is not part of it; nor are
personalized queries.

Taking one has three steps, so that the graph's owner is held up for no more than a copy at the
bandwidth of memory:

    buffer = staging_buffer(graph, iterate)                   any thread: memory
    capture = Capture(graph, iterate, …, buffer)              the owner, between two batches
    snapshot = capture.snapshot()                             any thread: to the host, rows packed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.reading import StagingBuffer
from liverank_gpu.graph.vertices import VertexPermutation
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.gate import healed, stored_fault
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Host arrays and numbers of one moment, by name.

    arrays:
    ids         int32[m], VertexPermutation.ids: the id at each position below m
    length      int32[n], of the out-lists
    neighbours  int32[…], the out-lists one after the other, each padded with zeros to a multiple of
                liverank_gpu.operations.csr.ALIGNMENT
    weights     float32[…], those of `neighbours`; only of a weighted graph
    loop        uint8[n], 1 where the vertex has a loop; weighted: float32[n], its weight or 0
    free        int32[…], ids that are free, ascending; left out if there are none
    exponents, newest  int64[n], of a graph whose weights decay: see liverank_gpu.graph.decay.Decay
    values      float64[n], y

    numbers:
    edges        number of edges, as Engine.edges
    base, total  β and Σy
    error_bound  of the ranks y / Σy
    ranked_base  the β that the bound is about; left out where it is `base`, as by older releases
    """

    arrays: dict[str, NDArray[Any]]
    numbers: dict[str, float]

    def ranks_fault(self) -> str | None:
        """Why its ranks are no distribution with an error bound: see gate.stored_fault."""
        return stored_fault(self.arrays, self.numbers)

    def healed(self, damping: float) -> Snapshot:
        """The same, with equal ranks in place of ranks that are none: see gate.healed."""
        return Snapshot(*healed(self.arrays, self.numbers, damping))


def numbers_of(
    graph: DynamicGraph, iterate: GlobalIterate, error_bound: float, ranked_base: float
) -> dict[str, float]:
    """The numbers of a snapshot: see Snapshot."""
    base, total = iterate.rhs_scale, float(iterate.certificate.mass)
    numbers = {"edges": graph.edges, "base": base, "total": total, "error_bound": error_bound}
    return numbers if ranked_base == base else numbers | {"ranked_base": ranked_base}


def _captured_arrays(graph: DynamicGraph, iterate: GlobalIterate) -> dict[str, Array]:
    return {**graph.outgoing.arrays(), "loop": graph.loop, "values": iterate.values}


def staging_buffer(graph: DynamicGraph, iterate: GlobalIterate) -> StagingBuffer:
    """Memory for the next Capture, on the backend's device."""
    return StagingBuffer(graph.backend.device, _captured_arrays(graph, iterate))


class Capture:
    """The state of one moment, which later batches do not change."""

    def __init__(
        self,
        graph: DynamicGraph,
        iterate: GlobalIterate,
        error_bound: float,
        ranked_base: float,
        buffer: StagingBuffer,
    ) -> None:
        self._device = graph.backend.device
        self._packed = graph.outgoing.packed
        self._ids = graph.permutation.ids  # which never change
        self._free = graph.ids.free()
        self._decay = graph.decay.copies(graph.vertices) if graph.decay else {}
        self._arrays = buffer.copies(_captured_arrays(graph, iterate))
        self._numbers = numbers_of(graph, iterate, error_bound, ranked_base)
        self._device.synchronize()

    def snapshot(self) -> Snapshot:
        """Copies everything to the host and packs the rows."""
        with self._device.reading():
            host = {name: self._to_host(array) for name, array in self._arrays.items()}
            host["ids"] = self._to_host(self._ids)
        host |= self._decay
        if len(self._free):
            host["free"] = self._free.astype(np.int32)
        host["length"] = host.pop("lengths")
        starts, slots = host.pop("starts"), {"neighbours": host.pop("column indices")}
        if "weights" in host:
            slots["weights"] = host.pop("weights")
        for name, entries in slots.items():
            packed = np.zeros(self._packed, entries.dtype)
            kernels.pack_entries(starts, host["length"], entries, packed)
            host[name] = packed
        return Snapshot(host, dict(self._numbers))

    def pieces(self) -> Mapping[str, Sequence[Callable[[], NDArray[Any]]]]:
        """Arrays that `snapshot` leaves out, as consecutive parts, each by a call of the owner:
        there are some in captures of shards alone (liverank_gpu.sharded.engine).
        """
        return {}

    def release(self) -> None:
        """Frees what `pieces` would still read; for the owner."""

    def _to_host(self, array: Array) -> NDArray[Any]:
        return array if isinstance(array, np.ndarray) else self._device.to_host(array)


def ranks_of(snapshot: Snapshot, backend: Backend) -> Ranks:
    """The ranks that were published when the snapshot was taken; needs no graph. They have to be
    a distribution: see Snapshot.ranks_fault.
    """
    device, numbers = backend.device, snapshot.numbers
    with device.reading():
        permutation = VertexPermutation(backend, device.to_device(snapshot.arrays["ids"]))
        values = device.to_device(snapshot.arrays["values"])
        values = backend.xp.maximum(values, 0.0, out=values)  # as Engine.publish
        free = permutation.positions_of(snapshot.arrays.get("free", np.empty(0, np.int32)))
        bounds = (numbers["total"], numbers["error_bound"])
        base = numbers.get("ranked_base", numbers["base"])
        return Ranks(backend, permutation, values, *bounds, free, None, base)


def restore(snapshot: Snapshot, graph: DynamicGraph, iterate: GlobalIterate) -> None:
    """Gives an empty graph and its iterate what the snapshot holds."""
    arrays, numbers = snapshot.arrays, snapshot.numbers
    graph.restore(
        arrays["ids"],
        arrays["length"],
        arrays["neighbours"],
        arrays["loop"],
        int(numbers["edges"]),
        arrays.get("weights"),
        arrays.get("free"),
    )
    if graph.decay is not None:
        graph.decay.restore(arrays["exponents"], arrays["newest"])
    iterate.restore(arrays["values"], numbers["base"], numbers["total"])
