"""The house keeps its own rules: what is installed, what is shipped, what may stand in a tracked file, how large a module may be."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "remit"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULE_LINES = 800
FUNCTION_LINES = 60

LARGE_MODULES: dict[str, str] = {}
"""Modules over the limit, each with the reason why it is still one noun."""
LONG_FUNCTIONS: dict[str, str] = {}
"""Functions over the limit, each with its reason."""

MACHINE_PATHS = re.compile(r"(?<![\w.~$-])/(?:home/\w|Users/\w|root/|work/|opt/)")
REGISTRY_HOSTS = re.compile(r"pypi\.org|pythonhosted\.org|index-url|find-links", re.IGNORECASE)
GENERATED_BY_OTHERS = {"LICENSE"}


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: there is no list of tracked files")
    return [ROOT / name for name in listed.split("\0") if name and name not in GENERATED_BY_OTHERS and (ROOT / name).is_file()]


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "_pb2" not in path.name)  # those are made by the build


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_base_install_is_small() -> None:
    names = {re.split(r"[<>=~! ]", dependency)[0] for dependency in PROJECT["project"]["dependencies"]}
    assert names == {"pydantic", "typer", "rich", "python-frontmatter", "cedarpy", "tomlkit"}


def test_types_and_statements_are_shipped() -> None:
    shipped = PROJECT["tool"]["setuptools"]["package-data"]["remit"]
    present = {path for pattern in shipped for path in SOURCE.glob(pattern)}
    assert SOURCE / "py.typed" in present
    assert set(SOURCE.rglob("*.sql")) <= present
    assert files("remit").joinpath("py.typed").is_file()
    assert files("remit").joinpath("store/sql/schema.sql").is_file()


def test_no_tracked_file_holds_a_path_of_one_machine_or_a_package_registry() -> None:
    faults = []
    for path in tracked():
        if path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if MACHINE_PATHS.search(line) or REGISTRY_HOSTS.search(line):
                faults.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not faults, "\n".join(faults)


def test_nothing_that_is_made_here_is_tracked() -> None:
    made = {".venv", ".remit", "__pycache__", ".hypothesis", "build", "dist"}
    names = [path.relative_to(ROOT) for path in tracked()]
    assert [name for name in names if made & set(name.parts) or name.suffix == ".lock" or ".egg-info" in str(name)] == []


def test_no_module_is_too_large() -> None:
    sizes = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in modules()}
    assert {name for name, size in sizes.items() if size > MODULE_LINES} <= set(LARGE_MODULES), "find the missing noun and split it"


def test_no_function_is_over_sixty_lines() -> None:
    long = set()
    for path in modules():
        for function in functions(ast.parse(path.read_text())):
            if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES:
                long.add(f"{path.relative_to(SOURCE).as_posix()}:{function.name}")
    assert long <= set(LONG_FUNCTIONS), "split it by what it does"


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in modules() if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None]
    assert silent == []


def test_every_boundary_that_catches_everything_is_listed_in_the_architecture() -> None:
    """Handlers that raise again only undo something and need no entry; `testing` holds agents that misbehave on purpose."""
    catching = set()
    for path in (path for path in modules() if SOURCE / "testing" not in path.parents):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _raises_again(node):
                catching.add(path.relative_to(SOURCE).as_posix())
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## Where `except Exception` is allowed")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w/]+\.py)` \|", section, flags=re.MULTILINE))
    assert listed == catching


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in kinds)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_the_checks_run_the_command_of_the_readme_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make test"]
    readme = (ROOT / "README.md").read_text()
    assert "\nmake demo" in readme
    assert "\nmake test" in readme
