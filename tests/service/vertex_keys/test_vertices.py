"""Keys ↔ ids of vertices that come and go: compared with a dictionary, and with earlier states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverank.choices import KeyKind
from liverank_service import vertex_keys as module
from liverank_service.vertex_keys import ARROW_TYPES, FoundKeys, VertexKeys, VertexTable

STEPS = st.sampled_from(
    ["assign", "assign", "find", "remove", "remove", "undo", "store", "compact"]
)


class Model:
    """Ids by key; the lowest free id comes first."""

    def __init__(self) -> None:
        self.ids: dict[Any, int] = {}
        self.limit = 0

    def free(self) -> list[int]:
        return sorted(set(range(self.limit)) - set(self.ids.values()))

    def assign(self, keys: list[Any]) -> list[int]:
        for key in keys:
            if key not in self.ids:
                self.ids[key] = (self.free() or [self.limit])[0]
                self.limit = max(self.limit, self.ids[key] + 1)
        return [self.ids[key] for key in keys]

    def remove(self, keys: list[Any]) -> list[int]:
        return sorted(self.ids.pop(key) for key in set(keys) if key in self.ids)


def assert_state(state: VertexKeys, ids: dict[Any, int], limit: int, others: list[Any]) -> None:
    arrow_type = ARROW_TYPES[state.kind]
    keys = list(ids)
    assert state.limit == limit
    assert state.lookup(pa.array(keys, arrow_type)).tolist() == list(ids.values())
    assert state.keys(np.array(list(ids.values()), np.int64)).to_pylist() == keys
    expected = [ids.get(key, -1) for key in others]
    assert state.lookup(pa.array(others, arrow_type)).tolist() == expected
    assert [state.id_of(key) for key in others] == expected
    assert state.vertices(0, limit + 5).tolist() == sorted(ids.values())
    for free in set(range(limit)) - set(ids.values()):
        with pytest.raises(IndexError):
            state.keys(np.array([free]))


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_any_sequence_of_steps_agrees_with_a_dictionary(
    kind: KeyKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that a few keys do what many do
    monkeypatch.setattr(module, "_LEAST_CHANGES", 3)
    monkeypatch.setattr(module, "_LEAST_REMOVED", 2)
    monkeypatch.setattr(module, "_PIECE", 4)
    all_keys: list[Any] = [f"k{n}" if kind == "string" else n - 7 for n in range(15)]
    keys_of = st.lists(st.sampled_from(all_keys), max_size=12)
    arrow_type = ARROW_TYPES[kind]
    rows_of = st.sampled_from([1, 2]).flatmap(
        lambda columns: st.lists(
            st.tuples(*[st.sampled_from(all_keys)] * columns), min_size=1, max_size=12
        )
    )

    def columns_of(rows: list[tuple[Any, ...]]) -> list[pa.Array]:
        return [pa.array(column, arrow_type) for column in zip(*rows, strict=True)]

    @settings(max_examples=120, deadline=None)
    @given(st.data())
    def agrees(data: st.DataObject) -> None:
        table, model = VertexTable(kind), Model()
        ahead: tuple[list[tuple[Any, ...]], Callable[[], FoundKeys]] | None = None
        earlier: list[tuple[VertexKeys, dict[Any, int], int, set[int]]] = []
        for step in data.draw(st.lists(STEPS, max_size=14)):
            if step == "assign":
                rows, find = ahead or (data.draw(rows_of), None)
                model_free = np.array(model.free(), np.int64)
                expected = model.assign([key for row in rows for key in row])
                found = table.assign_rows(
                    columns_of(rows), partial(np.array, model_free), find and find()
                )
                assert np.stack(found, axis=1).ravel().tolist() == expected
                ahead = None
            elif step == "find":
                rows = data.draw(rows_of)
                ahead = rows, table.finder(columns_of(rows))
            elif step == "remove":
                keys = data.draw(keys_of)
                removed = model.remove(keys)
                known = table.state.lookup(pa.array(keys, arrow_type))
                assert table.remove(known).tolist() == removed
                for _, _, _, since in earlier:
                    since.update(removed)
            elif step == "undo":
                mark = table.mark()
                table.remove(table.state.lookup(pa.array(data.draw(keys_of), arrow_type)))
                state = table.state
                unused = np.setdiff1d(np.arange(state.limit), state.vertices(0, state.limit))
                table.assign(pa.array(data.draw(keys_of), arrow_type), partial(np.array, unused))
                if ahead is not None:  # what is found now is taken back
                    rows, find = ahead
                    ahead = rows, partial(FoundKeys, *find())
                table.undo(mark)
            elif step == "store":
                arrays = table.state.capture().arrays()
                again = VertexKeys.restored(kind, table.state.limit, arrays)
                assert_state(again, model.ids, model.limit, all_keys)
            else:
                table.compact()
                assert len(table.state._table) <= max(len(all_keys), 2 * model.limit + 2)
            earlier.append((table.state, dict(model.ids), model.limit, set()))
            for state, ids, limit, since in earlier:
                assert_state(state, ids, limit, all_keys)
                assert table.state.removed_since(state).tolist() == sorted(since)

    agrees()


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_memory_is_bounded_while_vertices_come_and_go(kind: KeyKind) -> None:
    table, size, sizes = VertexTable(kind), 20_000, []
    column = pa.array(np.arange(size)).cast(ARROW_TYPES[kind])
    ids = table.assign(column)
    for turn in range(1, 40):
        leaving, column = column.slice(0, 5_000), column.slice(5_000)
        removed = table.remove(table.state.lookup(leaving))
        new = pa.array(np.arange(5_000) + size + 5_000 * turn).cast(ARROW_TYPES[kind])
        ids = table.assign(new, partial(np.array, removed))
        assert np.array_equal(ids, removed)
        column = pa.concat_arrays([column, new])
        table.compact()
        sizes.append(table.state.nbytes)
        assert table.state.limit == size
    assert table.state.keys(table.state.lookup(column)).equals(column)
    assert max(sizes[20:]) <= 1.1 * max(sizes[:20])  # later keys are longer
