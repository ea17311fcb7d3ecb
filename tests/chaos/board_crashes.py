"""A process that changes the board at argv[2] by the function argv[1] and kills itself before its argv[3]-th call of the system.

With a fourth argument, names cannot be exchanged on its disk.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from remit import Board, Task
from remit.board import archive, write_set
from remit.board.board import Draft
from remit.system import edits

CALLS = ("open", "write", "fsync", "replace", "rename", "unlink", "link", "mkdir", "fchmod")
PLAN = "specs/002_two/plans/implementation-001.md"


def change(root: Path) -> None:
    """Make every kind of write at once: change and add tasks, overwrite a plan, archive a task with its folder."""
    board = Board(root)
    with board.change("changed") as draft:
        draft.state = draft.state.with_task(replace(draft.state.task(3), title="Third")).with_task(new_task(draft))
        draft.write(PLAN, "new plan\n")
        archive.put_away(board, draft, [1])


def new_task(draft: Draft) -> Task:
    return Task(number=draft.state.next_number, title="Four", slug="four", created=draft.at)


def finish(root: Path) -> None:
    """Complete a killed change, as the next change does."""
    with Board(root).change():
        pass


def die_when_committed(root: Path) -> None:
    rename = os.rename

    def last(source: Any, target: Any) -> None:
        rename(source, target)
        if Path(target).name == write_set.JOURNAL:
            os.kill(os.getpid(), signal.SIGKILL)

    os.rename = last  # type: ignore[assignment]
    change(root)


def count_calls(number: int) -> None:
    left = [number]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return instead

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    edits.exchange = counted(edits.exchange)
    edits.name_new = counted(edits.name_new)


def main(work: str, root: str, number: str, *options: str) -> None:
    os.fsync = lambda descriptor: None  # killing a process loses no written data, so syncing is not needed
    if options:
        edits.exchange = lambda one, other: False
    count_calls(int(number))
    {"change": change, "finish": finish, "die_when_committed": die_when_committed}[work](Path(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
