"""Kill a process that changes the board at each of its write calls: the change is applied completely or not at all."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import board_crashes
import pytest
from board_crashes import PLAN, finish

from remit import Board, Task
from remit import BoardState as State
from remit import TaskStatus as Status
from remit.board import archive, todo
from remit.system import edits
from support.lab import rounds
from support.programs import run

MOST_CALLS = 300
STEP = rounds(7, lab=1)
"""Number of calls between two kills. The lab kills at every call."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Folder in memory where available: each test creates about a hundred projects."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="remit-kill9-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncing: killing a process loses no written data."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def begin(root: Path) -> None:
    """Create three tasks, the first with a folder, and a manual edit that is not imported yet."""
    board = Board(root)
    with board.change("begun", make=True) as draft:
        draft.state = draft.state.with_tasks(
            [
                Task(number=1, title="One", slug="one", status=Status.COMPLETED, created=draft.at, description="The first."),
                Task(number=2, title="Two", slug="two", created=draft.at, description="The second."),
                Task(number=3, title="Three", slug="three", created=draft.at, description="The third."),
            ]
        )
        draft.write("specs/001_one/reports/research-001.md", "found\n")
        draft.write(PLAN, "old plan\n")
    board.todo_path.write_text(board.todo_path.read_text().replace("The second.", "The second, by hand."))


def is_killed(work: str, root: Path, number: int, *options: str) -> bool:
    """Run this work of `board_crashes` and kill it before its `number`-th call; False if it ended earlier."""
    done = run([board_crashes.__file__, work, str(root), str(number), *options], root.parent)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def crashes(folder: Path, *options: str) -> Iterator[Path]:
    """Yield the project after a crash at each call in turn, and finally without a crash."""
    template = folder / "template"
    template.mkdir()
    begin(template)
    for number in range(1, MOST_CALLS, STEP):
        root = folder / str(number)
        shutil.copytree(template, root)
        crashed = is_killed("change", root, number, *options)
        yield root
        shutil.rmtree(root)
        if not crashed:
            assert number > 25, "the child is not killed at its write calls"
            return
    raise AssertionError("the change never ended")


def is_made(state: State) -> bool:
    made = [task.title for task in state.tasks] == ["Two", "Third", "Four"]
    assert made or [task.title for task in state.tasks] == ["One", "Two", "Three"], state
    assert state.task(2).description == "The second, by hand."
    assert state.next_number == (5 if made else 4)
    return made


def agrees(root: Path, made: bool) -> None:
    board = Board(root)
    state = board.look().state
    assert is_made(state) is made
    assert board.todo_path.read_text() == todo.draw(state)
    assert (root / PLAN).read_text() == ("new plan\n" if made else "old plan\n")
    assert (root / "specs/001_one").exists() is not made
    assert (root / "specs/archive/001_one/reports/research-001.md").exists() is made
    assert [task.number for task in archive.archived_tasks(board)] == ([1] if made else [])
    assert not list((board.folder / "set").iterdir())
    assert not list((root / "specs").glob("*kept*")), "no file of another author was kept aside"


@pytest.mark.parametrize("has_exchange", [True, False])
def test_change_killed_at_any_call_is_atomic(folder: Path, has_exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_exchange:
        monkeypatch.setattr(edits, "exchange", lambda one, other: False)
    seen = set()
    for root in crashes(folder, *(() if has_exchange else ("--no-exchange",))):
        looked = is_made(Board(root).look().state)
        with Board(root).change():
            pass
        agrees(root, looked)
        seen.add(looked)
    assert seen == {True, False}


def test_manual_edit_after_a_crash_is_merged_or_kept(folder: Path) -> None:
    """It is kept in another file if the change was complete except for TODO.md."""
    for number, root in enumerate(crashes(folder)):
        board = Board(root)
        text = board.todo_path.read_text()
        written = board.todo_path if number % 2 else board.todo_path.with_name("TODO.md~")  # saved in place, or by renaming
        written.write_text(text.replace("The third.", "The third, by hand."))
        written.replace(board.todo_path)
        os.utime(board.todo_path, (1, 1))  # old enough to count as completely written
        with Board(root).change():
            pass
        state = board.look().state
        is_made(state)
        kept = [path.read_text() for path in board.specs.glob("TODO.md.kept-*")]
        assert "The third, by hand." in "".join((state.task(3).description, *kept)), number


def test_recovery_of_a_change_survives_kill_at_any_call(folder: Path) -> None:
    template = folder / "template"
    template.mkdir()
    begin(template)
    assert is_killed("die_when_committed", template, -1)
    for number in range(1, MOST_CALLS, STEP):
        root = folder / str(number)
        shutil.copytree(template, root)
        crashed = is_killed("finish", root, number)
        assert is_made(Board(root).look().state)
        finish(root)
        agrees(root, made=True)
        shutil.rmtree(root)
        if not crashed:
            return
    raise AssertionError("the change never ended")
