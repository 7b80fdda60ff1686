"""Numba's cache for processes that run tests in parallel.

Numba's cache is not safe against processes that compile one function at the same time: they give
two files the same name. So each worker writes to a folder of its own, which it shares with the
processes that it starts; and what it does not find there it loads from those of the other workers.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[1] / ".pytest_cache" / "numba"


def use_worker_cache(worker: str) -> None:
    """Makes `worker` the folder that this process and its children write to."""
    own = CACHE / worker
    os.environ["NUMBA_CACHE_DIR"] = str(own)
    started = time.time()
    # reads the variable when it is imported
    from numba.core import caching

    cache_file: Any = caching.IndexDataCacheFile  # without annotations
    load = cache_file.load

    def load_from_any(file: Any, key: Any) -> Any:
        data = load(file, key)
        path = Path(file._cache_path)
        if data is not None or not path.is_relative_to(own):
            return data
        for folder in CACHE.iterdir():
            there = cache_file(
                cache_path=str(folder / path.relative_to(own)),
                filename_base=file._index_name.removesuffix(".nbi"),
                source_stamp=file._source_stamp,
            )
            # an index is written before the file that it names, which may be there of an older
            # source; what was written since this process started is of the sources that it reads
            found = Path(there._cache_path, there._load_index().get(key, "none"))
            if folder != own and found.exists() and found.stat().st_mtime > started:
                data = load(there, key)
                file.save(key, data)  # for the processes that this one starts
                break
        return data

    cache_file.load = load_from_any
