"""Our errors as gRPC tells them: the status of the one table (`serve.statuses`), and in the trailers our own code, advice and details.

`remit-code` and `remit-advice` (UTF-8, with per cent signs where it is not ASCII); `grpc-status-details-bin`: a google.rpc.Status with an
ErrorInfo (reason: our code, domain: `remit`), a Struct of the details (what would be allowed), and for whoever came too often a RetryInfo;
that one's `grpc-retry-pushback-ms` too, by which clients that try again by themselves know when. Read by `tool.elsewhere.faults`.
"""

import logging
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from remit.agents.proto.metadata import ADVICE, CODE, DETAILS, PUSHBACK
from remit.agents.proto.values import struct_of, text_of
from remit.core.errors import RemitError
from remit.server.statuses import status_of

log = logging.getLogger("remit.grpc")

DOMAIN = "remit"
_MOST_WORDS = 800
_MOST_DETAILS_BYTES = 3000
"""Clients take 8 KiB of metadata: the words are there twice, and the details grow by a third in base64."""
_PRINTABLE = "".join(chr(number) for number in range(0x20, 0x7F) if chr(number) != "%")

Metadata = tuple[tuple[str, str | bytes], ...]


class Told:
    """What `abort` takes."""

    __slots__ = ("code", "metadata", "words")

    def __init__(self, error: RemitError) -> None:
        self.code = grpc.StatusCode[status_of(error).grpc]
        self.words = short(error.message)
        self.metadata = _metadata(error, self.code, self.words)


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", error: RemitError) -> NoReturn:
    told = Told(error)
    await context.abort(told.code, told.words, told.metadata)


async def abort_unknown(context: "grpc.aio.ServicerContext[Any, Any]", error: Exception) -> NoReturn:
    """A fault of ours: the log has it, the caller learns only that there was one."""
    log.error("A gRPC request failed by a fault of remit's.", exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "The server failed in a way that was not foreseen; its log has more.")


def short(text: str) -> str:
    """So much of it as stays below the limit when it is written as metadata, where a letter may take nine."""
    text = text_of(text)[:_MOST_WORDS]
    while len(quote(text, safe=_PRINTABLE)) > _MOST_WORDS:
        text = text[: len(text) * 3 // 4]
    return text


def printable(text: str) -> str:
    """As a value of the metadata, which are ASCII."""
    return quote(short(text), safe=_PRINTABLE)


def _metadata(error: RemitError, code: grpc.StatusCode, words: str) -> Metadata:
    found: list[tuple[str, str | bytes]] = [(CODE, quote(error.code, safe=" "))]
    if error.advice:
        found.append((ADVICE, printable(error.advice)))
    wait: float | None = getattr(error, "retry_after_seconds", None)
    if wait is not None:
        found.append((PUSHBACK, str(int(1000 * wait) + 1)))
    found.append((DETAILS, _status(error, code, words, wait).SerializeToString()))
    return tuple(found)


def _status(error: RemitError, code: grpc.StatusCode, words: str, wait: float | None) -> Status:
    status = Status(code=code.value[0], message=words)
    _pack(status, ErrorInfo(reason=text_of(error.code), domain=DOMAIN))
    if wait is not None:
        again = RetryInfo()
        again.retry_delay.FromNanoseconds(int(wait * 1e9))
        _pack(status, again)
    details: Mapping[str, Any] = getattr(error, "details", {})
    if details:
        struct = struct_of(details)
        if struct.ByteSize() <= _MOST_DETAILS_BYTES:
            _pack(status, struct)
    return status


def _pack(status: Status, message: Any) -> None:
    packed = AnyMessage()
    packed.Pack(message)
    status.details.append(packed)
