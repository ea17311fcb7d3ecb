"""`remit board import`: an existing TODO.md and state.json become a board without loss; unreadable parts are listed."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remit import Board, Misused, NewTask, Refused, Unavailable, import_board
from remit import add_task as record
from support import cli
from support.boards import draw
from support.repository import begin
from support.repository import git as git_in

TODO = """# TODO

Words of mine.

## High Priority

### 7. Better parser
- **Status**: [COMPLETED]
- **Effort**: 5h
- **Owner**: Ann

**Description**: Longer words of it.

---

### 9. Only here
- **Status**: [REVISED]
- **Blocking Reason**: nobody knows

---
"""
STATE: dict[str, Any] = {
    "sprint": 4,
    "active_projects": [
        {"project_number": "7", "project_name": "parser", "title": "Parser", "status": "in_progress", "priority": "high", "points": 3},
        {"project_number": 8, "title": "Other", "status": "weird", "effort": ["4h"]},
    ],
    "completed_projects": [{"project_number": 3, "title": "Done long ago"}],
}


def place(root: Path, folder: str = ".opencode/specs", **files: Any) -> Board:
    for name, content in files.items():
        path = root / folder / {"todo": "TODO.md", "state": "state.json", "archive": "archive/state.json"}[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return Board(root)


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_both_files_are_merged_and_the_old_ones_are_kept(tmp_path: Path) -> None:
    board = place(
        tmp_path, todo=TODO, state=STATE, archive={"active_projects": [{"project_number": 2, "title": "Away", "status": "completed"}]}
    )
    old = files_of(tmp_path / ".opencode")
    done = import_board(board)
    state = board.look().state
    assert {task.number: (task.title, str(task.status)) for task in state.tasks} == {
        7: ("Better parser", "completed"), 8: ("Other", "not_started"), 9: ("Only here", "revised"),
    }  # fmt: skip
    parser = state.task(7)
    assert (parser.effort, parser.description, parser.lines) == ("5h", "Longer words of it.", ("- **Owner**: Ann",))
    assert parser.extra == {"points": 3}
    assert (state.extra["sprint"], state.next_number) == (4, 10)
    assert "Words of mine." in draw(state) == board.todo_path.read_text()
    assert [entry["title"] for entry in json.loads(board.archive_path.read_text())["active_projects"]] == ["Done long ago", "Away"]
    assert (done.data["tasks"], done.data["archived"]) == (3, 2)
    assert "  Task 7: [IMPLEMENTING] → [COMPLETED]" in done.summary
    assert ["weird" in done.warnings[0], "4h" in done.warnings[1]] == [True, True]
    assert files_of(tmp_path / ".opencode") == old
    assert {name: (tmp_path / done.data["kept_in"] / name).read_bytes() for name in ("TODO.md", "state.json", "archive/state.json")} == {
        str(path.relative_to(tmp_path / ".opencode/specs")): data for path, data in old.items()
    }


def test_second_import_changes_nothing_and_the_board_is_usable(tmp_path: Path) -> None:
    board = place(tmp_path, "specs", todo=TODO, state=STATE)
    import_board(board)
    assert board.look().notices == ()
    before = files_of(tmp_path / "specs")
    with pytest.raises(Refused, match="nothing was changed"):
        import_board(board)
    assert files_of(tmp_path / "specs") == before
    board.todo_path.write_text(board.todo_path.read_text().replace("Only here", "Only here renamed"))
    assert board.look().notices == ("From TODO.md: Task 9: title 'Only here renamed'",)


def test_duplicate_task_number_is_reassigned(tmp_path: Path) -> None:
    entries = [
        {"project_number": 5, "title": "One"},
        {"project_number": 5, "title": "Two"},
        {"title": "Three"},
        {"project_number": 1, "title": "A"},
    ]
    board = place(
        tmp_path,
        state={"active_projects": entries, "completed_projects": [{"project_number": 5, "title": "Four"}], "next_project_number": 9},
    )
    reported = import_board(board)
    assert {task.number: task.title for task in board.look().state.tasks} == {1: "A", 5: "One", 9: "Two", 10: "Three"}
    assert any("'Two' had no number of its own: it is Task 9 now" in line for line in reported.warnings)
    assert any("'Four' is left out" in line for line in reported.warnings)


def test_unreadable_state_json_is_preserved_and_todo_is_imported(tmp_path: Path) -> None:
    board = place(tmp_path, todo="## High Priority\n\n### 3. Three\n- **Status**: [PLANNED]\n", state="]]] no json")
    reported = import_board(board)
    assert [(task.number, str(task.status)) for task in board.look().state.tasks] == [(3, "planned")]
    assert (tmp_path / reported.data["kept_in"] / "state.json").read_text() == "]]] no json"
    assert "state.json could not be read" in reported.warnings[0]


def test_damaged_remit_board_is_rebuilt(tmp_path: Path) -> None:
    board = Board(tmp_path)
    for title in ("alpha", "beta"):
        record(board, NewTask(text=f"Write {title}\n\n---\n### 9. {title}", effort="1h"))
    board.todo_path.write_text(board.todo_path.read_text() + "\n## Notes\n\nMine.\n")
    with board.change():
        pass
    before = board.look().state
    board.state_path.write_text(board.state_path.read_text().replace('"status": "not_started"', '"status": "odd"', 1))
    with pytest.raises(Unavailable):
        board.look()
    import_board(board)
    after = board.look().state
    assert [(task.number, task.title, task.description) for task in after.tasks] == [
        (task.number, task.title, task.description) for task in before.tasks
    ]
    assert (after.texts, after.next_number) == (before.texts, before.next_number)


@pytest.mark.parametrize(("files", "message"), [({}, "There is no old board here"), ({"todo": "\n"}, "has no readable task")])
def test_empty_import_is_an_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    board = place(tmp_path, **files)
    with pytest.raises(Misused, match=message):
        import_board(board)
    with pytest.raises(Refused, match="unfinished merge"):
        import_board(place(tmp_path, "merging", todo=f"<<<<<<< ours\n{TODO}"), tmp_path / "merging")


def test_import_command_prints_and_commits_the_result(tmp_path: Path) -> None:
    git = partial(git_in, tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        result = cli.run("board", "import", *arguments, cwd=tmp_path)
        return result.code, result.stdout or result.stderr

    assert run(str(tmp_path))[0] == 2
    place(tmp_path, todo=TODO, state=STATE)
    begin(tmp_path)
    (tmp_path / "other.txt").write_text("mine")
    reported = json.loads(run("--json")[1])
    assert (reported["tasks"], reported["status"]) == (3, "completed")
    assert git("log", "--format=%s").strip() == "board: import 3 tasks"
    committed = git("show", "--format=", "--name-only").split()
    assert {"specs/TODO.md", "specs/state.json", f"{reported['kept_in']}/TODO.md"} <= set(committed)
    assert all(path.startswith("specs/") for path in committed)
    code, output = run()
    assert code != 0
    assert "nothing was changed" in output


def test_artifacts_are_found_in_their_old_folders(tmp_path: Path) -> None:
    path = "005_one/reports/research 001.md"
    report = tmp_path / ".opencode/specs" / path
    report.parent.mkdir(parents=True)
    report.write_text("found")
    entry = {"project_number": 5, "title": "One", "status": "researched", "artifacts": [{"type": "research", "path": path}]}
    links = f"[it]({path.replace(' ', '%20')}), [gone](gone.md)"
    todo = f"## Medium Priority\n\n### 5. One\n- **Status**: [RESEARCHED]\n- **Research**: {links}\n\n---\n"
    gone = {"type": "research", "path": "gone.md"}
    board = place(tmp_path, todo=todo, state={"active_projects": [{**entry, "artifacts": [*entry["artifacts"], gone]}]})
    import_board(board)
    task = board.look().state.task(5)
    assert [one.path for one in task.artifacts] == [f".opencode/specs/{path}", "gone.md"]
    assert task.lines == ()
    assert "(../.opencode/specs/005_one/reports/research%20001.md)" in board.todo_path.read_text()
