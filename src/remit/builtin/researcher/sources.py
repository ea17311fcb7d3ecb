"""Sources to search, and what was read. Only worker children read files and pages, so that policy, limits and records apply.

`Places` is the parsed `sources` parameter. `Gatherer` lists, searches, reads and fetches within its limits: at most 60 children, 8 at a
time, each ending before the soft deadline. A failed child is noted; the others continue."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any

from remit.builtin.researcher.passages import PROSE_SUFFIXES, Document
from remit.core.context import Context
from remit.core.errors import ErrorInfo, Misused
from remit.core.request import Request, call
from remit.core.result import Return, Status, StopReason

MAX_CHILDREN = 60
AT_ONCE = 8
FILE_BYTES = 768 * 1024
"""Read of one file."""
MAX_MATCHES = 1500
MAX_LISTED = 5000
MAX_CHARACTERS = 5_000_000
_CHILD_SECONDS = 30.0
_KEPT_SHARE, _KEPT_SECONDS = 0.4, 12.0
"""Time reserved for ranking and writing: a share of all, and at most so many seconds."""
WEB, DOCS, FILES = "web", "docs", "files"
KINDS = (WEB, DOCS, FILES)
_ALIASES = {"code": FILES, "local": FILES, "academic": WEB}
_DOCUMENT_FOLDERS = frozenset({"docs", "doc", "documentation", "manual", "guide", "wiki"})
_SKIPPED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_party|dist|target|__pycache__|\.git|\.remit|\.venv|venv|coverage)/"
    r"|\.(?:lock|map|svg|pyc|so|whl|png|jpe?g|gif|pdf|zip|gz|ipynb|csv|jsonl|min\.js|min\.css)$|(?:^|/)package-lock\.json$",
    re.IGNORECASE,
)
_LESS_WEIGHT = re.compile(
    r"(?:^|/)(?:tests?|testing|__tests__|fixtures|testdata|bench(?:marks)?)/|(?:^|/)(?:test_[^/]*|[^/]*_test\.\w+)$"
    r"|(?:^|/)(?:change(?:s|log)|history|news|todo|authors|licen[cs]e|copying)[^/]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    paths: tuple[str, ...] = ()
    """Folders or files of the workspace; `.` is all of it."""
    only_documents: bool = False
    urls: tuple[str, ...] = ()
    web: bool = False
    without: tuple[str, ...] = ()
    """Paths that are left out: `!specs`."""

    @classmethod
    def parse(cls, sources: Sequence[str], urls: Sequence[str]) -> "Places":
        """`urls`: addresses in the question. Without sources: the files of the project."""
        given = [one.strip() for one in sources if one.strip()]
        without = tuple(filter(None, (one[1:].strip("/") for one in given if one.startswith("!"))))
        named = [_ALIASES.get(one, one).removeprefix("docs:") for one in given if not one.startswith("!")]
        pages = [one for one in named if one.lower().startswith(("http://", "https://"))]
        paths = [one for one in named if one not in KINDS and one not in pages]
        if strange := next((path for path in paths if "\0" in path or "://" in path), ""):
            raise unknown_source(strange)
        is_local = DOCS in named or FILES in named or not named
        return cls(
            paths=tuple(dict.fromkeys([*["."] * is_local, *(path.rstrip("/") or path for path in paths)])),
            only_documents=DOCS in named and FILES not in named,
            urls=tuple(dict.fromkeys([*urls, *pages])),
            web=WEB in named,
            without=without,
        )

    def names(self) -> list[str]:
        return [*self.paths, *self.urls, *(["the web"] if self.web else [])]

    def includes(self, path: str) -> bool:
        """With `docs`: files in documentation folders, documents at the top, and everything below a named folder."""
        if any(_is_below(path, one) for one in self.without):
            return False
        if not self.only_documents or any(_is_below(path, one) for one in self.paths if one != "."):
            return True
        *folders, name = path.split("/")
        return bool(_DOCUMENT_FOLDERS & {folder.lower() for folder in folders}) or (not folders and _is_prose(name))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def unknown_source(source: str) -> Misused:
    return Misused(
        f"sources: {source[:80]!r} is neither a kind of source nor a path in the project.",
        code="INVALID_PARAMETERS",
        advice=f"Use {', '.join(KINDS)}, a path that exists, or an http(s) address.",
    )


def file_weight(path: str) -> float:
    """Weight of a file as a source, by its name: prose a little more than code, tests and changelogs less; 0 is not read."""
    if _SKIPPED.search(path):
        return 0.0
    return (1.0 if _is_prose(path) else 0.9) * (0.7 if _LESS_WEIGHT.search(path) else 1.0)


def _is_prose(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in PROSE_SUFFIXES


class Gatherer:
    def __init__(self, ctx: Context, places: Places | None = None, kept_for_writing: float = 0.0) -> None:
        self._ctx = ctx
        self._places = places or Places()
        self._kept_seconds = min(_KEPT_SECONDS, _KEPT_SHARE * ctx.remaining) + min(kept_for_writing, 0.25 * ctx.remaining)
        self.children = 0
        """Started, and not refused."""
        self._asked = 0
        self.failures: list[str] = []
        self.errors: list[ErrorInfo] = []
        self.ran_out_of_time = False
        self.queries: list[str] = []
        self.web_queries: list[str] = []
        self.documents: dict[str, Document] = {}
        self.listed: list[str] = []
        """Readable files of the places."""
        self._tried: set[str] = set()
        self._characters = 0

    @property
    def is_over(self) -> bool:
        return self._ctx.hand_in or self._asked >= MAX_CHILDREN or self._ctx.remaining < self._kept_seconds

    async def _ask(self, requests: Sequence[tuple[str, dict[str, Any]]], what: str) -> list[Return | None]:
        """In batches, so that answers are kept if time runs out."""
        answers: list[Return | None] = []
        for start in range(0, len(requests), AT_ONCE):
            batch = requests[start : start + AT_ONCE][: max(0, MAX_CHILDREN - self._asked)]
            if self.is_over or not batch:
                is_late = self._asked < MAX_CHILDREN
                self.ran_out_of_time = self.ran_out_of_time or is_late
                why = "because of the time limit" if is_late else f"for want of workers (at most {MAX_CHILDREN})"
                self.failures.append(f"{what}: {len(requests) - start} of {len(requests)} not done, {why}")
                break
            self._asked += len(batch)
            given = await self._ctx.gather(*(self._call(agent, parameters) for agent, parameters in batch), limit=AT_ONCE)
            self.children += sum(one.stop_reason is not StopReason.REFUSED for one in given)
            answers += given
        return answers + [None] * (len(requests) - len(answers))

    def _call(self, agent: str, parameters: dict[str, Any]) -> Request:
        before_hand_in = self._ctx.remaining - 30.0 if self._ctx.remaining > 90 else 0.65 * (self._ctx.remaining - self._kept_seconds)
        return call(agent, parameters=parameters, timeout=max(0.3, min(_CHILD_SECONDS, before_hand_in)))

    def _data(self, answer: Return | None, what: str) -> dict[str, Any]:
        """Empty without an answer."""
        if answer is not None and answer.status is not Status.COMPLETED:
            first = answer.errors[0] if answer.errors else None
            reason, advice = (answer.summary, "") if first is None else (first.message, first.recommendation)
            self.errors += answer.errors[:1]
            self.failures.append(f"{what}: {reason}" + (f" ({advice})" if advice and answer.status is Status.BLOCKED else ""))
        return answer.data if answer is not None and isinstance(answer.data, dict) else {}

    async def look_over(self, path: str) -> bool:
        """List the files below `path`; False if it is not a folder. A missing path is the caller's mistake."""
        self._ctx.progress(f"Listing {path}")
        # A named folder is searched even if git ignores it.
        asked = {"path": path, "max_results": MAX_LISTED, "include_ignored": path != "."}
        (answer,) = await self._ask([("worker.list_files", asked)], "Listing")
        if answer is None:
            return True
        if answer.errors and answer.errors[0].code == "FILE_NOT_FOUND":
            raise unknown_source(path)
        data = answer.data if isinstance(answer.data, dict) else {}
        if "entries" not in data:
            return False
        below = "" if path == "." else f"{path}/"
        files = (entry["path"] for entry in data["entries"] if entry.get("type", "file") == "file")
        self.listed += [one for one in files if self._places.includes(one) and file_weight(one.removeprefix(below))]
        if data.get("truncated"):
            self.failures.append(f"listing of {path}: there are more files than were listed")
        return True

    async def search(self, wanted: Mapping[str, str], paths: Sequence[str]) -> dict[str, Counter[str]]:
        """Regular expressions by name, searched in the files below the paths: how many lines of each file match."""
        jobs = [(name, path, pattern) for name, pattern in wanted.items() for path in paths]
        self.queries += [name for name in wanted if name not in self.queries]
        limits = {"regex": True, "max_results": MAX_MATCHES}
        requests = [
            ("worker.search_files", {"path": path, "pattern": pattern, "include_ignored": path != ".", **limits})
            for _, path, pattern in jobs
        ]
        self._ctx.progress(f"Searching files for {', '.join(list(wanted)[:6])}")
        found: dict[str, Counter[str]] = {name: Counter() for name in wanted}
        known = set(self.listed)
        for (name, path, _), answer in zip(jobs, await self._ask(requests, "Searching files"), strict=True):
            data = self._data(answer, f"search {path} for {name}")
            found[name].update(match["path"] for match in data.get("matches", ()) if match["path"] in known)
        return found

    async def _texts(self, agent: str, asked: Mapping[str, dict[str, Any]], key: str, what: str) -> list[tuple[str, dict[str, Any]]]:
        """Sources that were not tried before and contain text, with what their workers returned."""
        wanted = {name: parameters for name, parameters in asked.items() if name not in self._tried}
        self._tried.update(wanted)
        found = []
        for name, answer in zip(wanted, await self._ask([(agent, one) for one in wanted.values()], what), strict=True):
            data = self._data(answer, f"{what.lower()} {name}")
            if str(data.get(key) or "").strip() and data.get("encoding") != "base64":
                found.append((name, data))
            elif answer is not None and answer.status is Status.COMPLETED:
                self.failures.append(f"{what.lower()} {name}: it has no text")
        return found

    async def read(self, paths: Iterable[str]) -> None:
        asked = {path: {"path": path, "limit": FILE_BYTES} for path in paths}
        for path, data in await self._texts("worker.read_file", asked, "content", "Read"):
            self._characters += len(data["content"])
            if self._characters > MAX_CHARACTERS or data.get("truncated"):
                self.failures.append(f"{path}: not all of it is read; {MAX_CHARACTERS:,} characters of all files are")
            if self._characters <= MAX_CHARACTERS:
                date = str(data.get("modifiedAt") or "")
                self.documents[path] = Document(kind="file", name=path, text=data["content"], date=date, weight=file_weight(path) or 0.5)

    async def fetch(self, urls: Iterable[str]) -> None:
        for url, data in await self._texts("worker.web_fetch", {url: {"url": url} for url in urls}, "text", "Fetch"):
            links = tuple((str(link["url"]), str(link.get("text") or "")) for link in data.get("links") or () if link.get("url"))
            address = str(data.get("finalUrl") or url)
            self._tried.add(address)
            self.documents[address] = Document(
                kind="page", name=address, title=str(data.get("title") or ""), text=str(data["text"]), date=str(data.get("date") or ""),
                fetched=str(data.get("fetchedAt") or ""), links=links,
            )  # fmt: skip

    async def search_web(self, queries: Sequence[str]) -> list[str]:
        """Addresses, best first: one of each query in turn."""
        self.web_queries += queries
        self._ctx.progress(f"Searching the web for {queries[0]}")
        answers = await self._ask([("worker.web_search", {"query": query}) for query in queries], "Searching the web")
        found = [self._data(answer, f"search the web for {query!r}") for query, answer in zip(queries, answers, strict=True)]
        turns = zip_longest(*(data.get("results", ()) for data in found), fillvalue={})
        return list(dict.fromkeys(str(result["url"]) for turn in turns for result in turn if result.get("url")))
