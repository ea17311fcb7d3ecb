"""Pending commits: the next command commits the changes of a killed one; every commit names its session."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from remit import Board, NewTask, TaskArtifact
from remit import abandon_tasks as abandon
from remit import add_task as record
from remit import archive_tasks as todo
from remit import divide_task as divide
from remit import recover_tasks as recover
from remit.board.commits import NOTES, PendingCommit
from support.repository import begin, git

KILLED_BEFORE_GIT = """
import os, signal, sys
from pathlib import Path
import remit.board.commits as committing
committing.commit = lambda *given, **more: os.kill(os.getpid(), signal.SIGKILL)
from remit.board.board import Board
from remit.board.task_commands import todo
todo(Board(Path(sys.argv[1])), agreed=lambda tasks: True)
"""


@pytest.fixture
def board(tmp_path: Path) -> Board:
    begin(tmp_path)
    made = Board(tmp_path)
    record(made, NewTask(text="First"))
    record(made, NewTask(text="Second"))
    return made


def subjects(board: Board) -> list[str]:
    return git(board.root, "log", "--format=%s").splitlines()


def uncommitted(board: Board) -> list[str]:
    """Uncommitted files outside `.remit`."""
    return [line for line in git(board.root, "status", "--porcelain", "-uall").splitlines() if ".remit/" not in line]


def with_report(board: Board, number: int) -> None:
    with board.change() as draft:
        task = draft.state.task(number)
        path = f"{task.folder}/reports/research-001.md"
        draft.write(path, "# Found\n")
        draft.state = draft.state.with_task(replace(task, artifacts=(TaskArtifact(type="research", path=path),)))
        board.commit_for(draft, "report")


def test_changes_of_a_killed_todo_are_committed_by_the_next_command(board: Board) -> None:
    with_report(board, 1)
    abandon(board, [1], "no")
    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_GIT, str(board.root)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert uncommitted(board), "moved but not committed"

    outcome = record(board, NewTask(text="Third"))
    assert subjects(board)[:2] == ["task 3: create", "todo: archive 1 task"]
    assert any("todo: archive 1 task" in warning for warning in outcome.warnings)
    assert not uncommitted(board)
    moved = git(board.root, "show", "-M", "--name-status", "--format=", "HEAD~1")
    assert "R100\tspecs/001_first/reports/research-001.md\tspecs/archive/001_first/reports/research-001.md" in moved
    assert git(board.root, "show", "--name-only", "--format=", "HEAD").splitlines() == ["specs/TODO.md", "specs/state.json"]
    assert os.listdir(board.root / NOTES) == []


@pytest.mark.parametrize("made_in", ["nowhere", "another project"])
def test_note_that_came_with_a_clone_commits_nothing(board: Board, tmp_path: Path, made_in: str) -> None:
    (board.root / "private.txt").write_text("not meant for git\n")
    pending = PendingCommit(subject="task 1: theirs", paths=("private.txt",), since=0.0)
    note = json.loads(pending.to_bytes(tmp_path / "other"))
    if made_in == "nowhere":
        del note["seal"]
        note["since"] = "never"
    (board.root / pending.note).write_text(json.dumps(note))
    outcome = record(board, NewTask(text="Third"))
    assert any("private.txt" in warning and "not made here" in warning for warning in outcome.warnings)
    assert subjects(board)[:2] == ["task 3: create", "task 2: create"]
    assert git(board.root, "log", "--all", "--format=%H", "--", "private.txt") == ""
    assert board.recover() == ()


def test_commit_blocked_by_a_merge_is_made_by_the_next_command(board: Board) -> None:
    with_report(board, 1)
    abandon(board, [1], "no")
    (board.root / ".git" / "MERGE_HEAD").write_text(git(board.root, "rev-parse", "HEAD") + "\n")
    warned = todo(board, agreed=lambda tasks: True)
    assert warned.status == "completed"
    assert "GIT_COMMIT_FAILED" in warned.warnings[-1]
    assert "tries again" in warned.warnings[-1]
    (board.root / ".git" / "MERGE_HEAD").unlink()
    recover(board, [1])
    assert subjects(board)[:2] == ["task 1: recover", "todo: archive 1 task"]
    assert not uncommitted(board)


def test_every_board_commit_names_its_session(board: Board) -> None:
    for command in (
        lambda one: abandon(one, [1], "no"),
        lambda one: recover(one, [1]),
        lambda one: divide(one, 1, "1. read\n2. write"),
        lambda one: abandon(one, [2], "no"),
        lambda one: todo(one, agreed=lambda tasks: True),
    ):
        command(Board(board.root))
    commits = git(board.root, "log", "--format=%s|%(trailers:key=Session,valueonly,separator=)").splitlines()
    assert [line.partition("|")[0] for line in commits[::-1]] == [
        "task 1: create", "task 2: create", "task 1: abandon", "task 1: recover", "task 1: divide into 3, 4", "task 2: abandon",
        "todo: archive 1 task",
    ]  # fmt: skip
    sessions = [line.partition("|")[2] for line in commits]
    assert all(re.fullmatch(r"sess_\d+_[a-z0-9]{6}", session) for session in sessions)
    assert len({*sessions}) == len(commits) - 1, "one session per command"
