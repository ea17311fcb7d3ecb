"""`worker.web_fetch`: readable text, title and links of a URL. Runs in its own process, with bounded memory and time.

If a parser raises, takes too long or needs too much memory, the answer is still returned, with a note. `system.http` reaches the server;
the policy is asked about every hop, with the kind of its address."""

import asyncio
import io
import json
import logging
import mimetypes
import re
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from remit.builtin.worker.workspace import error_dict
from remit.core.context import Context
from remit.core.errors import Failed, Misused, RemitError
from remit.core.jsonable import to_jsonable
from remit.core.settings import Web
from remit.core.text import one_line
from remit.system.http import (
    ACCEPT_ENCODING,
    Body,
    BodyError,
    Headers,
    Network,
    Target,
    Trail,
    UnreachableError,
    WebRequest,
    follow_redirects,
    parse_target,
    read_body,
    tls_context,
)
from remit.system.packages import need
from remit.system.settings_files import load_settings
from remit.system.threads import off_loop

# ---- limits

MEMORY_BYTES = 1536 * 1024 * 1024
"""Beyond the initial size of the process: a page of 5 MiB needs a tenth of it."""


def limit_memory() -> None:
    """For the rest of this process. Exceeding it raises MemoryError, which is reported as a fault of the page."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


# ---- text

MOST_LINKS = 500
MOST_PAGES = 300
_HEAD_BYTES = 4096
_LINK_TEXT = 200
_LONGEST_LINK = 2000
_CHARSET = re.compile(r"""(?:charset|encoding)\s*=\s*["']?\s*((?!utf-?16)[A-Za-z0-9_:.\-]{2,40})""", re.IGNORECASE)
"""A page whose declaration can be read so is not in UTF-16, whatever it says."""
_BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
_GAPS = re.compile(r"\n\s*\n\s*")
_TAG = re.compile(r"<[^<>]*>")


def decode_text(content: bytes, content_type: str = "", *, is_markup: bool = False) -> tuple[str, str]:
    """Text and encoding by the rules of the web: a byte order mark, the server's header, the page's declaration, a guess. Never raises."""
    encodings = need("webencodings", "web")
    declared = [content_type, content[:_HEAD_BYTES].decode("latin-1") if is_markup else ""]
    said = next((known for one in declared if (found := _CHARSET.search(one)) and (known := encodings.lookup(found[1]))), None)
    if said is None and not _is_utf8(content):
        best = need("charset_normalizer", "web").from_bytes(content[:65536]).best()
        said = encodings.lookup(best.encoding.replace("_", "-")) if best is not None else None
        said = said or encodings.lookup("windows-1252")
    text, used = encodings.decode(content, said or encodings.UTF8, errors="replace")
    return text, used.codec_info.name


def _is_utf8(content: bytes) -> bool:
    """Ignoring a character that is cut at the end."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(content) - 4
    return True


@dataclass(slots=True)
class Page:
    """What the bytes of an answer say."""

    kind: str = "html"
    """html, json, pdf, text or binary."""
    charset: str = ""
    text: str = ""
    json: Any = None
    title: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    """Its metadata: description, author, date, language."""
    links: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _try_read(page: Page, read: Callable[[], None], seconds: float) -> None:
    """A fault, or the end of the time, keeps the part read so far. For the main thread, in which agents of a process run."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"stopped after {seconds:.0f} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.05))
    try:
        read()
    except RemitError:
        raise
    except Exception as error:  # noqa: BLE001 - parsers raise anything for untrusted bytes
        page.notes.append(f"The {page.kind} could not be read to its end ({type(error).__name__}: {str(error)[:100]}).")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _read_html(page: Page, text: str, url: str) -> None:
    html = need("lxml.html", "web")
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    tree = html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    page.title = _line(tree.findtext(".//head/title"), 300)
    page.about["language"] = _line(tree.get("lang"), 20) or None
    tree.make_links_absolute(url, handle_failures="ignore")
    links: dict[str, str] = {}
    for element in tree.iter("a", "area"):
        address = _page_address(element.get("href") or "")
        if address and address != url and len(links) < MOST_LINKS:
            links.setdefault(address, _line(element.text_content()[:2000], _LINK_TEXT))
    page.links = [{"url": address, "text": words} for address, words in links.items()]
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    found = need("trafilatura", "web").bare_extraction(
        text, url=url, with_metadata=True, include_comments=False, include_tables=True, favor_recall=True
    )
    if found is not None:
        page.text = _tidy(found.text or "")
        page.title = _line(found.title, 300) or page.title
        said = {"description": found.description, "author": found.author, "date": found.date}
        page.about |= {name: _line(str(value), 1000) for name, value in said.items() if value}
    page.text = page.text or _tidy(need("trafilatura", "web").html2txt(text))  # no article: all that is visible


