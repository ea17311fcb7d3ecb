"""One entry of the error ledger: when two errors are the same one, errors counted in memory, and entries to and from the file.

Fields this version does not know are kept as they came. Files and locks are `file`'s."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from remit.core.clock import iso
from remit.core.errors import ErrorInfo
from remit.core.secrets import redacted_text

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


MESSAGE_LIMIT = 2_000
STACK_LIMIT = 8_000
KINDS_LIMIT = 2_000
ROOTS_LIMIT = 8
"""Trees remembered for one kind of error between two visits to the file: enough to relate what failed together."""

_NOTHING = re.compile(r"nothing (?:added )?to commit", re.IGNORECASE)
_ONLY_NOTHING = re.compile(r"\s*(?:git(?: commit)?(?: failed)?:?\s*)?(?:on branch \S+\s+)?nothing (?:added )?to commit", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An error and where it happened."""

    error: ErrorInfo
    agent: str | None = None
    command: str | None = None
    session_id: str | None = None
    task_number: int | None = None
    path: tuple[str, ...] = ()
    """The delegation path, from the root to the agent."""
    stack_trace: str = ""
    root_id: str | None = None
    """The tree it belongs to; what fails in one tree is related."""

    @property
    def origin(self) -> str:
        return self.agent or self.command or ""

    @property
    def is_an_error(self) -> bool:
        """ "Nothing to commit" is none."""
        if self.error.code == "GIT_COMMIT_FAILED" or self.error.type == "git":
            return _NOTHING.search(self.error.message) is None
        return _ONLY_NOTHING.match(self.error.message) is None


@dataclass(slots=True, kw_only=True)
class Tally:
    """One kind of error since the last visit to the file."""

    noted: Noted
    """Its newest occurrence."""
    count: int
    first_at: float
    last_at: float
    roots: dict[str, None] = field(default_factory=dict)
    """The trees it was seen in, oldest first."""

    def absorb(self, other: "Tally") -> None:
        self.count += other.count
        self.first_at = min(self.first_at, other.first_at)
        if other.last_at >= self.last_at:
            self.last_at = other.last_at
            self.noted = other.noted if other.noted.stack_trace else replace(other.noted, stack_trace=self.noted.stack_trace)
        self.roots |= other.roots
        while len(self.roots) > ROOTS_LIMIT:
            del self.roots[next(iter(self.roots))]


class Tallies:
    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[str, Tally] = {}

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def add(self, noted: Noted, at: float) -> None:
        if noted.is_an_error:
            roots = dict.fromkeys([noted.root_id]) if noted.root_id else {}
            self._absorb(Tally(noted=_tidied(noted), count=1, first_at=at, last_at=at, roots=roots))

    def merge(self, other: "Tallies") -> None:
        for tally in other.by_key.values():
            self._absorb(tally)

    def _absorb(self, tally: Tally) -> None:
        key = key_of(tally.noted)
        if key not in self.by_key and len(self.by_key) >= KINDS_LIMIT:
            tally.noted = _only_counted(tally.noted)
            key = key_of(tally.noted)
        present = self.by_key.get(key)
        if present is None:
            self.by_key[key] = tally
        else:
            present.absorb(tally)


def key_of(noted: Noted) -> str:
    return similarity_key(noted.error.type, noted.error.code, noted.origin, noted.error.message)


def _only_counted(noted: Noted) -> Noted:
    message = "Too many different errors at once: this one stands for further ones of its type and is only counted."
    return replace(noted, error=replace(noted.error, message=message), stack_trace="")


def _tidied(noted: Noted) -> Noted:
    """What a file can hold: no half characters, no secrets, and no more than a person reads.

    Struck out here, before it is cut (half of a secret is not recognised) and once: what stands in the file is not looked at again.
    """
    error = noted.error
    return replace(
        noted,
        error=replace(
            error,
            type=redacted_text(_writable(error.type)),
            code=redacted_text(_writable(error.code)),
            message=_beginning(redacted_text(_writable(error.message))),
            recommendation=_beginning(redacted_text(_writable(error.recommendation))),
        ),
        agent=noted.agent and _writable(noted.agent),
        command=noted.command and _writable(noted.command),
        path=tuple(map(_writable, noted.path)),
        stack_trace=_end(redacted_text(_writable(noted.stack_trace))),
    )


def _beginning(text: str) -> str:
    more = len(text) - MESSAGE_LIMIT
    return text if more <= 0 else f"{text[:MESSAGE_LIMIT]} … ({more} more characters)"


def _end(text: str) -> str:
    more = len(text) - STACK_LIMIT
    return text if more <= 0 else f"({more} characters before) … {text[-STACK_LIMIT:]}"


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


