"""Sources of strangers: refused with a line, or a program that compiles and computes what it says;
nothing of them runs as Python.
"""

from __future__ import annotations

import ast
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import InvalidSource
from liverank_gpu.device_functions import FunctionSource, device_function
from liverank_gpu.operations.programs import VertexProgram
from liverank_gpu.programs.source import Evaluated, program_of_source
from tests.fuzz.programs import (
    FLOATS,
    INTEGERS,
    PROGRAM,
    Writer,
    changed,
    check_compiles,
    results,
)

CHANGED = int(os.environ.get("LIVERANK_FUZZED_PROGRAMS", "200"))


def accepted(source: str) -> VertexProgram | None:
    """The program; None if its text is refused, with a line that it has."""
    try:
        return program_of_source("fuzzed", source)
    except InvalidSource as error:
        refusal = error
    assert 1 <= refusal.line <= source.count("\n") + source.count("\r") + 1
    assert len(str(refusal)) < 4000
    return None


def test_changed_programs_are_refused_with_a_line_or_compile(tmp_path: Path) -> None:
    found, longest = [], 0.0
    for seed in range(CHANGED):
        began = time.thread_time()
        program = accepted(changed(seed))
        longest = max(longest, time.thread_time() - began)
        if program is not None:
            found.append(program)
    assert CHANGED // 50 < len(found) < CHANGED // 2
    assert longest < 1.0
    check_compiles(tmp_path, found[:200])


def test_accepted_functions_compute_what_they_say_and_nothing_is_undefined(tmp_path: Path) -> None:
    kinds: list[Any] = ["int", "float", "bool"] * 50
    known: dict[str, Any] = {"whole": "int", "part": "float"}
    functions, expected, texts = [], [], []
    for number, kind in enumerate(kinds):
        text = Writer(number).function(kind)
        (definition,) = ast.parse(text).body
        assert isinstance(definition, ast.FunctionDef)
        constants = {"math": math}
        evaluated = Evaluated(definition, constants)
        source = FunctionSource(definition, constants, evaluated)
        functions.append(device_function("f", source, f"f{number}", known, kind).cpp)
        expected.append([_shown(evaluated(i, x), kind) for i in INTEGERS for x in FLOATS])
        texts.append(text)
    for text, found, wanted in zip(
        texts, results(tmp_path, functions, kinds), expected, strict=True
    ):
        assert found == wanted, text


def _shown(value: Any, kind: str) -> Any:
    return float(value).hex() if kind == "float" else bool(value) if kind == "bool" else int(value)


def _with(line: str) -> str:
    """The program with a statement in `scatter`."""
    return PROGRAM.replace(
        "        return old != new", f"        {line}\n        return old != new"
    )


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        (_with("old.real"), 35, "old.real"),
        (_with("x = old.__class__"), 35, "one of math.inf"),
        (_with("x = scatter(old, new)"), 35, "a call of min"),
        (_with("x = eval(1)"), 35, "a call of min"),
        (_with("x = (lambda: 1)"), 35, "without functions"),
        (_with("x = [y for y in (1, 2)]"), 35, "without loops"),
        (_with("while new > old: new = new"), 35, "without loops"),
        (_with("for i in range(10**9): old = new"), 35, "without loops"),
        (_with("import os"), 35, "import os"),
        (_with("x = 'text'"), 35, "'text'"),
        (_with("x = 0x" + "f" * 5000), 35, "64 bits"),
        (_with("x = 99999999999999999999"), 35, "64 bits"),
        (_with("_Exit = 1"), 35, "plain name"),
        (_with("int = 1"), 35, "plain name"),
        (_with("x__y = 1"), 35, "plain name"),
        (_with("größe = 1"), 35, "'ö'"),
        (_with("x = f'{old}'"), 35, '"\'"'),
        (_with("x = old; y = new"), 35, "';'"),
        (_with("x = " + "(" * 40 + "old" + ")" * 40), 35, "brackets"),
        (_with("x = " + "not " * 500 + "old"), 35, "nested"),
        (_with("x = " + "abs(" * 25 + "old" + ")" * 25 + " + old" * 100), 35, "nested"),
        (_with("x = " + "(old < " * 25 + "old" + " < new)" * 25), 35, "shorter"),
        (_with("x = " + "+ " * 5000 + "old"), 35, "others of its line"),
        (_with("x = yield"), 35, "yield"),
        (_with("global x"), 35, "global"),
        (PROGRAM + "#" * 20_000, 1, "16,384 characters"),
        (PROGRAM.replace("class Program", "class Program(object)"), 8, "without bases"),
        (PROGRAM.replace("@staticmethod", "@property"), 19, "staticmethod"),
        (PROGRAM.replace('"float64"', '"int; abort()"'), 11, "'int32'"),
        (PROGRAM.replace('"min"', '"}; int x[0 ? 1 : 1"'), 13, "'min'"),
        (PROGRAM.replace('"most": 10.5', '"x; abort()": 1'), 14, "abort"),
        ("", 1, "a class"),
        ("import math\n" * 1000, 1, "a class"),
    ],
)
def test_what_is_refused_is_named_with_its_line(source: str, line: int, reason: str) -> None:
    with pytest.raises(InvalidSource) as error:
        program_of_source("refused", source)
    assert error.value.line == line
    assert reason in str(error.value)


def test_deep_and_long_sources_are_refused_in_time_on_a_small_stack() -> None:
    indented = "\n".join(" " * (8 + n) + "if old < new:" for n in range(90))
    hostile = [
        *(
            _with("x = " + opened * 5000)
            for opened in ("(", "[", "{", "-", "not ", "(-", "{0:", "f(")
        ),
        _with(indented + "\n" + " " * 99 + "old = new"),
        _with("if old:\n" + "        elif old:\n".join(["            old = new\n"] * 300)),
        _with("x = " + "old".join(["<("] * 60)),
        _with("\n        ".join(f"v{n} = v{n + 1}" for n in range(800))),
        _with("x = " + "abs(" * 29 + "old" + ")" * 29),
        PROGRAM.replace('"most": 10.5', '"most": ' + "{1: " * 3000),
        "'''" * 5000,
        '"' * 16_000,
        "@" * 16_000,
        "class A:\n" * 1000,
    ]
    took: list[float] = []

    def read() -> None:
        for source in hostile:
            began = time.thread_time()
            accepted(source)
            took.append(time.thread_time() - began)

    before = threading.stack_size(1 << 20)
    try:
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
    finally:
        threading.stack_size(before)
    assert len(took) == len(hostile)
    assert max(took) < 2.0


def test_nothing_of_a_source_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the source of a program was executed")

    program = program_of_source("read", PROGRAM)
    for name in ("exec", "eval", "__import__"):
        monkeypatch.setattr(f"builtins.{name}", never)
    assert program_of_source("read", PROGRAM).digest == program.digest
