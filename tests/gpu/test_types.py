"""Options and batches refuse what cannot be used, naming field and value."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options


@pytest.mark.parametrize(
    ("field", "value", "requirement"),
    [
        ("damping", float("nan"), "a number above 0 and below 1"),
        ("damping", 1.0, "a number above 0 and below 1"),
        ("damping", 0, "a number above 0 and below 1"),
        ("damping", True, "a number above 0 and below 1"),
        ("damping", "0.85", "a number above 0 and below 1"),
        ("damping", 10**400, "a number above 0 and below 1"),
        ("half_life", 10**400, "a number of seconds above 0"),
        ("half_life", float("inf"), "a number of seconds above 0"),
        ("target_error", 0.0, "a number above 0 and at most 2"),
        ("target_error", 2.5, "a number above 0 and at most 2"),
        ("tolerance", float("inf"), "a number above 0 and below 1"),
        ("frontier_tolerance", -1e-6, "a number above 0 and below 1"),
        ("prune_tolerance", None, "a number above 0 and below 1"),
        ("dangling", "teleport", "'uniform' or 'self-loop'"),
        (
            "storage",
            "float32",
            "'float64', or left out: 'float32' saved about 4 % of a graph's memory, was slower, "
            "and is no longer offered",
        ),
        ("weighted", 1, "True or False"),
        ("directed", "no", "True or False"),
        ("max_iterations", 0, "an integer from 1 to 1,000,000"),
        ("max_iterations", 1.5, "an integer from 1 to 1,000,000"),
    ],
)
def test_an_option_out_of_range_is_named(field: str, value: object, requirement: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Options(**{field: value})  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.requirement) == (field, requirement)
    assert str(caught.value) == f"{field}: {value!r} is not allowed; it must be {requirement}"


def test_the_bounds_of_the_options_are_allowed() -> None:
    assert Options(target_error=2.0, max_iterations=1_000_000).target_error == 2.0
    assert Options(storage="float64").storage == "float64"


def test_a_batch_names_the_place_of_a_bad_id() -> None:
    with pytest.raises(InvalidValue, match=r"insert_sources\[2\]: -1 is not allowed"):
        EdgeBatch(np.array([0, 1, -1]), np.array([1, 2, 3]))
    with pytest.raises(InvalidValue, match=r"insert_targets\[0\]: 2147483647 is not allowed"):
        EdgeBatch(np.array([0]), np.array([2**31 - 1]))


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
def test_the_ids_of_a_batch_are_int64(dtype: type[np.integer[Any]]) -> None:
    assert EdgeBatch(np.arange(3, dtype=dtype), np.arange(3)).insert_sources.dtype == np.int64


def test_a_batch_refuses_columns_that_are_not_ids() -> None:
    with pytest.raises(InvalidValue, match="one-dimensional integer array"):
        EdgeBatch(np.array([0.5]), np.array([1.0]))
    with pytest.raises(
        InvalidValue, match="delete_targets: 'length 1' is not allowed; it must be 2"
    ):
        EdgeBatch(delete_sources=np.array([1, 2]), delete_targets=np.array([1]))
    with pytest.raises(InvalidValue, match="vertices: -1"):
        EdgeBatch(vertices=-1)


def test_the_engine_names_the_strategies_it_has() -> None:
    engine = Engine(backend="cpu")
    with pytest.raises(
        InvalidValue, match="strategy: 'fast' is not allowed; it must be one of auto"
    ):
        engine.update("fast")


def test_a_query_that_cannot_be_answered_is_refused() -> None:
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch.of(insert=[(0, 1)]))
    engine.update()
    for arguments, field in (
        ({"seeds": np.array([], int)}, "seeds"),
        ({"seeds": np.array([2])}, "seeds[0]"),
        ({"seeds": np.array([0]), "k": 0}, "k"),
        ({"seeds": np.array([0]), "method": "guess"}, "method"),
        ({"seeds": np.array([0]), "target_error": 0.0}, "target_error"),
        ({"seeds": np.array([0]), "weights": np.array([1.0, 2.0])}, "weights"),
        ({"seeds": np.array([0, 1]), "weights": np.array([1.0, -2.0])}, "weights[1]"),
    ):
        with pytest.raises(InvalidValue) as caught:
            engine.personalized(**arguments)
        assert caught.value.field == field
    with pytest.raises(
        InvalidValue, match=r"vertices\[1\]: 2 is not allowed; it must be an id below 2"
    ):
        engine.publish().of(np.array([0, 2]))


def test_a_refused_batch_changes_nothing() -> None:
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch.of(insert=[(0, 1)]))
    with pytest.raises(InvalidValue):
        engine.apply(EdgeBatch.of(insert=[(1, 2), (5, -3)]))
    assert (engine.vertices, engine.edges) == (2, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"insert": [("a", "b")]}, r"insert\[0\]: \('a', 'b'\) .* \(source, target\) or \(source, target, weight\) with integers"),
        ({"insert": [(0, 1), (0, 2.5)]}, r"insert\[1\]: \(0, 2.5\) .* \(source, target\) with integers"),
        ({"insert": [(0, 1, 2.0), (0, 1)]}, r"insert\[1\]: \(0, 1\) .* \(source, target, weight\) with"),
        ({"insert": [5]}, r"insert\[0\]: 5 .* \(source, target\) or"),
        ({"delete": [(0, 1, 2.0)]}, r"delete\[0\]: \(0, 1, 2.0\) .* \(source, target\) with integers"),
    ],
)  # fmt: skip
def test_rows_that_are_no_edges_of_ids_are_named(rows: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        EdgeBatch.of(**rows)
