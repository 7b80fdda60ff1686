"""The reference backend, and installations without the compiled kernels, which have it alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liverank_gpu
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.generate import rmat, temporal_stream
from liverank_gpu.native import in_numpy, kernels


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the engine, without its extension."""
    folder = tmp_path_factory.mktemp("uncompiled")
    assert liverank_gpu.__file__
    source = Path(liverank_gpu.__file__).parent
    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("*.so", "*.cubin"))
    return folder


def _run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    lines = f"import liverank_gpu\nassert liverank_gpu.__file__.startswith({str(folder)!r})\n"
    return subprocess.run(
        [sys.executable, "-P", "-c", lines + program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
    )


RANKS = """
import numpy as np
from liverank_gpu import EdgeBatch, Engine, Options, kernels
assert not hasattr(kernels, "__wrapped__")
engines = [Engine(Options(weighted=weighted)) for weighted in (False, True)]
for engine in engines:
    assert engine.backend == "reference"
    engine.apply(EdgeBatch(np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3])))
    engine.apply(EdgeBatch(np.array([3]), np.array([0])))
    assert engine.update().converged
    capture = engine.capture(engine.staging_buffer())
    other = Engine(engine.options)
    other.restore(capture.snapshot())
    assert (other.publish().to_numpy() == engine.publish().to_numpy()).all()
    answer = engine.programs.run("levels", given={"source": 0})
    assert answer.values.tolist() == [0, 1, 2, 3]
    assert engine.personalized(np.array([1])).vertices[0] == 1
print(engines[0].publish().top(4)[0].tolist())
"""


def test_an_installation_without_kernels_has_the_reference_and_says_it_once(
    uncompiled: Path,
) -> None:
    done = _run(uncompiled, RANKS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1, 2, 3]\n"
    said = done.stderr.splitlines()
    assert len(said) == 2, done.stderr
    assert (
        "backend 'cpu' is not available: its kernels are not compiled for this machine" in said[0]
    )
    assert said[0].endswith("install a wheel of liverank, or pip install -e . in its clone")
    assert said[1] == "the backend 'reference' is plain NumPy: right, and slow"


def test_what_needs_the_kernels_says_what_to_install(uncompiled: Path) -> None:
    for wanted in ("backends.backend_named('cpu')", "kernels.add_keys"):
        done = _run(uncompiled, f"liverank_gpu.{wanted}")
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("liverank_gpu.errors.BackendUnavailable: backend 'cpu'"), done.stderr
        assert last.endswith("install a wheel of liverank, or pip install -e . in its clone")


OTHERS = """
import numpy as np
from liverank_gpu import Options, OutOfCoreRanking
from liverank_gpu.generate import rmat, temporal_stream
edges = rmat(8, seed=3)
*_, batch = temporal_stream(arrivals=5, edges_per_vertex=2, lifetime=3.0, batches=4)
with OutOfCoreRanking(1 << 20, Options(weighted=True)) as graph:
    graph.add(*edges, np.linspace(1, 2, len(edges[0])).astype(np.float32))
    ranks = graph.rank().ranks.to_numpy()
np.savez("found.npz", edges=edges, inserted=batch.insert_targets, ranks=ranks)
"""


def test_generators_and_ranks_out_of_core_need_no_kernels(uncompiled: Path) -> None:
    done = _run(uncompiled, OTHERS)
    assert done.returncode == 0, done.stderr
    found = np.load(uncompiled / "found.npz")
    edges = rmat(8, seed=3)
    assert np.array_equal(found["edges"], edges)
    *_, batch = temporal_stream(arrivals=5, edges_per_vertex=2, lifetime=3.0, batches=4)
    assert np.array_equal(found["inserted"], batch.insert_targets)
    engine = Engine(Options(weighted=True, target_error=1e-9), "cpu")
    weights = np.linspace(1, 2, len(edges[0])).astype(np.float32)
    engine.apply(EdgeBatch(*edges, weights=weights))
    engine.update()
    assert np.abs(found["ranks"] - engine.publish().to_numpy()).sum() <= 1.1e-6


@pytest.mark.parametrize("size", [0, 1, 500])
def test_what_is_in_numpy_does_what_the_kernels_do(size: int) -> None:
    random = np.random.default_rng(size)
    lengths = random.integers(0, 9, size).astype(np.int32)
    starts = np.cumsum(random.integers(9, 12, size)) - 9
    entries = random.integers(0, 99, 12 * size + 9).astype(np.int32)
    ends = random.integers(0, 40, (2, size))
    keys = np.sort(ends[0] << 32 | ends[1])
    mixed = random.permutation(keys)
    weights = random.random(size).astype(np.float32)
    bits, places = weights.view(np.uint32), np.zeros(2049, np.int64)
    first_keys = np.array([0, 7 << 32, 7 << 32 | 5, 30 << 32])
    vertices, slots = np.zeros((3, 40), np.int32), 4 * size
    calls: dict[str, tuple[Any, ...]] = {
        "fill_random": (np.uint64(5), 3, np.zeros(size, np.uint64)),
        "pack_entries": (starts, lengths, entries, np.zeros(12 * size, np.int32)),
        "count_ends": (mixed, np.zeros(40, np.int64), vertices[0]),
        "renumber": (mixed, random.permutation(40).astype(np.int32)),
        "sort_by_bucket": (
            *(mixed, bits, first_keys, np.zeros(size, np.int32), np.zeros(6, np.int64)),
            *(np.zeros_like(keys), np.zeros_like(bits)),
        ),
        "sort_by_digit": (mixed, bits, 32, places, np.zeros_like(keys), np.zeros_like(bits)),
    }
    loops = np.zeros(40, np.uint8), np.zeros(40, np.float32)
    for options in product([False, True], repeat=2):
        sent, columns = np.zeros(40), np.zeros(slots, np.int32)
        of_weights = (loops[1], *vertices[1:], sent, columns, np.zeros(slots, np.float32))
        calls |= {
            f"write_rows {options}": (
                *(keys, None, *options, loops[0]),
                *(*vertices[1:], vertices[0], columns, None),
            ),
            f"write_rows weighted {options}": (keys, weights, *options, *of_weights),
        }
    for name, arguments in calls.items():
        results = []
        for module in (kernels, in_numpy):
            given = deepcopy(arguments)
            results.append((getattr(module, name.split()[0])(*given), given))
        for place, (one, other) in enumerate(
            zip(*((returned, *given) for returned, given in results), strict=True)
        ):
            is_scratch = (name, place) == ("sort_by_digit", 4)
            assert is_scratch or np.array_equal(one, other), (name, place)
