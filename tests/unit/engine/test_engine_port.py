"""Nothing outside `remit.engines` knows more of an engine than its port, so that a second engine can take its place."""

import ast
from pathlib import Path

import remit
from remit.runtime.engine import Engine

SOURCES = Path(remit.__file__).parent
OUTSIDE = [path for path in SOURCES.rglob("*.py") if not path.is_relative_to(SOURCES / "engines")]


def test_only_app_imports_the_engines() -> None:
    importing = {
        path.relative_to(SOURCES).as_posix()
        for path in OUTSIDE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("remit.engines")
    }
    assert importing == {"app.py"}


def test_clients_of_an_engine_use_its_port_alone() -> None:
    port = {name for name in vars(Engine) if not name.startswith("_")}
    beyond = [
        f"{path.relative_to(SOURCES)}:{node.lineno} engine.{node.attr}"
        for path in OUTSIDE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr not in port and _is_engine(node.value)
    ]
    assert beyond == []


def _is_engine(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "engine") or (isinstance(node, ast.Attribute) and node.attr == "engine")
