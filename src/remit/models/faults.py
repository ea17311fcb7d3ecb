"""What went wrong with a model, in words a person understands and can act on; without its key. Used by `client`.

Imports pydantic-ai: only when a model was asked.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelTimeoutError,
    ModelUnavailableError,
)

from remit.core.secret_looks import REDACTED
from remit.core.secrets import redacted_text
from remit.models.connecting import CONNECT_SECONDS, Connection, nobody_at
from remit.models.stream import Died, Silent
from remit.system.http import BodyError

_MOST = 300
"""Of a provider's own words."""
DEFAULT_WAIT = 1.0
MOST_WAIT = 86_400.0
_BUSY = (429, 503, 529)
_UNREACHED = ("ConnectError", "ConnectionRefusedError", "gaierror")
_DEEPEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    words: str
    counts: bool = True
    """Whether it speaks against the model: a question it cannot take does not."""
    retry_after: float | None = None
    """It is busy, and may answer after so many seconds; None: asking again at once is no use."""
    is_rejected: bool = False
    """The request itself was refused, as it stands."""


def fault_of(error: Exception, connection: Connection) -> Fault:
    status = _status(error)
    busy = status in _BUSY or isinstance(error, ModelRateLimitError | ModelUnavailableError)
    can_wait = busy and not isinstance(error, ModelQuotaExceededError)
    said = _short(without_key(_said(error), connection))  # struck out before it is cut: half a key is one too many
    words = _words(error, connection, status, f" It says: {said}" if said else "")
    return Fault(
        words=without_key(words, connection),
        counts=not isinstance(error, ModelContextWindowExceededError) and status not in (400, 413, 422),
        retry_after=_wait(error) if can_wait else None,
        is_rejected=status in (400, 422),
    )


def _wait(error: Exception) -> float:
    """As the provider asked; it may say a part of a second, which the library does not read."""
    asked = getattr(error, "retry_after", None)
    if asked is None:
        with suppress(ValueError):
            asked = float((getattr(error, "headers", None) or {}).get("retry-after", ""))
    return asked if asked is not None and 0 < asked < MOST_WAIT else DEFAULT_WAIT if not asked else MOST_WAIT


def without_key(text: str, connection: Connection) -> str:
    key = connection.key
    return redacted_text(text.replace(key, REDACTED) if key else text)


def _words(error: Exception, connection: Connection, status: int | None, said: str) -> str:
    ours = next((cause for cause in _causes(error) if isinstance(cause, Died | Silent | BodyError)), None)
    if ours is not None:
        return f"{ours}."
    if isinstance(error, ModelTimeoutError) and error.phase not in ("connect", "pool"):
        return f"it said nothing for {connection.idle_seconds:g} s."
    if isinstance(error, ModelQuotaExceededError):
        return f"its quota or credit is used up.{said}"
    if status is not None:
        return _of_status(error, connection, status, said)
    if isinstance(error, ModelConnectionError):
        return _of_connection(error, connection)
    if isinstance(error, ModelAPIError) and "decode" not in said:
        return f"it answered with an error.{said}"
    where = f" at {connection.url}" if connection.url else ""
    return f"what it answered could not be read ({type(error).__name__}): is there a model's API{where}?{said}"


def _of_status(error: Exception, connection: Connection, status: int, said: str) -> str:
    meant, where = connection.meant, f" at {connection.url}" if connection.url else ""
    match status:
        case 401 | 403:
            return f"its key was refused ({status}){where}: {_which_key(connection)}.{said}"
        case 404:
            hint = (
                ", or the address is wrong (most end in /v1)" if meant.url and meant.provider in ("openai-chat", "openai-responses") else ""
            )
            return f"there is no model {meant.model!r}{where} (404): check its name{hint}.{said}"
        case 429:
            return f"it takes no more requests for now (429, rate limit).{said}"
        case 529 | 503:
            return f"it is overloaded or being restarted ({status}).{said}"
        case 413:
            return f"the question is too long for it (413).{said}"
        case 400 | 422:
            what = (
                "the conversation is longer than it can read"
                if isinstance(error, ModelContextWindowExceededError)
                else "it refused the request"
            )
            return f"{what} ({status}).{said}"
        case _ if 300 <= status < 400:
            return f"its address{where} leads elsewhere ({status}): write the address it leads to."
    if isinstance(error, ModelNotFoundError | ModelAuthenticationError | ModelOverloadedError):
        return f"it refused ({status}).{said}"
    return f"it failed ({status}).{said}"


def _which_key(connection: Connection) -> str:
    meant = connection.meant
    if not meant.key_variables:
        return f'none was sent; name its variable: key_variable = "…" in [models.{meant.name}]' if meant.is_named else "none was sent"
    return f"check the variable {meant.key_variable or meant.key_variables[0]}"


def _of_connection(error: ModelConnectionError, connection: Connection) -> str:
    where = connection.url or "its address"
    if isinstance(error, ModelTimeoutError):
        return f"{where} could not be reached in {min(CONNECT_SECONDS, connection.idle_seconds):g} s."
    unsafe = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)
    if unsafe is not None:
        return f"no safe connection to {where} can be made ({unsafe.reason or 'TLS'}): is it https that is spoken there?"
    if error.phase == "connect" or any(type(cause).__name__ in _UNREACHED for cause in _causes(error)):
        return nobody_at(where)
    return "the connection broke off in the middle of its answer."


def _status(error: Exception) -> int | None:
    """Of the answer, also where only the client below says it."""
    found = (getattr(cause, name, None) for cause in _causes(error) for name in ("status_code", "code"))
    return next((status for status in found if isinstance(status, int) and 300 <= status < 600), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_DEEPEST):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _said(error: Exception) -> str:
    """The provider's own words."""
    body = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            return body
    message = _message_in(body)
    if message:
        return message
    return "" if isinstance(error, ModelHTTPError) else str(error)


def _message_in(body: Any) -> str:
    if isinstance(body, list):
        return next(filter(None, map(_message_in, body)), "")
    if not isinstance(body, Mapping):
        return ""
    inner = body.get("error")
    if isinstance(inner, Mapping):
        return _message_in(inner)
    found = body.get("message") or inner or body.get("detail")
    return found if isinstance(found, str) else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST else f"{line[:_MOST]}…"
