"""The archive: closed tasks and their folders. Task numbers are never reused."""

import json
from pathlib import Path

import pytest

from remit import Board, Task, Unavailable
from remit import TaskStatus as Status
from remit.board.archive import put_away


@pytest.fixture
def board(tmp_path: Path) -> Board:
    made = Board(tmp_path)
    with made.change(make=True) as draft:
        draft.state = draft.state.with_tasks(
            Task(number=number, title=f"T{number}", slug="t", status=Status.COMPLETED) for number in (1, 2, 3)
        )
    return made


def test_numbers_of_archived_tasks_are_never_reused(board: Board) -> None:
    with board.change() as draft:
        put_away(board, draft, [2, 3])
    data = json.loads(board.state_path.read_bytes())
    data["next_project_number"] = 1
    board.state_path.write_text(json.dumps(data))
    with board.change() as draft:
        assert draft.state.next_number == 4
    board.state_path.unlink()
    board.todo_path.unlink()
    with board.change(make=True) as draft:
        assert draft.state.next_number == 4
        draft.state = draft.state.with_task(Task(number=999, title="Four", slug="four"))
    assert board.look().state.next_number == 1000, "numbers grow beyond three digits"


def test_damaged_archive_is_reported_and_its_numbers_are_not_reused(board: Board) -> None:
    board.archive_path.parent.mkdir()
    board.archive_path.write_text('{"active_projects": [\n{"project_number": 70, "title"')
    with pytest.raises(Unavailable, match=r"specs/archive/state.json: it is not JSON.*line 2"), board.change() as draft:
        put_away(board, draft, [2])
    with board.change() as draft:
        assert draft.state.next_number == 71
