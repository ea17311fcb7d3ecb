"""The exit codes of every command. `remit --help` prints the table."""

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
    Exit.USAGE: "wrong usage",
    Exit.PARTIAL: "partial (deadline, crash, unmet acceptance): finished work is kept",
    Exit.BLOCKED: "blocked: a person must act",
    Exit.REFUSED: "refused: nothing ran",
    Exit.CANCELLED: "cancelled",
    Exit.UNAVAILABLE: "unavailable (database, disk, agent): try again",
    Exit.INTERRUPTED: "interrupted",
}

_CODES: dict[str, Exit] = {
    State.COMPLETED: Exit.OK,
    State.PARTIAL: Exit.PARTIAL,
    State.TIMEOUT: Exit.PARTIAL,
    State.FAILED: Exit.FAILED,
    State.BLOCKED: Exit.BLOCKED,
    State.CANCELLED: Exit.CANCELLED,
    State.REFUSED: Exit.REFUSED,
    StopReason.UNAVAILABLE: Exit.UNAVAILABLE,
}
"""By state, status and stop reason, which use the same names."""


def exit_of_return(result: Return) -> Exit:
    return exit_of_ending(result.status, result.stop_reason)


def exit_of_ending(status: Status, reason: StopReason) -> Exit:
    if status is not Status.BLOCKED and reason in (StopReason.REFUSED, StopReason.CANCELLED, StopReason.UNAVAILABLE):
        return _CODES[reason]
    return _CODES[status]  # also blocked for a missing tool: a retry does not install it


def exit_of_state(state: State) -> Exit:
    """The exit code of a settled delegation whose return was not read."""
    return _CODES.get(state, Exit.OK)


def exit_of_error(error: RemitError) -> Exit:
    """The exit code of an error, by its branch of the error tree."""
    for branch, code in ((Refused, Exit.REFUSED), (Misused, Exit.USAGE), (Unavailable, Exit.UNAVAILABLE)):
        if isinstance(error, branch):
            return code
    return Exit.FAILED


def legend() -> str:
    """The table as help shows it."""
    return "Exit codes: " + " · ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items())
