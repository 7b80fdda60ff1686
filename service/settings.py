"""Every setting, its default and its meaning: the one place that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, get_args

from gpu.types import BackendName

PREFIX = "LIVERANK_"

LogFormat = Literal["text", "json"]

SHORTEST_API_KEY = 32
"""Characters of LIVERANK_API_KEY: its hash is a fast one, so the key itself must defy guessing."""

_SWITCHES = {"1": True, "true": True, "0": False, "false": False}
_LARGEST = 2**40


class InvalidSetting(ValueError):
    """A setting, named as its environment variable is, that cannot be used."""

    def __init__(self, field: str, value: object, requirement: str) -> None:
        super().__init__(f"{PREFIX}{field.upper()}: {value!r} must be {requirement}")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one server runs. Each field can be set by the environment variable ``LIVERANK_<FIELD>``.

    data                     the directory that holds every graph; one server at a time uses it
    host, port               where the server listens
    backend                  ``auto`` takes CUDA where there is a device, else the CPU
    checkpoint_bytes         a graph's checkpoint is due when its journal has grown by so many
                             bytes, and by as many as the last checkpoint has
    checkpoint_seconds       and so many seconds after a change at the latest
    max_body_bytes           a longer body is refused with 413, decompressed too
    api_key                  an administrator's key, as long as the server runs with it
    insecure                 start without keys where other machines can connect
    log_format               ``text`` for people, ``json`` for machines: one object a line
    slow_batch_seconds       a batch that takes longer is logged, with where its time went
    max_batch_edges          a batch with more edges and vertices is refused with 413
    max_key_bytes            a longer key of a vertex is refused with 422
    max_queue_batches        batches and computations of one graph that are not ended;
                             one more is refused with 429
    max_queue_bytes          bytes that these batches hold
    max_receiving_bytes      bytes of all bodies that are being received or parsed; more is 503
    max_connections          one more is closed at once
    max_concurrent_requests  requests at work, of those that read and of the others; more is 503
    max_graphs               one more is refused with 507
    slow_client_seconds      to send a request's head, to begin to send its body, to take an answer
    """

    data: Path = Path("liverank-data")
    host: str = "127.0.0.1"
    port: int = 8080
    backend: BackendName = "auto"
    max_body_bytes: int = 256 * 1024 * 1024
    checkpoint_bytes: int = 64 * 1024 * 1024
    checkpoint_seconds: int = 300
    api_key: str | None = field(default=None, repr=False)
    insecure: bool = False
    log_format: LogFormat = "text"
    slow_batch_seconds: float = 1.0
    max_batch_edges: int = 50_000_000
    max_key_bytes: int = 4096
    max_queue_batches: int = 256
    max_queue_bytes: int = 512 * 1024 * 1024
    max_receiving_bytes: int = 1024 * 1024 * 1024
    max_connections: int = 1000
    max_concurrent_requests: int = 400
    max_graphs: int = 64
    slow_client_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not str(self.data):  # which would be the working directory
            raise InvalidSetting("data", "", "the path of a directory")
        object.__setattr__(self, "data", Path(self.data))
        for limit in fields(self):
            if limit.name.startswith("max_"):
                value = _integer(limit.name, getattr(self, limit.name), 1, _LARGEST)
                object.__setattr__(self, limit.name, value)
        for name, least, most in (
            ("checkpoint_bytes", 1, 2**50),
            ("checkpoint_seconds", 1, 10**9),
            ("port", 0, 65_535),
        ):
            object.__setattr__(self, name, _integer(name, getattr(self, name), least, most))
        for name, low, high in (
            ("slow_batch_seconds", 0.0, 86_400.0),
            ("slow_client_seconds", 0.1, 86_400.0),
        ):
            object.__setattr__(self, name, _number(name, getattr(self, name), low, high))
        object.__setattr__(self, "insecure", _switch("insecure", self.insecure))
        _one_of("backend", self.backend, get_args(BackendName))
        _one_of("log_format", self.log_format, get_args(LogFormat))
        if self.api_key is not None and not _is_strong(self.api_key):
            # Not what was given: a message can end in a log.
            raise InvalidSetting(
                "api_key",
                f"{len(self.api_key)} characters",
                f"{SHORTEST_API_KEY} or more visible ASCII characters, drawn at random",
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, **overrides: Any
    ) -> Settings:
        """The defaults, then the environment (``os.environ``), then `overrides` that are not None.

        Raises InvalidSetting.
        """
        source = os.environ if environment is None else environment
        values: dict[str, Any] = {
            field.name: source[name]
            for field in fields(cls)
            if (name := PREFIX + field.name.upper()) in source
        }
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)


def _integer(field: str, value: object, low: int, high: int) -> int:
    requirement = f"an integer from {low} to {high}"
    try:
        number = int(str(value))
    except ValueError:
        raise InvalidSetting(field, value, requirement) from None
    if not low <= number <= high:
        raise InvalidSetting(field, value, requirement)
    return number


def _number(field: str, value: object, low: float, high: float) -> float:
    requirement = f"a number from {low:g} to {high:g}"
    try:
        number = float(str(value))
    except ValueError:
        raise InvalidSetting(field, value, requirement) from None
    if not low <= number <= high:
        raise InvalidSetting(field, value, requirement)
    return number


def _switch(field: str, value: object) -> bool:
    try:
        return _SWITCHES[str(value).lower()]
    except KeyError:
        raise InvalidSetting(field, value, "one of " + ", ".join(_SWITCHES)) from None


def _one_of(field: str, value: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise InvalidSetting(field, value, "one of " + ", ".join(accepted))


def _is_strong(key: str) -> bool:
    return len(key) >= SHORTEST_API_KEY and all("!" <= character <= "~" for character in key)
