"""The engine of liverank: a dynamic graph and its PageRank, on the GPU or on the CPU.

It knows nothing of HTTP, keys, files or settings.
"""

from gpu.engine import Engine
from gpu.errors import BackendUnavailable, DeviceLost, EngineError, InvalidValue, OutOfMemory
from gpu.job import Job as QueryBatch
from gpu.personalized import METHODS, TARGETS
from gpu.ranks import Ranks
from gpu.snapshot import Cut as Capture
from gpu.snapshot import Room as StagingBuffer
from gpu.snapshot import Snapshot
from gpu.strategies import STRATEGIES
from gpu.types import (
    VERTEX_LIMIT,
    BackendName,
    Change,
    Dangling,
    EdgeBatch,
    Options,
    Personalized,
    PersonalizedQuery,
    Result,
    Storage,
)
from gpu.watched import Registration

__all__ = [
    "METHODS",
    "STRATEGIES",
    "TARGETS",
    "VERTEX_LIMIT",
    "BackendName",
    "BackendUnavailable",
    "Capture",
    "Change",
    "Dangling",
    "DeviceLost",
    "EdgeBatch",
    "Engine",
    "EngineError",
    "InvalidValue",
    "Options",
    "OutOfMemory",
    "Personalized",
    "PersonalizedQuery",
    "QueryBatch",
    "Ranks",
    "Registration",
    "Result",
    "Snapshot",
    "StagingBuffer",
    "Storage",
]
