"""The shape of the benchmarks: what they read of the engine, and what the README says of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import harness

FOLDER = harness.ROOT / "benchmarks"
SOURCES = sorted(FOLDER.rglob("*.py"))
PRIVATE = re.compile(r"_[^\W_]")
RUN_BY_OTHERS = {"compare_work"}
"""Scripts that no one starts by hand."""

PATCHED = re.compile(r"[\w.]+\._[^\W_][\w.]*")
"""The target of a patch."""


def _private_names(tree: ast.Module) -> Iterator[str]:
    """Private names that a module reads from anything but itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.match(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield f"{ast.unparse(node)}, line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            yield from (name.name for name in node.names if PRIVATE.match(name.name))
        elif isinstance(node, ast.Constant) and PATCHED.fullmatch(str(node.value)):
            yield str(node.value)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_private_name_is_read(path: Path) -> None:
    assert not list(_private_names(ast.parse(path.read_text("utf-8"))))


@pytest.mark.parametrize(
    "text",
    [
        "engine._graph",
        "self.engine._graph",
        "from liverank_gpu.graph import _rebuild",
        "patch('liverank_gpu.graph.dynamic_graph._REBUILD_PART', 3)",
        "graph.view._replace()",
    ],
)
def test_private_names_are_found(text: str) -> None:
    assert len(list(_private_names(ast.parse(text)))) == 1


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 800


def test_the_readme_lists_every_command() -> None:
    commands = {
        ".".join(part for part in path.relative_to(FOLDER).with_suffix("").parts if part[0] != "_")
        for path in SOURCES
        if '__name__ == "__main__"' in path.read_text("utf-8") and path.stem not in RUN_BY_OTHERS
    }
    text = (FOLDER / "README.md").read_text("utf-8")
    assert commands == set(re.findall(r"`python -m benchmarks\.([\w.]+)", text))
