"""Programs in C++ on the CPU: those of the extension, and those that are compiled at first use."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import BackendUnavailable, EdgeBatch, Engine, Options
from liverank_gpu.backends.cpu.programs import HEADERS, NATIVE, library_source, loops_of
from liverank_gpu.native import compiler, kernels
from liverank_gpu.operations.programs import VertexProgram
from liverank_gpu.programs import algorithms
from liverank_gpu.programs.algorithms import LEVELS, PAGERANK

ROOT = Path(__file__).parents[3]


def test_the_extension_has_the_built_in_programs() -> None:
    found = [each for each in vars(algorithms).values() if isinstance(each, VertexProgram)]
    assert len(found) == 6
    for program in found:
        assert hasattr(kernels, f"initialise_{program.digest}"), program.name


def test_the_kind_of_a_parameter_makes_another_program() -> None:
    whole = replace(PAGERANK, parameters={**PAGERANK.parameters, "most": 1})
    other = replace(PAGERANK, parameters={**PAGERANK.parameters, "most": 1.0})
    assert len({PAGERANK.digest, whole.digest, other.digest}) == 3


def _seven_further(source_value: Any) -> Any:
    return source_value + 7


def _three_further(source_value: Any) -> Any:
    return source_value + 3


def test_a_program_is_compiled_again_if_what_it_includes_changes(tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text(library_source(LEVELS))
    command = compiler.command()
    given = [*compiler.flags(command, "program", 0), "-w", f"-I{NATIVE}"]
    listed = subprocess.run(
        [*command, *given, "-MM", str(source)], capture_output=True, text=True, check=True
    )
    included = {Path(name).resolve() for name in listed.stdout.replace("\\\n", " ").split()[2:]}
    assert len(included) > 5
    assert included <= {path.resolve() for path in HEADERS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept in this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "liverank" / "programs"


def test_without_a_compiler_an_error_names_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(Options(), "cpu")
    engine.apply(EdgeBatch.of([(0, 1), (1, 2)]))
    own = replace(LEVELS, name="own", gather=_seven_further)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    expected = r"'own' .* no C\+\+ compiler: install g\+\+ or clang, .* '\.\[programs\]'"
    with pytest.raises(BackendUnavailable, match=expected):
        engine.run(own)
    assert engine.run("levels").values.tolist() == [0, 1, 2]
    monkeypatch.undo()
    assert engine.run(own).values.tolist() == [0, 7, 14]


def test_what_the_compiler_refuses_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = folder.parents[1] / "compiler"
    compiler.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(RuntimeError, match="'levels' does not compile:\nout of order"):
        loops_of(replace(LEVELS, gather=_three_further))
    assert not list(folder.iterdir())


def test_the_compiler_has_limits_and_leaves_nothing_running(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, process = folder.parents[1] / "compiler", folder.parents[1] / "pid"
    script = f"#!/bin/sh\nsleep 1000 2> /dev/null &\necho $! > {process}\n"
    compiler.write_text(f"{script}ulimit -t >&2\nulimit -d >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(RuntimeError, match="does not compile:\n300\n4194304\n"):
        loops_of(replace(LEVELS, gather=_three_further))
    for _ in range(100):
        state = Path(f"/proc/{int(process.read_text())}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("what the compiler started still runs")
    compiler.write_text("#!/bin/sh\necho cc1plus: out of memory >&2\nexit 1\n")
    with pytest.raises(BackendUnavailable, match="not compiled within 300 s and 4 GiB"):
        loops_of(replace(LEVELS, gather=_three_further))


SCRIPT = """
import logging

from liverank_gpu import EdgeBatch, Engine, Options, VertexProgram

logging.basicConfig(level=logging.INFO, format="%(message)s")


def start(vertex, source):
    return 0 if vertex == source else 99


def further(source_value):
    return source_value + 7


def nearest(old, gathered):
    return min(old, gathered)


def changed(old, new):
    return old != new


program = VertexProgram(
    "sevens", "int32", 99, start, further, "min", nearest, changed, parameters={"source": 0}
)
engine = Engine(Options(), "cpu")
engine.apply(EdgeBatch.of([(0, 1), (1, 2)]))
print(engine.run(program).values.tolist())
"""


def _started(folder: Path) -> subprocess.Popen[str]:
    script = folder.parents[1] / "own.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _compiled(process: subprocess.Popen[str]) -> bool:
    """Whether it compiled its program, once its answer is as it should be."""
    out, err = process.communicate(timeout=300)
    assert out == "[0, 7, 14]\n", err
    assert err in ("", "compiling the program 'sevens', once\n")
    return bool(err)


def test_a_program_is_compiled_once_for_all_processes_and_again_if_damaged(folder: Path) -> None:
    both = [_started(folder) for _ in range(2)]
    compiled = [_compiled(each) for each in both]
    assert any(compiled)
    (library,) = folder.iterdir()
    assert not _compiled(_started(folder))
    whole = library.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-100] + bytes(68) + whole[-32:], b""):
        library.write_bytes(damaged)
        assert _compiled(_started(folder))
        assert list(folder.iterdir()) == [library]
    assert not _compiled(_started(folder))


def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert _compiled(_started(folder))
    assert not list(folder.iterdir())
    folder.chmod(0o700)
    folder.parent.chmod(0o777)
    assert _compiled(_started(folder))
    assert not list(folder.iterdir())
