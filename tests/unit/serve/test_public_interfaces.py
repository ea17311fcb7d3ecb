"""The servers use public names of other packages only: a private one may change with any release."""

import ast
from pathlib import Path

SERVE = Path(__file__).parents[3] / "src" / "remit" / "serve"
OURS = {"_exit"}
"""`os._exit` is documented."""


def test_no_private_name_of_another_package_is_used() -> None:
    found = []
    for path in SERVE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("remit"):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                names = [node.attr]
            private = [name for name in names if name.startswith("_") and not name.startswith("__") and name not in OURS]
            found += [f"{path.name}:{getattr(node, 'lineno', 0)} {name}" for name in private]
    assert found == []
