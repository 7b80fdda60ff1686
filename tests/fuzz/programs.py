"""Random programs: functions of the checked subset, hostile changes of their text, and what a
compiler makes of those that are accepted.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from liverank_gpu.backends.cpu.programs import BEFORE, NATIVE, program_struct
from liverank_gpu.native import compiler
from liverank_gpu.operations.programs import KINDS, Layout, VertexProgram

INTEGERS = (0, 1, -1, 2, -7, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -2.5, 1e-320, 1e308, -1e19, float("inf"), float("-inf"), float("nan"))
"""Borders: arguments of the functions."""


RECORD = Layout.of(
    "Value", "dtype", {"size": "float32", "count": "int32", "id": "int64", "length": "float64"}
)


class Writer:
    """Writes functions of a number of each kind and a record, `whole`, `part` and `record`. Where a
    float is expected, an integer may be.
    """

    def __init__(self, seed: object) -> None:
        self._random = random.Random(repr(seed))
        self._variables: dict[str, list[str]] = {}
        self._result = ""

    def function(self, result: str) -> str:
        """The text of a function that returns an int, a float, a bool or a record."""
        self._variables = {"int": ["whole"], "float": ["part"], "record": ["record"]}
        self._result = result
        lines = ["def function(whole, part, record):"]
        lines += self._statements(self._random.randrange(6), "    ")
        lines.append(f"    return {self.expression(result, 5)}")
        return "\n".join(lines) + "\n"

    def _statements(self, count: int, indent: str) -> list[str]:
        lines = []
        for _ in range(count):
            kind = self._random.choice([*self._variables])
            name = f"{kind[0]}_{len(self._variables[kind])}"
            lines += self._assigned(kind, name, indent)
            self._variables[kind].append(name)
            if kind != "record" and self._random.random() < 0.3:
                operator = self._random.choice("+-*")
                lines.append(f"{indent}{name} {operator}= {self.expression(kind, 2)}")
        return lines

    def _assigned(self, kind: str, name: str, indent: str) -> list[str]:
        """Statements that give the variable a value on every path."""
        if self._random.random() < 0.7 or len(indent) > 12:
            return [f"{indent}{name} = {self.expression(kind, 3)}"]
        further = f"{indent}    "
        return [
            f"{indent}if {self.expression('bool', 2)}:",
            *self._assigned(kind, name, further),
            f"{indent}else:",
            *self._assigned(kind, name, further),
        ]

    def expression(self, kind: str, depth: int) -> str:
        """The text of an expression, of at most so many in one another."""
        pick = self._random.choice
        if kind == "float" and self._random.random() < 0.1:
            kind = "int"
        if kind == "record":
            return self._record(depth)
        if depth <= 0:
            if kind == "bool":
                return pick(["True", "False", "whole < 0", "part >= 1.0"])
            constants = (
                ["0", "1", "-3", "9223372036854775807", "2147483648", "True + 1"]
                if kind == "int"
                else ["0.0", "-1.5", "1e300", "math.inf", "math.pi", "1e999", "5e-324"]
            )
            fields = [name for name, of in RECORD.fields if KINDS[of] == kind]
            field = f"{pick(self._variables['record'])}.{pick(fields)}"
            return pick([*self._variables[kind], pick(constants), field])

        def part(of: str) -> str:
            return self.expression(of, depth - 1)

        if kind == "bool":
            same, record = pick(["int", "float"]), pick(self._variables["record"])
            conditions: list[Callable[[], str]] = [
                lambda: f"not {part('bool')}",
                lambda: f"({part('bool')} and {part('bool')} or {part('bool')})",
                lambda: f"({part(same)} {pick(['<', '<=', '==', '!='])} {part(same)})",
                lambda: f"({part(same)} < {part(same)} >= {part(same)})",
                lambda: f"math.{pick(['isinf', 'isnan'])}({part('float')})",
                lambda: f"({record} {pick(['==', '!='])} {part('record')})",
            ]
            return pick(conditions)()
        either: list[Callable[[], str]] = [
            lambda: f"({part(kind)} {pick('+-*')} {part(kind)})",
            lambda: f"({pick('+-')}{part(kind)})",
            lambda: f"{pick(['min', 'max'])}({part(kind)}, {part(kind)}, {part(kind)})",
            lambda: f"abs({part(kind)})",
            lambda: f"({part(kind)} if {part('bool')} else {part(kind)})",
        ]
        of_kind: dict[str, list[Callable[[], str]]] = {
            "int": [
                lambda: f"({part('int')} {pick(['//', '%'])} {part('int')})",
                lambda: f"int({part(pick(['int', 'float', 'bool']))})",
                lambda: f"math.{pick(['floor', 'ceil'])}({part(pick(['int', 'float']))})",
            ],
            "float": [
                lambda: f"({part(pick(['int', 'float']))} / {part(pick(['int', 'float']))})",
                lambda: f"float({part(pick(['int', 'float', 'bool']))})",
                lambda: f"math.{pick(['sqrt', 'fabs'])}({part(pick(['int', 'float']))})",
            ],
        }
        return pick([*either, *of_kind[kind]])()

    def _record(self, depth: int) -> str:
        pick, named = self._random.choice, self._random.choice(self._variables["record"])
        if depth <= 0 or self._random.random() < 0.2:
            return named
        if self._result != "record" or self._random.random() < 0.5:
            condition = self.expression("bool", depth - 1)
            return f"({named} if {condition} else {self._record(depth - 1)})"
        numbers = (self.expression(pick(["int", "float"]), depth - 1) for _ in RECORD.fields)
        return f"({', '.join(numbers)})"


PROGRAM = '''"""A program of which every part may be changed."""
import math
from math import sqrt as root

MOST = 1e6


class Program:
    """Shortest paths, nearly."""

    dtype = "float64"
    identity = math.inf
    merge = "min"
    parameters = {"source": 0, "most": 10.5}
    limits = {"most": (0.0, 100.0)}
    monotone = True
    supersteps = 50

    @staticmethod
    def initial(vertex, source, out_degree):
        return 0.0 if vertex == source else math.inf

    def gather(source_value, weight, most):
        length = max(weight, 1e-9) + root(abs(source_value * 0))
        if length > most:
            length = most
        elif length < 0 or not math.isinf(length):
            length += int(length) % 3 // 2
        return min(source_value + length, MOST)

    def apply(old, gathered):
        return min(old, gathered)

    def scatter(old, new):
        return old != new
'''

RECORDS = '''"""Values and edges of several numbers."""
FAR = 99


class Counted:
    """Shortest paths of chosen edges, counted; edges wear out."""

    dtype = {"level": "int32", "paths": "float64"}
    identity = (FAR, 0.0)
    edge_dtype = {"used": "int64", "left": "float32"}
    edge_initial = (0, 2.5)
    parameters = {"source": 0, "least": 0.5}
    supersteps = 40
    aggregator = "max"

    def initial(vertex, source):
        return (0, 1.0) if vertex == source else (FAR, 0.0)

    def sends(weight, least, edge, sender, receiver):
        return weight >= least and edge.left > 0.0 and sender % 7 != receiver % 5

    def gather(source_value, edge, superstep):
        further = source_value.level + 1, source_value.paths
        return further if edge.used <= superstep else source_value

    def merge(a, b):
        if a.level == b.level:
            return a.level, a.paths + b.paths
        return a if a.level < b.level else b

    def apply(old, gathered, superstep):
        if superstep % 4 == 3:
            return old.level, old.paths / 2
        return gathered if gathered.level < old.level else old

    def scatter(old, new):
        return old != new

    def aggregate(value):
        return 0.0 if value.level == FAR else value.paths

    def edge_apply(edge, aggregate):
        return edge.used + int(aggregate), edge.left - 0.75
'''

HOSTILE = (
    *("__import__('os')", "().__class__", "eval('1')", "open", "lambda: 0", "[x for x in old]"),
    *("import os", "exec", "globals()", "yield", "await", ":=", "*old", "**", "@", ";", "\\", "~"),
    *("while True: pass", "for i in range(9): pass", "def f(): return f()", "class", "del old"),
    *(
        "9" * 40,
        "0x" + "f" * 5000,
        "1e9999",
        "1j",
        "b''",
        "f'{old}'",
        '"; abort(); "',
        "'''",
        '"""',
    ),
    *(
        "int",
        "double",
        "return",
        "static",
        "NULL",
        "EOF",
        "linux",
        "assert",
        "template",
        "operator",
    ),
    *("POSITIVE_INFINITY", "MERGE", "Value", "_X", "__x", "x__y", "ñ", "ﬀ", "\u202e", "\x00", "\r"),
    *("(", ")", "[", "]", "{", "}", "((" * 30, "not " * 300, "- " * 2000, ":", "\n", "\n    ", "#"),
    *(
        "0",
        "-1",
        "True",
        "None",
        "...",
        "math",
        "math.inf",
        "source",
        "old",
        "new",
        "most",
        ".",
        ",",
    ),
    *(".level", "old.level", "edge.used", ".__class__", ".real", "(0, 1)", "(0, 1, 2)", "[0]"),
    *("old.level.level", "edge == old", '{"a": "int32"}', '{"a": {}}', '"__init__"', '"größe"'),
    *("/ 0", "// 0", "% 0", "** 9", "<< 99", "and", "if old else", "== old ==", "min(", "abs("),
)
"""Tokens that are put in, or in place of others."""


