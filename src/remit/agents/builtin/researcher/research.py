"""`researcher.deep_research`: from a question to a report, in rounds. Search, read, rank, follow leads, write."""

import math
import re
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from remit.agents.builtin.researcher.findings import Result, weigh_up
from remit.agents.builtin.researcher.gathering import Gatherer, Hits
from remit.agents.builtin.researcher.leads import Leads, definition_pattern, leads
from remit.agents.builtin.researcher.passages import CODE, Document
from remit.agents.builtin.researcher.planning import planned
from remit.agents.builtin.researcher.question import Asks, Question, Term
from remit.agents.builtin.researcher.report import Searched, as_data, report
from remit.agents.builtin.researcher.returning import answered
from remit.agents.builtin.researcher.sources import DOCUMENTS, Places
from remit.agents.builtin.researcher.words import forms, stems
from remit.agents.builtin.researcher.writing import answer
from remit.agents.builtin.researcher.written import Written
from remit.flow.context import Context
from remit.models.optional import Writes

MOST_FILES = 28
"""Read in the first round."""
MOST_SEARCHES = 18
KEPT_FOR_WRITING = 60.0
"""Seconds, or a quarter of all there are: kept for a model that writes."""
_DOCUMENTS_GLOB = "*.{md,rst,adoc,txt}"
MOST_PAGES = 8
_BEST = 12
_SHARE_FOR_RANKING = 0.6
_RANKED_A_SECOND = 400_000
"""Characters, on a machine that has other things to do; a third of what it does alone."""


