"""The documents of this repository and their examples, for the tests of the documentation."""

import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.programs import run

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = ROOT / "docs" / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
BLOCK = re.compile(
    r"(?:^<!-- (?P<kind>file|output): (?P<path>\S+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROGRAM = """
import os, runpy, sys
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""
"""Ends without finalization, in which threads of temporalio sometimes abort the interpreter."""
OTHER_OUTPUTS = {"first_agent.py": "completed: README.md has 3 words.\n"}
"""Of examples whose output no document shows."""


@pytest.fixture(autouse=True)
def no_block_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the event loop of an example gets no time for seconds: its agents are not to be stopped for that."""
    monkeypatch.setenv("REMIT_BLOCK_LIMIT_SECONDS", "60")


def blocks(kind: str | None) -> list[tuple[str, "re.Match[str]"]]:
    found = [(document.name, block) for document in DOCUMENTS for block in BLOCK.finditer(document.read_text())]
    return [(name, block) for name, block in found if block["kind"] == kind]


def run_script(script: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text("one two three\n")
    return run(["-c", PROGRAM, str(script), *arguments], folder, timeout=180)


def check_outputs(scripts: Iterable[Path], folder: Path) -> None:
    """Run examples, several at once as most of them wait, and compare what they print with the documents."""
    scripts = list(scripts)
    with ThreadPoolExecutor(3) as pool:
        runs = dict(zip(scripts, pool.map(lambda script: run_script(script, folder / script.stem), scripts), strict=True))
    assert {script.name: done.stderr for script, done in runs.items() if done.returncode} == {}
    for script, done in runs.items():
        assert done.stdout == OTHER_OUTPUTS.get(script.name, done.stdout)
    for name, block in blocks("output"):
        if (script := ROOT / block["path"]) in runs:
            assert _without_seconds(block["text"]) == _without_seconds(runs[script].stdout), f"{name}: {block['path']}"


def _without_seconds(text: str) -> str:
    """Measured seconds, which have a decimal, depend on the machine."""
    return re.sub(r"\d+\.\d s\b", "some s", text)
