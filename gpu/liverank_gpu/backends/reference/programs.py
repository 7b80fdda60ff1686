"""Vertex programs in Python: the functions of a program run for one edge and one vertex at a time,
with the arithmetic of C++ (liverank_gpu.device_functions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import add
from typing import Any

import numpy as np

from liverank_gpu.device_functions import quotient_of
from liverank_gpu.operations import programs as op
from liverank_gpu.operations.csr import Csr, runs


class _Functions:
    """The functions of a program, with its parameters, on a graph. What they give is rounded to the
    type of values, as it is stored.
    """

    def __init__(
        self,
        program: op.VertexProgram,
        parameters: Mapping[str, float],
        vertices: int,
        graph: op.ProgramGraph | None = None,
    ) -> None:
        self.program = program
        identity = stored_values(program.values, [program.identity])
        (self.identity,) = read_values(program.values, identity)
        self._constants = {"vertices": vertices, **parameters}
        self._initial, self._gather, self._merge, self._apply, self._scatter, self._aggregate = (
            self._bound(name)
            for name in ("initial", "gather", "merge", "apply", "scatter", "aggregate")
        )
        self._sends = None if program.sends is None else self._bound("sends")
        self._edge_apply = None if program.edges is None else self._bound("edge_apply")
        if graph is not None:
            self.ids = graph.ids.tolist()
            self.degree = graph.view.degree.astype(np.float64).tolist()
            in_degree = graph.view.incoming.row_lengths.tolist()
            own = slice(len(in_degree))  # of a shard, which knows ids and degrees of all
            self.vertex = list(zip(self.ids[own], self.degree[own], in_degree, strict=True))
            self.absent = graph.absent.astype(bool).tolist()

    def _bound(self, name: str) -> Callable[..., Any]:
        """Takes all that the function may name, values first."""
        program, function = self.program, self.program.functions[name]
        names = [*program.values_of(name), *op.ARGUMENTS[name], *self._constants]
        places = [names.index(each) for each in function.arguments]
        python, constants = function.python, tuple(self._constants.values())

        def called(*given: Any) -> Any:
            every = given + constants
            return python(*[every[place] for place in places])

        return called

    def _stored(self, value: Any, layout: op.Layout | None = None) -> Any:
        layout = layout or self.program.values
        return value if layout.is_record else op.stored_number(value, layout.fields[0][1])

    def initial(self, v: int) -> Any:
        """The value of position v; the identity where there is no vertex."""
        return self.identity if self.absent[v] else self._stored(self._initial(*self.vertex[v]))

    def message(self, value: Any, weight: float, degree: float, *others: Any) -> Any:
        """What a vertex of this value sends along an edge.

        others  its ends, superstep, aggregate and value, if it has one; None if it sends nothing
        """
        share = quotient_of(weight, degree)
        ends = others or (0, 0, -1, 0.0)
        given = (value, *ends[4:], weight, share, *ends[:4])
        if self._sends is not None and not self._sends(*given):
            return None
        return self._stored(self._gather(*given))

    def edge_after(self, value: Any, weight: float, degree: float, *others: Any) -> Any:
        """The value of an edge after a message; see `message`."""
        assert self._edge_apply is not None
        given = (value, *others[4:], weight, quotient_of(weight, degree), *others[:4])
        return self._stored(self._edge_apply(*given), self.program.edges)

    def merged(self, a: Any, b: Any) -> Any:
        return self._stored(self._merge(a, b))

    def improved(self, old: Any, gathered: Any) -> Any:
        """`apply` of a monotone program, which names nothing else."""
        return self._stored(self._apply(old, gathered, 0, 0.0, 0, 0, 0.0))

    def applied(self, old: Any, gathered: Any, v: int, superstep: int, aggregate: float) -> Any:
        return self._stored(self._apply(old, gathered, *self.vertex[v], superstep, aggregate))

    def scatters(self, old: Any, new: Any, superstep: int = -1, aggregate: float = 0.0) -> bool:
        return bool(self._scatter(old, new, superstep, aggregate))

    def aggregated(self, values: list[Any], order: Iterable[int]) -> float:
        """The aggregate of all values, in this order."""
        total = op.AGGREGATE_IDENTITY[self.program.aggregator]
        combine: Any = {"sum": add, "min": min, "max": max}[self.program.aggregator]
        for v in order:
            if not self.absent[v]:
                total = combine(total, float(self._aggregate(values[v], *self.vertex[v])))
        return total


def read_values(layout: op.Layout, stored: Any) -> list[Any]:
    """Values as functions get them."""
    numbers = layout.on_host(stored).tolist()
    return list(map(op.record_type(layout)._make, numbers)) if layout.is_record else list(numbers)


def stored_values(layout: op.Layout, values: Iterable[Any]) -> Any:
    """Values as arrays have them."""
    found = np.array(list(map(tuple, values)) if layout.is_record else list(values), layout.dtype)
    return found.view(np.int64).reshape(len(found), layout.words) if layout.is_record else found


def _row(csr: Csr, v: int) -> Iterable[tuple[int, float]]:
    """Neighbours, and the weights of these edges."""
    slots = slice(csr.row_starts[v], csr.row_starts[v] + csr.row_lengths[v])
    neighbours = csr.column_indices[slots].tolist()
    weights = [1.0] * len(neighbours) if csr.weights is None else csr.weights[slots].tolist()
    return zip(neighbours, weights, strict=True)


@runs
def _initialise(do: op.InitialiseProgram) -> None:
    """value = initial(), active where scatter(identity, value)."""
    each, state = _Functions(do.program, do.parameters, do.graph.vertices, do.graph), do.state
    for v in range(do.first, len(state.values)):
        value = each.initial(v)
        state.values[v] = stored_values(do.program.values, [value])[0]
        if each.scatters(each.identity, value):
            state.active[state.count] = v
            state.count += 1


@runs
def _run(do: op.RunProgram) -> None:
    """Supersteps (Malewicz et al., SIGMOD 2010) of gather, merge, apply, scatter (Gonzalez et al.,
    OSDI 2012).
    """
    graph, state = do.graph, do.state
    each = _Functions(do.program, do.parameters, graph.vertices, graph)
    read = partial(read_values, do.program.values)
    if do.program.every_vertex:
        assert graph.in_rows is not None
        order = graph.in_rows.order.tolist()
        op.run_every_vertex(do, _gather, lambda values: each.aggregated(read(values), order))
        return
    if do.program.pulls:
        assert graph.in_rows is not None
        state.aggregate = each.aggregated(read(state.values), graph.in_rows.order.tolist())
        return
    values, active = state.values.tolist(), state.active[: state.count].tolist()
    step = _in_place if do.mode == "asynchronous" else _superstep
    lists = (graph.view.outgoing, graph.view.incoming)[: 2 if graph.both else 1]
    for _ in range(do.supersteps):
        if not active:
            break
        for csr in lists:
            state.edges += int(csr.row_lengths[active].sum(dtype=np.int64))
        active = step(each, lists, active, values, state.supersteps)
        state.supersteps += 1
    state.active[: len(active)], state.count = active, len(active)
    state.values[:] = values


@runs
def _supports_any(do: op.SupportsAny) -> bool:
    """value[target] = gather(value[source], w), for any edge; in direction ``both`` also against
    it.
    """
    each = _Functions(do.program, do.parameters, len(do.values))
    known = read_values(do.program.values, do.values)
    sources, targets, weights = do.edges
    names = list(zip(*(column.tolist() for column in do.ids), strict=True))
    for place, ends in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        weight = 1.0 if weights is None else float(weights[place])
        for way in (1, -1)[: 2 if do.program.direction == "both" else 1]:
            u, v = ends[::way]
            sent = each.message(known[u], weight, np.inf, *names[place][::way], -1, 0.0)
            if known[v] != each.identity and sent is not None and sent == known[v]:
                return True
    return False


def _superstep(
    each: _Functions, lists: Iterable[Csr], active: list[int], values: list[Any], superstep: int
) -> list[int]:
    """Values that are sent are those before the superstep. Returns who is active next."""
    gathered = dict[int, Any]()
    for csr in lists:
        for u in active:
            for v, weight in _row(csr, u):
                message = each.message(values[u], weight, each.degree[u])
                # of a monotone program, what changes nothing need not be received
                if each.program.monotone and each.improved(values[v], message) == values[v]:
                    continue
                gathered[v] = each.merged(gathered.get(v, each.identity), message)
    following = []
    for v, merged in gathered.items():
        old, values[v] = values[v], each.applied(values[v], merged, v, superstep, 0.0)
        if each.scatters(old, values[v]):
            following.append(v)
    return following


def _in_place(
    each: _Functions, lists: Iterable[Csr], active: list[int], values: list[Any], _: int
) -> list[int]:
    """Each message is applied at once, and sent values are the newest. Returns who is active
    next.
    """
    following = dict[int, None]()
    for csr in lists:
        for u in active:
            for v, weight in _row(csr, u):
                message = each.message(values[u], weight, each.degree[u])
                old, new = values[v], each.improved(values[v], message)
                if new != old:
                    values[v] = new
                    if each.scatters(old, new):
                        following[v] = None
    return list(following)


@runs
def _gather(do: op.Gather) -> op.Gathered:
    """Row by row."""
    program, graph, state = do.program, do.graph, do.state
    each = _Functions(program, do.parameters, graph.vertices, graph)
    rows, view, every = graph.in_rows, graph.view, program.every_vertex
    assert rows is not None
    in_place = state.values is state.new_values
    values = read_values(program.values, state.values)
    edges = program.edges
    edge_values = [] if edges is None else read_values(edges, state.edge_values)
    step = (state.superstep, state.aggregate)
    active = messages = 0

    def is_active(v: int) -> bool:
        return every or bool(state.steps[v] >= do.since)

    def receive(v: int, gathered: Any) -> bool:
        """Whether v became active."""
        old = values[v]
        new = each.applied(old, gathered, v, *step)
        if program.monotone and new == old:
            return False
        state.new_values[v] = stored_values(program.values, [new])[0]
        if in_place:
            values[v] = new
        if not each.scatters(old, new, *step):
            return False
        if not every:
            state.new_steps[v] = state.blocks[v >> state.shift] = do.now
        return True

    for v in rows.order.tolist():
        if each.absent[v]:
            continue
        gathered, received = each.identity, every
        pulls_both = graph.both and (program.pulls or not in_place)
        sends_back = program.direction == "both" and graph.both and is_active(v) and not pulls_both
        for lists in (view.incoming, view.outgoing)[: 2 if pulls_both else 1]:
            for slot, (u, weight) in enumerate(_row(lists, v), int(lists.row_starts[v])):
                along = [weight, each.degree[u], each.ids[u], each.ids[v], *step]
                along += edge_values[slot : slot + 1]
                message = each.message(values[u], *along) if is_active(u) else None
                if message is not None:
                    gathered, received = each.merged(gathered, message), True
                    messages += 1
                    if edges is not None:
                        after = stored_values(edges, [each.edge_after(values[u], *along)])
                        state.edge_values[slot] = after[0]  # type: ignore[index]
                if sends_back:
                    back = each.message(values[v], weight, each.degree[v])
                    active += receive(u, back)
                    messages += 1
        if program.loops and view.loop[v]:
            along = [float(view.loop[v]), each.degree[v], each.ids[v], each.ids[v], *step]
            message = each.message(values[v], *along)
            if message is not None:
                gathered = each.merged(gathered, message)
        if received:
            active += receive(v, gathered)
    return op.Gathered(active, messages)
