"""Errors of the package.

LiverankError
├── ClientError
│   ├── ServerError        the server refused, with a problem document
│   └── ServerUnreachable  the server did not respond
├── InvalidInput           an argument that cannot be used
└── MissingPackage         a package of an extra is not installed

The engine raises its own errors: liverank_gpu.EngineError. UnusedWeights is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class LiverankError(Exception):
    """Base of every error of this package."""


class InvalidInput(LiverankError, ValueError):
    """`field` is the argument, or the column of a frame, that cannot be used."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}")


class UnusedWeights(UserWarning):
    """A warning: the data has weights by their name, and was ranked without them."""


class MissingPackage(LiverankError, ImportError):
    """`package` is not installed; the message names the extra that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        ImportError.__init__(
            self,
            f"{package} is not installed: pip install -e '.[{extra}]' in the clone of liverank",
            name=package,
        )


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Raises MissingPackage if an import inside fails because a package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingPackage(error.name or "a package", extra) from error


class ClientError(LiverankError):
    """Base of every error of the client."""


class ServerError(ClientError):
    """The server refused: `status`, and the problem document (RFC 9457) with its title, detail and
    field.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.title = str(problem.get("title") or f"HTTP status {status}")
        self.detail = str(problem.get("detail") or "")
        self.field: str | None = problem.get("field")
        message = f"{self.title}: {self.detail}" if self.detail else self.title
        if self.field and self.field not in message:
            message = f"{self.field}: {message}"
        super().__init__(message)


class ServerUnreachable(ClientError):
    """`url` did not answer, for `reason`.

    responded  whether something responded there, which is no answer: a repeat does not help
    """

    def __init__(self, url: str, reason: str, *, responded: bool = False) -> None:
        self.url = url
        self.reason = reason
        self.responded = responded
        super().__init__(f"no answer from {url} ({reason}); is `liverank serve` running there?")
