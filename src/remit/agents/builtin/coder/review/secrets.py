"""Keys, tokens and passwords in lines that were added: found by their form, or by a name that says so and a value that looks random.

A finding never holds the secret: `Masking` takes every one that was found out of whatever is written. Patterns are linear.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.languages import is_document, is_generated, is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter

LINE_LIMIT = 20_000
_KINDS: tuple[tuple[str, str], ...] = (
    ("AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("GitHub token", r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{22,255}\b"),
    ("GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,64}"),
    ("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    ("Slack webhook", r"hooks\.slack\.com/services/T[A-Za-z0-9]{6,20}/B[A-Za-z0-9]{6,20}/[A-Za-z0-9]{16,40}"),
    ("Stripe key", r"\b[rs]k_live_[A-Za-z0-9]{16,128}\b"),
    ("Google API key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("Anthropic key", r"\bsk-ant-[A-Za-z0-9_-]{20,200}"),
    ("OpenAI key", r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{32,200}"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("PyPI token", r"\bpypi-[A-Za-z0-9_-]{50,250}"),
    ("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,40}\b"),
    ("DigitalOcean token", r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    ("SendGrid key", r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    ("Telegram bot token", r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    ("Azure storage key", r"AccountKey=[A-Za-z0-9+/]{60,100}={0,2}"),
    ("JSON web token", r"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"),
    ("private key", r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
    ("password in an address", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{1,100}:(?P<value>[^\s/@'\"]{3,200})@[A-Za-z0-9.-]{1,250}"),
)
_FORMS = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]{0,40}(?:api_?key|apikey|secret|token|passw(?:or)?d|passwd|pwd|credential|private_?key|access_?key|auth_?key|client_?secret)"
    r"[A-Za-z0-9_.-]{0,30})[\"']?\]?\s{0,4}(?::\s{0,3}[A-Za-z_\[\] |]{1,30}\s{0,3}=|:=|=>|=|:)"
    r"\s{0,4}(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;]{6,300})(?P=quote)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"example|sample|dummy|placeholder|change.?me|your|xxx|\*\*\*|\.\.\.|…|<|\$\{|\{\{|%\(|\$\(|^\$|^%|^\{|todo|fake|test|redacted|none$|null$|true$|false$|undefined"
    r"|^env|environ|getenv|process\.env|secrets?\.|config|settings|^\d+$|^/|\(|\[|^self\.|^this\.|^os\.|not.?a|insert|secret$|password$|token$",
    re.IGNORECASE,
)
_RUN = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
_ENV_FILE = re.compile(r"(^|/)\.env(\.(?!example|sample|template|dist)[\w-]{1,40})?$")
_KEY_FILE = re.compile(r"(^|/)(id_(rsa|dsa|ecdsa|ed25519)|[^/]{1,200}\.(pem|p12|pfx|jks|keystore|kdbx))$")


@dataclass(frozen=True, slots=True)
class Secret:
    kind: str
    value: str
    column: int
    sure: bool
    """By its form, not by its surroundings."""


def secrets_in(line: str) -> Iterator[Secret]:
    line = line[:LINE_LIMIT]
    covered: list[tuple[int, int]] = []
    for kind, pattern in _FORMS:
        for found in pattern.finditer(line):
            group = "value" if "value" in pattern.groupindex else 0
            value, span = found[group], found.span(group)
            inside = any(start <= span[0] < end for start, end in covered)
            if inside or (kind != "private key" and (_is_placeholder(value) or (kind == "OpenAI key" and entropy(value) < 3.5))):
                continue
            covered.append(span)
            yield Secret(kind, value, span[0] + 1, sure=kind != "password in an address")
    for found in _ASSIGNED.finditer(line):
        value, start = found["value"], found.start("value")
        if not any(begin <= start < end for begin, end in covered) and _looks_random(found["name"], value, bool(found["quote"])):
            yield Secret(f"value of {found['name'].strip('.-')}", value, start + 1, sure=False)


def _is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.search(value) is not None or len(set(value)) < 5


def _looks_random(name: str, value: str, is_quoted: bool) -> bool:
    if _is_placeholder(value) or name.lower().endswith(
        ("_name", "_file", "_path", "_url", "_type", "_id", "_variable", "_seconds", "_limit")
    ):
        return False
    if not is_quoted and (not re.search(r"\d", value) or "." in value):
        return False  # a name of the program, most likely
    is_password = re.search(r"passw|pwd", name, re.IGNORECASE) is not None
    if is_password and is_quoted:
        return len(value) >= 8 and bool(re.search(r"[0-9]", value) or re.search(r"[^A-Za-z0-9_.-]", value))
    mixed = bool(re.search(r"[0-9]", value)) and bool(re.search(r"[A-Za-z]", value))
    return len(value) >= 16 and mixed and entropy(value) >= 3.3


def entropy(text: str) -> float:
    """Bits for each character."""
    counts = Counter(text)
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values()) if text else 0.0


class Masking:
    """Every secret that was found, taken out of whatever is written about it."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def learn(self, line: str) -> list[Secret]:
        found = list(secrets_in(line))
        self._values.update(secret.value for secret in found if secret.kind != "private key")
        return found

    def strike(self, text: str) -> str:
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, masked(value))
        for secret in list(secrets_in(text)):
            if secret.kind != "private key":
                text = text.replace(secret.value, masked(secret.value))
        return _RUN.sub(lambda run: masked(run[0]) if entropy(run[0]) >= 4.2 else run[0], text)


def masked(value: str) -> str:
    """Enough to find it again, too little to use it."""
    shown = value[:4] if len(value) >= 20 else ""
    return f"{shown}…({len(value)} characters)"


def check(matter: Matter) -> Iterator[Finding]:
    for file in matter.files:
        if file.after is not None or file.added:
            yield from _named(file)
        if is_generated(file.path) and not file.path.endswith((".min.js", ".map")):
            continue  # lock files are full of digests
        for number, line in file.added.items():
            for secret in matter.masking.learn(line):
                yield _finding(file, number, line, secret)


def _named(file: ChangedFile) -> Iterator[Finding]:
    if file.is_new and (_ENV_FILE.search(file.path) or _KEY_FILE.search(file.path)):
        yield Finding(
            severity=Severity.HIGH,
            category="secrets",
            rule="secret-file",
            file=file.path,
            message="A file of a kind that holds secrets is added to the repository.",
            suggestion="Leave it out (.gitignore), and add a template without values in its place.",
        )


def _finding(file: ChangedFile, number: int, line: str, secret: Secret) -> Finding:
    mild = is_test(file.path) or is_document(file.path)
    severity = Severity.CRITICAL if secret.sure else Severity.HIGH
    if mild:
        severity = Severity.HIGH if secret.sure else Severity.LOW
    shown = "" if secret.kind == "private key" else f" ({masked(secret.value)})"
    return Finding(
        severity=severity,
        category="secrets",
        rule="secret",
        file=file.path,
        line=number,
        column=secret.column,
        message=f"A secret seems to stand in the code: {secret.kind}{shown}.",
        suggestion="Take it out and read it from the environment or a secret store. If it was ever shared, revoke it: history keeps it.",
        snippet=line,
    )
