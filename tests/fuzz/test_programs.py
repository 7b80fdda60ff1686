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
from liverank_gpu.programs.source import program_of_source
from tests.fuzz.programs import (
    FLOATS,
    INTEGERS,
    PROGRAM,
    RECORD,
    RECORDS,
    Writer,
    changed,
    check_compiles,
    results,
    shown,
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
    kinds: list[Any] = ["int", "float", "bool", "record"] * 50
    known: dict[str, Any] = {"whole": "int", "part": "float", "record": RECORD.kind}
    functions, expected, texts = [], [], []
    for number, kind in enumerate(kinds):
        text = Writer(number).function(kind)
        (definition,) = ast.parse(text).body
        assert isinstance(definition, ast.FunctionDef)
        source = FunctionSource(definition, {"math": math})
        result = RECORD.kind if kind == "record" else kind
        function = device_function("f", source, f"f{number}", known, result)
        functions.append(function.cpp)
        given = [(i, x, RECORD.record(x, i, i, x)) for i in INTEGERS for x in FLOATS]
        expected.append([shown(function.python(*each), kind) for each in given])
        texts.append(text)
    for text, found, wanted in zip(
        texts, results(tmp_path, functions, kinds), expected, strict=True
    ):
        assert found == wanted, text


def _with(line: str) -> str:
    """The program with a statement in `scatter`."""
    return PROGRAM.replace(
        "        return old != new", f"        {line}\n        return old != new"
    )


LONG = "x = " + "(old < " * 9 + "old" + " < new)" * 9
"""More than half of a function in C++."""


def _of_records(before: str, after: str) -> str:
    return RECORDS.replace(before, after, 1)


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
        (_with("\n        ".join([LONG] * 2)), 34, "shorter"),
        (_with("x = " + "+ " * 5000 + "old"), 35, "others of its line"),
        (_with("x = yield"), 35, "yield"),
        (_with("global x"), 35, "global"),
        (PROGRAM + "#" * 20_000, 1, "16,384 characters"),
        (PROGRAM.replace("class Program", "class Program(object)"), 8, "without bases"),
        (PROGRAM.replace("@staticmethod", "@property"), 19, "staticmethod"),
        (PROGRAM.replace('"float64"', '"int; abort()"'), 11, "'int32'"),
        (PROGRAM.replace('"min"', '"}; int x[0 ? 1 : 1"'), 13, "'min'"),
        (PROGRAM.replace('"most": 10.5', '"x; abort()": 1'), 14, "abort"),
        (PROGRAM.replace("(old, gathered)", "(old, elsewhere)", 1), 31, "line 31: 'elsewhere'"),
        (_of_records("old != new", "old.__class__"), 37, "a record of level, paths"),
        (_of_records("old != new", "old.level.real"), 37, "one of math.inf"),
        (_of_records("old != new", "old < new"), 37, "== or != of two records"),
        (_of_records("old != new", "old[0] != new[0]"), 37, "part of the Python"),
        (_of_records("edge.used + int(aggregate)", "old.level"), 43, "'old.level'"),
        (_of_records("edge.used + int(aggregate), ", ""), 43, "a record of used, left"),
        (_of_records("(edge, aggregate)", "(edge, gathered)"), 42, "line 42: 'gathered'"),
        (_of_records('"paths": "float64"', '"größe": "float64"'), 8, "a plain name"),
        (_of_records('"paths": "float64"', '"__init__": "float64"'), 8, "a plain name"),
        (_of_records('"paths": "float64"', '"level": "float64"'), 8, "a dict by names"),
        (_of_records('"paths": "float64"', '"paths": {}'), 8, "dtype.paths"),
        (_of_records('"paths": "float64"', '"paths": "int; abort()"'), 8, "'int32'"),
        (_of_records("(FAR, 0.0)\n", "(FAR, 0.0, 1)\n"), 9, "a tuple of level, paths"),
        (_of_records("(FAR, 0.0)\n", "(FAR, (1,))\n"), 9, "an integer or a float"),
        (_of_records("(FAR, 0.0)\n", "(FAR, 0.0) + (1,)\n"), 9, "a tuple"),
        (_of_records("edge_initial = (0, 2.5)", "edge_initial = (2.5, 2.5)"), 11, "an int64"),
        (
            _of_records('edge_dtype = {"used": "int64", "left": "float32"}', ""),
            42,
            "edge_dtype",
        ),
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
