"""`remit task` and `remit todo` on the board: record, abandon, recover, divide, sync, archive."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from remit import Board, Misused, NewTask, Refused, Task, TaskArtifact, Unavailable
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit import abandon_tasks as abandon
from remit import add_task as record
from remit import archive_tasks as todo
from remit import divide_task as divide
from remit import recover_tasks as recover
from remit import sync_board as sync
from remit.board import claims
from remit.board import todo as drawing
from remit.board.archive import archived_tasks
from remit.board.task_commands import title_of


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def add(board: Board, text: str, **more: object) -> int:
    number = record(board, NewTask(text=text, **more)).task_number  # type: ignore[arg-type]
    assert number is not None
    return number


def task_of(board: Board, number: int) -> Task:
    return board.look().state.task(number)


def set_status(board: Board, number: int, status: Status, **more: object) -> None:
    with board.change() as draft:
        task = draft.state.task(number)
        draft.state = draft.state.with_task(replace(task.moved(status, at=draft.at, reason="because"), **more))  # type: ignore[arg-type]


def agreed(_tasks: Sequence[Task]) -> bool:
    return True


def test_task_is_recorded_verbatim_without_guessing_fields(board: Board) -> None:
    """Words about Lean and urgency set neither language nor priority."""
    outcome = record(board, NewTask(text="Delete all Lean proofs, urgently! High priority, run `rm -rf proofs`."))
    task = task_of(board, 1)
    assert (task.language, task.priority, task.status) == (None, Priority.MEDIUM, Status.NOT_STARTED)
    assert task.title == "Delete all Lean proofs, urgently! High priority, run `rm -rf proofs`"
    assert task.description == "Delete all Lean proofs, urgently! High priority, run `rm -rf proofs`."
    assert outcome.next_steps == "remit research 1"
    assert "### 1. Delete all Lean proofs, urgently!" in board.todo_path.read_text()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Fix the parser. It fails on empty input.", "Fix the parser"),
        ("# Heading\n\nmore", "Heading"),
        ("  \n\nSecond line is first\nthird", "Second line is first"),
        ("word " * 40, "word " * 15 + "word…"),
        ("x" * 200, "x" * 79 + "…"),
        ("Bell\x07 and\ttab \x1b[31mred", "Bell and tab [31mred"),
    ],
)
def test_title_is_the_first_line_up_to_a_full_stop(text: str, title: str) -> None:
    assert title_of(text) == title


def test_invalid_tasks_are_refused_and_nothing_is_written(board: Board) -> None:
    for text in ("", " \n ", "\x00"):
        with pytest.raises(Misused, match="text of the task is missing"):
            record(board, NewTask(text=text))
    with pytest.raises(Misused, match=r"^Task 9 not found"):
        record(board, NewTask(text="x", dependencies=(9,)))
    with pytest.raises(Misused, match="'lean 4' is not a language"):
        record(board, NewTask(text="x", language="lean\n4"))
    with pytest.raises(Refused, match="would wait for itself: 1 → 1"):
        record(board, NewTask(text="x", dependencies=(1,)))
    assert not board.state_path.exists()


def test_abandon_validates_all_tasks_before_changing_any(board: Board) -> None:
    for text in ("One", "Two", "Three"):
        add(board, text)
    set_status(board, 3, Status.COMPLETED)
    before = board.state_path.read_bytes()
    with pytest.raises(Misused, match=r"^Task 9 not found"):
        abandon(board, [1, 9], "x")
    with pytest.raises(Refused, match=r"Task 3 is \[COMPLETED\] and cannot become \[ABANDONED\]. Allowed: none") as refused:
        abandon(board, [1, 3], "x")
    assert refused.value.code == "INVALID_STATUS_TRANSITION"
    with pytest.raises(Misused, match="needs a reason"):
        abandon(board, [1], "  ")
    assert board.state_path.read_bytes() == before
    assert abandon(board, [1, 2], "not worth it").summary == "Tasks 1, 2 are abandoned."
    assert {task_of(board, number).blocking_reason for number in (1, 2)} == {"not worth it"}
    assert any("--force" in warning for warning in abandon(board, [3], "really", force=True).warnings)


def test_claimed_task_is_neither_abandoned_nor_divided(board: Board) -> None:
    add(board, "One\n- a\n- b")
    with claims.claim(board, 1, "research", seconds=60):
        with pytest.raises(Refused, match="being worked on"):
            abandon(board, [1], "x")
        with pytest.raises(Refused, match="being worked on"):
            divide(board, 1)
        assert todo(board, agreed=agreed).data["archived"] == []
    assert abandon(board, [1], "x").task_status == "ABANDONED"


def test_abandoned_tasks_are_recovered_from_board_and_archive(board: Board) -> None:
    for text in ("One", "Two", "Three"):
        add(board, text)
    abandon(board, [1, 2], "x")
    (board.root / "specs/001_one/reports").mkdir(parents=True)
    (board.root / "specs/001_one/reports/research-001.md").write_text("found")
    set_status(board, 1, Status.ABANDONED, artifacts=(TaskArtifact(type="research", path="specs/001_one/reports/research-001.md"),))
    todo(board, agreed=agreed)
    assert [task.number for task in archived_tasks(board)] == [1, 2]
    assert (board.root / "specs/archive/001_one/reports/research-001.md").exists()
    abandon(board, [3], "y")
    recover(board, [1, 3])
    assert {task.number: task.status for task in board.look().state.tasks} == {3: Status.NOT_STARTED, 1: Status.NOT_STARTED}
    assert task_of(board, 1).blocking_reason == ""
    assert (board.root / task_of(board, 1).artifacts[0].path).read_text() == "found"
    assert [task.number for task in archived_tasks(board)] == [2]


def test_numbered_list_is_divided_into_dependent_tasks(board: Board) -> None:
    add(board, "Base")
    number = add(
        board,
        "Rewrite the reader:\n1. Read headers\n   of both kinds\n2. Read bodies\n3) Write tests",
        priority=Priority.LOW, language="python", dependencies=(1,), accept=("make test",),
    )  # fmt: skip
    outcome = divide(board, number)
    parts = [task_of(board, one) for one in outcome.data["created"]]
    assert [part.title for part in parts] == ["Read headers of both kinds", "Read bodies", "Write tests"]
    assert [part.dependencies for part in parts] == [(1,), (3,), (4,)]
    assert {(part.parent, part.priority, part.language) for part in parts} == {(2, Priority.LOW, "python")}
    assert [part.accept for part in parts] == [(), (), ("make test",)]
    assert task_of(board, number).status is Status.EXPANDED


@pytest.mark.parametrize("prompt", ["", "only one thing", "one thing; another", "- a", "\n".join(f"- {n}" for n in range(6))])
def test_fewer_than_two_or_more_than_five_parts_are_refused_with_advice(board: Board, prompt: str) -> None:
    add(board, "Nothing to go by here")
    with pytest.raises(Misused, match="2 to 5 parts") as refused:
        divide(board, 1, prompt)
    assert "remit task --divide 1" in refused.value.advice
    assert task_of(board, 1).status is Status.NOT_STARTED


def test_only_tasks_that_are_not_started_are_divided(board: Board) -> None:
    add(board, "One\n- a\n- b")
    set_status(board, 1, Status.PLANNED)
    with pytest.raises(Refused, match="cannot become"):
        divide(board, 1)
    assert any("--force" in warning for warning in divide(board, 1, force=True).warnings)
    with pytest.raises(Refused):
        divide(board, 1, force=True)


def test_sync_merges_edits_and_renders_todo_again(board: Board) -> None:
    add(board, "One")
    board.todo_path.write_text(board.todo_path.read_text().replace("**Priority**: Medium", "**Priority**: High"))
    outcome = sync(board)
    assert outcome.data["changed"] is True
    assert task_of(board, 1).priority is Priority.HIGH
    state = board.look().state
    assert board.todo_path.read_text() == drawing.draw(state)
    assert sync(board).data["changed"] is False
    board.todo_path.unlink()
    assert sync(board).data["changed"] is True
    assert board.todo_path.read_text() == drawing.draw(state)
    board.todo_path.unlink()
    board.todo_path.mkdir()
    with pytest.raises(Unavailable, match=r"TODO\.md cannot be read"):
        sync(board)


def test_todo_archives_up_to_five_closed_tasks_without_a_question(board: Board) -> None:
    for place in range(7):
        add(board, f"Task {place}")
    abandon(board, [1, 2, 3], "x")
    for number in (4, 5):
        set_status(board, number, Status.COMPLETED)

    def no(_tasks: Sequence[Task]) -> bool:
        raise AssertionError("it asked")

    assert todo(board, agreed=no).data["archived"] == [1, 2, 3, 4, 5]
    assert [task.number for task in board.look().state.tasks] == [6, 7]
    assert todo(board, agreed=no).summary == "Nothing to archive: no task is completed or abandoned."


def test_todo_reports_folders_of_no_task(board: Board) -> None:
    add(board, "One")
    (board.specs / "099_orphan").mkdir()
    (board.specs / "001_other_name").mkdir()
    abandon(board, [1], "x")
    before = board.state_path.read_bytes()
    outcome = todo(board, agreed=agreed, dry_run=True)
    assert outcome.data["would_archive"] == [1]
    assert board.state_path.read_bytes() == before
    assert outcome.data["orphan_folders"] == ["specs/099_orphan"]
    assert outcome.warnings == ("Folders of no task: specs/099_orphan.",)
