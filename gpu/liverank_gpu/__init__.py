"""The engine of liverank: a dynamic graph and its PageRank, on the GPU or on the CPU.

It knows nothing of HTTP, keys, files or settings. The whole method is on one page, in NumPy:
docs/algorithm.md. What runs out of core and in shards is imported on first use.
"""

import importlib
import typing

from liverank_gpu.backends import limit_device_memory
from liverank_gpu.columns import LARGEST_WEIGHT, LEAST_WEIGHT, MOST_HALF_LIVES
from liverank_gpu.engine import MAX_EXPLAINED, Engine
from liverank_gpu.errors import (
    EXIT_DEVICE_LOST,
    BackendUnavailable,
    ClusterUnavailable,
    ConcurrentUse,
    DeviceLost,
    EngineError,
    InvalidSource,
    InvalidValue,
    NotConverged,
    OutOfMemory,
    ShardLost,
    UnknownVertex,
)
from liverank_gpu.graph.reading import (
    CapturedEdges,
    EdgeBlock,
    EdgeReader,
    Neighbours,
    StagingBuffer,
)
from liverank_gpu.native import kernels as kernels
from liverank_gpu.once import RankedOnce, rank_once
from liverank_gpu.operations.programs import VertexProgram
from liverank_gpu.pagerank.places import SettledTarget, proven_descents, rank_error
from liverank_gpu.pagerank.ranks import Explanation, RankChanges, RankReference, Ranks
from liverank_gpu.pagerank.strategies import STRATEGIES, Solve
from liverank_gpu.personalized.batch import QueryBatch
from liverank_gpu.personalized.resolve import (
    METHODS,
    PUBLISHED_METHODS,
    TARGETS,
    ResolvedQuery,
    ResolvedView,
    Target,
)
from liverank_gpu.personalized.views import ViewSteps
from liverank_gpu.personalized.watched import Registration
from liverank_gpu.programs.algorithms import Algorithm
from liverank_gpu.programs.answer import Answer, Receipt
from liverank_gpu.programs.running import PROGRAMS, ProgramLimits, ProgramRun
from liverank_gpu.programs.saved import SavedRun
from liverank_gpu.snapshot import Capture, Snapshot
from liverank_gpu.types import (
    VERTEX_LIMIT,
    BackendName,
    Change,
    Dangling,
    EdgeBatch,
    Form,
    OnConflict,
    Options,
    Personalized,
    PersonalizedQuery,
    Result,
    Storage,
    Trace,
    TraceStep,
    ViewQuery,
)

if typing.TYPE_CHECKING:
    from liverank_gpu.out_of_core.programs import OutOfCoreAnswer, OutOfCorePrograms
    from liverank_gpu.out_of_core.ranking import OutOfCoreRanking, OutOfCoreRanks
    from liverank_gpu.programs.source import program_of_source
    from liverank_gpu.sharded.cluster import Cluster, started_workers
    from liverank_gpu.sharded.dask_workers import Workers
    from liverank_gpu.sharded.engine import ShardedCapture, ShardedEngine

__all__ = [
    "EXIT_DEVICE_LOST",
    "LARGEST_WEIGHT",
    "LEAST_WEIGHT",
    "MAX_EXPLAINED",
    "METHODS",
    "MOST_HALF_LIVES",
    "PROGRAMS",
    "PUBLISHED_METHODS",
    "STRATEGIES",
    "TARGETS",
    "VERTEX_LIMIT",
    "Algorithm",
    "Answer",
    "BackendName",
    "BackendUnavailable",
    "Capture",
    "CapturedEdges",
    "Change",
    "Cluster",
    "ClusterUnavailable",
    "ConcurrentUse",
    "Dangling",
    "DeviceLost",
    "EdgeBatch",
    "EdgeBlock",
    "EdgeReader",
    "Engine",
    "EngineError",
    "Explanation",
    "Form",
    "InvalidSource",
    "InvalidValue",
    "Neighbours",
    "NotConverged",
    "OnConflict",
    "Options",
    "OutOfCoreAnswer",
    "OutOfCorePrograms",
    "OutOfCoreRanking",
    "OutOfCoreRanks",
    "OutOfMemory",
    "Personalized",
    "PersonalizedQuery",
    "ProgramLimits",
    "ProgramRun",
    "QueryBatch",
    "RankChanges",
    "RankReference",
    "RankedOnce",
    "Ranks",
    "Receipt",
    "Registration",
    "ResolvedQuery",
    "ResolvedView",
    "Result",
    "SavedRun",
    "SettledTarget",
    "ShardLost",
    "ShardedCapture",
    "ShardedEngine",
    "Snapshot",
    "Solve",
    "StagingBuffer",
    "Storage",
    "Target",
    "Trace",
    "TraceStep",
    "UnknownVertex",
    "VertexProgram",
    "ViewQuery",
    "ViewSteps",
    "Workers",
    "limit_device_memory",
    "program_of_source",
    "proven_descents",
    "rank_error",
    "rank_once",
    "started_workers",
]

_MODULES = {
    "liverank_gpu.programs.source": ("program_of_source",),
    "liverank_gpu.out_of_core.programs": ("OutOfCoreAnswer", "OutOfCorePrograms"),
    "liverank_gpu.out_of_core.ranking": ("OutOfCoreRanking", "OutOfCoreRanks"),
    "liverank_gpu.sharded.cluster": ("Cluster", "started_workers"),
    "liverank_gpu.sharded.dask_workers": ("Workers",),
    "liverank_gpu.sharded.engine": ("ShardedCapture", "ShardedEngine"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> typing.Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'liverank_gpu' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return found
