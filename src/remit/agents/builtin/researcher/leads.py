"""Leads: what the best passages found so far point to. Files, modules, identifiers, links, and words that go with the question.

Pure. `research` follows them, to the depth that was asked for.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urldefrag, urlsplit

from remit.agents.builtin.researcher.passages import Document
from remit.agents.builtin.researcher.question import Question, Term
from remit.agents.builtin.researcher.ranking import Index, Ranked
from remit.agents.builtin.researcher.words import pieces, stem, stems, stop_words

_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+|\b[\w-]+\.(?:md|rst|txt|py|js|ts|go|rs|java|c|h|cpp|toml|yml|yaml|sh|sql)\b")
_MODULE = re.compile(r"\b[a-z_]\w*(?:\.[a-z_]\w*)+\b")
_NAME = re.compile(
    r"\b(?:[A-Z][a-z0-9]+){2,}\b|\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b|(?<=`)[A-Za-z_]\w{2,}(?=(?:\(\))?`)|\b[A-Z]{2,}(?:_[A-Z0-9]+)+\b"
)
_ASSET = re.compile(r"\.(?:png|jpe?g|gif|svg|css|js|zip|gz|mp[34]|woff2?|ico)(?:\?|$)", re.IGNORECASE)
_READ = 1500
"""Characters of a sentence that are looked at."""
_RARE = 4.0
"""A name whose words stand everywhere leads nowhere."""
MOST_FILES = 8
MOST_NAMES = 6
MOST_LINKS = 6
MOST_WORDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    files: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    words: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.names or self.urls)


def leads(question: Question, best: Sequence[Ranked], index: Index, listed: Iterable[str], known: Mapping[str, Document]) -> Leads:
    texts = [unit.text[:_READ] for one in best for unit in one.sentence.passage.units]
    asked = {term.stem for term in question.terms}
    return Leads(
        files=tuple(_files(texts, [path for path in listed if path not in known])[:MOST_FILES]),
        names=tuple(_names(texts, asked, index)[:MOST_NAMES]),
        urls=tuple(_links({one.sentence.document.name: one.sentence.document for one in best}.values(), asked, known)[:MOST_LINKS]),
        words=tuple(_words(best, index, asked)),
    )


def _files(texts: list[str], listed: list[str]) -> list[str]:
    """Paths that a passage names, and modules, found by their last parts among the files there are."""
    named = Counter(match for text in texts for match in _PATH.findall(text))
    named.update(match.replace(".", "/") for text in texts for match in _MODULE.findall(text))
    found: dict[str, int] = {}
    for name, count in named.items():
        name = name.strip("./")
        fits = (
            [path for path in listed if f"/{path}".endswith((f"/{name}", f"/{name}.py", f"/{name}/__init__.py"))] if len(name) > 3 else []
        )
        for path in fits if len(fits) <= 2 else ():  # a name that many files have names none of them
            found[path] = found.get(path, 0) + count
    return sorted(found, key=lambda path: (-found[path], path))


def _names(texts: list[str], asked: set[str], index: Index) -> list[str]:
    """Identifiers, those of several passages first, and among them those that hold a word of the question."""
    counts = Counter(name for text in texts for name in set(_NAME.findall(text)))
    holds = {name: any(word in asked for word in stems(name)) for name in counts}
    rare = [name for name in counts if len(name) > 3 and max(index.rarity(word) for word in stems(name)) > _RARE]
    return sorted(rare, key=lambda name: (-counts[name] - 2 * holds[name], name))


def _links(pages: Iterable[Document], asked: set[str], known: Mapping[str, Document]) -> list[str]:
    scores: dict[str, float] = {}
    for page in pages:
        for url, words in page.links:
            url = urldefrag(url)[0]
            parts = urlsplit(url)
            if url in known or parts.scheme not in ("http", "https") or _ASSET.search(parts.path):
                continue
            hit = len(asked & set(stems(f"{words} {parts.path}")))
            if hit:
                scores[url] = max(scores.get(url, 0.0), hit + 0.5 * (parts.netloc == urlsplit(page.name).netloc))
    return sorted(scores, key=lambda url: (-scores[url], url))


def _words(best: Sequence[Ranked], index: Index, asked: set[str]) -> list[Term]:
    """Words that stand in several of the best passages and are rare elsewhere."""
    counts: Counter[str] = Counter()
    surface: dict[str, str] = {}
    for one in best:
        for word in set(pieces(" ".join(unit.text for unit in one.sentence.passage.units))):
            if len(word) > 3 and word not in stop_words() and not word.isdigit():
                counts[stem(word)] += 1
                surface.setdefault(stem(word), word)
    frequent = [word for word, count in counts.items() if count >= 3 and word not in asked]
    frequent.sort(key=lambda word: (-counts[word] * index.rarity(word), word))
    return [Term(stem=word, word=surface[word], weight=0.15) for word in frequent[:MOST_WORDS]]


def definition_pattern(names: Sequence[str]) -> str:
    """Where these identifiers are defined or explained, as a regular expression any engine reads."""
    alternatives = "|".join(re.escape(name) for name in names)
    keywords = "def|class|func|fn|function|struct|interface|enum|trait|type"
    return rf"(?:{keywords})\s+(?:{alternatives})\b|^\s*(?:{alternatives})\s*[:=]|`(?:{alternatives})(?:\(\))?`"
