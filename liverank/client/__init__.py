"""The Python client of a liverank server: `Client`, and `AsyncClient` for asyncio.

Both have the calls of `liverank.client.calls`. Every batch has an idempotency key, so that a retry
after a lost connection is applied once. While the server's queue is full, they wait and retry.
"""

from liverank.choices import Key, Strategy
from liverank.client.analyses import AnalysisInfo
from liverank.client.batches import Batch, SetChange
from liverank.client.changes import Change, Gap, LeftVertex, Snapshot
from liverank.client.client import AsyncClient, Client
from liverank.client.connection import DEFAULT_URL
from liverank.client.responses import (
    ApiKeyInfo,
    GraphInfo,
    PersonalizedQuery,
    RankedVertex,
    Receipt,
)
from liverank.client.sources import SourceConsumer, SourcePosition, SourceRange
from liverank.errors import ClientError, ServerError, ServerUnreachable

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
