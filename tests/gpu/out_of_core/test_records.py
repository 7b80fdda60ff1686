"""Programs with several numbers a vertex over windows."""

from __future__ import annotations

import math

import pytest

from liverank_gpu import InvalidValue, Options, OutOfCorePrograms
from liverank_gpu.operations.backend import Backend
from tests.gpu.out_of_core.streamed import in_memory, network, squeezed
from tests.gpu.programs.test_records import (
    EACH_KIND,
    MANY,
    RANKED,
    RULED,
    SOURCE,
    assert_many,
    assert_ranked,
    expected_paths,
)

VERTICES = 310


@EACH_KIND
def test_paths_name_the_lowest_predecessor(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    columns, options = network(), Options(directed=directed, weighted=weighted)
    engine = in_memory(columns, options, backend, VERTICES)
    with squeezed(columns, options, backend, VERTICES, "paths", source=SOURCE) as graph:
        found = graph.run("paths", source=SOURCE)
        with pytest.raises(InvalidValue, match=f"mode: .* {RULED}"):
            graph.run("paths", "asynchronous", source=SOURCE)
    assert found.windows >= 4
    assert found.answer.values.tolist() == expected_paths(engine, SOURCE)


def test_eight_numbers_of_every_type(backend: Backend) -> None:
    columns, options = network(), Options(weighted=True)
    with squeezed(columns, options, backend, VERTICES, MANY) as graph:
        found = graph.run(MANY)
    assert found.windows >= 4
    assert_many(in_memory(columns, options, backend, VERTICES), found.answer)


@EACH_KIND
def test_records_of_every_vertex(backend: Backend, directed: bool, weighted: bool) -> None:
    columns, options = network(), Options(directed=directed, weighted=weighted)
    with squeezed(columns, options, backend, VERTICES, RANKED) as graph:
        found = graph.run(RANKED)
    assert found.windows >= 4
    assert_ranked(in_memory(columns, options, backend, VERTICES), found.answer)


def test_records_of_no_edges(backend: Backend) -> None:
    with OutOfCorePrograms(1 << 20, backend=backend) as graph:
        graph.vertices = 3
        found = graph.run("paths", source=1).answer.values
    assert found.tolist() == [(math.inf, -1), (0.0, -1), (math.inf, -1)]
