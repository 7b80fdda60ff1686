"""What can go wrong with graphs in shards, beside the engine's ShardLost."""

from __future__ import annotations

from liverank_service.errors import ServiceError


class RankingDelayed(ServiceError):
    """Shards were lost, or an expiry failed, after the batch was committed."""

    def __init__(self, version: int, reason: object) -> None:
        self.version = version
        super().__init__(
            f"version {version} is committed, but not ranked yet: {reason}. The graph recovers and "
            "ranks it: request the batch by its version, or send it again with its idempotency key"
        )


class Unsupported(ServiceError, ValueError):
    """`field` holds `value`, which a graph in shards does not have."""

    def __init__(self, field: str, value: object, supported: str) -> None:
        self.field = field
        self.value = value
        super().__init__(f"{field}: {value!r} does not work with shards; {supported} does")
