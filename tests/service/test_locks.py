"""What threads share is used only with its lock held: a check of the source, as by the annotations
GUARDED_BY and REQUIRES of Clang's thread safety analysis.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MUTATORS = {"append", "add", "clear", "discard", "extend", "insert", "pop", "popleft", "popitem"}
MUTATORS |= {"remove", "setdefault", "update"}


@dataclass(frozen=True)
class Guard:
    """The attribute `lock` of a class.

    always    attributes, of any object, that its methods use only with the lock held
    writes    attributes that they change only so: others may read them at any time
    requires  methods that are called with the lock held
    alone     methods that run while no other thread uses the object, or that call `acquire`
    """

    file: str
    of: str
    lock: str
    always: str = ""
    writes: str = ""
    requires: str = ""
    alone: str = ""


GUARDS = [
    Guard(
        "pipeline/writer.py",
        "Admission",
        "_changing",
        always="jobs bytes refused _last_seconds",
        requires="_check",
    ),
    Guard(
        "pipeline/waiting.py",
        "Waiters",
        "_changing",
        always="_newest _waiting _closed",
    ),
    Guard(
        "pipeline/writer.py",
        "WorkQueue",
        "_changed",
        always="_waiting closed queries",
        alone="refuse",
    ),
    Guard(
        "pipeline/published.py",
        "EventRing",
        "_changing",
        always="_events _bytes _removed _newest _waiting _closed",
        requires="_wake",
    ),
    Guard(
        "pipeline/published.py",
        "ChangeFeed",
        "_changing",
        always="subscribers idle_since _with_views",
        writes="_work _thread _closed _rings",
        requires="_remove_idle_rings",
    ),
    Guard(
        "pipeline/checkpointer.py",
        "Checkpointer",
        "_wake",
        always="_grown _changed_at _requested",
        writes="_closed",
        requires="_seconds_left _is_due",
    ),
    Guard("storage/api_keys.py", "ApiKeyStore", "_changing", writes="_keys", requires="_replace"),
    Guard(
        "storage/programs.py",
        "ProgramStore",
        "_changing",
        writes="_programs",
        requires="_replace",
        alone="open",
    ),
    Guard(
        "storage/journal.py",
        "Journal",
        "_writing",
        writes="_state",
        requires="_transaction",
        alone="_open",
    ),
    Guard("storage/journal.py", "Journal", "_reading", always="_reader", alone="_open"),
    Guard(
        "catalog.py",
        "Catalog",
        "_changing",
        writes="_graphs _stopped",
        requires="_create _recover _warm_up _open_graph",
        alone="close",
    ),
    Guard("pipeline/edge_reading.py", "EdgeReading", "_copying", "_last"),
    Guard("queries/view.py", "_TopCache", "_growing", writes="_cached"),
]


def uses(guard: Guard) -> Iterator[str]:
    """Uses of what the lock guards without it."""
    tree = ast.parse((ROOT / "service/liverank_service" / guard.file).read_text("utf-8"))
    (found,) = (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == guard.of
    )
    seen: set[str] = set()
    for method in found.body:
        if isinstance(method, ast.FunctionDef):
            locked = method.name in guard.requires.split()
            exempt = method.name in ("__init__", *guard.alone.split())
            for statement in method.body:
                for line, name, held in _used(guard, statement, locked):
                    seen.add(name)
                    if not held and not exempt:
                        yield f"{guard.file}:{line}: {name} without {guard.lock}"
    named = {*guard.always.split(), *guard.writes.split(), *guard.requires.split()}
    assert seen == named, "all that is named above is used"


def _used(guard: Guard, node: ast.AST, held: bool) -> Iterator[tuple[int, str, bool]]:
    """Lines and names of uses that need the lock, and whether it is held."""
    if isinstance(node, ast.With):
        held = held or any(
            ast.unparse(item.context_expr) == f"self.{guard.lock}" for item in node.items
        )
    for attribute, needs in _attributes(guard, node):
        if needs:
            yield attribute.lineno, attribute.attr, held
    for child in ast.iter_child_nodes(node):
        yield from _used(guard, child, held)


def _attributes(guard: Guard, node: ast.AST) -> Iterator[tuple[ast.Attribute, bool]]:
    """Attributes at a node, and whether their use needs the lock."""
    if isinstance(node, ast.Attribute):
        named = {*guard.always.split(), *guard.requires.split()}
        changed = isinstance(node.ctx, ast.Store | ast.Del) and node.attr in guard.writes.split()
        yield node, node.attr in named or changed
    inner: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        inner = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.func.value if node.func.attr in MUTATORS else None
    if isinstance(inner, ast.Attribute):
        yield inner, inner.attr in guard.writes.split()


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: f"{guard.of}.{guard.lock}")
def test_what_a_lock_guards_is_used_only_with_it(guard: Guard) -> None:
    assert list(uses(guard)) == []


def test_every_lock_is_in_the_table() -> None:
    made = {
        (str(file.relative_to(ROOT / "service/liverank_service")), target.attr)
        for file in (ROOT / "service/liverank_service").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("threading.Lock", "threading.Condition")
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    assert made == {(guard.file, guard.lock) for guard in GUARDS}
