"""The state of a program between two supersteps, to go on with after an interruption."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.packed_csr import edge_keys, ends_and_slots
from liverank_gpu.graph.reading import SharedGraph
from liverank_gpu.native.in_numpy import GOLDEN_GAMMA, mixed
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import Mode, ProgramState, VertexProgram
from liverank_gpu.programs.views import ids_by_position

_FORMAT = 1
"""Of what a file and its arrays are. Another one is not read."""

_HASHED_AT_ONCE = 1 << 18
"""Edges, about."""

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
        header = json.dumps({"format": _FORMAT, **members})
        arrays: dict[str, Any] = dict(self.arrays)
        arrays["header"] = np.frombuffer(header.encode(), np.uint8)
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
            members = dict(json.loads(arrays.pop("header").tobytes()))
            if (found := members.pop("format")) != _FORMAT:
                raise ValueError(f"format {found!r}")
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
    """The state of a run on this graph, of which this is the fingerprint. In shards all call it
    together, and each has that of all. Raises OutOfMemory.
    """
    host, ids = graph.backend.device.to_host, ids_by_position(graph)
    own, active = ids[: graph.vertices], state.active[: 0 if program.every_vertex else state.count]
    values = _united(graph, state.values)
    by_id = graph.backend.xp.empty_like(values)
    by_id[graph.united(own)] = values
    arrays = {
        "values": host(by_id),
        "active": host(graph.united(own[active])).astype(np.int64),
        "count": np.array(state.count),
    }
    if state.edge_values is not None:
        ends, slots = ends_and_slots(graph.backend, graph.incoming.csr)
        columns = (ids[ends[0]], ids[ends[1]], state.edge_values[slots])
        of_all = (host(_united(graph, each)) for each in columns)
        arrays |= zip(("sources", "targets", "edge_values"), of_all, strict=True)
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
    """The state on the device, of one shard what it has of it. Raises InvalidValue for another
    graph or a state that lacks something, OutOfMemory.
    """
    if saved.graph != fingerprint(graph):
        raise InvalidValue("resume", saved.graph, "the state of a run on the graph as it is now")
    try:
        return _on_device(graph, program, saved)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise InvalidValue(
            "resume", sorted(saved.arrays), "as ProgramRun.state returned it"
        ) from error


def _on_device(graph: DynamicGraph, program: VertexProgram, saved: SavedRun) -> ProgramState:
    xp, backend, arrays = graph.backend.xp, graph.backend, saved.arrays
    ids = ids_by_position(graph)
    values = backend.device.to_device(arrays["values"])[ids[: graph.vertices]]
    active, _ = graph.own_rows_at(graph.permutation.positions_of(arrays["active"]))
    room = xp.empty(0 if graph.divided else graph.vertices - len(active), np.int32)
    state = ProgramState(values, xp.concatenate([active, room]), int(arrays["count"]))
    state.supersteps, state.edges = int(saved.supersteps), int(saved.edges)
    state.aggregate, state.fresh = float(saved.aggregate), bool(saved.fresh)
    if program.edges is not None:
        ends, slots = ends_and_slots(backend, graph.incoming.csr)
        state.edge_values = program.edges.array(len(graph.incoming.csr.column_indices), xp.empty)
        sources, targets, edge_values = (
            backend.device.to_device(arrays[name]) for name in ("sources", "targets", "edge_values")
        )
        keys = edge_keys(sources, targets)
        order = xp.argsort(keys)
        lies = order[xp.searchsorted(keys[order], edge_keys(ids[ends[0]], ids[ends[1]]))]
        state.edge_values[slots] = edge_values[lies]
    return state


def fingerprint(graph: DynamicGraph) -> int:
    """Of the ids, the edges and their weights, whatever their order in memory: a sum of hashes."""
    return deque(fingerprint_parts(SharedGraph(graph)), 1)[0]


def fingerprint_parts(shared: SharedGraph) -> Iterator[int]:
    """Computes the fingerprint part by part, between which batches may come; the last number is
    it.
    """
    graph = shared.graph
    of_edges, parts = 0, graph.arcs // _HASHED_AT_ONCE + 1
    for part in range(parts):
        graph = shared.graph  # or by now a copy
        xp, ids, csr = graph.backend.xp, ids_by_position(graph), graph.outgoing.csr
        rows = xp.arange(*(graph.vertices * each // parts for each in (part, part + 1)))
        places, neighbours, weights = graph.backend.rebuild.entries(csr.at(rows))
        hashes = _hashes(edge_keys(ids[rows[places]], ids[neighbours]), weights)
        of_edges += int(hashes.sum())
        yield of_edges
    loops = xp.flatnonzero(graph.loop[: graph.vertices])
    of_loops = _hashes(edge_keys(ids[loops], ids[loops]), graph.loop[loops].astype(np.float32))
    own = xp.array([of_edges % 2**64, int(of_loops.sum())], np.uint64)
    sums = graph.united(own).reshape(-1, 2).sum(axis=0).tolist()
    yield hash((*sums, graph.ids.limit, *graph.ids.free().tolist())) % 2**63


def _united(graph: DynamicGraph, values: Array) -> Array:
    """The numbers, or rows of them, of all shards."""
    return graph.united(values.reshape(-1)).reshape(-1, *values.shape[1:])


def _hashes(keys: Array, weights: Array | None) -> Array:
    """uint64[m]"""
    hashes = keys.astype(np.uint64)
    if weights is not None:
        hashes = hashes * GOLDEN_GAMMA + weights.view(np.uint32)
    return mixed(hashes)
