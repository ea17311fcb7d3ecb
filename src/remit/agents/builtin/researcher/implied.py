"""What code says without the words: `max_connections: int = 10` gives a default, `class A(B)` says what A derives from.

Pure; a short table of shapes. Used by `ranking` only, beside the words that really stand there.
"""

import re
from functools import cache

from remit.agents.builtin.researcher.words import stem

_SHAPES = (
    (r"^\s*(?:\w+\s+)*class\s+\w+\s*(?:[(:<{]|extends|implements)", "class type derive inherit base subclass extend"),
    (r"^\s*class\s+\w*(?:Error|Exception|Timeout|Warning)\b|\braise\s|\bthrow\s", "raise throw exception error"),
    (r"(?<![=!<>:])=(?![=>])\s*[^\s,)]|^\s*[\"']?[\w-]+[\"']?\s*:\s*[\"'\d\[{]|\.set\([\"']", "default value set"),
    (r"^\s*(?:\w+\s+)*(?:def|function|fn|func)\s", "function method"),
    (r"\b(?:if|elif|unless|switch|case)\b|\?\s|^\s*[\w.]+\s*=\s*[\w.]+\s*(?:#.*|//.*)?$", "decide whether check choose select determine"),
    (r"\benviron\b|\bgetenv\b|process\.env|\benv\.get\b", "environment variable"),
    (r"\d", "number amount numeric"),
)  # fmt: skip
_READ = [(re.compile(pattern, re.MULTILINE), words) for pattern, words in _SHAPES]


@cache
def _stems(words: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words.split())


def implied(code: str) -> frozenset[str]:
    """Stems of words that this code stands for."""
    found: frozenset[str] = frozenset()
    for shape, words in _READ:
        if shape.search(code):
            found |= _stems(words)
    return found
