"""What is written by what has changed is, byte for byte, what writing the whole would give; and only where that is known."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.board import amending, todo
from remit.board.book import Board, Draft
from remit.board.entries import task_to_entry
from remit.board.files import hash_of
from remit.board.reading import read_state, state_to_bytes
from remit.board.statuses import Status
from remit.board.task import Priority, State, Task
from remit.core.errors import Unavailable

TEXTS = st.text(st.sampled_from('ab #-`\n\\"é}{,[]:_*1.'), max_size=40)
PRIORITIES = st.sampled_from(Priority)


def a_task(number: int, words: str = "", priority: Priority = Priority.MEDIUM) -> Task:
    return Task(number=number, title=f"Task {number}", slug=f"task_{number}", description=words, priority=priority)


def board_of(root: Path, *tasks: Task) -> Board:
    board = Board(root)
    with board.change(make=True) as draft:
        draft.state = replace(draft.state, tasks=tasks, next_number=len(tasks) + 1)
    return board


def as_a_whole(board: Board) -> tuple[bytes, bytes]:
    """Both files, as they would be written from what state.json holds."""
    read = read_state(board.state_path.read_bytes(), "state.json")
    text = todo.draw(read.state).encode()
    return state_to_bytes(read.state, hash_of(text), read.entries.known), text


def as_they_are(board: Board) -> tuple[bytes, bytes]:
    return board.state_path.read_bytes(), board.todo_path.read_bytes()


def amends(board: Board) -> bool:
    return amending.is_written_out(board.folder / "note", board._finder.find())


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """The boards that were drawn as a whole."""
    drawn: list[State] = []
    draw = todo.draw

    def noted(state: State) -> str:
        drawn.append(state)
        return draw(state)

    monkeypatch.setattr(todo, "draw", noted)
    return drawn


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(TEXTS, PRIORITIES), min_size=1, max_size=5), st.lists(st.tuples(st.integers(0, 6), TEXTS, PRIORITIES), max_size=4)
)
def test_it_is_what_the_whole_would_be(
    tmp_path_factory: pytest.TempPathFactory, begun: list[tuple[str, Priority]], changes: list[tuple[int, str, Priority]]
) -> None:
    board = board_of(tmp_path_factory.mktemp("board"), *(a_task(number, *one) for number, one in enumerate(begun, 1)))
    for place, words, priority in changes:
        with board.change("Something") as draft:
            number = place if draft.state.find(place) else draft.state.next_number
            draft.state = draft.state.with_task(a_task(number, words, priority))
        assert as_they_are(board) == as_a_whole(board)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.with_task(replace(state.task(2), status=Status.BLOCKED, blocking_reason="why")),
        lambda state: state.with_task(a_task(4, "new", Priority.LOW)),
        lambda state: state.with_tasks((a_task(1, "other"), a_task(4, "new"), a_task(5, "newer"))),
    ],
)
def test_a_task_that_changes_or_comes_is_written_alone(tmp_path: Path, whole: list[State], change: Callable[[State], State]) -> None:
    board = board_of(tmp_path, a_task(1), a_task(2, '---\n}, {\n"active_projects": []'), a_task(3, priority=Priority.LOW))
    whole.clear()
    with Board(tmp_path).change("Something") as draft:
        draft.state = change(draft.state)
    assert not whole
    assert as_they_are(board) == as_a_whole(board)


def test_a_state_edited_by_hand_is_written_as_a_whole(tmp_path: Path) -> None:
    board = board_of(tmp_path, a_task(1), a_task(2))
    assert amends(board)
    board.state_path.write_bytes(board.state_path.read_bytes().replace(b'"Task 2"', b'"Another"'))
    assert not amends(board)
    with board.change() as draft:
        draft.state = draft.state.with_task(a_task(3))
    assert b"### 2. Another" in board.todo_path.read_bytes()
    assert as_they_are(board) == as_a_whole(board)


def test_what_another_program_has_drawn_is_drawn_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = board_of(tmp_path, a_task(1))
    monkeypatch.setattr(amending, "_PROGRAM", "another")
    assert not amends(board)


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "loop"])
def test_what_stands_where_the_note_belongs_is_in_nobodys_way(tmp_path: Path, kind: str, edited: bool) -> None:
    board, note, other = board_of(tmp_path, a_task(1)), tmp_path / ".remit/board/note", tmp_path / "other"
    other.write_text("somebody's")
    note.unlink()
    if kind == "folder":
        note.mkdir()
    elif kind == "pipe":
        os.mkfifo(note)
    else:
        note.symlink_to(other if kind == "link" else note)
    if edited:
        board.todo_path.write_text(board.todo_path.read_text().replace("Task 1", "Edited"))
    with board.change() as draft:
        draft.state = draft.state.with_task(a_task(2))
    assert as_they_are(board) == as_a_whole(board)
    assert other.read_text() == "somebody's"
    assert amends(board) is (kind != "folder")


def test_a_key_that_is_a_zero_byte_is_kept_like_any_other() -> None:
    entry = json.dumps(task_to_entry(replace(a_task(1), extra={"\0": {"a": 1}})))
    assert read_state(f'{{"active_projects": [{entry}]}}'.encode(), "state.json").state.tasks[0].extra == {"\0": {"a": 1}}
    with pytest.raises(Unavailable, match="not JSON"):
        read_state(f'{{"active_projects": [{entry}]}}'.replace('{"a": 1}', '{"a": NaN}').encode(), "state.json")


def test_a_block_that_stands_in_two_places_is_not_looked_for(tmp_path: Path) -> None:
    block = todo.block(a_task(1))
    board = board_of(tmp_path, a_task(1), a_task(2, f"```\nas it was:\n\n{block}\n```"))
    with board.change() as draft:
        draft.state = draft.state.with_task(a_task(1, "changed"))
    assert as_they_are(board) == as_a_whole(board)


def test_a_draft_of_many_is_written_as_a_whole(tmp_path: Path, whole: list[State]) -> None:
    board = board_of(tmp_path, *(a_task(number) for number in range(1, 41)))
    whole.clear()
    with board.change() as draft:
        assert isinstance(draft, Draft)
        draft.state = draft.state.with_tasks(a_task(number, "other") for number in range(1, 41))
    assert whole
    assert as_they_are(board) == as_a_whole(board)


@pytest.mark.parametrize("word", ["NaN", "-Infinity"])
def test_what_is_no_json_is_told_wherever_it_stands(tmp_path: Path, word: str) -> None:
    board = board_of(tmp_path, a_task(1))
    board.state_path.write_bytes(
        board.state_path.read_bytes().replace(b'"recent_activities"', b'"more": [%b], "recent_activities"' % word.encode())
    )
    with pytest.raises(Unavailable, match="it is not JSON"):
        board.look()


def test_of_two_tasks_with_one_number_it_is_told_which(tmp_path: Path) -> None:
    board = board_of(tmp_path, a_task(1), a_task(2))
    board.state_path.write_bytes(board.state_path.read_bytes().replace(b'"project_number": 2', b'"project_number": 1'))
    with pytest.raises(Unavailable, match="there are two tasks 1"):
        board.look()
