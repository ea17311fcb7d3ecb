"""Guidelines in words made into checks, as far as they can be; the rest is told as not checked. Reading is here, checking in `guided`.

Text, a list, or @FILE. A line is a name (`security-first`), a rule in plain words (`max line length 100`), `forbid: REGEX` or
`require: REGEX in GLOB`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from remit.agents.builtin.coder.review.applying import Held
from remit.core.errors import Misused

LINES_LIMIT = 400
CHARACTERS_LIMIT = 200_000
REGEX_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Pattern:
    kind: str
    """forbid or require."""
    regex: str
    glob: str
    words: str


@dataclass(slots=True, kw_only=True)
class Guidelines:
    raised: set[str] = field(default_factory=set)
    """Categories whose findings weigh more."""
    raised_rules: dict[str, str] = field(default_factory=dict)
    """Rules that are asked for by name, and the words that ask."""
    line_length: int = 0
    function_lines: int = 0
    file_lines: int = 0
    changed_lines: int = 0
    parameters: int = 0
    docstrings: bool = False
    type_hints: bool = False
    tests_required: bool = False
    no_tabs: bool = False
    no_trailing: bool = False
    no_star_imports: bool = False
    no_dependencies: bool = False
    patterns: list[Pattern] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    cut: int = 0


_N = r"(\d{1,6})"
_MOST = (
    r"(?:under|below|at most|up to|no (?:more|longer) than|not (?:more|longer) than|max(?:imum)?(?: of)?|<=?|less than|fewer than"
    r"|shorter than|limit(?:ed)? (?:of|to))"
)
_NUMBERS: tuple[tuple[str, str], ...] = (
    ("line_length", rf"(?:max(?:imum)?\.? )?line[- ]length\D{{0,20}}{_N}"),
    ("line_length", rf"\blines? (?:must |should |may )?(?:be |are |have |stay )?{_MOST} {_N}(?: (?:char|col)|$)"),
    ("function_lines", rf"\b(?:function|method)s? (?:must |should |may )?(?:be |are |have |stay )?{_MOST} {_N}(?: lines?)?"),
    ("function_lines", rf"max(?:imum)?\.? (?:function|method) (?:length|size)\D{{0,20}}{_N}"),
    ("file_lines", rf"\b(?:file|module)s? (?:must |should |may )?(?:be |are |have |stay )?{_MOST} {_N}(?: lines?)?"),
    ("file_lines", rf"max(?:imum)?\.? (?:file|module) (?:length|size)\D{{0,20}}{_N}"),
    ("changed_lines", rf"{_MOST} {_N} (?:changed lines|lines changed)"),
    ("changed_lines", rf"\b(?:diff|change|pr|pull request)s? (?:(?:must|should|be|are) ){{0,2}}{_MOST} {_N} lines"),
    ("parameters", rf"{_MOST} {_N} (?:parameter|argument|param)s?"),
)
_SWITCHES: tuple[tuple[str, str], ...] = (
    ("docstrings", r"docstring|document(?:ed)? (?:every|all) public|public \w{1,20} (?:is|are|must be) documented"),
    ("type_hints", r"type (?:hint|annotation)s?|(?:fully )?typed|annotated"),
    (
        "tests_required",
        r"\b(?:every|all|each)\b.{0,40}\btests?\b|tests? (?:are |is )?(?:required|mandatory|needed)"
        r"|must (?:have|include|come with|add) tests?|no .{0,30}without tests?|tests?-required|test-first|tdd",
    ),
    ("no_tabs", r"\bno tabs?\b|spaces,? not tabs|(?:use|indent with) spaces"),
    ("no_trailing", r"no trailing (?:white)?space"),
    ("no_star_imports", r"no (?:star|wildcard|\*) imports?"),
    ("no_dependencies", r"no new dependenc|no (?:new )?third[- ]party"),
)
_RULES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("print",),
        r"\bno (?:print|console\.log|console log|debug (?:print|output))|(?:avoid|never|don'?t) (?:use )?(?:print|console\.log)"
        r"|use (?:a |the )?logg(?:er|ing)",
    ),
    (("breakpoint",), r"\bno (?:debugger|breakpoint)s?"),
    (("todo",), r"\bno (?:new )?(?:todo|fixme)s?"),
    (("eval",), r"\bno eval|(?:avoid|never) (?:use )?eval"),
    (("swallowed",), r"\bno (?:bare|broad|silent) except|never swallow|don'?t swallow"),
    (("shell",), r"\bno (?:shell ?= ?true|shell commands?|os\.system)"),
    (("secret", "secret-file"), r"\bno (?:hard-?coded )?(?:secret|credential|password|key|token)s?|never commit secrets?"),
    (("assert",), r"\bno asserts?"),
    (("sql",), r"(?:parametri[sz]ed|prepared) (?:quer|statement)|no sql (?:concat|string|format)"),
    (("mutable-default",), r"\bno mutable default"),
)
_GROUPS: dict[str, Callable[[Guidelines], None]] = {
    "security": lambda g: g.raised.update({"security", "secrets"}),
    "clean-code": lambda g: _clean(g),
    "tests": lambda g: setattr(g, "tests_required", True),
    "documented": lambda g: setattr(g, "docstrings", True),
    "typed": lambda g: setattr(g, "type_hints", True),
}
_GROUP_NAMES = {
    "security": "security",
    "security-first": "security",
    "secure": "security",
    "owasp": "security",
    "clean-code": "clean-code",
    "clean": "clean-code",
    "readability": "clean-code",
    "maintainability": "clean-code",
    "tests": "tests",
    "tested": "tests",
    "test-driven": "tests",
    "tdd": "tests",
    "test-first": "tests",
    "tests-required": "tests",
    "documented": "documented",
    "documentation": "documented",
    "docs": "documented",
    "typed": "typed",
    "type-safety": "typed",
    "type-safe": "typed",
}
_RULE_LINE = re.compile(r"^\s{0,12}(?:[-*+]|\d{1,3}[.)])\s{1,4}(.{1,500})$")
_DEMAND = re.compile(
    r"(?i)\b(?:must|should|never|always|avoid|don'?t|do not|no|every|each|all|max|maximum|at most|under"
    r"|use|prefer|require[sd]?|forbid(?:den)?|keep|only|limit)\b"
)


def _clean(guidelines: Guidelines) -> None:
    guidelines.function_lines = guidelines.function_lines or 50
    guidelines.parameters = guidelines.parameters or 6
    guidelines.raised_rules |= dict.fromkeys(("print", "swallowed", "mutable-default"), "clean-code")


def read_guidelines(given: str | list[str] | None, read: Callable[[str], Held]) -> Guidelines:
    guidelines = Guidelines()
    for line in _lines(given, read, guidelines):
        _take(guidelines, line)
    return guidelines


def _lines(given: str | list[str] | None, read: Callable[[str], Held], guidelines: Guidelines) -> list[str]:
    lines: list[str] = []
    for text in [given] if isinstance(given, str) else given or []:
        is_file = text.startswith("@") or re.match(r"^[\w./-]{1,200}\.(?:md|txt|rst|toml)$", text.strip()) is not None
        if is_file and "\n" not in text:
            lines += _of_document(_document(text.strip().removeprefix("@"), read))
        else:
            parts = text[:CHARACTERS_LIMIT].splitlines()
            lines += [part for line in parts for part in _parts(line)]
    lines = list(
        dict.fromkeys(
            line for line in (re.sub(r"^(?:[-*+]|\d{1,3}[.)])\s+", "", line.strip()) for line in lines) if line and not line.startswith("#")
        )
    )
    guidelines.cut = max(0, len(lines) - LINES_LIMIT)
    return lines[:LINES_LIMIT]


def _parts(line: str) -> list[str]:
    """`security-first, clean-code` are two; a sentence with a comma is one."""
    if re.match(r"(?i)\s{0,9}(?:[-*+]\s)?(?:forbid|require)\s?:", line):
        return [line]
    parts = [part.strip() for part in re.split(r"[,;]", line)]
    return parts if len(parts) > 1 and all(part and len(part.split()) <= 5 for part in parts) else [line]


def _document(path: str, read: Callable[[str], Held]) -> str:
    held = read(path)
    if held.text is None:
        raise Misused(
            f"The guidelines {path} cannot be read: {held.fault or 'there is no such file'}.",
            code="INVALID_PARAMETERS",
            advice="Name a file of the workspace, or give the guidelines as text.",
        )
    return held.text[:CHARACTERS_LIMIT]


def _of_document(text: str) -> list[str]:
    """Of prose only what reads like a demand: items of lists, and the two forms of our own."""
    found = []
    for line in text.splitlines():
        item = _RULE_LINE.match(line[:600])
        if re.match(r"(?i)\s{0,9}(?:[-*+]\s)?(?:forbid|require)\s?:", line):
            found.append(re.sub(r"^\s{0,9}[-*+]\s", "", line))
        elif item is not None and _DEMAND.search(item[1]):
            found.append(item[1])
    return found


def _take(guidelines: Guidelines, line: str) -> None:
    words = " ".join(line[:600].lower().replace("`", "").replace("_", " ").split())
    if _own_form(guidelines, line) or _group(guidelines, words) or _number(guidelines, words):
        guidelines.checked.append(line[:200])
        return
    found = False
    for name, pattern in _SWITCHES:
        if re.search(pattern, words):
            setattr(guidelines, name, True)
            found = True
    for rules, pattern in _RULES:
        if re.search(pattern, words):
            guidelines.raised_rules |= dict.fromkeys(rules, line[:120])
            found = True
    (guidelines.checked if found else guidelines.unchecked).append(line[:200])


def _group(guidelines: Guidelines, words: str) -> bool:
    name = _GROUP_NAMES.get(words.strip(" .").replace(" ", "-"))
    if name is not None:
        _GROUPS[name](guidelines)
    return name is not None


def _number(guidelines: Guidelines, words: str) -> bool:
    for name, pattern in _NUMBERS:
        found = re.search(pattern, words)
        if found is not None:
            number = int(next(filter(None, found.groups())))
            if number > 0:
                setattr(guidelines, name, number)
                return True
    return False


def _own_form(guidelines: Guidelines, line: str) -> bool:
    found = re.match(r"(?i)^\s{0,9}(forbid|require)\s?:\s{0,9}(\S.{0,600})$", line)
    if found is None:
        return False
    kind, rest = found[1].lower(), found[2].strip()
    regex, separator, glob = rest.rpartition(" in ")
    if not separator or not re.match(r"^[\w.*?/{}\[\]!-]{1,120}$", glob):
        regex, glob = rest, ""
    try:
        re.compile(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise Misused(
            f"A guideline is no regular expression: {line[:120]!r} ({error}).",
            code="INVALID_PARAMETERS",
            advice="Write forbid: REGEX, or require: REGEX in GLOB.",
        ) from None
    if len(regex) > REGEX_LIMIT:
        raise Misused(
            f"A regular expression of the guidelines has more than {REGEX_LIMIT} characters.",
            code="INVALID_PARAMETERS",
            advice="Shorten it.",
        )
    guidelines.patterns.append(Pattern(kind, regex, glob, line.strip()[:200]))
    return True
