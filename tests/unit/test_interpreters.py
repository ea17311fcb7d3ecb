"""Every Python that remit starts ignores the working directory, which may contain a hostile `json.py`."""

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import remit as package
from remit import Remit, agent
from remit.system.interpreter import agent_path, module_command, remit_command

SOURCES = Path(package.__file__).parent


def interpreters_without_isolation(source: str) -> list[int]:
    """Lines where `sys.executable` is followed by an argument that is not `-I`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        row = node.elts if isinstance(node, (ast.List, ast.Tuple)) else node.args if isinstance(node, ast.Call) else []
        for word, following in itertools.pairwise(row):
            if ast.unparse(word) == "sys.executable" and ast.unparse(following) != "'-I'":
                found.append(node.lineno)
    return found


def test_every_interpreter_in_the_sources_is_isolated() -> None:
    assert interpreters_without_isolation('run([sys.executable, "-m", "pip"])') == [1]
    assert interpreters_without_isolation('run(sys.executable, "-P", "x.py")') == [1]
    found = {
        str(path): lines
        for path in SOURCES.rglob("*.py")
        if "sys.executable" in (source := path.read_text()) and (lines := interpreters_without_isolation(source))
    }
    assert found == {}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with modules that leave a file behind when they are imported."""
    for name in ("json", "socket", "runpy", "select"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # as in `python -c`
    monkeypatch.setenv("PYTHONPATH", "")
    return tmp_path


@agent("where", isolation="process")
def where() -> list[str]:
    return sys.path


async def test_agent_processes_import_nothing_from_the_working_directory(hostile: Path) -> None:
    async with Remit.open(hostile, agents=[where]) as remit:
        found = await remit.delegate("where")
    assert found.ok
    assert found.data == agent_path()
    assert "" not in found.data
    assert not (hostile / "imported").exists()


@pytest.mark.parametrize("command", [module_command("remit", "--version"), [*remit_command(), "--version"]])
def test_remit_started_in_a_hostile_directory_imports_nothing_from_it(hostile: Path, command: list[str]) -> None:
    ran = subprocess.run(command, cwd=hostile, capture_output=True, text=True, check=True, timeout=60)
    assert "remit" in ran.stdout
    assert not (hostile / "imported").exists()
