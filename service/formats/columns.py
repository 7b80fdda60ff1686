"""A batch as columns of keys, the result of decoding any format."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class EdgeColumns:
    """A batch as columns of external keys: all pa.string() or all pa.int64(), without nulls.

    `vertices` are keys that the graph has after the batch, with or without an edge. Deletions are
    applied before insertions, whatever their order in the body.
    """

    insert_sources: pa.Array
    insert_targets: pa.Array
    delete_sources: pa.Array
    delete_targets: pa.Array
    vertices: pa.Array

    @property
    def operations(self) -> int:
        """The number of insertions and deletions."""
        return len(self.insert_sources) + len(self.delete_sources)

    @property
    def max_new_keys(self) -> int:
        """The number of keys that the batch creates if all are different and new."""
        return 2 * len(self.insert_sources) + len(self.vertices)
