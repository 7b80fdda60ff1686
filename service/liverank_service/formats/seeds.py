"""The seeds of personalized queries: members of JSON objects, or columns of an Arrow stream.

An Arrow stream has the columns `seed` and, optionally, `weight` (1 if it is absent) and `query`,
whose values, strings or integers, tell the seeds of several queries apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from liverank.choices import KeyKind
from liverank_gpu import InvalidValue
from liverank_service.errors import FormatError
from liverank_service.formats.arrow import stream_table
from liverank_service.formats.tables import (
    OF_KEYS,
    check_columns,
    check_type,
    column_names,
    combined,
    keys_of,
)
from liverank_service.formats.values import described
from liverank_service.vertex_keys import key_from_text, keys_from_texts

_COLUMNS = ("query", "seed", "weight")

_EXPECTED_WEIGHT = "a finite number that is not negative"


@dataclass(frozen=True, slots=True)
class SeedColumns:
    """The seeds of one query.

    keys     of the graph's kind, or as text where they were the names of members
    weights  float64[len(keys)]
    """

    keys: pa.Array
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> SeedColumns:
        """Seeds by their keys as text."""
        numbers = np.fromiter(weights.values(), np.float64, len(weights))
        return cls(pa.array(list(weights), pa.string()), numbers)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.weights.nbytes)

    def checked(self, kind: KeyKind, field: str) -> SeedColumns:
        """The seeds with keys of this kind. Raises InvalidValue, which names `field`."""
        if not len(self):
            raise InvalidValue(field, {}, "at least one vertex with its weight")
        keys = keys_from_texts(self.keys, kind)
        if keys is None:  # find the first one that is wrong
            for text in self.keys.to_pylist():
                key_from_text(text, kind, f"{field}[{text!r}]")
        wrong = _wrong(self.weights)
        if len(wrong):
            key, weight = self.keys[int(wrong[0])].as_py(), float(self.weights[wrong[0]])
            raise InvalidValue(f"{field}[{key!r}]", weight, _EXPECTED_WEIGHT)
        if not self.weights.any():
            raise InvalidValue(field, "all 0", "not all 0")
        return SeedColumns(keys, self.weights)

    def to_dict(self) -> dict[str, float]:
        """The weight of each seed, by its key as text; the weights of repeats add up."""
        texts = self.keys.cast(pa.string()).to_pylist()
        summed = dict.fromkeys(texts, 0.0)
        for text, weight in zip(texts, self.weights.tolist(), strict=True):
            summed[text] += weight
        return summed

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """In a model it is validated as an object of numbers, and shown as one by OpenAPI."""
        from_object = core_schema.no_info_after_validator_function(
            cls.of, handler.generate_schema(dict[str, float])
        )
        instance = core_schema.is_instance_schema(cls)
        return core_schema.json_or_python_schema(
            json_schema=from_object,
            python_schema=core_schema.union_schema([instance, from_object]),
        )


def decode_seeds(body: bytes, kind: KeyKind, limit: int) -> dict[Any, SeedColumns]:
    """The seeds of each query in an Arrow stream, by its label, in order of first appearance.
    Without a column `query` there is one query, with the label 0.

    Raises FormatError, which names column and row, and DecodedTooLarge for more than `limit` bytes.
    """

    def check(schema: pa.Schema) -> None:
        check_columns(column_names(schema), _COLUMNS, ("seed",))
        check_type(schema, "seed", OF_KEYS[kind])
        check_type(schema, "weight", "numbers")
        check_type(schema, "query", "strings", "integers")

    table = stream_table(body, limit, check)
    names = table.column_names
    keys = keys_of(table["seed"], kind, "seed")
    weights = _weights(table["weight"]) if "weight" in names else np.ones(len(keys))
    if "query" not in names:
        return {0: SeedColumns(keys, weights)}
    labels = _labels(table["query"]).dictionary_encode()
    numbers = labels.indices.to_numpy()
    counts = np.bincount(numbers, minlength=len(labels.dictionary))
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        keys, weights = keys.take(pa.array(order)), weights[order]
    ends = np.cumsum(counts)
    return {
        label: SeedColumns(keys[first:end], weights[first:end])
        for label, first, end in zip(
            labels.dictionary.to_pylist(), (ends - counts).tolist(), ends.tolist(), strict=True
        )
    }


def _weights(column: pa.ChunkedArray) -> NDArray[np.float64]:
    if column.null_count:
        index = column.is_null().index(True).as_py()
        raise FormatError("weight", index, f"expected {_EXPECTED_WEIGHT}, got null")
    weights: NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    wrong = _wrong(weights)
    if len(wrong):
        index = int(wrong[0])
        got = described(column[index].as_py())
        raise FormatError("weight", index, f"expected {_EXPECTED_WEIGHT}, got {got}")
    return weights


def _wrong(weights: NDArray[np.float64]) -> NDArray[np.intp]:
    """The places of weights that are negative or not finite."""
    return np.flatnonzero(~((weights >= 0.0) & (weights < np.inf)))


def _labels(column: pa.ChunkedArray) -> pa.Array:
    if not len(column):
        raise FormatError("query", None, "expected at least one row, got none")
    if column.null_count:
        raise FormatError(
            "query", column.is_null().index(True).as_py(), "expected a label, got null"
        )
    return combined(column)
