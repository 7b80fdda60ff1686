"""JSON objects in which a member stands twice: parsers keep the last one and say nothing.

``{"insert": [["a", "b"]], "insert": [["c", "d"]]}`` would lose an edge without a word, so it is
refused. RFC 8259 (section 4) leaves open what such an object means; RFC 7493 (section 2.3) forbids
it.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Of valid JSON: inside a string a quote has a backslash before it, and only a member's name has a
# colon after it. (A name that ends in a backslash is missed; none that is known does.)
_END_OF_NAME = re.compile(rb'(?<!\\)"\s*:')


class _Repeated(Exception):
    pass


def repeated_member(document: bytes) -> str | None:
    """The first name that stands twice in one object of a valid JSON document; None: there is none.

    An object for every pair: not for large documents.
    """
    try:
        json.loads(document, object_pairs_hook=_refuse_repeated)
    except _Repeated as found:
        return str(found)
    return None


def names_in(document: bytes) -> int:
    """How many names of members a valid JSON document holds, in one pass over its bytes."""
    return sum(1 for _ in _END_OF_NAME.finditer(document))


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise _Repeated(name)
        seen.add(name)
