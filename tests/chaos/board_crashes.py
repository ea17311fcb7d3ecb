"""Helper of `test_board_kill9.py`: changes the board in forks that kill themselves at a given call.

    python board_crashes.py [--no-exchange]

Reads lines of JSON, `{"work": …, "number": …, "root": …}`, and answers each with whether the fork was killed. The parent process loads
only the board: a test process has threads of libraries, and a lock that such a thread owns stays locked in a fork.
"""

import json
import os
import signal
import sys
import traceback
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


WORKS: dict[str, Callable[[Path], None]] = {work.__name__: work for work in (change, finish, die_when_committed)}


def was_killed(number: int, work: Callable[[], None]) -> bool:
    """Run `work` in a child that kills itself before its `number`-th call. Return whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            count_calls(number)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the forked child must never continue as the parent
            traceback.print_exc()
        finally:
            os._exit(code)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        assert os.WTERMSIG(ended) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(ended) == 0
    return False


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


def main() -> None:
    os.fsync = lambda descriptor: None  # killing a process loses no written data, so syncing is not needed
    if "--no-exchange" in sys.argv:
        edits.exchange = lambda one, other: False
    for line in sys.stdin:
        asked = json.loads(line)
        root = Path(asked["root"])
        killed = was_killed(asked["number"], lambda root=root, work=WORKS[asked["work"]]: work(root))  # type: ignore[misc]
        print(json.dumps(killed), flush=True)


if __name__ == "__main__":
    main()
