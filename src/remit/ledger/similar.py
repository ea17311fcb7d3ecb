"""When two errors are the same one: same type, code, agent or command, and the same message but for its particulars (S4.7).

Particulars are numbers, ids, paths and quoted parts. Pure text; used by `tally` and `file`.
"""

import hashlib
import re
from functools import lru_cache

_ENDS = r"\s'\"`<>|,;:()\[\]{}=/\\"
_WORD = f"[^{_ENDS}]"
"""What a part of a path is made of: anything that does not usually end one in a sentence."""
_EXTENSIONS = (
    "py|pyi|md|txt|rst|json|jsonl|toml|yaml|yml|ini|cfg|lock|log|db|sqlite|sql|lean|rs|go|c|h|cc|cpp|hpp|java|kt|js|jsx|ts|tsx"
    "|html|css|xml|csv|tsv|sh|pdf|png|jpg|svg|zip|gz|tar|whl|tmp|diff|patch"
)

_PARTICULAR = re.compile(
    "|".join(
        (
            # Quoted. A single quote inside a word is an apostrophe.
            r"(?P<text>\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»|(?<!\w)'[^'\n]*'(?!\w))",
            # Addresses, absolute, relative and Windows paths, and bare names of files; not the full stop that ends the sentence.
            # Each begins where a word begins: a long word is then looked at once, not from each of its letters.
            r"(?P<path>(?<![\w+.-])[a-z][a-z0-9+.-]*+://[^\s'\"`<>]*[^\s'\"`<>.,;:!?)\]]"
            rf"|(?<!{_WORD})(?:[A-Za-z]:)?{_WORD}*+(?:[/\\]+{_WORD}+)+(?<![.!?])[/\\]?"
            rf"|(?<![\w.-])[\w-][\w.-]*\.(?:{_EXTENSIONS})(?!\w))",
            # Session ids, uuids, addresses in memory, hashes; then numbers, times and dates among them.
            r"(?P<number>\bsess_\d{8,}_[a-z0-9]{6}\b"
            r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
            r"|\b0[xX][0-9a-fA-F]+\b"
            r"|(?<!\w)(?!\d+[.,:-]\d)(?=[a-fA-F]*\d)[0-9a-fA-F]{7,}(?!\w)|(?<!\w)[0-9a-fA-F]{32,}(?!\w)"
            r"|(?<!\w)[-+]\d+(?:[.,:-]\d+)*(?:[eE][-+]?\d+)?|\d+(?:[.,:-]\d+)*(?:[eE][-+]?\d+)?)",
        )
    )
)


def _placeholder(match: re.Match[str]) -> str:
    return f"<{match.lastgroup}>"


@lru_cache(maxsize=8192)
def normalised(message: str) -> str:
    """The message without its particulars. What is normalised already stays as it is.

    One replacement can uncover another (a quote closes where a number stood), so it is repeated until nothing changes. That
    ends: each replacement takes away a digit, a quote, a slash or a dot, and a placeholder has none.
    """
    text = message
    while True:
        shorter = " ".join(_PARTICULAR.sub(_placeholder, text).split())
        if shorter == text:
            return text
        text = shorter


@lru_cache(maxsize=8192)
def similarity_key(type_: str, code: str, origin: str, message: str) -> str:
    """Equal for similar errors; `origin` is the agent, or the command where there is no agent."""
    parts = "\0".join((type_, code, origin, normalised(message)))
    return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:16]
