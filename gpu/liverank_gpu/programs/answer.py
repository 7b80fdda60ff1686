"""The answer of a program, and what batches have done to the graph since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import host_backend
from liverank_gpu.graph.packed_csr import distinct, edge_keys
from liverank_gpu.graph.vertices import VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import EdgeChanges, GraphUpdate
from liverank_gpu.operations.programs import Mode, SupportsAny, VertexProgram
from liverank_gpu.programs.algorithms import Algorithm, Computed, EdgeValues
from liverank_gpu.programs.continued import Earlier

_APART = 64
"""Arrays of sources, or of edges, that are kept before they are merged."""

_MOST_EDGES = 1 << 16
"""Changed arcs that are kept. After more, a run begins again."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one run did.

    program     its name
    mode        ``synchronous`` or ``asynchronous``
    supersteps  done by this run
    edges       edges read: messages sent, or entries compared
    seconds     of this run
    continued   whether it continued from an earlier answer; False if it started again
    finished    False if the program was still active after its last superstep
    """

    program: str
    mode: Mode
    supersteps: int
    edges: int
    seconds: float
    continued: bool
    finished: bool

    @classmethod
    def of(
        cls, computed: Computed, program: str, mode: Mode, seconds: float, continued: bool = False
    ) -> Receipt:
        """The receipt of a run that found this."""
        supersteps, edges = computed.supersteps, computed.edges
        continued = continued and computed.continued
        return cls(program, mode, supersteps, edges, seconds, continued, computed.finished)


@dataclass(slots=True)
class Since:
    """What batches did since an answer.

    sources     int32[…] each, positions whose messages may be new
    added, removed  int64[…] each, of an algorithm: an edge for each arc that is new or gone, as
                often as it was; the lower position << 32 | the higher one
    everything  all vertices have to send
    stale       the answer is of no use: edges are gone on which it may depend, or an algorithm does
                not know which have changed
    """

    sources: list[Array] = field(default_factory=list)
    added: list[Array] = field(default_factory=list)
    removed: list[Array] = field(default_factory=list)
    everything: bool = False
    stale: bool = False

    def note(
        self,
        update: GraphUpdate,
        program: object,
        depends_on_any: Callable[[VertexProgram, EdgeChanges], bool],
        xp: Any,
    ) -> None:
        """Notes what a batch did, if a later run may continue from the answer.

        depends_on_any  whether a value may have come along an edge that is gone
        """
        if (
            self.stale
            or not isinstance(program, VertexProgram | Algorithm)
            or not program.continues
        ):
            return
        if isinstance(program, Algorithm):
            self._note_edges(update, xp)
            return
        counts, changes = update.counts, update.changes
        if len(update.removed) or len(update.returned) or counts.expired:
            self.stale = True
        elif changes is None:
            reweighted = counts.reweighted > 0 and program.reads_weights
            self.stale = counts.deleted > 0 or reweighted
            self.everything = True
        else:
            try:
                self.stale = depends_on_any(program, changes)
                self._note_sources(program, changes, xp)
            except MemoryError:  # the batch stands
                self.stale = True
        if self.stale or self.everything:
            self.sources.clear()

    def _note_sources(self, program: VertexProgram, changes: EdgeChanges, xp: Any) -> None:
        if self.everything:
            return
        # copies: the arrays of a batch share one block of memory
        self.sources.append(changes.sources.copy())
        if program.direction == "both":
            self.sources.append(changes.added_targets.copy())
        if len(self.sources) > _APART:
            self.sources = [distinct(xp, xp.concatenate(self.sources))]

    def _note_edges(self, update: GraphUpdate, xp: Any) -> None:
        changes = update.changes
        try:
            if changes is None:
                self.stale = True
            else:  # an arc with another weight is in both lists
                self._note_keys(self.added, changes.added_sources, changes.added_targets, xp)
                self._note_keys(self.removed, changes.removed_sources, changes.removed_targets, xp)
        except MemoryError:  # the batch stands
            self.stale = True
        self.stale |= sum(map(len, (*self.added, *self.removed))) > _MOST_EDGES
        if self.stale:
            self.added.clear()
            self.removed.clear()

    @staticmethod
    def _note_keys(noted: list[Array], sources: Array, targets: Array, xp: Any) -> None:
        if not len(sources):
            return
        keys = edge_keys(xp.minimum(sources, targets), xp.maximum(sources, targets))
        noted.append(keys[sources != targets])
        if len(noted) > _APART:
            noted[:] = [xp.concatenate(noted)]

    def changed(self, xp: Any) -> tuple[Array, Array]:
        """The ends of edges, and how many more arcs of each there are: see Earlier."""
        none = xp.zeros(0, np.int64)
        added, removed = (xp.concatenate([none, *each]) for each in (self.added, self.removed))
        keys = distinct(xp, xp.concatenate([added, removed]))
        added, removed = (
            xp.bincount(xp.searchsorted(keys, each), minlength=len(keys))
            for each in (added, removed)
        )
        more = added - removed
        keys, more = keys[more != 0], more[more != 0]
        return xp.stack([keys >> 32, keys & 0xFFFFFFFF]), more


class Answer:
    """What a program computed, of the graph as it was then.

    parameters  all of the program's
    receipt     see Receipt
    summary     numbers about the whole graph, by name: ``aggregate`` of a vertex program that has
                one, and what algorithms add
    """

    def __init__(
        self,
        backend: Backend,
        permutation: VertexPermutation,
        program: object,
        parameters: Mapping[str, float],
        computed: Computed,
        receipt: Receipt,
        since: Since,
    ) -> None:
        self.program = program
        self.parameters = dict(parameters)
        self.receipt = receipt
        self.summary = dict(computed.summary)
        self.permutation = permutation
        self.by_position = computed.values
        self.since = since
        self.backend = backend
        self._ends, self._lambdas, self._kept = computed.ends, computed.lambdas, computed.kept
        self._edge_values = computed.edge_values
        self._values: NDArray[Any] | None = None

    @property
    def values(self) -> NDArray[Any]:
        """dtype[id_limit] on the host: the value of each vertex, by id; records as a structured
        array. Free ids have the identity of a vertex program, or 0. If values are of edges,
        dtype[m], in the order of `edges`. Raises DeviceLost.
        """
        if self._values is None:
            device, values = self.backend.device, self.by_position
            with device.detecting_loss():
                if self._ends is None:
                    values = self.permutation.by_id(values)
                found = device.to_host(values)
            if isinstance(self.program, VertexProgram):
                found = self.program.values.on_host(found)
            self._values = found
        return self._values

    @property
    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The edges that `values` belong to, int64[m] each on the host: the lower id, the higher
        one, in ascending order, each edge once and without loops: all of them, or those of
        DN-graphs. None if values are of vertices.
        Raises DeviceLost.
        """
        if self._ends is None:
            return None
        device = self.backend.device
        with device.detecting_loss():
            sources, targets = map(device.to_host, self._ends)
        return sources, targets

    @property
    def lambdas(self) -> NDArray[np.int32] | None:
        """int32[m] on the host, of the program ``dn-graphs``: λ of the DN-graph of each edge, that
        is how many neighbours the ends of each of its edges have in common there, at least. None of
        other programs. Raises DeviceLost.
        """
        if self._lambdas is None:
            return None
        device = self.backend.device
        with device.detecting_loss():
            return device.to_host(self._lambdas)

    @property
    def edge_values(self) -> EdgeValues | None:
        """On the host, of a vertex program whose edges have values; None of others. Raises
        OutOfMemory, DeviceLost.
        """
        found, device = self._edge_values, self.backend.device
        if found is None:
            return None
        needed = sum(int(each.nbytes) for each in found)
        host_backend().device.require("values of edges", needed)
        with device.detecting_loss():
            sources, targets, values = map(device.to_host, found)
        assert isinstance(self.program, VertexProgram)
        assert self.program.edges is not None
        return EdgeValues(sources, targets, self.program.edges.on_host(values))

    @property
    def may_continue(self) -> bool:
        """Whether a later run may continue from this answer, as far as is known yet."""
        program = self.program
        continues = isinstance(program, VertexProgram | Algorithm) and program.continues
        return continues and not self.since.stale

    @property
    def earlier(self) -> Earlier:
        """What an algorithm continues from."""
        changed = self.since.changed(self.backend.xp)
        return Earlier(self.by_position, self._ends, self._kept, *changed)

    def follow(self, update: GraphUpdate) -> None:
        """Notes what a batch did, if a later run may continue from this answer."""
        self.since.note(update, self.program, self._depends_on_any, self.backend.xp)

    def _depends_on_any(self, program: VertexProgram, changes: EdgeChanges) -> bool:
        """Whether a value may have come along an edge that is gone."""
        known = len(self.by_position)
        sources, targets = changes.removed_sources, changes.removed_targets
        gone = (sources < known) & (targets < known)  # others came after the answer
        weights = changes.removed_weights
        if weights is not None and not program.reads_weights:
            # an edge whose weight has changed is among the removed and the added ones
            added = edge_keys(changes.added_sources, changes.added_targets)
            gone &= ~self.backend.xp.isin(edge_keys(sources, targets), added)
            weights = None
        edges = (sources[gone], targets[gone], None if weights is None else weights[gone])
        if len(edges[0]) == 0:
            return False
        ids = self.permutation.to_ids(edges[0]), self.permutation.to_ids(edges[1])
        supports = SupportsAny(program, self.parameters, self.by_position, edges, ids)
        return self.backend.run(supports)
