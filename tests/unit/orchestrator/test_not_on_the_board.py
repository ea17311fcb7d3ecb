"""Commands that name a task which is not on the board, or a project that has none."""

from pathlib import Path

import pytest

from remit.board import archive
from remit.board.board import Board
from remit.board.statuses import Status
from remit.board.task import State, Task
from remit.core.errors import Misused
from remit.orchestrator.changes import find_tasks
from remit.orchestrator.implement import order_tasks
from remit.orchestrator.lifecycle import must_exist


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (Status.COMPLETED, "It is in the archive, [COMPLETED]: `remit board 1` shows it."),
        (Status.ABANDONED, "It is in the archive, [ABANDONED]: `remit task --recover 1` brings it back."),
    ],
)
def test_whoever_names_an_archived_task_is_told_where_it_is(tmp_path: Path, status: Status, advice: str) -> None:
    board = Board(tmp_path)
    with board.change(make=True) as draft:
        task = Task(number=1, title="One", slug="one", status=status, blocking_reason="why")
        draft.state = State(tasks=(task, Task(number=2, title="Two", slug="two")), next_number=3)
    with board.change() as draft:
        archive.put_away(board, draft, [1])
    state = board.look().state
    for ask in (lambda: must_exist(board, 2, 1), lambda: order_tasks(board, [2, 1], False), lambda: find_tasks(board, state, [1])):
        with pytest.raises(Misused, match="Task 1 not found") as told:
            ask()
        assert told.value.advice == advice
    with pytest.raises(Misused) as told:
        must_exist(board, 3)
    assert told.value.advice == "`remit board` lists the tasks."


def test_a_project_without_a_board_is_told_how_to_begin_one_in_one_way(tmp_path: Path) -> None:
    board = Board(tmp_path)
    told = []
    for ask in (lambda: must_exist(board, 1), lambda: board.change().__enter__()):
        with pytest.raises(Misused) as error:
            ask()
        told.append((error.value.message, error.value.advice))
    assert told == [("This project has no board yet.", '`remit task "TEXT"` records the first task and makes it.')] * 2
