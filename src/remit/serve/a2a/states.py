"""The states of delegations and those of A2A: the one table, both ways."""

from collections.abc import Mapping

from a2a.types import TaskState

from remit.core.states import State

STATES: Mapping[State, TaskState] = {
    State.QUEUED: TaskState.TASK_STATE_SUBMITTED,
    State.RUNNING: TaskState.TASK_STATE_WORKING,
    State.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    # Something was done, and what was not done stands in the metadata: a timeout never makes a failure of it (S2.6).
    State.PARTIAL: TaskState.TASK_STATE_COMPLETED,
    State.TIMEOUT: TaskState.TASK_STATE_COMPLETED,
    State.FAILED: TaskState.TASK_STATE_FAILED,
    State.BLOCKED: TaskState.TASK_STATE_INPUT_REQUIRED,
    State.REFUSED: TaskState.TASK_STATE_REJECTED,
    State.CANCELLED: TaskState.TASK_STATE_CANCELED,
}
TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)


def states_of(asked: TaskState) -> tuple[State, ...]:
    """Which of ours are shown as that one; none: nothing here ever is."""
    return tuple(state for state, shown in STATES.items() if shown == asked)
