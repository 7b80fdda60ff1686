"""The points at which a server is killed: before or after a function of the product.

The product does not know them: the process under test wraps the function before it serves.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Point:
    """Before or after a call of `function`, which is named as ``module:attribute``."""

    function: str
    side: Literal["before", "after"]


def _around(function: str, what: str) -> dict[str, Point]:
    return {
        f"before {what}": Point(function, "before"),
        f"after {what}": Point(function, "after"),
    }


_JOURNAL = "liverank_service.storage.journal:Journal"
_CHECKPOINT = "liverank_service.storage.checkpoint"
_STORE = "liverank_service.storage.graph_store"

WRITING: dict[str, Point] = {
    **_around(f"{_JOURNAL}.append", "the journal's commit"),
    "before the head is written": Point(f"{_JOURNAL}._write_head", "before"),
    "between keys and graph": Point("liverank_gpu.engine:Engine.apply", "before"),
    "in the middle of mutate": Point("liverank_gpu.backends.cpu.graph:CpuGraph.write", "after"),
    "after mutate": Point("liverank_gpu.engine:Engine.apply", "after"),
    **_around("liverank_gpu.engine:Engine.update", "the solve"),
    **_around("liverank_gpu.engine:Engine.publish", "the ranks are copied"),
    **_around(f"{_JOURNAL}.add_receipts", "the receipts are stored"),
    "after the view is published": Point(
        "liverank_service.pipeline.published:PublishedViews.publish", "after"
    ),
}
"""Passed by every group of batches."""

_EXPIRY = "liverank_service.pipeline.expiry:Expiry"

EXPIRING: dict[str, Point] = {
    "between a batch and what it makes too old": Point(f"{_EXPIRY}.follow", "before"),
    "after edges have left": Point(f"{_EXPIRY}._commit_all", "after"),
    "before vertices are forgotten": Point(f"{_EXPIRY}._forget", "before"),
    "after an expiry": Point(f"{_EXPIRY}.follow", "after"),
}
"""Passed by every batch of a graph with a window by the event clock."""

CHECKPOINTING: dict[str, Point] = {
    **_around("liverank_gpu.engine:Engine.capture", "the capture for a checkpoint"),
    "before a checkpoint is written": Point(f"{_CHECKPOINT}:write", "before"),
    **_around(f"{_CHECKPOINT}:write_synced", "a file of a checkpoint"),
    "before a checkpoint is renamed": Point(f"{_CHECKPOINT}:rename_synced", "before"),
    "after a checkpoint's directory is synced": Point(f"{_CHECKPOINT}:rename_synced", "after"),
    "before retention": Point(
        "liverank_service.pipeline.checkpointer:Checkpointer._retain", "before"
    ),
    "before old checkpoints go": Point(f"{_CHECKPOINT}:remove_old", "before"),
    "while old checkpoints go": Point(f"{_CHECKPOINT}:_entries", "after"),
    **_around(f"{_JOURNAL}._remove_slice", "old batches go"),
    "before old keys go": Point(f"{_JOURNAL}._forget_keys", "before"),
}
"""Passed by every checkpoint."""

RECOVERING: dict[str, Point] = {
    "before a checkpoint is read": Point(f"{_CHECKPOINT}:read", "before"),
    "after a checkpoint is read": Point(f"{_CHECKPOINT}:read", "after"),
    **_around("liverank_gpu.engine:Engine.restore", "the engine is restored"),
    "before the journal is verified": Point("liverank_service.storage.recovery:fault_of", "before"),
    "while batches are replayed": Point(
        "liverank_service.pipeline.keyed_graph:KeyedGraph.apply", "after"
    ),
    "before the recovered graph is published": Point(
        "liverank_service.pipeline.published:PublishedViews.publish", "before"
    ),
}
"""Passed by every start of a server with something to recover."""

_SHARDED_ENGINE = "liverank_gpu.sharded.engine:ShardedEngine"
_SHARDED_CAPTURE = "liverank_gpu.sharded.engine:ShardedCapture"

SHARDS_CHECKPOINTING: dict[str, Point] = {
    **_around(f"{_SHARDED_ENGINE}.capture", "shards copy their lists"),
    **_around(f"{_SHARDED_CAPTURE}.piece", "a piece of the lists is read"),
    **_around(f"{_SHARDED_CAPTURE}.release", "shards free their copies"),
}
"""Passed by every checkpoint of a graph in shards, beside some of CHECKPOINTING."""

SHARDS_RECOVERING: dict[str, Point] = {
    **_around(f"{_SHARDED_ENGINE}.restore", "shards are restored"),
    "while shards are restored": Point("liverank_gpu.sharded.columns:ListLayout.places", "after"),
    "while shards replay batches": Point(f"{_SHARDED_ENGINE}.apply", "after"),
}
"""Passed by every start of a server with shards that recovers."""

CATALOGUE: dict[str, Point] = {
    **_around("liverank_service.catalog:Catalog._create", "a graph is created"),
    "after its journal is created": Point(f"{_JOURNAL}.create", "after"),
    "before a graph's directory is renamed": Point(f"{_STORE}:rename_synced", "before"),
    "after a graph's directory is renamed": Point(f"{_STORE}:rename_synced", "after"),
    **_around(f"{_STORE}:GraphStore.remove", "a graph is removed"),
    "before its files are removed": Point("shutil:rmtree", "before"),
}
"""Passed when graphs are created and dropped."""

POINTS = (
    WRITING
    | EXPIRING
    | CHECKPOINTING
    | RECOVERING
    | SHARDS_CHECKPOINTING
    | SHARDS_RECOVERING
    | CATALOGUE
)


def arm(name: str, passes: int) -> None:
    """Makes this process kill itself when it passes the point for the `passes`-th time."""
    point = POINTS[name]
    module, _, path = point.function.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, attribute = path.split(".")
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, attribute, _killing(owner, attribute, point.side, passes))


def _killing(owner: Any, attribute: str, side: str, passes: int) -> Any:
    stored = vars(owner)[attribute]
    bound_to_class = isinstance(stored, classmethod)
    original: Callable[..., Any] = stored.__func__ if bound_to_class else stored
    passed = 0

    def pass_by(when: str) -> None:
        nonlocal passed
        if when == side:
            passed += 1
            if passed == passes:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        pass_by("before")
        result = original(*arguments, **named)
        pass_by("after")
        return result

    return classmethod(wrapped) if bound_to_class else wrapped
