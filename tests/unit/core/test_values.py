"""The core's values: ids, lineage, states, priorities, deadlines, errors, returns. Pure, so tested by examples and properties at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.core.budget import effective_deadline
from remit.core.deadline import TimeLimits, allowed_timeout, iso
from remit.core.delegation import Lineage
from remit.core.errors import ErrorInfo, Misused, Refused
from remit.core.events import STEPS, events_of_steps
from remit.core.ids import is_session_id, new_session_id
from remit.core.result import Artifact, Evidence, Metadata, Return, Status, StopReason
from remit.core.states import Priority, priority_of

METADATA = Metadata(
    session_id="sess_1766700000_abc123", agent_type="a", delegation_depth=1, delegation_path=("o", "a"), duration_seconds=0.5
)


def test_session_ids_have_their_form_and_hardly_ever_meet() -> None:
    """One of 36^6 a second. Of 20,000 in one second a pair meets in every eleventh run; three pairs in one of ten thousand."""
    made = {new_session_id(1_766_700_000.9) for _ in range(20_000)}
    assert len(made) > 20_000 - 5
    assert all(is_session_id(one) and one.startswith("sess_1766700000_") for one in made)


@pytest.mark.parametrize(
    "text", ["", "sess_1_abc123", "sess_1766700000_ABC123", "sess_1766700000_abc123\n", "xsess_1766700000_abc123", 7, None]
)
def test_what_is_no_id_is_none(text: object) -> None:
    assert not is_session_id(text)


def test_a_child_stands_one_deeper_below_its_caller() -> None:
    root = Lineage.root("r", "implement")
    child = root.child("c", "coder")
    assert (root.depth, root.path, root.root_id, root.parent_id) == (1, ("orchestrator", "implement"), "r", None)
    assert (child.depth, child.path, child.root_id, child.parent_id) == (2, ("orchestrator", "implement", "coder"), "r", "r")


@pytest.mark.parametrize(
    ("value", "priority"),
    [(None, Priority.NORMAL), (0, Priority.NORMAL), ("HIGH", Priority.HIGH), (4, Priority.CRITICAL), ("low", Priority.LOW)],
)
def test_priorities_by_name_and_number(value: object, priority: Priority) -> None:
    assert priority_of(value) is priority


@pytest.mark.parametrize("value", ["utmost", 5, -1, [], 1.5])
def test_an_unknown_priority_names_those_there_are(value: object) -> None:
    with pytest.raises(Misused) as caught:
        priority_of(value)
    assert "critical" in caught.value.advice


# ---- time


@given(st.floats(0.001, 1e5), st.floats(0, 1e6))
def test_the_grace_is_a_tenth_and_at_most_thirty_seconds(timeout: float, now: float) -> None:
    deadline = effective_deadline(timeout, now)
    grace = deadline.hard_at - deadline.soft_at
    assert grace <= 30.0 + 1e-6
    assert grace <= timeout * 0.1 + 1e-6


LIMITS = TimeLimits(default_seconds=60, maximum_seconds=300)


def test_a_timeout_is_the_default_or_what_was_asked_up_to_the_maximum() -> None:
    assert allowed_timeout(None, LIMITS) == 60
    assert allowed_timeout(300, LIMITS) == 300
    for wrong in (300.1, 0, -1, float("nan"), float("inf"), "soon", True, [1]):
        with pytest.raises(Misused) as caught:
            allowed_timeout(wrong, LIMITS)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_PARAMETERS"
        assert caught.value.advice


def test_moments_are_written_in_utc_to_the_millisecond() -> None:
    assert iso(1_766_700_000.1239) == "2025-12-25T22:00:00.123Z"


# ---- errors and returns


def test_a_return_survives_json() -> None:
    """Unknown fields are kept."""
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


def test_unwrap_gives_the_data_or_raises_with_the_advice() -> None:
    done = Return(status=Status.COMPLETED, summary="Done.", metadata=METADATA, data=5)
    assert done.unwrap() == 5
    error = ErrorInfo(type="t", message="too deep", code="MAX_DEPTH_EXCEEDED", recoverable=False, recommendation="Do it yourself.")
    refused = Return(status=Status.FAILED, summary="No.", metadata=METADATA, errors=(error,), stop_reason=StopReason.REFUSED)
    with pytest.raises(Refused) as caught:
        refused.unwrap()
    assert (caught.value.code, caught.value.advice) == ("MAX_DEPTH_EXCEEDED", "Do it yourself.")


def test_steps_are_numbered_around_what_was_said() -> None:
    times = tuple(float(n) for n in range(len(STEPS)))
    assert [event.number for event in events_of_steps("s", times, chunk_count=4)] == [*range(1, 8), *range(12, 18)]
    assert [event.number for event in events_of_steps("s", (None,) * 4 + times[4:], chunk_count=0)] == list(range(5, 14))
