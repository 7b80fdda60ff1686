"""The shape of the code: which way imports go, what is public, backends that match their base."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpu
from gpu import kernels
from gpu.backends.base import Backend
from gpu.backends.cpu import CpuBackend
from gpu.backends.cuda import CudaBackend

ROOT = Path(__file__).parents[2]

ENGINE_MAY_IMPORT = {"gpu", "numpy", "numba", "llvmlite", "cupy"}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield node.module


def _standard(module: str) -> bool:
    import sys

    return module.split(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("path", sorted((ROOT / "gpu").rglob("*.py")), ids=lambda path: path.stem)
def test_the_engine_knows_nothing_of_the_service(path: Path) -> None:
    packages = {module.split(".")[0] for module in _imports(path) if not _standard(module)}
    assert packages <= ENGINE_MAY_IMPORT


# who may import whom inside the engine: each only from rows above its own
ENGINE_ORDER = [
    "errors",
    "types",
    "threads",
    "verify",
    "generate",
    "kernels",
    "backends.base",
    "backends.sharing",
    "backends.parallel",
    "backends.cpu_graph",
    "backends.cuda_graph",
    "backends.cpu_sweep",
    "backends.cuda_sweep",
    "backends.cpu_push",
    "backends.cpu_columns",
    "backends.cuda_columns",
    "backends.cpu",
    "backends.cuda",
    "backends",
    "stages",
    "order",
    "edit",
    "adjacency",
    "merge",
    "graph",
    "together",
    "ranks",
    "strategies",
    "background",
    "state",
    "sweeps",
    "snapshot",
    "solver",
    "seeds",
    "walk",
    "settled",
    "personalized",
    "block",
    "job",
    "watched",
    "engine",
    "",
]


def test_imports_inside_the_engine_go_one_way() -> None:
    for path in sorted((ROOT / "gpu").rglob("*.py")):
        parts = path.relative_to(ROOT / "gpu").with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        for imported in _imports_at_run_time(path):
            assert ENGINE_ORDER.index(imported) < ENGINE_ORDER.index(module), (
                f"gpu.{module} imports gpu.{imported}"
            )


def _imports_at_run_time(path: Path) -> Iterator[str]:
    """Modules of gpu imported outside ``if TYPE_CHECKING``, without the leading ``gpu.``."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types:
            module = node.module or ""
            if module == "gpu" or module.startswith("gpu."):
                package = module.removeprefix("gpu").removeprefix(".")
                for name in node.names:
                    submodule = f"{package}.{name.name}"
                    yield submodule if submodule in ENGINE_ORDER else package


def test_the_public_surface_of_the_engine_is_what_it_says() -> None:
    public = {name for name in vars(gpu) if not name.startswith("_") and name[0].isupper()}
    assert public == set(gpu.__all__)
    assert sorted(gpu.__all__, key=str.lower) == sorted(set(gpu.__all__), key=str.lower)


@pytest.mark.parametrize("kind", [CpuBackend, CudaBackend])
@pytest.mark.parametrize("operation", sorted(Backend.__abstractmethods__))
def test_backends_offer_the_operations_of_the_base(operation: str, kind: type[Backend]) -> None:
    expected = inspect.signature(getattr(Backend, operation))
    assert inspect.signature(getattr(kind, operation)) == expected


def test_every_kernel_file_is_listed() -> None:
    files = {path.stem for path in (ROOT / "gpu" / "kernels").glob("*.cu")}
    assert files == set(kernels.NAMES)
    for name, expressions in kernels.NAMES.items():
        text = kernels.source(name)
        for expression in expressions:
            assert expression.split("<")[0] + "(" in text
