"""What can go wrong with graphs in shards, beside the engine's Unsupported and ShardLost."""

from __future__ import annotations

from service.errors import ServiceError


class RankingDelayed(ServiceError):
    """Shards were lost after the batch was committed."""

    def __init__(self, version: int, reason: object) -> None:
        self.version = version
        super().__init__(
            f"version {version} is committed, but not ranked yet: {reason}. The graph recovers and "
            "ranks it: request the batch by its version, or send it again with its idempotency key"
        )
