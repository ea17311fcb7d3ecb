"""The board in a terminal of any width. Titles are untrusted text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Board, Task
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit.board import claims
from remit.board.view import TaskState, View, view_of
from remit.cli.board import lines_of
from remit.cli.render import width
from support.boards import board_with


def task(number: int, *dependencies: int, title: str = "", status: Status = Status.NOT_STARTED, **more: object) -> Task:
    return Task(number=number, title=title or f"Task {number}", slug="t", dependencies=dependencies, status=status, **more)  # type: ignore[arg-type]


@pytest.fixture
def view(tmp_path: Path) -> View:
    return view_of(
        board_with(
            tmp_path,
            task(1, status=Status.COMPLETED),
            task(2, 1, priority=Priority.HIGH, language="lean"),
            task(3, 2, status=Status.PLANNED),
            task(4, status=Status.BLOCKED, blocking_reason="no key"),
            task(5, status=Status.RESEARCHING),
            task(6, 7),
            task(7, 6),
        )
    )


def test_terminal_shows_next_commands_and_why_tasks_wait(view: View) -> None:
    text = "\n".join(lines_of(view, 100))
    assert re.search(r"! 2  \[NOT STARTED\]  Task 2 +→ remit research 2", text)
    assert re.search(r"3  \[PLANNED\] .* waits for 2", text)
    assert re.search(r"4  \[BLOCKED\] .* no key", text)
    assert re.search(r"5  \[RESEARCHING\] .* → remit research 5", text)
    assert "Tasks 6 → 7 → 6 wait for one another: none of them can begin." in text
    assert text.splitlines()[0] == "7 tasks: 1 stopped · 1 ready · 3 waiting · 1 blocked · 1 done"


def test_running_command_of_a_task_is_shown(tmp_path: Path) -> None:
    board = board_with(tmp_path, task(1, status=Status.RESEARCHING))
    with claims.claim(board, 1, "research", seconds=60) as claim:
        claim.name_session("sess_1700000000_abc123")
        seen = view_of(board)
        assert seen.states[1] is TaskState.RUNNING
        assert re.search(r"research · 0\.\d\d s · abc123", "\n".join(lines_of(seen, 100)))
        assert seen.to_dict()["tasks"][0]["running"]["command"] == "research"


@given(st.text(max_size=300), st.integers(40, 200), st.text(max_size=100))
def test_no_line_exceeds_the_terminal_or_controls_it(title: str, wide: int, reason: str) -> None:
    tasks = (
        task(1, title=title or "x"),
        task(12345, 1, title=title or "x"),
        task(3, status=Status.BLOCKED, title="y", blocking_reason=reason),
    )
    seen = replace(_view(*tasks, *(task(number, 100 + number % 30) for number in range(100, 130))), notices=(reason, title))
    for line in lines_of(seen, wide):
        assert width(line) <= wide
        assert line == "" or line.isprintable()


def _view(*tasks: Task) -> View:
    """A view without files, so that titles which no file can contain are drawn too."""
    from remit.board.board import Snapshot
    from remit.board.task import State

    class Unwritten(Board):
        def look(self) -> Snapshot:
            return Snapshot(state=State(tasks=tasks))

    return view_of(Unwritten(Path("/nowhere")))
