"""Requests and refusals of the REST API.

Requests are read strictly: UTF-8 only, no NaN, no lone surrogates, bounded nesting. A refusal is
`application/problem+json` (RFC 9457) with our code, advice and details; a delegation that ran and failed is a result.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request

from remit.core.delegate_requests import DelegateError, encodable, json_bytes
from remit.core.errors import Refused, RemitError
from remit.core.jsonable import check_size
from remit.core.request_metadata import TRACEPARENT
from remit.server.http.models import Model, validated
from remit.server.service import PRINCIPAL, Call, status_of
from remit.system.threads import off_loop

MEDIA_TYPE = "application/problem+json"
CODES: dict[str, int] = {
    "MALFORMED_REQUEST": 400,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
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


def document_of(error: RemitError) -> dict[str, Any]:
    """The body of a refusal."""
    status = status_for(error)
    return {
        "type": f"https://remit.dev/problems/{error.code.lower().replace('_', '-')}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "advice": error.advice,
        "details": dict(getattr(error, "details", {})),
    }


def answer_of(error: RemitError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    status = status_for(error)
    headers = {"content-type": MEDIA_TYPE, **getattr(error, "headers", {})}
    if status == 503:
        headers.setdefault("retry-after", "1")
    if status == 401:
        headers.setdefault("www-authenticate", REALM)
    if status == 403 and error.code == "FORBIDDEN":
        headers.setdefault("www-authenticate", f'{REALM}, error="insufficient_scope"')
    body = json_bytes(encodable(document_of(error)))
    return status, {**headers, "content-length": str(len(body))}, body


# ---- requests


JSON = "application/json"
SMALL_BYTES = 64 * 1024
"""Larger bodies are parsed off the event loop."""


async def body_of(request: Request, model: type[Model]) -> Model:
    """The body; it may be empty if the model requires nothing."""
    raw = await request.body()
    if not raw and all(not field.is_required() for field in model.model_fields.values()):
        return validated(model, {})
    if request.headers.get("content-encoding", "identity") != "identity":
        raise _unsupported("Compressed bodies are not supported.", "accept-encoding", "identity")
    media, _, options = request.headers.get("content-type", "").partition(";")
    charset = options.strip().lower().replace('"', "")
    if media.strip().lower() != JSON or charset not in ("", "charset=utf-8"):
        raise _unsupported(f"The body must be {JSON}, in UTF-8.", "accept", JSON)
    return validated(model, await off_loop(json_of, raw) if len(raw) > SMALL_BYTES else json_of(raw))


def json_of(raw: bytes) -> Any:
    try:
        value = from_json(raw, allow_inf_nan=False)
        check_size(value)
        json.dumps(value, allow_nan=False)  # finds 1e999, which is read as an infinity
    except ValueError as error:
        raise DelegateError(f"The body is not valid JSON: {str(error)[:200]}.", advice="Send one object, in UTF-8.") from None
    except RemitError as error:
        raise DelegateError(f"The body is {error.message}.", advice="Send less, or a file by its path.") from None
    return value


def query_of(request: Request, model: type[Model]) -> Model:
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = model.model_fields.get(name)
        if field is not None and field.default_factory is list:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise DelegateError(f"{name[:80]} is given twice.", advice="Write it once.")
        else:
            given[name] = value
    return validated(model, given)


def call_of(request: Request, session: str | None = None) -> Call:
    return Call.of(request.scope[PRINCIPAL], "http", request.headers.get(TRACEPARENT), session)


def _unsupported(words: str, header: str, value: str) -> HttpRefused:
    return HttpRefused(words, code="UNSUPPORTED_MEDIA_TYPE", advice="Send plain JSON.", headers={header: value})
