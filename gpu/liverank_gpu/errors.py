"""What can go wrong in the engine.

EngineError
├── InvalidValue          an option or a batch names a value that cannot be used
│   ├── InvalidSource     a line of a program cannot be translated
│   └── UnknownVertex     an id is not that of a vertex
├── DeviceLost            the device answers no more, and cannot in this process
├── ConcurrentUse         two threads called an engine at once
├── OutOfMemory           the request does not fit; the graph is as it was
├── BackendUnavailable    this machine cannot run the backend that was asked for
└── ShardLost             the process of a shard ended
    └── ClusterUnavailable   the Dask cluster cannot be reached, or cannot run the shards

NotConverged              a warning, or an error of the same name where that is asked for
"""

from __future__ import annotations

from typing import Any, TypeVar

AnyError = TypeVar("AnyError", bound=BaseException)

EXIT_DEVICE_LOST = 70
"""With which a process ends after DeviceLost: EX_SOFTWARE of sysexits.h."""


class EngineError(Exception):
    """Base of every error that the engine raises on purpose.

    What keeps one keeps it `without_frames`, and raises copies of it.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # an error of a shard is raised in another process, without calling its constructor again
        return _restored, (type(self), self.args, self.__dict__)


def without_frames(error: AnyError) -> AnyError:
    """The error without its traceback, cause and context, to be kept: frames that hold the keeper
    would have it freed, with its arrays, by a search for garbage only.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _restored(kind: type[EngineError], arguments: Any, fields: dict[str, Any]) -> EngineError:
    error = EngineError.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


class InvalidValue(EngineError, ValueError):
    """`field` holds `value`, but must satisfy `requirement`."""

    def __init__(self, field: str, value: object, requirement: str) -> None:
        self.field = field
        self.value = value
        self.requirement = requirement
        super().__init__(f"{field}: {value!r} is not allowed; it must be {requirement}")


class InvalidSource(InvalidValue):
    """`line` of a program's source, from 1 on, has what cannot be translated."""

    def __init__(self, field: str, value: object, requirement: str, line: int) -> None:
        self.line = line
        super().__init__(field, value, requirement)


class UnknownVertex(InvalidValue):
    """`field` names an id that no vertex has: it is out of range, or free since one was removed."""


class NotConverged(UserWarning):
    """A solve ended before it met what it was for: the ranks hold within `error_bound`, which may
    be larger than was asked for. Raised, in place of a warning, where that is asked for.

    iterations, error_bound  of the solve
    """

    def __init__(self, iterations: int, error_bound: float, goal: str) -> None:
        self.iterations = iterations
        self.error_bound = error_bound
        super().__init__(
            f"not converged after {iterations:,} iterations: the error bound is {error_bound:.1e}, "
            f"and {goal}"
        )


class DeviceLost(EngineError):
    """A fault on the device has ended its context, or a fork has not taken it along: only a new
    process can use it again.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(f"the device is lost: {reason}")


class ConcurrentUse(EngineError, RuntimeError):
    """Another thread is in a call of the same engine; this call did nothing."""

    def __init__(self) -> None:
        super().__init__(
            "another thread is in a call of this engine, which is not thread-safe: give it one "
            "owner or a lock"
        )


class OutOfMemory(EngineError, MemoryError):
    """`purpose` needs `needed` bytes where only `available` are free."""

    def __init__(self, purpose: str, needed: int, available: int) -> None:
        self.purpose = purpose
        self.needed = needed
        self.available = available
        super().__init__(f"{purpose} needs {needed:,} bytes; {available:,} are available")


class BackendUnavailable(EngineError):
    """`backend` cannot run here, for `reason`."""

    def __init__(self, backend: str, reason: str) -> None:
        self.backend = backend
        self.reason = reason
        super().__init__(f"backend {backend!r} is not available: {reason}")


class ShardLost(EngineError):
    """The process of shard `shard` ended, or cannot be reached; its part of the graph is gone."""

    def __init__(self, shard: int, shards: int, address: str) -> None:
        self.shard = shard
        super().__init__(
            f"shard {shard} of {shards} at {address} is lost: its process ended or is out of reach"
        )


class ClusterUnavailable(ShardLost):
    """The Dask cluster at `address` cannot run shards, for `reason`, which may pass."""

    def __init__(self, address: str, reason: str) -> None:
        EngineError.__init__(self, f"the Dask cluster at {address} {reason}")
