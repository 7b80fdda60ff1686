"""The state of a program between two supersteps, to go on with after an interruption."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.packed_csr import ends_and_slots
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import Mode, ProgramState, VertexProgram
from liverank_gpu.programs.views import ids_by_position

# Everything is by id: after a restart vertices may lie in another order.


@dataclass(frozen=True, eq=False)
class SavedRun:
    """Where a run of a vertex program has got to, on the host.

    program     its digest
    parameters  all of the program's
    mode        ``synchronous`` or ``asynchronous``
    graph       a fingerprint of the vertices and edges it runs on
    supersteps, edges, aggregate, fresh  see ProgramState
    arrays      values by id and active ids; of edges sources, targets and values
    note        of whoever saved it: numbers by name
    """

    program: str
    parameters: Mapping[str, float]
    mode: Mode
    graph: int
    supersteps: int
    edges: int
    aggregate: float
    fresh: bool
    arrays: Mapping[str, NDArray[Any]]
    note: Mapping[str, float] = field(default_factory=dict)

    def save(self, path: Path | str) -> None:
        """Writes it to a file, whole or not at all. Raises OSError."""
        path = Path(path)
        members = {name: each for name, each in vars(self).items() if name != "arrays"}
        arrays: dict[str, Any] = dict(self.arrays)
        arrays["header"] = np.frombuffer(json.dumps(members).encode(), np.uint8)
        partial = path.with_name(f"{path.name}.partial")
        with partial.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    @classmethod
    def load(cls, path: Path | str) -> SavedRun:
        """What `save` wrote. Raises OSError, InvalidValue."""
        try:
            with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            members = json.loads(arrays.pop("header").tobytes())
            return cls(**members, arrays=arrays)
        except (ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise InvalidValue("path", str(path), "a file that SavedRun.save wrote") from error


def saved_run(
    graph: DynamicGraph,
    program: VertexProgram,
    parameters: Mapping[str, float],
    mode: Mode,
    state: ProgramState,
    hashed: int,
) -> SavedRun:
    """The state of a run on this graph, of which this is the fingerprint. Raises OutOfMemory."""
    host = graph.backend.device.to_host
    active = state.active[: 0 if program.every_vertex else state.count]
    arrays = {
        "values": host(graph.permutation.by_id(state.values)).copy(),
        "active": graph.permutation.ids_of(active),
        "count": np.array(state.count),
    }
    if state.edge_values is not None:
        ids, (ends, slots) = (
            ids_by_position(graph),
            ends_and_slots(graph.backend, graph.incoming.csr),
        )
        columns = (ids[ends[0]], ids[ends[1]], state.edge_values[slots])
        arrays |= zip(("sources", "targets", "edge_values"), map(host, columns), strict=True)
    return SavedRun(
        program.digest,
        dict(parameters),
        mode,
        hashed,
        state.supersteps,
        state.edges,
        state.aggregate,
        state.fresh,
        arrays,
    )


def restored(graph: DynamicGraph, program: VertexProgram, saved: SavedRun) -> ProgramState:
    """The state on the device. Raises InvalidValue for another graph, OutOfMemory."""
    if saved.graph != fingerprint(graph):
        raise InvalidValue("resume", saved.graph, "the state of a run on the graph as it is now")
    xp, backend, arrays = graph.backend.xp, graph.backend, saved.arrays
    ids = ids_by_position(graph)
    values = backend.device.to_device(arrays["values"])[ids]
    state = ProgramState(values, xp.empty(graph.vertices, np.int32), int(arrays["count"]))
    active = graph.permutation.positions_of(arrays["active"])
    state.active[: len(active)] = active
    state.supersteps, state.edges = saved.supersteps, saved.edges
    state.aggregate, state.fresh = saved.aggregate, saved.fresh
    if program.edges is not None:
        ends, slots = ends_and_slots(backend, graph.incoming.csr)
        state.edge_values = program.edges.array(len(graph.incoming.csr.column_indices), xp.empty)
        # both are of the same edges, in orders of their own
        lies = xp.argsort(_keys(ids[ends[0]], ids[ends[1]]))
        sources, targets, edge_values = (
            backend.device.to_device(arrays[name]) for name in ("sources", "targets", "edge_values")
        )
        state.edge_values[slots[lies]] = edge_values[xp.argsort(_keys(sources, targets))]
    return state


def fingerprint(graph: DynamicGraph) -> int:
    """Of the ids, the edges and their weights, whatever their order in memory: a sum of hashes."""
    xp, ids = graph.backend.xp, ids_by_position(graph)
    rows, neighbours, weights = graph.backend.rebuild.entries(graph.outgoing.csr)
    of_edges = _hashes(_keys(ids[rows], ids[neighbours]), weights)
    loops = xp.flatnonzero(graph.loop[: graph.vertices])
    of_loops = _hashes(_keys(ids[loops], ids[loops]), graph.loop[loops].astype(np.float32))
    sums = (int(of_edges.sum()), int(of_loops.sum()))
    return hash((*sums, graph.ids.limit, *graph.ids.free().tolist())) % 2**63


def _keys(sources: Array, targets: Array) -> Array:
    return sources.astype(np.int64) << 32 | targets


def _hashes(keys: Array, weights: Array | None) -> Array:
    """uint64[m]: the finalizer of MurmurHash3."""
    hashes = keys.astype(np.uint64)
    if weights is not None:
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + weights.view(np.uint32)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(33))
