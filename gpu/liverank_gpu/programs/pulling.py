"""Programs of which vertices pull and some are active, in memory, a superstep at a time.

A superstep reads the in-lists of all vertices, or if few messages are sent of those alone that may
receive one.
"""

from __future__ import annotations

from collections.abc import Sequence

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

ONE_BLOCK = 31
"""The shift by which all vertices are in one block: blocks are for windows."""


class Together:
    """What a superstep takes of other parts of the graph: there are none. (For shards see
    liverank_gpu.sharded.programs: all call these together.)

    backend  runs operations on what is here
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def over_columns(self, values: Array) -> Array:
        """An array over vertices as one over columns, to be changed."""
        return values

    def total(self, number: int) -> int:
        """The sum over all parts."""
        return number

    def aggregate(self, do: RunProgram, values: Array) -> float:
        """The aggregate of values, over vertices."""
        return do.aggregate_of(values, self.backend.run)

    def named(self, columns: Sequence[Array], vertices: int) -> Array:
        """int32[…], ascending: the vertices that are among these neighbours."""
        flags = self.backend.xp.zeros(vertices, np.bool_)
        for each in columns:
            flags[each] = True
        return self.backend.xp.flatnonzero(flags).astype(np.int32)

    def tell(self, active: Array, values: Array, steps: Array, now: int) -> int:  # noqa: ARG002
        """Has all know the values of active vertices, and when they became so. Returns how many
        are active.
        """
        return len(active)


def run_pulling(do: RunProgram, together: Together) -> None:
    """Up to `supersteps` more supersteps, which change `do.state`: values, the active vertices and
    their number, that of all parts, supersteps, edges and the aggregate. Raises OutOfMemory.
    """
    backend, state, in_place = together.backend, do.state, do.mode == "asynchronous"
    xp, columns, active = backend.xp, len(do.graph.ids), state.active[: state.count]
    values = together.over_columns(state.values)
    steps = xp.full(columns, NEVER, np.int32)
    steps[active] = 0
    count = together.tell(active, values, steps, 0)
    own_values, own_steps = values[: len(state.values)], steps[: len(state.values)]
    arrays = (values, steps) if in_place else (own_values.copy(), own_steps.copy())
    step = WindowState(values, arrays[0], steps, arrays[1], xp.zeros(1, np.int32), ONE_BLOCK)
    step.edge_values = state.edge_values
    aggregates, messages = do.program.aggregates, 0
    if state.supersteps == 0 and aggregates:
        state.aggregate = together.aggregate(do, own_values)
    for now in range(do.supersteps):
        if count == 0:
            break
        step.superstep, step.aggregate = state.supersteps, state.aggregate
        rows = _receiving(together, do.graph, active)
        listed = slice(None) if rows is do.graph.in_rows else rows.order
        graph = do.graph._replace(in_rows=rows)
        if rows.count:
            gather = Gather(do.program, do.parameters, graph, step, since=now, now=now + 1)
            messages += backend.run(gather).messages
        if not in_place:
            own_values[listed] = step.new_values[listed]
            own_steps[listed] = step.new_steps[listed]
        state.supersteps += 1
        if aggregates:
            state.aggregate = together.aggregate(do, own_values)
        active = xp.flatnonzero(own_steps == now + 1).astype(np.int32)
        count = together.tell(active, values, steps, now + 1)
    state.edges += together.total(messages)
    if values is not state.values:
        state.values[:] = own_values
    state.active, state.count = active, count


def _receiving(together: Together, graph: ProgramGraph, active: Array) -> Rows:
    """All rows, or if few edges leave the active vertices those to which they lead."""
    view, backend = graph.view, together.backend
    directions = 2 if graph.both else 1
    sent, received = view.outgoing, view.incoming
    lists = (sent, received)[:directions]
    messages = sum(int(backend.device.sum(each.row_lengths[active])) for each in lists)
    if together.total(messages) * LOOKING_PART > view.edges:
        assert graph.in_rows is not None
        return graph.in_rows
    entries = [
        backend.rebuild.entries(each.at(active)._replace(weights=None)).neighbours for each in lists
    ]
    rows = together.named(entries, view.vertices)
    if len(rows) == 0:
        return Rows(rows, np.zeros(1, np.int64))
    lengths = sum(each.row_lengths[rows] for each in (received, sent)[:directions])
    return grouped(backend, lengths, rows)


def grouped(backend: Backend, lengths: Array, rows: Array | None = None) -> Rows:
    """Rows of these lengths, integer[k], grouped for the kernels; None: all rows."""
    order, bins = backend.xp.empty(len(lengths), np.int32), backend.xp.empty(len(lengths), np.uint8)
    groups = backend.rebuild.partition(lengths, order, bins)
    return Rows(order if rows is None else rows[order], groups)
