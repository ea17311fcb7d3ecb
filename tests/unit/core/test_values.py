"""Values of the core: ids, priorities, timeouts, returns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import ErrorInfo, Metadata, Misused, Refused, Return, Status, StopReason, TimeLimits, new_session_id
from remit.core.budget import effective_deadline
from remit.core.deadline import allowed_timeout
from remit.core.ids import is_session_id

METADATA = Metadata(
    session_id="sess_1766700000_abc123", agent_type="a", delegation_depth=1, delegation_path=("o", "a"), duration_seconds=0.5
)


def test_session_ids_are_well_formed_and_practically_unique() -> None:
    made = {new_session_id(1_766_700_000.9) for _ in range(2_000)}
    assert len(made) > 2_000 - 5
    assert all(is_session_id(one) and one.startswith("sess_1766700000_") for one in made)


@pytest.mark.parametrize(
    "text", ["", "sess_1_abc123", "sess_1766700000_ABC123", "sess_1766700000_abc123\n", "xsess_1766700000_abc123", 7, None]
)
def test_invalid_session_id_is_recognized(text: object) -> None:
    assert not is_session_id(text)


@given(st.floats(0.001, 1e5), st.floats(0, 1e6))
def test_grace_is_a_tenth_of_the_timeout_and_at_most_thirty_seconds(timeout: float, now: float) -> None:
    deadline = effective_deadline(timeout, now)
    grace = deadline.hard_at - deadline.soft_at
    assert grace <= 30.0 + 1e-6
    assert grace <= timeout * 0.1 + 1e-6


LIMITS = TimeLimits(default_seconds=60, maximum_seconds=300)


def test_timeout_is_the_default_or_the_requested_one_up_to_the_maximum() -> None:
    assert allowed_timeout(None, LIMITS) == 60
    assert allowed_timeout(300, LIMITS) == 300
    for wrong in (300.1, 0, -1, float("nan"), float("inf"), "soon", True, [1]):
        with pytest.raises(Misused) as caught:
            allowed_timeout(wrong, LIMITS)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_PARAMETERS"
        assert caught.value.advice


def test_unwrap_returns_the_data_or_raises_with_advice() -> None:
    done = Return(status=Status.COMPLETED, summary="Done.", metadata=METADATA, data=5)
    assert done.unwrap() == 5
    error = ErrorInfo(type="t", message="too deep", code="MAX_DEPTH_EXCEEDED", recoverable=False, recommendation="Do it yourself.")
    refused = Return(status=Status.FAILED, summary="No.", metadata=METADATA, errors=(error,), stop_reason=StopReason.REFUSED)
    with pytest.raises(Refused) as caught:
        refused.unwrap()
    assert (caught.value.code, caught.value.advice) == ("MAX_DEPTH_EXCEEDED", "Do it yourself.")
