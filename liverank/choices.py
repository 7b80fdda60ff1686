"""Keys of vertices, words that calls and responses choose from, names of arguments and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Literal


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
Storage = Literal["float64"]
Form = Literal["accelerated", "published"]
KeyKind = Literal["string", "integer"]
Method = Literal["hybrid", "push", "pushopt", "pull"]
Target = Literal["error", "settled-top-k", "settled-set"]
Rank = Literal["now", "later"]
Direction = Literal["out", "in"]
Unknown = Literal["error", "ignore"]
ViewDirection = Literal["forward", "reversed"]
ViewKind = Literal["uniform", "set", "weights"]
Refresh = Literal["batch", "read"]
Scope = Literal["read", "write", "admin"]
OnConflict = Literal["replace", "add"]
Clock = Literal["wall", "event"]
ConsumerState = Literal["consuming", "retrying", "stopped"]
BrokerName = Literal["redis", "nats", "kafka", "rabbitmq"]
Program = Literal[
    "pagerank",
    "levels",
    "distances",
    "paths",
    "components",
    "labels",
    "cores",
    "densest",
    "triangles",
    "clustering",
    "support",
    "trussness",
    "dn-graphs",
]
Order = Literal["largest", "smallest"]
Mode = Literal["synchronous", "asynchronous"]
ValuesOf = Literal["vertices", "edges"]

_OTHERS_NAMES = {
    "alpha": "damping",
    "damping_factor": "damping",
    "dst": "target",
    "max_iter": "max_iterations",
    "niter": "max_iterations",
    "reset": "personalization",
    "src": "source",
    "tol": "target_error",
    "tolerance": "target_error",
    "weights": "weight",
}
"""What arguments are called by NetworkX, igraph, cuGraph, GraphFrames and others."""


def check_names(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raises TypeError for an argument by the name that other libraries have for it."""
    for name in given.keys() & _OTHERS_NAMES.keys():
        from inspect import signature

        known, own = signature(function).parameters, _OTHERS_NAMES[name]
        if name not in known and own in known:
            message = f"{function.__name__}() has no argument {name!r}: here it is {own!r}"
            raise TypeError(message)


_SOURCE_NAMES = ("source", "src", "from", "srcid", "fromnodeid", "source_id", "from_id")
_TARGET_NAMES = ("target", "dst", "to", "dstid", "tonodeid", "target_id", "to_id", "destination")


def named_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """The places of the columns that are called as ends of edges often are; None: not both are."""
    lower = [name.strip().lower() for name in names]
    sources = [place for place, name in enumerate(lower) if name in _SOURCE_NAMES]
    targets = [place for place, name in enumerate(lower) if name in _TARGET_NAMES]
    return (sources[0], targets[0]) if sources and targets else None


def narrowed(column: Any) -> Any:
    """An Arrow column of int64 as uint32, in half the bytes, if all fit; any other as it is."""
    import pyarrow as pa

    if pa.types.is_int64(column.type):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.uint32())
    return column
