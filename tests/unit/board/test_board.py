"""The board's files are read and changed as one set while a person edits TODO.md at any time."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from remit import Board, Misused, Refused, Task, Unavailable
from remit import BoardState as State
from remit.board import todo, write_set
from remit.board.archive import put_away
from remit.system import edits

Save = Callable[[Path, str], None]


def save_in_place(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (1, 1))  # old enough to count as completely written


def save_by_rename(path: Path, text: str) -> None:
    temporary = path.with_name("TODO.md.swp")
    temporary.write_text(text)
    os.utime(temporary, (1, 1))
    temporary.replace(path)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    made = Board(tmp_path)
    with made.change("begun", make=True) as draft:
        draft.state = draft.state.with_tasks(
            Task(number=number, title=f"Title {number}", slug=f"title_{number}", created=draft.at, description=f"Text {number}.")
            for number in (1, 2, 3)
        )
    return made


def edit(board: Board, old: str, new: str, save: Save = save_in_place) -> None:
    text = board.todo_path.read_text()
    assert old in text
    save(board.todo_path, text.replace(old, new))


def assert_consistent(board: Board) -> State:
    """TODO.md is the rendering of state.json, as seen by a reader without a cache."""
    seen = Board(board.root).look()
    assert seen.notices == ()
    assert board.todo_path.read_text() == todo.draw(seen.state)
    assert json.loads(board.state_path.read_bytes())["_todo_sha256"] == write_set.hash_of(board.todo_path.read_bytes())
    return seen.state


def with_title(number: int, title: str) -> Callable[[State], State]:
    return lambda state: state.with_task(replace(state.task(number), title=title))


def test_todo_without_a_state_is_not_overwritten(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.specs.mkdir()
    board.todo_path.write_text("# My tasks\n")
    with pytest.raises(Misused, match="remit board import"):
        board.look()
    with pytest.raises(Misused, match="remit board import"), board.change(make=True):
        pass
    assert board.todo_path.read_text() == "# My tasks\n"
    with board.change("imported", anew=True) as draft:
        draft.state = draft.state.with_task(Task(number=1, title="Mine", slug="mine"))
    [kept] = board.specs.glob("TODO*.kept-*")
    assert kept.read_text() == "# My tasks\n"
    assert_consistent(board)


def test_failed_change_and_empty_change_write_nothing(board: Board) -> None:
    before = board.state_path.stat()
    with pytest.raises(Misused, match="Task 9 not found"), board.change("never") as draft:  # noqa: PT012 - writes come before the error
        draft.state = with_title(1, "New")(draft.state)
        draft.write("specs/new.md", "new")
        draft.state.task(9)
    with board.change("nothing"):
        pass
    assert board.state_path.stat() == before
    assert not (board.root / "specs/new.md").exists()


@pytest.mark.parametrize("save", [save_in_place, save_by_rename])
def test_edit_is_read_at_once_and_stored_by_the_next_change(board: Board, save: Save) -> None:
    edit(board, "Text 2.", "Text 2, by hand.", save)
    assert board.look().state.task(2).description == "Text 2, by hand."
    assert b"by hand" not in board.state_path.read_bytes()
    with board.change() as draft:
        assert draft.notices
    assert assert_consistent(board).task(2).description == "Text 2, by hand."


@pytest.mark.parametrize("save", [save_in_place, save_by_rename])
@pytest.mark.parametrize("has_exchange", [True, False])
def test_edit_saved_during_a_change_is_merged(board: Board, save: Save, has_exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_exchange:
        monkeypatch.setattr(edits, "exchange", lambda one, other: False)
    edit(board, "Text 1.", "Text 1, before.", save)
    with board.change() as draft:
        draft.state = with_title(2, "Ours")(draft.state)
        edit(board, "Text 3.", "Text 3, meanwhile.", save)
    assert any("3" in notice for notice in draft.notices)
    state = assert_consistent(board)
    assert [state.task(1).description, state.task(2).title, state.task(3).description] == ["Text 1, before.", "Ours", "Text 3, meanwhile."]


@pytest.mark.parametrize("saved_before", ["", "### 2."])
def test_editor_that_finishes_saving_after_our_change_loses_nothing(board: Board, saved_before: str) -> None:
    """The editor has truncated the file and written nothing or half of it when we write: its text is kept in another file."""
    text = board.todo_path.read_text().replace("Text 3.", "Text 3, at last.")
    middle = text.index(saved_before)
    with board.change() as draft:
        draft.state = with_title(2, "Ours")(draft.state)
        editor = board.todo_path.open("w")
        editor.write(text[:middle])
        editor.flush()
    with editor:
        editor.write(text[middle:])
    with board.change() as draft:
        draft.state = with_title(1, "Ours too")(draft.state)
    [kept] = board.specs.glob("TODO*.kept-*")
    assert kept.read_text() == text
    assert any(kept.name in notice for notice in draft.notices)
    assert [task.title for task in assert_consistent(board).tasks] == ["Ours too", "Ours", "Title 3"]


def test_edit_that_cannot_be_merged_is_kept_in_another_file(board: Board) -> None:
    """A git conflict that appears while we write."""
    with board.change() as draft:
        draft.state = with_title(2, "Ours")(draft.state)
        save_in_place(board.todo_path, "<<<<<<< HEAD\n=======\n>>>>>>> theirs\n" + board.todo_path.read_text())
    [kept] = board.specs.glob("TODO*.kept-*")
    assert any(kept.name in notice for notice in draft.notices)
    assert kept.read_text().startswith("<<<<<<<")
    assert assert_consistent(board).task(2).title == "Ours"


def test_state_changed_by_another_program_during_a_change_is_kept(board: Board) -> None:
    with board.change() as draft:
        draft.state = with_title(1, "Ours")(draft.state)
        board.state_path.write_text(board.state_path.read_text().replace("Title 2", "Theirs"))
    [kept] = board.specs.glob("*.kept-*")
    assert "Theirs" in kept.read_text()
    assert any(kept.name in notice for notice in draft.notices)
    assert assert_consistent(board).task(1).title == "Ours"


def test_link_in_place_of_todo_is_followed_and_permissions_are_kept(board: Board) -> None:
    elsewhere = board.root / "docs" / "TODO.md"
    elsewhere.parent.mkdir()
    board.todo_path.rename(elsewhere)
    board.todo_path.symlink_to(elsewhere)
    elsewhere.chmod(0o640)
    with board.change() as draft:
        draft.state = with_title(1, "Ours")(draft.state)
    assert board.todo_path.is_symlink()
    assert "Ours" in elsewhere.read_text()
    assert elsewhere.stat().st_mode & 0o777 == 0o640


def test_todo_that_links_out_of_the_project_is_not_written(board: Board, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The link may come with a clone."""
    elsewhere = tmp_path_factory.mktemp("home") / "profile"
    elsewhere.write_bytes(board.todo_path.read_bytes())
    before = elsewhere.read_bytes()
    board.todo_path.unlink()
    board.todo_path.symlink_to(elsewhere)
    with pytest.raises(Refused, match="leads out of the project"), board.change() as draft:
        draft.state = with_title(1, "Ours")(draft.state)
    assert elsewhere.read_bytes() == before


