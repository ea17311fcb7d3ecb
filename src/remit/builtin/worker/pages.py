"""`worker.web_fetch`: readable text, title and links of a URL. Runs in its own process, with bounded memory and time.

If a parser raises, takes too long or needs too much memory, the answer is still returned, with a note. `system.http` reaches the server;
the policy is asked about every hop, with the kind of its address."""

import asyncio
import contextlib
import io
import json
import logging
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any
from urllib.parse import urljoin, urlsplit

from remit.builtin.worker.workspace import error_dict
from remit.core.context import Context
from remit.core.errors import Failed, Misused, RemitError
from remit.core.jsonable import to_jsonable
from remit.core.settings import Web
from remit.core.text import one_line, plural
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


@contextlib.contextmanager
def limit_memory() -> Iterator[None]:
    """Exceeding it raises MemoryError, which is reported as a fault of the page."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit if before[1] == resource.RLIM_INFINITY else min(limit, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` in its body. For the main thread, in which agents of a process run."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"stopped after {seconds:.0f} s")

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.05))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


# ---- text of bytes

_HEAD_BYTES = 4096
_LABEL = r"[A-Za-z0-9_:.\-]{2,40}"
_META = re.compile(
    rf"""<meta[^>]{{0,400}}?charset\s*=\s*["']?\s*({_LABEL})|^\s*<\?xml[^>]{{0,200}}?encoding\s*=\s*["']({_LABEL})""".encode(),
    re.IGNORECASE,
)
_PARAMETER = re.compile(rf"""charset\s*=\s*["']?\s*({_LABEL})""", re.IGNORECASE)


def decode_text(content: bytes, content_type: str = "", *, is_markup: bool = False) -> tuple[str, str]:
    """Text and encoding by the rules of the web: a byte order mark, the server's header, the page's declaration, a guess. Never raises."""
    encodings = need("webencodings", "web")
    said = encodings.lookup(found[1]) if (found := _PARAMETER.search(content_type)) else None
    if said is None and is_markup and (meta := _META.search(content[:_HEAD_BYTES])):
        said = encodings.lookup((meta[1] or meta[2]).decode("ascii"))
        if said is not None and said.name.startswith("utf-16"):
            said = encodings.UTF8  # otherwise the search would not have found it
    text, used = encodings.decode(content, said or _guess_encoding(content), errors="replace")
    return text, used.codec_info.name


def _guess_encoding(content: bytes) -> Any:
    encodings = need("webencodings", "web")
    if _is_utf8(content):
        return encodings.UTF8
    best = need("charset_normalizer", "web").from_bytes(content[:65536]).best()
    return (encodings.lookup(best.encoding.replace("_", "-")) if best is not None else None) or encodings.lookup("windows-1252")


