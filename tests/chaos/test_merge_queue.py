"""Many writers on one repository: despite conflicts and kills, main always passes its tests and no change is lost or repeated."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import writers

from remit import Remit
from support.lab import is_lab, rounds
from support.repository import git

pytestmark = pytest.mark.timeout(3600 if is_lab() else 240)
SCRIPT = Path(writers.__file__)
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
COMPILED["PYTHONPATH"] = str(Path(__file__).parents[1])
"""Environment for programs that start often."""


def statuses(root: Path) -> dict[int, str]:
    entries = json.loads((root / "specs/state.json").read_bytes())["active_projects"]
    return {entry["project_number"]: entry["status"] for entry in entries}


def landed(root: Path) -> Counter[int]:
    """Count how often the work of each task is on main."""
    subjects = git(root, "log", "--format=%s", "main").splitlines()
    return Counter(int(subject.split()[1].rstrip(":")) for subject in subjects if ": Change " in subject)


def states_of_main(root: Path) -> list[str]:
    return list(dict.fromkeys(git(root, "log", "-g", "--format=%H", "main").split()))


def red_states(root: Path, folder: Path) -> list[str]:
    """Return the commits of main whose test suite fails."""
    red = []
    folder.mkdir(exist_ok=True)
    git(root, "worktree", "add", "-q", "--detach", str(folder / "state"), "main")
    for commit in states_of_main(root):
        git(folder / "state", "checkout", "-q", "--detach", commit)
        if subprocess.run(["python3", "-B", "-m", "unittest", "-q", "test_items"], cwd=folder / "state", capture_output=True).returncode:
            red.append(commit)
    return red


async def states_on_record(root: Path) -> set[str]:
    """Return the recorded states of the delegations whose work is on main."""
    sessions = git(root, "log", "--grep=: Change ", "--format=%(trailers:key=Session,valueonly)", "main").split()
    async with Remit.open(root, recover=False) as remit:
        return {str((await remit.describe(session)).state) for session in sessions}


def check(root: Path, folder: Path, count: int, seed: int) -> None:
    """Check that board, git and records agree, main always passed, and work that did not land is on its branch and on the board."""
    board, on_main = statuses(root), landed(root)
    completed = {number for number, status in board.items() if status == "completed"}
    assert len(board) == count
    assert set(on_main) == completed
    assert set(on_main.values()) <= {1}, "each task lands once"
    # A kill during the creation of a worktree leaves a branch without work.
    branches = git(root, "branch", "--no-merged", "main", "--list", "remit/*", "--format=%(refname:short)").split()
    assert len(branches) == count - len(completed), "the other tasks are on their branches"
    assert all(board[number] in ("partial", "implementing") for number in board if number not in completed)
    assert red_states(root, folder) == []
    assert git(root, "status", "--porcelain").strip() == ""
    assert asyncio.run(states_on_record(root)) == {"completed"}
    possible = {number for number in board if writers.kind_of(number, seed) != "bad"}
    assert completed <= possible
    assert len(completed) >= 0.95 * len(possible), f"{len(completed)} of {len(possible)} landed"


@pytest.mark.parametrize("seed", range(18, 18 + rounds(1, lab=10)))
def test_parallel_writers_land_every_change_that_can_land(tmp_path: Path, seed: int) -> None:
    """`make lab` uses ten repositories with 100 changes each."""
    count, wait = rounds(6, lab=100), rounds(1, lab=30)
    root = tmp_path / "repository"
    writers.make_repository(root, count)
    began = time.monotonic()
    asyncio.run(writers.implement_all(root, list(range(1, count + 1)), width=20, wait=wait, seed=seed))
    seconds = time.monotonic() - began
    check(root, tmp_path / "states", count, seed)
    if is_lab():
        alone = tmp_path / "alone"
        writers.make_repository(alone, 4)
        began = time.monotonic()
        asyncio.run(writers.implement_all(alone, list(range(1, 5)), width=1, wait=wait, seed=seed))
        assert (time.monotonic() - began) / 4 >= 3 * seconds / count, "at least three times as fast as a sequential run"


@pytest.mark.parametrize("seed", range(7, 7 + rounds(1, lab=5)))
def test_killed_orchestrator_leaves_one_outcome_per_task(tmp_path: Path, seed: int) -> None:
    kills, count = rounds(3, lab=20), rounds(5, lab=20)
    root, chance = tmp_path / "repository", random.Random(seed)
    writers.make_repository(root, count)
    command = [sys.executable, str(SCRIPT), str(root), "4", "0.1", str(seed)]
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=COMPILED, start_new_session=True) as running:
            assert running.stdout is not None
            running.stdout.readline()  # the program has started
            time.sleep(chance.uniform(0, 3))
            running.kill()
        assert set(landed(root).values()) <= {1}
    at_once = [subprocess.Popen(command, stdout=subprocess.PIPE, env=COMPILED, text=True) for _ in range(2)]
    for running in at_once:  # a task that the other implements is refused
        running.communicate(timeout=rounds(200, lab=1000))
    assert [running.returncode for running in at_once] == [0, 0]
    subprocess.run(command, check=True, capture_output=True, env=COMPILED, timeout=200)  # the turns of a killed repair count as used
    check(root, tmp_path / "states", count, seed)
