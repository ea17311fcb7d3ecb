"""A process that changes the board is killed at every call by which it writes: afterwards the change was made, or it was not (S6.1)."""

import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.board import archive, todo, writeset
from remit.board.book import Board, Draft
from remit.board.statuses import Status
from remit.board.task import State, Task

CALLS = ("open", "write", "fsync", "replace", "rename", "unlink", "link", "mkdir", "fchmod")
PLAN = "specs/002_two/plans/implementation-001.md"
MOST_CALLS = 300


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where there is such a disk: a hundred projects are made and killed in each test."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="remit-kill9-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies takes nothing with it that it had written; only a machine does."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def begin(root: Path) -> None:
    """Three tasks, the first with a folder, and a person's edit that nobody has read yet."""
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


def change(board: Board) -> None:
    """All kinds of writes at once: tasks changed and new, a plan written over, a task and its folder archived."""
    with board.change("changed") as draft:
        draft.state = draft.state.with_task(replace(draft.state.task(3), title="Third")).with_task(new_task(draft))
        draft.write(PLAN, "new plan\n")
        archive.put_away(board, draft, [1])


def new_task(draft: Draft) -> Task:
    return Task(number=draft.state.next_number, title="Four", slug="four", created=draft.at)


def killed_at(number: int, work: Callable[[], None]) -> bool:
    """Run `work` in a child that kills itself before its `number`-th call; whether it got that far."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            count_calls(number)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - a child of ours, which must not go on as a test
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
    writeset.exchange = counted(writeset.exchange)
    writeset.name_new = counted(writeset.name_new)


def crashes(folder: Path) -> Iterator[Path]:
    """The project after a crash at each of the calls in turn; last, after none."""
    template = folder / "template"
    template.mkdir()
    begin(template)
    for number in range(1, MOST_CALLS):
        root = folder / str(number)
        shutil.copytree(template, root)
        crashed = killed_at(number, lambda root=root: change(Board(root)))  # type: ignore[misc]
        yield root
        shutil.rmtree(root)
        if not crashed:
            assert number > 25, "the child is not killed where it writes"
            return
    raise AssertionError("it never came to an end")


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
    assert not list((root / "specs").glob("*kept*")), "nothing was anybody else's"


@pytest.mark.parametrize("has_exchange", [True, False])
def test_a_change_killed_at_any_call_was_made_or_was_not(folder: Path, has_exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_exchange:
        monkeypatch.setattr(writeset, "exchange", lambda one, other: False)
    seen = set()
    for root in crashes(folder):
        looked = is_made(Board(root).look().state)
        with Board(root).change():
            pass
        agrees(root, looked)
        seen.add(looked)
    assert seen == {True, False}


def test_what_a_person_saves_after_the_crash_is_taken_over_too(folder: Path) -> None:
    for number, root in enumerate(crashes(folder)):
        board = Board(root)
        text = board.todo_path.read_text()
        save = save_in_place if number % 2 else save_by_renaming
        save(board.todo_path, text.replace("The third.", "The third, by hand."))
        os.utime(board.todo_path, (1, 1))  # long enough ago to be whole
        looked = board.look().state
        assert looked.task(3).description == "The third, by hand.", number
        made = is_made(looked)
        with Board(root).change():
            pass
        agrees(root, made)
        assert board.look().state.task(3).description == "The third, by hand."


def test_the_finishing_itself_may_be_killed_at_any_call(folder: Path) -> None:
    template = folder / "template"
    template.mkdir()
    begin(template)

    def die_when_committed() -> None:
        rename = os.rename

        def last(source: Any, target: Any) -> None:
            rename(source, target)
            if Path(target).name == writeset.JOURNAL:
                os.kill(os.getpid(), signal.SIGKILL)

        os.rename = last  # type: ignore[assignment]
        change(Board(template))

    assert killed_at(-1, die_when_committed)
    for number in range(1, MOST_CALLS):
        root = folder / str(number)
        shutil.copytree(template, root)

        def finish(root: Path = root) -> None:
            with Board(root).change():
                pass

        crashed = killed_at(number, finish)
        assert is_made(Board(root).look().state)
        finish()
        agrees(root, made=True)
        shutil.rmtree(root)
        if not crashed:
            return
    raise AssertionError("it never came to an end")


def save_in_place(path: Path, text: str) -> None:
    path.write_text(text)


def save_by_renaming(path: Path, text: str) -> None:
    beside = path.with_name("TODO.md~")
    beside.write_text(text)
    beside.replace(path)