def _is_utf8(content: bytes) -> bool:
    """Ignoring a character that is cut at the end."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(content) - 4
    return True


# ---- text of pages

MOST_LINKS = 500
MOST_PAGES = 300
_LINK_TEXT = 200
_LONGEST_LINK = 2000
_BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
_GAPS = re.compile(r"\n\s*\n\s*")
_TAG = re.compile(r"<[^<>]*>")
_UNSEEN = ("script", "style", "noscript", "template", "svg", "head", "iframe")


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
    """Its metadata: description, author, date, language, site; pages of a PDF."""
    links: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _parse_html(page: Page, text: str, url: str, seconds: float) -> None:
    tree = _try_read(page, "The page could not be parsed", lambda: _tree(text), seconds / 3)
    if tree is None:
        return
    _try_read(page, "The links could not be read", lambda: _read_links(page, tree, url), seconds / 3)
    _try_read(page, "The article could not be extracted", lambda: _read_article(page, text, url), seconds / 2)
    if not page.text:
        _try_read(page, "The text could not be read", lambda: _read_all(page, tree), seconds / 3)
    if not page.text:  # nested too deeply for the parser, for example
        page.text = _tidy(_TAG.sub(" ", text))


def _try_read(page: Page, fault: str, read: Callable[[], Any], seconds: float) -> Any:
    try:
        with limit_time(seconds):
            return read()
    except RemitError:
        raise
    except TimeoutError as error:
        page.notes.append(f"{fault}: {error}.")
    except Exception as error:  # noqa: BLE001 - parsers raise anything for untrusted bytes
        page.notes.append(f"{fault} ({type(error).__name__}).")
    return None


def _tree(text: str) -> Any:
    html = need("lxml.html", "web")
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    return html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)


def _read_links(page: Page, tree: Any, url: str) -> None:
    """Its metadata and links: absolute URLs, each once."""
    title = tree.find(".//head/title")
    page.title = _line(title.text_content() if title is not None else "")[:300]
    language = tree.get("lang") or tree.get("xml:lang")
    if language:
        page.about["language"] = _line(language)[:20]
    base = url
    for element in tree.iterfind(".//head/base"):
        with contextlib.suppress(ValueError):
            base = urljoin(url, element.get("href") or "")
        break
    seen: set[str] = set()
    for element in tree.iter("a", "area"):
        address = _link(base, element.get("href") or "")
        if not address or address in seen:
            continue
        if len(seen) >= MOST_LINKS:
            page.notes.append(f"Only the first {MOST_LINKS} links are listed.")
            break
        seen.add(address)
        page.links.append({"url": address, "text": _line(element.text_content()[:2000])[:_LINK_TEXT]})


def _link(base: str, href: str) -> str:
    href = href.strip()
    if not href or href.startswith("#") or len(href) > _LONGEST_LINK:
        return ""
    try:
        parts = urlsplit(urljoin(base, href))
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        return ""
    return parts._replace(fragment="").geturl()


def _read_article(page: Page, text: str, url: str) -> None:
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # its complaints go to the notes
    found = need("trafilatura", "web").bare_extraction(
        text, url=url, with_metadata=True, include_comments=False, include_tables=True, favor_recall=True
    )
    if found is None:
        return
    page.text = _tidy(getattr(found, "text", "") or "")
    page.title = _line(found.title or "")[:300] or page.title
    said = {"description": found.description, "author": found.author, "date": found.date, "site": found.sitename}
    page.about |= {name: _line(str(value))[:1000] for name, value in said.items() if value}


def _read_all(page: Page, tree: Any) -> None:
    """All visible text, if no article was found."""
    for element in list(tree.iter(*_UNSEEN)):
        if element.getparent() is not None:
            element.drop_tree()
    page.text = _tidy("\n".join(tree.itertext()))


def _read_pdf(page: Page, content: bytes) -> None:
    pypdf = need("pypdf", "web")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(content), strict=False)
    if reader.is_encrypted and not _opens_without_password(reader):
        page.notes.append("The PDF is encrypted with a password, so its text cannot be read.")
        page.about["encrypted"] = True
        return
    information = reader.metadata or {}
    page.title = _line(str(information.get("/Title") or ""))[:300]
    if information.get("/Author"):
        page.about["author"] = _line(str(information["/Author"]))[:300]
    count = len(reader.pages)
    page.about["pages"] = count
    parts: list[str] = []
    for number in range(min(count, MOST_PAGES)):
        parts.append(_tidy(reader.pages[number].extract_text() or ""))
        page.text = "\n\n".join(part for part in parts if part)
    if count > MOST_PAGES:
        page.notes.append(f"Only the first {MOST_PAGES} of {count} pages were read.")
    if not page.text:
        page.notes.append("The PDF has no text: its pages are probably pictures.")


def _opens_without_password(reader: Any) -> bool:
    """Many are encrypted only against changes, with an empty password for readers."""
    try:
        return bool(reader.decrypt(""))
    except Exception:  # noqa: BLE001 - as above; also a cipher that is not installed here
        return False


def _line(text: str) -> str:
    return " ".join(text.split())


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
    headers: Mapping[str, str]
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
        headers={name: answer.header(name) for name in ("last-modified", "retry-after") if answer.header(name)},
        body=body,
        trail=trail,
        fetched_at=time.time(),
    )


def build_headers(given: Any) -> Headers:
    """The sent headers: defaults overridden by the caller's. Raises `Misused`, which names a header and never its value."""
    if given is not None and not isinstance(given, Mapping):
        raise Misused("headers must be a mapping of names to values.", advice='E.g. {"Accept-Language": "en"}.')
    sent = {
        "user-agent": ("User-Agent", USER_AGENT),
        "accept": ("Accept", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"),
    }
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise Misused("headers: a name is not a valid header name.", advice="Use letters, digits and hyphens.")
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise Misused(f"headers: {name} cannot be set.", advice="Leave it out.")
        if not isinstance(value, str | int | float) or not _VALUE.fullmatch(str(value)):
            raise Misused(f"headers: the value of {name} is not one line of text.", advice="Leave out line breaks and control characters.")
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


def read_answer(fetched: FetchResult, *, raw: bool, seconds: float) -> Page:
    """Parse the answer by its kind. For a process that may be killed over it."""
    page, content = Page(kind=content_kind(fetched)), fetched.body.content
    if page.kind == "binary" or not content:
        return page
    if page.kind == "pdf":
        _try_read(page, "The PDF could not be read to its end", lambda: _read_pdf(page, content), seconds)
        return page
    text, page.charset = decode_text(content, fetched.content_type, is_markup=page.kind == "html" or b"<?xml" in content[:100])
    if page.kind == "html" and not raw:
        _parse_html(page, text, fetched.target.url, seconds)
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


async def fetch_page(
    ctx: Context, url: str, *, method: str, headers: Any, body: Any, max_bytes: int | None, max_characters: int, raw: bool, save: bool
) -> dict[str, Any]:
    settings = load_settings(ctx.root).web
    if method.upper() not in METHODS:
        raise Misused(f"method: {method[:20]!r} is not supported.", advice=f"Use {', '.join(METHODS)}.")
    data, sent = encode_body(body, build_headers(headers))
    request = WebRequest(target=parse_target(url), method=method.upper(), headers=sent, body=data)
    most = min(max_bytes or settings.max_bytes, settings.max_bytes)
    trail = Trail()
    with limit_memory():
        try:
            seconds = ctx.remaining * (1 - _READING_SHARE)
            answer = await fetch(request, build_network(ctx, settings), most=most, seconds=seconds, trail=trail)
        except (UnreachableError, BodyError, TimeoutError) as error:
            return build_unreached_return(request.target, trail, error)
        ctx.progress(f"{answer.body.wire_bytes} bytes came from {answer.target.authority}.")
        page = read_answer(answer, raw=raw, seconds=max(0.2, ctx.remaining * 0.8))
    file = ctx.scratch / file_name(answer) if save else None
    if file is not None:
        await off_loop(file.write_bytes, answer.body.content)
        ctx.artifact(file, "data", f"What {answer.target.authority} answered, {len(answer.body.content)} bytes.")
    return build_fetch_return(request.target, answer, page, max_characters, file)


def build_network(ctx: Context, settings: Web) -> Network:
    file = ctx.root / settings.ca_file if settings.ca_file is not None else None
    return Network(permit=ctx.permit, tls=cache(lambda: tls_context(file)))


_ENDINGS = {"application/pdf": ".pdf", "text/html": ".html", "application/json": ".json", "text/plain": ".txt"}
_MARKUP = re.compile(r"[`*_<>\[\]#|\U0001f000-\U0001faff☀-➿]")


def build_fetch_return(asked: Target, fetched: FetchResult, page: Page, max_characters: int, file: Path | None) -> dict[str, Any]:
    body, text = fetched.body, page.text
    notes = [*fetched.trail.notes, *([body.cut] if body.cut else []), *page.notes]
    if len(text) > max_characters:
        notes.append(f"The text is {len(text)} characters long; the first {max_characters} are given.")
    if page.kind == "binary" and body.content and file is None:
        kind = fetched.content_type or "of no known kind"
        notes.append(f"It is {kind}, which is not read as text. Ask with save=true to keep it as a file.")
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
        "wireBytes": body.wire_bytes,
        "truncated": bool(body.cut) or len(text) > max_characters,
        "lastModified": fetched.headers.get("last-modified"),
        "fetchedAt": utc_time(fetched.fetched_at),
        "file": file.name if file is not None else None,
        "notes": notes,
    }
    return {"summary": _summary(fetched, data), "data": data, "artifacts": [], **_outcome(fetched)}


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


