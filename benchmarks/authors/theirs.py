"""Runs programs of others on our graphs: what they read, what they print and what they write."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import Ranking

_SOLVE = re.compile(
    r"^(?P<method>[\w.-]+|solve \d+): (?P<ms>[\d.]+) ms(?:, (?P<count>\d+) iter.*)?$"
)
_LOGGED = re.compile(
    r"(?P<batch>\d+) batchi, .*?\{(?P<ms>[\d.]+)ms, .*?, (?P<count>\d+) iter, (?P<error>\S+) err\}"
    r" (?P<method>\w+)"
)
_CHUNK = 1 << 27


@dataclass(frozen=True)
class Solved:
    """One solve, as the program told it. error: the L1 distance that it measured, if it did."""

    method: str
    ms: float
    iterations: int | None = None
    batch: int | None = None
    error: float | None = None


def solves(printed: str) -> list[Solved]:
    """What our programs around their functions print."""
    found = map(_SOLVE.match, printed.splitlines())
    return [
        Solved(each["method"], float(each["ms"]), int(each["count"]) if each["count"] else None)
        for each in found
        if each
    ]


def logged(printed: str) -> list[Solved]:
    """What Sahu's program prints."""
    return [
        Solved(
            each["method"],
            float(each["ms"]),
            int(each["count"]),
            int(each["batch"]),
            float(each["error"]),
        )
        for each in _LOGGED.finditer(printed)
    ]


def run(program: Path, *arguments: object, seconds: float = 120.0) -> str:
    """What a program prints. Its kernels are loaded as it starts, which is not timed then. Raises
    CalledProcessError, TimeoutExpired.
    """
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        env=os.environ | {"CUDA_MODULE_LOADING": "EAGER"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds,
        check=True,
    )
    return done.stdout


class Graph:
    """Distinct edges without loops, where a backend computes.

    keys  int64[m], source · vertices + target, ascending
    """

    def __init__(self, backend: Backend, vertices: int, keys: Array) -> None:
        self.backend, self.vertices, self.keys = backend, vertices, keys

    @classmethod
    def of(cls, backend: Backend, vertices: int, sources: Array, targets: Array) -> Graph:
        """Without the repeats and loops of these columns."""
        xp = backend.xp
        keys = sources.astype(np.int64)
        keys *= vertices
        keys += targets
        keys = xp.sort(keys[sources != targets])
        new = xp.ones(len(keys), bool)
        new[1:] = keys[1:] != keys[:-1]
        return cls(backend, vertices, keys[new])

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def columns(self) -> tuple[Array, Array]:
        """Sources and targets, int32[m]."""
        xp = self.backend.xp
        columns = xp.empty(len(self), np.int32), xp.empty(len(self), np.int32)
        for first in range(0, len(self), _CHUNK):
            chunk = slice(first, first + _CHUNK)
            columns[0][chunk], columns[1][chunk] = xp.divmod(self.keys[chunk], self.vertices)
        return columns

    def with_loops(self) -> Graph:
        """With a loop at each vertex."""
        xp = self.backend.xp
        loops = xp.arange(self.vertices, dtype=np.int64) * (self.vertices + 1)
        return Graph(self.backend, self.vertices, xp.sort(xp.concatenate([self.keys, loops])))

    def reversed(self) -> Graph:
        """With all edges turned."""
        xp = self.backend.xp
        keys = xp.empty_like(self.keys)
        for first in range(0, len(keys), _CHUNK):
            sources, targets = xp.divmod(self.keys[first : first + _CHUNK], self.vertices)
            keys[first : first + _CHUNK] = targets * self.vertices + sources
        keys.sort()
        return Graph(self.backend, self.vertices, keys)

    def offsets(self) -> Array:
        """int64[vertices + 1], where the edges of each source begin, and their end."""
        xp = self.backend.xp
        first = xp.arange(self.vertices + 1, dtype=np.int64) * self.vertices
        return xp.searchsorted(self.keys, first)

    def write(self, folder: Path, lists: str) -> None:
        """Offsets and ids, uint32, as `LISTS-offsets` and `LISTS-ids`."""
        to_host = self.backend.device.to_host
        to_host(self.offsets()).astype(np.uint32).tofile(folder / f"{lists}-offsets")
        with (folder / f"{lists}-ids").open("wb") as file:
            for first in range(0, len(self), _CHUNK):
                ids = self.keys[first : first + _CHUNK] % self.vertices
                to_host(ids.astype(np.uint32)).tofile(file)

    def error_bound(self, ranks: Ranking, damping: float, uniform: bool) -> float:
        """An upper bound on the L1 distance of ranks to the exact ones, in float64 and without the
        engine: that to what one iteration makes of them, over 1 - damping.

        uniform  whether rank of vertices without out-edges goes to all; else there are none
        """
        xp = self.backend.xp
        given = xp.asarray(ranks)
        degrees = xp.diff(self.offsets())
        shares = damping * given / xp.maximum(degrees, 1)
        dangling = float(given[degrees == 0].sum()) if uniform else 0.0
        found = xp.full(self.vertices, (1.0 - damping + damping * dangling) / self.vertices)
        for first in range(0, len(self), _CHUNK // 4):
            sources, targets = xp.divmod(self.keys[first : first + _CHUNK // 4], self.vertices)
            found += xp.bincount(targets, weights=shares[sources], minlength=self.vertices)
        return float(xp.abs(found - given).sum()) / (1.0 - damping)


def pairs(path: Path, sources: NDArray[Any], targets: NDArray[Any]) -> None:
    """Edges one after the other, uint32."""
    np.stack([sources, targets], axis=1).astype(np.uint32).tofile(path)


def ranks_of(path: Path) -> Ranking:
    """What a program wrote, float64[vertices]."""
    return np.fromfile(path, np.float64)
