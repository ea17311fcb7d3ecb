"""TODO.md is saved in an editor in the very moment in which the board is written: both changes are there afterwards."""

from dataclasses import replace
from pathlib import Path

from remit import Board, Task, TaskStatus

board = Board(Path())
with board.change("begun", make=True) as draft:
    draft.state = draft.state.with_task(Task(number=1, title="Read the format", slug="read_the_format", created=draft.at))

with board.change() as draft:
    task = draft.state.task(1)
    draft.state = draft.state.with_task(replace(task.moved(TaskStatus.RESEARCHING, at=draft.at), language="python"))
    # A person saves now, and has not seen what we are about to write.
    text = board.todo_path.read_text()
    board.todo_path.write_text(text.replace("Medium\n", "High\n", 1).replace("Read the format", "Read the new format"))

for notice in draft.notices:
    print(notice)
task = board.look().state.task(1)
print(f"{task.number}. {task.title} [{task.status.marker}] {task.priority}, {task.language}")
