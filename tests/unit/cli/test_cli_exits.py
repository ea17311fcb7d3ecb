"""The one table of exit codes (issue 2, item 8)."""

import pytest

from remit.cli.exits import MEANINGS, Exit, exit_of_error, exit_of_return, exit_of_state, legend
from remit.core.errors import AgentCrashed, Failed, InvalidReturn, Misused, Refused, Stopped, Unavailable
from remit.core.result import Metadata, Return, Status, StopReason
from remit.core.states import State


def returned(status: Status, stop_reason: StopReason = StopReason.FINISHED) -> Return:
    metadata = Metadata(
        session_id="sess_1700000000_abc123", agent_type="a", delegation_depth=1, delegation_path=("orchestrator", "a"), duration_seconds=0.1
    )
    return Return(status=status, summary="Done.", metadata=metadata, stop_reason=stop_reason)


@pytest.mark.parametrize(
    ("status", "stop_reason", "code"),
    [
        (Status.COMPLETED, StopReason.FINISHED, 0),
        (Status.FAILED, StopReason.FINISHED, 1),
        (Status.FAILED, StopReason.INVALID_RETURN, 1),
        (Status.PARTIAL, StopReason.DEADLINE, 3),
        (Status.PARTIAL, StopReason.CRASHED, 3),
        (Status.BLOCKED, StopReason.FINISHED, 4),
        (Status.BLOCKED, StopReason.UNAVAILABLE, 4),
        (Status.FAILED, StopReason.REFUSED, 5),
        (Status.PARTIAL, StopReason.CANCELLED, 6),
        (Status.FAILED, StopReason.UNAVAILABLE, 7),
    ],
)
def test_a_return_decides_the_exit_code(status: Status, stop_reason: StopReason, code: int) -> None:
    assert exit_of_return(returned(status, stop_reason)) == code


def test_every_settled_state_has_an_exit_code_of_its_outcome() -> None:
    codes = {state: int(exit_of_state(state)) for state in State if state.is_settled}
    assert codes == {
        State.COMPLETED: 0,
        State.PARTIAL: 3,
        State.TIMEOUT: 3,
        State.FAILED: 1,
        State.BLOCKED: 4,
        State.CANCELLED: 6,
        State.REFUSED: 5,
    }


def test_an_error_exits_by_who_must_act() -> None:
    assert exit_of_error(Misused("x")) == Exit.USAGE
    assert exit_of_error(Refused("x")) == Exit.REFUSED
    assert exit_of_error(Unavailable("x")) == Exit.UNAVAILABLE
    for failed in (Failed("x"), InvalidReturn(["x"]), AgentCrashed("x"), Stopped("x")):
        assert exit_of_error(failed) == Exit.FAILED


def test_the_legend_names_every_code_once() -> None:
    assert set(MEANINGS) == set(Exit)
    for code in Exit:
        assert legend().count(f"{code.value} {MEANINGS[code]}") == 1
