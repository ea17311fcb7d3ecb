"""The one table from our errors to the statuses of every protocol. A delegation that ran and failed is a result, not an error.

The code itself is sent along with the status.
"""

from typing import NamedTuple

from remit.core.errors import Misused, Refused, RemitError, Unavailable


class Status(NamedTuple):
    grpc: str
    """Name of a `grpc.StatusCode`."""
    http: int
    a2a: str
    """Name of an error of the a2a-sdk (`a2a.utils.errors`)."""


TABLE: dict[str, Status] = {
    "INVALID_PARAMETERS": Status("INVALID_ARGUMENT", 400, "InvalidParamsError"),
    "INVALID_TARGET": Status("NOT_FOUND", 404, "InvalidParamsError"),
    "INVALID_OPERATION": Status("INVALID_ARGUMENT", 400, "InvalidParamsError"),
    "TASK_NOT_FOUND": Status("NOT_FOUND", 404, "TaskNotFoundError"),
    "NOT_CANCELABLE": Status("FAILED_PRECONDITION", 409, "TaskNotCancelableError"),
    "UNAUTHENTICATED": Status("UNAUTHENTICATED", 401, "InvalidRequestError"),
    "CALLER_REFUSED": Status("PERMISSION_DENIED", 403, "InvalidRequestError"),
    "POLICY_DENIED": Status("PERMISSION_DENIED", 403, "InvalidRequestError"),
    "FORBIDDEN": Status("PERMISSION_DENIED", 403, "InvalidRequestError"),
    "RATE_LIMITED": Status("RESOURCE_EXHAUSTED", 429, "InternalError"),
    "TOO_LARGE": Status("RESOURCE_EXHAUSTED", 413, "InvalidRequestError"),
    "QUEUE_FULL": Status("RESOURCE_EXHAUSTED", 503, "InternalError"),
    "STOPPING": Status("UNAVAILABLE", 503, "InternalError"),
    "AGENT_UNAVAILABLE": Status("UNAVAILABLE", 503, "InternalError"),
    "TOOL_UNAVAILABLE": Status("UNAVAILABLE", 503, "InternalError"),
    "STORE_UNAVAILABLE": Status("UNAVAILABLE", 503, "InternalError"),
    "TIMEOUT": Status("DEADLINE_EXCEEDED", 504, "InternalError"),
}
_REFUSED = Status("FAILED_PRECONDITION", 409, "InvalidRequestError")
_UNKNOWN = Status("INTERNAL", 500, "InternalError")


def status_of(error: RemitError) -> Status:
    known = TABLE.get(error.code)
    if known is not None:
        return known
    if isinstance(error, Unavailable):
        return TABLE["AGENT_UNAVAILABLE"]
    if isinstance(error, Misused):
        return TABLE["INVALID_PARAMETERS"]
    return _REFUSED if isinstance(error, Refused) else _UNKNOWN
