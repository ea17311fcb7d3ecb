"""The board commands that run no agent: output, completion and imports."""

import os
import re
from pathlib import Path

import pytest
from cli_project import remit, remit_json

from support.cli import typed

task = typed("task")


def test_tasks_are_added_shown_and_drawn(tmp_path: Path) -> None:
    first = remit(tmp_path, "task", "Fix", "the", "parser", "--priority", "high")
    assert first.returncode == 0, first.stderr
    assert "Task 1 is recorded: Fix the parser" in first.stdout
    assert "next  remit research 1" in first.stdout
    second = remit_json(tmp_path, "task", "-", "--depends", "1", stdin="From a file.\nWith more.\n")
    assert (second["task_number"], second["title"]) == (2, "From a file")
    assert remit_json(tmp_path, "board")["tasks"][1]["waits_for"] == [1]
    drawn = remit(tmp_path, "board", "--svg", "a.svg", "--html", "a.html")
    assert drawn.stdout == "a.svg: 2 tasks\na.html: 2 tasks\n"
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    page = remit(tmp_path, "board", "2")
    assert re.search(r"dependencies +1 Fix the parser \[NOT STARTED\]", page.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("task",), 'A task needs a text. Usage: remit task "TEXT"'),
        (("task", "--sync", "--divide", "1"), "--divide and --sync exclude one another."),
        (("task", "--abandon", "1", "text here", "--reason", "x"), "--abandon takes no text"),
        (("task", "x", "--reason", "y"), "--reason goes with --abandon."),
        (("task", "--sync", "--title", "y"), "--title is for recording"),
        (("task", "x", "--priority", "huge"), "'huge' is not one of 'high'"),
        (("task", "1", "--priority", "high"), "--priority is for recording a task, and cannot be combined with the number of a task"),
        (("task", "--abandon", "1,99999999999999999999", "--reason", "x"), "This project has no board yet."),
        (("task", "--review", "7"), "Task 7 not found"),
        (("board", "--status", "x"), "Unknown status 'x'."),
        (("board", "--svg", "no/such/a.svg"), "There is no folder no/such."),
        (("todo",), "This project has no board yet."),
        (("tusk",), "Did you mean 'task'"),
    ],
)
def test_invalid_command_lines_are_refused_with_advice(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / ".remit").mkdir()
    done = remit(tmp_path, *arguments)
    assert done.code == 2
    assert message in done.stderr
    assert not (tmp_path / "specs").exists()


def test_task_page_reads_no_pipe_and_no_file_outside_as_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from remit import Board

    project = tmp_path / "project"
    project.mkdir()
    task(project, text=["First"])
    os.mkfifo(project / "pipe")
    (tmp_path / "outside.md").write_text("### Phase 1: Secret [NOT STARTED]\n")
    for place in ("pipe", "../outside.md", str(tmp_path / "outside.md")):
        with Board(project).change() as draft:
            draft.state = draft.state.with_task(replace(draft.state.task(1), plan_path=place, blocking_reason="why " * 90 + "end"))
        capsys.readouterr()
        assert task(project, text=["1"]) == 0
        page = capsys.readouterr().out
        assert "Secret" not in page
        assert "why end" in page, "the page of one task is not truncated"


def test_more_than_five_tasks_need_confirmation(tmp_path: Path) -> None:
    from remit import Board, NewTask, abandon_tasks, add_task

    board = Board(tmp_path)
    for place in range(6):
        add_task(board, NewTask(text=f"Task {place}"))
    abandon_tasks(board, range(1, 7), "done with")
    refused = remit(tmp_path, "todo")
    assert refused.returncode == 5
    assert "6 tasks would be archived, and there is no terminal to ask at." in refused.stderr
    assert remit(tmp_path, "todo", "--yes").returncode == 0
    assert board.look().state.tasks == ()