def changed(seed: object) -> str:
    """A program with a few hostile changes."""
    chosen = random.Random(repr(seed))
    text = chosen.choice([PROGRAM, RECORDS])
    for _ in range(chosen.choice([1, 1, 1, 2, 3])):
        kind, place = chosen.randrange(6), chosen.randrange(len(text))
        end = min(len(text), place + chosen.choice([1, 2, 4, 8, 40]))
        token = chosen.choice(HOSTILE)
        words = [each for each in text.split() if each]
        if kind == 0:
            text = text[:place] + token + text[place:]
        elif kind == 1:
            text = text[:place] + token + text[end:]
        elif kind == 2:
            text = text[:place] + text[end:]
        elif kind == 3:
            text = text[:place] + text[place:end] * chosen.choice([2, 3, 50]) + text[end:]
        elif kind == 4:
            text = text.replace(chosen.choice(words), token, 1)
        else:
            text = text.replace(chosen.choice(words), chosen.choice(words), 1)
    return text


def compiled(folder: Path, text: str, *options: str) -> Path:
    """The program `text`, compiled. Raises AssertionError with what the compiler says."""
    source, path = folder / "programs.cpp", folder / "programs"
    source.write_text(text)
    given = [*compiler.command(), "-std=c++20", "-w", f"-I{NATIVE}", *options]
    given += [str(source), "-o", str(path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[:4000]
    return path


def check_compiles(folder: Path, programs: Iterable[VertexProgram]) -> None:
    """Raises AssertionError if one does not."""
    structs = {each.digest: program_struct(each) for each in programs}
    text = f'{BEFORE}#define BORROWED_POOL\n#include "pool.cpp"\n#include "module.cpp"\n' + "".join(
        structs.values()
    )
    compiled(folder, text, "-DMODULE=fuzzed", "-fsyntax-only")


def results(folder: Path, functions: Sequence[str], kinds: Sequence[str]) -> list[list[Any]]:
    """What functions in C++ return of all pairs of INTEGERS and FLOATS, and of a record of both,
    where undefined behaviour traps. Floats are as `float.hex` writes them.
    """
    record = "Value::of(x, i, i, x)"
    calls = "".join(
        "for (long long i : integers) for (double x : floats) {"
        f'show_{kind}({name}(i, x, {record})); printf(" ");}} puts("");'
        for name, kind in zip((f"f{n}" for n in range(len(functions))), kinds, strict=True)
    )
    integers = ", ".join(f"(long long){each % 2**64}ULL" for each in INTEGERS)
    floats = "0.0, -0.0, 1.0, -2.5, 1e-320, 1e308, -1e19, HUGE_VAL, -HUGE_VAL, NAN"
    text = f"""
#include <cmath>
#include <cstdio>
#include "../kernels/program_vertex.h"
{" ".join(RECORD.declaration())}
static void show_int(long long n) {{ printf("%lld", n); }}
static void show_float(double x) {{ std::isnan(x) ? printf("nan") : printf("%a", x); }}
static void show_bool(bool b) {{ printf("%d", b); }}
static void show_record(Value v) {{
    show_float(v.size_); printf("|%d|%lld|", v.count_, v.id_); show_float(v.length_);
}}
{"".join(functions)}
int main() {{
    const long long integers[] = {{{integers}}};
    const double floats[] = {{{floats}}};
    {calls}
}}
"""
    checks = ["-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=float-divide-by-zero"]
    path = compiled(
        folder, text, "-ffp-contract=off", *checks, "-fsanitize-undefined-trap-on-error"
    )
    done = subprocess.run([str(path)], check=True, capture_output=True, text=True)
    kinds_of = {kind: [kind] for kind in ("int", "float", "bool")}
    kinds_of["record"] = [KINDS[each] for _, each in RECORD.fields]
    read: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": lambda text: float.fromhex(text).hex(),
        "bool": int,
    }

    def numbers(kind: str, text: str) -> list[Any]:
        parts = zip(kinds_of[kind], text.split("|"), strict=True)
        return [read[each](part) for each, part in parts]

    lines = done.stdout.splitlines()
    return [
        [numbers(kind, each) for each in line.split()]
        for line, kind in zip(lines, kinds, strict=True)
    ]


def shown(value: Any, kind: str) -> list[Any]:
    """A value of a function as `results` has it."""
    if kind == "record":
        kinds = [KINDS[each] for _, each in RECORD.fields]
        return [part for pair in zip(value, kinds, strict=True) for part in shown(*pair)]
    return [float(value).hex() if kind == "float" else int(value)]