def _page_address(href: str) -> str:
    """Without its fragment; empty for any other address than of a page of the web."""
    try:
        parts = urlsplit(href[:_LONGEST_LINK].strip())
    except ValueError:
        return ""
    is_page = parts.scheme in ("http", "https") and parts.netloc and "@" not in parts.netloc
    return parts._replace(fragment="").geturl() if is_page else ""


def _read_pdf(page: Page, content: bytes) -> None:
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = need("pypdf", "web").PdfReader(io.BytesIO(content), strict=False)
    information = reader.metadata or {}
    page.title = _line(str(information.get("/Title") or ""), 300)
    page.about["author"] = _line(str(information.get("/Author") or ""), 300) or None
    for one in islice(reader.pages, MOST_PAGES):
        page.text = f"{page.text}\n\n{_tidy(one.extract_text() or '')}".strip()
    if not page.text:
        page.notes.append("The PDF has no text: its pages are probably pictures.")


def _line(text: str | None, most: int) -> str:
    return " ".join((text or "").split())[:most]


def _tidy(text: str) -> str:
    text = _BLANKS.sub(" ", text.replace("\r\n", "\n").replace("\x00", ""))
    return _GAPS.sub("\n\n", "\n".join(line.strip() for line in text.split("\n"))).strip()


# ---- fetching

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_SENT = 5 * 1024 * 1024
USER_AGENT = "remit/0.1 (+a program that fetches for its user)"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]{0,8000}")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "accept-encoding"}
)
"""Headers that would change the request or its framing."""
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTUAL = re.compile(
    r"text/|application/(?:[\w.-]+\+)?(?:json|xml|javascript|x-javascript|ecmascript|yaml|x-yaml|toml|x-sh|sql|x-ndjson)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    target: Target
    """The final URL after all redirects."""
    status: int
    content_type: str
    body: Body
    trail: Trail
    fetched_at: float


async def fetch(request: WebRequest, network: Network, *, most: int, seconds: float, trail: Trail | None = None) -> FetchResult:
    """Raises `UnreachableError`, `BodyError`, `Refused`, `Misused`, `TimeoutError`; `trail` then shows how far it came."""
    trail = trail if trail is not None else Trail()
    end = time.monotonic() + seconds
    async with asyncio.timeout(seconds), follow_redirects(request, network, trail) as answer:
        # The body has its own, slightly earlier limit: what arrived by then is kept.
        left = max(0.05, (end - time.monotonic()) * 0.95)
        body = await read_body(answer.chunks, max_bytes=most, seconds=left, content_encoding=answer.header("content-encoding"))
    assert trail.last is not None
    return FetchResult(
        target=trail.last,
        status=answer.status,
        content_type=answer.header("content-type").strip()[:200],
        body=body,
        trail=trail,
        fetched_at=time.time(),
    )


def build_headers(given: Any) -> Headers:
    """The sent headers: defaults overridden by the caller's. Raises `Misused`, which never repeats a value."""
    sent = {
        "user-agent": ("User-Agent", USER_AGENT),
        "accept": ("Accept", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"),
    }
    fault = Misused("headers: it is not a mapping of names to values of one line.", advice='E.g. {"Accept-Language": "en"}.')
    if not isinstance(given, Mapping | None):
        raise fault
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise fault
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(str(value)):
            raise fault
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise Misused(f"headers: {name} cannot be set.", advice="Leave it out.")
        sent[name.lower()] = (name, str(value).strip())
    return [*sent.values(), ("Accept-Encoding", ACCEPT_ENCODING)]


def encode_body(body: Any, headers: Headers) -> tuple[bytes | None, Headers]:
    """Text unchanged, anything else as JSON; with a suitable Content-Type if the caller set none."""
    if body is None:
        return None, headers
    is_text = isinstance(body, str)
    try:
        data = body.encode() if is_text else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise Misused("body: it cannot be sent as JSON.", advice="Give text, or JSON values.") from None
    if len(data) > MOST_SENT:
        raise Misused(f"body: {len(data)} bytes are too much; at most {MOST_SENT} are sent.")
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers = [*headers, ("Content-Type", "text/plain; charset=utf-8" if is_text else "application/json")]
    return data, headers


def content_kind(fetched: FetchResult) -> str:
    """By the server's header; by its first bytes if that is useless."""
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
            return "text" if _is_utf8(fetched.body.content[:2048]) else "binary"
    return "binary"


def read_answer(fetched: FetchResult, *, raw: bool = False, seconds: float) -> Page:
    """Parse the answer by its kind. For a process that may be killed over it."""
    page, content = Page(kind=content_kind(fetched)), fetched.body.content
    if page.kind == "binary" or not content:
        return page
    if page.kind == "pdf":
        _try_read(page, lambda: _read_pdf(page, content), seconds)
        return page
    text, page.charset = decode_text(content, fetched.content_type, is_markup=page.kind == "html" or b"<?xml" in content[:100])
    if page.kind == "html" and not raw:
        _try_read(page, lambda: _read_html(page, text, fetched.target.url), seconds)
        page.text = page.text or _tidy(_TAG.sub(" ", text))  # nested too deeply for the parser, for example
        return page
    if page.kind == "json":
        page.json, note = read_json(text)
        page.notes += [note] if note else []
    page.text = text.replace("\x00", "�") if page.json is None or raw else ""
    return page


def read_json(text: str) -> tuple[Any, str]:
    """The value, or the reason why it is invalid."""
    try:
        return to_jsonable(json.loads(text, parse_constant=lambda _word: None)), ""
    except (ValueError, RecursionError) as error:
        return None, f"It is not valid JSON ({str(error)[:100] or type(error).__name__})."
    except Failed as error:
        return None, f"The JSON is too large to return as data ({error.message[:100]})."


# ---- the operation

_READING_SHARE = 0.25
"""Share of the time reserved for parsing."""
_MARKUP = re.compile(r"[`*_<>\[\]#|\U0001f000-\U0001faff☀-➿]")


async def fetch_page(
    ctx: Context, url: str, *, method: str, headers: Any, body: Any, max_bytes: int | None, max_characters: int, raw: bool, save: bool
) -> dict[str, Any]:
    settings = load_settings(ctx.root).web
    if method.upper() not in METHODS:
        raise Misused(f"method: {method[:20]!r} is not supported.", advice=f"Use {', '.join(METHODS)}.")
    data, sent = encode_body(body, build_headers(headers))
    most = min(max_bytes or settings.max_bytes, settings.max_bytes)
    request = WebRequest(target=parse_target(url), method=method.upper(), headers=sent, body=data)
    trail = Trail()
    limit_memory()
    try:
        seconds = ctx.remaining * (1 - _READING_SHARE)
        answer = await fetch(request, build_network(ctx, settings), most=most, seconds=seconds, trail=trail)
    except (UnreachableError, BodyError, TimeoutError) as error:
        return _build_unreached_return(request.target, trail, error)
    page = read_answer(answer, raw=raw, seconds=max(0.2, ctx.remaining * 0.8))
    file = ctx.scratch / file_name(answer) if save else None
    if file is not None:
        await off_loop(file.write_bytes, answer.body.content)
        ctx.artifact(file, "data", f"What {answer.target.authority} answered, {len(answer.body.content)} bytes.")
    return _build_return(request.target, answer, page, max_characters, file)


def build_network(ctx: Context, settings: Web) -> Network:
    file = ctx.root / settings.ca_file if settings.ca_file is not None else None
    return Network(permit=ctx.permit, tls=cache(lambda: tls_context(file)))


def _build_return(asked: Target, fetched: FetchResult, page: Page, max_characters: int, file: Path | None) -> dict[str, Any]:
    body, text = fetched.body, page.text
    notes = [*fetched.trail.notes, *([body.cut] if body.cut else []), *page.notes]
    if page.kind == "binary" and body.content and file is None:
        notes.append(f"It is {fetched.content_type or 'of no known kind'}, not text. Ask with save=true to keep it as a file.")
    data: dict[str, Any] = {
        "url": asked.shown,
        "finalUrl": fetched.target.shown,
        "status": fetched.status,
        "contentType": fetched.content_type,
        "kind": page.kind,
        "charset": page.charset or None,
        "title": page.title,
        **dict.fromkeys(("description", "author", "date", "language")),
        **page.about,
        "text": text[:max_characters],
        "links": page.links,
        "json": page.json,
        "redirects": fetched.trail.hops,
        "bytes": len(body.content),
        "truncated": bool(body.cut) or len(text) > max_characters,
        "fetchedAt": utc_time(fetched.fetched_at),
        "file": file.name if file is not None else None,
        "notes": notes,
    }
    kind = fetched.content_type.partition(";")[0] or "no stated type"
    summary = f"{fetched.target.authority} answered {fetched.status} with {len(body.content):,} bytes ({plain_text(kind, 60)})."
    summary += f" The title is “{plain_text(page.title, 100)}”." if page.title else ""
    summary += f" It was read as {page.kind}{'; not all of it is given' if data['truncated'] else ''}."
    return {"summary": summary, "data": data, "artifacts": [], **_outcome(fetched)}


def _outcome(fetched: FetchResult) -> dict[str, Any]:
    status = fetched.status
    if status >= 400:
        again = status in (408, 425, 429) or status >= 500
        advice = "Try again later." if again else "Check the address, and whether it asks for a key or a login."
        message = f"{fetched.target.authority} answered with status {status}."
        return {"status": "failed", "errors": [error_dict("http_status", "HTTP_ERROR", message, advice, recoverable=again)]}
    if fetched.body.cut and not fetched.body.cut.startswith("It is larger"):
        kind, code = ("timeout", "TIMEOUT") if fetched.body.is_late else ("network", "INCOMPLETE")
        error = error_dict(kind, code, fetched.body.cut, "Fetch it again, or with a longer timeout.")
        return {"status": "partial", "errors": [error]}
    return {"status": "completed", "errors": []}


def plain_text(text: str, most: int) -> str:
    """Untrusted text, made safe for a summary."""
    return one_line(_MARKUP.sub("", text), most)


def _build_unreached_return(asked: Target, trail: Trail, error: Exception) -> dict[str, Any]:
    """Nothing came that could be read."""
    at = trail.last or asked
    is_late = isinstance(error, TimeoutError)
    message = f"{at.authority}: {'it did not answer in time.' if is_late else error}"[:500]
    if is_late:
        info = error_dict("timeout", "TIMEOUT", message, "Give it a longer timeout.")
    else:
        info = error_dict("network", "NETWORK_ERROR", message, "Check the address and that this machine reaches it; then try again.")
    data = {"url": asked.shown, "finalUrl": at.shown, "status": None, "redirects": trail.hops, "notes": trail.notes}
    summary, status = f"Nothing was fetched. {message[:350]}", "partial" if is_late else "failed"
    return {"status": status, "summary": summary, "data": data, "artifacts": [], "errors": [info]}


def file_name(fetched: FetchResult) -> str:
    """A safe file name from the URL."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(fetched.target.path.partition("?")[0]).name).strip("-.")[:80] or "page"
    ending = mimetypes.guess_extension(fetched.content_type.partition(";")[0].strip().lower())
    return name if "." in name else name + (ending or "")


def utc_time(moment: float | None = None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if moment is None else moment))
