"""What the command line prints: results, events, trees, text of agents, exit codes."""

import io
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from remit import (
    Artifact,
    Event,
    EventKind,
    Failed,
    InvalidReturn,
    Misused,
    Outcome,
    Record,
    Refused,
    State,
    Status,
    StopReason,
    Unavailable,
)
from remit.cli.events import SpendingTotal, Word, event_text
from remit.cli.exits import MEANINGS, Exit, exit_of_ending, exit_of_error, exit_of_state, legend
from remit.cli.live import GONE
from remit.cli.render import harmless
from remit.cli.results import data_lines, print_outcome, report_lines
from remit.cli.tree import View, draw, forest
from remit.testing import store_suite as records

NOW = 1_700_000_100.0


def test_only_readable_files_of_the_project_are_shown_as_a_report(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "outside.md").write_text("secret")
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    os.mkfifo(root / "pipe.md")
    (root / "good.md").write_bytes(b"# T\n\nfine \xff\x1b[2J\n")
    for path in ("../outside.md", str(tmp_path / "outside.md"), "link.md", "pipe.md", "missing.md"):
        assert report_lines([Artifact(path=path, type="report")], root) == [], path
    found = report_lines([Artifact(path=path, type=kind) for path, kind in (("good.md", "data"), ("good.md", "report"))], root)
    assert found == ["fine \ufffd\ufffd[2J"]


def test_dry_run_is_never_printed_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    facts: dict[str, Any] = {"task_number": 7, "task_status": "ABANDONED", "next_steps": "remit task --recover 7"}
    print_outcome(Outcome(command="task", status="completed", summary="It would be abandoned.", data={"dry_run": True}, **facts))
    assert capsys.readouterr().out == "○ rehearsal  task  task 7: nothing was changed\nIt would be abandoned.\n"


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("two\nlines", ["two", "lines"]),
        ({}, ["{}"]),
        ({"path": "a.txt", "size": 3, "cut": None}, ["path  a.txt", "size  3", "cut   null"]),
        ({"note": "one\n  two\n", "path": "a"}, ["path  a", "note:", "  one", "    two"]),
        ([{"name": "a", "n": 1}, {"name": "bb", "n": 22}], ["name  n", "a     1", "bb    22"]),
        ({"words": ["a", "b"], "none": []}, ["words  a, b", "none   []"]),
        ([{"a": [{"b": 1}]}], ["- a:", "    - b  1"]),
        ({"matches": [{"path": "a.py", "line": 3, "text": "x = 1"}]}, ["a.py:3: x = 1"]),
        ({"stdout": "42\n", "stderr": "oops\n"}, ["42", "stderr:", "oops"]),
    ],
)
def test_each_field_has_a_line_and_text_is_shown_as_text(data: Any, lines: list[str]) -> None:
    assert list(data_lines(data)) == lines


def test_errors_and_returns_determine_exit_codes_and_help_lists_every_code_once() -> None:
    codes = [exit_of_error(error) for error in (Misused("x"), Refused("x"), Unavailable("x"), Failed("x"), InvalidReturn(["x"]))]
    assert codes == [Exit.USAGE, Exit.REFUSED, Exit.UNAVAILABLE, Exit.FAILED, Exit.FAILED]
    returns = [
        (Status.BLOCKED, StopReason.UNAVAILABLE, 4),
        (Status.FAILED, StopReason.REFUSED, 5),
        (Status.PARTIAL, StopReason.CANCELLED, 6),
        (Status.FAILED, StopReason.UNAVAILABLE, 7),
    ]
    assert [exit_of_ending(status, reason) for status, reason, _ in returns] == [code for _, _, code in returns]
    assert {int(exit_of_state(state)) for state in State if state.is_settled} == {0, 1, 3, 4, 5, 6}
    assert all(legend().count(f"{code.value} {MEANINGS[code]}") == 1 for code in Exit)


# ---- events and trees


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"tool": {"id": "1", "kind": "Bash", "title": "ls -l", "status": "completed"}}, ""),
        ({"plan": [{"step": "Look", "status": "completed"}]}, ""),
        ({"stream": "stdout", "text": "one\n"}, "one"),
        ({"a": 1, "b": ["x"]}, '{"a":1,"b":["x"]}'),
        ({"tool": 5}, '{"tool":5}'),
        ("words", "words"),
    ],
)
def test_chunks_are_rendered_as_lines_unless_a_progress_message_says_the_same(value: Any, text: str) -> None:
    chunk = Event(session_id="sess_1700000000_abcdef", number=1, at=0.0, kind=EventKind.DATA, body={"chunk": value})
    assert event_text(chunk) == text


def drawn_record(number: int, parent: int | None = None, state: State = State.COMPLETED, agent: str = "worker") -> Record:
    times = {"created_at": NOW - 10, "started_at": NOW - 10, "deadline_at": NOW + 50}
    return records.record(number, parent=parent, agent=agent, state=state, parameters={}, **times)


def drawn(records: list[Record], **view: Any) -> list[str]:
    out = io.StringIO()
    for root in forest(records):
        Console(file=out, width=100, markup=False).print(draw(root, View(now=NOW, **view)))
    return out.getvalue().splitlines()


def test_line_shows_state_progress_time_left_and_no_terminal_control() -> None:
    running = drawn_record(0, state=State.RUNNING)
    (line,) = drawn([running], words={running.session_id: Word(text="half \x1b]0;title\x07[bold]done", fraction=0.5)})
    for part in ("worker", "000000", "10 s", "(50 s left)", "50%", "[bold]done"):
        assert part in line
    assert "\x1b]" not in line
    assert "its process is gone" in drawn([running], stuck={running.session_id: GONE})[0]


def test_tree_of_thousands_fits_and_shows_failures() -> None:
    many = [
        drawn_record(0, state=State.RUNNING),
        *(drawn_record(n, 0) for n in range(1, 5_000)),
        drawn_record(5_000, 0, State.FAILED, agent="bad"),
    ]
    lines = drawn(many, rows=20)
    assert len(lines) <= 20
    assert any("bad" in line for line in lines)
    assert ("more (" in lines[1], "completed" in lines[1]) == (True, True)


# ---- text of models and agents


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "�[2J�]0;title�"),
        ("\x9b31m", "�31m"),
        ("a\r\nb\rc", "a\nbc"),
        ("a\u202eb\u2066c", "a�b�c"),
        ("soft\u00adhyphen\ufeff", "softhyphen"),
        ("\U0001f469\u200d\U0001f4bb ok\ttab", "\U0001f469\u200d\U0001f4bb ok\ttab"),
        ("\ud800", "�"),
    ],
)
def test_terminal_control_sequences_are_neutralized(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text(), st.lists(st.integers(0, 1000), max_size=6))
def test_neutralizing_is_independent_of_chunk_boundaries(text: str, cuts: Sequence[int]) -> None:
    whole = harmless(text)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    assert "".join(harmless(text[a:b]) for a, b in pairwise(places)) == whole
    assert not any((sign < " " and sign not in "\n\t") or sign == "\x7f" for sign in whole)


def test_cost_is_known_or_a_lower_bound() -> None:
    totals = [SpendingTotal(), SpendingTotal(1000, 0.5), SpendingTotal(10, has_unknown=True), SpendingTotal(1010, 0.5, has_unknown=True)]
    assert [one.words() for one in totals] == ["", "1,000 tokens, 0.50", "10 tokens, money unknown", "1,010 tokens, at least 0.50"]
