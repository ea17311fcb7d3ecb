"""`remit review`: reports, tasks made of findings, and the record of a task compared with its files."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Board, Context, Misused, Outcome, Remit, ReviewRequest, Task, agent, load_settings
from remit import TaskStatus as Status
from remit import review_work as review
from remit.board.review import check
from remit.board.task import slug_of
from support.boards import board_with
from support.repository import begin, git

RISKY = "import subprocess\n\n\ndef run(text):\n    breakpoint()\n    subprocess.run(text, shell=True)\n    return eval(text)\n"
FINDINGS = [
    {"severity": "high", "file": "src/a.py", "line": 3, "message": "The file is never closed.", "suggestion": "Use with."},
    {"severity": "medium", "file": "src/a.py", "line": 9, "message": "The name says nothing."},
    {"severity": "High", "file": "src/b.py:7", "message": "It forgets the last line", "suggestion": "Read on."},
    {"severity": "low", "file": "src/c.py", "message": "A comment is wrong."},
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    begin(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("def run(text):\n    return text\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "start")
    return tmp_path


def reviewer_with(findings: Any, report: str = "# Review\n\n- src/a.py:3 The file is never closed.\n") -> Any:
    @agent("reviewer")
    async def reads(ctx: Context, task: str, write_to: str, **_more: Any) -> dict[str, Any]:
        (ctx.root / write_to).write_text(report + f"\n<!-- {task} -->\n")
        data = {} if findings is None else {"findings": findings}
        artifacts = [{"type": "report", "path": write_to}]
        return {"status": "completed", "summary": "Read it all. It is fine.", "artifacts": artifacts, "data": data}

    return reads


async def run_review(root: Path, *agents: Any, **asked: Any) -> Outcome:
    async with Remit.open(root, agents=list(agents)) as remit:
        return await review(remit, Board(root), ReviewRequest(**asked))


def task(number: int, title: str, **more: Any) -> Task:
    return Task(number=number, title=title, slug=slug_of(title), language="python", **more)


async def test_uncommitted_changes_are_reviewed_and_the_report_is_committed(project: Path) -> None:
    (project / "src/a.py").write_text(RISKY)
    (project / "other.py").write_text("eval(input())\n")
    outcome = await run_review(project, path="src")
    report = (project / "specs/reviews/review-001.md").read_text()
    assert outcome.status == "completed"
    assert {one["rule"] for one in outcome.data["findings"]} >= {"S307", "S602", "T100"}
    assert {one["file"] for one in outcome.data["findings"]} == {"src/a.py"}
    assert "src/a.py:5" in report
    assert "- **Reviewed**: the uncommitted changes in src\n" in report
    assert git(project, "log", "-1", "--format=%s|%(trailers:key=Session,valueonly)", "--name-only").split() == [
        "review:", "src", f"({len(outcome.data['findings'])}", f"findings)|{outcome.session_id}", "specs/reviews/review-001.md",
    ]  # fmt: skip
    assert git(project, "status", "--porcelain", "--", "src").strip() == "M src/a.py"
    assert not list((project / ".remit/scratch").rglob("*.patch"))
    assert not (project / "specs/state.json").exists(), "a review creates no board"


async def test_review_of_a_task_has_its_commits(project: Path) -> None:
    board_with(project, task(4, "Run it", status=Status.COMPLETED))
    (project / "src/a.py").write_text(RISKY)
    git(project, "add", "src")
    git(project, "commit", "-qm", "task 4 phase 1: one")
    (project / "src/z.py").write_text("x = eval('1')\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "task 40: another")

    outcome = await run_review(project, number=4)
    assert {one["file"] for one in outcome.data["findings"]} == {"src/a.py"}
    assert "task 4 phase 1: one" in (project / "specs/004_run_it/reports/review-001.md").read_text()
    now = Board(project).look().state.task(4)
    assert (now.status, now.artifacts[-1].type) == (Status.COMPLETED, "review")
    assert git(project, "log", "-1", "--format=%s").strip() == "task 4: review"


async def test_findings_become_tasks_per_file_with_a_link_to_the_report(project: Path) -> None:
    outcome = await run_review(project, reviewer_with(FINDINGS), make_tasks=True)
    state = Board(project).look().state
    assert outcome.data["created"] == [1, 2]
    assert [(one.priority, one.source) for one in state.tasks] == [
        ("high", "specs/reviews/review-001.md"),
        ("high", "specs/reviews/review-001.md"),
    ]
    assert "The file is never closed. → Use with." in state.task(1).description
    report = (project / "specs/reviews/review-001.md").read_text()
    assert "- Task 1: Settle 2 findings of the review in src/a.py\n" in report
    committed = git(project, "show", "--format=", "--name-only", "HEAD").split()
    assert committed == ["specs/TODO.md", "specs/reviews/review-001.md", "specs/state.json"]


async def test_file_with_an_open_task_of_a_review_gets_no_second_one(project: Path) -> None:
    await run_review(project, reviewer_with(FINDINGS), make_tasks=True)
    moved = [{**FINDINGS[0], "line": 40}, FINDINGS[2], {"severity": "critical", "file": "src/d.py", "message": "New."}]
    outcome = await run_review(project, reviewer_with(moved), make_tasks=True)
    assert outcome.data["created"] == [3]
    assert "Task 1 for src/a.py is open already." in outcome.warnings

    board = Board(project)
    with board.change() as draft:
        draft.state = draft.state.with_task(draft.state.task(1).moved(Status.ABANDONED, at=draft.at, reason="later"))
    again = await run_review(project, reviewer_with([FINDINGS[0]]), make_tasks=True)
    assert again.data["created"] == [4], "an abandoned task does not count"


async def test_review_without_a_report_fails(project: Path) -> None:
    @agent("reviewer")
    async def says_so(ctx: Context, task: str, **_more: Any) -> dict[str, Any]:
        return {"status": "completed", "summary": "All is well. Nothing found.", "artifacts": []}

    outcome = await run_review(project, says_so)
    assert (outcome.status, outcome.errors[0].code) == ("failed", "FILE_NOT_FOUND")
    assert not (project / "specs/reviews").exists()


@pytest.mark.parametrize(
    ("asked", "words"), [({"number": 9}, "Task 9 not found"), ({"path": "nowhere"}, "There is no nowhere"), ({"path": ".."}, "outside")]
)
def test_unknown_task_or_path_is_refused(project: Path, asked: dict[str, Any], words: str) -> None:
    board_with(project, task(4, "Run it"))
    with pytest.raises(Misused, match=words):
        check(Board(project), load_settings(project), ReviewRequest(**asked))


async def test_content_of_forbidden_files_is_not_reviewed(project: Path) -> None:
    (project / ".env").write_text("PASSWORD=hunter2\n")
    outcome = await run_review(project)
    assert "hunter2" not in str(outcome.data["findings"])
    assert "the policy does not let it be read" in (project / "specs/reviews/review-001.md").read_text()


async def test_hostile_findings_are_sanitised(project: Path) -> None:
    odd = [
        7, None, {}, {"severity": 3, "message": "x"}, {"message": "a\nb\x00\x1b[31m" * 500, "file": "../../etc/passwd", "line": -4},
        {"severity": "high", "file": ["a"], "line": "12", "message": {"a": 1}}, {"severity": "high", "message": "", "file": "src/a.py"},
    ]  # fmt: skip
    outcome = await run_review(project, reviewer_with(odd), make_tasks=True)
    assert outcome.status == "completed"
    state = Board(project).look().state
    assert all("\n" not in one.title and one.title.isprintable() for one in state.tasks)
    assert replace(state) == Board(project).look().state
