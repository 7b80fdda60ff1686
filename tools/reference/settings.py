"""Every setting of the server, from the class that reads them."""

from __future__ import annotations

from collections.abc import Iterator

from liverank_service.settings import PREFIX, Settings
from tools.reference.command import help_of
from tools.reference.markdown import code, members, table

_INTRODUCTION = """\
# Settings

Options of `liverank serve` override the environment. With an invalid value the server does not
start, and prints one line with the accepted values. [Limits](operations-reference.md#limits) says
what happens at each of them, [API keys](operations-reference.md#api-keys) how to make keys.

This page is written by `python -m tools.reference`.
"""


def settings() -> Iterator[str]:
    """The lines of the page."""
    yield _INTRODUCTION
    offered = help_of("serve").split()
    _, meanings = members(Settings)
    rows = []
    for name, field in Settings.model_fields.items():
        option = f"--{name.replace('_', '-')}"
        shown = code(option) if option in offered else ""
        rows.append((code(PREFIX + name.upper()), shown, _shown(field.default), meanings[name]))
    yield from table(("environment", "option", "default", "meaning"), rows)


def _shown(default: object) -> str:
    if default is None:
        return "none"
    return code(f"{default}".lower() if isinstance(default, bool) else f"{default}")
