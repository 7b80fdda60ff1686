"""The ties of personalized queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.pagerank.bounded_places import Tie
from liverank_gpu.pagerank.identical_lists import IdenticalLists
from liverank_gpu.personalized.seeds import Seeds


def ties_of(
    classes: IdenticalLists,
    vertices: NDArray[np.int64],
    seeds: Seeds,
    among: NDArray[np.int64] | None,
) -> list[Tie]:
    """The ties of a query: vertices with identical in-lists and the same part of the seeds.

    vertices  int64[p], ids at the places
    among     int64[a], ascending: only these vertices have places; None for all
    """
    ties = []
    labels = classes.labels(vertices)
    for label in np.unique(labels[labels >= 0]):
        places, members = np.flatnonzero(labels == label), classes.members[label]
        if among is not None:
            members = members[np.isin(members, among, assume_unique=True)]
        weights, held = seeds.weights_at(members), seeds.weights_at(vertices[places])
        for weight in np.unique(held):
            tie = Tie(places[held == weight], members[weights == weight])
            if len(tie.members) > 1:
                ties.append(tie)
    return ties
