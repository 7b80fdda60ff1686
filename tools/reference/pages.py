"""The pages, and what they have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from tools.reference.command import command
from tools.reference.http_calls import http_calls
from tools.reference.operations import metrics, settings
from tools.reference.python_api import python_api

DOCUMENTS = Path(__file__).parents[2] / "docs"

# Of the site and not of the repository: .gitignore has them.
PAGES: dict[Path, Callable[[], Iterable[str]]] = {
    DOCUMENTS / "command.md": command,
    DOCUMENTS / "http-calls.md": http_calls,
    DOCUMENTS / "metrics.md": metrics,
    DOCUMENTS / "python-api.md": python_api,
    DOCUMENTS / "settings.md": settings,
}


@cache
def page(path: Path) -> str:
    """The text of a page."""
    text = "\n".join(PAGES[path]()) + "\n"
    return re.sub("\n{3,}", "\n\n", text).rstrip("\n") + "\n"
