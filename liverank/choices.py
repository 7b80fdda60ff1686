"""Keys of vertices, and the words that calls and responses choose from."""

from __future__ import annotations

from enum import Enum
from typing import Literal


class Unset(Enum):
    """The default of an argument to which None means something else."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


Key = str | int
Pair = tuple[Key, Key]

Strategy = Literal[
    "auto",
    "static",
    "naive-dynamic",
    "dynamic-traversal",
    "dynamic-frontier",
    "dynamic-frontier-prune",
    "residual",
]
Dangling = Literal["uniform", "self-loop"]
Storage = Literal["float64", "float32"]
Form = Literal["accelerated", "published"]
KeyKind = Literal["string", "integer"]
Method = Literal["hybrid", "push", "pushopt", "pull"]
Target = Literal["error", "settled-top-k", "settled-set"]
Rank = Literal["now", "later"]
Direction = Literal["out", "in"]
Unknown = Literal["error", "ignore"]
Scope = Literal["read", "write", "admin"]
OnConflict = Literal["replace", "add"]
Clock = Literal["wall", "event"]
BrokerName = Literal["redis", "nats", "kafka", "rabbitmq"]
Program = Literal[
    "pagerank",
    "levels",
    "distances",
    "components",
    "labels",
    "cores",
    "densest",
    "triangles",
    "clustering",
    "support",
    "trussness",
]
Order = Literal["largest", "smallest"]
