"""Where a statement of code begins and ends, and the name it gives: by shape, for any language, without a parser.

What is quoted of code are whole lines as they stand: a statement with the comment above it, a signature with the first sentence of its
docstring, the head of a block with its first lines; of a long list each line for itself. Linear, and never fails. Used by `code`.
"""

import re
from textwrap import dedent

from remit.agents.builtin.researcher.sentences import Unit

MOST_LINES = 5
"""Of a statement that is quoted whole."""
FARTHEST = 60
_WIDEST = 240
_STRING = re.compile(r"\"[^\"\\\n]*+(?:\\.[^\"\\\n]*+)*\"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'|`[^`\\\n]*+(?:\\.[^`\\\n]*+)*`")
_TAIL = re.compile(r"(?:#|//|--\s).*$")
_HEAD = re.compile(r"^[\s}]*(?:async\s+)?(?:if|elif|else|for|while|try|except|catch|finally|with|match|switch|case|unless|when)\b")
DEFINITION = re.compile(
    r"^(?P<indent>\s*)(?:(?:export|default|public|private|protected|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe|inline|const|virtual|@\w+)\s+)*"
    r"(?:def|class|func|fn|function|struct|interface|enum|trait|impl|type|module|namespace|message|service|table|theorem|lemma)\s+"
    r"(?:\([^)]*\)\s*)?(?P<name>[A-Za-z_][\w.]*)"
)
_GIVEN = re.compile(
    r"^\s*(?:(?:export|public|private|protected|static|final|const|let|var|val|mut|pub)\s++|#define\s++(?=\w++\s++\S))*"
    r"(?:\*{0,2}|[&$@])(?:[\w\]\[]++(?:\.|->|::))*[\"']?(?P<name>[A-Za-z_][\w-]*+)[\"']?\??"
    r"(?:\s*(?::\s*(?![=:])[^=\n]+?)?\s*(?::?=(?![=>])|=>)|\s*:\s*+(?=[\"'\d\[{(A-Z])|(?<=#define )\s)"
)
"""Assignments, fields with a value, parameters with a default, entries of a table."""
_CALLED = re.compile(r"^\s*[\w.]*\b(?:set|define|register|setdefault|add_argument|option|env|get)\(\s*[\"'](?P<name>[\w -]{2,40})[\"']\s*,")
"""Given by a call: `app.set('views', …)`."""
_PASSED_ON = re.compile(r"^\s*(\w+)\s*=\s*(?:self\.|this\.|\w+\.)?\1\s*,?\s*$")
_TAKEN = re.compile(r"^\s*(?:__all__\b|import|from|use|using|require|package|#include|pass\b|\.\.\.)")
_GOES_ON = re.compile(r"^\s+(?:[?:]\s|&&|\|\||\?\?|\.\w)")
"""The next line of a statement, in languages that need no sign at the end of the first."""
_SENTENCE_ENDS = re.compile(r"[.!?](?:\s|[\"']{3}|$)")


def end_of_statement(lines: list[str], at: int) -> int:
    """The line after a statement that begins here: where its brackets are closed. `at` itself, where that is not to be seen."""
    depth = 0
    for end in range(at, min(len(lines), at + FARTHEST)):
        bare = bare_code(lines[end])
        if '"""' in bare or "'''" in bare:
            return at + 1
        if bare.endswith("{") and (end > at or _opens_block(bare)):
            bare = bare[:-1]  # a body, not a part of this
            depth += _depth(bare)
            if depth <= 0:
                return end + 1
            depth += end > at
            continue
        depth += _depth(bare)
        if depth <= 0 and not bare.endswith("\\") and not (end + 1 < len(lines) and _GOES_ON.match(lines[end + 1])):
            return end + 1
    return at


def _opens_block(bare: str) -> bool:
    return _HEAD.match(bare) is not None or DEFINITION.match(bare) is not None or bare.endswith((") {", "){", "=> {", "do {"))


def _depth(bare: str) -> int:
    return sum(bare.count(one) for one in "([{") - sum(bare.count(one) for one in ")]}")


def bare_code(line: str) -> str:
    """A line without what stands in strings and comments."""
    if "\\" not in line and not any(mark in line for mark in "\"'`#/-"):
        return line.rstrip()
    return _TAIL.sub("", _STRING.sub("0", line)).rstrip()


def end_of_block(lines: list[str], at: int, end: int) -> int:
    """The line after the first lines of the block that a statement opens; `end`, where it opens none."""
    bare = bare_code(lines[end - 1])
    if _HEAD.match(lines[at]) is None or not bare.endswith((":", "{")):
        return end
    indent = indent_of(lines[at])
    stop = end
    while stop < len(lines) and stop - at < MOST_LINES and lines[stop].strip() and indent_of(lines[stop]) > indent:
        stop += 1
    return stop


def end_of_opening(lines: list[str], end: int) -> int:
    """The line after the first sentence of the docstring that follows a signature; `end`, where none follows."""
    if end >= len(lines) or not lines[end].strip().lstrip("rRuU").startswith(('"""', "'''")):
        return end
    for stop in range(end, min(len(lines), end + 3)):
        after = lines[stop].strip()
        if stop > end and not after:
            return stop
        if _SENTENCE_ENDS.search(after) or (stop > end and ('"""' in after or "'''" in after)) or after.count('"""') > 1:
            return stop + 1
    return end + 1


def end_of_definition(lines: list[str], at: int, end: int) -> int:
    """The line after all of a short definition; of a longer one, after its signature and the first sentence of its docstring."""
    indent = indent_of(lines[at])
    stop = end
    while stop < len(lines) and stop - at <= MOST_LINES + 1 and (not lines[stop].strip() or indent_of(lines[stop]) > indent):
        stop += 1
    if stop < len(lines) and lines[stop].strip() in ("}", "};", "end"):
        stop += 1
    elif bare_code(lines[end - 1]).endswith("{"):
        return end
    while stop > end and not lines[stop - 1].strip():
        stop -= 1
    return stop if stop - at <= MOST_LINES + 1 else end_of_opening(lines, end)


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def name_given(line: str) -> str:
    """What a line defines or gives a value to; empty for any other."""
    if (found := DEFINITION.match(line)) is not None:
        return found["name"]
    if len(line) > _WIDEST or _PASSED_ON.match(line):
        return ""
    found = _GIVEN.match(line) or _CALLED.match(line)
    return found["name"] if found is not None else ""


def is_taking(line: str) -> bool:
    """An import, or nothing at all: it says where something comes from, not what it is."""
    return _TAKEN.match(line) is not None


def quoted_lines(lines: list[str], at: int, end: int, name: str = "") -> Unit | None:
    """These lines as they stand, but for the indent that they share. None where they are too wide to be read."""
    if any(len(line) > _WIDEST for line in lines[at:end]):
        return None
    text = as_it_stands("\n".join(lines[at:end]))
    return Unit(text=text, line=at + 1, end_line=end, is_code=True, name=name) if text else None


def as_it_stands(text: str) -> str:
    """Whole lines of code as they are quoted: the white space at their ends and the indent that they share left out."""
    if "\n" not in text:
        return text.strip()
    return dedent("\n".join(line.rstrip() for line in text.split("\n"))).strip("\n")
