"""What a quotation is: the words of a source as they stand there, white space apart. One definition, for all who split, cite and check.

White space here is whatever separates words without being one: blanks and line breaks, and the marks that begin a line of a
comment, a quotation or a list. So a sentence that runs over three lines of a comment is quoted as one sentence.
"""

import re
import unicodedata

_LINE_MARK = re.compile(r"^[ \t]*(?:(?://[/!]?|#[!:]?|\*(?!\*)|>|--|;+|%+|<!--|/\*+!?|\.\.)(?=\s|$)[ \t]*)+", re.MULTILINE)
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_HARMLESS = frozenset("\t\n\r\x0b\x0c\u200b\u200c\u200d\ufeff\u00ad")
_CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)")
_BACKTICKS = re.compile(r"`+")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def masked(text: str) -> str:
    """`text` with blanks in place of its line marks, so that every character keeps its place."""
    return _LINE_MARK.sub(lambda mark: " " * len(mark.group()), text)


def squeezed(text: str) -> str:
    """A text as it is compared and shown: line marks and runs of white space are one blank."""
    return " ".join(_LINE_MARK.sub(" ", text).split())


def contains(source: str, quote: str) -> bool:
    """Whether `source` really says this."""
    return bool(quote) and squeezed(quote) in squeezed(source)


def is_clean(text: str) -> bool:
    """No control character and nothing invisible: such a sentence could show something else than it says."""
    return not any(unicodedata.category(c) in _HIDDEN and c not in _HARMLESS for c in text) if not text.isascii() else text.isprintable()


def is_clean_code(code: str) -> bool:
    """The same for lines of code, in which tabs stand too."""
    return all(is_clean(line.replace("\t", " ")) for line in code.split("\n"))


def shown(quote: str) -> str:
    """A quotation as markdown that shows the words and does nothing: no tag, no link, no picture fetched, no code span left open."""
    if quote.count("`") % 2 or "``" in quote:
        quote = quote.replace("`", "\\`")
    parts, end = [], 0
    for span in _CODE_SPAN.finditer(quote):
        parts += [_harmless(quote[end : span.start()]), span.group()]
        end = span.end()
    return "".join([*parts, _harmless(quote[end:])])


def _harmless(text: str) -> str:
    told = _TAG.sub(r"\\<", text).replace("![", "!\\[").replace("](", "]\\(")
    return told.replace("][", "]\\[").replace("]:", "]\\:")  # links by name, and what such a name leads to


def code_span(code: str) -> str:
    """Code on one line of markdown, shown as it is: marked off by more backticks than stand together in it."""
    mark = "`" * (_longest_run(code) + 1)
    room = " " if code.startswith("`") or code.endswith("`") else ""
    return f"{mark}{room}{code}{room}{mark}"


def code_block(code: str, name: str) -> str:
    """Lines of code as a block below an item of a list. `name`: the file they come from, which tells their language."""
    fence = "`" * max(3, _longest_run(code) + 1)
    suffix = name.rpartition(".")[2].lower()
    language = suffix if suffix.isascii() and suffix.isalnum() and len(suffix) <= 8 else ""
    return "\n".join(f"  {line}".rstrip() for line in (f"{fence}{language}", *code.split("\n"), fence))


def _longest_run(code: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(code)), default=0)
