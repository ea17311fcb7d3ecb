"""Returns that remit builds itself obey the contract of returns."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Artifact, Delegation, Lineage, Priority, Return, State, Status, StopReason, check_return
from remit.core.budget import effective_deadline
from remit.core.result import state_of
from remit.runtime import reply
from remit.runtime.perform import completed_return
from remit.runtime.reply import PartialWork, Stop

DELEGATION = Delegation(
    lineage=Lineage.root("sess_1766700000_abc123", "worker"),
    agent="worker",
    parameters={},
    caller="orchestrator",
    priority=Priority.NORMAL,
    deadline=effective_deadline(30, time.monotonic()),
    created_at=1_766_700_000.0,
    idle_seconds=5.0,
)


FILE = Artifact(type="report", path="half.md")


def valid(result: Return, root: Path) -> Return:
    """Validated like a return of an agent."""
    return check_return(result.to_dict(), session_id=result.session_id, root=root)


@given(st.text(max_size=700))
def test_any_text_makes_a_summary_within_the_limit(text: str) -> None:
    result = completed_return(DELEGATION, text, 0.1)
    assert 0 < len(result.summary) <= 500
    assert result.data == text


@pytest.mark.parametrize("reason", [r for r in StopReason if r not in (StopReason.FINISHED, StopReason.REFUSED, StopReason.INVALID_RETURN)])
def test_stopped_delegation_is_partial_with_an_error_and_advice(reason: StopReason, tmp_path: Path) -> None:
    """Even without partial work the status is not failed."""
    stop = Stop(reason=reason, source="a person", detail="no need")
    result = reply.stopped_return(DELEGATION, stop, reply.NOTHING_LEFT, duration_seconds=1.0, resumable=True)
    assert result.status is Status.PARTIAL
    assert result.errors[0].recoverable
    assert "again" in result.errors[0].recommendation
    assert "Nothing had been written" in result.summary
    assert valid(result, tmp_path).status is Status.PARTIAL


def test_timeout_names_the_seconds_and_how_to_resume() -> None:
    stop = Stop(reason=StopReason.DEADLINE, source="its deadline")
    result = reply.stopped_return(DELEGATION, stop, PartialWork(artifacts=(FILE,)), duration_seconds=30.0, resumable=True)
    assert "30 s" in result.summary
    assert "half.md" in result.summary
    assert "last checkpoint" in result.next_steps
    assert state_of(result) is State.TIMEOUT
