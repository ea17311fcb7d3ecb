"""What a remote answers in place of an answer, as an error of ours, in words; and whether to ask again may help."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import httpx
from a2a.client import A2AClientError, A2AClientTimeoutError
from a2a.utils.errors import A2AError, InternalError, TaskNotFoundError, VersionNotSupportedError

from remit.core.errors import Failed, RemitError, Unavailable
from remit.core.secrets import redacted_text
from remit.proto.metadata import ADVICE, CODE, PUSHBACK

_WORDS = 800
_BUSY = frozenset({"RATE_LIMITED", "QUEUE_FULL", "STOPPING", "STORE_UNAVAILABLE", "AGENT_UNAVAILABLE"})
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_GRPC = re.compile(r"gRPC Error ([A-Z_]+):")
_GRPC_PASSING = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "UNKNOWN", "INTERNAL", "CANCELLED"})
_GRPC_SHUT = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
LONGEST_WAIT_SECONDS = 10.0


def error_of(error: A2AError, address: str) -> RemitError:
    words = redacted_text(error.message[:_WORDS])
    status, grpc = _status(error), _grpc(error)
    if status in (401, 403) or grpc in _GRPC_SHUT or _code(error) in ("UNAUTHENTICATED", "FORBIDDEN"):
        return Unavailable(
            f"{address} does not let us in: {words}",
            code="TOOL_UNAVAILABLE",
            advice="Set the variable that token_variable names to a token that it takes.",
        )
    if isinstance(error, VersionNotSupportedError):
        return Failed(f"{address} speaks another version of A2A: {words}", code="AGENT_UNAVAILABLE")
    if may_pass(error):
        return Unavailable(f"{address} could not be reached: {words}")
    code = _code(error)
    return Failed(f"{address} refuses it: {words}", code=code or "UNKNOWN_ERROR", advice=_advice(error))


def may_pass(error: A2AError) -> bool:
    """The connection was lost, or it is busy: later it may do."""
    if isinstance(error, TaskNotFoundError | VersionNotSupportedError):
        return False
    if _code(error) is not None:
        return _code(error) in _BUSY
    if (status := _status(error)) is not None:
        return status in _PASSING
    if (grpc := _grpc(error)) is not None:
        return grpc in _GRPC_PASSING
    if isinstance(error, A2AClientTimeoutError) or isinstance(error.__cause__, httpx.RequestError):
        return True
    return isinstance(error, InternalError)


def retry_after(error: A2AError) -> float | None:
    """Seconds that it asked for; None: it did not."""
    given = _said(error).get("retryAfterSeconds")
    cause = error.__cause__
    if given is None and isinstance(cause, httpx.HTTPStatusError):
        header = cause.response.headers.get("retry-after", "")
        given = float(header) if header.isascii() and header.isdigit() else None
    return min(max(float(given), 0.05), LONGEST_WAIT_SECONDS) if isinstance(given, int | float) else None


def _said(error: A2AError) -> Mapping[str, Any]:
    """What a remit says beside the error: in its data; over gRPC, where the SDK hands on none, in the trailers of the call."""
    if isinstance(error.data, dict) and error.data:
        return error.data
    trailers: Any = getattr(error.__cause__, "trailing_metadata", None)
    found = {name: value for name, value in (trailers() or ()) if isinstance(value, str)} if trailers is not None else {}
    said: dict[str, Any] = {}
    if CODE in found:
        said["code"] = unquote(found[CODE])
    if ADVICE in found:
        said["recommendation"] = unquote(found[ADVICE])
    if (wait := found.get(PUSHBACK, "")).isascii() and wait.isdigit() and len(wait) < 10:
        said["retryAfterSeconds"] = int(wait) / 1000
    return said


def _code(error: A2AError) -> str | None:
    """Of a remit: its own code."""
    code = _said(error).get("code")
    return code[:100] if isinstance(code, str) else None


def _advice(error: A2AError) -> str:
    advice = _said(error).get("recommendation")
    return redacted_text(advice[:_WORDS]) if isinstance(advice, str) else ""


def _status(error: A2AError) -> int | None:
    cause = error.__cause__
    return cause.response.status_code if isinstance(cause, httpx.HTTPStatusError) else None


def _grpc(error: A2AError) -> str | None:
    found = _GRPC.match(error.message) if isinstance(error, A2AClientError) else None
    return found[1] if found else None