def test_full_disk_leaves_every_file_unchanged(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (board.state_path.read_bytes(), board.todo_path.read_bytes())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match=r"No space left.*nothing was changed"), board.change() as draft:
            draft.state = with_title(1, "Ours")(draft.state)
    assert (board.state_path.read_bytes(), board.todo_path.read_bytes()) == before
    assert_consistent(board)


DAMAGE = {
    "": r"specs/state.json: it is not JSON",
    '{\n"a": 1\n<<<<<<< HEAD\n"b": 2\n=======\n': r"not JSON .*line 3.*git checkout",
    "[]": "the whole is a list",
    '{"active_projects": {}}': "active_projects is an object, not a list",
    '{"active_projects": [7]}': "entry 1 of active_projects: a task is an object, not a number",
    '{"active_projects": [{"project_number": 4, "title": "A", "status": "done"}]}': "task 4: Unknown status 'done'",
    '{"active_projects": [{"project_number": true, "title": "A", "status": "planned"}]}': "project_number is True",
    '{"active_projects": [{"project_number": 1, "title": ["A"], "status": "planned"}]}': "title is a list, not a text",
    '{"active_projects": [{"project_number": 1, "title": "A", "status": "planned", "artifacts": [{}]}]}': "an artifact is an object with",
    '{"active_projects": [{"project_number": 1, "title": "A", "status": "planned"}, {"project_number": 1, "title": "B", "status": '
    '"planned"}]}': "there are two tasks 1: 'A' and 'B'",
    '{"active_projects": [{"project_number": 1, "project_name": "../x", "status": "planned"}]}': "project_name is '../x', which cannot",
    '{"_schema_version": "2.0.0", "active_projects": []}': "schema version 2.0.0.*Update remit",
}  # fmt: skip


