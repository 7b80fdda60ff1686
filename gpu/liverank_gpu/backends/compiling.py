"""Compilers of programs: processes of their own, within limits of time and memory."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from liverank_gpu.errors import BackendUnavailable

SECONDS, BYTES = 300, 4 << 30
"""The time of a compiler, also that of its processor, and its memory, at most."""

_LIMITED = f'ulimit -t {SECONDS}; ulimit -d {BYTES >> 10}; exec "$@"'

_EXCEEDED = (
    *("limit exceeded", "out of memory", "annot allocate memory", "Killed"),
    *("Memory allocation failure", "MemoryError", "bad_alloc"),
)
"""What compilers say beyond these limits."""


class Finished(NamedTuple):
    """What a compiler left: its exit status, its answer, what it said."""

    status: int
    output: bytes
    errors: str


def run_compiler(
    backend: str,
    what: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    given: bytes = b"",
    seconds: float = SECONDS,
) -> Finished:
    """Runs a compiler, and ends it and what it has started.

    backend, what  in messages
    environment    beside that of this process, which comes first
    given          what it reads from stdin, and answers on stdout; empty: it has neither
    seconds        after which it is ended

    Raises BackendUnavailable beyond the limits.
    """
    output, said, exceeded = b"", "", True
    pipe = subprocess.PIPE if given else subprocess.DEVNULL
    with subprocess.Popen(
        ["/bin/sh", "-c", _LIMITED, "sh", *command],
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.PIPE,
        env={**environment, **os.environ},
        start_new_session=True,  # of its own: what it started ends with it
    ) as compiling:
        try:
            output, errors = compiling.communicate(given or None, timeout=seconds)
            said = errors.decode(errors="replace")
            exceeded = compiling.returncode > 0 and any(each in said for each in _EXCEEDED)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(compiling.pid, signal.SIGKILL)
    if exceeded or compiling.returncode < 0:
        limits = f"{seconds:g} s and {BYTES >> 30} GiB"
        raise BackendUnavailable(backend, f"{what} was not compiled within {limits}")
    return Finished(compiling.returncode, output or b"", said)


@cache
def own_folder() -> Path:
    """For what this process compiles; it removes it at its end."""
    folder = tempfile.TemporaryDirectory(prefix="liverank-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
