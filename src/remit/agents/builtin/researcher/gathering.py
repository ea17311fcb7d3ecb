"""Gathering: everything the researcher knows of the world comes through worker children, and this is where they are sent.

It opens no file and no socket itself, so the policy, the limits and the record hold for each look. Bounded: so many children in all, so
many at a time, each ending before the soft deadline. A child that fails is written down and loses nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.researcher.passages import Document, cut, worth_of
from remit.core.errors import ErrorInfo
from remit.core.result import Return, Status, StopReason
from remit.flow.context import Context
from remit.flow.request import Request, call

MOST_CHILDREN = 60
AT_ONCE = 8
PAGE_BYTES = 192 * 1024
MOST_MATCHES = 1500
MOST_LISTED = 5000
"""Both are kept with the child's delegation: enough to choose by, not more."""
MOST_CHARACTERS = 5_000_000
"""In all: what can be ranked in a few seconds and held in memory."""
MOST_PAGES = 4
"""Of one file."""
_CHILD_SECONDS = 30.0
_KEPT_SHARE, _KEPT_SECONDS = 0.4, 12.0
"""Of the time there was at first, and at most: kept for ranking and writing, which are worth more than one more file."""
_FOR_TIME = "for want of time"


@dataclass(slots=True)
class Hits:
    """Where one thing that was looked for stands."""

    lines: dict[str, list[int]] = field(default_factory=dict)
    """By path."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    truncated: bool = False


class Gatherer:
    def __init__(self, ctx: Context, kept_for_writing: float = 0.0) -> None:
        self._ctx = ctx
        self._kept_seconds = min(_KEPT_SECONDS, _KEPT_SHARE * ctx.remaining) + min(kept_for_writing, 0.25 * ctx.remaining)
        self.children = 0
        """That were sent, and not refused."""
        self._asked = 0
        self.failures: list[str] = []
        self.errors: list[ErrorInfo] = []
        """What those failures were, for a program."""
        self.queries: list[str] = []
        self.web_queries: list[str] = []
        self.documents: dict[str, Document] = {}
        self.listed: dict[str, Mapping[str, Any]] = {}
        """Files of the places that were looked at, by path."""
        self.without: tuple[str, ...] = ()
        """Folders and files that are nobody's source."""
        self.cut_short: list[str] = []
        self._tried: set[str] = set()
        self._characters = 0
        self._named: list[str] = []

    @property
    def is_over(self) -> bool:
        """No time or no children left: what there is must do."""
        return self._ctx.hand_in or self._asked >= MOST_CHILDREN or self._ctx.remaining < self._kept_seconds

    @property
    def ran_out_of_time(self) -> bool:
        return any(told.endswith(_FOR_TIME) for told in self.cut_short)

    async def _ask(self, requests: Sequence[tuple[str, dict[str, Any]]], what: str) -> list[Return | None]:
        """In batches, so that what was answered is kept when time runs out in between."""
        answers: list[Return | None] = []
        for start in range(0, len(requests), AT_ONCE):
            batch = requests[start : start + AT_ONCE][: max(0, MOST_CHILDREN - self._asked)]
            if self.is_over or not batch:
                self.cut_short.append(f"{what}: {len(requests) - start} of {len(requests)} not done, {self._want()}")
                break
            if len(requests) > AT_ONCE:
                self._ctx.progress(f"{what}: {start + 1} to {start + len(batch)} of {len(requests)}")
            self._asked += len(batch)
            given = await self._ctx.gather(*(self._call(agent, parameters) for agent, parameters in batch), limit=AT_ONCE)
            self.children += sum(one.stop_reason is not StopReason.REFUSED for one in given)
            answers += given
        return answers + [None] * (len(requests) - len(answers))

    def _want(self) -> str:
        return f"for want of workers (at most {MOST_CHILDREN})" if self._asked >= MOST_CHILDREN else _FOR_TIME

    def _call(self, agent: str, parameters: dict[str, Any]) -> Request:
        before_hand_in = self._ctx.remaining - 30.0 if self._ctx.remaining > 90 else 0.65 * (self._ctx.remaining - self._kept_seconds)
        return call(agent, parameters=parameters, timeout=max(0.3, min(_CHILD_SECONDS, before_hand_in)))

    def _data(self, answer: Return | None, what: str) -> dict[str, Any] | None:
        """What a child found; a failure is written down."""
        if answer is None:
            return None
        if answer.status is not Status.COMPLETED:
            reason = answer.errors[0].message if answer.errors else answer.summary
            advice = answer.errors[0].recommendation if answer.errors else ""
            self.errors += answer.errors[:1]
            self.failures.append(f"{what}: {reason}" + (f" ({advice})" if advice and answer.status is Status.BLOCKED else ""))
        return answer.data if isinstance(answer.data, dict) else None

    async def look_over(self, path: str) -> bool:
        """Which files there are below `path`; False where it is no folder that can be listed."""
        self._ctx.progress(f"Looking what there is in {path}")
        # Whoever names a folder means it, whether git ignores it or not.
        asked = {"path": path, "max_results": MOST_LISTED, "include_ignored": path != "."}
        (answer,) = await self._ask([("worker.list_files", asked)], "Listing")
        if answer is None:
            return True
        data = answer.data if isinstance(answer.data, dict) else {}
        if "entries" not in data:
            return False
        for entry in data["entries"]:
            if entry.get("type", "file") == "file" and not self._is_left_out(entry["path"]):
                self.listed[entry["path"]] = entry
        if path != ".":
            self._named.append(f"{path}/")
        if data.get("truncated"):
            self.cut_short.append(f"listing of {path}: there are more files than were listed")
        return True

    def worth(self, path: str) -> float:
        """Of a file in a folder that was named: by its name below that folder."""
        below = max((folder for folder in self._named if path.startswith(folder)), key=len, default="")
        return worth_of(path.removeprefix(below))

    def _is_left_out(self, path: str) -> bool:
        return any(path == out or path.startswith(f"{out}/") for out in self.without)

    async def search(self, wanted: Mapping[str, str], paths: Sequence[str], glob: str = "") -> dict[str, Hits]:
        """Regular expressions, by what they are for, in the contents of files below the paths; only of those whose name fits."""
        jobs = [(name, path, pattern) for name, pattern in wanted.items() for path in paths]
        self.queries += [name for name in wanted if name not in self.queries]
        limits = {"regex": True, "max_results": MOST_MATCHES, **({"glob": glob} if glob else {})}
        requests = [
            ("worker.search_files", {"path": path, "pattern": pattern, "include_ignored": path != ".", **limits})
            for _, path, pattern in jobs
        ]
        if requests:
            self._ctx.progress(f"Searching files for {', '.join(list(wanted)[:6])}")
        found: dict[str, Hits] = {name: Hits() for name in wanted}
        for (name, path, _), answer in zip(jobs, await self._ask(requests, "Searching files"), strict=True):
            data = self._data(answer, f"search {path} for {name}") or {}
            hits = found[name]
            hits.truncated |= bool(data.get("truncated"))
            for match in data.get("matches", ()):
                if self._is_left_out(match["path"]):
                    continue
                hits.lines.setdefault(match["path"], []).append(int(match["line"]))
                hits.texts.setdefault(match["path"], []).append(str(match.get("text", "")))
        return found

    async def read(self, paths: Iterable[str], depth: int, last_lines: Mapping[str, int] | None = None) -> None:
        """Files, each as far as something was found in it (`last_lines`), made into documents."""
        wanted = [path for path in dict.fromkeys(paths) if path not in self._tried]
        self._tried.update(wanted)
        texts: dict[str, str] = dict.fromkeys(wanted, "")
        offsets: dict[str, int] = dict.fromkeys(wanted, 0)
        dates: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            if not offsets:
                break
            requests = [("worker.read_file", {"path": path, "offset": offset, "limit": PAGE_BYTES}) for path, offset in offsets.items()]
            answers = await self._ask(requests, "Reading files")
            following: dict[str, int] = {}
            for (path, offset), answer in zip(list(offsets.items()), answers, strict=True):
                data = self._data(answer, f"read {path}")
                if data is None or not isinstance(data.get("content"), str) or data.get("encoding") in ("base64", "binary"):
                    continue
                texts[path] += data["content"]
                dates[path] = str(data.get("modifiedAt") or "")
                more = data.get("nextOffset") if data.get("truncated") else None
                if more and more > offset and texts[path].count("\n") < (last_lines or {}).get(path, 0):
                    following[path] = more
            offsets = following
        for path, text in texts.items():
            if self._characters > MOST_CHARACTERS:
                self.cut_short.append(
                    f"{path} was read but not ranked: the sources before it hold more than {MOST_CHARACTERS:,} characters"
                )
            elif text.strip():
                self._characters += len(text)
                self._keep_file(path, text, dates.get(path, ""), depth)

    def _keep_file(self, path: str, text: str, date: str, depth: int) -> None:
        self.documents[path] = Document(
            kind="file", name=path, title="", text=text, date=date, worth=self.worth(path) or 0.3, depth=depth, passages=cut(text, path)
        )

    async def fetch(self, urls: Iterable[str], depth: int) -> None:
        wanted = [url for url in dict.fromkeys(urls) if url not in self._tried]
        self._tried.update(wanted)
        if wanted:
            self._ctx.progress(f"Fetching {wanted[0]}" + (f" and {len(wanted) - 1} more" if len(wanted) > 1 else ""))
        for url, answer in zip(wanted, await self._ask([("worker.web_fetch", {"url": url}) for url in wanted], "Fetching"), strict=True):
            data = self._data(answer, f"fetch {url}")
            if data is not None and str(data.get("text") or "").strip():
                self._keep_page(url, data, depth)

    def _keep_page(self, url: str, data: Mapping[str, Any], depth: int) -> None:
        text, address = str(data["text"]), str(data.get("finalUrl") or url)
        links = tuple((str(link["url"]), str(link.get("text") or "")) for link in data.get("links") or () if link.get("url"))
        self._tried.add(address)
        self.documents[address] = Document(
            kind="page", name=address, title=str(data.get("title") or ""), text=text, date=str(data.get("date") or ""),
            fetched=str(data.get("fetchedAt") or ""), depth=depth, links=links, passages=cut(text, "x.page"),
        )  # fmt: skip

    async def search_web(self, queries: Sequence[str]) -> list[str]:
        """Addresses that answer the queries, best first, one of each query in turn."""
        self.web_queries += queries
        self._ctx.progress(f"Searching the web for {queries[0]}")
        lists = []
        for query, answer in zip(
            queries, await self._ask([("worker.web_search", {"query": q}) for q in queries], "Searching the web"), strict=True
        ):
            data = self._data(answer, f"search the web for {query!r}") or {}
            lists.append([str(result["url"]) for result in data.get("results", ()) if result.get("url")])
        turns = max((len(urls) for urls in lists), default=0)
        return list(dict.fromkeys(urls[turn] for turn in range(turns) for urls in lists if turn < len(urls)))
