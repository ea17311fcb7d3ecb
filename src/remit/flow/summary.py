"""The rules for a summary (S3.3): what makes it invalid, and what is only remarked on. Never cuts anything.

Pure functions over text; used by `validate`, and by the builder for the summaries of its own.
"""

import re

MAX_CHARACTERS = 500
ADVISED_CHARACTERS = 400
ADVISED_TOKENS = 100
ADVISED_SENTENCES = range(2, 6)

_PIECE = re.compile(r"[^\W_]+|[^\w\s]|_+")
_CHARACTERS_PER_TOKEN = 6
"""Long words are several tokens; so is each character of scripts without spaces, counted apart below."""
_WIDE = re.compile(r"[぀-ヿ㐀-鿿가-힯]")

# Begins with the marks, which are rare, and looks back from there; so does what follows.
_SENTENCE_END = re.compile(r"[.!?…。！？](?:(?<=[。！？])|(?<=[^\s.!?…].)[.!?…]*[\"'”’)\]]*(?=\s|\Z))")
_ABBREVIATED = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "no.", "Dr.", "Mr.", "Mrs.", "Ms.", "St.")
_ABBREVIATION = re.compile(r"\.(?=\s+[a-z0-9(])(?:" + "|".join(rf"(?<=\b{re.escape(one)})" for one in _ABBREVIATED) + ")", re.IGNORECASE)

_MARKUP = re.compile(
    r"^\s{0,3}(?:#{1,6}|[-*+]|\d+[.)]|>)\s"  # headings, lists, quotations
    r"|`[^`\n]+`|```|~~~"  # code
    r"|\*\*[^*\n]+\*\*|__(?=\S)[^_\n]*\s[^_\n]*(?<=\S)__"  # bold; one word alone is a name, as in __main__.py
    r"|\[[^\]\n]{1,400}\]\([^)\n]{1,400}\)"  # links
    r"|</?[a-zA-Z][a-zA-Z0-9]{0,20}(?:\s[^<>\n]{0,400})?/?>",  # tags
    re.MULTILINE,
)
_EMOJI = re.compile("[\U0001f000-\U0001faff☀-➿⬀-⯿️]")


def summary_faults(summary: str) -> list[str]:
    if not summary.strip():
        return ["summary: is empty"]
    if len(summary) > MAX_CHARACTERS:
        return [f"summary: is {len(summary)} characters long, at most {MAX_CHARACTERS} are allowed"]
    return []


def summary_warnings(summary: str) -> list[str]:
    """Remarks on a summary that is accepted."""
    warnings = []
    if len(summary) > ADVISED_CHARACTERS:
        warnings.append(f"summary: {len(summary)} characters; at most {ADVISED_CHARACTERS} are advised")
    # No token is shorter than a character: what is as short needs no count.
    if len(summary) > ADVISED_TOKENS and (tokens := count_tokens(summary)) > ADVISED_TOKENS:
        warnings.append(f"summary: about {tokens} tokens; at most {ADVISED_TOKENS} are advised")
    if (sentences := count_sentences(summary)) not in ADVISED_SENTENCES:
        low, high = ADVISED_SENTENCES[0], ADVISED_SENTENCES[-1]
        warnings.append(f"summary: {sentences} sentence{'' if sentences == 1 else 's'}; {low} to {high} are advised")
    if _MARKUP.search(summary):
        warnings.append("summary: contains markup; plain sentences are advised")
    if not summary.isascii() and _EMOJI.search(summary):
        warnings.append("summary: contains emoji; plain sentences are advised")
    return warnings


def count_tokens(text: str) -> int:
    """A rough count, without any model's vocabulary."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    pieces = _PIECE.findall(_WIDE.sub(" ", text) if wide else text)
    return wide + sum(-(-len(piece) // _CHARACTERS_PER_TOKEN) for piece in pieces)


def count_sentences(text: str) -> int:
    text = _ABBREVIATION.sub("x", text.strip())
    ends = list(_SENTENCE_END.finditer(text))
    tail = text[ends[-1].end() :] if ends else text
    return len(ends) + bool(tail.strip())
