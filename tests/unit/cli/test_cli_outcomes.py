"""What a person reads when a command of the board has ended (S4.5), and what a program does."""

import io
import re

import pytest

from remit.board.user_edits import FROM
from remit.cli.outcomes import FROM_TODO, print_outcome
from remit.core.errors import ErrorInfo
from remit.orchestrator.outcome import Outcome


class Terminal(io.StringIO):
    """80 columns, as of a terminal that tells no width."""

    def isatty(self) -> bool:
        return True


def test_a_rehearsal_is_never_told_as_something_done(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_what_was_taken_over_from_todo_md_is_no_warning_and_what_was_not_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert FROM_TODO == FROM
    warnings = (f"{FROM}Task 4: priority High", "TODO.md: Task 4: Status '[DONE]' was not taken over: unknown.")
    print_outcome(Outcome(command="task", status="completed", summary="Done.", warnings=warnings))
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  TODO.md  Task 4: priority High",
        "  warning  TODO.md: Task 4: Status '[DONE]' was not taken over: unknown.",
    ]


def test_on_a_terminal_a_long_line_goes_on_below_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours take no room, and a path that is longer than the line is not cut in two."""
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.delenv("NO_COLOR", raising=False)
    error = ErrorInfo(type="execution", message="It broke.", code="BUILD_ERROR", recoverable=True, recommendation="a" * 90 + " b")
    print_outcome(Outcome(command="plan", status="failed", summary="It broke.", errors=(error,), warnings=("word " * 16 + "end",)))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert lines[2:] == [
        "  BUILD_ERROR →  " + "a" * 90,
        "                 b",
        "  warning  " + " ".join(["word"] * 14),
        "           word word end",
    ]


def test_nothing_a_command_adds_for_programs_takes_the_place_of_its_errors() -> None:
    error = ErrorInfo(type="execution", message="It broke.", code="BUILD_ERROR", recoverable=True, recommendation="Mend it.")
    told = Outcome(command="errors", status="failed", summary="x", errors=(error,), data={"errors": ["error_1"], "left_open": 2}).to_dict()
    assert (told["errors"], told["left_open"]) == ([error.to_dict()], 2)


def test_an_error_of_which_all_is_said_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    error = ErrorInfo(type="timeout", message="It took too long.", code="TIMEOUT", recoverable=True, recommendation="")
    print_outcome(Outcome(command="plan", status="failed", summary="It took too long.", errors=(error,)))
    assert "  error  TIMEOUT" in capsys.readouterr().out.splitlines()
