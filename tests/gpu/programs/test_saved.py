"""A program that goes on from a saved state has the answer that it would have had."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    PROGRAMS,
    Algorithm,
    Answer,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    SavedRun,
    VertexProgram,
)
from liverank_gpu.operations.backend import Backend
from tests.gpu.programs.test_edges_and_aggregates import DELTAS, FOUR, HEAVY_LEVELS, SPREAD
from tests.gpu.programs.test_records import MANY

EACH = [
    *(each for each in PROGRAMS.values() if isinstance(each, VertexProgram)),
    *(DELTAS, FOUR, HEAVY_LEVELS, SPREAD, replace(MANY, supersteps=4)),
]


def _columns(seed: int) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    sources, targets = generator.integers(0, 60, (2, 160))
    return sources, targets, (generator.integers(1, 64, 160) / 8).astype(np.float32)


def _engine(backend: Backend, options: Options, pieces: int = 1) -> Engine:
    """The same edges in one batch or several, which lie in memory otherwise, without vertex 7."""
    engine = Engine(options, backend)
    columns = _columns(8)
    for piece in range(pieces):
        part = slice(piece * 160 // pieces, (piece + 1) * 160 // pieces)
        sources, targets, weights = (column[part] for column in columns)
        given = weights if options.weighted else None
        engine.apply(EdgeBatch(sources, targets, vertices=60, weights=given))
    engine.apply(EdgeBatch.of(remove=[7]))
    return engine


def _stepped(engine: Engine, program: VertexProgram, path: Path, every: int) -> int:
    """Saves the state every so many supersteps, and is interrupted; returns how many were done."""
    run = engine.programs.begin(program, given=_given(program))
    for _ in range(2):
        run.step(math.inf, most=every)
        run.state({"seconds": 1.5}).save(path)
        assert SavedRun.load(path).note == {"seconds": 1.5}
    done = run.supersteps
    run.step(0.0)
    engine.programs.close(run)
    return done


def _given(program: VertexProgram) -> dict[str, Any]:
    return {"source": 5} if "source" in program.parameters else {}


def _numbers(answer: Answer) -> list[float]:
    """All values, then those of edges by their ends."""
    edges, values = answer.edge_values, answer.values
    columns = [values[name] for name in values.dtype.names or ()] or [values]
    if edges is not None:
        order = np.lexsort((edges.targets, edges.sources))
        of_edges = edges.values[order]
        columns += [edges.sources[order], edges.targets[order]]
        columns += [of_edges[name] for name in of_edges.dtype.names or ()] or [of_edges]
    found: list[float] = np.concatenate(columns).tolist()
    return found


@pytest.mark.parametrize("program", EACH, ids=lambda program: program.name)
def test_an_interrupted_run_goes_on_in_another_engine(
    backend: Backend, tmp_path: Path, program: VertexProgram
) -> None:
    path = tmp_path / "state"
    options = Options(weighted=True, vertex_order="degree")
    expected = _engine(backend, options).run(program, **_given(program))
    done = _stepped(_engine(backend, options), program, path, 1)
    assert 0 < done < expected.receipt.supersteps
    # the other engine has other positions
    other = _engine(backend, replace(options, vertex_order="given"), pieces=3)
    run = other.programs.begin(program, given=_given(program), resume=SavedRun.load(path))
    assert run.supersteps == done or run.done
    while not run.done:
        run.step(0.0)
    answer = run.answer()
    other.programs.close(run)
    # sums of floats are in the order of lists, which is another
    exact = program.name not in ("pagerank", "deltas", "many")
    found, other_found = _numbers(answer), _numbers(expected)
    assert found == (other_found if exact else pytest.approx(other_found, rel=1e-5, abs=1e-6))
    assert answer.receipt.finished == expected.receipt.finished
    if exact:
        assert answer.receipt.supersteps == expected.receipt.supersteps
    if exact and not program.first_wins:  # of which who is found first depends on the order
        assert answer.receipt.edges == expected.receipt.edges


def test_a_state_is_of_one_graph_program_and_parameters(backend: Backend, tmp_path: Path) -> None:
    path, options = tmp_path / "state", Options(weighted=True)
    _stepped(_engine(backend, options), DELTAS, path, 2)
    saved = SavedRun.load(path)
    assert saved.supersteps == 4

    def resumed(batch: EdgeBatch | None, program: Any = DELTAS, **given: Any) -> None:
        engine = _engine(backend, options)
        if batch is not None:
            engine.apply(batch)
        run = engine.programs.begin(program, given=given, resume=saved)
        engine.programs.close(run)

    resumed(None)
    sources, targets, weights = (column[0] for column in _columns(8))
    for batch in (
        EdgeBatch.of(delete=[(int(sources), int(targets))]),
        EdgeBatch.of([(int(sources), int(targets), float(weights) + 1.0)]),
        EdgeBatch.of([(59, 0, 1.0), (0, 0, 2.0)]),
        EdgeBatch.of(remove=[8]),
        EdgeBatch(vertices=61),
    ):
        with pytest.raises(InvalidValue, match=r"^resume: .* on the graph as it is now"):
            resumed(batch)
    with pytest.raises(InvalidValue, match=r"^resume: .* this program with these parameters"):
        resumed(None, damping=0.5)
    for other in ("levels", "cores"):
        with pytest.raises(InvalidValue, match=r"^resume: .* this program with these parameters"):
            resumed(None, other)
    for name in saved.arrays:
        arrays = {each: array for each, array in saved.arrays.items() if each != name}
        saved = replace(SavedRun.load(path), arrays=arrays)
        with pytest.raises(InvalidValue, match=r"^resume: .* as ProgramRun\.state returned it"):
            resumed(None)


def test_algorithms_have_no_state_to_save_and_files_are_checked(
    backend: Backend, tmp_path: Path
) -> None:
    engine = _engine(backend, Options())
    run = engine.programs.begin("labels")
    assert isinstance(PROGRAMS["labels"], Algorithm)
    with pytest.raises(InvalidValue, match=r"^program: 'labels' .* a VertexProgram"):
        run.state()
    engine.programs.close(run)
    path = tmp_path / "state"
    _stepped(engine, PROGRAMS["levels"], path, 1)  # type: ignore[arg-type]
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"{}"):
        path.write_bytes(damaged)
        with pytest.raises(InvalidValue, match=r"^path: .* a file that SavedRun\.save wrote"):
            SavedRun.load(path)
    path.write_bytes(content)
    with np.load(path) as saved:
        arrays = dict(saved)
    header = json.loads(arrays.pop("header").tobytes())
    for number in (None, 0, 2):
        other = {each: value for each, value in header.items() if each != "format"}
        other |= {} if number is None else {"format": number}
        with path.open("wb") as file:
            np.savez(file, header=np.frombuffer(json.dumps(other).encode(), "u1"), **arrays)
        with pytest.raises(InvalidValue, match=r"^path: .* a file that SavedRun\.save wrote"):
            SavedRun.load(path)
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_a_large_graph_is_hashed_in_parts_between_batches(tmp_path: Path) -> None:
    sources, targets = np.random.default_rng(3).integers(0, 50_000, (2, 600_000))
    engine, other = (Engine(Options(), "cpu") for _ in range(2))
    for each in (engine, other):
        each.apply(EdgeBatch(sources, targets, vertices=50_000))
    run = engine.programs.begin("levels", given={"source": 5})
    run.step(0.0, most=1)
    batches = 0
    while not run.hash(0.0):
        engine.apply(EdgeBatch.of([(5, 49_999 - batches)]))
        batches += 1
    assert batches > 1
    run.state().save(tmp_path / "state")
    resumed = other.programs.begin(
        "levels", given={"source": 5}, resume=SavedRun.load(tmp_path / "state")
    )
    assert resumed.hash(0.0)  # which was computed to compare the graphs
    for going in (run, resumed):
        while not going.done:
            going.step(math.inf)
    values = resumed.answer().values
    assert (values == run.answer().values).all()
    assert (values == other.run("levels", source=5).values).all()
