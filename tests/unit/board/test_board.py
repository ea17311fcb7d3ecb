"""The board's files, read and changed as one set, with a person who edits TODO.md at any moment."""

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

from remit.board import todo, write_set
from remit.board.board import Board
from remit.board.task import State, Status, Task
from remit.core.errors import Misused, Refused, Unavailable
from remit.system import edits

Save = Callable[[Path, str], None]


def in_place(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (1, 1))  # long ago: it is whole


def by_renaming(path: Path, text: str) -> None:
    beside = path.with_name("TODO.md.swp")
    beside.write_text(text)
    os.utime(beside, (1, 1))
    beside.replace(path)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    made = Board(tmp_path)
    with made.change("begun", make=True) as draft:
        draft.state = draft.state.with_tasks(
            Task(number=number, title=f"Title {number}", slug=f"title_{number}", created=draft.at, description=f"Text {number}.")
            for number in (1, 2, 3)
        )
    return made


def edit(board: Board, old: str, new: str, save: Save = in_place) -> None:
    text = board.todo_path.read_text()
    assert old in text
    save(board.todo_path, text.replace(old, new))


def agrees(board: Board) -> State:
    """TODO.md is the drawing of state.json, by a reader who remembers nothing."""
    seen = Board(board.root).look()
    assert seen.notices == ()
    assert board.todo_path.read_text() == todo.draw(seen.state)
    assert json.loads(board.state_path.read_bytes())["_todo_sha256"] == write_set.hash_of(board.todo_path.read_bytes())
    return seen.state


def titled(number: int, title: str) -> Callable[[State], State]:
    return lambda state: state.with_task(replace(state.task(number), title=title))


def test_a_project_without_a_board_is_left_untouched_by_looking(tmp_path: Path) -> None:
    assert not Board(tmp_path).look().exists
    with pytest.raises(Misused, match=r'no board yet.*`remit task "TEXT"`'), Board(tmp_path).change():
        raise AssertionError("there is nothing to change")
    assert list(tmp_path.iterdir()) == []


def test_a_board_is_made_with_its_first_change_and_kept_out_of_git(board: Board) -> None:
    assert [task.number for task in agrees(board).tasks] == [1, 2, 3]
    assert (board.root / ".remit/.gitignore").exists()


def test_a_todo_without_a_state_is_not_written_over(tmp_path: Path) -> None:
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
    [kept] = board.specs.glob("TODO.md.kept-*")
    assert kept.read_text() == "# My tasks\n"
    agrees(board)


def test_what_raises_and_what_changes_nothing_writes_nothing(board: Board) -> None:
    before = board.state_path.stat()
    with pytest.raises(Misused, match="Task 9 not found"), board.change("never") as draft:  # noqa: PT012 - what is written before it raises
        draft.state = titled(1, "New")(draft.state)
        draft.write("specs/new.md", "new")
        draft.state.task(9)
    with board.change("nothing"):
        pass
    assert board.state_path.stat() == before
    assert not (board.root / "specs/new.md").exists()


def test_a_file_of_a_change_stays_inside_of_the_project(board: Board) -> None:
    for path in ("../out.md", "/tmp/out.md", "specs/../../out.md"):
        with pytest.raises(Misused, match="not inside"), board.change() as draft:
            draft.write(path, "out")
    agrees(board)


@pytest.mark.parametrize("save", [in_place, by_renaming])
def test_a_persons_edit_is_seen_by_looking_and_written_by_the_next_change(board: Board, save: Save) -> None:
    edit(board, "Text 2.", "Text 2, by hand.", save)
    assert board.look().state.task(2).description == "Text 2, by hand."
    assert b"by hand" not in board.state_path.read_bytes()
    with board.change() as draft:
        assert draft.notices
    assert agrees(board).task(2).description == "Text 2, by hand."


