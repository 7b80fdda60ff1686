"""Messages along chosen edges, aggregates and values of edges over windows."""

from __future__ import annotations

import math

import pytest

from liverank_gpu import InvalidValue, Options, OutOfCorePrograms
from liverank_gpu.operations.backend import Backend
from tests.gpu.out_of_core.streamed import in_memory, network, squeezed
from tests.gpu.programs import oracle
from tests.gpu.programs.test_edges_and_aggregates import (
    DELTAS,
    FOUR,
    HEAVY_COMPONENTS,
    HEAVY_LEVELS,
    SPREAD,
    assert_deltas,
    assert_history,
    expected_spread,
    heavy_part,
)
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
EACH_DIRECTION = pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])


@EACH_DIRECTION
def test_messages_go_along_chosen_edges(backend: Backend, directed: bool) -> None:
    columns, options = network(), Options(directed=directed, weighted=True)
    engine = in_memory(columns, options, backend, VERTICES)
    part = heavy_part(engine)
    levels = oracle.levels(part, SOURCE)
    with squeezed(columns, options, backend, VERTICES, HEAVY_LEVELS, source=SOURCE) as graph:
        for mode in ("synchronous", "asynchronous"):
            found = graph.run(HEAVY_LEVELS, mode, source=SOURCE)
            assert (found.answer.values == oracle.by_id(levels, found.answer.values)).all()
            assert found.windows >= 4
        if directed:
            with pytest.raises(InvalidValue, match="without sender and sends, or in direction"):
                graph.run(HEAVY_COMPONENTS)
        else:
            values = graph.run(HEAVY_COMPONENTS).answer.values
            assert (values == oracle.by_id(oracle.components(part), values)).all()


@EACH_DIRECTION
def test_an_aggregate_is_seen_by_the_next_superstep(backend: Backend, directed: bool) -> None:
    columns, options = network(), Options(directed=directed)
    engine = in_memory(columns, options, backend, VERTICES)
    with squeezed(columns, options, backend, VERTICES, SPREAD, source=SOURCE) as graph:
        for most in (5, 40, 1000):
            answer = graph.run(SPREAD, source=SOURCE, most=most).answer
            values, aggregate = expected_spread(engine, most)
            assert answer.values.tolist() == values
            assert answer.summary == {"aggregate": aggregate}


@EACH_KIND
def test_edges_keep_what_was_sent_along_them(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    columns, options = network(), Options(directed=directed, weighted=weighted)
    engine = in_memory(columns, options, backend, VERTICES)
    with squeezed(columns, options, backend, VERTICES, DELTAS) as graph:
        found = graph.run(DELTAS)
    assert found.windows >= 4
    assert_deltas(engine, found.answer)


@EACH_DIRECTION
def test_values_of_edges_where_every_vertex_is_active(backend: Backend, directed: bool) -> None:
    columns, options = network(), Options(directed=directed)
    engine = in_memory(columns, options, backend, VERTICES)
    with squeezed(columns, options, backend, VERTICES, FOUR) as graph:
        found = graph.run(FOUR)
    assert found.windows >= 4
    assert_history(engine, found.answer)


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
