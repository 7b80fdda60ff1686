"""What compiling loops costs: how long it took, and where they are kept between processes.

Numba keeps them in ``NUMBA_CACHE_DIR``, beside the sources, or in the user's cache folder. Where
none of these can be written (a read-only installation, and no home), it raises RuntimeError while
modules are imported. Then they are kept in a folder of our own: in ``LIVERANK_CACHE_DIR``, which
``liverank serve`` sets to one in its data directory, or else among temporary files. To load them
is to run code, so nobody else may be able to write there. What cannot be kept is compiled by every
process, and one warning says so.

This depends on internals of Numba: ``CacheImpl._locator_classes``, that ``load_overload`` and
``save_overload`` of ``FunctionCache`` raise OSError for what they cannot read or write, and the
event of the lock under which one thread at a time compiles or loads.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import threading
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from numba.core import caching, event

log = logging.getLogger("liverank.kernels")

_caching: Any = caching  # without annotations
_event: Any = event


@cache
def own_folder() -> Path | None:
    """A folder that only this user can write, made if it is missing; None if there is none."""
    folders = [Path(tempfile.gettempdir(), f"liverank-{os.geteuid()}")]
    if named := os.environ.get("LIVERANK_CACHE_DIR"):
        folders.insert(0, Path(named))
    return next(filter(_is_private, folders), None)


def _is_private(folder: Path) -> bool:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    is_folder, owner = stat.S_ISDIR(found.st_mode), found.st_uid  # a link is no folder
    return is_folder and owner == os.geteuid() and not found.st_mode & 0o077


class _OwnFolder(_caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The last of Numba's locators: always one for a function that has a file."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        parent = own_folder() or Path(file, "none")
        self._cache_path = str(parent / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Any, file: str) -> _OwnFolder | None:
        return cls(function, file) if Path(file).exists() else None


_thread = threading.local()


class _Clock(_event.Listener):  # type: ignore[misc]
    """Notes when a thread compiled, or waited until another one had."""

    def on_start(self, _: Any) -> None:
        _thread.depth = getattr(_thread, "depth", 0) + 1
        if _thread.depth == 1:
            _thread.began = perf_counter()

    def on_end(self, _: Any) -> None:
        _thread.depth -= 1
        if _thread.depth == 0:
            _thread.__dict__.setdefault("spans", []).append((_thread.began, perf_counter()))


def compiling_seconds(since: float) -> float:
    """Seconds since a moment of `time.perf_counter` in which this thread compiled or loaded loops,
    or waited until another one had.
    """
    seconds = 0.0
    for began, ended in reversed(getattr(_thread, "spans", ())):
        if ended <= since:
            break
        seconds += ended - max(began, since)
    return seconds


_compiled = 0


def loops_compiled() -> int:
    """How many loops this process has compiled, and not found in a cache."""
    return _compiled


_loading, _saving = _caching.FunctionCache.load_overload, _caching.FunctionCache.save_overload
_said = False


def _load(function: Any, signature: Any, context: Any) -> Any:
    try:
        return _loading(function, signature, context)
    except OSError:
        return None


def _save(function: Any, signature: Any, compiled: Any) -> None:
    global _compiled, _said
    _compiled += 1
    try:
        _saving(function, signature, compiled)
    except OSError as error:
        if not _said:
            _said = True
            log.warning(
                "compiled loops cannot be kept, so every start compiles them: %s: %s; "
                "set NUMBA_CACHE_DIR to a folder that can be written",
                error.filename,
                error.strerror,
            )


_event.register("numba:compiler_lock", _Clock())
_caching.CacheImpl._locator_classes.append(_OwnFolder)
_caching.FunctionCache.load_overload = _load
_caching.FunctionCache.save_overload = _save
