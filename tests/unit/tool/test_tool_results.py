"""Results of the delegate tool: the same shape for every outcome, always with metadata."""

import json
from typing import Any

import pytest

from remit import DelegateResult, ErrorInfo, Metadata, Return, Status, StopReason
from remit.core.delegate_results import result_of

FIELDS = {"success", "taskId", "taskState", "data", "output", "artifacts", "error", "metadata"}
METADATA = {"target", "operation", "createdAt", "completedAt", "duration", "agentId", "status", "stopReason"}
SESSION = "sess_1763200000_abc123"


def make_return(status: Status, reason: StopReason = StopReason.FINISHED, code: str = "UNKNOWN_ERROR", **more: Any) -> Return:
    error = ErrorInfo(type="execution", message="It broke.", code=code, recoverable=True, recommendation="Fix it.")
    return Return(
        status=status,
        summary="What was done. And what not.",
        metadata=Metadata(SESSION, "worker.read_file", 1, ("orchestrator", "worker.read_file"), 1.5),
        errors=() if status is Status.COMPLETED else (error,),
        data={"content": "x"},
        stop_reason=reason,
        **more,
    )


def test_completed_result() -> None:
    done = result_of(make_return(Status.COMPLETED), 1_763_200_000.25)
    assert done.to_dict() == {
        "success": True,
        "taskId": SESSION,
        "taskState": "COMPLETED",
        "data": {"content": "x"},
        "output": "What was done. And what not.",
        "artifacts": [],
        "error": None,
        "metadata": {
            "target": "worker",
            "operation": "read_file",
            "createdAt": "2025-11-15T09:46:40.250Z",
            "completedAt": "2025-11-15T09:46:41.750Z",
            "duration": 1500.0,
            "agentId": "worker.read_file",
            "status": "completed",
            "stopReason": "finished",
        },
    }


@pytest.mark.parametrize(
    ("status", "reason", "code", "state", "outer_code"),
    [
        (Status.PARTIAL, StopReason.DEADLINE, "TIMEOUT", "TIMEOUT", "TASK_TIMEOUT"),
        (Status.PARTIAL, StopReason.IDLE, "TIMEOUT", "TIMEOUT", "TASK_TIMEOUT"),
        (Status.PARTIAL, StopReason.CANCELLED, "CANCELLED", "CANCELLED", "TASK_FAILED"),
        (Status.PARTIAL, StopReason.FINISHED, "BUILD_ERROR", "FAILED", "TASK_FAILED"),
        (Status.PARTIAL, StopReason.BUDGET, "BUDGET_EXCEEDED", "FAILED", "TASK_FAILED"),
        (Status.FAILED, StopReason.FINISHED, "UNKNOWN_ERROR", "FAILED", "TASK_FAILED"),
        (Status.FAILED, StopReason.REFUSED, "CYCLE_DETECTED", "FAILED", "TASK_FAILED"),
        (Status.FAILED, StopReason.UNAVAILABLE, "AGENT_UNAVAILABLE", "FAILED", "AGENT_UNAVAILABLE"),
        (Status.FAILED, StopReason.REFUSED, "QUEUE_FULL", "FAILED", "AGENT_UNAVAILABLE"),
        (Status.BLOCKED, StopReason.FINISHED, "TOOL_UNAVAILABLE", "FAILED", "AGENT_UNAVAILABLE"),
        (Status.BLOCKED, StopReason.FINISHED, "POLICY_DENIED", "FAILED", "TASK_FAILED"),
    ],
)
def test_every_other_outcome_is_a_failure_that_keeps_the_work(
    status: Status, reason: StopReason, code: str, state: str, outer_code: str
) -> None:
    result = result_of(make_return(status, reason, code), 0.0)
    assert (result.success, str(result.task_state)) == (False, state)
    assert result.task_state.is_terminal
    assert result.error is not None
    assert (result.error.code, result.error.details["code"], result.error.recommendation) == (outer_code, code, "Fix it.")
    assert (result.data, result.output) == ({"content": "x"}, "What was done. And what not.")
    _is_whole(result)


def _is_whole(result: DelegateResult) -> None:
    document = json.loads(result.to_json())
    assert set(document) == FIELDS
    assert set(document["metadata"]) == METADATA
    assert document["metadata"]["createdAt"].endswith("Z")
