"""Records what streams give, and compares with what was recorded.

    python -m tests.golden.record [NAME …]          writes data/NAME.json
    python -m tests.golden.record --check [NAME …]  prints the first difference of each stream

NAME is a stream or a group of tests.golden.streams; none: all of them. Records are exact, so
everything that chooses instructions by processor is pinned, in a process of its own:

- NumPy's exp2 and log2 (weights that decay) and its sorts have other versions for AVX-512, whose
  last bits, and whose order of equal keys, differ. They are switched off.
- OpenBLAS, which adds up one product of vectors, chooses the order of its sum by processor: that of
  Haswell is used.

The kernels need nothing: they are compiled without fast-math and without contraction, and sums are
taken in an order that neither the processor nor the number of threads decides. A processor with
AVX2 and FMA (x86-64-v3) is needed, since the C library has other last bits without them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from tests.golden.records import FEW_BYTES, WHOLE_BYTES, difference, plain, recorded
from tests.golden.streams import GROUPS, Stream

Entry = tuple[str, Any]

RECORDS = Path(__file__).parent / "data"

_AVX512 = ("AVX512F", "AVX512CD", "AVX512_SKX", "AVX512_CLX", "AVX512_CNL", "AVX512_ICL")

PINNED = {
    "NPY_DISABLE_CPU_FEATURES": " ".join([*_AVX512, "AVX512_SPR"]),
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
}
"""The environment of a process that records or compares."""


def played(group: str, name: str, stream: Stream, cluster: Callable[[], Any]) -> Iterator[Entry]:
    """The entries of a stream, plain."""
    # processes of shards import this module too, and must not start threads by it
    from tests.golden import play

    if group == "service":
        entries = play.play_service(name, stream)
    elif group == "out-of-core":
        entries = play.play_out_of_core(name, stream)
    elif group == "generated":
        entries = play.play_generators()
    else:
        entries = play.play_engine(name, stream, cluster)
    return ((label, plain(value)) for label, value in entries)


def write(name: str, entries: Iterator[Entry]) -> None:
    """Records the entries of a stream, a line each; arrays at its end whole, if they are small."""
    with (RECORDS / f"{name}.json").open("w", encoding="utf-8") as file:
        for label, value in entries:
            few = WHOLE_BYTES if label.startswith("end") else FEW_BYTES
            json.dump([label, recorded(value, few)], file, separators=(",", ":"))
            file.write("\n")


def first_difference(name: str, entries: Iterator[Entry]) -> str | None:
    """Where the entries of a stream differ first from those that were recorded."""
    path = RECORDS / f"{name}.json"
    if not path.exists():
        return f"{name}: was never recorded"
    lines = iter([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    for label, value in entries:
        known, record = next(lines, (None, None))
        if known != label:
            return f"{name}: step {known!r} was recorded, {label!r} was run"
        found = difference(record, value)
        if found:
            return f"{name}: step {label!r}: {found.removeprefix(': ')}"
    rest = next(lines, None)
    return f"{name}: step {rest[0]!r} was recorded, and not run" if rest else None


def chosen(names: list[str]) -> Iterator[tuple[str, str, Stream]]:
    """(group, name, stream) of the streams and groups that are named; of all without names.

    Raises KeyError for an unknown name.
    """
    every = [(group, name, one) for group, some in GROUPS.items() for name, one in some.items()]
    unknown = set(names).difference(GROUPS, (name for _, name, _ in every))
    if unknown:
        raise KeyError(f"no stream or group: {', '.join(sorted(unknown))}")
    return (each for each in every if not names or not {each[0], each[1]}.isdisjoint(names))


class _Workers:
    """A Dask cluster of worker processes, which all streams in shards share."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._found = stack, cast(Any, None)

    def __call__(self) -> Any:
        if self._found is None:
            from liverank_gpu import Cluster
            from tests.service.dask_cluster import settings_for, workers_here

            folder = Path(self._stack.enter_context(TemporaryDirectory()))
            settings = settings_for(self._stack.enter_context(workers_here(3)), folder)
            paths = (settings[f"cluster_{name}"] for name in ("ca", "cert", "key"))
            self._found = Cluster(settings["cluster"], *paths)
        return self._found


def main(arguments: list[str]) -> int:
    """The exit status: 1 if something differs."""
    if not PINNED.items() <= os.environ.items():
        command = [sys.executable, "-m", "tests.golden.record", *arguments]
        os.execve(sys.executable, command, {**os.environ, **PINNED})
    check = "--check" in arguments
    names = [each for each in arguments if each not in ("--check", "--times")]
    differences = 0
    with ExitStack() as stack:
        workers = _Workers(stack)
        for group, name, stream in chosen(names):
            started = time.process_time(), time.perf_counter()
            entries = played(group, name, stream, workers)
            if check:
                found = first_difference(name, entries)
                if found:
                    differences += 1
                    print(found, flush=True)
            else:
                write(name, entries)
            if "--times" in arguments:
                spent = time.process_time() - started[0], time.perf_counter() - started[1]
                print(f"{name}: {spent[0]:.2f} s of the processor, {spent[1]:.2f} s", flush=True)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
