"""Reading a graph while batches change it, by copy on write.

shared = SharedGraph(graph)      reads the arrays of the graph, until `detach`
detach([shared, …])              before a batch: one copy, which all of them share

So a reader that ends before the next batch costs nothing, and one that does not costs a copy at the
bandwidth of memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.in_pages import InPages


class SharedGraph:
    """A graph at one moment, for reading alone.

    graph      it: apply no batch to it
    is_copied  whether its arrays are a copy, which several may share
    nbytes     of the copy
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self.graph = copy(graph)
        self.graph.in_pages = InPages(graph.backend)  # those of the graph are not kept from it
        self.is_copied = False
        self.nbytes = 0


def copied_bytes(graph: DynamicGraph) -> int:
    """Bytes of the arrays of a copy."""
    loops = graph.loop.nbytes + graph.degree.nbytes
    return graph.outgoing.copied_bytes + graph.incoming.copied_bytes + int(loops)


def detach(readers: Iterable[SharedGraph], beside: int) -> None:
    """Gives readers of the same graph one copy of it, if they have none.

    beside  bytes that are to be available after it

    Raises OutOfMemory; they then read the graph still.
    """
    attached = [each for each in readers if not each.is_copied]
    if not attached:
        return
    source = attached[0].graph
    device, needed = source.backend.device, copied_bytes(source)
    purpose = "a copy of the graph for a program"
    device.require(purpose, needed + beside)
    try:
        outgoing, incoming = source.outgoing.copied(), source.incoming.copied()
        loop, degree = source.loop.copy(), source.degree.copy()
        ids = source.ids.copied()
    except MemoryError as error:
        raise OutOfMemory(purpose, needed, device.memory_available()) from error
    for each in attached:
        graph = each.graph
        graph.outgoing, graph.incoming = outgoing, incoming
        graph.loop, graph.degree, graph.ids = loop, degree, ids
        each.is_copied, each.nbytes = True, needed
