"""Programs of which vertices pull and some are active, in memory, a superstep at a time.

A superstep reads the in-lists of all vertices, or if few messages are sent of those alone that may
receive one.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import (
    LOOKING_PART,
    NEVER,
    Gather,
    ProgramGraph,
    RunProgram,
    WindowState,
)

_ONE_BLOCK = 31
"""The shift by which all vertices are in one block: blocks are for windows."""


def run_pulling(backend: Backend, do: RunProgram) -> None:
    """Up to `supersteps` more supersteps, which change `do.state`: values, the active vertices and
    their number, supersteps, edges and the aggregate. Raises OutOfMemory.
    """
    xp, state, in_place = backend.xp, do.state, do.mode == "asynchronous"
    active = state.active[: state.count]
    steps = xp.full(len(state.values), NEVER, np.int32)
    steps[active] = 0
    values, block = state.values, xp.zeros(1, np.int32)
    arrays = (values, steps) if in_place else (values.copy(), steps.copy())
    step = WindowState(values, arrays[0], steps, arrays[1], block, _ONE_BLOCK)
    step.edge_values = state.edge_values
    if state.supersteps == 0:
        state.aggregate = _aggregate(backend, do)
    for now in range(do.supersteps):
        if len(active) == 0:
            break
        step.superstep, step.aggregate = state.supersteps, state.aggregate
        rows = _receiving(backend, do.graph, active)
        listed = slice(None) if rows is do.graph.in_rows else rows.order
        graph = do.graph._replace(in_rows=rows)
        if rows.count:
            gather = Gather(do.program, do.parameters, graph, step, since=now, now=now + 1)
            state.edges += backend.run(gather).messages
        if not in_place:
            values[listed] = step.new_values[listed]
            steps[listed] = step.new_steps[listed]
        state.supersteps += 1
        state.aggregate = _aggregate(backend, do)
        active = xp.flatnonzero(steps == now + 1).astype(np.int32)
    state.active[: len(active)], state.count = active, len(active)


def _aggregate(backend: Backend, do: RunProgram) -> float:
    return do.aggregate_of(do.state.values, backend.run) if do.program.aggregates else 0.0


def _receiving(backend: Backend, graph: ProgramGraph, active: Array) -> Rows:
    """All rows, or if few edges leave the active vertices those to which they lead."""
    view, xp = graph.view, backend.xp
    directions = 2 if graph.both else 1
    sent, received = view.outgoing, view.incoming
    lists = (sent, received)[:directions]
    messages = sum(int(backend.device.sum(each.row_lengths[active])) for each in lists)
    if messages * LOOKING_PART > view.edges:
        assert graph.in_rows is not None
        return graph.in_rows
    flags = xp.zeros(view.vertices, np.bool_)
    for each in lists:
        flags[backend.rebuild.entries(each.at(active)._replace(weights=None)).neighbours] = True
    rows = xp.flatnonzero(flags).astype(np.int32)
    if len(rows) == 0:
        return Rows(rows, np.zeros(1, np.int64))
    order, bins = xp.empty(len(rows), np.int32), xp.empty(len(rows), np.uint8)
    lengths = sum(each.row_lengths[rows] for each in (received, sent)[:directions])
    groups = backend.rebuild.partition(lengths, order, bins)
    return Rows(rows[order], groups)
