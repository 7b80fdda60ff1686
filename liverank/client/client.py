"""The clients: one sends its calls at once, the other when they are awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import aclosing, closing
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, Self

import httpx
import tenacity
from httpx_sse import EventSource

from liverank.choices import Rank
from liverank.client import exports
from liverank.client.batches import Batch, Body, Edges, batch_body, batch_call, new_key
from liverank.client.call import Asynchronous, Call, Synchronous, T
from liverank.client.calls import Calls
from liverank.client.connection import (
    START_SECONDS,
    Patience,
    Retries,
    http_options,
    refusal_of,
    request_options,
    result_of,
    result_without,
    unreachable,
)
from liverank.client.events import TIMEOUT, Position
from liverank.client.exports import AsyncExport, Export
from liverank.client.responses import Accepted, Outcome, Receipt, Rejected
from liverank.edges import Columns
from liverank.errors import InvalidInput, ServerError


class Client(Synchronous, Calls):
    """One server. Threads may share it: connections are kept in a pool.

    with Client() as client:
        receipt = client.send("default", insert=[("a", "b"), ("b", "c")])
        for place in client.top("default", k=3, min_version=receipt.version).ranks:
            print(place.vertex, place.rank)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        start_seconds: float = START_SECONDS,
        waiting: Callable[[str], object] | None = None,
        connect_seconds: float | None = None,
    ) -> None:
        """url              None: LIVERANK_URL, or http://127.0.0.1:8080 if it is not set
        api_key          sent with every call; None: LIVERANK_API_KEY, if it is set; empty: none
        start_seconds    how long a call is repeated while the server is starting, which may take
                         minutes where large graphs are recovered
        waiting          called with the reason before each of these repetitions
        connect_seconds  how long a call is repeated if no connection can be made, such as to a
                         server that is not there yet; None: about 4, as after a lost connection

        Raises InvalidInput for an address that does not begin with http:// or https://.
        """
        options = http_options(url, api_key)
        self.url: str = options["base_url"]
        self._patience = Patience(start_seconds, waiting, connect_seconds)
        self._http = httpx.Client(**options, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def _run(self, call: Call[T]) -> T:
        attempts = tenacity.Retrying(**Retries(call, self._patience).options())
        try:
            response = attempts(self._http.request, **request_options(call))
        except httpx.RequestError as error:
            return result_without(call, self.url, error)
        return result_of(call, response, self.url)

    def _follow(self, call: Call[T]) -> Iterator[T]:
        position = Position(call, self.url)
        while True:
            lost: httpx.RequestError | None = None
            with closing(self._open(position.call)) as response:
                try:
                    for received in EventSource(response).iter_sse():
                        if not received.data:  # httpx-sse makes an event of a ping
                            continue
                        event = position.event(received)
                        if event is None:
                            break
                        yield event
                except httpx.RequestError as error:
                    lost = error
            time.sleep(position.pause(lost))

    def _export(self, call: Call[None]) -> Export:
        return Export(call, partial(self._open, timeout=exports.TIMEOUT), self.url)

    def _open(self, call: Call[Any], timeout: httpx.Timeout = TIMEOUT) -> httpx.Response:
        """The response of a stream, of which nothing is read yet. Raises ClientError."""
        request = self._http.build_request(**request_options(call) | {"timeout": timeout})
        attempts = tenacity.Retrying(**Retries(call, self._patience).options())
        try:
            response: httpx.Response = attempts(self._send_stream, request)
        except httpx.RequestError as error:
            raise unreachable(self.url, error) from error
        if not response.is_success:
            raise refusal_of(response)
        return response

    def _send_stream(self, request: httpx.Request) -> httpx.Response:
        response = self._http.send(request, stream=True)
        if not response.is_success:
            response.read()
        return response

    def send_all(
        self,
        graph: str,
        batches: Iterable[Batch | Edges],
        *,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        time: str | None = None,
        key: str | None = None,
    ) -> list[Receipt]:
        """Sends batches one after the other, each once the iterator has yielded the next one, which
        is read while it is sent. Only the last is ranked, which ranks all; returns the receipts of
        all.

        batches  each a Batch, or edges to insert as `insert` takes them. Each is read completely
                 before the iterator is asked for the next one, on another thread, where a cursor of
                 SQLite cannot be read
        key      the start of their idempotency keys: a stream that is sent again with it is
                 applied once; None: a new one

        Raises InvalidInput if there are none, or if a batch before the last has a strategy, a form
        or a trace; ServerError if a batch was rejected. Those sent before are applied.
        """
        stream = _Stream(graph, Columns(source, target, weight, time), key)
        for batch in batches:
            made = stream.making(batch)
            if stream.is_waiting:
                if stream.applied is not None:
                    stream.check(self.batch(graph, stream.applied))
                stream.versions.append(self._run(stream.accepted()).version)
            stream.put(made.result())
        last = self._run(stream.last())
        return [*(stream.receipt(self.batch(graph, one)) for one in stream.versions), last]


class AsyncClient(Asynchronous, Calls):
    """`Client` for asyncio: its calls are awaited. One event loop at a time may use it.

    async with AsyncClient() as client:
        receipt = await client.send("default", insert=[("a", "b"), ("b", "c")])
        top = await client.top("default", k=3, min_version=receipt.version)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        start_seconds: float = START_SECONDS,
        waiting: Callable[[str], object] | None = None,
        connect_seconds: float | None = None,
    ) -> None:
        """The arguments of Client."""
        options = http_options(url, api_key)
        self.url: str = options["base_url"]
        self._patience = Patience(start_seconds, waiting, connect_seconds)
        self._http = httpx.AsyncClient(**options, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def _run(self, call: Call[T]) -> T:
        attempts = tenacity.AsyncRetrying(**Retries(call, self._patience).options())
        try:
            response: httpx.Response = await attempts(self._http.request, **request_options(call))
        except httpx.RequestError as error:
            return result_without(call, self.url, error)
        return result_of(call, response, self.url)

    async def _follow(self, call: Call[T]) -> AsyncIterator[T]:
        position = Position(call, self.url)
        while True:
            lost: httpx.RequestError | None = None
            async with aclosing(await self._open(position.call)) as response:
                try:
                    async for received in EventSource(response).aiter_sse():
                        if not received.data:  # httpx-sse makes an event of a ping
                            continue
                        event = position.event(received)
                        if event is None:
                            break
                        yield event
                except httpx.RequestError as error:
                    lost = error
            await asyncio.sleep(position.pause(lost))

    def _export(self, call: Call[None]) -> AsyncExport:
        return AsyncExport(call, partial(self._open, timeout=exports.TIMEOUT), self.url)

    async def _open(self, call: Call[Any], timeout: httpx.Timeout = TIMEOUT) -> httpx.Response:
        """The response of a stream, of which nothing is read yet. Raises ClientError."""
        request = self._http.build_request(**request_options(call) | {"timeout": timeout})
        attempts = tenacity.AsyncRetrying(**Retries(call, self._patience).options())
        try:
            response: httpx.Response = await attempts(self._send_stream, request)
        except httpx.RequestError as error:
            raise unreachable(self.url, error) from error
        if not response.is_success:
            raise refusal_of(response)
        return response

    async def _send_stream(self, request: httpx.Request) -> httpx.Response:
        response = await self._http.send(request, stream=True)
        if not response.is_success:
            await response.aread()
        return response

    async def send_all(
        self,
        graph: str,
        batches: Iterable[Batch | Edges] | AsyncIterable[Batch | Edges],
        *,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        time: str | None = None,
        key: str | None = None,
    ) -> list[Receipt]:
        """`Client.send_all`; the batches may come from an asynchronous iterator."""
        stream = _Stream(graph, Columns(source, target, weight, time), key)
        async for batch in _iterated(batches):
            made = stream.making(batch)
            if stream.is_waiting:
                if stream.applied is not None:
                    stream.check(await self.batch(graph, stream.applied))
                stream.versions.append((await self._run(stream.accepted())).version)
            stream.put(await asyncio.wrap_future(made))
        last = await self._run(stream.last())
        return [*[stream.receipt(await self.batch(graph, one)) for one in stream.versions], last]


class _Stream:
    """The calls of a stream of batches: only the last of them waits for its ranks.

    versions  of the batches on disk
    """

    def __init__(self, graph: str, columns: Columns, key: str | None) -> None:
        self.versions: list[int] = []
        self._graph = graph
        self._columns = columns
        self._key = key or new_key()
        self._number = 0
        self._made: tuple[Batch, Body] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a batch is still to be sent."""
        return self._made is not None

    def making(self, given: Batch | Edges) -> Future[tuple[Batch, Body]]:
        """Reads a batch on another thread; its InvalidInput is that of the result. Nothing waits
        for the thread if the result is not asked for, as an executor would, also when Python ends.
        """
        made = Future[tuple[Batch, Body]]()
        made.set_running_or_notify_cancel()  # a task that is cancelled does not cancel it

        def make() -> None:
            try:
                batch = given if isinstance(given, Batch) else Batch(given)
                made.set_result((batch, batch_body(batch, self._columns)))
            except BaseException as error:
                made.set_exception(error)

        Thread(target=make, name="liverank-batches", daemon=True).start()
        return made

    def put(self, made: tuple[Batch, Body]) -> None:
        self._made = made
        self._number += 1

    @property
    def applied(self) -> int | None:
        """The newest version that is applied or rejected: the server applies a batch before it
        writes the next to disk. Checked before each batch is sent, so that a rejection ends a long
        stream early; the outcome of an applied batch is pending until the last one is ranked.
        """
        return self.versions[-2] if len(self.versions) > 1 else None

    def check(self, outcome: Outcome) -> None:
        """Raises ServerError if the batch was rejected."""
        if isinstance(outcome, Rejected):
            status = int(outcome.problem.get("status", httpx.codes.INTERNAL_SERVER_ERROR))
            detail = f"batch {outcome.version}: {outcome.problem.get('detail', outcome.status)}"
            raise ServerError(status, {**outcome.problem, "detail": detail})

    def receipt(self, outcome: Outcome) -> Receipt:
        """The outcome of a batch before the last, once that is ranked. Raises as `check`."""
        self.check(outcome)
        assert isinstance(outcome, Receipt), outcome
        return outcome

    def accepted(self) -> Call[Accepted]:
        """Sends the batch that waits, which is not the last. Raises InvalidInput if it says how to
        rank it.
        """
        assert self._made is not None
        for name in ("strategy", "form", "trace"):
            if getattr(self._made[0], name):
                message = f"expected no {name}, since only the last batch of a stream is ranked"
                raise InvalidInput("batches", f"batch {self._number}: {message}")
        return self._call("durable", Accepted, "later")

    def last(self) -> Call[Receipt]:
        """Sends the batch that waits, which is the last. Raises InvalidInput if there is none."""
        if self._made is None:
            raise InvalidInput("batches", "expected at least one batch, got none")
        return self._call("ranked", Receipt)

    def _call(self, wait: str, result: type[T], rank: Rank = "now") -> Call[T]:
        assert self._made is not None
        key = f"{self._key}-{self._number}"
        return batch_call(self._graph, *self._made, wait, key, result, rank=rank)


async def _iterated(batches: Any) -> AsyncIterator[Any]:
    if isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield batch
    else:
        for batch in batches:
            yield batch
