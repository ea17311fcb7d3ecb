"""`deep_research`, from a question to a report in rounds (search, read, rank, follow links, write), and `synthesize_sources`."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

from remit.builtin.researcher.passages import Document
from remit.builtin.researcher.relevance import Index, Part, RankedPassage, Words
from remit.builtin.researcher.reports import (
    Citation,
    Citations,
    Result,
    Synthesis,
    WrittenAnswer,
    amount_read,
    research_report,
    write,
)
from remit.builtin.researcher.sources import Gatherer, Places, file_weight
from remit.builtin.worker.workspace import error_dict
from remit.core.context import Context
from remit.core.errors import Misused
from remit.core.text import one_line, plural
from remit.models.questions import TextModel

MAX_FILES = 28
"""Read after the search."""
MAX_SEARCHES = 18
MAX_WEB_PAGES = 8
IN_ANSWER, IN_FINDING, NEAREST = 4, 8, 4
KEPT_FOR_WRITING = 60.0
"""Seconds, or a quarter of all, reserved for a model that writes."""
MAX_SOURCES = 40
QUOTED_PASSAGES = 8
"""Of each source, in a synthesis."""
_NEAR = 0.25
_KEEPS_UP = 0.5
"""A passage below this share of the best score is not part of the answer."""
_DEFINING = "def|class|func|fn|function|struct|interface|enum|trait|type"
_MISSING_TOOL = ("TOOL_UNAVAILABLE", "POLICY_DENIED", "AGENT_UNAVAILABLE")


@dataclass(slots=True)
class Research:
    _ctx: Context
    _query: str
    _parts: tuple[Part, ...]
    _max_depth: int
    _places: Places
    _words: Words
    _models: TextModel | None
    """None if no model is configured; then none is used or mentioned."""
    _warnings: list[str] = field(default_factory=list)
    _depth: int = 0
    _gatherer: Gatherer = field(init=False)
    _report: Path = field(init=False)

    def __post_init__(self) -> None:
        self._gatherer = Gatherer(self._ctx, self._places, KEPT_FOR_WRITING if self._models is not None else 0.0)
        self._report = self._ctx.scratch / "report.md"

    async def run(self) -> dict[str, Any]:
        result, written = Result(query=" ".join(self._query.split())), None
        folders = [path for path in self._places.paths if await self._gatherer.look_over(path)]
        self._write(result)
        self._ctx.artifact(self._report, "report", "The answer, with quotations and their places.")
        await self._first_round(folders)
        for depth in range(1, self._max_depth + 1):
            if depth > 1 and (self._gatherer.is_over or not await self._follow_links(result)):
                break
            self._depth, result = depth, self._rank()
            self._write(result)
        if self._models is not None and result.citations:
            written, fault = await write(self._models, self._ctx, result.citations, "answer", self._query)
            self._warnings += [f"No model wrote the answer, so it is quoted: {fault}."] if fault else []
        self._write(result, written)
        data = result.data(self._describe_search())
        if self._models is not None:
            data |= {**(written.to_data() if written is not None else {}), "warnings": self._warnings}
        return self._build_return(result, data, written)

    async def _first_round(self, folders: Sequence[str]) -> None:
        gatherer = self._gatherer
        await gatherer.read(path for path in self._places.paths if path not in folders)
        if folders and self._parts:
            found = await gatherer.search(self._patterns(MAX_SEARCHES // min(len(folders), MAX_SEARCHES)), folders)
            await gatherer.read(self._best_files(found)[:MAX_FILES])
        await gatherer.fetch(self._places.urls)
        if self._places.web and not gatherer.is_over:
            await gatherer.fetch((await gatherer.search_web([part.text for part in self._parts[:3]]))[:MAX_WEB_PAGES])

    def _patterns(self, most: int) -> dict[str, str]:
        """Search patterns: identifiers literally, their definitions, and each word by its stem."""
        identifiers = dict.fromkeys(name for part in self._parts for name in part.identifiers)
        wanted = {f"“{name}”": "(?i)" + r"\s+".join(map(re.escape, name.split())) for name in identifiers}
        if either := "|".join(re.escape(re.split(r"\.|::", name)[-1]) for name in identifiers if " " not in name):
            defined = rf"\b(?:{_DEFINING})\s+(?:{either})\b|^\s*(?:[\w.]+\.)?(?:{either})\s*(?::[^=]+)?=[^=]"
            wanted = {f"definitions of {', '.join(identifiers)}": defined, **wanted}
        for word in (word for part in self._parts for word in part.words):
            stem = self._words.stem(word).removesuffix("i")  # the stem of "proxy" is "proxi"
            wanted.setdefault(word, f"(?i){re.escape(stem)}" if len(stem) > 3 else rf"(?i)(?:\b|_){re.escape(word)}s?(?:\b|_|\d)")
        return dict(list(wanted.items())[: max(1, most)])

    def _best_files(self, found: Mapping[str, Counter[str]]) -> list[str]:
        """Files with most of the rarest words first; file names count too."""
        total = max(len(self._gatherer.listed), 20)
        scores: defaultdict[str, float] = defaultdict(float)
        for name, hits in found.items():
            rarity = math.log(1 + total / (1 + len(hits))) * (1.5 if name.startswith("definitions") else 1.0)
            for path, lines in hits.items():
                scores[path] += rarity * (1 + 0.25 * math.log(lines))
        for path in scores:
            scores[path] += 1.5 * len(self._asked_stems() & self._words.stems(path.rpartition("/")[2]))
        return sorted(scores, key=lambda path: (-scores[path] * (file_weight(path) or 0.5), path))

    def _asked_stems(self) -> set[str]:
        return {self._words.stem(word) for part in self._parts for word in part.words}

    def _rank(self) -> Result:
        documents = list(self._gatherer.documents.values())
        self._ctx.progress(f"Ranking the passages of {plural(len(documents), 'source')}")
        index = Index(documents, self._words)
        result, citations = Result(query=" ".join(self._query.split())), Citations()
        further: list[tuple[dict[str, Any], list[RankedPassage]]] = []
        for part in self._parts:
            ranked = index.rank(part)
            near = [one for one in ranked if one.is_supported]
            own = index.choose(near or [one for one in ranked if one.coverage >= _NEAR], IN_FINDING if near else NEAREST)
            best = [one for one in own if one.is_supported and one.score >= _KEEPS_UP * own[0].score]
            quoted = [citations.cite(one.passage) for one in best[: IN_ANSWER if len(self._parts) == 1 else 2]]
            result.answer += [one for one in quoted if one not in result.answer]
            result.missing[part.text] = [word for word in part.words if not index.has(word)]
            further.append(({"question": part.text, "supported": bool(near)}, own))
        for finding, own in further:
            sentences = [{**citations.cite(one.passage).quoted(), "score": one.score, "coverage": one.coverage} for one in own]
            result.findings.append({**finding, "sentences": sentences})
        result.citations = citations
        return result

    async def _follow_links(self, result: Result) -> bool:
        """One round: links of the quoted pages that share a word with the question. False if nothing is new."""
        scores: dict[str, float] = {}
        asked = self._asked_stems()
        for page in {citation.passage.document.name: citation.passage.document for citation in result.citations}.values():
            for address, text in page.links:
                url = urldefrag(address)[0]
                shared = len(asked & self._words.stems(f"{text} {urlsplit(url).path}"))
                if shared and url not in self._gatherer.documents and urlsplit(url).scheme in ("http", "https"):
                    scores[url] = shared + 0.5 * (urlsplit(url).netloc == urlsplit(page.name).netloc)
        urls = sorted(scores, key=lambda url: (-scores[url], url))[:MAX_WEB_PAGES]
        await self._gatherer.fetch(urls)
        return bool(urls)

    def _describe_search(self) -> dict[str, Any]:
        """The searched sources, for the report and for `data`."""
        gatherer = self._gatherer
        documents = gatherer.documents.values()
        return {
            "places": self._places.names(),
            "maxDepth": self._max_depth,
            "depth": self._depth,
            "filesListed": len({*gatherer.listed, *(one.name for one in documents if one.kind == "file")}),
            "queries": gatherer.queries,
            "webQueries": gatherer.web_queries,
            "files": [one.name for one in documents if one.kind == "file"],
            "pages": [one.name for one in documents if one.kind == "page"],
            "children": gatherer.children,
            "failures": gatherer.failures,
        }

    def _write(self, result: Result, written: WrittenAnswer | None = None) -> None:
        text = research_report(result, self._describe_search(), written=written, warnings=self._warnings)
        self._report.write_text(text, encoding="utf-8")

    def _build_return(self, result: Result, data: dict[str, Any], written: WrittenAnswer | None) -> dict[str, Any]:
        gatherer, read = self._gatherer, amount_read(data["searched"])
        if not gatherer.documents and gatherer.errors:
            return _could_not_look(gatherer, data)
        errors = [_TIMEOUT] if gatherer.ran_out_of_time else []
        if written is not None and (said := written.summary()):
            summary = said
        elif result.answer:
            summary = f"Quotes the {plural(len(result.answer), 'passage')} of {read} with most of the question's words; whether they answer"
            summary += f" it is for you to judge. First: {one_line(result.answer[0].passage.place, 120)}."
        else:
            summary = f"No passage in {read} has enough of the question's words to answer it. The report lists what was searched."
            missing = sorted({word for words in result.missing.values() for word in words})
            message = summary + (f" Nowhere in it: {', '.join(missing[:8])}." if missing else "")
            advice = "Ask in the words of the sources, or name other sources: a folder, web, an address."
            errors = errors or [error_dict("not_found", "NOT_FOUND", message, advice)]
        summary += " Time ran out before everything was searched." if gatherer.ran_out_of_time else ""
        return _return("partial" if errors else "completed", summary, data, *errors)


async def synthesize(ctx: Context, given: Sequence[str | Mapping[str, Any]], layout: str, models: TextModel | None) -> dict[str, Any]:
    if not given or len(given) > MAX_SOURCES:
        raise Misused(f"sources: {len(given)} were given.", code="INVALID_PARAMETERS", advice=f"Give 1 to {MAX_SOURCES}.")
    is_json = layout == "json"
    path = ctx.scratch / ("report.json" if is_json else "report.md")
    path.write_text("{}\n" if is_json else "*In progress.*\n", encoding="utf-8")
    ctx.artifact(path, "data" if is_json else "report", f"What the sources say, as {layout}.")
    gatherer = Gatherer(ctx)
    documents = await _read_sources(gatherer, given)
    synthesis = _synthesis(documents, gatherer.failures)
    data, written = synthesis.data(layout), None

    def put() -> None:
        text = json.dumps(data, ensure_ascii=False, indent=2) + "\n" if is_json else synthesis.markdown(layout, written)
        path.write_text(text, encoding="utf-8")

    put()
    if models is not None and documents:
        written, fault = await write(models, ctx, _in_turn(synthesis), layout)
        data |= written.to_data() if written is not None else {}
        data["warnings"] = [f"No model wrote it, so it is quoted: {fault}."] if fault else []
        put()
    return _end_synthesis(synthesis, gatherer, data, written)


async def _read_sources(gatherer: Gatherer, given: Sequence[str | Mapping[str, Any]]) -> list[Document]:
    texts = [_inline(source, number) for number, source in enumerate(given, 1) if not isinstance(source, str)]
    named = [source.strip() for source in given if isinstance(source, str)]
    urls = [source for source in named if source.lower().startswith(("http://", "https://"))]
    await gatherer.read(source for source in named if source not in urls)
    await gatherer.fetch(urls)
    return [*gatherer.documents.values(), *texts]


def _inline(source: Mapping[str, Any], number: int) -> Document:
    text, title = source.get("text"), source.get("title") or f"Text {number}"
    if not isinstance(text, str) or not text.strip() or not isinstance(title, str):
        fault = f"sources: number {number} has no text, or an invalid title."
        raise Misused(fault, code="INVALID_PARAMETERS", advice='Give {"title": …, "text": …}, a path or an address.')
    return Document(kind="text", name=title, title=title, text=text, date=str(source.get("date") or ""))


def _synthesis(documents: Sequence[Document], failures: Sequence[str]) -> Synthesis:
    citations = Citations()
    same: defaultdict[str, list[Citation]] = defaultdict(list)
    for document in documents:
        for passage in document.passages[:QUOTED_PASSAGES]:
            same[" ".join(passage.text.split())].append(citations.cite(passage))
    single: dict[str, list[Citation]] = {document.name: [] for document in documents}
    for group in same.values():
        if len(group) == 1:
            single[group[0].passage.document.name] += group
    agreed = [group for group in same.values() if len(group) > 1]
    return Synthesis(documents=documents, agreed=agreed, single=single, citations=citations, failures=failures)


def _in_turn(synthesis: Synthesis) -> list[Citation]:
    """One passage of each source in turn, so that each is represented if not all fit."""
    turns = zip_longest([group[0] for group in synthesis.agreed], *synthesis.single.values())
    return [one for turn in turns for one in turn if one is not None]


def _end_synthesis(synthesis: Synthesis, gatherer: Gatherer, data: dict[str, Any], written: WrittenAnswer | None) -> dict[str, Any]:
    if not synthesis.documents:
        return _could_not_look(gatherer, data)
    summary = f"{plural(len(synthesis.documents), 'source')}: {plural(len(synthesis.citations), 'passage')} quoted."
    summary = (written.summary() if written is not None else "") or summary
    errors = [_TIMEOUT] if gatherer.ran_out_of_time else []
    if gatherer.failures:
        lost = f"{plural(len(gatherer.failures), 'source')} could not be read: {gatherer.failures[0]}"[:1000]
        errors = [error_dict("execution", "SOURCE_UNREAD", lost, "Check the path or the address, and ask again.")]
    return _return("partial", f"{summary} Not all were read.", data, *errors) if errors else _return("completed", summary, data)


def _return(status: str, summary: str, data: Mapping[str, Any], *errors: dict[str, Any]) -> dict[str, Any]:
    return {"status": status, "summary": summary, "data": data, "errors": errors, "artifacts": []}


_TIMEOUT = error_dict(
    "timeout", "TIMEOUT", "The soft deadline came before everything was searched.", "Use a longer timeout, or name fewer sources."
)


def _could_not_look(gatherer: Gatherer, data: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing could be read: the first worker's error. Blocked if a tool or a permission is missing."""
    first = error_dict("execution", "SOURCE_UNREAD", "No source could be read.", "Name other sources.")
    first = gatherer.errors[0].to_dict() if gatherer.errors else first
    status = "blocked" if first["code"] in _MISSING_TOOL else "failed"
    return _return(status, f"Nothing could be searched. {one_line(first['message'], 200)}", data, first)
