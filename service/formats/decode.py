"""Request bodies → columns of keys, by content type.

    application/json
        {"remove": ["a", …], "delete": [["b", "c"], …], "insert": [["d", "e"], …],
         "vertices": ["f", …], "sets": {"name": {"add": ["d", …], "remove": ["e", …]}}}
        or edges by column {"insert": {"source": ["a", …], "target": ["b", …]}, …}
    application/x-ndjson
        {"source": "a", "target": "b", "operation": "delete"} per line; "remove" has no target
    text/csv
        a header source,target[,operation], then an edge per row
    application/vnd.apache.arrow.stream
        columns source, target and, optionally, operation
    application/vnd.apache.parquet
        the same columns

For a weighted graph each insertion may have a weight: [["a", "b", 0.5], …], or a member or column
`weight`. In a graph with times each may have a time: [["a", "b", 0.5, 1767225600], …], where the
weight may be null, or a member or column `time`. A batch gives weights to all its insertions or to
none, and so for times.

All members of the JSON object are optional; `operation` is "insert" if it is omitted. Valid input
becomes Arrow arrays without a Python step per key; only an invalid body is searched, value by
value, for its first error.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from gpu import InvalidValue
from service.errors import UnsupportedFormat
from service.formats.arrow import decode_arrow
from service.formats.attributes import Attributes
from service.formats.columns import EdgeColumns
from service.formats.csv_body import decode_csv
from service.formats.json_body import decode_json
from service.formats.media_types import ARROW_STREAM, CSV, JSON, NDJSON, PARQUET
from service.formats.ndjson import decode_ndjson
from service.formats.parquet import decode_parquet
from service.formats.times import TimeRule
from service.vertex_keys import KeyKind

_DECODERS = {
    JSON: decode_json,
    NDJSON: decode_ndjson,
    CSV: decode_csv,
}


def decode_batch(
    content_type: str | None,
    body: bytes,
    kind: KeyKind,
    limit: int = sys.maxsize,
    weighted: bool = False,
    times: TimeRule | None = None,
) -> EdgeColumns:
    """The batch in a request body; no content type means JSON. Only one for a weighted graph may
    have weights; times: None for a graph without times.

    Raises UnsupportedFormat for another content type or charset, FormatError for a body that does
    not follow its format, and DecodedTooLarge for one that decodes to more than `limit` bytes.
    """
    media_type, *parameters = (part.strip().lower() for part in (content_type or "").split(";"))
    charset = next((p[8:].strip('"') for p in parameters if p.startswith("charset=")), "utf-8")
    attributes = Attributes(weighted, times)
    if charset in ("utf-8", "utf8", "us-ascii"):
        if media_type == ARROW_STREAM:
            return attributes.completed(decode_arrow(body, kind, attributes, limit))
        if media_type == PARQUET:
            return attributes.completed(decode_parquet(body, kind, attributes, limit))
        decoder = _DECODERS.get(media_type or JSON)
        if decoder is not None:
            return attributes.completed(decoder(body, kind, attributes))
    raise UnsupportedFormat(content_type or "", (*_DECODERS, ARROW_STREAM, PARQUET))


def decode_vertices(
    content_type: str | None, body: bytes, kind: KeyKind, limit: int = sys.maxsize
) -> pa.Array:
    """The keys in a body that is a batch with vertices only: one parser for keys.

    Raises as `decode_batch`, and InvalidValue for anything else in the batch.
    """
    columns = decode_batch(content_type, body, kind, limit)
    for field, count in (
        ("insert", len(columns.insert_sources)),
        ("delete", len(columns.delete_sources)),
        ("remove", len(columns.remove)),
        ("sets", len(columns.sets)),
    ):
        if count:
            raise InvalidValue(field, f"{count} items", "absent: this call takes vertices")
    return columns.vertices
