"""Nothing outside `remit.engines` knows more of an engine than its port, so that a second engine can take its place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import remit
from remit.runtime.engine import Engine

SOURCES = Path(remit.__file__).parent


def test_clients_of_an_engine_use_its_port_alone() -> None:
    port = {name for name in vars(Engine) if not name.startswith("_")}
    beyond = [
        f"{path}:{node.lineno} engine.{node.attr}"
        for path, node in _nodes()
        if isinstance(node, ast.Attribute) and node.attr not in port and _is_engine(node.value)
    ]
    importing = {path for path, node in _nodes() if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("remit.engines")}
    assert (beyond, importing) == ([], {"app.py"})


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in SOURCES.rglob("*.py"):
        if not path.is_relative_to(SOURCES / "engines") and "engine" in (text := path.read_text()):
            for node in ast.walk(ast.parse(text)):
                yield path.relative_to(SOURCES).as_posix(), node


def _is_engine(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "engine") or (isinstance(node, ast.Attribute) and node.attr == "engine")
