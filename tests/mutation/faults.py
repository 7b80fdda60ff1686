"""Small faults, one at a time: where they can be put into a source, and what they look like.

A fault replaces a part of one file. Messages, annotations, docstrings, logging and figures of
memory use are left alone: a fault in them is not one of behaviour.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}

_SILENT = re.compile(r"log|_log|logger|print|console|warnings|progress")
"""Objects whose calls only tell people something."""

_LOCK = re.compile(r"lock|condition|changed|changing|mutex", re.IGNORECASE)

_SYNC = re.compile(r"^(os\.f(data)?sync|write_synced|sync_directory|_sync_all|.*\.sync(_\w+)?)\(")
"""Calls after which something is on the disk."""

_LEFT_ALONE = {
    "warm_up",
    "warm_up_others",
    "__repr__",
    "__str__",
    "memory",
    "bytes_needed",
    "nbytes",
}
"""Functions of messages, of memory use, and of compilation in advance."""

_CPP = [
    (re.compile(r" < "), " <= ", "comparison"),
    (re.compile(r" > "), " >= ", "comparison"),
    (re.compile(r" == "), " != ", "comparison"),
    (re.compile(r" && "), " || ", "condition"),
    (re.compile(r" \+ "), " - ", "sign"),
    (re.compile(r" \* "), " / ", "sign"),
    (re.compile(r" \+= "), " = ", "term left out"),
]
"""Patterns in C++, of CUDA and of the CPU, what replaces them, and the kind of the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`new` instead of the bytes from `begin` to `end` of a file.

    path  relative to the project's root
    """

    path: str
    line: int
    kind: str
    begin: int
    end: int
    old: str
    new: str

    def put_into(self, root: Path) -> None:
        """Changes the file below `root`, which must be without a fault."""
        file = root / self.path
        text = file.read_bytes()
        assert text[self.begin : self.end].decode() == self.old
        file.write_bytes(text[: self.begin] + self.new.encode() + text[self.end :])


def faults_of(root: Path, file: Path) -> list[Fault]:
    """All faults that can be put into a file, in its order."""
    path = str(file.relative_to(root))
    text = file.read_text("utf-8")
    found = _of_python(path, text) if file.suffix == ".py" else _of_cpp(path, text)
    return sorted(found, key=lambda fault: (fault.begin, fault.end, fault.kind))


def _of_cpp(path: str, text: str) -> Iterator[Fault]:
    begin = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        code = line.split("//")[0]
        if not code.lstrip().startswith(("#", "template", "*")):
            for pattern, new, kind in _CPP:
                for match in pattern.finditer(code):
                    first = begin + len(line[: match.start()].encode())
                    last = first + len(match[0].encode())
                    yield Fault(path, number, kind, first, last, match[0], new)
        begin += len(line.encode())


def _of_python(path: str, text: str) -> Iterator[Fault]:
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    source = text.encode()
    for node, kind, new in _changes(ast.parse(text)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        yield Fault(path, node.lineno, kind, begin, end, source[begin:end].decode(), new)


_Change = tuple["ast.expr | ast.stmt", str, str]


def _changes(tree: ast.AST) -> Iterator[_Change]:
    """Nodes to replace, the kind of fault, and what replaces them."""
    for node in _behaviour(tree):
        if isinstance(node, ast.expr):
            yield from ((node, kind, f"({ast.unparse(new)})") for kind, new in _expressions(node))
        elif isinstance(node, ast.stmt):
            yield from _statements(node)


def _behaviour(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that decide what the code does."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name not in _LEFT_ALONE:
                for statement in child.body:
                    yield statement
                    yield from _behaviour(statement)
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield child.value
                yield from _behaviour(child.value)
            continue
        if isinstance(child, ast.Expr) and _is_silent(child.value):
            continue
        yield child
        if not isinstance(child, ast.Raise):
            yield from _behaviour(child)


def _is_silent(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return True
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func)
    return bool(_SILENT.search(name.split("(")[0]))


def _expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        turned = copy.deepcopy(node)
        turned.ops = [_COMPARISONS[type(node.ops[0])]()]
        yield "comparison", turned
    elif isinstance(node, ast.BoolOp):
        turned_bool = copy.deepcopy(node)
        turned_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "condition", turned_bool
        yield "condition", node.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "condition", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _SIGNS and not _is_text(node):
        yield "term left out", node.left
        signed = copy.deepcopy(node)
        signed.op = _SIGNS[type(node.op)]()
        yield "sign", signed
        for side in ("left", "right"):
            operand = getattr(node, side)
            if isinstance(operand, ast.Constant):
                other = copy.deepcopy(node)
                if isinstance(operand.value, float):
                    setattr(other, side, ast.Constant(operand.value / 2))
                    yield "constant", other
                elif isinstance(operand.value, int):
                    setattr(other, side, ast.Constant(operand.value + 1))
                    yield "constant", other


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))
        for part in ast.walk(node)
    )


def _statements(node: ast.stmt) -> Iterator[_Change]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        call = ast.unparse(node.value)
        yield node, "sync left out" if _SYNC.match(call) else "call left out", "pass"
    elif isinstance(node, ast.Raise):
        yield node, "error not raised", "pass"
    elif isinstance(node, ast.AugAssign):
        plain = ast.Assign([node.target], node.value, lineno=node.lineno)
        yield node, "term left out", ast.unparse(plain)
    elif isinstance(node, ast.With) and len(node.items) == 1:
        context = node.items[0].context_expr
        if _LOCK.search(ast.unparse(context)):
            yield context, "lock not taken", "__import__('contextlib').nullcontext()"
