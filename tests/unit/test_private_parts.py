"""No private part of a dependency is used: nothing with a leading underscore that is not our own."""

import ast
from collections.abc import Iterator
from pathlib import Path

import remit

SOURCES = Path(remit.__file__).parent
ALLOWED = {
    # Documented for those who extend asyncio; a task that ignores its cancellation would otherwise hold asyncio.run for ever.
    ("engines/embedded/delegation_run.py", "_unregister_task"),
}
DOCUMENTED = frozenset({"_asdict", "_replace", "_fields", "_value_", "_getframe", "_current_frames", "_exit"})
"""Of the standard library, with an underscore only so that they clash with no name."""
IN_THE_SANDBOX = "system/sandbox/keeper.py"
"""Runs code in a bare interpreter: it uses the standard library's own start and end, and no package."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in DOCUMENTED


def own_names(tree: ast.AST) -> Iterator[str]:
    """Private names that a module of ours defines: functions, classes, fields, slots, attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in ("self", "cls"):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value  # __slots__


def foreign_parts(tree: ast.AST, own: frozenset[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and not node.module.startswith("remit"):
            yield from (name for name in (*node.module.split("."), *(one.name for one in node.names)) if is_private(name))
        elif isinstance(node, ast.Import):
            yield from (name for one in node.names for name in one.name.split(".") if is_private(name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield str(name.value)


def test_no_private_part_of_a_dependency_is_used() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCES.rglob("*.py") if "_pb2" not in path.name}
    own = frozenset(name for tree in trees.values() for name in own_names(tree) if is_private(name))
    found = {(str(path.relative_to(SOURCES)), name) for path, tree in trees.items() for name in foreign_parts(tree, own)}
    found = {one for one in found if not one[0].startswith(IN_THE_SANDBOX)}
    assert found - ALLOWED == set()
    assert found >= ALLOWED, "what is no longer needed is taken off the list"


def test_private_parts_are_found() -> None:
    lines = ("from h11._util import x", "asyncio._unregister_task(t)", "t._log_destroy_pending = 1", "getattr(t, '_paused')", "self._own")
    found = list(foreign_parts(ast.parse("\n".join(lines)), frozenset({"_own"})))
    assert sorted(found) == ["_log_destroy_pending", "_paused", "_unregister_task", "_util"]
