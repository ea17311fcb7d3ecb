"""One entry of the error ledger: when two errors are the same one, errors counted in memory, and entries to and from the file.

Fields this version does not know are kept as they came. Files and locks are `file`'s."""

import atexit
import hashlib
import logging
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from remit.core.deadline import SYSTEM_CLOCK, Clock, iso
from remit.core.errors import ErrorInfo, Misused, Unavailable
from remit.core.redaction import redact_text
from remit.system.files import append_line, atomic_write, file_lock, set_aside

# ---- One entry of the error ledger: when two errors are the same one, errors counted in memory, and entries to and from the f


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
class ErrorOccurrence:
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

    noted: ErrorOccurrence
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

    def add(self, noted: ErrorOccurrence, at: float) -> None:
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


def key_of(noted: ErrorOccurrence) -> str:
    return similarity_key(noted.error.type, noted.error.code, noted.origin, noted.error.message)


def _only_counted(noted: ErrorOccurrence) -> ErrorOccurrence:
    message = "Too many different errors at once: this one stands for further ones of its type and is only counted."
    return replace(noted, error=replace(noted.error, message=message), stack_trace="")


def _tidied(noted: ErrorOccurrence) -> ErrorOccurrence:
    """What a file can hold: no half characters, no secrets, and no more than a person reads.

    Struck out here, before it is cut (half of a secret is not recognised) and once: what stands in the file is not looked at again.
    """
    error = noted.error
    return replace(
        noted,
        error=replace(
            error,
            type=redact_text(_writable(error.type)),
            code=redact_text(_writable(error.code)),
            message=_beginning(redact_text(_writable(error.message))),
            recommendation=_beginning(redact_text(_writable(error.recommendation))),
        ),
        agent=noted.agent and _writable(noted.agent),
        command=noted.command and _writable(noted.command),
        path=tuple(map(_writable, noted.path)),
        stack_trace=_end(redact_text(_writable(noted.stack_trace))),
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


def _context(noted: ErrorOccurrence) -> dict[str, Any]:
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


# ---- The error ledger's file: read, changed and replaced as a whole, under a lock, by any number of processes; and written wi


SCHEMA_VERSION = "1.0.0"
ENTRIES_LIMIT = 1_000
LOCK_SECONDS = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    entries: tuple[Entry, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields beside `errors` that we do not know."""
    damage: str = ""
    """Why the file cannot be taken as it is; empty when it can."""


class ErrorLedger:
    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK, *, limit: int = ENTRIES_LIMIT) -> None:
        self.path = path
        self.archive_path = path.with_name(f"{path.stem}.archive.jsonl")
        self.set_aside_path: Path | None = None
        """Where a damaged file was put, if this ledger met one."""
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._clock = clock
        self._limit = limit

    def note(self, errors: Sequence[ErrorOccurrence]) -> None:
        """Enter the errors, on disk when this returns. An event loop uses `LedgerWriter` instead."""
        tallies = Tallies()
        for noted in errors:
            tallies.add(noted, self._clock.wall())
        self.enter(tallies)

    def enter(self, tallies: Tallies) -> None:
        if tallies:
            self._change(lambda entries: _merged(entries, tallies.by_key))

    def entries(
        self,
        type: str | None = None,
        *,
        code: str | None = None,
        agent: str | None = None,
        severity: str | None = None,
        fix_status: str | None = None,
    ) -> list[Entry]:
        """Those that fit, the last seen first."""
        contents = self._read()
        if contents.damage:
            contents = self._change(lambda entries: entries)
        asked = {"type": type, "code": code, "severity": severity, "fix_status": fix_status}
        fitting = [
            entry
            for entry in contents.entries
            if all(value is None or getattr(entry, name) == value for name, value in asked.items())
            and (agent is None or entry.context.get("agent") == agent)
        ]
        return sorted(fitting, key=lambda entry: entry.last_seen, reverse=True)

    def set_fixes(self, changes: Mapping[str, Fix]) -> tuple[str, ...]:
        """Say of several entries at once what is being done about them; the ids of those that changed. One that is gone is passed over."""

        def fixed(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
            return tuple(changes[e.id].of(e) if e.id in changes else e for e in entries)

        before = {entry.id: entry for entry in self._read().entries}
        return tuple(e.id for e in self._change(fixed).entries if e != before.get(e.id, e))

    def set_fix(self, entry_id: str, *, status: str | None = None, plan_ref: str | None = None, task_ref: str | int | None = None) -> Entry:
        """Say what is being done about an entry; what is not given stays."""
        if status is not None and status not in FIX_STATUSES:
            raise Misused(f"Unknown fix status {status!r}.", advice=f"Use one of {', '.join(FIX_STATUSES)}.")
        given = {"fix_status": status, "fix_plan_ref": plan_ref, "fix_task_ref": task_ref}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

        def fixed(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
            _demand(entry_id, entries)
            return tuple(replace(e, **changes) if e.id == entry_id else e for e in entries)

        return next(e for e in self._change(fixed).entries if e.id == entry_id)

    def _change(self, change: Callable[[tuple[Entry, ...]], tuple[Entry, ...]]) -> _Contents:
        """Read, change, replace: one process at a time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unreadable(self.path.parent, error) from error
        with file_lock(self._lock_path, timeout=LOCK_SECONDS):
            before = self._read()
            entries = change(before.entries)
            kept, archived = _newest(entries, self._limit)
            if archived:  # before they leave the file: a crash in between keeps them twice, never loses them
                append_line(self.archive_path, b"".join(to_json(e.to_dict()) + b"\n" for e in archived))
            if before.damage:
                self._set_aside(before.damage)
            after = _Contents(entries=kept, extra=before.extra)
            if kept != before.entries or before.damage or not self.path.exists():
                atomic_write(self.path, _serialised(after, self._clock.wall()))
            return _Contents(entries=entries, extra=before.extra)

    def _read(self) -> _Contents:
        try:
            with open(self.path, "rb", opener=_without_waiting) as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    return _Contents(damage="it is no file")  # a pipe that nobody writes would be read for ever
                return _parsed(opened.read())
        except FileNotFoundError:
            return _Contents()
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def _set_aside(self, damage: str) -> None:
        self.set_aside_path = set_aside(self.path, at=self._clock.wall())
        logger.warning("%s was damaged (%s): it is kept as %s and a new one begun.", self.path, damage, self.set_aside_path.name)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _parsed(data: bytes) -> _Contents:
    try:
        document = from_json(data)
    except ValueError as error:
        return _Contents(damage=f"no JSON: {error}")
    if not isinstance(document, dict) or not isinstance(document.get("errors"), list):
        return _Contents(damage="no object with a list `errors`")
    found = [entry_from(value) for value in document["errors"]]
    sound = tuple(entry for entry in found if entry is not None)
    extra = {k: v for k, v in document.items() if k not in ("errors", "_schema_version", "_last_updated")}
    broken = len(found) - len(sound)
    return _Contents(entries=sound, extra=extra, damage=f"{broken} entries cannot be read" if broken else "")


def _serialised(contents: _Contents, now: float) -> bytes:
    document = {
        "_schema_version": SCHEMA_VERSION,
        "_last_updated": iso(now),
        "errors": [entry.to_dict() for entry in contents.entries],
        **contents.extra,
    }
    return to_json(document, indent=2, inf_nan_mode="null") + b"\n"


def _merged(entries: Iterable[Entry], tallies: Mapping[str, Tally]) -> tuple[Entry, ...]:
    merged = list(entries)
    # Entries others wrote may be similar to one another: each stays, and the last of them is the one seen again.
    places = {entry.key: place for place, entry in enumerate(merged)}
    for key, tally in tallies.items():
        if key in places:
            merged[places[key]] = merged[places[key]].again(tally)
        else:
            places[key] = len(merged)
            merged.append(first_entry(tally))
    _relate(merged, {places[key]: tally for key, tally in tallies.items()})
    return tuple(merged)


def _relate(entries: list[Entry], seen: Mapping[int, Tally]) -> None:
    """Entries seen in one tree, or of one agent with one code, get to know one another: the newest of them, both ways."""
    groups: dict[tuple[str, ...], dict[int, None]] = {}
    for place, entry in enumerate(entries):
        for group in _groups_of(entry, seen.get(place)):
            groups.setdefault(group, {})[place] = None
    for place, tally in seen.items():
        others = [other for group in _groups_of(entries[place], tally) for other in list(groups[group])[-RELATED_LIMIT:]]
        entries[place] = entries[place].related_to(entries[other].id for other in others)
        for other in others:
            entries[other] = entries[other].related_to([entries[place].id])


def _groups_of(entry: Entry, tally: Tally | None) -> list[tuple[str, ...]]:
    root_id = entry.context.get("root_id")
    roots = {**(tally.roots if tally else {}), **({str(root_id): None} if root_id else {})}
    return [("origin", entry.origin, entry.code), *(("root", root) for root in roots)]


def _newest(entries: tuple[Entry, ...], limit: int) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Those that stay, in their order, and those that have not been seen for longest."""
    if len(entries) <= limit:
        return entries, ()
    by_age = sorted(entries, key=lambda entry: entry.last_seen)
    leaving = {id(entry) for entry in by_age[: len(entries) - limit]}
    return tuple(e for e in entries if id(e) not in leaving), tuple(e for e in entries if id(e) in leaving)


def _demand(entry_id: str, entries: Iterable[Entry]) -> None:
    ids = [entry.id for entry in entries]
    if entry_id not in ids:
        close = get_close_matches(entry_id, ids, n=1)
        raise Misused(
            f"No entry {entry_id!r} in the error ledger.",
            advice=f"Did you mean {close[0]}?" if close else "See `remit ledger`.",
        )


def _unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"Cannot read {path}: {error.strerror or error}.", code="STORE_UNAVAILABLE", advice="Check its permissions.")


GATHER_SECONDS = 0.05
RETRY_SECONDS = 1.0
REST_SHARE = 5
"""A large ledger takes longer to write: the pause grows with it, so that writing never takes more than a sixth of a core."""
INBOX_LIMIT = 1_000
CLOSE_SECONDS = 5.0


class _Mark:
    """Stands in the inbox for `flush`: answered when everything before it is written, or could not be."""

    __slots__ = ("answered", "written")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.written = False


class LedgerWriter:
    def __init__(self, ledger: ErrorLedger, clock: Clock = SYSTEM_CLOCK, *, gather_seconds: float = GATHER_SECONDS) -> None:
        self._ledger = ledger
        self._clock = clock
        self._gather_seconds = gather_seconds
        self._pause_seconds = gather_seconds
        self._inbox: deque[tuple[ErrorOccurrence, float] | _Mark] = deque()
        self._tallies = Tallies()
        self._marks: list[_Mark] = []
        self._guard = threading.Lock()
        """Over the tallies, the marks and the start of the thread; never held while the file is written."""
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.trouble: str = ""
        """Why the last visit to the file failed; empty when it did not."""

    def post(self, noted: ErrorOccurrence) -> None:
        """Note an error soon; from any thread."""
        self._inbox.append((noted, self._clock.wall()))
        if len(self._inbox) > INBOX_LIMIT:
            self._fold()
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until what was posted before is in the file; whether it is."""
        if self._thread is None and not self._inbox and not self._tallies:
            return True
        mark = _Mark()
        self._inbox.append(mark)
        self._start()
        self._hurry.set()
        self._wake.set()
        return mark.answered.wait(timeout) and mark.written

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Flush and end the thread; whether everything is in the file. Something posted later starts it again."""
        give_up_at = time.monotonic() + timeout
        written = self.flush(timeout)
        thread = self._thread
        if thread is not None:
            self._closing = True
            self._hurry.set()
            self._wake.set()
            thread.join(max(0.0, give_up_at - time.monotonic()))
        atexit.unregister(self.close)
        return written

    def _start(self) -> None:
        with self._guard:
            if self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._run, name="remit-ledger", daemon=True)
                self._thread.start()
                atexit.register(self.close)  # a program that ends without closing loses no error

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(self._pause_seconds)
            self._wake.clear()
            self._hurry.clear()
            written = self._visit()
            if self._closing and self._ended(written):
                return
            if not written:
                self._wake.set()

    def _ended(self, written: bool) -> bool:
        """Give the thread up, unless something was posted meanwhile and can be written.

        Given up first, looked afterwards: whoever posts appends first and looks for the thread afterwards, so one sees the other.
        """
        with self._guard:
            thread, self._thread = self._thread, None
            if written and self._inbox:
                self._thread = thread
                return False
            return True

    def _visit(self) -> bool:
        """Take everything there is to the file; whether that succeeded."""
        self._fold()
        with self._guard:
            tallies, self._tallies = self._tallies, Tallies()
            marks, self._marks = self._marks, []
        began = time.monotonic()
        try:
            self._ledger.enter(tallies)
            self.trouble = ""
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a disk or a file does; errors are kept and told
            self._keep(tallies, error)
        self._pause_seconds = max(self._gather_seconds, REST_SHARE * (time.monotonic() - began)) if not self.trouble else RETRY_SECONDS
        for mark in marks:
            mark.written = not self.trouble
            mark.answered.set()
        return not self.trouble

    def _keep(self, tallies: Tallies, error: Exception) -> None:
        if not self.trouble:
            log = logger.warning if isinstance(error, Unavailable) else logger.exception
            log("Errors cannot be written to %s and are kept in memory: %s", self._ledger.path, error)
        self.trouble = str(error) or type(error).__name__
        with self._guard:
            tallies.merge(self._tallies)
            self._tallies = tallies

    def _fold(self) -> None:
        """Count what is in the inbox: each kind of error takes its place in memory once."""
        with self._guard:
            while self._inbox:
                item = self._inbox.popleft()
                if isinstance(item, _Mark):
                    self._marks.append(item)
                else:
                    self._tallies.add(*item)
