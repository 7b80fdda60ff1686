"""The Python client of a liverank server: `Client`, and `AsyncClient` for asyncio.

Both have the calls of `liverank.client.calls`. Every batch has an idempotency key, so that a retry
after a lost connection is applied once. While the server's queue is full, they wait and retry.
Each name is imported on first use: the server imports the tables alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liverank.choices import Key, Strategy
    from liverank.client.batches import Batch, SetChange
    from liverank.client.changes import Change, Gap, LeftVertex, Snapshot
    from liverank.client.client import AsyncClient, Client
    from liverank.client.connection import DEFAULT_URL
    from liverank.client.responses import (
        AnalysisInfo,
        ApiKeyInfo,
        GraphInfo,
        RankedVertex,
        Receipt,
        SourceConsumer,
        SourcePosition,
    )
    from liverank.client.sources import SourceRange
    from liverank.errors import ClientError, ServerError, ServerUnreachable
    from liverank.options import PersonalizedQuery

__all__ = [
    "DEFAULT_URL",
    "AnalysisInfo",
    "ApiKeyInfo",
    "AsyncClient",
    "Batch",
    "Change",
    "Client",
    "ClientError",
    "Gap",
    "GraphInfo",
    "Key",
    "LeftVertex",
    "PersonalizedQuery",
    "RankedVertex",
    "Receipt",
    "ServerError",
    "ServerUnreachable",
    "SetChange",
    "Snapshot",
    "SourceConsumer",
    "SourcePosition",
    "SourceRange",
    "Strategy",
]

_MODULES = {
    "liverank.choices": ("Key", "Strategy"),
    "liverank.client.batches": ("Batch", "SetChange"),
    "liverank.client.changes": ("Change", "Gap", "LeftVertex", "Snapshot"),
    "liverank.client.client": ("AsyncClient", "Client"),
    "liverank.client.connection": ("DEFAULT_URL",),
    "liverank.client.responses": (
        "AnalysisInfo",
        "ApiKeyInfo",
        "GraphInfo",
        "RankedVertex",
        "Receipt",
        "SourceConsumer",
        "SourcePosition",
    ),
    "liverank.client.sources": ("SourceRange",),
    "liverank.errors": ("ClientError", "ServerError", "ServerUnreachable"),
    "liverank.options": ("PersonalizedQuery",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'liverank.client' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
