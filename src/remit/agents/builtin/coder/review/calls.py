"""Calls that no longer fit, within the file itself: a function or method got other parameters, and is still called as before.

Only what is sure: a plain name, or `self.` and `cls.` in the class that defines it or one below it in the file; nothing behind decorators
that may change a signature, nor with starred arguments. Callers in other files are `interface`'s matter. Pure.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.matter import ChangedFile
from remit.agents.builtin.coder.review.risky_python import tree_of

_HARMLESS = frozenset({"staticmethod", "classmethod", "abstractmethod", "override", "cache", "lru_cache", "final", "wraps"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """What a call must and may hand over; without the object itself."""

    positional: tuple[str, ...]
    named: frozenset[str]
    required: tuple[str, ...]
    any_positional: bool
    any_named: bool

    def fault(self, call: ast.Call) -> str:
        """Why this call cannot be right; empty where it can."""
        if any(isinstance(one, ast.Starred) for one in call.args) or any(keyword.arg is None for keyword in call.keywords):
            return ""
        given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        if len(call.args) > len(self.positional) and not self.any_positional:
            return f"takes only {len(self.positional)} arguments in a row"
        if (unknown := sorted(given - self.named)) and not self.any_named:
            return f"does not take {', '.join(unknown)}"
        filled = given | set(self.positional[: len(call.args)])
        lacking = [name for name in self.required if name not in filled]
        return f"needs {', '.join(lacking)}" if lacking else ""


def calls_left(file: ChangedFile) -> Iterator[Finding]:
    """Of the functions whose parameters the change changed."""
    tree, was = tree_of(file.after or ""), tree_of(file.before or "")
    if tree is None or was is None:
        return
    before, now = _wanted(was), _wanted(tree)
    changed = {name: wants for name, wants in now.items() if before.get(name, wants) != wants}
    if not changed:
        return
    lines = (file.after or "").split("\n")
    for name, call in _calls(tree):
        wants = changed.get(name)
        fault = wants.fault(call) if wants is not None else ""
        if not fault:
            continue
        line = call.func.end_lineno or call.lineno
        yield Finding(
            severity=Severity.HIGH,
            category="interface",
            rule="callers-left",
            file=file.path,
            line=line,
            message=f"{name.rpartition('.')[2]} {fault} now, but is still called as before.",
            suggestion="Change this call too, or give the new parameter a default.",
            snippet=lines[line - 1] if line <= len(lines) else "",
        )


def _wanted(tree: ast.Module) -> dict[str, Wants]:
    """By `name`, or `Class.name`: those at the top and in classes there; not what is defined twice, or assigned too."""
    found: dict[str, Wants | None] = {}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for one, prefix in [(node, ""), *((member, f"{node.name}.") for member in inner if isinstance(node, ast.ClassDef))]:
            if isinstance(one, Function):
                name = prefix + one.name
                found[name] = None if name in found else _wants(one, is_method=bool(prefix))
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    names = assigned | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    members = assigned | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)}
    return {
        name: wants
        for name, wants in found.items()
        if wants is not None and name.rpartition(".")[2] not in (members if "." in name else names)
    }


def _wants(function: Function, *, is_method: bool) -> Wants | None:
    decorators = [_last_name(one) for one in function.decorator_list]
    if not set(decorators) <= _HARMLESS:
        return None
    arguments = function.args
    row = [*arguments.posonlyargs, *arguments.args]
    needed = row[: len(row) - len(arguments.defaults)]
    if is_method and "staticmethod" not in decorators:
        row, needed = row[1:], needed[1:]
    only = {one.arg for one in arguments.posonlyargs}
    required = [one.arg for one in needed]
    required += [one.arg for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return Wants(
        positional=tuple(one.arg for one in row),
        named=frozenset(one.arg for one in (*row, *arguments.kwonlyargs)) - only,
        required=tuple(required),
        any_positional=arguments.vararg is not None,
        any_named=arguments.kwarg is not None,
    )


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Each with the name of what is called, as `_wanted` names it."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        owner = node if isinstance(node, ast.ClassDef) else None
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            if isinstance(call.func, ast.Name):
                yield call.func.id, call
            elif owner and (method := _own_method(call.func)) and (home := _home(owner, method, classes)):
                yield f"{home}.{method}", call


def _own_method(node: ast.expr) -> str:
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
    return node.attr if is_own and isinstance(node, ast.Attribute) else ""


def _home(owner: ast.ClassDef, method: str, classes: dict[str, ast.ClassDef]) -> str:
    """The class that defines the method, as far as the file tells: the class itself, else the first of its bases."""
    seen: set[str] = set()
    waiting = [owner]
    while waiting:
        one = waiting.pop(0)
        if one.name in seen:
            continue
        seen.add(one.name)
        if any(isinstance(member, Function) and member.name == method for member in one.body):
            return one.name
        waiting += [classes[base.id] for base in one.bases if isinstance(base, ast.Name) and base.id in classes]
    return ""
