"""What a session needs of a broker, and where one is."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from liverank.errors import InvalidInput
from liverank.sources.consumer import Letter
from liverank.sources.messages import Message

Take = Callable[[str, Awaitable["list[Message]"]], Awaitable[bool]]
"""Called for each group of messages of a partition, in order. It does not raise, also not what the
messages raise; False: the session ends, and nothing more is taken.
"""

broker_log = logging.getLogger("liverank.consume.broker")
"""What FastStream reports; each message only at the level DEBUG."""

CREDENTIALS = "LIVERANK_SOURCE_CREDENTIALS"

_TLS = {"rediss", "tls", "amqps", "kafkas"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is, and what to read there.

    place        the stream, subject, topic or queue
    credentials  user and password; None: none
    size         messages in a group
    linger       seconds until a smaller group is complete
    """

    url: str
    place: str
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    dead_letter: str | None = None
    size: int = 10_000
    linger: float = 0.05

    def __post_init__(self) -> None:
        """Raises InvalidInput."""
        if "@" in urlsplit(self.url).netloc:
            expected = f"expected no credentials: {CREDENTIALS} or a file has them"
            raise InvalidInput("url", expected)

    @property
    def security(self) -> Any:
        """For FastStream; None without credentials and TLS."""
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


class Broker(Protocol):
    """One broker, and one place of it."""

    name: str
    """As in the names of sources."""

    has_positions: bool

    def connected(self) -> AbstractAsyncContextManager[Connection]:
        """A connection. Raises Interrupted."""


class Connection(Protocol):
    async def subscribe(self, positions: Mapping[str, str], take: Take) -> None:
        """Takes what follows the positions. Raises CannotContinue if the broker no longer has it.

        positions  by partition, the current ones at any time
        """

    async def ping(self) -> bool:
        """Whether the broker answers."""

    async def keep(self, letter: Letter) -> None:
        """Stores a dead letter. Raises Interrupted."""


async def parsed(raw: Any) -> Any:
    """FastStream's message without a body: its own parsers copy and decode each of a group."""
    from faststream.message import StreamMessage

    return StreamMessage(raw_message=raw, body=b"")


async def decoded(message: Any) -> Any:
    """What the handler gets."""
    return message.raw_message
