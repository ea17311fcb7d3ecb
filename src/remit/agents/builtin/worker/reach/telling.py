"""What was fetched or found, as returns: a summary for people, data for programs (camelCase), errors with advice. For `worker.web`."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from remit.agents.builtin.worker.reach.fetch import Fetched, Reading
from remit.agents.builtin.worker.reach.follow import Trail
from remit.agents.builtin.worker.reach.searching import Found, now_text
from remit.agents.builtin.worker.reach.target import Target

_ENDINGS = {"application/pdf": ".pdf", "text/html": ".html", "application/json": ".json", "text/plain": ".txt"}
_MARKS = re.compile(r"[`*_<>\[\]#|\U0001f000-\U0001faff☀-➿]")


def fetched_return(asked: Target, fetched: Fetched, reading: Reading, max_characters: int, file: Path | None) -> dict[str, Any]:
    page, body = reading.page, fetched.body
    text = page.text if reading.json is None or reading.is_raw else ""
    notes = [*fetched.trail.notes, *([body.cut] if body.cut else []), *page.notes]
    if len(text) > max_characters:
        notes.append(f"The text is {len(text)} characters long; the first {max_characters} are given.")
    if reading.kind == "binary" and body.content and file is None:
        notes.append(
            f"It is {fetched.content_type or 'of no known kind'}, which is not read as text. Ask with save=true to keep it as a file."
        )
    data: dict[str, Any] = {
        "url": asked.shown,
        "finalUrl": fetched.target.shown,
        "status": fetched.status,
        "contentType": fetched.content_type,
        "kind": reading.kind,
        "charset": reading.charset or None,
        "title": page.title,
        "description": None,
        "author": None,
        "date": None,
        "language": None,
        **page.about,
        "text": text[:max_characters],
        "links": page.links,
        "json": reading.json,
        "redirects": fetched.trail.hops,
        "bytes": len(body.content),
        "wireBytes": body.wire_bytes,
        "truncated": bool(body.cut) or len(text) > max_characters,
        "lastModified": fetched.headers.get("last-modified"),
        "fetchedAt": now_text(fetched.fetched_at),
        "file": file.name if file is not None else None,
        "notes": notes,
    }
    return {"summary": _summary(fetched, data), "data": data, "artifacts": [], **_outcome(fetched)}


def _outcome(fetched: Fetched) -> dict[str, Any]:
    status = fetched.status
    if status >= 400:
        again = status in (408, 425, 429) or status >= 500
        advice = "Try again later." if again else "Check the address, and whether it asks for a key or a login."
        message = f"{fetched.target.authority} answered with status {status}."
        return {"status": "failed", "errors": [_error("http_status", "HTTP_ERROR", message, advice, recoverable=again)]}
    if fetched.body.cut and not fetched.body.cut.startswith("It is larger"):
        return {
            "status": "partial",
            "errors": [_error("network", "INCOMPLETE", fetched.body.cut, "Fetch it again, or with a longer timeout.")],
        }
    return {"status": "completed", "errors": []}


def _summary(fetched: Fetched, data: Mapping[str, Any]) -> str:
    kind = fetched.content_type.partition(";")[0] or "no stated type"
    sentences = [f"{fetched.target.authority} answered {fetched.status} with {len(fetched.body.content):,} bytes ({_plain(kind, 60)})"]
    if data["title"]:
        sentences.append(f"The title is “{_plain(data['title'], 100)}”")
    match data["kind"]:
        case "html" | "text" | "pdf":
            links = f" and {_count(len(data['links']), 'link')}" if data["links"] else ""
            sentences.append(f"It holds {_count(len(data['text']), 'character')} of text{links}")
        case "json":
            sentences.append("It was read as JSON" if data["json"] is not None else "It could not be read as JSON")
        case _ if data["file"]:
            sentences.append("It was kept as a file")
        case _:
            sentences.append("It is not read as text")
    if fetched.trail.hops:
        sentences.append(f"It was redirected {len(fetched.trail.hops)} times" if len(fetched.trail.hops) > 1 else "It was redirected once")
    if data["truncated"]:
        sentences.append("Not all of it is given; the notes say why")
    return ". ".join(sentences) + "."


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _plain(text: str, most: int) -> str:
    """Words of strangers, fit for a summary."""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in _MARKS.sub("", text)).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def unreached_return(asked: Target, trail: Trail, error: Exception) -> dict[str, Any]:
    """Nothing came that could be read."""
    at = trail.last or asked
    if isinstance(error, TimeoutError):
        message, kind, code = f"{at.authority} did not answer in time.", "timeout", "TIMEOUT"
    else:
        message, kind, code = (
            f"{at.authority}: {error}"[:500] if at.authority not in str(error) else str(error)[:500],
            "network",
            "NETWORK_ERROR",
        )
    told = _error(kind, code, message, "Check the address and that this machine reaches it; then try again.")
    data = {"url": asked.shown, "finalUrl": at.shown, "status": None, "redirects": trail.hops, "notes": trail.notes}
    return {"status": "failed", "summary": f"Nothing was fetched. {message[:350]}", "data": data, "artifacts": [], "errors": [told]}


def _error(type_: str, code: str, message: str, advice: str, *, recoverable: bool = True) -> dict[str, Any]:
    return {"type": type_, "code": code, "message": message, "recoverable": recoverable, "recommendation": advice}


def kept_as(fetched: Fetched) -> str:
    """A name for the file: of the address, and harmless."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(fetched.target.path.partition("?")[0]).name).strip("-.")[:80] or "page"
    ending = _ENDINGS.get(fetched.content_type.partition(";")[0].strip().lower(), "")
    return name if "." in name or not ending else name + ending


def searched_return(query: str, found: Found, at: str) -> dict[str, Any]:
    results = [{"title": hit.title, "url": hit.url, "snippet": hit.snippet, "date": hit.date} for hit in found.hits]
    count = _count(len(results), "result") if results else "no results"
    passed = f" Before it, {', '.join(found.tried)} gave no answer." if found.tried else ""
    first = f" The first is “{_plain(results[0]['title'] or '', 100)}”." if results else " Other words may find more."
    return {
        "status": "completed",
        "summary": f"{found.provider} gave {count} for “{_plain(query, 100)}”.{first}{passed}",
        "data": {"query": query, "provider": found.provider, "results": results, "tried": found.tried, "searchedAt": at},
        "artifacts": [],
        "errors": [],
    }
