"""Preferential attachment by the algorithm of a paper: cuPPA.

    drawn = published.preferential_attachment(1_000_000, 4, scheme="srrp", segments="dynamic")
    drawn.graph.links, drawn.rounds.queued

Alam and Perumalla, "Generating billion-edge scale-free networks in seconds: performance study of a
novel GPU-based preferential attachment model" (Oak Ridge National Laboratory, 2017), algorithm 1.
`liverank_gpu.generate.preferential_attachment` draws from the same model by another algorithm.

Threads share the vertices of a segment in turns. In phase 1 each draws the edges of its vertices; a
copy of an edge F_l(u) that is not known yet waits in the thread's queue. In phase 2 it passes over
its queue until all edges are known. Then the next segment begins. The scheme says what they are:

- ``rrp``, round-robin partitioning (section 3.2): all vertices are one segment. Queues have room
  for all edges: in the memory of the device, unless 48 KiB a block of shared memory are enough.
- ``srrp``, segmented (section 3.3): a block has τ = min(C/d, θ) threads, and each of them C/(dτ)
  vertices of a segment, for all of whose edges its queue has room in shared memory. With ``fixed``
  segments C stays the capacity. With ``dynamic`` ones, which is cuPPA-Dynamic, C is multiplied by
  f = 2 after a segment in which no queue filled the f-th part of its room.

What the text leaves open or has wrong, and what is done here:

- u is drawn from 0 … v - 1, and clique vertices have the d - 1 others as edges, as
  liverank_gpu.generate.graphs specifies; the text draws from 1 … v - 1 and has d² entries for them.
- A queued pair ⟨u, l⟩ does not say whose edge it is. Here it has the place of F_ℓ(v) too, and is
  8 bytes long as in the paper, since places are below 2³².
- Line 25 does not test for duplicates. Here an edge that would be one is drawn again from line 5,
  and may wait again.
- C/(dτ) is called the vertices of a segment. It is those of a thread: each queue has room for C/τ
  edges.
- The C that grows is a number of edges; the shared memory does not grow. So a queue of a dynamic
  segment may be full, and a thread with a full queue passes over it before it goes on.
- Any number of cores runs the threads on ``cpu``: a pass of all threads ends before the next one
  begins, and queues grow as they have to. On ``cuda`` threads do not wait for each other's passes.

An edge's attempts have the random numbers that they have in liverank_gpu.generate.graphs. Later
edges of its vertex overtake an edge that waits: which of two edges that would be equal is drawn
again depends on which is known first. So for d = 1, for p = 1 and with one thread the graph is that
of liverank_gpu.generate.preferential_attachment. Else it depends on the order in which threads run,
and the same arguments may give another graph of the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.graphs import (
    PreferentialAttachment,
    check_attachment,
    check_count,
    chosen,
)
from liverank_gpu.operations import generate as op
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import BackendName

Scheme = Literal["rrp", "srrp"]
Segments = Literal["fixed", "dynamic"]

CAPACITY = 6144
"""C at first: edges that 48 KiB of shared memory hold, of 8 bytes each."""

GROWTH = 2
"""f, by which C grows."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What happened in each of k rounds, which are segments.

    vertices  int64[k], of the segment
    threads   int64[k], τ of a block
    queued    int64[k], edges that waited
    largest   int64[k], edges that waited at one thread at once, at most
    passes    int64[k], of a thread over its queue, at most
    """

    vertices: NDArray[np.int64]
    threads: NDArray[np.int64]
    queued: NDArray[np.int64]
    largest: NDArray[np.int64]
    passes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph and how it was drawn."""

    graph: PreferentialAttachment
    rounds: Rounds


def preferential_attachment(
    vertices: int,
    edges_per_vertex: int,
    *,
    probability: float = 0.5,
    seed: int = 0,
    scheme: Scheme = "srrp",
    segments: Segments = "dynamic",
    blocks: int | None = None,
    threads: int | None = None,
    capacity: int = CAPACITY,
    backend: BackendName | Backend = "cpu",
) -> Drawn:
    """A graph of the copy model, drawn by algorithm 1 on `backend`.

    vertices, edges_per_vertex, probability, seed  see
              liverank_gpu.generate.preferential_attachment
    segments  of the scheme ``srrp``
    blocks    that run at the same time; None: the cores of ``cpu``, or the multiprocessors of
              ``cuda``, which cannot have more
    threads   θ, of a block at most, up to 1024; None: 1 on ``cpu``, 512 on ``cuda``
    capacity  C at first, edges

    Raises InvalidValue, OutOfMemory and BackendUnavailable.
    """
    n, d = vertices, edges_per_vertex
    check_attachment(n, d, probability)
    if (n - d) * d >= 2**32:
        needed = "at most 2³² / edges_per_vertex: an edge that waits has places of 32 bits"
        raise InvalidValue("vertices", n, needed)
    for name, value, accepted in (
        ("scheme", scheme, get_args(Scheme)),
        ("segments", segments, get_args(Segments)),
    ):
        if value not in accepted:
            raise InvalidValue(name, value, " or ".join(map(repr, accepted)))
    backend = chosen(backend)
    device = backend.device
    for name, given, most in (("blocks", blocks, 2**16), ("threads", threads, 1024)):
        if given is not None:
            check_count(name, given, 1, most)
    check_count("capacity", capacity)
    usual_blocks, usual_threads = backend.generate.processors()
    blocks, most_threads = blocks or usual_blocks, threads or usual_threads

    device.require("the generated graph", 4 * (n - d) * d)
    links = device.allocate("the generated graph", (n - d) * d, np.int32).reshape(-1, d)
    links.fill(-1)
    start, direct = op.sequence_start(seed, op.ATTACHMENT_SEQUENCE), op.threshold(probability)
    shapes: list[tuple[int, int]] = []
    counts: list[Array] = []
    first, grown = d, capacity
    while first < n:
        if scheme == "rrp":
            per_thread = -(-(n - d) // (blocks * most_threads))
            shape = op.Threads(blocks, most_threads, d * per_thread)
        else:
            block = max(1, min(grown // d, most_threads))
            per_thread = max(1, grown // (d * block))
            shape = op.Threads(blocks, block, max(1, capacity // block))
        last = min(first + blocks * shape.threads * per_thread, n)
        counted = backend.run(op.ExecuteCopyModel(links, first, last, start, direct, shape))
        shapes.append((last - first, shape.threads))
        counts.append(counted)
        first = last
        if segments == "dynamic" and first < n:
            largest = int(device.to_host(counted)[1])
            if largest * GROWTH < shape.room:
                grown *= GROWTH
    counted = device.to_host(backend.xp.stack(counts)) if counts else np.empty((0, 3))
    columns = np.hstack([np.array(shapes).reshape(-1, 2), counted]).astype(np.int64)
    return Drawn(PreferentialAttachment(links, n, d, backend), Rounds(*columns.T.copy()))
