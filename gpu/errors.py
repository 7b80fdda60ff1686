"""What can go wrong in the engine.

EngineError
├── InvalidValue          an option or a batch names a value that cannot be used
│   └── UnknownVertex     an id is not that of a vertex
├── DeviceLost            the device answers no more, and cannot in this process
├── OutOfMemory           the request does not fit; the graph is as it was
└── BackendUnavailable    this machine cannot run the backend that was asked for
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of every error that the engine raises on purpose."""


class InvalidValue(EngineError, ValueError):
    """`field` holds `value`, but must satisfy `requirement`."""

    def __init__(self, field: str, value: object, requirement: str) -> None:
        self.field = field
        self.value = value
        self.requirement = requirement
        super().__init__(f"{field}: {value!r} is not allowed; it must be {requirement}")


class UnknownVertex(InvalidValue):
    """`field` names an id that no vertex has: it is out of range, or free since one was removed."""


class DeviceLost(EngineError):
    """A fault on the device has ended its context: only a new process can use it again."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"the device is lost: {reason}")


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
