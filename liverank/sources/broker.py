"""What a session needs of a broker, and where one is."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from liverank.errors import InvalidInput
from liverank.sources.consumer import CannotContinue, Interrupted, Letter
from liverank.sources.messages import Message

Take = Callable[[str, Awaitable["list[Message]"]], Coroutine[Any, Any, bool]]
"""Called for each group of messages of a partition, in order. It does not raise, also not what the
messages raise; False: the session ends, and nothing more is taken. A group may be empty.
"""

Refresh = Callable[[], Coroutine[Any, Any, None]]
"""Reads the positions from the server again. Raises Interrupted and ClientError."""

broker_log = logging.getLogger("liverank.consume.broker")
"""What FastStream reports; each message only at the level DEBUG."""

CREDENTIALS = "LIVERANK_SOURCE_CREDENTIALS"

CONNECT_SECONDS = 5
PING_SECONDS = 1.0

_TLS = {"rediss", "tls", "amqps", "kafkas"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is, and what to read there.

    place        the stream, subject, topic or queue
    credentials  user and password; None: none
    size         messages in a group
    linger       seconds until a smaller group is complete
    consumers    the name that consumers share which share the partitions of a topic of Kafka
    """

    url: str
    place: str
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    dead_letter: str | None = None
    size: int = 10_000
    linger: float = 0.05
    consumers: str = "liverank"

    def __post_init__(self) -> None:
        """Raises InvalidInput."""
        if "@" in urlsplit(self.url).netloc:
            expected = f"expected no credentials: {CREDENTIALS} or a file has them"
            raise InvalidInput("url", expected)

    @property
    def options(self) -> dict[str, Any]:
        """The options that FastStream has for every broker."""
        return {
            "security": self._security,
            "parser": _parsed,
            "decoder": _decoded,
            "apply_types": False,
            "logger": broker_log,
            "log_level": logging.DEBUG,
        }

    @property
    def _security(self) -> Any:
        """None without credentials and TLS."""
        import ssl

        from faststream.security import BaseSecurity, SASLPlaintext

        is_tls = urlsplit(self.url).scheme in _TLS
        context = ssl.create_default_context() if is_tls else None
        if self.credentials is not None:
            user, password = self.credentials
            return SASLPlaintext(user, password, ssl_context=context, use_ssl=is_tls)
        return BaseSecurity(ssl_context=context, use_ssl=True) if is_tls else None


def credentials_of(file: Path | None) -> tuple[str, str] | None:
    """User and password, `USER:PASSWORD` in the file or, without one, in the environment.

    Raises InvalidInput, without the text.
    """
    text = os.environ.get(CREDENTIALS, "") if file is None else file.read_text("utf-8")
    if not text.strip():
        return None
    user, colon, password = text.strip().partition(":")
    if not colon:
        raise InvalidInput("credentials", "expected USER:PASSWORD")
    return user, password


class Connection(ABC):
    """A connection to a broker, and one place of it. `open` is called first, and once.

    name           of the kind of broker, as in the names of sources
    has_positions  whether consumption can resume at a position of the place
    refusals       exceptions of the broker's client that another attempt cannot resolve
    failures       those that it may
    """

    name: ClassVar[str]
    has_positions: ClassVar[bool] = True
    refusals: ClassVar[tuple[type[Exception], ...]]
    failures: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, address: Address) -> None:
        self.address = address
        self.broker: Any = self.create()

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: Address) -> AsyncIterator[Self]:
        """One that is open. Raises Interrupted and CannotContinue."""
        connection = cls(address)
        try:
            await connection.open()
            yield connection
        finally:
            await connection.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises Interrupted where another attempt may succeed, else CannotContinue."""
        failures: tuple[type[Exception], ...] = (*self.failures, OSError, TimeoutError)
        try:
            yield
        except self.refusals as error:
            raise CannotContinue(f"{self.name}: {error}") from error
        except failures as error:
            raise Interrupted(f"{self.name}: {str(error) or repr(error)}") from error

    @abstractmethod
    def create(self) -> Any:
        """FastStream's broker."""

    async def open(self) -> None:
        """Raises Interrupted and CannotContinue."""
        with self.errors():
            await self.broker.connect()

    @abstractmethod
    async def subscribe(self, positions: Mapping[str, str], take: Take, refresh: Refresh) -> None:
        """Takes what follows the positions. Raises CannotContinue if the broker no longer has it.

        positions  by partition, the current ones at any time
        """

    async def ping(self) -> bool:
        """Whether the broker answers."""
        return bool(await self.broker.ping(timeout=PING_SECONDS))

    @abstractmethod
    async def keep(self, letter: Letter) -> None:
        """Stores a dead letter. Raises Interrupted and CannotContinue."""

    async def close(self) -> None:
        try:
            await self.broker.stop()
        except Exception:  # such as that the connection is lost, which has its own error
            broker_log.debug("the connection was not closed", exc_info=True)


class ReadAhead:
    """Takes groups of messages one after the other, while the next one is read."""

    def __init__(self) -> None:
        self._taking: asyncio.Task[bool] | None = None

    async def take(self, begin: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Returns when the groups before are taken; what `begin` calls, Take, continues."""
        if self._taking is not None:
            await self._taking
        self._taking = asyncio.create_task(begin())

    def cancel(self) -> None:
        """What was sent may be committed or not; only the stored position says."""
        if self._taking is not None:
            self._taking.cancel()


def number_of(position: str) -> int:
    """A stored position that is a number. Raises CannotContinue for another one."""
    if not (position.isascii() and position.isdecimal()):
        raise CannotContinue(f"stored position: expected a number, got {position!r}")
    return int(position)


async def _parsed(raw: Any) -> Any:
    """FastStream's message without a body: its own parsers copy and decode each of a group."""
    from faststream.message import StreamMessage

    return StreamMessage(raw_message=raw, body=b"")


async def _decoded(message: Any) -> Any:
    """What the handler gets."""
    return message.raw_message
