"""Documents and their passages: what was gathered, cut into stretches that are about one thing, with heading and lines.

The nouns that the rest of the researcher speaks of. Cutting is done by `prose` and `code`; which of them, and what a file is worth
as a source, is decided here by its name.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

from remit.agents.builtin.researcher.sentences import Unit


class Kind(StrEnum):
    """What a passage is written in; said by its worth as an answer, best first."""

    PROSE = "prose"
    ITEM = "item"
    ROW = "row"
    DOCSTRING = "docstring"
    COMMENT = "comment"
    DEFINITION = "definition"
    STATEMENT = "statement"
    """Of a program, where a value is given or something is decided."""
    CODE = "code"
    """Any other: examples, imports, calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    kind: Kind
    headings: tuple[str, ...]
    """From the outermost: chapters of a document, or classes and functions around a comment."""
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One source that was read: a file, a page, or a text that was handed over."""

    kind: str
    """file, page or text."""
    name: str
    """Its path, its address or its title."""
    title: str
    text: str
    date: str = ""
    """When a page was published, or a file last changed; as it was told."""
    fetched: str = ""
    worth: float = 1.0
    """What its name promises: documentation more than tests, tests more than generated files."""
    depth: int = 0
    """0: found by the question itself; 1 and more: by following leads."""
    links: tuple[tuple[str, str], ...] = ()
    """Of a page: address and words."""
    passages: tuple[Passage, ...] = field(default=(), compare=False)

    def lines(self, line: int, end_line: int) -> str:
        return "\n".join(self.text.split("\n")[line - 1 : end_line])


_LONGEST_LINE = 20_000
MARKDOWN = frozenset({".md", ".markdown", ".mdx", ".rst", ".txt", ".adoc", ".org", ".text", ".tex", ".man", ".1", ".html", ".htm", ""})
CODE = frozenset(
    [".py", ".pyi", ".js", ".jsx", ".ts", ".tsx", ".mjs", ".go", ".rs", ".java", ".c", ".h", ".cc", ".cpp", ".hpp",
     ".cs", ".rb", ".php", ".swift", ".kt", ".scala", ".sh", ".bash", ".sql", ".lua", ".pl", ".r", ".jl", ".lean", ".ex",
     ".exs", ".erl", ".hs", ".ml", ".clj", ".el", ".vim", ".ps1", ".proto", ".tf", ".zig", ".nim", ".dart"]
)  # fmt: skip
_GENERATED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_party|dist|build|target|__pycache__|\.git|\.remit|\.venv|venv|\.mypy_cache|\.ruff_cache|coverage)/"
    r"|\.(?:lock|min\.js|min\.css|map|svg|pyc|so|whl|png|jpe?g|gif|ico|woff2?|ttf|pdf|zip|gz|bin|snap|sum|ipynb|csv|tsv|jsonl|po|pot)$"
    r"|(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|Cargo\.lock|go\.sum|RECORD|SOURCES\.txt)$|_pb2\.py$|\.egg-info/",
    re.IGNORECASE,
)
_TESTS = re.compile(
    r"(?:^|/)(?:tests?|testing|spec|__tests__|fixtures|testdata|bench(?:marks?)?)/|(?:^|/)(?:test_[^/]*|[^/]*_test|[^/]*\.spec)\.\w+$",
    re.IGNORECASE,
)
_HISTORY = re.compile(
    r"(?:^|/)(?:change(?:s|log)|history|news|release[-_ ]?notes|whatsnew|todo|authors|contributors|licen[cs]e|copying)[^/]*$"
    r"|(?:^|/)(?:changelog|whatsnew|releases?)/",
    re.IGNORECASE,
)
_DOCUMENTS = re.compile(
    r"(?:^|/)(?:docs?|documentation|manual|guide|wiki|man)/|(?:^|/)(?:readme|architecture|design|overview|tutorial|faq|glossary|spec)[^/]*$",
    re.IGNORECASE,
)


def worth_of(path: str) -> float:
    """What a file promises as a source, by its name alone; 0: not worth reading."""
    suffix = PurePosixPath(path).suffix.lower()
    if _GENERATED.search(path):
        return 0.0
    worth = 1.0 if suffix in MARKDOWN else 0.8 if suffix in CODE else 0.5
    if _HISTORY.search(path) or _TESTS.search(path):
        worth *= 0.6
    elif _DOCUMENTS.search(path):
        worth *= 1.1
    return worth


def cut(text: str, name: str) -> tuple[Passage, ...]:
    """The passages of a document of this name."""
    from remit.agents.builtin.researcher.code import code_passages
    from remit.agents.builtin.researcher.prose import PAGE, prose_passages

    suffix = PurePosixPath(name).suffix.lower()
    if len(text) > _LONGEST_LINE:  # what nobody wrote by hand and nobody reads: blank, so that the lines below keep their numbers
        text = "\n".join(line if len(line) <= _LONGEST_LINE else "" for line in text.split("\n"))
    if suffix in CODE or (suffix not in MARKDOWN and re.fullmatch(r"\.(?:toml|ya?ml|ini|cfg|conf|json|env|mk|cmake|gradle|nix)", suffix)):
        return tuple(code_passages(text, suffix))
    return tuple(prose_passages(text, PAGE if suffix == PAGE and not _is_wrapped(text) else suffix))


def _is_wrapped(text: str) -> bool:
    """Whether sentences run over line ends, as in a mail: most lines are about as long as the longest."""
    lengths = sorted(len(line) for line in text.split("\n") if line.strip())
    return len(lengths) > 5 and lengths[-1] <= 130 and lengths[len(lengths) // 2] >= 0.5 * lengths[-1]
