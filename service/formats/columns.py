"""A batch as columns of keys, the result of decoding any format."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from gpu import OnConflict


@dataclass(frozen=True)
class EdgeColumns:
    """A batch as columns of external keys: all pa.string() or all pa.int64(), without nulls.

    `vertices` are keys that the graph has after the batch, with or without an edge. Deletions are
    applied before insertions, whatever their order in the body.

    weights      pa.float32(), of the insertions, as in gpu.EdgeBatch; None: all 1
    on_conflict  what an insertion does to the weight of an edge that is present or repeated
    """

    insert_sources: pa.Array
    insert_targets: pa.Array
    delete_sources: pa.Array
    delete_targets: pa.Array
    vertices: pa.Array
    weights: pa.Array | None = None
    on_conflict: OnConflict = "replace"

    @property
    def keys(self) -> dict[str, pa.Array]:
        """The columns of keys by name."""
        return {name: getattr(self, name) for name in KEY_COLUMNS}

    @property
    def operations(self) -> int:
        """The number of insertions and deletions."""
        return len(self.insert_sources) + len(self.delete_sources)

    @property
    def max_new_keys(self) -> int:
        """The number of keys that the batch creates if all are different and new."""
        return 2 * len(self.insert_sources) + len(self.vertices)


KEY_COLUMNS = tuple(EdgeColumns.__annotations__)[:5]
