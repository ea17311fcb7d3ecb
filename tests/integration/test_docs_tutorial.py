"""The tutorial's agents and tests, and the guide to resuming, work as documented."""

import os
import signal
from pathlib import Path

import pytest
from documents import EXAMPLES, SCRIPTS, check_outputs, no_block_limit, run_script  # noqa: F401 - a fixture

from remit import Remit, Return
from support.pace import allowed
from support.programs import run

AGENT_FILES = sorted((EXAMPLES / "agents").glob("*.py"))


def test_killed_orchestrator_resumes_as_documented(tmp_path: Path) -> None:
    """Finished children do not run again."""
    crashed = run_script(EXAMPLES / "resumable.py", tmp_path, "crash")
    assert crashed.returncode == -signal.SIGKILL
    assert crashed.stdout == "fetched page 1\nfetched page 2\n"
    again = run_script(EXAMPLES / "resumable.py", tmp_path)
    assert again.stdout == "fetched page 3\nresumed: 3 pages in attempt 2.\n", again.stderr


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """The tutorial's folder with all of its agents."""
    (tmp_path / "one.txt").write_text("Dear reader, all is well.\n")
    (tmp_path / "two.txt").write_text("Nothing more to tell.\n")
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    for file in AGENT_FILES:
        (folder / file.name).write_text(file.read_text())
    return tmp_path


def test_example_of_a_test_passes(letters: Path) -> None:
    test = letters / "tests" / "test_words.py"
    test.parent.mkdir()
    test.write_text((EXAMPLES / "test_words.py").read_text())
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins of other packages, which take seconds to load
    ran = run(["-m", "pytest", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"], letters, env={**os.environ, **plugins})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


async def test_tutorial_agents_answer_as_documented(letters: Path) -> None:
    async with Remit.open(letters) as remit:
        assert remit.directory.problems == []
        assert (await remit.delegate("words.count", path="one.txt")).data == 5
        folder = await remit.delegate("words.folder")
        assert folder.summary == "Counted 2 files. They hold 9 words in all."
        assert [(a.path, a.evidence) for a in folder.artifacts] == [("words.md", "checked")]
        slow: Return = await remit.delegate("slow")
        assert (slow.status, slow.errors[0].code, slow.artifacts[0].path) == ("partial", "TIMEOUT", "slow.txt")
        # the deadline counts from acceptance, the duration from the start: slightly later under load
        assert 2.5 <= slow.metadata.duration_seconds < allowed(4)


@pytest.mark.timeout(600)  # dozens of processes, also on a slow machine
def test_second_half_of_the_examples_prints_the_documented_output(tmp_path: Path) -> None:
    check_outputs(SCRIPTS[len(SCRIPTS) // 2 :], tmp_path)
