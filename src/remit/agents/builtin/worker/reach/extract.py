"""What a page or a PDF says: readable text, title, links. Reads what strangers wrote, so it runs in a process of its own. Used by `fetch`.

Whatever a parser does with it (raises, takes too long, wants too much memory), there is an answer, with a note of what is missing.
"""

import contextlib
import io
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from remit.agents.builtin.needing import need
from remit.agents.builtin.worker.reach.limits import TookTooLong, bounded_time
from remit.core.errors import RemitError

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
    text: str = ""
    title: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    """What it says of itself: description, author, date, language, site; pages of a PDF."""
    links: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def page_of_html(text: str, url: str, seconds: float) -> Page:
    page = Page()
    tree = _guarded(page, "The page could not be parsed", lambda: _tree(text), seconds / 3)
    if tree is None:
        return page
    _guarded(page, "The links could not be read", lambda: _read_links(page, tree, url), seconds / 3)
    _guarded(page, "The readable part could not be told from the rest", lambda: _read_article(page, text, url), seconds / 2)
    if not page.text:
        _guarded(page, "The text could not be read", lambda: _read_all(page, tree), seconds / 3)
    if not page.text:  # nested too deep for the parser, say
        page.text = _tidy(_TAG.sub(" ", text))
    return page


def page_of_pdf(content: bytes, seconds: float) -> Page:
    page = Page()
    _guarded(page, "The PDF could not be read to its end", lambda: _read_pdf(page, content), seconds)
    return page


def _guarded(page: Page, fault: str, read: Callable[[], Any], seconds: float) -> Any:
    try:
        with bounded_time(seconds):
            return read()
    except RemitError:
        raise
    except TookTooLong as error:
        page.notes.append(f"{fault}: {error}.")
    except Exception as error:  # noqa: BLE001 - parsers of other people's packages over bytes of strangers: RecursionError, MemoryError, anything
        page.notes.append(f"{fault} ({type(error).__name__}).")
    return None


def _tree(text: str) -> Any:
    html = need("lxml.html", "web")
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    return html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)


def _read_links(page: Page, tree: Any, url: str) -> None:
    """What it says of itself in its head, and where it leads: whole addresses, each once."""
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
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # what it cannot parse is told here, not printed
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
    """Every word that a reader would see, where nothing stands out as the article."""
    for element in list(tree.iter(*_UNSEEN)):
        if element.getparent() is not None:
            element.drop_tree()
    page.text = _tidy("\n".join(tree.itertext()))


def _read_pdf(page: Page, content: bytes) -> None:
    pypdf = need("pypdf", "web")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(content), strict=False)
    if reader.is_encrypted and not _is_opened(reader):
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
        page.notes.append("The PDF holds no text: its pages are probably pictures.")


def _is_opened(reader: Any) -> bool:
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
