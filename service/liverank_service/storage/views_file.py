"""The file of a graph's views.

GRAPH/views.json  {"format": 1, "views": {name: {"teleport": "uniform" | {"set": NAME} |
                  {"weights": [[key, weight], …]}, "damping", "target_error", "refresh",
                  "unknown", "direction"}}}

"direction" is missing where it is "forward". It holds views without ranks: a checkpoint has those
of some (liverank_service.pipeline.checkpointer), and after a restart the others are solved again.
It is replaced atomically, as watched.json is. A graph without views has no such file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from liverank.choices import Refresh, Unknown, ViewDirection
from liverank_service.queries.rank_views import Teleport, ViewRequest
from liverank_service.storage.files import replace_file
from liverank_service.storage.json_file import read_validated
from liverank_service.storage.watched_file import (
    StoredKey,
    StoredSeeds,
    check_kind,
    seeds_of,
    stored_seeds,
)
from liverank_service.vertex_keys import KeyKind

FILE = "views.json"
FORMAT = 1


class _StoredTeleport(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    set: str | None = None
    weights: StoredSeeds | None = None

    @model_validator(mode="after")
    def _one(self) -> _StoredTeleport:
        if (self.set is None) == (self.weights is None):
            raise ValueError("has neither a set nor weights, or both")
        return self


class _StoredView(BaseModel):
    """A view in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    teleport: Literal["uniform"] | _StoredTeleport
    damping: Annotated[float, Field(gt=0.0, lt=1.0)] | None
    target_error: Annotated[float, Field(gt=0.0, le=2.0)] | None
    refresh: Refresh | Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    unknown: Unknown
    direction: ViewDirection = "forward"

    @property
    def weights(self) -> list[tuple[StoredKey, float]]:
        teleport = self.teleport
        return [] if isinstance(teleport, str) else teleport.weights or []

    @property
    def request(self) -> ViewRequest:
        teleport = Teleport()
        if self.weights:
            teleport = Teleport(weights=seeds_of(self.weights))
        elif not isinstance(self.teleport, str):
            teleport = Teleport(set=self.teleport.set)
        return ViewRequest(teleport=teleport, **self.model_dump(exclude={"teleport"}))


class _StoredViews(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    views: dict[str, _StoredView]


def read_views(path: Path, kind: KeyKind | None = None) -> dict[str, ViewRequest]:
    """The views in the file, by name; none if it is missing.

    kind  of the graph's keys; None: either

    Raises FileDamaged, which names the first wrong field, and StorageFailed if the file cannot be
    read or has another format.
    """
    stored = read_validated(_StoredViews, (FORMAT,), path, "a file of views")
    if stored is None:
        return {}
    for name, one in stored.views.items():
        keys = [(f"[{index}][0]", key) for index, (key, _) in enumerate(one.weights)]
        check_kind(path, kind, f"views.{name}.teleport.weights", keys)
    return {name: one.request for name, one in stored.views.items()}


def write_views(path: Path, requests: Mapping[str, ViewRequest], kind: KeyKind) -> None:
    """Replaces the file. kind: of the graph's keys. Raises StorageFailed; it is then unchanged."""
    views = {
        name: {
            "teleport": _stored(request.teleport, kind),
            **request.model_dump(exclude={"teleport"} | _left_out(request)),
        }
        for name, request in requests.items()
    }
    replace_file(path, json.dumps({"format": FORMAT, "views": views}).encode())


def _left_out(request: ViewRequest) -> set[str]:
    return {"direction"} if request.direction == "forward" else set()


def _stored(teleport: Teleport, kind: KeyKind) -> Any:
    if teleport.weights is None:
        return teleport.kind if teleport.set is None else {"set": teleport.set}
    return {"weights": stored_seeds(teleport.weights, kind, "teleport.weights")}
