"""The shape of the service: which way imports go, what the engine and libraries are used for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import uvicorn
from httptools.parser.protocol import HTTPProtocol
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

import liverank_gpu
from liverank_service.errors import UnsupportedUvicorn
from liverank_service.http import server
from liverank_service.http.server import Rules

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "service").rglob("*.py"))

ORDER = [
    {"sizes", "tables"},
    {"errors", "vertex_keys", "settings"},
    {"logs", "formats", "process_limits"},
    {"problems"},
    {"queries"},
    {"storage"},
    {"pipeline"},
    {"graph_options"},
    {"catalog"},
    {"http"},
    {"app"},
    {"cli"},
]
"""Modules and packages of the service, each importing only from the rows above its own."""

WEB = {"fastapi", "fastapi_offline", "starlette"}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "service").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@cache
def all_modules() -> frozenset[str]:
    return frozenset(module_of(path) for path in FILES)


@cache
def imports(path: Path) -> list[tuple[str, str | None]]:
    """Modules that a file imports anywhere, each with the name taken from it, if one is."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield from ((node.module, alias.name) for alias in node.names)


def imported_modules(path: Path) -> set[str]:
    """Modules of the service, and packages of others."""
    found = set()
    for module, name in imports(path):
        if module.split(".")[0] != "liverank_service":
            found.add(module.split(".")[0])
        else:
            found.add(f"{module}.{name}" if f"{module}.{name}" in all_modules() else module)
    return found


def room_of(module: str) -> str:
    """The module or package directly below `liverank_service`."""
    return module.split(".")[1]


def rooms_in(modules: set[str]) -> set[str]:
    return {room_of(module) for module in modules if module.startswith("liverank_service.")}


def test_imports_go_one_way() -> None:
    imported = {module_of(path): imported_modules(path) for path in FILES}
    assert not imported["liverank_service"]
    others = all_modules() - {"liverank_service"}
    assert set().union(*ORDER) == {room_of(module) for module in others}
    for module in others:
        room = room_of(module)
        row = next(place for place, rooms in enumerate(ORDER) if room in rooms)
        above = set().union(*ORDER[:row])
        assert rooms_in(imported[module]) <= above | {room}, module
    graph = {module: used & all_modules() for module, used in imported.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_web_frameworks_are_imported_by_the_http_layer_only() -> None:
    for path in FILES:
        used, module = imported_modules(path), module_of(path)
        if not module.startswith(("liverank_service.http", "liverank_service.app")):
            assert not used & WEB, module
        if module != "liverank_service.http.server":
            assert "uvicorn" not in used, module


def test_the_service_uses_the_public_names_of_the_engine() -> None:
    for path in FILES:
        for module, name in imports(path):
            if module.split(".")[0] == "liverank_gpu":
                assert module == "liverank_gpu", f"{path} imports {module}"
                assert name in {*liverank_gpu.__all__, "generate", "kernels"}, path


TABLES = (
    "liverank.choices.",
    "liverank.client.responses.",
    "liverank.client.sources.",
    "liverank.options.",
)
"""What the server has of the package that users import."""


def test_the_client_is_used_by_the_command_only_and_its_tables_by_all() -> None:
    for path in FILES:
        if not module_of(path).startswith("liverank_service.cli"):
            for module, name in imports(path):
                is_own = module.split(".")[0] != "liverank"
                is_table = f"{module}.{name}.".startswith(TABLES)
                assert is_own or is_table, f"{path} imports {module}"


def test_the_server_does_not_load_the_client() -> None:
    program = "import sys, liverank_service.app; print(set(sys.modules) & {'httpx', 'tenacity'})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


# uvicorn's internals

OF_THE_PARSER = {"on_chunk_header", "on_chunk_complete"}
"""Callbacks of httptools that uvicorn does not use."""


def test_the_internals_that_connections_use_are_those_that_are_checked() -> None:
    overridden = {name for name in vars(server.Connection) if not name.startswith("__")}
    methods, attributes = map(str.split, server.RELIED_ON[HttpToolsProtocol])
    assert overridden & set(dir(HttpToolsProtocol)) == {*methods} - {"_unset_keepalive_if_required"}
    others = {"_unset_keepalive_if_required", *attributes}
    used = names_used("self") - overridden
    assert {name for name in used if not name.startswith("_") or name in others} == others
    public = {name for name in overridden if not name.startswith("_")}
    assert public - set(methods) == OF_THE_PARSER <= set(dir(HTTPProtocol))
    assert {*server.RELIED_ON[RequestResponseCycle][1].split()} == names_used("cycle")
    assert {*server.RELIED_ON[FlowControl][0].split()} == names_used("flow")


def names_used(owner: str) -> set[str]:
    """Names of attributes that `Connection` reads, sets or calls of a variable or attribute."""
    tree = ast.parse(Path(server.__file__).read_text("utf-8"))
    connection = next(node for node in tree.body if getattr(node, "name", "") == "Connection")
    return {
        node.attr
        for node in ast.walk(connection)
        if isinstance(node, ast.Attribute)
        and owner in (getattr(node.value, "id", ""), getattr(node.value, "attr", ""))
    }


def test_a_uvicorn_without_one_of_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "on_response_complete")
    monkeypatch.setitem(server.RELIED_ON, FlowControl, ("pause_reading", "other_name"))
    monkeypatch.setattr(uvicorn, "__version__", "0.99.1")
    with pytest.raises(UnsupportedUvicorn) as refused:
        server.server_of(lambda *_: None, Rules(1, 1.0, str.encode))  # type: ignore[arg-type]
    assert str(refused.value) == (
        "uvicorn 0.99.1 is installed, and it lacks what the server needs of it: "
        "HttpToolsProtocol.on_response_complete, FlowControl.other_name; liverank is tested with "
        f"uvicorn{server.TESTED}: pip install 'uvicorn{server.TESTED}'"
    )


def test_commands_say_in_one_line_that_uvicorn_is_another(tmp_path: Path) -> None:
    program = """
import sys, uvicorn
uvicorn.__version__ = "0.99.1"
sys.modules["uvicorn.protocols.http.httptools_impl"] = None
from liverank_service.cli.main import main
for command in ["mcp", "--http"], ["serve", "--insecure"]:
    try:
        main([*command, "--port", "0"])
    except SystemExit as ended:
        print(ended.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["1", "1"], done.stderr
    refusal = "uvicorn 0.99.1 is installed, and it lacks what the server needs of it"
    assert done.stderr.count(refusal) == 2
    assert refusal in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_oldest_uvicorn_that_is_tested_is_the_oldest_that_is_installed() -> None:
    oldest = server.TESTED.split(",")[0]
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall('"uvicorn(.*)"', text) == [f"{oldest},<1"] * 2
