"""What the delegate tool answers: the same shape for every ending, metadata always there."""

import json
from dataclasses import replace
from typing import Any

import pytest

from remit import ErrorInfo, Metadata, Return, Status, StopReason
from remit.core.delegate_results import DelegateResult, TaskState, result_of, result_of_error, result_of_record
from remit.core.errors import Refused, Unavailable
from remit.core.record import Record
from remit.core.states import Priority, State

FIELDS = {"success", "taskId", "taskState", "data", "output", "artifacts", "error", "metadata"}
METADATA = {"target", "operation", "createdAt", "completedAt", "duration", "agentId", "status", "stopReason"}
SESSION = "sess_1763200000_abc123"


def returned(status: Status, reason: StopReason = StopReason.FINISHED, code: str = "UNKNOWN_ERROR", **more: Any) -> Return:
    error = ErrorInfo(type="execution", message="It broke.", code=code, recoverable=True, recommendation="Mend it.")
    return Return(
        status=status,
        summary="What was done. And what not.",
        metadata=Metadata(SESSION, "worker.read_file", 1, ("orchestrator", "worker.read_file"), 1.5),
        errors=() if status is Status.COMPLETED else (error,),
        data={"content": "x"},
        stop_reason=reason,
        **more,
    )


def test_a_completed_one() -> None:
    done = result_of(returned(Status.COMPLETED), 1_763_200_000.25)
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
    ("status", "reason", "code", "state", "told"),
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
def test_every_other_ending_is_no_success_and_keeps_what_was_done(
    status: Status, reason: StopReason, code: str, state: str, told: str
) -> None:
    """TASK_TIMEOUT, TASK_FAILED, AGENT_UNAVAILABLE come inside a result."""
    result = result_of(returned(status, reason, code), 0.0)
    assert (result.success, str(result.task_state)) == (False, state)
    assert result.task_state.is_terminal
    assert result.error is not None
    assert (result.error.code, result.error.details["code"], result.error.recommendation) == (told, code, "Mend it.")
    assert (result.data, result.output) == ({"content": "x"}, "What was done. And what not.")
    _is_whole(result)


def test_one_that_is_not_done_says_so() -> None:
    record = Record(
        session_id=SESSION,
        root_id=SESSION,
        parent_id=None,
        depth=1,
        path=("orchestrator", "hello"),
        agent="hello",
        parameters={},
        caller="orchestrator",
        priority=Priority.NORMAL,
        state=State.QUEUED,
        created_at=0.0,
        timeout_seconds=1.0,
        deadline_at=1.0,
        owner="o",
    )
    assert result_of_record(record).task_state is TaskState.QUEUED
    running = replace(record, state=State.RUNNING)
    assert result_of_record(running).task_state is TaskState.RUNNING
    assert result_of_record(running, is_paused=True).task_state is TaskState.PAUSED
    assert (result_of_record(running).error, result_of_record(running).metadata.completed_at) == (None, None)
    settled = replace(record, state=State.COMPLETED, result=returned(Status.COMPLETED))
    assert result_of_record(settled).success
    for one in (record, running, settled):
        _is_whole(result_of_record(one))


def test_what_could_not_be_begun_is_a_result_too() -> None:
    result = result_of_error(Unavailable("The disk is full.", advice="Make room."), "worker.read_file", 1.0, 2.0)
    assert (result.task_id, result.error and result.error.code, result.metadata.duration_ms) == (None, "AGENT_UNAVAILABLE", 1000)
    assert (failed := result_of_error(Refused("No."), "hello", 1.0, 1.0).error) is not None
    assert failed.code == "TASK_FAILED"
    _is_whole(result)


def test_states_are_those_of_the_specification_the_last_four_terminal() -> None:
    assert list(TaskState) == ["PENDING", "QUEUED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"]
    assert [state for state in TaskState if state.is_terminal] == list(TaskState)[4:]


def test_numbers_and_texts_that_json_has_no_word_for_do_not_break_an_answer() -> None:
    odd = replace(returned(Status.COMPLETED), data={"n": float("nan"), "text": "half \ud800 character"})
    assert json.loads(result_of(odd, 0.0).to_json())["data"]["n"] is None


def _is_whole(result: DelegateResult) -> None:
    document = json.loads(result.to_json())
    assert set(document) == FIELDS
    assert set(document["metadata"]) == METADATA
    assert document["metadata"]["createdAt"].endswith("Z")
