"""Steps of the board's commands that tests take one by one; a program uses the commands that `remit` exports."""

from remit.board.claims import claim
from remit.board.implement import comment_on_work, merge_work
from remit.board.parallel import implement_each, ready_tasks
from remit.board.plans import read_plan
from remit.board.task_landing import LandingOptions, remove_landed
from remit.board.task_order import dry_run_implement
from remit.board.todo import draw

__all__ = [
    "LandingOptions", "claim", "comment_on_work", "draw", "dry_run_implement", "implement_each", "merge_work", "read_plan",
    "ready_tasks", "remove_landed",
]  # fmt: skip
