"""Arrow streams in the bodies of requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from liverank.choices import Key
from liverank.client.responses import Trace
from liverank.edges import read_table
from liverank.errors import InvalidInput, needs
from liverank.tables import Tabular

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_STREAM = "application/vnd.apache.arrow.stream"

_SEED_COLUMNS = ("query", "seed", "weight")


class QueryFacts(msgspec.Struct, frozen=True):
    """What is known of the answer to one query of a PersonalizedTable; see PersonalizedAnswer."""

    query: Key
    error_bound: float
    settled: int
    settled_set: bool
    groups: list[int]
    ties: list[int]
    method: str
    iterations: int
    ignored: list[Key]
    trace: Trace | None = None


class PersonalizedTable(Tabular):
    """The answers to queries in columns, all of one version.

    answers  one for each query, in order of first appearance
    """

    def __init__(self, table: pa.Table) -> None:
        metadata = table.schema.metadata
        self.version = int(metadata[b"liverank.version"])
        self.revision = int(metadata[b"liverank.revision"])
        self.answers = msgspec.json.decode(metadata[b"liverank.answers"], type=list[QueryFacts])
        self._table = table

    def to_arrow(self) -> pa.Table:
        """Columns `query`, `vertex` and `rank`: the places of each query, best first."""
        return self._table


def seeds_stream(seeds: Any) -> bytes:
    """The body with the seeds of queries. Raises InvalidInput, MissingPackage."""
    table = read_table(seeds, "seeds")
    if "seed" not in table.column_names:
        got = ", ".join(table.column_names) or "none"
        raise InvalidInput("seeds", f"expected a column 'seed'; they are: {got}")
    return arrow_body(table.select([name for name in _SEED_COLUMNS if name in table.column_names]))


def arrow_body(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def personalized_table(body: bytes) -> PersonalizedTable:
    """The table in the body of a response. Raises MissingPackage."""
    with needs("engine"):
        import pyarrow as pa

    return PersonalizedTable(pa.ipc.open_stream(body).read_all())
