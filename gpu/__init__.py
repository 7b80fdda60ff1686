"""The engine of liverank: a dynamic graph and its PageRank, on the GPU or on the CPU.

It knows nothing of HTTP, keys, files or settings.
"""

from gpu.backends import limit_device_memory
from gpu.columns import LARGEST_WEIGHT, LEAST_WEIGHT, MOST_HALF_LIVES
from gpu.engine import Engine
from gpu.errors import (
    EXIT_DEVICE_LOST,
    BackendUnavailable,
    ClusterUnavailable,
    ConcurrentUse,
    DeviceLost,
    EngineError,
    InvalidValue,
    NotConverged,
    OutOfMemory,
    ShardLost,
    UnknownVertex,
)
from gpu.first_solve import warm_up_solve
from gpu.graph.reading import CapturedEdges, EdgeBlock, EdgeReader, Neighbours
from gpu.graph.staging import StagingBuffer
from gpu.jit.cache import compiling_seconds, loops_compiled
from gpu.operations.programs import VertexProgram
from gpu.out_of_core.programs import OutOfCoreAnswer, OutOfCorePrograms
from gpu.out_of_core.ranking import OutOfCoreRanking, OutOfCoreRanks
from gpu.pagerank.places import SettledTarget, proven_descents, rank_error
from gpu.pagerank.ranks import RankChanges, RankReference, Ranks
from gpu.pagerank.strategies import STRATEGIES, Solve
from gpu.personalized.batch import QueryBatch
from gpu.personalized.resolve import METHODS, PUBLISHED_METHODS, TARGETS, ResolvedQuery, Target
from gpu.personalized.watched import Registration
from gpu.programs.algorithms import Algorithm
from gpu.programs.answer import Answer, Receipt
from gpu.programs.run import PROGRAMS
from gpu.programs.running import ProgramRun
from gpu.sharded.capture import ShardedCapture
from gpu.sharded.cluster import Cluster
from gpu.sharded.engine import ShardedEngine
from gpu.snapshot import Capture, Snapshot
from gpu.trace import Trace, TraceStep
from gpu.types import (
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
)

__all__ = [
    "EXIT_DEVICE_LOST",
    "LARGEST_WEIGHT",
    "LEAST_WEIGHT",
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
    "Form",
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
    "ProgramRun",
    "QueryBatch",
    "RankChanges",
    "RankReference",
    "Ranks",
    "Receipt",
    "Registration",
    "ResolvedQuery",
    "Result",
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
    "compiling_seconds",
    "limit_device_memory",
    "loops_compiled",
    "proven_descents",
    "rank_error",
    "warm_up_solve",
]
