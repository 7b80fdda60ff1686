"""Which media type and which content coding a client accepts (RFC 9110, sections 12.4.2 and 12.5).

A range in `Accept` or `Accept-Encoding` may have a q-value from 0 to 1; 0 means not acceptable. Of
the ranges that match, the most specific one counts. Of equal q-values, the server's order decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from liverank_service.errors import NotAcceptable
from liverank_service.formats import CODINGS, EXPORTED, JSON, PARQUET


def export_form(request: Request, offered: Sequence[str] = EXPORTED) -> tuple[str, str | None]:
    """Media type and content coding of an export, or of JSON if that is offered, too. Raises
    NotAcceptable.
    """
    media_type = media_type_for(request, offered)
    coding = None if media_type == JSON else coding_for(request)
    # which is compressed internally
    return media_type, None if media_type == PARQUET else coding


def media_type_for(request: Request, offered: Sequence[str]) -> str:
    """The media type of the response. Raises NotAcceptable, with those offered."""
    header = _header(request, "accept")
    ranges = _ranges(header)
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda kind: _quality(ranges, _covering(kind)))
    if _quality(ranges, _covering(best)) <= 0.0:
        raise NotAcceptable("Accept", header, tuple(offered))
    return best


def coding_for(request: Request) -> str | None:
    """The content coding of the response; None: identity. Raises NotAcceptable."""
    header = _header(request, "accept-encoding")
    ranges = _ranges(header)
    others = ranges.get("*", 0.0)
    qualities = {name: ranges.get(name, others) for name in CODINGS}
    # a coding is used if it is named; `*` alone asks for none
    best = max(CODINGS, key=lambda name: (name in ranges, qualities[name]))
    identity = ranges.get("identity", 0.0 if ranges.get("*") == 0.0 else None)
    is_wanted = best in ranges or identity == 0.0
    if is_wanted and qualities[best] > 0.0 and qualities[best] >= (identity or 0.0):
        return best
    if identity == 0.0:
        raise NotAcceptable("Accept-Encoding", header, (*CODINGS, "identity"))
    return None


def _header(request: Request, name: str) -> str:
    return ",".join(request.headers.getlist(name))


def _ranges(header: str) -> dict[str, float]:
    """The q-value of each range. One that is not a number from 0 to 1 counts as 0."""
    found = {}
    for entry in header.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name:
            quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
            try:
                number = float(quality)
            except ValueError:
                number = 0.0
            found[name] = number if 0.0 <= number <= 1.0 else 0.0
    return found


def _covering(media_type: str) -> tuple[str, ...]:
    """The ranges that match a media type, the most specific first."""
    return media_type, f"{media_type.split('/')[0]}/*", "*/*"


def _quality(ranges: dict[str, float], covering: Sequence[str]) -> float:
    return next((ranges[name] for name in covering if name in ranges), 0.0)
