"""Tables that a server streams: the ranks of all vertices, all edges, the values of an analysis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import httpx
import msgspec

from liverank.client.call import Call, Described, P
from liverank.client.connection import CONNECT_SECONDS, RESPONSE_SECONDS, unreachable
from liverank.errors import InvalidInput, ServerUnreachable, needs
from liverank.files import whole_file
from liverank.options import given
from liverank.tables import Tabular

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["csv", "ndjson", "arrow", "parquet"]

MEDIA_TYPES: dict[str, str] = {
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}

TIMEOUT = httpx.Timeout(RESPONSE_SECONDS, connect=CONNECT_SECONDS)


class Exported(msgspec.Struct, frozen=True):
    """What was exported.

    revision, error_bound  of ranks; None for others
    """

    version: int
    revision: int | None
    error_bound: float | None
    bytes: int


def export_call(path: str, format: str, **query: Any) -> Call[None]:  # noqa: A002
    """Raises InvalidInput."""
    if format not in MEDIA_TYPES:
        raise InvalidInput("format", f"expected one of {', '.join(MEDIA_TYPES)}, got {format!r}")
    headers = {"Accept": MEDIA_TYPES[format]}
    return Call(
        method="GET",
        path=path,
        query=given(**query),
        headers=headers,
        parse=lambda _: None,
        repeatable=True,
    )


class Export(Tabular):
    """A table on the server. Each use requests it: iteration, `save`, and the conversions, which
    need pyarrow.

    client.export_ranks("default").to_arrow()
    client.export_edges("default", format="parquet").save("edges.parquet")
    """

    def __init__(
        self, call: Call[None], opened: Callable[[Call[None]], httpx.Response], url: str
    ) -> None:
        self._call = call
        self._opened = opened
        self._url = url

    def __iter__(self) -> Iterator[bytes]:
        """Its bytes in pieces. Raises ServerError, and ServerUnreachable if it is incomplete."""
        with closing(self._opened(self._call)) as response:
            yield from self._pieces(response)

    def save(self, file: str | Path | IO[bytes]) -> Exported:
        """Writes it to an open file, or to a path: a file there is replaced once it is complete."""
        with closing(self._opened(self._call)) as response, _written(file) as write:
            for piece in self._pieces(response):
                write(piece)
            return _exported(response.headers, response.num_bytes_downloaded)

    def to_arrow(self) -> pa.Table:
        """Columns `vertex` and `rank`, or `source`, `target` and, of a weighted graph, `weight`, or
        `vertex` and `value`, or `source`, `target` and `value`. The schema's metadata has the
        version, of ranks also the revision and the error bound.
        """
        return _table(Export(_as_arrow(self._call), self._opened, self._url))

    def _pieces(self, response: httpx.Response) -> Iterator[bytes]:
        _check_type(response, self._call, self._url)
        try:
            yield from response.iter_bytes()
        except httpx.RequestError as error:
            raise unreachable(self._url, error) from error


class AsyncExport:
    """`Export` for asyncio: iterated by ``async for``; its methods are awaited."""

    def __init__(
        self,
        call: Call[None],
        opened: Callable[[Call[None]], Awaitable[httpx.Response]],
        url: str,
    ) -> None:
        self._call = call
        self._opened = opened
        self._url = url

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(await self._opened(self._call)) as response:
            async for piece in self._pieces(response):
                yield piece

    async def save(self, file: str | Path | IO[bytes]) -> Exported:
        """`Export.save`."""
        async with aclosing(await self._opened(self._call)) as response:
            with _written(file) as write:
                async for piece in self._pieces(response):
                    write(piece)
                return _exported(response.headers, response.num_bytes_downloaded)

    async def to_arrow(self) -> pa.Table:
        """`Export.to_arrow`."""
        arrow = AsyncExport(_as_arrow(self._call), self._opened, self._url)
        return _table([piece async for piece in arrow])

    async def _pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        _check_type(response, self._call, self._url)
        try:
            async for piece in response.aiter_bytes():
                yield piece
        except httpx.RequestError as error:
            raise unreachable(self._url, error) from error


class export(Described[P, None, Export, AsyncExport]):  # noqa: N801
    """The response is a streamed table, which the method does not request yet."""

    method = "_export"


def _check_type(response: httpx.Response, call: Call[None], url: str) -> None:
    """Raises ServerUnreachable for another server's page."""
    expected, got = call.headers["Accept"], response.headers.get("content-type", "no type")
    if got.partition(";")[0] != expected:
        raise ServerUnreachable(url, f"expected {expected}, got {got}")


def _as_arrow(call: Call[None]) -> Call[None]:
    return replace(call, headers={**call.headers, "Accept": MEDIA_TYPES["arrow"]})


def _table(pieces: Iterable[bytes]) -> pa.Table:
    with needs("engine"):
        import pyarrow as pa
    return pa.ipc.open_stream(b"".join(pieces)).read_all()


@contextmanager
def _written(file: str | Path | IO[bytes]) -> Iterator[Callable[[bytes], object]]:
    if not isinstance(file, str | Path):
        yield file.write
        return
    with whole_file(Path(file)) as path, path.open("wb") as stream:
        yield stream.write


def _exported(headers: Mapping[str, str], size: int) -> Exported:
    members = {name: headers.get(f"liverank-{name}") for name in ("version", "revision")}
    members["error_bound"] = headers.get("liverank-error-bound")
    return msgspec.convert({**members, "bytes": size}, Exported, strict=False)
