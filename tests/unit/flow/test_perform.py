"""Exceptions and errors of children become part of a return."""

import pytest

from remit import AgentCrashed, AgentSpec, ErrorInfo, Failed, InvalidReturn, Metadata, Misused, Return, Status, Stopped, Unavailable
from remit.runtime.perform import looks_like_return, with_child_errors
from remit.runtime.reply import error_of

SPEC = AgentSpec(name="worker")
METADATA = Metadata(
    session_id="sess_1766700000_abc123", agent_type="worker", delegation_depth=1, delegation_path=("o", "worker"), duration_seconds=0.1
)
CHILD = ErrorInfo(type="timeout", message="the child was late", code="TIMEOUT", recoverable=True, recommendation="More time.")


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (ValueError("bad\n thing"), "AGENT_RAISED", "ValueError: bad thing"),
        (KeyError(), "AGENT_RAISED", "KeyError"),
        (AgentCrashed("It fell.", exit_code=3, stderr_tail="last words"), "AGENT_CRASHED", "last words"),
        (Unavailable("Gone."), "AGENT_UNAVAILABLE", "Gone."),
        (InvalidReturn(["status: missing"]), "VALIDATION_FAILED", "status: missing"),
        (Misused("Wrong.", advice="Right."), "INVALID_PARAMETERS", "Wrong."),
        (Failed("No.", code="BUILD_ERROR"), "BUILD_ERROR", "No."),
        (Stopped("Ended."), "CANCELLED", "Ended."),
        (RuntimeError("x" * 10_000), "AGENT_RAISED", "xxx"),
        (RuntimeError("\ud800"), "AGENT_RAISED", "?"),
    ],
)
def test_every_exception_becomes_an_error_with_code_and_advice(error: Exception, code: str, word: str) -> None:
    made = error_of(error, SPEC)
    assert made.code == code
    assert word in made.message
    assert made.recommendation
    assert len(made.message) <= 2000
    made.message.encode()


def test_error_names_the_line_that_raised() -> None:
    with pytest.raises(ValueError, match="here") as caught:
        raise ValueError("here")
    assert "test_perform.py:" in error_of(caught.value, SPEC).message


def test_error_of_a_child_is_an_error_of_a_failure_and_a_warning_of_a_success() -> None:
    done = Return(status=Status.COMPLETED, summary="Done.", metadata=METADATA)
    assert with_child_errors(done, [CHILD]).warnings == ("A child failed: the child was late",)
    own = ErrorInfo(type="execution", message="mine", code="AGENT_RAISED", recoverable=True, recommendation="")
    failed = Return(status=Status.FAILED, summary="No.", metadata=METADATA, errors=(own,))
    assert with_child_errors(failed, [CHILD, CHILD]).errors[:2] == (own, CHILD)
    assert with_child_errors(with_child_errors(failed, [CHILD]), [CHILD]).errors == (own, CHILD)


def test_return_is_distinguished_from_data() -> None:
    assert looks_like_return({"status": "completed", "summary": "x"})
    assert not looks_like_return({"status": "open", "title": "an issue"})
    assert not looks_like_return(["status"])
