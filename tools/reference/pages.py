"""The pages, and what they have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.reference.http_calls import http_calls
from tools.reference.python_api import python_api

DOCUMENTS = Path(__file__).parents[2] / "docs"

PAGES: dict[Path, Callable[[], Iterable[str]]] = {
    DOCUMENTS / "http-calls.md": http_calls,
    DOCUMENTS / "python-api.md": python_api,
}


def page(path: Path) -> str:
    """The text of a page as it has to be."""
    text = "\n".join(PAGES[path]()) + "\n"
    return re.sub("\n{3,}", "\n\n", text).rstrip("\n") + "\n"
