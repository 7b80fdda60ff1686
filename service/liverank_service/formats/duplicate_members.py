"""JSON objects with a duplicate member, of which parsers silently keep the last.

``{"insert": [["a", "b"]], "insert": [["c", "d"]]}`` would lose an edge, so it is refused. RFC 8259
(section 4) leaves the meaning of such an object open; RFC 7493 (section 2.3) forbids it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

# In valid JSON a quote inside a string has a backslash before it, and only the name of a member has
# a colon after it. (A name that ends in a backslash is missed; no known member does.)
_END_OF_NAME = re.compile(rb'(?<!\\)"\s*:')

_PIECE_BYTES = 1 << 20


class _Duplicate(Exception):
    pass


def duplicate_member(document: bytes) -> str | None:
    """The first duplicate name in any object of a valid JSON document, or None.

    Makes an object for every pair: not for large documents.
    """
    try:
        json.loads(document, object_pairs_hook=_refuse_duplicates)
    except _Duplicate as found:
        return str(found)
    return None


def has_members(document: bytes, count: int) -> bool:
    """Whether a valid JSON document, of which `count` members were parsed, has no others, and so no
    duplicate. In a few passes over its bytes; False if it would take more to tell.
    """
    codes = np.frombuffer(document, np.uint8)
    after_quotes = codes[1:][codes[:-1] == ord('"')]
    if (after_quotes <= ord(" ")).any():
        return False  # there may be space between the name of a member and its colon
    return int(np.count_nonzero(after_quotes == ord(":"))) == count


def values_in(document: bytes, enough: int) -> int:
    """About how many members and items the objects and lists of a JSON document have, valid or not:
    its commas. Those in texts count too unless there are more than `enough`. Needs no memory.
    """
    count = document.count(b",")
    if count <= enough:
        return count
    plain = document.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quote begins or ends a text
    count, in_text = 0, np.uint8(0)
    for first in range(0, len(plain), _PIECE_BYTES):
        codes = np.frombuffer(plain, np.uint8)[first : first + _PIECE_BYTES]
        quotes = (codes == ord('"')).view(np.uint8)
        in_texts = np.bitwise_xor.accumulate(quotes) ^ in_text
        count += int(np.count_nonzero((codes == ord(",")) & (in_texts == 0)))
        in_text = in_texts[-1]
    return count


def may_have_more_members(document: bytes, count: int) -> bool:
    """Whether a valid JSON document, of which `count` members were parsed, may have others."""
    # most have no other colons, and counting bytes is a hundred times as fast
    if document.count(b":") <= count:
        return False
    return sum(1 for _ in _END_OF_NAME.finditer(document)) > count


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise _Duplicate(name)
        seen.add(name)
