"""Words as the researcher compares them: split, folded, stemmed, stop words left out, a few groups of words that say the same.

Pure. Used for questions and for passages alike, so that both are read in one way. Knows nothing of files.
"""

import re
from functools import cache, lru_cache

from remit.agents.builtin.needing import need

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED = re.compile(r"[぀-ヿ㐀-鿿]")
"""Scripts without spaces between words: taken two characters at a time."""
_VOWEL = re.compile(r"[aeiouyäöüáéíóúàèâêîôû]")
_QUESTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "how what why when where which who whom whose does do did can could should would will shall may might must is are was were "
        "explain describe tell show find list name give define summarize compare say know need want like make sure happen happens "
        "please me us we our i my you your it its this that these those there here any some every way thing things also just really "
        "actually get gets got difference between versus vs exactly work works working mean means use used using about",
    )
)
WEAK = frozenset(
    ["keep", "hav", "happen", "com", "go", "tak", "put", "giv", "hold", "bring", "turn", "long", "befor", "after", "again", "part",
     "kind", "creat", "mak", "us", "work", "call", "set", "chang", "possibl", "differ", "good", "best", "new", "old",
     "support", "accept", "turn", "decid", "determin"]
)  # fmt: skip
"""Stems of words that a question holds without being about them."""
_LANGUAGES = ("GERMAN", "FRENCH", "SPANISH", "ITALIAN", "PORTUGUESE", "DUTCH", "SWEDISH")
_SAME = (
    "delete remove erase unlink drop", "stop kill terminate end cancel abort", "create make build generate", "start begin launch",
    "error failure fault exception", "settings configuration config option preference", "environment env environ", "connection conn",
    "size length len", "folder directory dir", "documentation docs manual guide", "parameter argument param arg", "timeout deadline",
    "limit maximum bound cap max", "process subprocess", "windows win32 win", "decide choose select determine pick",
    "minimum min least", "number num count amount", "secret password token credential key", "permission access authorization",
    "refuse deny reject forbid", "install setup", "test check verify validate", "fast quick speed performance", "slow latency",
    "database store storage", "send transmit", "fetch download retrieve", "log record journal", "release version", "license licence",
    "author maintainer creator", "bug defect issue", "default standard", "allow permit grant", "network internet web",
    "order sort rank", "split divide separate", "combine join merge", "change modify edit update", "show display print", "leave remain",
)  # fmt: skip
_IRREGULAR = {
    "left": "leave", "kept": "keep", "sent": "send", "ran": "run", "written": "write", "wrote": "write", "chosen": "choose",
    "chose": "choose", "found": "find", "built": "build", "held": "hold", "broken": "break", "broke": "break", "began": "begin",
    "begun": "begin", "given": "give", "gave": "give", "taken": "take", "took": "take", "lost": "lose",
    "children": "child", "spent": "spend", "said": "say", "told": "tell", "thrown": "throw", "threw": "throw", "known": "know",
    "knew": "know", "bound": "bind", "hidden": "hide", "frozen": "freeze", "froze": "freeze", "met": "meet", "indices": "index",
    "colour": "color", "colours": "color",
}  # fmt: skip


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """A word without its endings: `processes`, `processing` and `processed` are one. Light: it never leaves fewer than three letters."""
    word = word.replace("’", "'").removesuffix("'s").replace("'", "")
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3 or word == "https" or not word.isascii() or not word.isalpha():
        return word
    for ending, instead in (("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            word = word.removesuffix(ending) + instead
            break
    else:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
    for ending in ("ations", "ation", "ing", "ed", "ion", "ment", "ly", "e"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= (3 if ending in ("ing", "ed", "e") else 4) and _VOWEL.search(base):
            return _undoubled(base) if ending in ("ing", "ed") else _without_at(base)
    return _without_at(word)


def _undoubled(base: str) -> str:
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    return _without_at(base)


def _without_at(base: str) -> str:
    """`validat(e)` and `valid(ation)` are one word."""
    return base[:-2] if base.endswith("at") and len(base) >= 6 and base != "format" else base


def forms(stemmed: str) -> tuple[str, ...]:
    """Beginnings of the words that have this stem, as they may stand in a text."""
    return (stemmed.removesuffix("y"), *(word for word, base in _IRREGULAR.items() if stem(base) == stemmed))


def pieces(text: str) -> list[str]:
    """The words of a text in lower case, identifiers taken apart: `parseHTTPUrl_now` has four."""
    found = []
    for match in _WORD.finditer(text):
        word = match.group()
        parts = _HUMP.split(word) if not word.islower() and word.isascii() else [word]
        for part in parts:
            if _UNSPACED.search(part):
                found += [part[i : i + 2] for i in range(max(1, len(part) - 1))]
            else:
                found.append(part.lower())
    return found


def stems(text: str) -> list[str]:
    return [stem(word) for word in pieces(text)]


@cache
def stop_words(language: str = "EN_PLUS") -> frozenset[str]:
    lists = need("bm25s.stopwords", "research")
    words = frozenset(getattr(lists, f"STOPWORDS_{language}"))
    return words | _QUESTION_WORDS | {"a", "an", "the"} if language == "EN_PLUS" else words


def language_of(words: list[str]) -> str:
    """Whose stop words stand in the question most; English unless another has clearly more."""
    english = sum(word in stop_words() for word in words)
    best = max(_LANGUAGES, key=lambda language: sum(word in stop_words(language) for word in words))
    return best if sum(word in stop_words(best) for word in words) > english + 1 else "EN_PLUS"


@cache
def _groups() -> dict[str, frozenset[str]]:
    groups: dict[str, set[str]] = {}
    for line in _SAME:
        together = {stem(word) for word in line.split()}
        for word in together:
            groups.setdefault(word, set()).update(together - {word})
    return {word: frozenset(others) for word, others in groups.items()}


def alike(stemmed: str) -> frozenset[str]:
    """Stems that say about the same."""
    return _groups().get(stemmed, frozenset())


def shingles(text: str, size: int = 3) -> frozenset[tuple[str, ...]]:
    """Runs of words, by which texts that repeat one another are known."""
    words = stems(text)
    return frozenset(tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1)))


def jaccard(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    together = len(one & other)
    return together / (len(one) + len(other) - together) if together else 0.0
