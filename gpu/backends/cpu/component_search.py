"""Numba kernels that find strongly connected components."""

from __future__ import annotations

import numpy as np

from gpu.jit.compile import sequential, unsigned

CYCLIC_EDGES, LARGEST_EDGES, LARGEST_SIZE = range(3)
"""Counts of `order_by_component`."""


@sequential
def count_reciprocal(outgoing, incoming, samples, counts):  # type: ignore[no-untyped-def]
    """Looks at one edge of each of about `samples` vertices, and counts these edges and those of
    them whose opposite edge exists.
    """
    vertices = len(outgoing.row_lengths)
    for sample in range(min(samples, vertices)):
        v = sample * vertices // min(samples, vertices)
        length = outgoing.row_lengths[v]
        if length == 0:
            continue
        w = outgoing.column_indices[outgoing.row_starts[v] + sample % length]
        counts[0] += 1
        # the edge w → v is in two lists
        lists, row, other = outgoing, w, v
        if incoming.row_lengths[v] < outgoing.row_lengths[w]:
            lists, row, other = incoming, v, w
        begin = lists.row_starts[row]
        for slot in range(begin, begin + lists.row_lengths[row]):
            if lists.column_indices[slot] == other:
                counts[1] += 1
                break


@sequential
def number_components(row_starts, row_lengths, column_indices, component):  # type: ignore[no-untyped-def]
    """Pearce, "An Improved Algorithm for Finding the Strongly Connected Components of a Directed
    Graph" (2005), without recursion.

    component  int32[n], 0 before; receives the number of the component of each vertex. Numbers end
               at n and ascend in topological order
    Returns how many components there are.
    """
    vertices = len(component)
    # from the front the path to the current vertex, from the back what waits for its component
    stack = np.empty(vertices, np.int32)
    slots = np.empty(vertices, np.int64)
    indices = np.empty(vertices, np.int32)
    waiting = vertices
    index = 0
    number = vertices
    for root in range(vertices):
        if component[root] != 0:
            continue
        depth = 0
        index += 1
        stack[0] = root
        slots[0] = row_starts[root]
        indices[0] = component[root] = index
        while depth >= 0:
            v = unsigned(stack[unsigned(depth)])
            lowest = component[v]
            slot = slots[unsigned(depth)]
            end = row_starts[v] + row_lengths[v]
            found = -1
            while slot < end:
                w = column_indices[unsigned(slot)]
                reached = component[unsigned(w)]
                if reached == 0:
                    found = w
                    break
                lowest = min(lowest, reached)
                slot += 1
            component[v] = lowest
            if found >= 0:
                # this slot is read again on the way back
                slots[unsigned(depth)] = slot
                depth += 1
                index += 1
                stack[unsigned(depth)] = found
                slots[unsigned(depth)] = row_starts[unsigned(found)]
                indices[unsigned(depth)] = component[unsigned(found)] = index
                continue
            if lowest == indices[unsigned(depth)]:
                index -= 1
                while waiting < vertices and component[stack[waiting]] >= lowest:
                    component[stack[waiting]] = number
                    waiting += 1
                    index -= 1
                component[v] = number
                number -= 1
            else:
                waiting -= 1
                stack[waiting] = v
            depth -= 1
    return vertices - number


@sequential
def order_by_component(component, in_lengths, first, order, counts):  # type: ignore[no-untyped-def]
    """Sorts the vertices by component, ascending inside each.

    component  as `number_components` left it
    first      int64[count + 1], 0 before
    counts     int64[3], 0 before
    """
    count = len(first) - 1
    smallest = len(component) - count + 1
    for v in range(len(component)):
        first[component[v] - smallest + 1] += 1
    for i in range(count):
        first[i + 1] += first[i]
    at = first[:-1].copy()
    for v in range(len(component)):
        i = component[v] - smallest
        order[at[i]] = v
        at[i] += 1
    for i in range(count):
        size = first[i + 1] - first[i]
        if size == 1:
            continue
        edges = 0
        for place in range(first[i], first[i + 1]):
            edges += in_lengths[order[place]]
        counts[CYCLIC_EDGES] += edges
        counts[LARGEST_EDGES] = max(counts[LARGEST_EDGES], edges)
        counts[LARGEST_SIZE] = max(counts[LARGEST_SIZE], size)
