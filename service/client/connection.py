"""Requests to one server, with retries if they are safe."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from service.client.errors import ServerError, ServerUnreachable
from service.client.types import Key

CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 600.0
"""A receipt follows the ranking, which takes minutes for a large new graph."""

RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each retry after a lost connection."""

SILENCE_SECONDS = 45.0
"""Without any byte of a stream for this long, the connection is lost: the server sends a comment
every 15 seconds.
"""

QUEUE_SECONDS = 600.0
"""How long to retry while the server's queue is full."""


class Connection:
    """Not thread-safe: a connection is kept between calls."""

    def __init__(
        self, url: str, api_key: str | None, transport: httpx.BaseTransport | None
    ) -> None:
        self.url = url.rstrip("/")
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
                timeout=httpx.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS),
                transport=transport,
            )
        except httpx.InvalidURL as error:
            raise ServerUnreachable(url, str(error)) from error

    def close(self) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the server is ready; one attempt, and no error."""
        try:
            return self._http.get("/readyz", timeout=CONNECT_SECONDS).is_success
        except httpx.TransportError:
            return False

    def call(self, method: str, path: str, *, repeatable: bool = False, **request: Any) -> Any:
        """The body of the response. Retries while the queue is full and, if the request is
        repeatable, after a lost connection.

        Raises ServerError, ServerUnreachable.
        """
        patient_until = time.monotonic() + QUEUE_SECONDS
        while True:
            response = self._attempt(method, path, repeatable, request)
            if response.status_code != httpx.codes.TOO_MANY_REQUESTS:
                break
            # The server accepted nothing, and says when to retry.
            pause = float(response.headers.get("Retry-After", "1"))
            if time.monotonic() + pause > patient_until:
                break
            time.sleep(pause)
        if response.is_success:
            return response.json() if response.content else None
        raise ServerError(response.status_code, _problem_of(response))

    def events(self, path: str, last: str | None, **request: Any) -> Iterator[dict[str, Any]]:
        """Server-sent events: the members of each, with its name as ``event``, and its ``id``.
        Reconnects after a lost connection, and continues after the last event.

        Raises ServerError, also when the server ends the stream, and ServerUnreachable.
        """
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        pauses = iter(RETRY_PAUSES)
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            try:
                with self._http.stream(
                    "GET", path, headers=headers, timeout=timeout, **request
                ) as response:
                    if not response.is_success:
                        response.read()
                        raise ServerError(response.status_code, _problem_of(response))
                    for event in _events(response.iter_lines()):
                        if event["event"] == "end":
                            raise ServerError(event["status"], event)
                        pauses, last = iter(RETRY_PAUSES), event["id"]
                        yield event
                reason = "the stream ended"
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
            pause = next(pauses, None)
            if pause is None:
                raise ServerUnreachable(self.url, reason)
            time.sleep(pause)

    def _attempt(
        self, method: str, path: str, repeatable: bool, request: dict[str, Any]
    ) -> httpx.Response:
        """Any response."""
        for pause in (*RETRY_PAUSES, None) if repeatable else (None,):
            try:
                return self._http.request(method, path, **request)
            except httpx.TransportError as error:
                # A second timeout would take as long, and an invalid URL remains invalid.
                hopeless = isinstance(error, httpx.ReadTimeout | httpx.UnsupportedProtocol)
                if pause is None or hopeless:
                    raise ServerUnreachable(self.url, str(error) or type(error).__name__) from error
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream, without its comments."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "data" in fields:
                about = {"event": fields["event"], "id": fields.get("id")}
                yield {**about, **json.loads(fields["data"])}
            fields = {}


def path_of(*parts: Key) -> str:
    return "/" + "/".join(_segment(str(part)) for part in parts)


def _segment(text: str) -> str:
    """One segment of a path. A bare `.` or `..` would mean a directory, so it is escaped too."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def _problem_of(response: httpx.Response) -> Mapping[str, Any]:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {"title": response.reason_phrase, "detail": response.text[:200]}
