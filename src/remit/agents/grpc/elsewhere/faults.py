"""What a task service elsewhere answers in place of an answer, as an error of ours. One that may be tried again is `Unavailable`.

A remit says in the trailers which of our errors it was (`proto.metadata`); of anything else the status tells.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from remit.agents.proto.metadata import ADVICE, CODE, DETAILS, PUSHBACK
from remit.agents.proto.values import dict_of
from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.core.redaction import redacted_text
from remit.runtime.tool.delegate_requests import DelegateError

UNIMPLEMENTED = "UNIMPLEMENTED"
_FAULTY = frozenset({"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"})
_WORDS = 2000
_BUSY = frozenset({"RATE_LIMITED", "QUEUE_FULL", "STOPPING", "STORE_UNAVAILABLE", "AGENT_UNAVAILABLE", "TOOL_UNAVAILABLE"})
Code = grpc.StatusCode
_LOST = frozenset({Code.UNAVAILABLE, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})
"""Also what is told of a connection that breaks in the middle of an answer; it says nothing of the task."""


class Lost(Unavailable):
    """It could not be reached, or not any more, or has no time now: to ask again is safe, by the key of the request."""

    def __init__(self, message: str, *, code: str | None = None, advice: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, code=code, advice=advice)
        self.retry_after = retry_after
        """Seconds; None: whenever."""


class _Told(NamedTuple):
    code: str = ""
    advice: str = ""
    details: Mapping[str, Any] = {}
    retry_after: float | None = None


def error_of(error: grpc.aio.AioRpcError, address: str) -> RemitError:
    told = _told(error)
    words = redacted_text((error.details() or error.code().name)[:_WORDS]).strip()
    if told.code:
        return _of_code(told, words)
    words = words.rstrip(".")
    match error.code():
        case Code.UNIMPLEMENTED:
            return Unavailable(f"{address} does not know this call: {words}.", code=UNIMPLEMENTED)
        case Code.UNAUTHENTICATED:
            advice = "Show a token that it made: `remit token new`."
            return Refused(f"{address} does not let us in: {words}.", code="UNAUTHENTICATED", advice=advice)
        case Code.PERMISSION_DENIED:
            return Refused(f"{address} refuses it: {words}.", code="FORBIDDEN", advice="The token we show was not granted it.")
        case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE:
            return DelegateError(f"{words}.", code="INVALID_PARAMETERS")
        case Code.NOT_FOUND:
            return Misused(f"{words}.", code="TASK_NOT_FOUND")
        case Code.RESOURCE_EXHAUSTED if "larger than max" in words:
            return Failed(f"The answer of {address} is too large to be taken: {words}.", code="TOO_LARGE")
        case Code.RESOURCE_EXHAUSTED:
            return Lost(f"{address} has no room: {words}.", code="RATE_LIMITED", advice="Try again later.", retry_after=told.retry_after)
        case code if code in _LOST:
            return Lost(f"{address} cannot be reached: {words}.", advice="Is it running? `remit serve` starts one.")
    return Failed(f"{address} answered {error.code().name}: {words}.")


def _of_code(told: _Told, words: str) -> RemitError:
    if told.code in _FAULTY:
        return DelegateError(words, code=told.code, advice=told.advice, details=told.details)
    if told.code == "TASK_NOT_FOUND":
        return Misused(words, code=told.code, advice=told.advice)
    if told.code in _BUSY:
        return Lost(words, code=told.code, advice=told.advice, retry_after=told.retry_after)
    return Refused(words, code=told.code, advice=told.advice)


def _told(error: grpc.aio.AioRpcError) -> _Told:
    """Whatever of it is there and can be read: trailers are a stranger's."""
    found = dict(error.trailing_metadata() or ())
    code, advice, wait, details = (found.get(name) for name in (CODE, ADVICE, PUSHBACK, DETAILS))
    return _Told(
        unquote(code)[:100] if isinstance(code, str) else "",
        redacted_text(unquote(advice)[:_WORDS]) if isinstance(advice, str) else "",
        _details(details) if isinstance(details, bytes) else {},
        min(int(wait) / 1000, 60.0) if isinstance(wait, str) and wait.isascii() and wait.isdigit() else None,
    )


def _details(packed: bytes) -> dict[str, Any]:
    try:
        status = Status.FromString(packed)
        struct = next((one for one in status.details if one.Is(Struct.DESCRIPTOR)), None)
        return {} if struct is None else dict_of(Struct.FromString(struct.value))
    except DecodeError:
        return {}
