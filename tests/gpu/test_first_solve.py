"""After `warm_up_solve` a first solve on the ``cpu`` backend does not wait for the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc
import numpy as np
from numba.core.dispatcher import Dispatcher
from gpu import EdgeBatch, Engine, Options, Solve, generate, warm_up_solve

def compiled():
    loops = (each for each in gc.get_objects() if isinstance(each, Dispatcher))
    return {{(each.py_func.__qualname__, str(one)) for each in loops for one in each.signatures}}

options, solve = Options({options}), Solve({solve})
ring, chance = np.arange(50_000), np.random.default_rng(0)
graphs = [
    (chance.integers(0, vertices, edges), chance.integers(0, vertices, edges))
    for vertices, edges in ((5, 3), (50, 400), (3_000, 9_000), (200_000, 900_000))
]
graphs += [generate.rmat(14, 16, seed=1), generate.grid(200, 200)]
graphs += [(ring, (ring + 1) % len(ring)), (ring, ring + 1)]
warm_up_solve(options, "cpu", solve)
before = compiled()
assert len(before) > 10, len(before)
for sources, targets in graphs:
    engine = Engine(options, "cpu")
    weights = chance.random(len(sources)) + 0.5 if options.weighted else None
    times = np.arange(len(sources)) / len(sources) if options.half_life else None
    vertices = int(max(sources.max(), targets.max())) + 4
    engine.apply(EdgeBatch(sources, targets, vertices=vertices, weights=weights, times=times))
    engine.update(*solve)
    engine.publish().top(10)
for name, _ in sorted(compiled() - before):
    print(name)
"""


@pytest.mark.parametrize(
    ("options", "solve"),
    [
        ("", "'static'"),
        ("directed=False", "'auto'"),
        ("weighted=True", "'residual'"),
        ("half_life=1.0", "'static'"),
        ("form='published'", "'static'"),
        ("", "'dynamic-frontier'"),
        ("", "'auto', settle=10"),
    ],
)
def test_a_first_solve_compiles_nothing(options: str, solve: str) -> None:
    # in a process of its own: others have compiled what their tests needed
    program = PROGRAM.format(options=options, solve=solve)
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout == ""
