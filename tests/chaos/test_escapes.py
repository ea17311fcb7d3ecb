"""Every escape attempt of the corpus fails, in bubblewrap and with Landlock alone, as root and as an unprivileged user."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import escape_stage, escapes, processes, sandboxes
from support.escape_stage import STACKS, offer_of, targets, try_all, try_outside
from support.escapes import ATTEMPTS, Attempt
from support.sandboxes import node

SOURCE = Path(__file__).parents[2] / "src"
STRANGER = 61_234
TRIED = [attempt for attempt in ATTEMPTS if attempt.language != "javascript" or node() is not None]

each = pytest.mark.parametrize("attempt", TRIED, ids=lambda attempt: attempt.name)
each_stack = pytest.mark.parametrize("stack", STACKS)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Create the targets of the escape attempts."""
    with targets(tmp_path_factory.mktemp("project")) as facts:
        yield facts


@pytest.fixture(scope="module")
def ours(facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Output of each attempt, run as the user of the tests."""
    found: list[dict[str, dict[str, str]]] = []
    trying = threading.Thread(target=lambda: found.append(asyncio.run(try_all(facts))))  # a separate event loop beside that of the tests
    trying.start()
    trying.join()
    return found[0]


@pytest.fixture(scope="module")
def strangers(facts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Output of each attempt, run as an unprivileged user who owns all targets."""
    python = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if os.geteuid() != 0 or python is None:
        pytest.skip("needs root to change the user, and an interpreter that every user can execute")
    folder = tmp_path_factory.mktemp("strange")
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "support").mkdir()
    for module in (escapes, escape_stage, processes, sandboxes):
        shutil.copy(module.__file__, folder / "support")
    for path in (folder, facts["project"], *facts["project"].rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    _open_up(folder)
    _open_up(facts["project"])
    libraries = [path for path in sys.path if path.endswith("-packages")]
    with subprocess.Popen(["sleep", "300"], user=STRANGER, env={"REMIT_TEST_SECRET": "geheim"}) as victim:
        ran = subprocess.run(
            [python, "-m", "support.escape_stage", json.dumps({**facts, "victim": victim.pid}, default=str)],
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            cwd=folder,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(folder),
                "PYTHONPATH": ":".join([str(folder / "src"), str(folder), *libraries]),
                "REMIT_TEST_SECRET": "geheim",
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert victim.poll() is None, "an attempt killed the victim process"
        victim.kill()
    if "PermissionError" in ran.stderr and not ran.stdout:
        pytest.skip("the packages are not readable for every user")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def _open_up(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if path.stat().st_mode & 0o001 == 0:
            path.chmod(path.stat().st_mode | 0o011)
        if path == Path("/tmp"):
            break


@each_stack
@each
def test_no_escape_succeeds(attempt: Attempt, stack: str, ours: dict[str, dict[str, str]]) -> None:
    said = ours[stack][attempt.name]
    assert "TRIED" in said, said
    assert "ESCAPED" not in said, said


@each_stack
def test_no_escape_succeeds_for_an_unprivileged_user(stack: str, strangers: dict[str, dict[str, str]]) -> None:
    said = strangers[stack]
    assert [name for name, words in said.items() if "ESCAPED" in words] == []
    assert [name for name, words in said.items() if "TRIED" not in words and "Node" not in words] == []


def test_escape_programs_succeed_without_a_sandbox(facts: dict[str, Any], ours: dict[str, Any], tmp_path: Path) -> None:
    """A bug in an escape program must not look like a working sandbox."""
    (facts["project"] / "victim.txt").write_text("leave me alone")
    said = try_outside(facts, tmp_path)
    assert len(said) > 40
    gone = {"move a file in from outside"}  # an earlier attempt removes the file
    if len(os.listdir(facts["home"])) < 2:
        gone.add("list the home folder")  # the folder has no visible entries
    assert {name: words for name, words in said.items() if "ESCAPED" not in words and name not in gone} == {}


def test_both_sandbox_stacks_report_their_names() -> None:
    assert offer_of("bubblewrap").stack.startswith("bubblewrap + Landlock")
    assert offer_of("landlock").stack.startswith("Landlock")
