"""A batch as columns of keys, the result of decoding any format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from liverank_gpu import OnConflict
from liverank_service.formats.source_ranges import SourceRange

SetOperation = Literal["replace", "drop"]


@dataclass(frozen=True)
class SetChange:
    """What a batch does to a set of vertices, by their keys, as columns of a batch.

    remove, add  in this order
    operation    ``replace``: the set has the added vertices alone, and is created if there is none;
                 ``drop``: there is no such set any more. None: the set exists, and is changed
    """

    add: pa.Array
    remove: pa.Array
    operation: SetOperation | None = None


@dataclass(frozen=True)
class EdgeColumns:
    """A batch as columns of external keys: all pa.string() or all pa.int64(), without nulls.

    `remove` are vertices that go with their edges, first; keys of none are ignored. `vertices` are
    keys that the graph has after the batch, with or without an edge. Deletions are applied before
    insertions, whatever their order in the body.

    weights      pa.float32(), of the insertions, as in liverank_gpu.EdgeBatch; None: all 1
    on_conflict  what an insertion does to the weight of an edge that is present or repeated
    sets         changes of sets of vertices by their names, after the insertions
    times        pa.float64(), Unix seconds, of the insertions; None for a graph without times
    expiry       whether the service made it, of edges that are too old
    range        the range of an external source that the batch covers
    replace      vertices whose out-edges, in an undirected graph all edges, are those that the
                 batch inserts: the others leave
    delete_weights  pa.float32(), with on_conflict ``add``: what deletions take away from the
                 weights of their edges, null: all; None: all of them do
    delete_times pa.float64(), in a graph with half_life: the times of these weights
    """

    insert_sources: pa.Array
    insert_targets: pa.Array
    delete_sources: pa.Array
    delete_targets: pa.Array
    vertices: pa.Array
    weights: pa.Array | None = None
    on_conflict: OnConflict = "replace"
    sets: Mapping[str, SetChange] = field(default_factory=dict)
    remove: pa.Array = None
    times: pa.Array | None = None
    expiry: bool = False
    range: SourceRange | None = None
    replace: pa.Array = None
    delete_weights: pa.Array | None = None
    delete_times: pa.Array | None = None

    def __post_init__(self) -> None:
        for name in ("remove", "replace"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.vertices.slice(0, 0))

    @property
    def keys(self) -> dict[str, pa.Array]:
        """The columns of keys by name."""
        return {name: getattr(self, name) for name in KEY_COLUMNS}

    def place_of_insertion(self, index: int) -> tuple[str, int]:
        """The field of a batch in JSON that has this insertion, and its place there: in a list that
        the batch replaces, or in `insert`.
        """
        listed = pc.is_in(self.insert_sources.slice(0, index + 1), self.replace)
        before, source = listed.slice(0, index), self.insert_sources[index]
        if not listed[index].as_py():
            return "insert", index - pc.sum(before, min_count=0).as_py()
        same = pc.equal(self.insert_sources.slice(0, index), source)
        return f"replace.{source.as_py()}", pc.sum(same, min_count=0).as_py()

    @property
    def operations(self) -> int:
        """The number of insertions and deletions."""
        return len(self.insert_sources) + len(self.delete_sources)

    @property
    def max_new_keys(self) -> int:
        """The number of keys that the batch creates if all are different and new."""
        return 2 * len(self.insert_sources) + len(self.vertices)


EDGE_COLUMNS = tuple(EdgeColumns.__annotations__)[:5]
KEY_COLUMNS = (*EDGE_COLUMNS, "remove", "replace")
