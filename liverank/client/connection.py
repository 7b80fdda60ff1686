"""What both clients do about addresses, retries and refusals."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

import httpx
import msgspec
import tenacity

from liverank.client.call import Call, T
from liverank.errors import InvalidInput, ServerError, ServerUnreachable

DEFAULT_URL = "http://127.0.0.1:8080"

CONNECT_SECONDS = 5.0
RESPONSE_SECONDS = 600.0
"""A receipt follows the ranking, which takes minutes for a large new graph."""

RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each retry after a lost connection, less up to a quarter at random."""

QUEUE_SECONDS = 600.0
"""How long to retry while the queue of the graph is full (429)."""

BUSY_SECONDS = 30.0
"""How long to retry while the server is busy (503 with Retry-After)."""

START_SECONDS = 30.0
"""How long to retry while the server is starting or stopping, unless the client says otherwise."""

_NOT_READY = "urn:liverank:problem:not-ready"

_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout)


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def http_options(url: str | None, api_key: str | None) -> dict[str, Any]:
    """Arguments of both HTTP clients. None: LIVERANK_URL and LIVERANK_API_KEY, if they are set.

    Raises InvalidInput for an address that is none.
    """
    key = os.environ.get("LIVERANK_API_KEY") if api_key is None else api_key
    base_url = (url or os.environ.get("LIVERANK_URL") or DEFAULT_URL).rstrip("/")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if is_loopback(_host_of(base_url)):
        headers["Accept-Encoding"] = "identity"  # a connection to this machine is faster
    return {
        "base_url": base_url,
        "headers": headers,
        "timeout": httpx.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS),
    }


def _host_of(url: str) -> str:
    message = f"expected an address like {DEFAULT_URL}, got {url!r}"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput("url", f"{message}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput("url", message)
    return parsed.host


def request_options(call: Call[Any]) -> dict[str, Any]:
    """Arguments of one HTTP request."""
    options: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query),
        "content": call.body,
        "headers": dict(call.headers),
    }
    if call.otherwise is not None:
        options["timeout"] = CONNECT_SECONDS
    return options


class Patience(NamedTuple):
    """What a client does while the server is starting, or is not there: see Client."""

    start_seconds: float = START_SECONDS
    waiting: Callable[[str], object] | None = None
    connect_seconds: float | None = None


class Retries:
    """When one call is sent again, for tenacity: after a refusal that says when, and after a lost
    connection if the call is repeatable or was not sent.
    """

    def __init__(self, call: Call[Any], patience: Patience) -> None:
        self._call = call
        self._patience = patience
        self._lost = 0
        self._connected = False
        # of all refusals: time that passed for one of them is not held against another
        self._limit = 0.0

    def options(self) -> dict[str, Any]:
        """Arguments of tenacity's Retrying and AsyncRetrying."""
        return {
            "retry": self._is_useful,
            "wait": self._pause,
            "stop": self._is_enough,
            "before_sleep": self._tell,
            "retry_error_callback": _outcome,
        }

    def _is_useful(self, state: tenacity.RetryCallState) -> bool:
        if self._call.otherwise is not None or not self._call.retried:
            return False
        error = _error(state)
        self._connected |= not isinstance(error, _UNSENT)
        if error is None:
            response = _outcome(state)
            busy = response.status_code == httpx.codes.SERVICE_UNAVAILABLE
            return response.status_code == httpx.codes.TOO_MANY_REQUESTS or (
                busy and "Retry-After" in response.headers
            )
        self._lost += 1
        may_repeat = self._call.repeatable or isinstance(error, _UNSENT)
        return isinstance(error, httpx.TransportError) and (
            # a second timeout would take as long
            may_repeat and not isinstance(error, httpx.ReadTimeout)
        )

    def _pause(self, state: tenacity.RetryCallState) -> float:
        if _error(state) is None:
            return _seconds(_outcome(state).headers.get("Retry-After", ""))
        return RETRY_PAUSES[min(self._lost, len(RETRY_PAUSES)) - 1] * random.uniform(0.75, 1.0)

    def _is_enough(self, state: tenacity.RetryCallState) -> bool:
        waited = (state.seconds_since_start or 0.0) + state.upcoming_sleep
        if _error(state) is not None:
            if self._connected or self._patience.connect_seconds is None:
                return self._lost > len(RETRY_PAUSES)
            return waited > self._patience.connect_seconds
        self._limit = max(self._limit, self._seconds_to_retry(_outcome(state)))
        return waited > self._limit

    def _seconds_to_retry(self, refusal: httpx.Response) -> float:
        if refusal.status_code == httpx.codes.TOO_MANY_REQUESTS:
            return QUEUE_SECONDS
        return BUSY_SECONDS if _reason_not_ready(refusal) is None else self._patience.start_seconds

    def _tell(self, state: tenacity.RetryCallState) -> None:
        if self._patience.waiting is None:
            return
        if (error := _error(state)) is None:
            reason = _reason_not_ready(_outcome(state))
        else:
            waits = self._patience.connect_seconds is not None and not self._connected
            reason = str(error) if waits else None
        if reason is not None:
            self._patience.waiting(reason)


def result_of(call: Call[T], response: httpx.Response, url: str) -> T:
    """Raises ServerError, and ServerUnreachable for what no server of this kind responds."""
    if response.is_success:
        try:
            return call.parse(response.content)
        except (msgspec.DecodeError, LookupError, ValueError) as error:
            reason = f"{response.status_code}, but {error}"
            raise ServerUnreachable(url, reason, responded=True) from error
    if call.otherwise is not None:
        return call.otherwise
    raise refusal_of(response)


def refusal_of(response: httpx.Response) -> ServerError:
    return ServerError(response.status_code, _problem_of(response))


def result_without(call: Call[T], url: str, error: httpx.RequestError) -> T:
    """The result where no response came. Raises ServerUnreachable."""
    if call.otherwise is not None:
        return call.otherwise
    raise unreachable(url, error) from error


def unreachable(url: str, error: httpx.RequestError) -> ServerUnreachable:
    return ServerUnreachable(url, str(error) or type(error).__name__)


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    assert state.outcome is not None
    return state.outcome.exception()


def _outcome(state: tenacity.RetryCallState) -> httpx.Response:
    """The last response. Raises the error of the last attempt."""
    assert state.outcome is not None
    response: httpx.Response = state.outcome.result()
    return response


def _seconds(retry_after: str) -> float:
    """1 for a date, which proxies may send."""
    return float(retry_after) if retry_after.isdecimal() else 1.0


def _reason_not_ready(response: httpx.Response) -> str | None:
    """Why the server is not ready; None if that is not why it refused."""
    problem = _problem_of(response)
    return str(problem.get("detail", "")) if problem.get("type") == _NOT_READY else None


def _problem_of(response: httpx.Response) -> Mapping[str, Any]:
    try:
        document = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        document = None
    if isinstance(document, dict):
        return document
    return {"title": response.reason_phrase, "detail": response.text[:200]}
