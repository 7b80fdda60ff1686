"""The values that go into the engine and come out of it.

Vertex ids are dense: a graph of ``n`` vertices has the ids ``0 … n-1``, and the ids of removed
vertices until they are used again (see liverank_gpu.graph.vertices). Nothing here depends on a
backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from sys import float_info
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.columns import check_rows, highest_of, ids_of, times_of, weights_of
from liverank_gpu.errors import InvalidValue

Dangling = Literal["uniform", "self-loop"]
Storage = Literal["float64"]
BackendName = Literal["auto", "cpu", "cuda", "reference"]
VertexOrder = Literal["auto", "degree", "given"]
OnConflict = Literal["replace", "add"]
Form = Literal["accelerated", "published"]

Ranking = NDArray[np.float64]

VERTEX_LIMIT = 2**31 - 1
"""Ids are signed 32-bit integers: a graph has fewer vertices than this."""

REMOVED = "the id of a vertex: this one was removed"
"""What an id must be that is free."""

LARGEST_ERROR = 2.0
"""The L1 distance of two distributions is at most this."""

Fallback = Literal["static", "equal"]
Unconverged = Literal["warn", "raise", "ignore"]

_ONLY_STORAGE = (
    "'float64', or left out: 'float32' saved about 4 % of a graph's memory, was slower, and is no "
    "longer offered"
)


@dataclass(frozen=True, slots=True)
class Options:
    """How a graph is ranked.

    damping             α, the probability of following an edge; in (0, 1)
    dangling            what a vertex without out-edges does with its rank: ``uniform`` spreads it
                        over all vertices (``networkx.pagerank``, igraph, cuGraph); ``self-loop``
                        gives every vertex one self-loop, so that none dangles (Sahu, section 5.1.3)
    target_error        the L1 distance to the exact ranks at which ``auto`` stops; in (0, 2]
    storage             the type of vectors over the vertices: always ``float64``
    tolerance           τ: the published strategies stop when no normalised rank moved by more
    frontier_tolerance  τ_f: a relative change above it makes a vertex's out-neighbours affected
    prune_tolerance     τ_p: a relative change up to it makes a vertex leave the affected set
    max_iterations      the most sweeps of one solve. One that has to start again, because
                        acceleration left nothing but rounding, takes up to twice as many
    directed            whether an edge leads from its source to its target only. False makes {a,b}
                        the same edge as {b,a}, which is followed either way and counts once
                        (``networkx.Graph``); a loop is followed and counted once
    form                how the published strategies run: ``accelerated``, by our sweeps and steps,
                        or as ``published`` (liverank_gpu.pagerank.solver)
    weighted            whether edges have weights: an edge of u is then followed with the
                        probability w(u,v) / Σw (``networkx.pagerank(weight=…)``). The loops of
                        ``self-loop`` have the weight 1
    half_life           seconds after which a weight is worth half of a new one: an edge inserted at
                        time t has the weight w·2^(t/half_life), which is the same, as only ratios
                        count. Makes a graph `weighted`, and needs ``uniform``; None for weights
                        that stay
    vertex_order        how vertices are ordered in memory, which affects speed alone: by descending
                        ``degree``, as ``given``, or (``auto``) as a sample of the first edges says
    """

    damping: float = 0.85
    dangling: Dangling = "uniform"
    target_error: float = 1e-6
    storage: Storage = "float64"
    tolerance: float = 1e-10
    frontier_tolerance: float = 1e-6
    prune_tolerance: float = 1e-6
    max_iterations: int = 500
    vertex_order: VertexOrder = "auto"
    weighted: bool = False
    directed: bool = True
    half_life: float | None = None
    form: Form = "accelerated"

    def __post_init__(self) -> None:
        for name, low, high, requirement in (
            ("damping", 0.0, 1.0, "a number above 0 and below 1"),
            ("target_error", 0.0, 2.0 + 1e-12, "a number above 0 and at most 2"),
            ("tolerance", 0.0, 1.0, "a number above 0 and below 1"),
            ("frontier_tolerance", 0.0, 1.0, "a number above 0 and below 1"),
            ("prune_tolerance", 0.0, 1.0, "a number above 0 and below 1"),
        ):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not low < value < high:
                raise InvalidValue(name, value, requirement)
        if self.dangling not in get_args(Dangling):
            raise InvalidValue("dangling", self.dangling, "'uniform' or 'self-loop'")
        if self.storage not in get_args(Storage):
            raise InvalidValue("storage", self.storage, _ONLY_STORAGE)
        if self.form not in get_args(Form):
            raise InvalidValue("form", self.form, "'accelerated' or 'published'")
        if self.vertex_order not in get_args(VertexOrder):
            raise InvalidValue("vertex_order", self.vertex_order, "'auto', 'degree' or 'given'")
        for name in ("weighted", "directed"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidValue(name, getattr(self, name), "True or False")
        if self.half_life is not None:
            number = isinstance(self.half_life, int | float) and not isinstance(
                self.half_life, bool
            )
            if not number or not 0.0 < self.half_life <= float_info.max:
                raise InvalidValue("half_life", self.half_life, "a number of seconds above 0")
            if self.dangling != "uniform":
                # a loop of the policy has no time
                raise InvalidValue("dangling", self.dangling, "'uniform' where half_life is given")
            object.__setattr__(self, "weighted", True)
        if (
            not isinstance(self.max_iterations, int)
            or isinstance(self.max_iterations, bool)
            or not 1 <= self.max_iterations <= 1_000_000
        ):
            raise InvalidValue(
                "max_iterations", self.max_iterations, "an integer from 1 to 1,000,000"
            )

    @property
    def decays(self) -> bool:
        """Whether weights decay."""
        return self.half_life is not None


_EDGE_COLUMNS = ("insert_sources", "insert_targets", "delete_sources", "delete_targets")


@dataclass(frozen=True, slots=True)
class EdgeBatch:
    """Vertices to remove, then edges to delete, then edges to insert, as columns of ids.

    insert_sources, insert_targets   int64[i], each in 0 … 2³¹-2; ids beyond the graph make it grow
    delete_sources, delete_targets   int64[d]; an id that the graph does not have (-1, say) is not
                                     found
    vertices                         ids below it exist after the batch, and those that did not
                                     before are vertices; raised to what `add` and the insertions
                                     need
    weights                          float32[i], of the insertions: finite, above 0, normal. For a
                                     weighted graph only; None there means that all are 1
    on_conflict                      what an insertion does to an edge that is present or repeated:
                                     ``replace`` its weight (the last one is kept), or ``add`` to
                                     it: float64 sums, rounded once to float32
    times                            float64[i] on the host, Unix seconds, of the insertions: for a
                                     graph with a half_life, which needs them, within 2⁴⁰ half-lives
                                     of 0. An insertion that is 100 half-lives older than the newest
                                     edge of its source has expired
    remove                           int64[r] on the host: vertices that go with all their edges.
                                     Their ids are free then. Ids that are no vertices are ignored
    add                              int64[a] on the host: ids that are vertices after the batch,
                                     with or without edges, as those of insertions are. One that is
                                     free, or removed by this batch, comes back as a new vertex
    replace                          int64[v] on the host: vertices whose out-edges (in an
                                     undirected graph, whose edges) are deleted but for those that
                                     the batch inserts; see liverank_gpu.graph.resolve
    delete_weights                   float32[d], with ``add`` only: what deletions take away from
                                     the weights of their edges, which leave at 0; infinity: all of
                                     it, as for all deletions without this column
    delete_times                     float64[d], as `times`, of these weights

    For a graph on ``cuda`` the columns of insertions and deletions may be CuPy arrays, ids int64 or
    int32; not those of deletions with weights.
    Raises InvalidValue for columns of unequal length, other dtypes, an id or a weight out of range.
    """

    insert_sources: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    insert_targets: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    delete_sources: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    delete_targets: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    vertices: int = 0
    weights: NDArray[np.float32] | None = None
    on_conflict: OnConflict = "replace"
    remove: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    add: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    times: NDArray[np.float64] | None = None
    replace: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    delete_weights: NDArray[np.float32] | None = None
    delete_times: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for column in (*_EDGE_COLUMNS, "remove", "add", "replace"):
            object.__setattr__(self, column, ids_of(column, getattr(self, column)))
        for kind in ("insert", "delete"):
            sources, targets = getattr(self, f"{kind}_sources"), getattr(self, f"{kind}_targets")
            if len(sources) != len(targets):
                raise InvalidValue(
                    f"{kind}_targets", f"length {len(targets)}", f"{len(sources)} long"
                )
        if self.weights is not None:
            weights = weights_of(self.weights, len(self.insert_sources))
            object.__setattr__(self, "weights", weights)
        if self.times is not None:
            times = times_of(self.times, len(self.insert_sources))
            object.__setattr__(self, "times", times)
        if self.on_conflict not in get_args(OnConflict):
            raise InvalidValue("on_conflict", self.on_conflict, "'replace' or 'add'")
        self._check_resolved()
        if not 0 <= self.vertices <= VERTEX_LIMIT:
            raise InvalidValue("vertices", self.vertices, f"a count from 0 to {VERTEX_LIMIT}")
        for name in ("insert_sources", "insert_targets", "add"):
            highest = highest_of(name, getattr(self, name), VERTEX_LIMIT)
            object.__setattr__(self, "vertices", max(self.vertices, highest + 1))

    def _check_resolved(self) -> None:
        """Checks what replacements and deletions with weights exclude."""
        amounts_of = partial(weights_of, whole=True)
        for name, columns_of in (("delete_weights", amounts_of), ("delete_times", times_of)):
            column = getattr(self, name)
            if column is not None:
                column = columns_of(column, len(self.delete_sources), "delete_sources", name)
                object.__setattr__(self, name, column)
        if self.delete_weights is not None and self.on_conflict != "add":
            given = f"{len(self.delete_weights)} weights"
            raise InvalidValue("delete_weights", given, "left out unless on_conflict is 'add'")
        if self.delete_times is not None and self.delete_weights is None:
            given = f"{len(self.delete_times)} times"
            raise InvalidValue("delete_times", given, "left out without delete_weights")
        if len(self.replace) and self.delete_weights is not None:
            given = f"{len(self.replace)} vertices"
            raise InvalidValue("replace", given, "left out where deletions have weights")

    @property
    def operations(self) -> int:
        """Number of insertions and deletions."""
        return len(self.insert_sources) + len(self.delete_sources)

    @classmethod
    def of(
        cls,
        insert: Iterable[tuple[int, int]] | Iterable[tuple[int, int, float]] = (),
        delete: Iterable[tuple[int, int]] | Iterable[tuple[int, int, float]] = (),
        vertices: int = 0,
        on_conflict: OnConflict = "replace",
        remove: Iterable[int] = (),
        add: Iterable[int] = (),
        replace: Mapping[int, Iterable[int] | Iterable[tuple[int, float]]] | None = None,
    ) -> EdgeBatch:
        """The batch of (source, target) pairs. Insertions, and deletions with ``add``, may be
        (source, target, weight). `replace` has the new targets of each vertex, or (target, weight).

        Raises InvalidValue, also for ids that are no integers.
        """
        rows, deletions = list(insert), list(delete)
        for source, targets in (replace or {}).items():
            rows += [
                (source, *target) if isinstance(target, tuple) else (source, target)
                for target in targets
            ]
        is_weighted = check_rows("insert", rows, (2, 3)) == 3
        subtracts = check_rows("delete", deletions, (2, 3) if on_conflict == "add" else (2,)) == 3
        weights, amounts = (
            np.array([edge[2:] for edge in pairs]).ravel() if has_weights else None
            for pairs, has_weights in ((rows, is_weighted), (deletions, subtracts))
        )
        inserted, deleted = (
            np.array([edge[:2] for edge in pairs], np.int64).reshape(-1, 2).T.copy()
            for pairs in (rows, deletions)
        )
        return cls(
            inserted[0],
            inserted[1],
            deleted[0],
            deleted[1],
            vertices,
            cast(Any, weights),
            on_conflict,
            np.array(list(remove), np.int64),
            np.array(list(add), np.int64),
            replace=np.array(list(replace or ()), np.int64),
            delete_weights=cast(Any, amounts),
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What one batch did to the graph.

    `inserted + already_present + reweighted` is the number of insertions sent, `deleted +
    not_found` that of deletions; a repeat inside the batch counts as already present (not found).
    `reweighted`: edges that were present, were not deleted, and have another weight now. `removed +
    unknown` is the number of ids to remove, `removed_edges` what went with the vertices; no
    deletion finds such an edge. `expired`: edges that left because of their age, and insertions
    that were too old (these count as already present). A vertex that was removed and comes back
    counts as new. What a replacement drops is deleted, what it keeps was already present or is
    reweighted. `lowered`: deletions that took away weight and left the edge, beside those above.
    `seconds`: time to change the graph, its residual and its personalized queries.
    """

    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    seconds: float
    reweighted: int = 0
    removed: int = 0
    removed_edges: int = 0
    expired: int = 0
    unknown: int = 0
    lowered: int = 0


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a solve; None where a member does not apply.

    kind            ``iteration`` over affected vertices, ``sweep`` over all (also one that only
                    computes the residual, when rounding limits the bound), ``push``: rounds of
                    work-lists, traced together, or ``components``: a solve of one strongly
                    connected component after the other, and the residual afterwards
    rounds          1, the rounds of a push, or of components: the most sweeps over any, and 1
    vertices        recomputed; of a push, those that the solve pushes for the first time
    edges           edges read; an undirected one in each direction
    joined, pruned  vertices that became affected after it, and that it pruned
    largest_change  the largest relative change of a rank (published form); of a personalized
                    query the largest change of an entry of y
    threshold       θ at the end of a push
    error_bound     after it (dense sweeps, pushes and components)
    end             why a push ended, as liverank_gpu.operations.residual.PushResult says
    deflation       the direction of a personalized sweep: ``seeds`` or ``ranks``; None without
    mode            of a published personalized query: ``push``, ``pushopt`` or ``pull``. There each
                    step is an iteration, and `vertices` is the length of its work-list
    cost_difference Ψ before it, of such a query: pushing costs less where it is negative
    """

    kind: Literal["iteration", "sweep", "push", "components"]
    rounds: int
    vertices: int
    edges: int
    joined: int | None = None
    pruned: int | None = None
    largest_change: float | None = None
    threshold: float | None = None
    error_bound: float | None = None
    end: Literal["goal", "floor", "work", "rounds"] | None = None
    deflation: Literal["seeds", "ranks"] | None = None
    mode: Literal["push", "pushopt", "pull"] | None = None
    cost_difference: float | None = None


TRACED_STEPS = 1000
"""The most steps of a trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a solve did, step by step.

    affected        initially affected vertices; all of them for a strategy that starts from all,
                    the seeds of a personalized query
    pushes, sweeps  rounds of work-lists, and iterations and sweeps: together the iterations
    steps           the first TRACED_STEPS
    """

    affected: int
    pushes: int
    sweeps: int
    steps: tuple[TraceStep, ...]

    @classmethod
    def of(cls, affected: int, iterations: int, steps: list[TraceStep]) -> Trace:
        """steps: all that were pushes, and at least the first TRACED_STEPS of the others."""
        pushes = sum(step.rounds for step in steps if step.kind == "push")
        return cls(affected, pushes, iterations - pushes, tuple(steps[:TRACED_STEPS]))


@dataclass(frozen=True, slots=True)
class Result:
    """What one solve did and how wrong its ranks can be.

    strategy          the strategy that ran
    iterations        dense sweeps plus work-list rounds
    touched_vertices  distinct vertices recomputed
    error_bound       proven upper bound on the L1 distance to the exact ranks, in [0, 2]
    converged         whether the strategy's own stop rule was met within max_iterations
    mark_seconds      time to find the affected vertices
    solve_seconds     time of the iterations; in the accelerated form of the certificate too
    certify_seconds   time of the certificate in the published form
    form              the form that ran
    trace             what the solve did, if it was asked for and there are vertices
    settled           how many of the first places are proven, if places were to be; it converged
                      if what was to be proven is. See Ranks.ties_of for equal ranks among them
    settled_set       whether it is proven which vertices have these places, if they were to be
    fallback          what replaced ranks that were no distribution (liverank_gpu.pagerank.gate):
                      those of a ``static`` solve; or ``equal`` ones, with an error bound of 2,
                      where that left none either. It then converged if the bound meets
                      target_error. None: nothing
    refused           why they were refused, in words
    """

    strategy: str
    iterations: int
    touched_vertices: int
    error_bound: float
    converged: bool
    mark_seconds: float
    solve_seconds: float
    certify_seconds: float = 0.0
    form: Form = "accelerated"
    trace: Trace | None = None
    settled: int | None = None
    settled_set: bool | None = None
    fallback: Fallback | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class PersonalizedQuery:
    """A personalized query.

    seeds         integer[s], ids to teleport to; the weights of repeats add up
    weights       float64[s], finite and not negative, not all 0; None for equal weights
    k             how many vertices to return at most
    method        ``hybrid``, ``push`` or ``pull`` (liverank_gpu.personalized.query); of the
                  published form also ``pushopt`` (liverank_gpu.personalized.published)
    target_error  L1, in (0, 2]; None for the graph's own
    target        ``error``; or ``settled-top-k``, which ends as soon as the k places are proven, at
                  the target error at the latest; or ``settled-set``, as soon as it is proven which
                  vertices have them, in any order
    damping       α in (0, 1); None for the graph's own
    among         integer[a], ids: only these are answered and settled, while teleport and ranks
                  are those of the whole graph; None for all vertices
    within        integer[w], ids, all seeds with a weight above 0 among them: the walk follows only
                  the edges between these vertices, so that ranks are those of the subgraph that
                  they induce, and others are not answered; None for all vertices
    form          ``accelerated``, or ``published``: by the algorithms of Wang et al. Then `target`
                  is ``error``
    trace         whether the answer says what each step did; such a query is solved alone
    zeros         whether vertices of rank 0 are answered too, up to k: those that walks from the
                  seeds cannot reach
    """

    seeds: NDArray[np.integer[Any]]
    weights: Ranking | None = None
    k: int = 10
    method: str = "hybrid"
    target_error: float | None = None
    target: str = "error"
    damping: float | None = None
    among: NDArray[np.integer[Any]] | None = None
    form: Form = "accelerated"
    trace: bool = False
    zeros: bool = False
    within: NDArray[np.integer[Any]] | None = None


ViewDirection = Literal["forward", "reversed"]
"""Whether a view walks along the edges or against them."""

Refresh = Literal["batch", "read"] | float
"""When a view is brought to its target: see ViewQuery."""


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """A view: ranks of all vertices for a teleport distribution of its own.

    seeds         integer[s], ids to teleport to; the weights of repeats add up. None: all vertices
                  alike, those that join later too
    weights       float64[s], finite and not negative, not all 0; None for equal weights
    target_error  L1, in (0, 2]; None for the graph's own
    damping       α in (0, 1); None for the graph's own
    refresh       when it is solved, if its error bound has passed the target. ``batch``: by
                  `Engine.refresh_views`, and when it is read; ``read``: when it is read; a number
                  of seconds, finite and above 0: by both, but no sooner than so long after it last
                  met its target. Its bound is of the graph as it is in any case; where it has
                  reached 2, which proves nothing, the view is solved at once
    direction     ``forward``; or ``reversed``, which walks edges from their targets to their
                  sources, with probabilities by the weights of in-edges. Not of a graph whose
                  weights decay
    within        integer[…], ids, at least one, all seeds among them: walks follow only the edges
                  between these vertices, as if the graph had no others, which have rank 0. A batch
                  that changes one of these edges leaves a bound of 2. None: the whole graph
    """

    seeds: NDArray[np.integer[Any]] | None
    weights: Ranking | None = None
    target_error: float | None = None
    damping: float | None = None
    refresh: Refresh = "batch"
    direction: ViewDirection = "forward"
    within: NDArray[np.integer[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Personalized:
    """The answer to one personalized query: the vertices of highest rank, of those it is about,
    best first: k, or as many as have a rank above 0.

    vertices     int64[p], ids; equal ranks are ordered by id
    ranks        float64[p], normalised: over all vertices they sum to 1
    error_bound  proven upper bound on the L1 distance of the whole vector to the exact one
    settled      how many of the first places are proven to be held by the right vertex
    settled_set  whether it is proven that these vertices have these places, in any order
    groups       numbers of places one after the other: the order of the groups is proven, the order
                 within a group of several is not, unless it is a tie
    ties         numbers of the groups, from 0 on, whose vertices have identical in-lists, hence
                 exactly equal ranks: their order, by id, counts as proven. Behind the last group
                 there may be more of them
    method       what ran: ``push``, ``pushopt``, ``pull``, or ``hybrid`` where more than one did
    iterations   sweeps plus work-list rounds
    trace        what each step did, if that was asked for
    refused      why what was found first was no answer, so that this is of plain sweeps; or None
    converged    whether the bound met the target error, or the places that were asked for are
                 proven; of the published form, whether it ended within max_iterations
    """

    vertices: NDArray[np.int64]
    ranks: Ranking
    error_bound: float
    settled: int
    method: str
    iterations: int
    trace: Trace | None = None
    settled_set: bool = False
    groups: tuple[int, ...] = ()
    ties: tuple[int, ...] = ()
    refused: str | None = None
    converged: bool = True
