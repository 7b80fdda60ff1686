"""After the warm-up of the ``cpu`` backend no request waits for the compiler."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

import pytest

from gpu import Engine, Options
from gpu.backends.cpu.lists import CpuLists

PROGRAM = """
import pkgutil
from importlib import import_module
from itertools import chain
from types import FunctionType
from numba.core.dispatcher import Dispatcher
from gpu import Engine, Options
from gpu.backends import cpu

engine = Engine(Options({options}), "cpu")
engine.warm_up()
engine.warm_up_others()
compiled = {{}}
for module in pkgutil.iter_modules(cpu.__path__):
    # which no batch and no query uses
    if module.name.startswith(("generate", "program", "cores", "triangles", "packing")):
        continue
    members = vars(import_module(f"gpu.backends.cpu.{{module.name}}"))
    methods = [vars(kind).values() for kind in members.values() if isinstance(kind, type)]
    for function in (*members.values(), *chain(*methods)):
        if isinstance(function, FunctionType):
            # other compiled functions are parts of their callers
            called = [members.get(name) for name in function.__code__.co_names]
            called += [cell.cell_contents for cell in function.__closure__ or ()]
            compiled |= {{id(one): one for one in called if isinstance(one, Dispatcher)}}
for one in compiled.values():
    if not one.nopython_signatures:
        print(one.py_func.__name__)
assert len(compiled) > 50, len(compiled)
"""


@pytest.mark.parametrize(
    ("options", "needless"),
    [
        ("", {"_merge", "_deduplicate_weighted", "_sum_weights", "scale_rows"}),
        ("weighted=True", {"_merge", "scale_rows"}),
        ("half_life=1.0", {"_merge"}),  # which only shards use
    ],
)
def test_a_warm_up_compiles_every_loop_for_all_cores_and_for_one(
    options: str, needless: set[str]
) -> None:
    # in a process of its own: others have compiled what their tests needed
    program = PROGRAM.format(options=options)
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert {name.removesuffix("_on_all_cores") for name in answer.stdout.split()} == needless


@pytest.mark.parametrize("weighted", [False, True])
def test_a_warm_up_looks_for_ties(weighted: bool) -> None:
    # a device has other kernels for weighted graphs
    found = CpuLists.with_same_list
    with patch.object(CpuLists, "with_same_list", autospec=True, side_effect=found) as called:
        Engine(Options(weighted=weighted), "cpu").warm_up()
    assert called.called
