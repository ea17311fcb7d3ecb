"""`remit board import`: boards of several hundred tasks with all the damage there is come through without a lost line (item 7)."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.board.book import Board
from remit.board.importing import import_board
from remit.board.todo import draw
from remit.core.errors import Misused, Refused, Unavailable
from remit.orchestrator.tasks import Wanted, record
from remit.testing.boards import damaged_board

ALL_STATUSES = {
    "not_started", "researching", "researched", "planning", "planned", "revising", "revised", "implementing", "partial", "blocked",
    "expanded", "abandoned", "completed",
}  # fmt: skip


def place(tmp_path: Path, files: dict[str, Any], folder: str = ".opencode/specs") -> Board:
    for name, content in files.items():
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return Board(tmp_path)


def entries_of(root: Path) -> Iterator[dict[str, Any]]:
    """Read by nothing but json: the board's tasks and the archive's."""
    for name in ("state.json", "archive/state.json"):
        path = root / "specs" / name
        if path.exists():
            data = json.loads(path.read_text())
            yield from data["active_projects"]
            yield from (entry for entry in data["completed_projects"] if isinstance(entry, dict))


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_board_comes_through_whole(tmp_path: Path, seed: int) -> None:
    damaged = damaged_board(seed, tasks=300)
    folder = tmp_path / (".opencode/specs" if seed % 2 else "specs")
    damaged.write(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    told = import_board(Board(tmp_path), is_rehearsal=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    done = import_board(Board(tmp_path))
    assert (done.tasks, done.archived, done.drifts) == (told.tasks, told.archived, told.drifts)

    todo = (tmp_path / "specs/TODO.md").read_text()
    everything = todo + "".join((tmp_path / "specs" / name).read_text() for name in ("state.json", "archive/state.json"))
    assert damaged.words - set(re.findall(r"kw\d+", everything)) == set()

    entries = list(entries_of(tmp_path))
    by_word = {word: entry for entry in entries for word in re.findall(r"kw\d+", str(entry["title"]))}
    assert len(entries) == len(damaged.facts) == done.tasks + done.archived
    numbers = [int(entry["project_number"]) for entry in json.loads((tmp_path / "specs/state.json").read_text())["active_projects"]]
    assert len(set(numbers)) == len(numbers)
    for fact in damaged.facts:
        entry = by_word[fact.word]
        assert entry["status"] in ALL_STATUSES or entry not in entries[: done.tasks]
        if entry in entries[: done.tasks]:
            assert entry["status"] == (fact.status or "not_started"), (fact, entry)
            assert f"### {entry['project_number']}. {entry['title']}\n" in todo
    kept = tmp_path / done.kept_in
    assert {name: (kept / name).read_bytes() for name in damaged.files} == damaged.files


def test_importing_twice_changes_nothing_more(tmp_path: Path) -> None:
    damaged_board(3, tasks=40).write(tmp_path / ".opencode/specs")
    import_board(Board(tmp_path))
    before = {path: path.read_bytes() for path in (tmp_path / "specs").rglob("*") if path.is_file()}
    assert import_board(Board(tmp_path)).was_done
    assert {path: path.read_bytes() for path in (tmp_path / "specs").rglob("*") if path.is_file()} == before


def test_an_imported_board_is_one_like_any_other(tmp_path: Path) -> None:
    damaged_board(4, tasks=60).write(tmp_path / "specs")
    board = Board(tmp_path)
    import_board(board)
    assert board.look().notices == ()
    state = board.look().state
    assert (tmp_path / "specs/TODO.md").read_text() == draw(state)
    number = state.tasks[0].number
    text = (tmp_path / "specs/TODO.md").read_text()
    (tmp_path / "specs/TODO.md").write_text(re.sub(rf"(### {number}\. .*)", r"\1 renamed", text, count=1))
    seen = board.look()
    assert seen.state.task(number).title.endswith("renamed")
    assert len(seen.notices) == 1
    assert import_board(board).was_done


def test_drift_is_listed_and_settled_by_the_one_rule(tmp_path: Path) -> None:
    board = place(
        tmp_path,
        {
            "TODO.md": "## Low Priority\n\n### 7. Better parser\n- **Status**: [x]\n- **Effort**: 5h\n\n"
            "**Description**: Longer words of it.\n\n---\n",
            "state.json": {
                "active_projects": [
                    {"project_number": "7", "project_name": "parser", "title": "Parser", "status": "in_progress", "priority": "high",
                     "description": "words of it.", "effort": "4h"}
                ]
            },
        },
    )  # fmt: skip
    told = import_board(board)
    assert [(one.field, one.state, one.todo, one.settled) for one in told.drifts] == [
        ("title", "Parser", "Better parser", "Parser"),
        ("status", "IMPLEMENTING", "COMPLETED", "COMPLETED"),
        ("priority", "high", "low", "high"),
        ("effort", "4h", "5h", "4h"),
    ]
    task = board.look().state.task(7)
    assert (task.title, str(task.status), task.effort, task.description) == ("Parser", "completed", "4h", "Longer words of it.")
    assert task.extra["imported"] == {
        "todo_title": "Better parser", "status_of_state": "implementing", "todo_priority": "low", "todo_effort": "5h",
    }  # fmt: skip


def test_the_number_goes_to_one_of_two_and_the_other_gets_the_next(tmp_path: Path) -> None:
    entries = [{"project_number": 5, "title": "One", "status": "planned"}, {"project_number": 5, "title": "Two", "status": "planned"}]
    board = place(tmp_path, {"state.json": {"active_projects": entries, "next_project_number": 9}})
    told = import_board(board)
    assert {task.number: task.title for task in board.look().state.tasks} == {5: "One", 9: "Two"}
    assert any("'Two' had the number 5" in line for line in told.told)


def test_artifacts_are_found_where_the_old_board_had_them(tmp_path: Path) -> None:
    report = tmp_path / ".opencode/specs/005_one/reports/research-001.md"
    report.parent.mkdir(parents=True)
    report.write_text("found")
    todo = (
        "## High Priority\n\n### 5. One\n- **Status**: [RESEARCHED]\n- **Research**: [research-001.md](005_one/reports/research-001.md)\n"
    )
    board = place(tmp_path, {"TODO.md": todo})
    import_board(board)
    assert [artifact.path for artifact in board.look().state.task(5).artifacts] == [".opencode/specs/005_one/reports/research-001.md"]
    assert "(../.opencode/specs/005_one/reports/research-001.md)" in (tmp_path / "specs/TODO.md").read_text()


def test_a_state_json_cut_short_or_unreadable_is_told_and_kept(tmp_path: Path) -> None:
    whole = json.dumps(
        {"active_projects": [{"project_number": 1, "title": "One", "status": "planned"}, {"project_number": 2, "title": "Two"}]}
    )
    todo = "## High Priority\n\n### 3. Three\n- **Status**: [PLANNED]\n"
    (tmp_path / "a").mkdir()
    cut = place(tmp_path / "a", {"TODO.md": todo, "state.json": whole[:-30]})
    told = import_board(cut)
    assert {task.number for task in cut.look().state.tasks} >= {1, 3}
    assert any("cut short" in line for line in told.told)
    (tmp_path / "b").mkdir()
    broken = place(tmp_path / "b", {"TODO.md": todo, "state.json": "]]] no json"})
    told = import_board(broken)
    assert [task.number for task in broken.look().state.tasks] == [3]
    assert (tmp_path / "b" / told.kept_in / "state.json").read_text() == "]]] no json"


def test_a_board_of_ours_that_was_damaged_is_made_anew_from_what_is_there(tmp_path: Path) -> None:
    board = Board(tmp_path)
    for word in ("alpha", "beta"):
        record(board, Wanted(text=f"Write {word}\n\n---\n### 9. {word}", effort="1h"))
    board.todo_path.write_text(board.todo_path.read_text() + "\n## Notes\n\nMine.\n")
    with board.change():
        pass
    before = board.look().state
    broken = board.state_path.read_text().replace('"status": "not_started"', '"status": "odd"', 1)
    board.state_path.write_text(broken)
    with pytest.raises(Unavailable):
        board.look()
    import_board(board)
    after = board.look().state
    assert [(task.number, task.title, task.description, task.lines) for task in after.tasks] == [
        (task.number, task.title, task.description, task.lines) for task in before.tasks
    ]
    assert (after.texts, after.next_number) == (before.texts, before.next_number)


def test_two_boards_are_not_mixed(tmp_path: Path) -> None:
    board = place(tmp_path, {"TODO.md": "## High Priority\n\n### 3. Three\n- **Status**: [PLANNED]\n"})
    import_board(board)
    place(tmp_path, {"TODO.md": "## High Priority\n\n### 4. Four\n- **Status**: [PLANNED]\n"}, folder="other")
    with pytest.raises(Refused, match="has a board with 1"):
        import_board(board, tmp_path / "other")


def test_nothing_to_import_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(Misused, match="There is no old board here"):
        import_board(Board(tmp_path))
    with pytest.raises(Misused, match="has neither"):
        import_board(Board(tmp_path), tmp_path)


def test_a_word_that_is_no_status_is_listed_and_kept(tmp_path: Path) -> None:
    files: dict[str, Any] = {"TODO.md": "", "state.json": {"active_projects": [{"project_number": 7, "title": "One", "status": "weird"}]}}
    board = place(tmp_path, files)
    told = import_board(board)
    assert [(one.field, one.state, one.todo, one.settled) for one in told.drifts] == [("status", "weird", "", "NOT STARTED")]
    assert board.look().state.task(7).extra["imported"] == {"status": "weird"}


def test_values_of_the_wrong_kind_are_kept_and_the_board_can_be_read(tmp_path: Path) -> None:
    """Item 7: nothing is lost, and what was written is a board."""
    state = {
        "schema_version": "0.9",
        "next_project_number": "soon",
        "_last_updated": 5,
        "_todo_texts": "mine",
        "active_projects": [
            {
                "project_number": 1,
                "title": "One",
                "status": "planned",
                "plan_versions": [{"version": 1, "path": "p.md", "created": 17, "reason": ["because"]}],
            }
        ],
    }
    import_board(place(tmp_path, {"state.json": state}))
    found = Board(tmp_path).look().state
    assert found.task(1).plan_versions[0].extra == {"imported_created": 17, "imported_reason": ["because"]}
    kept = {key: value for key, value in found.extra.items() if key.startswith("imported_") and key != "imported_from"}
    assert kept == {
        "imported_schema_version": "0.9", "imported_next_project_number": "soon", "imported_last_updated": 5, "imported_todo_texts": "mine",
    }  # fmt: skip


def test_a_comment_left_open_hides_no_task_that_state_json_has(tmp_path: Path) -> None:
    state = {"active_projects": [{"project_number": 2, "title": "Two", "status": "planned"}]}
    text = "# TODO\n\n<!-- open\n\n## High Priority\n\n### 2. Two\n- **Status**: [PLANNED]\n\n---\n\n<!-- closed -->\n"
    import_board(place(tmp_path, {"state.json": state, "TODO.md": text}))
    (tmp_path / "specs/TODO.md").write_text((tmp_path / "specs/TODO.md").read_text() + "\nA word more.\n")
    seen = Board(tmp_path).look()
    assert [task.number for task in seen.state.tasks] == [2]
    assert seen.notices == ("From TODO.md: Your own text between the tasks",)


@pytest.mark.parametrize(
    "text",
    [
        f"### 1. a{'[' * 40_000}\n",
        f"### 1. a{' ' * 40_000}b\n",
        f"### 1. a{' [x]' * 40_000}\n",
        f"### 1. a\n- **Status**: {'[' * 40_000}\n",
        f"### 1. a\n- **Research**: {'[a](' * 40_000}\n",
        "".join(f"### 1. word{number}\n- **Status**: x\n\n---\n" for number in range(1_000)),
    ],
    ids=range(6),
)
def test_long_lines_and_many_of_one_number_are_read_at_once(tmp_path: Path, text: str) -> None:
    started = time.monotonic()
    import_board(place(tmp_path, {"TODO.md": f"# TODO\n\n## High Priority\n\n{text}"}))
    assert time.monotonic() - started < 5