class Research:
    def __init__(self, ctx: Context, question: Question, max_depth: int, where: Places, models: Writes | None = None) -> None:
        """`models`: None where no model is configured. Then nothing is asked of one, and nothing said about it."""
        self._ctx = ctx
        self._question = question
        self._models = models
        self._warnings: list[str] = []
        self._planned_by = ""
        self._max_depth = max_depth
        self._places = where
        self._gatherer = Gatherer(ctx, kept_for_writing=KEPT_FOR_WRITING if models is not None else 0.0)
        self._gatherer.failures += where.unknown
        self._gatherer.without = where.without
        self._began = time.monotonic()
        self._searched = Searched(max_depth=max_depth, places=[*where.paths, *where.urls, *(["the web"] if where.web else [])])
        self._expansion: tuple[Term, ...] = ()
        self._folders: list[str] = []
        self._report = ctx.scratch / "report.md"

    async def run(self) -> dict[str, Any]:
        self._write(Result(question=self._question), is_final=False)
        self._ctx.artifact(self._report, "report", "The answer, with every sentence quoted and its source named.")
        await self._plan()
        await self._first_round()
        self._write(Result(question=self._question), is_final=False)
        result = self._weigh(1)
        for depth in range(2, self._max_depth + 1):
            if self._gatherer.is_over or not await self._follow(result, depth):
                break
            result = self._weigh(depth)
        self._write(result, is_final=True)
        written = await self._worded(result)
        data = {**as_data(result, self._searched), **self._told(written)}
        return answered(result, self._searched, data, self._gatherer, written)

    async def _plan(self) -> None:
        if self._models is None:
            return
        plan = await planned(self._models, self._ctx, self._question)
        self._question, self._planned_by = plan.question, plan.by
        if plan.fault:
            self._warnings.append(f"No model planned the questions: {plan.fault}.")

    async def _worded(self, result: Result) -> Written | None:
        """The answer in words; what was quoted is in the report already, should time run out meanwhile."""
        if self._models is None or not result.citations:
            return None
        attempt = await answer(self._models, self._ctx, self._question.text, result.citations)
        if attempt.fault:
            self._warnings.append(f"No model wrote the answer, so it is quoted: {attempt.fault}.")
        self._write(result, is_final=True, written=attempt.written)
        return attempt.written

    def _told(self, written: Written | None) -> dict[str, Any]:
        """What `data` holds beside the quotations where a model was asked."""
        if self._models is None:
            return {}
        told: dict[str, Any] = {"questions": [part.text for part in self._question.parts], "plannedBy": self._planned_by or "rule"}
        return {**told, **(written.to_data() if written is not None else {}), "warnings": self._warnings}

    async def _first_round(self) -> None:
        where, gatherer = self._places, self._gatherer
        if where.paths:
            await self._look_through_files()
        if where.urls:
            await gatherer.fetch(where.urls, 0)
        if where.web and not gatherer.is_over:
            found = await gatherer.search_web([part.text for part in self._question.parts[:3]])
            await gatherer.fetch(found[:MOST_PAGES], 0)

    async def _look_through_files(self) -> None:
        gatherer = self._gatherer
        folders = self._folders
        alone: list[str] = []
        for path in self._places.paths:
            (folders if await gatherer.look_over(path) else alone).append(path)
        within = gatherer.listed if not self._places.only_documents else [p for p in gatherer.listed if _is_document(p, self._places.paths)]
        self._searched.files_listed = len({*within, *alone})
        await gatherer.read(alone, 0, dict.fromkeys(alone, 1 << 60))
        if not folders:
            return
        wanted = patterns(self._question, MOST_SEARCHES // min(len(folders), MOST_SEARCHES))
        found = await gatherer.search(wanted, folders)
        lost = {term.word: among(term.alike) for term in self._question.terms if term.alike and not found.get(term.word, Hits()).lines}
        if lost and not gatherer.is_over:
            found |= {f"{name} (words like it)": hits for name, hits in (await gatherer.search(lost, folders)).items()}
        frequent = {name: wanted[name] for name, hits in found.items() if hits.truncated and name in wanted}
        if frequent and not gatherer.is_over:  # what stands everywhere is looked for once more where it is explained
            for name, hits in (await gatherer.search(frequent, folders, _DOCUMENTS_GLOB)).items():
                found[name].lines |= hits.lines
        best = self._best_files(found)
        last = {path: max(hits.lines[path]) for hits in found.values() for path in hits.lines}
        await gatherer.read(best[:MOST_FILES], 0, last)

    def _best_files(self, found: dict[str, Hits]) -> list[str]:
        """Files that hold most of the rarest words, close together if they can; documents before code, and code before the rest."""
        total = max(len(self._gatherer.listed), 20)
        scores: dict[str, float] = {}
        for name, hits in found.items():
            rarity = math.log(1 + total / (1 + len(hits.lines))) * (1.5 if name.startswith(("together", "definition")) else 1.0)
            rarity *= 0.3 if hits.truncated else 1.0  # it stands in many more than were told
            for path, lines in hits.lines.items():
                scores[path] = scores.get(path, 0.0) + rarity * (1 + 0.25 * math.log(len(lines)))
        named = {term.stem for term in self._question.terms}
        for path in self._gatherer.listed:
            if (hit := len(named & set(stems(path.rpartition("/")[2])))) and (path in scores or not found):
                scores[path] = scores.get(path, 0.0) + 1.5 * hit
        if self._places.only_documents:
            scores = {path: score for path, score in scores.items() if _is_document(path, self._places.paths)}
        worth = {path: self._gatherer.worth(path) for path in scores}
        return sorted((path for path in scores if worth[path]), key=lambda path: (-scores[path] * worth[path], path))

    def _weigh(self, depth: int) -> Result:
        searched = self._searched
        documents = self._affordable()
        self._ctx.progress(f"Ranking what stands in {len(documents)} sources")
        result, self._index = weigh_up(self._question, documents, self._expansion)
        searched.depth, searched.sentences = depth, len(self._index.sentences)
        self._write(result, is_final=False)
        return result

    def _affordable(self) -> list[Document]:
        """What can be ranked in the time there is: the sources that promise most were read first."""
        documents = list(self._gatherer.documents.values())
        room = _SHARE_FOR_RANKING * self._ctx.remaining * _RANKED_A_SECOND
        chosen = [one for one, total in zip(documents, accumulate(len(one.text) for one in documents), strict=True) if total <= room]
        chosen = chosen or documents[:1]
        if len(chosen) < len(documents):
            self._gatherer.cut_short.append(f"{len(documents) - len(chosen)} of {len(documents)} sources not weighed, for want of time")
        return chosen

    async def _follow(self, result: Result, depth: int) -> bool:
        """One round of leads; False when there is nothing to follow."""
        gatherer = self._gatherer
        found: Leads = leads(self._question, result.best[:_BEST], self._index, filter(gatherer.worth, gatherer.listed), gatherer.documents)
        self._expansion = found.words
        before = len(gatherer.documents)
        self._searched.leads += [lead for lead in (*found.files, *found.names, *found.urls) if lead not in self._searched.leads]
        if found:
            self._ctx.progress(f"Following leads: {', '.join((*found.names, *found.files, *found.urls)[:5])}")
        await gatherer.fetch(found.urls, depth - 1)
        files = list(found.files)
        folders = self._folders
        if found.names and folders and not gatherer.is_over:
            hits = await gatherer.search({f"where {', '.join(found.names)} are defined": definition_pattern(found.names)}, folders)
            spread = [(len(lines), path) for one in hits.values() for path, lines in one.lines.items() if gatherer.worth(path) >= 0.5]
            files += [path for _, path in sorted(spread, key=lambda pair: (-pair[0] * gatherer.worth(pair[1]), pair[1]))[:6]]
        if self._places.only_documents:
            files = [path for path in files if _is_document(path, self._places.paths)]
        await gatherer.read(files, depth - 1)
        return len(gatherer.documents) > before

    def _write(self, result: Result, *, is_final: bool, written: Written | None = None) -> None:
        gatherer, searched = self._gatherer, self._searched
        searched.queries, searched.web_queries = gatherer.queries, gatherer.web_queries
        searched.files = [d.name for d in gatherer.documents.values() if d.kind == "file"]
        searched.pages = [d.name for d in gatherer.documents.values() if d.kind == "page"]
        searched.failures, searched.cut_short, searched.children = gatherer.failures, gatherer.cut_short, gatherer.children
        searched.ran_out_of_time = gatherer.ran_out_of_time
        searched.seconds = time.monotonic() - self._began
        text = report(result, searched, is_final=is_final, written=written, warnings=self._warnings)
        self._report.write_text(text, encoding="utf-8")


def patterns(question: Question, most: int) -> dict[str, str]:
    """What to look for, by its name for people: each word in its forms, what is quoted as it stands, and pairs of words on one line."""
    terms = question.terms
    wanted = {term.word: _pattern(forms(term.stem)) for term in terms}
    for part in question.parts:
        for phrase in part.phrases:
            wanted.setdefault(f"“{phrase}”", "(?i)" + r"\s+".join(re.escape(word) for word in phrase.split()))
    defined = [term for part in question.parts if part.asks is Asks.DEFINITION for term in part.terms[:2]]
    if defined:
        either = "|".join(_one(term) for term in defined)
        pattern = rf"(?i)^\W*(?:an? |the )?(?:{either})\w*\W*(?:\||:| – | — | is | are | means )"
        wanted = {f"definition of {', '.join(term.word for term in defined)}": pattern, **wanted}
    if names := _defining(question):
        wanted = {f"definitions of {', '.join(term.word for term in terms[:6])}": names, **wanted}
    pairs = [(one, other) for part in question.parts for one, other in zip(part.terms, part.terms[1:], strict=False)][:6]
    if pairs:
        both = [f"{_one(a)}.{{0,60}}{_one(b)}|{_one(b)}.{{0,60}}{_one(a)}" for a, b in pairs]
        wanted = {f"together: {', '.join(f'{a.word} {b.word}' for a, b in pairs)}": "(?i)" + "|".join(both), **wanted}
    return dict(list(wanted.items())[: max(1, most)])


def _defining(question: Question) -> str:
    """Where something is defined whose name the question holds, or whose name is made of two of its words."""
    names = [phrase.rpartition(".")[2] for part in question.parts for phrase in part.phrases if phrase.isidentifier() or "." in phrase]
    words = "|".join(re.escape(form) for term in question.terms for form in forms(term.stem) if len(form) > 2 and form.isascii())
    either = [re.escape(name) for name in names if name] + ([rf"\w*(?:{words})\w*(?:{words})\w*"] if words else [])
    if not either:
        return ""
    name = "|".join(either)
    keywords = "def|class|func|fn|function|struct|interface|enum|trait|type|const"
    return rf"(?i)\b(?:{keywords})\s+(?:{name})\b|^\s*(?:[\w.]+\.)?(?:{name})\s*(?::[^=]+)?=[^=]"


def among(stemmed: frozenset[str]) -> str:
    return _pattern([form for word in sorted(stemmed) for form in forms(word)])


def _one(term: Term) -> str:
    return rf"(?:\b|_)(?:{'|'.join(re.escape(form) for form in forms(term.stem))})"


def _pattern(beginnings: Sequence[str]) -> str:
    """Words that begin so, also inside of identifiers (`kill_orphans`, `KillOrphans`); short ones only as whole words."""
    long = "|".join(re.escape(one) for one in beginnings if len(one) > 3)
    short = "|".join(re.escape(one) for one in beginnings if len(one) <= 3)
    humps = "|".join(re.escape(one.capitalize()) for one in beginnings if len(one) > 3 and one.isascii())
    alternatives = [rf"(?i:(?:\b|_)(?:{long}))"] if long else []
    alternatives += [rf"(?:{humps})"] if humps else []
    alternatives += [rf"(?i:(?:\b|_)(?:{short})(?:s|es)?(?:\b|_))"] if short else []
    return "|".join(alternatives)


def _is_document(path: str, named: Sequence[str]) -> bool:
    """What `docs` means: files of documentation folders and documents at the top, and all below folders that were named."""
    if any(path == folder or path.startswith(f"{folder}/") for folder in named if folder != "."):
        return True
    suffix = f".{path.rpartition('.')[2].lower()}" if "." in path else ""
    in_folder = any(part.lower() in DOCUMENTS for part in path.split("/")[:-1])
    return in_folder or ("/" not in path and suffix not in CODE and suffix in (".md", ".rst", ".txt", ".adoc", ""))
