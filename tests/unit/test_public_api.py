"""The public API: `public_api.txt` lists every name of `remit` and `remit.testing`; documents and examples import from nowhere else.

After an intended change, `python tests/unit/test_public_api.py` rewrites the list.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import remit
import remit.testing

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("public_api.txt")
IMPORT = re.compile(r"^\s*(?:>>> )?(?:from|import) (remit(?:\.\w+)*)", re.MULTILINE)
NAMES = re.compile(r"^\s*(?:>>> )?from remit import (?:\(([^)]*)\)|([^(\n]*))", re.MULTILINE)
IMPORTED = re.compile(r"(\w+)(?: as \w+)?(?:,|\s*$|\s*#)")
BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def public_names(package: ModuleType) -> Iterator[str]:
    """One line per name: its kind and its parameters, read from the source, so that no optional package is imported."""
    for public, (module, own) in sorted(package._HOME_OF.items()):
        yield f"{package.__name__}.{public}: {_described(module, own)}"
        for name in _exports(f"{module}.{own}"):
            yield f"{package.__name__}.{public}.{name}: {_described(f'{module}.{own}', name)}"


def _exports(module: str) -> list[str]:
    """`__all__` of a public module."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a class or function
        return []
    if spec is None or spec.origin is None:
        return []
    tree = ast.parse(Path(spec.origin).read_text())
    listed = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return [name for value in listed for name in ast.literal_eval(value)]


def _described(module: str, own: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name == own:
                return f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}function({_parameters(node.args)})"
            case ast.ClassDef(name=name) if name == own:
                return _class(node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if name == own:
                return "value"
            case ast.ImportFrom(module=home, names=names) if home and any((one.asname or one.name) == own for one in names):
                return _described(home, own)
    assert importlib.util.find_spec(f"{module}.{own}") is not None, f"{module} has no {own}"
    return "module"


def _class(node: ast.ClassDef) -> str:
    made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    fields = [one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    public = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("_")]
    older = [
        one.targets[0] for one in node.body if isinstance(one, ast.Assign) and isinstance(one.value, ast.Name) and one.value.id in public
    ]
    public += [one.id for one in older if isinstance(one, ast.Name)]
    parameters = _parameters(made.args).removeprefix("self").removeprefix(", ") if made else ", ".join(fields)
    return f"class({parameters})" + (f" with {', '.join(sorted(set(public)))}" if public else "")


def _parameters(arguments: ast.arguments) -> str:
    optional = len(arguments.posonlyargs + arguments.args) - len(arguments.defaults)
    names = [f"{one.arg}{'=' if place >= optional else ''}" for place, one in enumerate(arguments.posonlyargs + arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else ["*"] if arguments.kwonlyargs else []
    names += [one.arg + ("" if default is None else "=") for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return ", ".join([*names, *([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])])


def listing() -> str:
    return "\n".join([*public_names(remit), *public_names(remit.testing)]) + "\n"


def test_public_names_and_their_parameters_match_the_list() -> None:
    assert listing().splitlines() == LISTED.read_text().splitlines(), f"If this is intended, run python {__file__}"


@pytest.mark.parametrize("package", [remit, remit.testing], ids=lambda package: package.__name__)
def test_every_listed_name_can_be_completed_and_an_unknown_one_is_an_error(package: ModuleType) -> None:
    assert sorted(package.__all__) == sorted(package._HOME_OF)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_documents_and_examples_import_only_the_public_api() -> None:
    sources = {path: path.read_text() for path in (ROOT / "docs/examples").rglob("*.py")}
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        sources[path] = "\n".join(BLOCK.findall(path.read_text()))
    found = {(path.name, module) for path, text in sources.items() for module in IMPORT.findall(text)}
    assert {one for one in found if one[1] not in ("remit", "remit.testing")} == set()
    named = {
        (path.name, name) for path, text in sources.items() for names in NAMES.findall(text) for name in IMPORTED.findall(" ".join(names))
    }
    assert {one for one in named if one[1] not in (*remit.__all__, "testing")} == set()


if __name__ == "__main__":
    LISTED.write_text(listing())
