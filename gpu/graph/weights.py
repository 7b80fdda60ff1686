"""The weights of a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpu.errors import InvalidValue
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.types import LARGEST_WEIGHT, EdgeBatch


def with_weights(batch: EdgeBatch, weighted: bool) -> EdgeBatch:
    """A batch that has weights exactly if the graph is weighted; 1 where none were given.

    Raises InvalidValue for weights that are sent to an unweighted graph.
    """
    if weighted:
        if batch.weights is not None:
            return batch
        return replace(batch, weights=np.ones(len(batch.insert_sources), np.float32))
    if batch.weights is None and batch.on_conflict == "replace":
        return batch
    field, given = "on_conflict", str(batch.on_conflict)
    if batch.weights is not None:
        field, given = "weights", f"{len(batch.weights)} weights"
    raise InvalidValue(
        field,
        given,
        "left out, because this graph is unweighted: send edges without weights, or create a graph "
        "with the option weighted",
    )


def operation_weights(backend: Backend, batch: EdgeBatch) -> Array | None:
    """float32[operations] on the device: 0 for deletions, then those of the insertions. None for an
    unweighted graph.
    """
    if batch.weights is None:
        return None
    weights = backend.xp.zeros(batch.operations, np.float32)
    weights[len(batch.delete_sources) :] = backend.xp.asarray(batch.weights)
    return weights


def weight_exceeded(batch: EdgeBatch, place: int) -> InvalidValue:
    """The error for an insertion that makes a sum of weights exceed float32."""
    assert batch.weights is not None
    return InvalidValue(
        f"weights[{place}]",
        batch.weights[place].item(),
        f"a weight that, added to those of the same edge, gives at most {LARGEST_WEIGHT:.8g}",
    )
