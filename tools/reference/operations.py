"""Every setting and every metric of the server, from the class and the table that have them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector

from liverank_service.http.metrics import METRICS
from liverank_service.settings import PREFIX, Settings
from tools.reference.command import help_of
from tools.reference.markdown import code, members, table

_SETTINGS = """\
# Settings

Options of `liverank serve` override the environment. With an invalid value the server does not
start, and prints one line with the accepted values. [Limits](operations-reference.md#limits) says
what happens at each of them, [API keys](operations-reference.md#api-keys) how to make keys.

This page is written by `python -m tools.reference`.
"""


def settings() -> Iterator[str]:
    """The lines of the page."""
    yield _SETTINGS
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


_METRICS = """\
# Metrics

What `GET /metrics` has. [Metrics](operations-reference.md#metrics) says who may read them, and
which alerts are useful. [HTTP](api.md) says more of analyses, queries and receipts, and
[Several devices](scale.md#on-a-server) of shards.

This page is written by `python -m tools.reference`.
"""


def metrics() -> Iterator[str]:
    """The lines of the page."""
    yield _METRICS
    rows: list[tuple[str, ...]] = [
        (_exposed(name, each.kind), each.kind, ", ".join(map(code, each.labels)), each.meaning)
        for name, each in METRICS.items()
    ]
    for family in ProcessCollector(registry=CollectorRegistry()).collect():
        rows.append((_exposed(family.name, family.type), family.type, "", family.documentation))
    yield from table(("metric", "type", "labels", "meaning"), rows)


def _exposed(name: str, kind: str) -> str:
    return code(f"{name}_total" if kind == "counter" else name)
