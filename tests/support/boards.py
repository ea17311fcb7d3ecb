"""Boards for tests, and steps of the board's commands that tests take one by one; a program uses the commands that `remit` exports."""

from pathlib import Path

from remit import Board, BoardState, Task
from remit.board.claims import claim
from remit.board.implement import comment_on_work, merge_work
from remit.board.parallel import implement_each, ready_tasks
from remit.board.plans import read_plan
from remit.board.task_landing import LandingOptions, remove_landed
from remit.board.todo import draw

__all__ = [
    "LandingOptions", "board_with", "claim", "comment_on_work", "draw", "implement_each", "merge_work", "read_plan",
    "ready_tasks", "remove_landed",
]  # fmt: skip


def board_with(root: Path, *tasks: Task) -> Board:
    board = Board(root)
    with board.change(make=True) as draft:
        draft.state = BoardState(tasks=tasks, next_number=1 + max((task.number for task in tasks), default=0))
    return board
