"""The one table of exit codes: what a script can learn from how a command ended. Every command ends through here; `--help` prints it."""

from enum import IntEnum

from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.result import Return, Status, StopReason
from remit.core.states import State


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    BLOCKED = 4
    REFUSED = 5
    CANCELLED = 6
    UNAVAILABLE = 7
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "completed, or nothing wrong",
    Exit.FAILED: "failed or invalid",
    Exit.USAGE: "wrongly called",
    Exit.PARTIAL: "partial (deadline, crash, unmet acceptance): what was done is kept",
    Exit.BLOCKED: "blocked: somebody must act",
    Exit.REFUSED: "refused: nothing ran",
    Exit.CANCELLED: "cancelled",
    Exit.UNAVAILABLE: "unavailable (database, disk, agent): try again",
    Exit.INTERRUPTED: "interrupted",
}

_OF_STATE = {
    State.COMPLETED: Exit.OK,
    State.PARTIAL: Exit.PARTIAL,
    State.TIMEOUT: Exit.PARTIAL,
    State.FAILED: Exit.FAILED,
    State.BLOCKED: Exit.BLOCKED,
    State.CANCELLED: Exit.CANCELLED,
    State.REFUSED: Exit.REFUSED,
}
_OF_STATUS = {
    Status.COMPLETED: Exit.OK,
    Status.PARTIAL: Exit.PARTIAL,
    Status.FAILED: Exit.FAILED,
    Status.BLOCKED: Exit.BLOCKED,
}
_OF_STOP = {
    StopReason.REFUSED: Exit.REFUSED,
    StopReason.CANCELLED: Exit.CANCELLED,
    StopReason.UNAVAILABLE: Exit.UNAVAILABLE,
}


def exit_of_return(result: Return) -> Exit:
    return exit_of_ending(result.status, result.stop_reason)


def exit_of_ending(status: Status, reason: StopReason) -> Exit:
    if status is Status.BLOCKED:
        return Exit.BLOCKED  # also for want of a tool: trying again does not install it
    return _OF_STOP.get(reason, _OF_STATUS[status])


def exit_of_state(state: State) -> Exit:
    """For a settled delegation whose return is not at hand."""
    return _OF_STATE.get(state, Exit.OK)


def exit_of_error(error: RemitError) -> Exit:
    """By the branch of the error tree, that is, by who must act."""
    for branch, code in ((Misused, Exit.USAGE), (Refused, Exit.REFUSED), (Unavailable, Exit.UNAVAILABLE)):
        if isinstance(error, branch):
            return code
    return Exit.FAILED


def legend() -> str:
    """The table as help shows it."""
    return "Exit codes: " + " · ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items())
