"""Errors over HTTP: `application/problem+json` (RFC 9457) with our code, advice and details. The status comes from `serve.statuses`.

A delegation that ran and failed is a result, not an HTTP error.
"""

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from remit.core.errors import Refused, RemitError
from remit.runtime.tool.delegate_requests import json_bytes, speakable
from remit.server.statuses import status_of

MEDIA_TYPE = "application/problem+json"
CODES: dict[str, int] = {
    "MALFORMED_REQUEST": 400,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "NOT_ACCEPTABLE": 406,
    "REQUEST_TIMEOUT": 408,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "WRONG_HOST": 421,
    "WRONG_ORIGIN": 403,
    "UNKNOWN_ERROR": 500,
}
"""Codes that only HTTP has."""
REALM = 'Bearer realm="remit"'


class HttpRefused(Refused):
    """A request refused for its HTTP form."""

    def __init__(
        self, message: str, *, code: str, status: int | None = None, advice: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, code=code, advice=advice)
        self.status = CODES[code] if status is None else status
        self.headers = dict(headers or {})


def status_for(error: RemitError) -> int:
    return error.status if isinstance(error, HttpRefused) else status_of(error).http


def document_of(error: RemitError, request_id: str = "") -> dict[str, Any]:
    """The body of a refusal."""
    status = status_for(error)
    document = {
        "type": f"https://remit.dev/problems/{error.code.lower().replace('_', '-')}",
        "title": _phrase(status),
        "status": status,
        "detail": error.message,
        "code": error.code,
        "advice": error.advice,
        "details": dict(getattr(error, "details", {})),
    }
    return {**document, "instance": f"urn:remit:request:{request_id}"} if request_id else document


def answer_of(error: RemitError, request_id: str = "") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    status = status_for(error)
    headers = {"content-type": MEDIA_TYPE, **getattr(error, "headers", {})}
    if status in (429, 503):
        headers.setdefault("retry-after", str(math.ceil(getattr(error, "retry_after_seconds", None) or 1)))
    if status == 401:
        headers.setdefault("www-authenticate", REALM)
    if status == 403 and error.code == "FORBIDDEN":
        headers.setdefault("www-authenticate", f'{REALM}, error="insufficient_scope"')
    body = json_bytes(speakable(document_of(error, request_id)))
    return status, {**headers, "content-length": str(len(body))}, body


def problem_bytes(status: int, code: str, words: str) -> bytes:
    """A whole response, for a connection without a request to answer; it is closed after this."""
    document = {"type": f"https://remit.dev/problems/{code.lower().replace('_', '-')}", "title": _phrase(status), "status": status}
    body = json.dumps({**document, "detail": words, "code": code, "advice": "", "details": {}}).encode()
    head = f"HTTP/1.1 {status} {_phrase(status)}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Refused"
