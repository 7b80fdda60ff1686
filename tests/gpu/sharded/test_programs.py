"""Programs on a graph in shards, held against one device and NetworkX."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    PROGRAMS,
    Answer,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    ProgramRun,
    ShardedEngine,
    UnknownVertex,
    VertexProgram,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import (
    batch_for,
    is_slow,
    model_of,
)
from tests.gpu.programs.test_edges_and_aggregates import DELTAS, HEAVY_COMPONENTS, HISTORY, SPREAD
from tests.gpu.programs.test_records import MANY, RANKED
from tests.gpu.sharded.test_shards import sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers

CPU = backend_named("cpu")

REFUSED = ("support", "trussness", "dn-graphs")
BUILT_IN = [each for name, each in PROGRAMS.items() if name not in REFUSED]
FOUR = replace(MANY, supersteps=4)
OWN = [DELTAS, HEAVY_COMPONENTS, HISTORY, SPREAD, FOUR, RANKED]

OPTIONS = {
    "directed": Options(vertex_order="degree"),
    "weighted": Options(weighted=True),
    "undirected": Options(directed=False, vertex_order="degree"),
}


def edges(generator: np.random.Generator, vertices: int, count: int) -> EdgeBatch:
    sources, targets = generator.integers(0, vertices, (2, count))
    return EdgeBatch(sources, targets, vertices=vertices)


def numbers(answer: Answer) -> dict[str, list[float]]:
    """All values, those of edges by their ends, and the summary."""
    found = {name: [value] for name, value in answer.summary.items()}
    edges, values = answer.edge_values, answer.values
    for name in values.dtype.names or [""]:
        found[f"values {name}"] = (values[name] if name else values).tolist()
    if edges is not None:
        order = np.lexsort((edges.targets, edges.sources))
        found["sources"], found["targets"] = (each[order].tolist() for each in edges[:2])
        for name in edges.values.dtype.names or [""]:
            found[f"edges {name}"] = (edges.values[name] if name else edges.values)[order].tolist()
    return found


def assert_same(found: Answer, expected: Answer) -> None:
    """Sums of floats are in the order of lists, which is another in shards; all else is equal."""
    until_small = (PROGRAMS["pagerank"], DELTAS)
    exact = expected.program not in (*until_small, *OWN)
    of_one, of_shards = numbers(expected), numbers(found)
    assert of_one.keys() == of_shards.keys()
    for name, values in of_one.items():
        if name == "edges messages":  # of DELTAS
            continue
        close = pytest.approx(values, rel=1e-5, abs=1e-9, nan_ok=True)
        is_sum = name == "average"
        assert of_shards[name] == (values if exact and not is_sum else close), name
    receipt, other = found.receipt, expected.receipt
    assert (receipt.program, receipt.finished) == (other.program, other.finished)
    if expected.program in until_small:  # the last superstep is a matter of rounding
        assert abs(receipt.supersteps - other.supersteps) <= 1
    elif expected.program is not PROGRAMS["cores"]:  # shards count down, one device peels
        assert receipt.supersteps == other.supersteps
        if expected.program is not PROGRAMS["levels"]:  # one device looks for in-neighbours
            assert receipt.edges == other.edges


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_programs_find_in_shards_what_they_find_on_one_device(
    backend: Backend, shards: int, options: Options
) -> None:
    generator = np.random.default_rng(shards)
    model = model_of(options)
    one, several = Engine(options, backend), sharded_engine(options, shards, backend)
    # each has to be compiled for the emulator, which takes long
    programs = [*BUILT_IN, *(([DELTAS, FOUR] if shards == 3 else []) if is_slow(backend) else OWN)]
    for step in range(2 if is_slow(backend) else 3):
        batch = edges(generator, 70, 40)
        if step:
            batch = batch_for(generator, model, 60, step != 2)
        model.apply(batch)
        ids = np.setdiff1d(np.arange(model.vertices), sorted(model.free))
        for engine in (one, several):
            engine.apply(batch)
        for program in programs:
            given: dict[str, Any] = {}
            if "source" in program.parameters:
                given = {"source": int(generator.choice(ids))}
            assert_same(several.run(program, **given), one.run(program, **given))
    several.close()


def stepped(engine: Engine, run: ProgramRun) -> Answer:
    while not run.done:
        run.step(0.0)
    try:
        return run.answer()
    finally:
        engine.programs.close(run)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_runs_between_batches_answer_for_the_graph_at_their_beginning(options: Options) -> None:
    generator = np.random.default_rng(5)
    workers = ThreadWorkers(options, 3, CPU)
    one, several = Engine(options, CPU), ShardedEngine(options, workers=workers)
    for engine in (one, several):
        engine.apply(edges(np.random.default_rng(4), 60, 150))
    programs = [*BUILT_IN, *OWN]
    expected = [one.run(program) for program in programs]
    runs = [several.programs.begin(program) for program in programs]
    for place in range(4):  # columns are renumbered, as there are more vertices
        batch = edges(generator, 60 + 150 * place, 80)
        gone = batch.insert_sources[:20], batch.insert_targets[20:40]
        several.apply(batch)
        several.apply(EdgeBatch(delete_sources=gone[0], delete_targets=gone[1]))
        several.apply(EdgeBatch.of(remove=[3 + place]))
        several.update()
        for run in runs[place:]:
            run.step(0.0)
    for run, answer in zip(runs, expected, strict=True):
        assert_same(stepped(several, run), answer)
    several.update()
    assert [shard.programs.nbytes for shard in workers.shards] == [0, 0, 0]  # of copies
    several.close()


@pytest.mark.parametrize("program", [PROGRAMS["paths"], DELTAS, SPREAD, FOUR], ids=lambda p: p.name)
def test_a_state_goes_on_in_another_number_of_shards(program: Any) -> None:
    options = Options(vertex_order="degree")
    batch = edges(np.random.default_rng(8), 60, 160)
    sharded = [sharded_engine(options, shards, CPU) for shards in (3, 2, 2)]
    engines: list[Engine] = [Engine(options, CPU), *sharded[:2]]
    for engine in engines:
        engine.apply(batch)
        engine.apply(EdgeBatch.of(remove=[7]))
    expected = engines[0].run(program)
    for saving, resuming in [(0, 1), (1, 2), (2, 0)]:
        run = engines[saving].programs.begin(program)
        run.step(0.0)
        saved, done = run.state(), run.supersteps
        engines[saving].programs.close(run)
        assert 0 < done < expected.receipt.supersteps
        run = engines[resuming].programs.begin(program, resume=saved)
        assert run.supersteps == done
        found = numbers(stepped(engines[resuming], run))
        for name, values in numbers(expected).items():
            assert found[name] == pytest.approx(values, rel=1e-5, abs=1e-9, nan_ok=True), name
    other = sharded[2]
    other.apply(batch)
    with pytest.raises(InvalidValue, match=r"^resume: .* on the graph as it is now"):
        other.programs.begin(program, resume=saved)
    assert other.run("components").receipt.finished
    for each in sharded:
        each.close()


def test_a_run_ends_where_one_shard_has_no_memory_and_others_go_on() -> None:
    last, device = looked_after(CPU)
    workers = ThreadWorkers(Options(), 3, [CPU, CPU, last])
    engine = ShardedEngine(Options(), workers=workers)
    engine.apply(EdgeBatch.of([(v, v + 1) for v in range(60)]))
    run, other = (engine.programs.begin(each) for each in ("levels", "components"))
    for each in (run, other):
        each.step(0.0)

    def full(purpose: str) -> None:
        raise OutOfMemory(purpose, 2, 1)

    device.allocating = full
    for _ in range(2):
        with pytest.raises(OutOfMemory, match="vectors of all shards"):
            stepped(engine, run)
    with pytest.raises(OutOfMemory):
        engine.programs.begin("levels")
    del device.allocating
    engine.apply(EdgeBatch.of([(0, 59)]))
    engine.update()
    assert stepped(engine, other).values.tolist() == [0] * 61
    assert engine.run("levels").values[[59, 60]].tolist() == [1, 2]
    engine.update()
    assert [shard.programs.nbytes for shard in workers.shards] == [0, 0, 0]
    engine.close()


def test_what_does_not_run_in_shards_is_refused_by_name() -> None:
    engine = sharded_engine(Options(), 2, CPU)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0)]))
    for name in REFUSED:
        with pytest.raises(InvalidValue, match=rf"^program: '{name}' .* on a graph in shards"):
            engine.run(name)
    with pytest.raises(InvalidValue, match=r"^mode: 'asynchronous' .* on a graph in shards"):
        engine.run("levels", mode="asynchronous")
    with pytest.raises(UnknownVertex):
        engine.run("levels", source=3)
    first = engine.run("levels")
    assert not first.may_continue
    assert not engine.run("levels", after=first).receipt.continued
    with pytest.raises(InvalidValue, match=r"^after: "):
        engine.run("distances", after=first)
    assert isinstance(PROGRAMS["levels"], VertexProgram)
    engine.close()
