"""Values of the core: ids, priorities, timeouts, returns."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Artifact, ErrorInfo, Evidence, Metadata, Misused, Refused, Return, Status, StopReason, TimeLimits
from remit.core.budget import effective_deadline
from remit.core.deadline import allowed_timeout, iso
from remit.core.events import STEPS, events_of_steps
from remit.core.ids import is_session_id, new_session_id

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


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert iso(1_766_700_000.1239) == "2025-12-25T22:00:00.123Z"


def test_return_survives_json() -> None:
    error = ErrorInfo(type="timeout", message="m", code="TIMEOUT", recoverable=True, recommendation="r")
    artifact = Artifact(type="report", path="a.md", evidence=Evidence.CHECKED, size=3, sha256="00", mtime=1.5)
    given_back = Return(
        status=Status.PARTIAL,
        summary="Half.",
        artifacts=(artifact, Artifact(type="data", path="b")),
        metadata=METADATA,
        errors=(error,),
        data={"n": [1, None, "ä"]},
        stop_reason=StopReason.DEADLINE,
        warnings=("w",),
        extra={"task_number": 7},
    )
    assert Return.from_dict(json.loads(given_back.to_json())) == given_back


def test_unwrap_returns_the_data_or_raises_with_advice() -> None:
    done = Return(status=Status.COMPLETED, summary="Done.", metadata=METADATA, data=5)
    assert done.unwrap() == 5
    error = ErrorInfo(type="t", message="too deep", code="MAX_DEPTH_EXCEEDED", recoverable=False, recommendation="Do it yourself.")
    refused = Return(status=Status.FAILED, summary="No.", metadata=METADATA, errors=(error,), stop_reason=StopReason.REFUSED)
    with pytest.raises(Refused) as caught:
        refused.unwrap()
    assert (caught.value.code, caught.value.advice) == ("MAX_DEPTH_EXCEEDED", "Do it yourself.")


def test_steps_are_numbered_around_the_chunks() -> None:
    times = tuple(float(n) for n in range(len(STEPS)))
    assert [event.number for event in events_of_steps("s", times, chunk_count=4)] == [*range(1, 8), *range(12, 18)]
    assert [event.number for event in events_of_steps("s", (None,) * 4 + times[4:], chunk_count=0)] == list(range(5, 14))
