"""The Python client of a liverank server: `Client`, and `AsyncClient` for asyncio.

Both have the calls of `liverank.client.calls`. Every batch has an idempotency key, so that a retry
after a lost connection is applied once. While the server's queue is full, they wait and retry.
Each name is imported on first use: the server imports the tables alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liverank.choices import Key as Key
    from liverank.choices import Strategy as Strategy
    from liverank.client.batches import Batch as Batch
    from liverank.client.batches import SetChange as SetChange
    from liverank.client.changes import Change as Change
    from liverank.client.changes import Gap as Gap
    from liverank.client.changes import LeftVertex as LeftVertex
    from liverank.client.changes import Snapshot as Snapshot
    from liverank.client.client import AsyncClient as AsyncClient
    from liverank.client.client import Client as Client
    from liverank.client.connection import DEFAULT_URL as DEFAULT_URL
    from liverank.client.responses import AnalysisInfo as AnalysisInfo
    from liverank.client.responses import ApiKeyInfo as ApiKeyInfo
    from liverank.client.responses import GraphInfo as GraphInfo
    from liverank.client.responses import RankedVertex as RankedVertex
    from liverank.client.responses import Receipt as Receipt
    from liverank.client.responses import SourceConsumer as SourceConsumer
    from liverank.client.responses import SourcePosition as SourcePosition
    from liverank.client.sources import SourceRange as SourceRange
    from liverank.errors import ClientError as ClientError
    from liverank.errors import ServerError as ServerError
    from liverank.errors import ServerUnreachable as ServerUnreachable
    from liverank.options import PersonalizedQuery as PersonalizedQuery

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

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'liverank.client' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
