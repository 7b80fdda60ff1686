"""After the warm-up of the ``cpu`` backend no request waits for the compiler."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from numba.core.dispatcher import Dispatcher
from gpu import Engine, Options
from gpu.backends.cpu import frontier, graph, multivector, sweep_kernels, update_kernels

Engine(Options(), "cpu").warm_up()
seen = 0
for module in (frontier, graph, multivector, sweep_kernels, update_kernels):
    for name, function in vars(module).items():
        for cell in getattr(function, "__closure__", None) or ():
            compiled = cell.cell_contents
            if isinstance(compiled, Dispatcher):
                seen += 1
                if not compiled.nopython_signatures:
                    print(module.__name__, name, compiled.py_func.__name__)
assert seen > 30, seen
"""


def test_a_warm_up_compiles_every_loop_for_all_cores_and_for_one() -> None:
    # in a process of its own: others have compiled what their tests needed
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert answer.stdout == ""