def _summary(fetched: FetchResult, data: Mapping[str, Any]) -> str:
    kind = fetched.content_type.partition(";")[0] or "no stated type"
    sentences = [f"{fetched.target.authority} answered {fetched.status} with {len(fetched.body.content):,} bytes ({plain_text(kind, 60)})"]
    if data["title"]:
        sentences.append(f"The title is “{plain_text(data['title'], 100)}”")
    if data["json"] is not None:
        sentences.append("It was read as JSON")
    elif data["kind"] == "binary":
        sentences.append("It was kept as a file" if data["file"] else "It is not read as text")
    else:
        sentences.append(f"It has {plural(len(data['text']), 'character')} of text and {plural(len(data['links']), 'link')}")
    if fetched.trail.hops:
        sentences.append(f"It was redirected {plural(len(fetched.trail.hops), 'time')}")
    if data["truncated"]:
        sentences.append("Not all of it is given; the notes say why")
    return ". ".join(sentences) + "."


def plain_text(text: str, most: int) -> str:
    """Untrusted text, made safe for a summary."""
    return one_line(_MARKUP.sub("", text), most)


def build_unreached_return(asked: Target, trail: Trail, error: Exception) -> dict[str, Any]:
    """Nothing came that could be read."""
    at = trail.last or asked
    kind, code = ("timeout", "TIMEOUT") if isinstance(error, TimeoutError) else ("network", "NETWORK_ERROR")
    said = f"{at.authority} did not answer in time." if code == "TIMEOUT" else str(error)
    message = (said if at.authority in said else f"{at.authority}: {said}")[:500]
    advice = "Check the address and that this machine reaches it; then try again."
    info = error_dict(kind, code, message, "Give it a longer timeout." if code == "TIMEOUT" else advice)
    data = {"url": asked.shown, "finalUrl": at.shown, "status": None, "redirects": trail.hops, "notes": trail.notes}
    status = "partial" if code == "TIMEOUT" else "failed"
    return {"status": status, "summary": f"Nothing was fetched. {message[:350]}", "data": data, "artifacts": [], "errors": [info]}


def file_name(fetched: FetchResult) -> str:
    """A safe file name from the URL."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(fetched.target.path.partition("?")[0]).name).strip("-.")[:80] or "page"
    ending = _ENDINGS.get(fetched.content_type.partition(";")[0].strip().lower(), "")
    return name if "." in name or not ending else name + ending


def utc_time(moment: float | None = None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if moment is None else moment))
