"""What is said to be proven about places, against all ranks that the bound allows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from liverank_gpu import rank_error
from liverank_service.queries.view import Places, RankedVertices

RANKS = [0.4, 0.2, 0.2 - 1e-9, 0.1, 0.05, 0.05]
BOUND = 1e-6


def places(
    before: int, count: int, ranks: list[float] = RANKS, ties: list[int] | None = None
) -> Places:
    """As a view asks for them: with one place more on either side."""
    first = max(before - 1, 0)
    names = [f"v{place}" for place in range(len(ranks))]
    labels = np.array(ties or [-1] * len(ranks))
    listed = RankedVertices(pa.array(names), np.array(ranks), labels)
    return Places.of(listed.part(first, before + count + 1), BOUND, before - first, count)


@pytest.mark.parametrize(
    ("before", "count", "settled", "settled_set", "groups"),
    [
        (0, 1, 1, True, [1]),
        (0, 2, 1, False, [1, 1]),
        (0, 3, 1, True, [1, 2]),
        (0, 4, 1, True, [1, 2, 1]),
        (0, 5, 1, False, [1, 2, 1, 1]),
        (0, 6, 1, True, [1, 2, 1, 2]),
        (0, 9, 1, True, [1, 2, 1, 2]),
        (1, 2, 0, True, [2]),
        (2, 2, 0, False, [1, 1]),
        (3, 1, 1, True, [1]),
        (5, 1, 0, False, [1]),
        (6, 3, 0, True, []),
    ],
)
def test_what_is_proven_about_a_page(
    before: int, count: int, settled: int, settled_set: bool, groups: list[int]
) -> None:
    found = places(before, count)
    assert found.vertices.to_pylist() == [f"v{n}" for n in range(6)][before : before + count]
    assert found.ranks.tolist() == RANKS[before : before + count]
    assert (found.settled, found.settled_set, found.groups) == (settled, settled_set, groups)
    assert found.ties == []


@pytest.mark.parametrize(
    ("before", "count", "settled", "settled_set", "groups", "ties"),
    [
        (0, 3, 3, True, [1, 2], [1]),
        (0, 7, 7, True, [1, 3, 1, 2], [1, 3]),
        (0, 8, 7, False, [1, 3, 1, 2, 1], [1, 3]),
        (0, 9, 7, True, [1, 3, 1, 2, 2], [1, 3]),
        (1, 3, 3, True, [3], [0]),
        (2, 1, 1, True, [1], [0]),
        (3, 3, 3, True, [1, 1, 1], [0, 2]),
        (6, 2, 1, False, [1, 1], [0]),
        (7, 2, 0, True, [2], []),
    ],
)
def test_the_places_of_a_tie_count_as_proven(
    before: int, count: int, settled: int, settled_set: bool, groups: list[int], ties: list[int]
) -> None:
    ranks = [0.4, 0.1, 0.1, 0.1, 0.09, 0.05, 0.05, 0.04, 0.04]
    found = places(before, count, ranks, [-1, 3, 3, 3, -1, 0, 0, -1, -1])
    assert (found.settled, found.settled_set, found.groups) == (settled, settled_set, groups)
    assert found.ties == ties


def test_a_tie_is_apart_from_what_is_beside_it() -> None:
    # also where the difference exceeds the bound by less than roundoff
    found = places(0, 4, [0.2, 0.1 + BOUND, 0.1, 0.1], [-1, -1, 0, 0])
    assert (found.settled, found.groups, found.ties) == (4, [1, 1, 2], [2])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_bound_allows_leaves_proven_places(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = 12
    exact = np.sort(generator.integers(1, 30, count) * 1e-6)[::-1]
    exact[0] = 1.0 - exact[1:].sum()
    # all of the error in two vertices: what brings two ranks nearest to each other
    up, down = generator.permutation(count)[:2]
    shift = 0.5 * BOUND * generator.random()
    given = exact.copy()
    given[up] += shift
    given[down] -= shift
    order = np.argsort(-given, kind="stable")
    assert abs(given - exact).max() <= rank_error(BOUND)
    for before in (0, 3):
        for k in (1, 4, 9):
            found = places(before, k, given[order].tolist())
            true = exact[order]
            for place in range(before, before + found.settled):
                assert (true[:place] > true[place]).all()
                assert (true[place + 1 :] < true[place]).all()
            if found.settled_set:
                end = before + len(found.ranks)
                assert true[:before].min(initial=9) > true[before:end].max(initial=0)
                assert true[before:end].min(initial=9) > true[end:].max(initial=0)
            ends = before + np.cumsum([0, *found.groups])
            assert ends[-1] == before + len(found.ranks)
            for middle in ends[1:-1]:
                assert true[before:middle].min() > true[middle : ends[-1]].max()
