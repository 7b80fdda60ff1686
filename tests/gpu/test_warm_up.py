"""After the warm-up of the ``cpu`` backend no request waits for the compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from numba.core.dispatcher import Dispatcher
from gpu import Engine, Options
from gpu.backends.cpu import (
    apply_kernels, frontier, graph, multivector, push_kernels, rebuild, resolve_kernels,
    spread_kernels, strengths, sweep_kernels,
)

engine = Engine(Options(weighted={weighted}), "cpu")
engine.warm_up()
engine.warm_up_others()
seen = 0
for module in (
    apply_kernels, frontier, graph, multivector, push_kernels, rebuild, resolve_kernels,
    spread_kernels, strengths, sweep_kernels,
):
    for name, function in vars(module).items():
        for cell in getattr(function, "__closure__", None) or ():
            compiled = cell.cell_contents
            if isinstance(compiled, Dispatcher):
                seen += 1
                if not compiled.nopython_signatures:
                    print(compiled.py_func.__name__)
assert seen > 35, seen
"""


@pytest.mark.parametrize(("weighted", "needless"), [(False, {"_sum_weights"}), (True, set())])
def test_a_warm_up_compiles_every_loop_for_all_cores_and_for_one(
    weighted: bool, needless: set[str]
) -> None:
    # in a process of its own: others have compiled what their tests needed
    program = PROGRAM.format(weighted=weighted)
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert {name.removesuffix("_on_all_cores") for name in answer.stdout.split()} == needless
