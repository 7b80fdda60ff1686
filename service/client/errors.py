"""Errors of the client.

ClientError
├── ServerError        the server refused, with a problem document
└── ServerUnreachable  the server did not respond
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
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
    """`url` did not answer, for `reason`."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"no answer from {url} ({reason}); is `liverank serve` running there?")
