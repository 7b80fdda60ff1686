"""DN-graphs over windows."""

from __future__ import annotations

import numpy as np
import pytest

from liverank_gpu import Options
from liverank_gpu.operations.backend import Backend
from tests.gpu.out_of_core.streamed import FOR_TRIANGLES, squeezed
from tests.gpu.programs import oracle
from tests.gpu.programs.dense_parts import dn_graphs_of, overlapping_cliques


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_dn_graphs_over_windows_are_those_of_the_theorem(backend: Backend, seed: int) -> None:
    graph = overlapping_cliques(seed)
    sources, targets = np.array(list(graph.edges), np.int64).T
    columns = sources, targets, np.ones(len(sources), np.float32)
    options, name = Options(directed=False), "dn-graphs"
    with squeezed(columns, options, backend, len(graph), name, FOR_TRIANGLES) as windows:
        answer = windows.run("dn-graphs").answer
    expected = oracle.dn_graphs(graph)
    assert dn_graphs_of(answer) == expected
    assert answer.summary["graphs"] == len(set(expected.values()))
