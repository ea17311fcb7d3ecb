"""The error tree, with branches named by who must act, and the error that a return carries.

    RemitError
    ├── Refused        a guard refused: nothing ran. The caller must ask for something else
    ├── Failed         it ran and did not succeed
    │   ├── InvalidReturn   the agent's answer breaks the contract; `faults` lists how
    │   ├── AgentCrashed    the agent's process or code ended by itself; carries exit code and the end of stderr
    │   └── Stopped         it was stopped: deadline, idle, cancel, budget
    │       └── OutOfTime       it ended at its soft deadline, as requested, without an answer
    ├── Unavailable    a part could not be reached (database, disk, agent): a retry is safe
    └── Misused        the caller's bug: a wrong argument, a closed runtime

Each has a stable `code`, a message with what happened, and `advice` with what to do next."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

_CODE_OF_TYPE = {
    "timeout": "TIMEOUT",
    "expired": "TIMEOUT",
    "validation": "VALIDATION_FAILED",
    "tool_unavailable": "TOOL_UNAVAILABLE",
    "build_error": "BUILD_ERROR",
    "file_not_found": "FILE_NOT_FOUND",
    "delegation_cycle": "CYCLE_DETECTED",
    "max_depth_exceeded": "MAX_DEPTH_EXCEEDED",
    "status_sync": "STATUS_SYNC_FAILED",
    "git": "GIT_COMMIT_FAILED",
    "cancelled": "CANCELLED",
    "budget": "BUDGET_EXCEEDED",
    "permission": "POLICY_DENIED",
    "policy": "POLICY_DENIED",
    "agent_unavailable": "AGENT_UNAVAILABLE",
    "queue_full": "QUEUE_FULL",
    "crash": "AGENT_CRASHED",
    "invalid_target": "INVALID_TARGET",
    "invalid_operation": "INVALID_OPERATION",
    "invalid_parameters": "INVALID_PARAMETERS",
    "store": "STORE_UNAVAILABLE",
    "merge_conflict": "MERGE_CONFLICT",
    "caller": "CALLER_REFUSED",
    "not_trusted": "NOT_TRUSTED",
}


def code_of_type(type_: str) -> str:
    """Derive a missing code from the type."""
    return _CODE_OF_TYPE.get(type_, "UNKNOWN_ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """One error of a return."""

    type: str
    """An open set: timeout, validation, execution, tool_unavailable, permission, build_error, …"""
    message: str
    code: str
    recoverable: bool
    recommendation: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class RemitError(Exception):
    default_code: ClassVar[str] = "UNKNOWN_ERROR"
    traceback_text: str = ""
    """Traceback of an error raised in another process, as formatted there."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".rstrip()


class Refused(RemitError):
    pass


class Failed(RemitError):
    pass


class InvalidReturn(Failed):
    default_code = "VALIDATION_FAILED"

    def __init__(self, faults: Sequence[str], *, advice: str = "", original: str = "") -> None:
        """`original`: the faulty answer, kept beside the return."""
        super().__init__("; ".join(faults), advice=advice)
        self.faults = tuple(faults)
        self.original = original


class AgentCrashed(Failed):
    default_code = "AGENT_CRASHED"

    def __init__(self, message: str, *, exit_code: int | None = None, stderr_tail: str = "", advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class Stopped(Failed):
    """Raised by `ctx` in an agent that continues after its end: its delegation was stopped or settled."""

    default_code = "CANCELLED"


class OutOfTime(Stopped):
    """Raised by an executor whose agent ended at its soft deadline without a result. This is an early timeout, not a failure.

    With the code BUDGET_EXCEEDED, the remaining budget is too small to continue. `answer` is its return, if it has one."""

    default_code = "TIMEOUT"

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", answer: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.answer = answer


class Unavailable(RemitError):
    default_code = "AGENT_UNAVAILABLE"


class Misused(RemitError):
    default_code = "INVALID_PARAMETERS"
