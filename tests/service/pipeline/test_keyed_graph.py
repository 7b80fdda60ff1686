"""The ids that a batch gives to new keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pyarrow as pa
import pytest

from liverank.choices import KeyKind
from liverank_gpu import DeviceLost, Engine, Options, OutOfMemory
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.keyed_graph import KeyedGraph, VertexSets
from liverank_service.pipeline.window import Window, WindowOptions
from liverank_service.vertex_keys import ARROW_TYPES, FoundKeys, VertexTable


@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("distinct", [3, 1000, 200_000])
def test_ids_follow_the_position_in_the_batch(kind: KeyKind, distinct: int) -> None:
    generator = np.random.default_rng(distinct)
    engine = Engine(Options(), "cpu")
    keys = VertexTable(kind)
    keyed = KeyedGraph("g", engine, keys, VertexSets("g", {}))
    seen: dict[int, int] = {}
    for count in (1, 50, 150_000, 0):
        ends = generator.integers(0, distinct, (count, 2))
        vertices = generator.integers(0, 2 * distinct, 20)
        for key in [*ends.ravel().tolist(), *vertices.tolist()]:
            seen.setdefault(key, len(seen))

        def column(numbers: np.ndarray) -> pa.Array:
            return pa.array(numbers.astype(np.int64)).cast(ARROW_TYPES[kind])

        nothing = column(np.empty(0))
        batch = EdgeColumns(
            column(ends[:, 0]), column(ends[:, 1]), nothing, nothing, column(vertices)
        )
        keyed.look_ahead([batch, batch])
        keyed.apply(batch)
        found = keys.state.lookup(column(np.array(list(seen))))
        assert found.tolist() == list(seen.values())
        assert engine.vertices == keys.state.limit == len(seen)


def _insertions(pairs: list[tuple[str, str]]) -> EdgeColumns:
    sources, targets = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
    nothing = pa.array([], pa.string())
    return EdgeColumns(sources, targets, nothing, nothing, nothing)


@pytest.mark.parametrize("error", [OutOfMemory("a batch", 10, 1), RuntimeError("a fault")])
def test_batches_that_may_have_been_applied_are_not_applied_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply_coalesced(*_: object) -> None:
        raise error

    keys = VertexTable("string")
    keyed = KeyedGraph("g", Engine(Options(), "cpu"), keys, VertexSets("g", {}))
    monkeypatch.setattr(Engine, "apply_coalesced", apply_coalesced)
    batches = [_insertions([("a", "b")]), _insertions([("b", "c")])]
    if isinstance(error, OutOfMemory):
        # which the engine raises before it changes anything
        assert keyed.apply_coalesced(batches) is None
        assert keys.state.limit == 0
    else:
        with pytest.raises(RuntimeError, match="a fault"):
            keyed.apply_coalesced(batches)


def test_a_device_that_is_lost_after_the_graph_changed_is_said_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process has to end; an error of the graph alone would leave it running."""
    engine = Engine(Options(), "cpu")
    window = Window(WindowOptions(10.0, "event"), engine)
    keyed = KeyedGraph("g", engine, VertexTable("string"), VertexSets("g", {}), window)

    def lose(*_: object) -> None:
        raise DeviceLost("launch failure")

    monkeypatch.setattr(window, "applied", lose)
    with pytest.raises(DeviceLost):
        keyed.apply(_insertions([("a", "b")]))


class _Slow(VertexTable):
    """Whose keys are found once the test says so."""

    def __init__(self) -> None:
        super().__init__("integer")
        self.begun, self.released = Event(), Event()
        self.in_time = False

    def finder(self, columns: Sequence[pa.Array]) -> Callable[[], FoundKeys]:
        find = super().finder(columns)

        def slowly() -> FoundKeys:
            self.begun.set()
            self.in_time = self.released.wait(10)
            return find()

        return slowly


def test_a_graph_does_not_wait_for_the_keys_of_another() -> None:
    slow = _Slow()
    tables = [slow, VertexTable("integer"), VertexTable("integer")]
    graphs = [
        KeyedGraph("g", Engine(Options(), "cpu"), keys, VertexSets("g", {})) for keys in tables
    ]
    ends = np.random.default_rng(5).integers(0, 1000, (2, 5000))
    sources, targets = (pa.array(column) for column in ends)
    nothing = pa.array([], pa.int64())
    batch = EdgeColumns(sources, targets, nothing, nothing, nothing)
    for keyed in graphs:
        keyed.look_ahead([batch])
    assert slow.begun.wait(10)
    graphs[1].apply(batch)
    graphs[2].look_ahead(())
    graphs[2].apply(batch)
    slow.released.set()
    graphs[0].apply(batch)
    assert slow.in_time
    order = list(dict.fromkeys(ends.T.ravel().tolist()))
    for keys in tables:
        assert keys.state.lookup(pa.array(order)).tolist() == list(range(len(order)))


def test_a_batch_is_applied_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    keys = VertexTable("string")
    keyed = KeyedGraph("g", Engine(Options(), "cpu"), keys, VertexSets("g", {}))
    batch = _insertions([(str(n), str(n + 1)) for n in range(5000)])
    with monkeypatch.context() as patched:
        patched.setattr(ThreadPoolExecutor, "submit", refuse)
        keyed.look_ahead([batch])
    keyed.apply(batch)
    assert keys.state.limit == 5001
