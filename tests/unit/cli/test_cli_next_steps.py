"""What to do next is said once, and to a person as to a person."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from remit.cli.answer import print_return
from remit.core.errors import ErrorInfo
from remit.core.result import Metadata, Return, Status
from remit.flow.reply import advice


def printed(*errors: ErrorInfo) -> str:
    out = io.StringIO()
    metadata = Metadata(
        session_id="sess_1_aaaaaa", agent_type="a", delegation_depth=1, delegation_path=("orchestrator", "a"), duration_seconds=1.0
    )
    result = Return(status=Status.FAILED, summary="It failed.", metadata=metadata, errors=errors, next_steps=advice(errors))
    print_return(result, Console(file=out, width=200), Path("."))
    return out.getvalue()


@pytest.mark.parametrize("recoverable", [True, False])
def test_advice_of_the_one_error_is_the_next_step_and_stands_there_alone(recoverable: bool) -> None:
    """S3.11: that a person is needed, programs are told; whoever reads this is the person."""
    shown = printed(ErrorInfo(type="x", message="It is gone.", code="X", recoverable=recoverable, recommendation="Name a path."))
    assert shown.count("Name a path.") == 1
    assert "  next  Name a path." in shown
    assert "Manual intervention" not in shown


def test_without_advice_a_person_is_asked_for() -> None:
    shown = printed(ErrorInfo(type="x", message="It is gone.", code="X", recoverable=False, recommendation=""))
    assert "  next  Manual intervention is needed." in shown


def test_advice_of_a_second_error_is_kept() -> None:
    first = ErrorInfo(type="x", message="It is gone.", code="X", recoverable=False, recommendation="Name a path.")
    second = ErrorInfo(type="y", message="It is full.", code="Y", recoverable=True, recommendation="Make room.")
    shown = printed(first, second)
    assert (shown.count("Name a path."), shown.count("Make room.")) == (1, 1)
