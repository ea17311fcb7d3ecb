"""Results as printed: start of a report, data, errors, next steps, outcome of a board command."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from remit import (
    Artifact,
    ErrorInfo,
    Failed,
    InvalidReturn,
    Metadata,
    Misused,
    Outcome,
    Refused,
    Return,
    State,
    Status,
    StopReason,
    Unavailable,
)
from remit.cli.exits import MEANINGS, Exit, exit_of_ending, exit_of_error, exit_of_state, legend
from remit.cli.results import beginning_of, data_lines, print_outcome, print_return
from remit.runtime.reply import advice


def test_only_readable_files_of_the_project_are_shown_as_a_report(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "outside.md").write_text("secret")
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    os.mkfifo(root / "pipe.md")
    (root / "folder.md").mkdir()
    (root / "good.md").write_bytes(b"# T\n\nfine \xff\x1b[2J\n")
    for path in ("../outside.md", str(tmp_path / "outside.md"), "link.md", "pipe.md", "folder.md", "missing.md", "bad\x00.md"):
        assert beginning_of([Artifact(path=path, type="report")], root) is None, path
    found = beginning_of([Artifact(path=path, type=kind) for path, kind in (("good.md", "data"), ("good.md", "report"))], root)
    assert found is not None
    assert found.text == "fine \ufffd\ufffd[2J"


def print_errors(*errors: ErrorInfo) -> str:
    out = io.StringIO()
    metadata = Metadata(
        session_id="sess_1_aaaaaa", agent_type="a", delegation_depth=1, delegation_path=("orchestrator", "a"), duration_seconds=1.0
    )
    result = Return(status=Status.FAILED, summary="It failed.", metadata=metadata, errors=errors, next_steps=advice(errors))
    print_return(result, Path("."), out)
    return out.getvalue()


def error(code: str, advice: str, *, recoverable: bool = False) -> ErrorInfo:
    return ErrorInfo(type="x", message=f"{code} happened.", code=code, recoverable=recoverable, recommendation=advice)


def test_advice_is_printed_once() -> None:
    for recoverable in (True, False):
        shown = print_errors(error("X", "Name a path.", recoverable=recoverable))
        assert (shown.count("Name a path."), "  next  Name a path." in shown, "Manual intervention" in shown) == (1, True, False)
    assert "  next  Manual intervention is needed." in print_errors(error("X", ""))
    two = print_errors(error("X", "Name a path."), error("Y", "Make room.", recoverable=True))
    assert (two.count("Name a path."), two.count("Make room.")) == (1, 1)


def test_dry_run_is_never_printed_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(
        Outcome(
            command="task",
            status="completed",
            summary="Task 7 would be abandoned.",
            task_number=7,
            task_status="ABANDONED",
            next_steps="remit task --recover 7",
            data={"dry_run": True},
        )
    )
    assert capsys.readouterr().out == "○ rehearsal  task  task 7: nothing was changed\nTask 7 would be abandoned.\n"


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("two\nlines", ["two", "lines"]),
        (7, ["7"]),
        ({}, ["{}"]),
        ({"path": "a.txt", "size": 3, "cut": None}, ["path  a.txt", "size  3", "cut   null"]),
        ({"note": "one\n  two\n", "path": "a"}, ["path  a", "note:", "  one", "    two"]),
        ([{"name": "a", "n": 1}, {"name": "bb", "n": 22}], ["name  n", "a     1", "bb    22"]),
        ([1, 2], ["- 1", "- 2"]),
        ({"words": ["a", "b"], "none": []}, ["words  a, b", "none   []"]),
        ({"x": ""}, ['x  ""']),
        ({"a": {"b": {"c": 1}}}, ["a:", "  b:", "    c  1"]),
        ([{"a": [{"b": 1}]}], ["- a:", "    - b  1"]),
        ({"inf": float("inf"), 3: "x"}, ["inf  null", "3    x"]),
    ],
)
def test_each_field_has_a_line_and_text_is_shown_as_text(data: Any, lines: list[str]) -> None:
    assert list(data_lines(data)) == lines


@pytest.mark.parametrize(
    ("status", "stop_reason", "code"),
    [
        (Status.COMPLETED, StopReason.FINISHED, 0),
        (Status.FAILED, StopReason.INVALID_RETURN, 1),
        (Status.PARTIAL, StopReason.CRASHED, 3),
        (Status.BLOCKED, StopReason.UNAVAILABLE, 4),
        (Status.FAILED, StopReason.REFUSED, 5),
        (Status.PARTIAL, StopReason.CANCELLED, 6),
        (Status.FAILED, StopReason.UNAVAILABLE, 7),
    ],
)
def test_return_determines_the_exit_code(status: Status, stop_reason: StopReason, code: int) -> None:
    assert exit_of_ending(status, stop_reason) == code


def test_errors_determine_exit_codes_and_help_lists_every_code_once() -> None:
    codes = [exit_of_error(error) for error in (Misused("x"), Refused("x"), Unavailable("x"), Failed("x"), InvalidReturn(["x"]))]
    assert codes == [Exit.USAGE, Exit.REFUSED, Exit.UNAVAILABLE, Exit.FAILED, Exit.FAILED]
    assert {int(exit_of_state(state)) for state in State if state.is_settled} == {0, 1, 3, 4, 5, 6}
    assert all(legend().count(f"{code.value} {MEANINGS[code]}") == 1 for code in Exit)
