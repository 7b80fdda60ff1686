"""Every setting, its default and its meaning: the one place that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from gpu.types import BackendName

PREFIX = "LIVERANK_"


class InvalidSetting(ValueError):
    """A setting, named as its environment variable is, that cannot be used."""

    def __init__(self, field: str, value: object, requirement: str) -> None:
        super().__init__(f"{PREFIX}{field.upper()}: {value!r} must be {requirement}")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one server runs. Each field can be set by the environment variable ``LIVERANK_<FIELD>``.

    data            the directory that holds every graph; one server at a time uses it
    host, port      where the server listens
    backend         ``auto`` takes CUDA where there is a device, else the CPU
    max_body_bytes  a request whose body is longer is refused with 413
    checkpoint_bytes    a graph's checkpoint is due when its journal has grown by so many bytes, and
                        by as many as the last checkpoint has
    checkpoint_seconds  and so many seconds after a change at the latest
    """

    data: Path = Path("liverank-data")
    host: str = "127.0.0.1"
    port: int = 8080
    backend: BackendName = "auto"
    max_body_bytes: int = 256 * 1024 * 1024
    checkpoint_bytes: int = 64 * 1024 * 1024
    checkpoint_seconds: int = 300

    def __post_init__(self) -> None:
        if not str(self.data):  # which would be the working directory
            raise InvalidSetting("data", "", "the path of a directory")
        object.__setattr__(self, "data", Path(self.data))
        object.__setattr__(self, "port", _integer("port", self.port, 0, 65_535))
        for field, low, high in (
            ("max_body_bytes", 1, 2**40),
            ("checkpoint_bytes", 1, 2**50),
            ("checkpoint_seconds", 1, 10**9),
        ):
            object.__setattr__(self, field, _integer(field, getattr(self, field), low, high))
        if self.backend not in get_args(BackendName):
            accepted = ", ".join(get_args(BackendName))
            raise InvalidSetting("backend", self.backend, f"one of {accepted}")

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
