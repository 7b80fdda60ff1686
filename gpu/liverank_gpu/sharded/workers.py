"""What runs the shards of a ShardedEngine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any


class Workers(ABC):
    """Processes, or threads, that each hold one liverank_gpu.sharded.member.Member. Ranks are their
    numbers, from 0.

    size     number of shards
    backend  of the shards: ``cpu`` or ``cuda``
    """

    size: int
    backend: str = "cpu"

    @abstractmethod
    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Calls a method of all shards at once, each with its own arguments: both these and the
        results are by rank. If a shard raises an error, the call is ended on the others, and the
        error raised here; ShardLost if its process ended.
        """

    def everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """The same with the same arguments for all shards."""
        return self.call(method, [arguments] * self.size)

    @abstractmethod
    def close(self) -> None:
        """Ends the shards. A second call does nothing."""

    def check_alive(self) -> None:  # noqa: B027
        """Raises ShardLost if a shard is known to be lost."""

    def on_loss(self, notify: Callable[[], None]) -> None:  # noqa: B027
        """Has `notify` called, once and on any thread, when a shard is lost, also while there is no
        call; at once if one is lost already.
        """