FIX_STATUSES = ("not_addressed", "in_progress", "resolved", "wont_fix")
RELATED_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    id: str
    timestamp: str
    """When the entry was made. Times are UTC."""
    type: str
    severity: str
    context: Mapping[str, Any]
    """Where it happened last: code, agent, command, session, tree, task, path, and what was recommended."""
    message: str
    """As it was last seen."""
    stack_trace: str
    fix_status: str
    fix_plan_ref: str | None
    fix_task_ref: str | int | None
    recurrence_count: int
    """How often it was seen, the first time included."""
    first_seen: str
    last_seen: str
    related_errors: tuple[str, ...]
    """Ids of entries seen in the same tree, or of the same agent with the same code."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return str(self.context.get("code") or "")

    @property
    def origin(self) -> str:
        return str(self.context.get("agent") or self.context.get("command") or "")

    @property
    def key(self) -> str:
        return similarity_key(self.type, self.code, self.origin, self.message)

    def to_dict(self) -> dict[str, Any]:
        known = {name: getattr(self, name) for name in _FIELDS}
        return {**known, **self.extra}

    def again(self, tally: Tally) -> "Entry":
        """Seen again. One that was held to be resolved needs somebody's attention once more; what was tried stays named."""
        newest = iso(tally.last_at) >= self.last_seen
        noted = tally.noted
        return replace(
            self,
            recurrence_count=self.recurrence_count + tally.count,
            first_seen=min(self.first_seen, iso(tally.first_at)),
            last_seen=max(self.last_seen, iso(tally.last_at)),
            context=_context(noted) if newest else self.context,
            message=noted.error.message if newest else self.message,
            stack_trace=(noted.stack_trace if newest else "") or self.stack_trace,
            fix_status="not_addressed" if self.fix_status == "resolved" else self.fix_status,
        )

    def related_to(self, ids: Iterable[str]) -> "Entry":
        together = dict.fromkeys((*self.related_errors, *ids))
        together.pop(self.id, None)
        related = tuple(together)[-RELATED_LIMIT:]
        return self if related == self.related_errors else replace(self, related_errors=related)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What is being done about an entry, whole: what was said before is replaced."""

    status: str
    plan_ref: str | None = None
    task_ref: str | int | None = None

    def of(self, entry: Entry) -> Entry:
        return replace(entry, fix_status=self.status, fix_plan_ref=self.plan_ref, fix_task_ref=self.task_ref)


_FIELDS = tuple(name for name in Entry.__dataclass_fields__ if name != "extra")


def first_entry(tally: Tally) -> Entry:
    error = tally.noted.error
    return Entry(
        id=f"error_{key_of(tally.noted)}",
        timestamp=iso(tally.first_at),
        type=error.type,
        severity="medium" if error.code == "TIMEOUT" or error.type == "timeout" else "high",
        context=_context(tally.noted),
        message=error.message,
        stack_trace=tally.noted.stack_trace,
        fix_status="not_addressed",
        fix_plan_ref=None,
        fix_task_ref=None,
        recurrence_count=tally.count,
        first_seen=iso(tally.first_at),
        last_seen=iso(tally.last_at),
        related_errors=(),
    )


def _context(noted: Noted) -> dict[str, Any]:
    return {
        "code": noted.error.code,
        "agent": noted.agent,
        "command": noted.command,
        "session_id": noted.session_id,
        "root_id": noted.root_id,
        "task_number": noted.task_number,
        "delegation_path": list(noted.path),
        "recoverable": noted.error.recoverable,
        "recommendation": noted.error.recommendation,
    }


def _text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("timestamp", "type", "message", "severity", "fix_status"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("stack_trace", "first_seen", "last_seen", "fix_plan_ref"), _text),
    "id": lambda value: isinstance(value, str) and value != "",
    "context": lambda value: isinstance(value, dict),
    "fix_task_ref": lambda value: _text(value) or type(value) is int,
    "recurrence_count": lambda value: type(value) is int and value >= 1,
    "related_errors": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
}
_REQUIRED = frozenset({"id", "timestamp", "type", "message"})
_DEFAULTS: dict[str, Any] = {"severity": "high", "context": {}, "stack_trace": "", "fix_status": "not_addressed", "fix_plan_ref": None,
             "fix_task_ref": None, "recurrence_count": 1, "first_seen": "", "last_seen": "", "related_errors": []}  # fmt: skip


def entry_from(value: Any) -> Entry | None:
    """The entry a piece of the file stands for; None when it is none: people and other programs write the file too."""
    if not isinstance(value, dict) or not value.keys() >= _REQUIRED:
        return None
    if not all(is_right(value[name]) for name, is_right in _CHECKS.items() if name in value):
        return None
    known = {**_DEFAULTS, **{name: value[name] for name in _FIELDS if name in value}}
    known["stack_trace"] = known["stack_trace"] or ""
    known["related_errors"] = tuple(known["related_errors"])
    known["first_seen"] = known["first_seen"] or known["timestamp"]
    known["last_seen"] = known["last_seen"] or known["timestamp"]
    return Entry(**known, extra={name: field for name, field in value.items() if name not in _FIELDS})