@pytest.mark.parametrize("text", DAMAGE, ids=range(len(DAMAGE)))
def test_damaged_state_is_reported_and_never_overwritten(board: Board, text: str) -> None:
    board.state_path.write_text(text)
    for reader in (board, Board(board.root)):
        with pytest.raises(Unavailable, match=f"(?s){DAMAGE[text]}.*Nothing was changed"):
            reader.look()
        with pytest.raises(Unavailable, match=f"(?s){DAMAGE[text]}"), reader.change(make=True):
            pass
    assert board.state_path.read_text() == text


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


ADDING = """
import sys, threading
from pathlib import Path
from remit.board.board import Board
from remit.board.task import Task

def add(name):
    board = Board(Path(sys.argv[1]))
    for count in range(5):
        with board.change(f"{name} {count}") as draft:
            draft.state = draft.state.with_task(Task(number=draft.state.next_number, title=f"{name} {count}", slug="x"))

threads = [threading.Thread(target=add, args=(sys.argv[2] + str(number),)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_concurrent_processes_and_threads_lose_no_change(board: Board) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", ADDING, str(board.root), name]) for name in "ab"]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    state = assert_consistent(board)
    ours = [f"{name}{thread} {count}" for name in "ab" for thread in range(2) for count in range(5)]
    assert sorted(task.title for task in state.tasks) == sorted(["Title 1", "Title 2", "Title 3", *ours])
    assert sorted(task.number for task in state.tasks) == list(range(1, state.next_number))


def test_saving_all_the_time_loses_and_duplicates_no_task(board: Board) -> None:
    """Saved in place, in two halves, and by rename, at random moments."""
    chance = random.Random(5)

    def write_tasks() -> None:
        for count in range(12):
            text = ""
            while "## Low Priority\n" not in text:
                text = board.todo_path.read_text()
            text = text.replace("## Low Priority\n", f"## Low Priority\n\n### Theirs {count}\n- **Status**: [NOT STARTED]\n\n---\n")
            if count % 2:
                temporary = board.todo_path.with_name("TODO.md.swp")
                temporary.write_text(text)
                temporary.replace(board.todo_path)
            else:
                with board.todo_path.open("w") as file:
                    file.write(text[: len(text) // 2])
                    file.flush()
                    time.sleep(chance.random() / 200)
                    file.write(text[len(text) // 2 :])
            time.sleep(chance.random() / 10)

    person = threading.Thread(target=write_tasks)
    person.start()
    ours = 0
    while person.is_alive():
        with board.change() as draft:
            draft.state = draft.state.with_task(Task(number=draft.state.next_number, title=f"Ours {ours}", slug="ours"))
        ours += 1
    for _ in range(2):
        with board.change():
            pass
    titles = [task.title for task in assert_consistent(board).tasks]
    kept = "".join(path.read_text() for path in board.specs.glob("TODO*.kept-*"))  # saved in the middle of our writing
    titles += [title for count in range(12) if (title := f"Theirs {count}") not in titles and f"### {title}\n" in kept]
    expected = [*(f"Title {number}" for number in (1, 2, 3)), *(f"Ours {count}" for count in range(ours))]
    assert sorted(titles) == sorted([*expected, *(f"Theirs {count}" for count in range(12))])


def test_readers_never_see_half_a_change(board: Board) -> None:
    """Each change gives all tasks the same title: two titles, or a notice of an edit, mean that a reader saw half a change."""
    ended = threading.Event()
    faults: list[object] = []

    def look() -> None:
        reader = Board(board.root)
        while not ended.is_set():
            seen = reader.look()
            if len({task.title for task in seen.state.tasks}) != 1 or seen.notices:
                faults.append(seen)

    with board.change() as draft:
        draft.state = draft.state.with_tasks(replace(task, title="Same") for task in draft.state.tasks)
    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader_thread in readers:
        reader_thread.start()
    for count in range(20):
        with board.change() as draft:
            draft.state = draft.state.with_tasks(replace(task, title=f"Same {count}") for task in draft.state.tasks)
    ended.set()
    for reader_thread in readers:
        reader_thread.join()
    assert faults == []
