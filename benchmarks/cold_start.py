"""How long a server takes from the start of its process until it is ready, with nothing compiled
and with everything.

    python -m benchmarks.cold_start
    python -m benchmarks.cold_start --backend cuda --runs 3

cold    nothing is compiled for the GPU: an installation by pip, started for the first time
image   what the container has: the machine code of the CUDA kernels, but nothing that CuPy compiles
warm    the second start

On ``cpu`` nothing is compiled at a start: there is no `image`, and `warm` is another `cold`.

Data directories are empty. Each start is timed to /readyz, and from there to the receipt of a first
batch and to the first personalized answer, which show what is not compiled yet. The steps are those
that the server logs. CuPy's kernels are the files that it added to its cache.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks import harness
from benchmarks.server import Server

EDGES = [[f"v{number}", f"v{number * 7 % 1000}"] for number in range(1000)]


def measured(backend: str, runs: int) -> dict[str, Any]:
    states = ("cold", "image", "warm") if backend == "cuda" else ("cold", "warm")
    found: dict[str, list[dict[str, Any]]] = {state: [] for state in states}
    with tempfile.TemporaryDirectory(prefix="liverank-cold-start-") as folder:
        for number in range(runs):
            caches = _Caches(Path(folder) / str(number))
            for state in states:
                if state == "image":
                    caches.leave_what_an_image_has()
                data = Path(folder) / f"{number}-{state}" / "data"
                found[state].append(start(data, backend, caches))
    return {
        state: {
            "seconds": [run["ready"] for run in own],
            **{name: _middle([run[name] for run in own]) for name in own[0]},
        }
        for state, own in found.items()
    }


def _middle(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _middle([value.get(name, 0.0) for value in values]) for name in values[0]}
    return round(median(values), 3)


class _Caches:
    """What is compiled for the GPU of one machine."""

    def __init__(self, folder: Path) -> None:
        self.cupy = folder / "cupy"
        self.cupy.mkdir(parents=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"CUPY_CACHE_DIR": str(self.cupy)}

    @property
    def compiled_by_cupy(self) -> int:
        return sum(path.is_file() for path in self.cupy.iterdir())

    def leave_what_an_image_has(self) -> None:
        """An image's build compiles the kernels without a device."""
        shutil.rmtree(self.cupy)
        self.cupy.mkdir()
        import cupy

        capability = cupy.cuda.Device().compute_capability
        command = [sys.executable, "-m", "liverank_gpu.backends.cuda.kernels", f"sm_{capability}"]
        command += ["--out", str(self.cupy / "liverank")]
        subprocess.run(command, check=True, env=harness.environment_of(harness.ROOT))


def start(data: Path, backend: str, caches: _Caches) -> dict[str, Any]:
    """Seconds of one start."""
    data.parent.mkdir(parents=True)
    files = caches.compiled_by_cupy
    environment = {**caches.environment, "LIVERANK_LOG_FORMAT": "json"}
    server = Server(data, backend=backend, environment=environment)
    try:
        figures: dict[str, Any] = {"lives": server.wait_for("/livez")}
        figures["ready"] = server.wait_for("/readyz")
        processor = server.cpu_seconds
        with httpx.Client(base_url=f"{server.url}/graphs/default", timeout=600) as http:
            figures["first batch"] = _timed(http, "POST", "/batches", json={"insert": EDGES})
            figures["first personalized answer"] = _timed(
                http, "GET", "/personalized/v1?timeout=300"
            )
        figures["processor time until ready"] = processor
        figures["compiled by CuPy"] = caches.compiled_by_cupy - files
        figures["steps"] = server.logged("ready")["seconds"]
    finally:
        server.stop()
    return figures


def _timed(http: httpx.Client, method: str, path: str, **options: Any) -> float:
    began = time.perf_counter()
    http.request(method, path, **options).raise_for_status()
    return time.perf_counter() - began


if __name__ == "__main__":
    harness.run(__doc__, {"cold-start": (measured, {"runs": 3})}, backends=True)
