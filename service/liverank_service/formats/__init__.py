"""Bodies, exports and files, and what they are as columns. Here: the media types of bodies and
exports.
"""

from __future__ import annotations

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

EXPORTED = (CSV, NDJSON, ARROW_STREAM, PARQUET)
"""What tables are exported as; the first is the default."""

CODINGS = ("zstd", "gzip")
"""Content codings of bodies and exports; the first is preferred."""
