"""The shape of the package that users import: what it imports, and what of that at once."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import liverank

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "liverank").rglob("*.py"))

CORE = {"httpx", "httpx_sse", "msgspec", "tenacity"}
LATER = {
    "aio_pika",
    "aiokafka",
    "faststream",
    "liverank_gpu",
    "matplotlib",
    "nats",
    "networkx",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "redis",
}
"""Packages of extras: imported inside functions only, and for type checkers."""

AT_ONCE = {
    "liverank.__main__": {"liverank_service"},
    "liverank.mcp": {"mcp", "mcp_types", "pydantic", "starlette"},
    "liverank.sources.kafka": {"aiokafka", "faststream"},
    "liverank.sources.nats": {"faststream", "nats"},
    "liverank.sources.rabbitmq": {"aio_pika", "faststream"},
    "liverank.sources.redis": {"faststream", "redis"},
}
"""What a module or package imports at once, also of extras: others import it in functions."""

ORDER = [
    {"errors", "choices"},
    {"options"},
    {"edges", "files", "tables"},
    {"client", "in_process"},
    {"networkx_backend", "mcp", "sources"},
    {"", "__main__"},
]
"""Modules and packages, each importing only from the rows above its own."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_of(path) for path in FILES}


def room_of(module: str) -> str:
    """The module or package directly below `liverank`; empty for itself."""
    return [*module.split("."), ""][1]


def late_part_of(module: str) -> str | None:
    """The part of AT_ONCE with the module, if any."""
    return next((part for part in AT_ONCE if f"{module}.".startswith(f"{part}.")), None)


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def at_once(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        type_checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not type_checking:
            yield node
            yield from at_once(node)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_packages_of_extras_are_imported_late_and_the_service_by_the_command(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    standard = set(sys.stdlib_module_names) | {"liverank"}
    part = late_part_of(module_of(path))
    core = CORE | AT_ONCE[part] if part else CORE
    everywhere = {module.split(".")[0] for module in imports(ast.walk(tree))} - standard
    assert everywhere <= core | LATER
    assert {module.split(".")[0] for module in imports(at_once(tree))} - standard <= core
    assert {late_part_of(module) for module in imports(at_once(tree))} <= {None, part}
    engine = {
        module for module in imports(ast.walk(tree)) if module.split(".")[0] == "liverank_gpu"
    }
    assert engine <= {"liverank_gpu"}


def test_imports_go_one_way() -> None:
    row_of = {room: row for row, rooms in enumerate(ORDER) for room in rooms}
    assert set(row_of) == {room_of(module) for module in MODULES}
    graph = {}
    for path in FILES:
        module = module_of(path)
        tree = ast.parse(path.read_text("utf-8"))
        graph[module] = {used for used in imports(ast.walk(tree)) if used in MODULES}
        for used in graph[module]:
            same = room_of(used) == room_of(module)
            assert same or row_of[room_of(used)] < row_of[room_of(module)], f"{module}: {used}"
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_public_name_can_be_imported_from_where_it_is_said_to_be() -> None:
    assert sorted(liverank.__all__) == liverank.__all__ == dir(liverank)
    assert set(liverank._MODULE_OF) == set(liverank.__all__)
    for name in liverank.__all__:
        found = getattr(liverank, name)
        assert found is getattr(import_module(liverank._MODULE_OF[name]), name)


def test_the_version_is_that_of_the_project_and_loads_nothing_heavy() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    program = (
        "import sys, liverank; print(liverank.__version__)\n"
        "print(set(sys.modules) & {'httpx', 'msgspec', 'numpy', 'pyarrow', 'liverank_gpu'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{project['version']}\nset()\n", "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'liverank' has no attribute 'Clinet'"):
        _ = liverank.Clinet
