"""From a request to an answer that was read: what `worker.web_fetch` and the search providers ask for. Runs in a process of its own."""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.worker.reach.body import ACCEPTED, Body, Undecodable, taken
from remit.agents.builtin.worker.reach.charset import text_of
from remit.agents.builtin.worker.reach.extract import Page, page_of_html, page_of_pdf
from remit.agents.builtin.worker.reach.follow import Asking, Network, Trail, followed
from remit.agents.builtin.worker.reach.pinned import Headers, Unreached
from remit.agents.builtin.worker.reach.target import Target
from remit.core.errors import Failed, Misused
from remit.flow.plain import plain

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_SENT = 5 * 1024 * 1024
USER_AGENT = "remit/0.1 (+a program that fetches for its user)"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]{0,8000}")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "accept-encoding"}
)
"""Would change what a request is, or where it ends."""
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTUAL = re.compile(
    r"text/|application/(?:[\w.-]+\+)?(?:json|xml|javascript|x-javascript|ecmascript|yaml|x-yaml|toml|x-sh|sql|x-ndjson)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    target: Target
    """Where the answer came from, after all redirects."""
    status: int
    content_type: str
    headers: Mapping[str, str]
    body: Body
    trail: Trail
    fetched_at: float


@dataclass(slots=True)
class Reading:
    """What the bytes say."""

    kind: str
    """html, json, pdf, text or binary."""
    page: Page = field(default_factory=Page)
    charset: str = ""
    json: Any = None
    is_raw: bool = False
    """The text is wanted beside the data."""


async def fetch(asking: Asking, network: Network, *, most: int, seconds: float, trail: Trail | None = None) -> Fetched:
    """Raises `Unreached`, `Undecodable`, `Refused`, `Misused`, `TimeoutError`; `trail` then tells how far it came."""
    trail = trail if trail is not None else Trail()
    end = time.monotonic() + seconds
    async with asyncio.timeout(seconds), followed(asking, network, trail) as answer:
        # The body has its own end, a little before: what came by then is kept.
        left = max(0.05, (end - time.monotonic()) * 0.95)
        body = await taken(answer.chunks, answer.header("content-encoding"), most, left)
    assert trail.last is not None
    return Fetched(
        target=trail.last,
        status=answer.status,
        content_type=answer.header("content-type").strip()[:200],
        headers={name: answer.header(name) for name in ("last-modified", "retry-after") if answer.header(name)},
        body=body,
        trail=trail,
        fetched_at=time.time(),
    )


def headers_of(given: Any) -> Headers:
    """What is sent: ours, and the caller's over them. Raises `Misused`, which names a header and never repeats its value."""
    if given is not None and not isinstance(given, Mapping):
        raise Misused("headers must be a mapping of names to values.", advice='E.g. {"Accept-Language": "en"}.')
    sent = {
        "user-agent": ("User-Agent", USER_AGENT),
        "accept": ("Accept", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"),
    }
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise Misused("headers: a name is no name of a header.", advice="Use letters, digits and hyphens.")
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise Misused(f"headers: {name} is not the caller's to set.", advice="Leave it out.")
        if not isinstance(value, str | int | float) or not _VALUE.fullmatch(str(value)):
            raise Misused(f"headers: the value of {name} is no line of text.", advice="Leave out line breaks and control characters.")
        sent[name.lower()] = (name, str(value).strip())
    return [*sent.values(), ("Accept-Encoding", ACCEPTED)]


def body_of(body: Any, headers: Headers) -> tuple[bytes | None, Headers]:
    """Text as it is, anything else as JSON; with a fitting Content-Type where the caller named none."""
    if body is None:
        return None, headers
    is_text = isinstance(body, str)
    try:
        data = body.encode() if is_text else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise Misused("body: it cannot be sent as JSON.", advice="Give text, or values that JSON has words for.") from None
    if len(data) > MOST_SENT:
        raise Misused(f"body: {len(data)} bytes are too much; at most {MOST_SENT} are sent.")
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers = [*headers, ("Content-Type", "text/plain; charset=utf-8" if is_text else "application/json")]
    return data, headers


def kind_of(fetched: Fetched) -> str:
    """By what the server says; by its first bytes where it says nothing of use."""
    said = fetched.content_type.partition(";")[0].strip().lower()
    start = fetched.body.content[:512].lstrip()
    if said == "application/pdf" or start.startswith(b"%PDF-"):
        return "pdf"
    if said in _HTML:
        return "html"
    if said == "application/json" or said.endswith("+json"):
        return "json"
    if _TEXTUAL.match(said):
        return "text"
    if said in ("", "application/octet-stream", "unknown/unknown"):
        if re.match(rb"(?i)<!doctype html|<html", start):
            return "html"
        if start and b"\x00" not in fetched.body.content[:2048]:
            return "text" if _is_readable(fetched.body.content[:2048]) else "binary"
    return "binary"


def _is_readable(start: bytes) -> bool:
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(start) - 4
    return True


def read_out(fetched: Fetched, *, raw: bool, seconds: float) -> Reading:
    """What the answer says, by its kind. For a process that may be killed over it."""
    kind = kind_of(fetched)
    reading = Reading(kind=kind, is_raw=raw)
    content = fetched.body.content
    if kind == "binary" or not content:
        return reading
    if kind == "pdf":
        reading.page = page_of_pdf(content, seconds)
        return reading
    decoded = text_of(content, fetched.content_type, is_markup=kind == "html" or b"<?xml" in content[:100])
    reading.charset = decoded.charset
    if kind == "html" and not raw:
        reading.page = page_of_html(decoded.text, fetched.target.url, seconds)
        return reading
    reading.page.text = decoded.text.replace("\x00", "�")
    if kind == "json":
        reading.json, note = read_json(decoded.text)
        reading.page.notes += [note] if note else []
    return reading


def read_json(text: str) -> tuple[Any, str]:
    """The value, or why there is none."""
    try:
        return plain(json.loads(text, parse_constant=lambda _word: None)), ""
    except (ValueError, RecursionError) as error:
        return None, f"It is no valid JSON ({str(error)[:100] or type(error).__name__})."
    except Failed as error:
        return None, f"The JSON is too much to hand on as data ({error.message[:100]})."


__all__ = ["Fetched", "Reading", "Undecodable", "Unreached", "body_of", "fetch", "headers_of", "kind_of", "read_json", "read_out"]
