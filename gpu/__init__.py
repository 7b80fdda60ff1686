"""The engine of liverank: a dynamic graph and its PageRank, on the GPU or on the CPU.

It knows nothing of HTTP, keys, files or settings.
"""

from gpu.engine import Engine
from gpu.errors import BackendUnavailable, DeviceLost, EngineError, InvalidValue, OutOfMemory
from gpu.ranks import Ranks
from gpu.snapshot import Snapshot
from gpu.strategies import STRATEGIES
from gpu.types import Change, EdgeBatch, Options, Personalized, PersonalizedQuery, Result

__all__ = [
    "STRATEGIES",
    "BackendUnavailable",
    "Change",
    "DeviceLost",
    "EdgeBatch",
    "Engine",
    "EngineError",
    "InvalidValue",
    "Options",
    "OutOfMemory",
    "Personalized",
    "PersonalizedQuery",
    "Ranks",
    "Result",
    "Snapshot",
]