@pytest.mark.parametrize("save", [in_place, by_renaming])
@pytest.mark.parametrize("has_exchange", [True, False])
def test_what_a_person_saves_while_we_change_is_merged(
    board: Board, save: Save, has_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_exchange:
        monkeypatch.setattr(edits, "exchange", lambda one, other: False)
    edit(board, "Text 1.", "Text 1, before.", save)
    with board.change() as draft:
        draft.state = titled(2, "Ours")(draft.state)
        edit(board, "Text 3.", "Text 3, meanwhile.", save)
    assert any("3" in notice for notice in draft.notices)
    state = agrees(board)
    assert [state.task(1).description, state.task(2).title, state.task(3).description] == ["Text 1, before.", "Ours", "Text 3, meanwhile."]


@pytest.mark.parametrize("saved_before", ["", "### 2."])
def test_an_editor_may_finish_its_save_after_our_changes(board: Board, saved_before: str) -> None:
    """It has truncated the file, and written nothing or half of it, when we write."""
    text = board.todo_path.read_text().replace("Text 3.", "Text 3, at last.")
    middle = text.index(saved_before)
    with board.change() as draft:
        draft.state = titled(2, "Ours")(draft.state)
        editor = board.todo_path.open("w")
        editor.write(text[:middle])
        editor.flush()
    assert [task.title for task in agrees(board).tasks] == ["Title 1", "Ours", "Title 3"]
    with board.change() as draft:
        draft.state = titled(1, "Ours too")(draft.state)
    with editor:
        editor.write(text[middle:])
    assert board.look().state.task(3).description == "Text 3, at last."
    with board.change():
        pass
    state = agrees(board)
    assert [state.task(1).title, state.task(2).title, state.task(3).description] == ["Ours too", "Ours", "Text 3, at last."]


def test_what_cannot_be_merged_and_is_no_longer_todo_is_kept_beside(board: Board) -> None:
    """Of a merge in git that fell into our writing; and of a drawing that nobody remembers."""
    for spoil in ("<<<<<<< HEAD\n=======\n>>>>>>> theirs\n", ""):
        with board.change() as draft:
            draft.state = titled(2, f"Ours{spoil[:1]}")(draft.state)
            in_place(board.todo_path, spoil + board.todo_path.read_text().replace("Text 3.", "Text 3, meanwhile."))
            if not spoil:
                for path in (board.folder / "drawn").iterdir():
                    path.unlink()
        assert any("kept beside" in notice for notice in draft.notices)
        assert agrees(board).task(3).description == "Text 3."
    kept = [path.read_text() for path in board.specs.glob("TODO.md.kept-*")]
    assert sorted("<<<<<<<" in text for text in kept) == [False, True]
    assert all("Text 3, meanwhile." in text for text in kept)


def test_what_is_left_goes_away_when_nobody_writes_to_it(board: Board) -> None:
    for count in range(15):
        with board.change() as draft:
            draft.state = titled(1, f"Title {count}")(draft.state)
    assert len(list((board.folder / "left").iterdir())) <= 8
    assert len(list((board.folder / "drawn").iterdir())) <= 14


def test_an_old_buffer_that_is_saved_undoes_nothing_of_what_it_does_not_know(board: Board) -> None:
    """What has come since its person opened it stays, and what they wrote is taken."""
    buffer = board.todo_path.read_text()
    board.todo_path.write_text(buffer.replace("Text 2.", "Another person's words.") + "\nA line of theirs.\n")
    with board.change() as draft:
        draft.state = draft.state.with_task(Task(number=4, title="Of a command", slug="of_a_command"))
    with board.change() as draft:
        draft.state = draft.state.with_task(draft.state.task(1).moved(Status.RESEARCHING, at=draft.at))
    board.todo_path.write_text(buffer.replace("Text 3.", "My words.").replace("## Low", "### Mine\n\n## Low"))
    with board.change() as draft:
        pass
    assert draft.notices == (
        "From TODO.md: Task 3: description",
        "From TODO.md: Task 5 is new: Mine",
        "TODO.md: it was written from an older drawing, without Task 4: what has come since is drawn again.",
    )
    state = agrees(board)
    assert [(task.number, task.description) for task in state.tasks][:3] == [
        (1, "Text 1."),
        (2, "Another person's words."),
        (3, "My words."),
    ]
    assert (state.task(1).status, state.task(1).lines, state.task(4).title) == (Status.RESEARCHING, (), "Of a command")
    assert "A line of theirs." in board.todo_path.read_text()


def test_a_place_of_our_own_that_cannot_be_written_is_told_or_done_without(board: Board) -> None:
    """A full disk says the same. What is remembered only helps; the change itself needs its place."""
    drawn, staged = board.folder / "drawn", board.folder / "set"
    for folder in (drawn, staged):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.write_bytes(b"")
    with pytest.raises(Unavailable, match=r"cannot be written.*nothing was changed"), board.change():
        raise AssertionError("not reached")
    staged.unlink()
    with board.change() as draft:
        draft.state = titled(1, "Ours")(draft.state)
    assert agrees(board).task(1).title == "Ours"


@pytest.mark.parametrize("text", ["", None])
def test_an_empty_or_missing_todo_is_drawn_again(board: Board, text: str | None) -> None:
    if text is None:
        board.todo_path.unlink()
        os.utime(board.specs, (1, 1))
    else:
        in_place(board.todo_path, text)
    assert len(board.look().state.tasks) == 3
    with board.change() as draft:
        assert text is None or "empty" in draft.notices[0]
    assert len(agrees(board).tasks) == 3


def test_a_half_written_todo_is_read_when_it_is_whole(board: Board) -> None:
    text = board.todo_path.read_text().replace("Text 3.", "Text 3, all of it.")
    half = threading.Event()

    def save_slowly() -> None:
        with board.todo_path.open("w") as file:
            for line in text.splitlines(keepends=True):
                file.write(line)
                file.flush()
                half.set()
                threading.Event().wait(0.005)

    editor = threading.Thread(target=save_slowly)
    editor.start()
    half.wait()
    state = board.look().state
    editor.join()
    assert state.task(3).description == "Text 3, all of it."


@pytest.mark.parametrize("todo_too", [True, False])
def test_a_state_edited_by_hand_is_drawn_and_an_edited_todo_is_merged_with_it(board: Board, todo_too: bool) -> None:
    board.state_path.write_text(board.state_path.read_text().replace("Title 1", "In the state"))
    if todo_too:
        edit(board, "Text 1.", "In the list.")
    with board.change():
        pass
    task = agrees(board).task(1)
    assert (task.title, task.description) == ("In the state", "In the list." if todo_too else "Text 1.")


@pytest.mark.parametrize("path", ["specs/state.json", "specs/001_title_1/plans/implementation-001.md"])
def test_a_file_changed_by_somebody_else_while_we_write_is_kept_beside(board: Board, path: str) -> None:
    file = board.root / path
    with board.change() as draft:
        if not file.exists():
            draft.write(path, "Title 2\n")
    with board.change() as draft:
        before = draft.read(path) or ""
        draft.state = titled(1, "Ours")(draft.state)
        file.write_text(before.replace("Title 2", "Theirs"))
        if file != board.state_path:
            draft.write(path, "Ours\n")
    [kept] = file.parent.glob("*.kept-*")
    assert "Theirs" in kept.read_text()
    assert any(kept.name in notice for notice in draft.notices)
    assert agrees(board).task(1).title == "Ours"


def test_a_link_in_place_of_todo_is_followed_and_permissions_are_kept(board: Board) -> None:
    elsewhere = board.root / "docs" / "TODO.md"
    elsewhere.parent.mkdir()
    board.todo_path.rename(elsewhere)
    board.todo_path.symlink_to(elsewhere)
    elsewhere.chmod(0o640)
    with board.change() as draft:
        draft.state = titled(1, "Ours")(draft.state)
    assert board.todo_path.is_symlink()
    assert "Ours" in elsewhere.read_text()
    assert elsewhere.stat().st_mode & 0o777 == 0o640


def test_a_todo_that_is_a_link_out_of_the_project_is_not_written(board: Board, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It may have come with a clone."""
    elsewhere = tmp_path_factory.mktemp("home") / "profile"
    elsewhere.write_bytes(board.todo_path.read_bytes())
    before = elsewhere.read_bytes()
    board.todo_path.unlink()
    board.todo_path.symlink_to(elsewhere)
    with pytest.raises(Refused, match="leads out of the project"), board.change() as draft:
        draft.state = titled(1, "Ours")(draft.state)
    assert elsewhere.read_bytes() == before


def test_a_disk_that_refuses_leaves_everything_as_it_was(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (board.state_path.read_bytes(), board.todo_path.read_bytes())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match=r"No space left.*nothing was changed"), board.change() as draft:
            draft.state = titled(1, "Ours")(draft.state)
    assert (board.state_path.read_bytes(), board.todo_path.read_bytes()) == before
    agrees(board)


DAMAGE = {
    "": r"specs/state.json: it is empty",
    '{"active_projects": [': r"state.json, line 1: it is not JSON",
    '{\n"a": 1\n<<<<<<< HEAD\n"b": 2\n=======\n': r"line 3: git left a conflict.*git checkout --ours",
    "[]": "the whole is a list",
    '{"active_projects": {}}': "active_projects is an object, not a list",
    '{"active_projects": [7]}': "entry 1 of active_projects: a task is an object, not a number",
    '{\n"active_projects": [\n{"project_number": 4, "title": "A", "status": "done"}]}': "task 4: Unknown status 'done'",
    '{"active_projects": [{"project_number": 4, "title": "A"}]}': "task 4: it has no status",
    '{"active_projects": [{"title": "A", "status": "planned"}]}': "project_number is missing",
    '{"active_projects": [{"project_number": -1, "title": "A", "status": "planned"}]}': "project_number is -1",
    '{"active_projects": [{"project_number": true, "title": "A", "status": "planned"}]}': "project_number is True",
    '{"active_projects": [{"project_number": 1, "title": ["A"], "status": "planned"}]}': "title is a list, not a text",
    '{"active_projects": [{"project_number": 1, "title": "A", "status": "planned", "dependencies": "12"}]}': "dependencies is a text",
    '{"active_projects": [{"project_number": 1, "title": "A", "status": "planned", "effort": 3}]}': "effort is a number, not a text",
    '{"active_projects": [{"project_number": 1, "title": "A", "status": "planned", "priority": "urgent"}]}': "priority is 'urgent'",
    '{"active_projects": [{"project_number": 1, "title": "A", "status": "planned", "artifacts": [{}]}]}': "an artifact is an object with",
    '{"active_projects": [\n{"project_number": 1, "title": "A", "status": "planned"},\n'
    '{"project_number": 1, "title": "B", "status": "planned"}]}': "there are two tasks 1: 'A' and 'B'",
    '{"active_projects": [{"project_number": 1, "project_name": "../x", "status": "planned"}]}': "project_name is '../x', which cannot",
    '{"active_projects": [], "_todo_texts": {"top": 5}}': "_todo_texts has a number under 'top'",
    '{"_schema_version": "2.0.0", "active_projects": []}': "schema version 2.0.0.*Update remit",
}  # fmt: skip


@pytest.mark.parametrize("text", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_state_is_told_and_never_written_over(board: Board, text: str) -> None:
    board.state_path.write_text(text)
    for reader in (board, Board(board.root)):
        with pytest.raises(Unavailable, match=f"(?s){DAMAGE[text]}.*Nothing was changed"):
            reader.look()
        with pytest.raises(Unavailable, match=f"(?s){DAMAGE[text]}"), reader.change(make=True):
            pass
    assert board.state_path.read_text() == text


def test_half_a_character_is_refused_and_nothing_is_written(board: Board) -> None:
    with pytest.raises(Misused, match="UTF-8"), board.change() as draft:
        draft.state = titled(1, "a\udcff")(draft.state)
    assert agrees(board).task(1).title == "Title 1"


ADDING = """
import sys, threading
from pathlib import Path
from remit.board.board import Board
from remit.board.task import Task

def add(name):
    board = Board(Path(sys.argv[1]))
    for count in range(8):
        with board.change(f"{name} {count}") as draft:
            draft.state = draft.state.with_task(Task(number=draft.state.next_number, title=f"{name} {count}", slug="x"))

threads = [threading.Thread(target=add, args=(sys.argv[2] + str(number),)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_many_processes_and_threads_lose_nothing(board: Board) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", ADDING, str(board.root), name]) for name in "ab"]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    state = agrees(board)
    ours = [f"{name}{thread} {count}" for name in "ab" for thread in range(2) for count in range(8)]
    assert sorted(task.title for task in state.tasks) == sorted(["Title 1", "Title 2", "Title 3", *ours])
    assert sorted(task.number for task in state.tasks) == list(range(1, state.next_number))


def test_a_person_who_saves_all_the_while_loses_nothing_and_finds_nothing_twice(board: Board) -> None:
    """In place, in two halves, and by renaming, at moments that nobody chose."""
    chance = random.Random(5)

    def write_tasks() -> None:
        for count in range(25):
            text = ""
            while "## Low Priority\n" not in text:
                text = board.todo_path.read_text()
            text = text.replace("## Low Priority\n", f"## Low Priority\n\n### Theirs {count}\n- **Status**: [NOT STARTED]\n\n---\n")
            if count % 2:
                beside = board.todo_path.with_name("TODO.md.swp")
                beside.write_text(text)
                beside.replace(board.todo_path)
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
    titles = [task.title for task in agrees(board).tasks]
    expected = [*(f"Title {number}" for number in (1, 2, 3)), *(f"Ours {count}" for count in range(ours))]
    assert sorted(titles) == sorted([*expected, *(f"Theirs {count}" for count in range(25))])


def test_looking_never_sees_half_a_change(board: Board) -> None:
    """Each change gives all tasks the same title; a looker who sees two titles, or an edit that nobody made, has seen half of one."""
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
    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    for count in range(20):
        with board.change() as draft:
            draft.state = draft.state.with_tasks(replace(task, title=f"Same {count}") for task in draft.state.tasks)
    ended.set()
    for looker in lookers:
        looker.join()
    assert faults == []


def test_an_entry_that_nobody_changed_stays_as_it_was_written(board: Board) -> None:
    data = json.loads(board.state_path.read_bytes())
    data["active_projects"][0] |= {"status": "[Not Started]", "owner": {"name": "Ada"}, "started": None}
    board.state_path.write_text(json.dumps(data))
    with board.change() as draft:
        draft.state = titled(2, "Ours")(draft.state)
    assert json.loads(board.state_path.read_bytes())["active_projects"][0] == data["active_projects"][0]
    with board.change() as draft:
        draft.state = titled(1, "Ours too")(draft.state)
    assert json.loads(board.state_path.read_bytes())["active_projects"][0]["owner"] == {"name": "Ada"}
