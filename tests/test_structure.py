"""The shape of the code: which way imports go, what is public, and backends that match their
contracts.

Imports inside functions and under ``if TYPE_CHECKING`` count.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from abc import ABC
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import liverank_gpu
from liverank_gpu import operations
from liverank_gpu.backends import backend_named, cpu, cuda
from liverank_gpu.backends.cuda.kernels import loader
from liverank_gpu.backends.cuda.kernels.parameters import KERNEL, parameters_of
from liverank_gpu.backends.cuda.programs import program_source
from liverank_gpu.backends.reference import reference_backend
from liverank_gpu.operations.analysis import SolveComponents
from liverank_gpu.operations.backend import HOST_LACKS
from liverank_gpu.operations.csr import Kernels
from liverank_gpu.operations.residual import JacobiStep
from liverank_gpu.programs.algorithms import LEVELS
from tests.cuda_emulator.emulated import emulated_backend

ROOT = Path(__file__).parents[1]

ENGINE_MAY_IMPORT = {"liverank_gpu", "numpy", "cupy", "cuda", "dask", "distributed"}
ENGINE_MAY_IMPORT |= {"cryptography"}  # which dates certificates, as Dask needs it to make them

ENGINE_ORDER = [
    {"errors"},
    {"native", "device_functions"},
    {"columns"},
    {"types"},
    {"operations", "verify"},
    {"graph", "backends"},
    {"pagerank", "generate", "programs"},
    {"personalized"},
    {"out_of_core", "snapshot"},
    {"engine"},
    {"once", "sharded"},
    {""},
]
"""Packages and modules of the engine by floor: each imports only from floors above it."""

LONGEST_KERNEL_LINE = 128


def _modules(package: str) -> list[Path]:
    return sorted(path for path in (ROOT / package).rglob("*.py") if path.name != "hatch_build.py")


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield node.module
            if node.module == "liverank_gpu":
                yield from (f"liverank_gpu.{name.name}" for name in node.names)


def _room(module: str) -> str:
    """What of the engine a module belongs to: ``liverank_gpu.graph.rebuild`` is part of
    ``graph``.
    """
    return module.removeprefix("liverank_gpu").removeprefix(".").split(".")[0]


def test_the_engine_knows_nothing_of_the_service() -> None:
    for path in _modules("gpu"):
        packages = {module.split(".")[0] for module in _imports(path)} - sys.stdlib_module_names
        assert packages <= ENGINE_MAY_IMPORT, path


def test_imports_inside_the_engine_go_one_way() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(ENGINE_ORDER) for room in rooms}
    for path in _modules("gpu"):
        parts = path.relative_to(ROOT / "gpu/liverank_gpu").with_suffix("").parts
        room = "" if parts == ("__init__",) else parts[0]
        for module in _imports(path):
            if module.split(".")[0] != "liverank_gpu":
                continue
            imported = _room(module)
            assert imported == room or floor_of[imported] < floor_of[room], (
                f"{path.relative_to(ROOT)} imports {module}"
            )


def test_no_line_of_a_kernel_is_too_long_to_read() -> None:
    kernels = ROOT / "gpu/liverank_gpu" / "backends" / "cuda" / "kernels"
    shared = ROOT / "gpu/liverank_gpu" / "kernels"
    too_long = [
        f"{path.name}:{number}"
        for path in (*kernels.glob("*.cu"), *kernels.glob("*.cuh"), *shared.glob("*.h"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if len(line) > LONGEST_KERNEL_LINE
    ]
    assert not too_long


def test_the_public_surface_of_the_engine_is_what_it_says() -> None:
    public = {
        name
        for name, each in vars(liverank_gpu).items()
        if not name.startswith("_") and not inspect.ismodule(each)
    }
    assert public | set(liverank_gpu._MODULE_OF) == set(liverank_gpu.__all__)
    assert all(hasattr(liverank_gpu, name) for name in liverank_gpu.__all__)
    assert sorted(liverank_gpu.__all__, key=str.lower) == sorted(
        set(liverank_gpu.__all__), key=str.lower
    )


def _operations() -> list[ModuleType]:
    """The modules of gpu/liverank_gpu/operations."""
    assert operations.__file__
    names = sorted(path.stem for path in Path(operations.__file__).parent.glob("*.py"))
    return [import_module(f"liverank_gpu.operations.{name}") for name in names]


def _contracts() -> list[type]:
    """The abstract classes in gpu/liverank_gpu/operations."""
    found = []
    for module in _operations():
        found += [
            each
            for each in vars(module).values()
            if inspect.isclass(each)
            and ABC in each.__bases__
            and each.__module__ == module.__name__
        ]
    return found


@pytest.mark.parametrize("package", [cpu, cuda], ids=["cpu", "cuda"])
@pytest.mark.parametrize("contract", _contracts(), ids=lambda contract: contract.__name__)
def test_backends_implement_the_contracts_as_declared(contract: type, package: ModuleType) -> None:
    name = contract.__module__.rsplit(".", 1)[1]
    module = import_module(f"{package.__name__}.{name}")
    (implementation,) = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, contract)
        and each.__module__ == module.__name__
    ]
    _assert_as_declared(contract, implementation)


def test_backends_run_the_operations_that_are_records() -> None:
    """Of those that they do not name as missing, which making them checks."""
    of_device, of_host, of_reference = (
        each.run for each in (emulated_backend(), backend_named("cpu"), reference_backend())
    )
    assert isinstance(of_device, Kernels)
    assert len(of_device.operations) > 10
    for run in (of_host, of_reference):
        assert isinstance(run, Kernels)
        assert run.operations ^ of_device.operations == {JacobiStep, SolveComponents, *HOST_LACKS}


@pytest.mark.parametrize("contract", _contracts(), ids=lambda contract: contract.__name__)
def test_the_reference_implements_the_contracts_as_declared(contract: type) -> None:
    backend = reference_backend()
    (implementation,) = (
        type(each)
        for each in (getattr(backend, field.name) for field in fields(backend))
        if isinstance(each, contract)
    )
    _assert_as_declared(contract, implementation)


def _assert_as_declared(contract: type, implementation: type) -> None:
    assert not inspect.isabstract(implementation)
    for operation in sorted(getattr(contract, "__abstractmethods__", ())):
        declared, implemented = (
            inspect.signature(getattr(each, operation), eval_str=True)
            for each in (contract, implementation)
        )
        assert implemented == declared, operation


def test_every_kernel_can_be_launched() -> None:
    folder = Path(loader.__file__).parent
    files = {unit.removesuffix("_weighted") for unit in loader.units()}
    assert files == {path.stem for path in folder.glob("*.cu")}
    for unit in loader.units():
        text, expressions = loader.source(unit), loader.kernels(unit)
        assert set(parameters_of(text, expressions)) == set(expressions)
        # a template of which no instance is listed
        names = {expression.split("<")[0] for expression in expressions}
        declared = {kernel["name"] for kernel in KERNEL.finditer(text)}
        assert len(re.findall(r"^(?!//).*__global__ ", text, re.MULTILINE)) == len(declared), unit
        assert declared - names <= {"add_partial_sums"}, unit


def test_both_backends_compile_what_happens_at_a_vertex() -> None:
    shared = {path.name for path in (ROOT / "gpu/liverank_gpu/kernels").glob("*.h")}
    on_cuda = [*map(loader.source, loader.units()), program_source(LEVELS, False)]
    names = {name for text in on_cuda for name in re.findall(r'^#line 1 "(.+\.h)"', text, re.M)}
    assert names == shared
    assert not any(re.search(r'^#include "', text, re.M) for text in on_cuda)
    native = ROOT / "gpu/liverank_gpu" / "native"
    on_cpu = [*native.glob("*.cpp"), *native.glob("*.h"), *native.parent.glob("kernels/*.h")]
    included = "".join(path.read_text("utf-8") for path in on_cpu)
    assert set(re.findall(r'^#include "(?:\.\./kernels/)?(.+\.h)"', included, re.M)) >= shared


def test_kernels_have_the_constants_of_contracts_from_there() -> None:
    constants = {name for module in _operations() for name in vars(module) if name.isupper()}
    folder = Path(loader.__file__).parent
    for path in (*folder.glob("*.cu"), *folder.glob("*.cuh")):
        own = re.findall(r"constexpr [\w ]+ (\w+) =", path.read_text("utf-8"))
        assert constants.isdisjoint(own), path.name


# ---- tests of the engine by its behaviour ----

_PATCHING = {"patch", "object", "setattr", "setitem", "dict", "multiple"}
_OUTSIDE = re.compile(r"sys\b|os\b|'(sys|os|tempfile|distributed)\.")
_NOT_OF_THE_ENGINE = {"_replace", "_asdict", "_fields", "_exit", "_core", "_name"}
"""Of named tuples, of ``os``, of CuPy and of ctypes."""


def _reaches_into(path: Path) -> int:
    """How often a test replaces attributes of the engine, or uses private names of it."""
    tree, found = ast.parse(path.read_text("utf-8")), 0
    nodes = list(ast.walk(tree))
    own = {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    own |= {
        each.attr
        for each in nodes
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        if isinstance(each.value, ast.Name) and each.value.id in ("self", "cls")
    }
    for each in nodes:
        if isinstance(each, ast.Call):
            called = ast.unparse(each.func).split(".")
            patches = called[-1] in _PATCHING and called not in (["dict"], ["object"])
            target = ast.unparse(each.args[0]) if each.args else ""
            found += patches and not _OUTSIDE.match(target)
        elif isinstance(each, ast.Attribute) and re.match(r"_[^_]", each.attr):
            of_self = isinstance(each.value, ast.Name) and each.value.id in ("self", "cls")
            found += each.attr not in _NOT_OF_THE_ENGINE and not (of_self and each.attr in own)
        elif isinstance(each, ast.ImportFrom) and (each.module or "").startswith("liverank_gpu"):
            found += sum(name.name.startswith("_") for name in each.names)
    return found


def test_tests_do_not_reach_into_the_engine() -> None:
    """They say what is wrong by what users see, by operations and devices of their own
    (tests/gpu/doubles.py), by the costs and sizes of a backend, and by the operations that run
    (tests/gpu/observed.py).
    """
    found = {}
    for folder in ("gpu", "kernels", "cuda_emulator"):
        for path in sorted((ROOT / "tests" / folder).rglob("*.py")):
            if count := _reaches_into(path):
                found[path.relative_to(ROOT / "tests").as_posix()] = count
    assert not found
