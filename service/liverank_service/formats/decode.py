"""Request bodies → columns of keys, by content type.

    application/json
        {"remove": ["a", …], "delete": [["b", "c"], …], "insert": [["d", "e"], …],
         "vertices": ["f", …], "sets": {"name": {"add": ["d", …], "remove": ["e", …]}},
         "replace": {"g": ["a", …], …}}: the new out-list of each of these vertices
        or edges by column {"insert": {"source": ["a", …], "target": ["b", …]}, …}
    application/x-ndjson
        {"source": "a", "target": "b", "operation": "delete"} per line; "remove" has no target; or
        {"replace": "g", "targets": ["a", …]}; weights and times in arrays
    text/csv
        a header source,target[,operation], then an edge per row
    application/vnd.apache.arrow.stream
        columns source, target and, optionally, operation
    application/vnd.apache.parquet
        the same columns

For a weighted graph each insertion may have a weight: [["a", "b", 0.5], …], or a member or column
`weight`, or [target, weight] in a list of `replace`. In a graph with times each may have a time:
[["a", "b", 0.5, 1767225600], …], where the weight may be null, or a member or column `time`. A
batch gives weights to all its insertions or to none, and so for times. Where weights are added up,
deletions may have them too, which they take away; a deletion whose weight is null or absent takes
the whole edge.

The rows of one source with the operation "replace" are its new out-list, which is empty with a null
target alone. A source that is replaced has no other rows.

All members of the JSON object are optional; `operation` is "insert" if it is omitted. Valid input
becomes Arrow arrays without a Python step per key; only an invalid body is searched, value by
value, for its first error.
"""

from __future__ import annotations

import sys
from functools import lru_cache

import pyarrow as pa

from liverank.choices import KeyKind
from liverank_service.errors import UnsupportedFormat
from liverank_service.formats import ARROW_STREAM, CSV, JSON, NDJSON, PARQUET
from liverank_service.formats.arrow import parquet_table, stream_table
from liverank_service.formats.columns import PLAIN, Attributes, EdgeColumns
from liverank_service.formats.json_body import decode_json
from liverank_service.formats.row_bodies import decode_csv, decode_ndjson
from liverank_service.formats.tables import batch_of, check_schema

PARSING_PRICES = {JSON: 16, NDJSON: 6, CSV: 10, ARROW_STREAM: 3, PARQUET: 4}
"""Bytes that a byte of a body takes while it is parsed, beside itself; measured with edges whose
keys have 5 characters. JSON of pairs takes 1, other up to 17.
"""

_DECODERS = {
    JSON: decode_json,
    NDJSON: decode_ndjson,
    CSV: decode_csv,
}
_TABLES = {ARROW_STREAM: stream_table, PARQUET: parquet_table}


def decode_batch(
    content_type: str | None,
    body: bytes,
    kind: KeyKind,
    limit: int = sys.maxsize,
    attributes: Attributes = PLAIN,
) -> EdgeColumns:
    """The batch in a request body; no content type means JSON.

    Raises UnsupportedFormat for another content type or charset, FormatError for a body that does
    not follow its format, and DecodedTooLarge for one that decodes to more than `limit` bytes.
    """
    media_type = media_type_of(content_type)
    if media_type in _TABLES:
        read = _TABLES[media_type]
        table = read(body, limit, lambda schema: check_schema(schema, kind, attributes))
        return attributes.completed(batch_of(table, kind, attributes))
    if media_type in _DECODERS:
        return attributes.completed(_DECODERS[media_type](body, kind, attributes))
    raise UnsupportedFormat(content_type or "", (*_DECODERS, *_TABLES))


def decode_vertices(content_type: str | None, body: bytes, kind: KeyKind) -> pa.Array:
    """The keys in a body that is a batch with vertices only: one parser for keys. It is in JSON,
    since edges in other formats name no vertices.

    Raises UnsupportedFormat and FormatError.
    """
    if media_type_of(content_type) != JSON:
        raise UnsupportedFormat(content_type or "", (JSON,))
    members = ("vertices",)
    return decode_json(body, kind, PLAIN, members, required=members).vertices


def parsing_bytes(content_type: str | None, length: int) -> int:
    """What parsing a body of this length takes, at the price of its format."""
    return PARSING_PRICES.get(media_type_of(content_type) or "", 0) * length


@lru_cache(maxsize=16)
def media_type_of(content_type: str | None) -> str | None:
    """Without parameters, in lower case; no content type means JSON; None for another charset."""
    media_type, *parameters = (part.strip().lower() for part in (content_type or "").split(";"))
    charset = next((p[8:].strip('"') for p in parameters if p.startswith("charset=")), "utf-8")
    return (media_type or JSON) if charset in ("utf-8", "utf8", "us-ascii") else None
