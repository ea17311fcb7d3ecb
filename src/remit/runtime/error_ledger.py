"""The error ledger `.remit/errors.json`: similar errors share one entry with a count.

`ErrorLedger` is the file: read, changed and replaced as a whole, under a lock, by any number of processes. `LedgerWriter` writes it from
its own thread, so that an event loop never waits. Fields and entries of other programs are kept."""

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from remit.core.deadline import SYSTEM_CLOCK, Clock, iso
from remit.core.errors import ErrorInfo, Unavailable
from remit.core.jsonable import clean_text
from remit.core.redaction import redact_text
from remit.core.text import shorten, shorten_middle
from remit.system.beneath import open_regular
from remit.system.files import atomic_write, file_lock, set_aside

logger = logging.getLogger(__name__)

_QUOTED = re.compile(r"\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»|(?<!\w)'[^'\n]*'(?!\w)")
"""A single quote inside a word is an apostrophe."""
_PARTICULAR = re.compile(r"(?<!\S)\S*[\d/\\]\S*|(?<!\S)[\w-]+\.\w{1,5}(?!\w)\S*")
"""Words with a digit (numbers, ids, hashes, times) or a slash (paths, URLs), and file names."""


@lru_cache(maxsize=8192)
def normalize_message(message: str) -> str:
    """The message without numbers, ids, paths and quoted parts."""
    return " ".join(_PARTICULAR.sub("<name>", _QUOTED.sub("<text>", message)).split())


MESSAGE_LIMIT = 2_000
STACK_LIMIT = 8_000

_NOTHING = re.compile(r"nothing (?:added )?to commit", re.IGNORECASE)


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
    """The tree it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    id: str
    timestamp: str
    """Creation time of the entry. Times are UTC."""
    type: str
    severity: str = "high"
    context: Mapping[str, Any] = field(default_factory=dict)
    """The latest occurrence: code, agent, command, session, tree, task, path, recommendation."""
    message: str
    """The latest message."""
    stack_trace: str = ""
    fix_status: str = "not_addressed"
    fix_plan_ref: str | None = None
    fix_task_ref: str | int | None = None
    recurrence_count: int = 1
    """Number of occurrences."""
    first_seen: str = ""
    last_seen: str = ""
    related_errors: tuple[str, ...] = ()
    """Ids of other entries, as written by people and other programs."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return str(self.context.get("code") or "")

    @property
    def origin(self) -> str:
        return str(self.context.get("agent") or self.context.get("command") or "")

    @property
    def key(self) -> str:
        """Equal for similar errors."""
        parts = "\0".join((self.type, self.code, self.origin, normalize_message(self.message)))
        return hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _FIELDS}, **self.extra}

    def absorb(self, other: "Entry") -> "Entry":
        """The entry with the occurrences of another one. A resolved entry is reopened; the plan and task of its fix stay named."""
        newest = other if other.last_seen >= self.last_seen else self
        return replace(
            self,
            recurrence_count=self.recurrence_count + other.recurrence_count,
            first_seen=min(self.first_seen, other.first_seen),
            last_seen=newest.last_seen,
            context=newest.context,
            message=newest.message,
            stack_trace=newest.stack_trace or self.stack_trace,
            fix_status="not_addressed" if self.fix_status == "resolved" else self.fix_status,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The state of the fix of an entry; replaces the earlier one."""

    status: str
    plan_ref: str | None = None
    task_ref: str | int | None = None

    def of(self, entry: Entry) -> Entry:
        return replace(entry, fix_status=self.status, fix_plan_ref=self.plan_ref, fix_task_ref=self.task_ref)


_FIELDS = tuple(name for name in Entry.__dataclass_fields__ if name != "extra")


def first_entry(occurrence: ErrorOccurrence, at: float) -> Entry:
    """The entry of an error that was not seen before: without lone surrogates and secrets, and shortened only after these are gone, because
    half a secret is not recognised."""
    error, moment = occurrence.error, iso(at)
    entry = Entry(
        id="",
        timestamp=moment,
        type=_redacted(error.type),
        severity="medium" if error.code == "TIMEOUT" or error.type == "timeout" else "high",
        context={
            "code": _redacted(error.code),
            "agent": occurrence.agent and clean_text(occurrence.agent),
            "command": occurrence.command and clean_text(occurrence.command),
            "session_id": occurrence.session_id,
            "root_id": occurrence.root_id,
            "task_number": occurrence.task_number,
            "delegation_path": [clean_text(name) for name in occurrence.path],
            "recoverable": error.recoverable,
            "recommendation": shorten(_redacted(error.recommendation), MESSAGE_LIMIT),
        },
        message=shorten(_redacted(error.message), MESSAGE_LIMIT),
        stack_trace=shorten_middle(_redacted(occurrence.stack_trace), STACK_LIMIT),
        first_seen=moment,
        last_seen=moment,
    )
    return replace(entry, id=f"error_{entry.key}")


def _redacted(text: str) -> str:
    return redact_text(clean_text(text))


@lru_cache(maxsize=1)
def _validator() -> Any:
    from pydantic import TypeAdapter  # slow to import, and most programs read no ledger

    return TypeAdapter(Entry)


def entry_from(value: Any) -> Entry | None:
    """Parse an entry; None if invalid: people and other programs also write the file."""
    if not isinstance(value, dict):
        return None
    known = {name: value[name] for name in _FIELDS if value.get(name) is not None}
    known |= {name: value.get(name) or value.get("timestamp") for name in ("first_seen", "last_seen")}
    try:
        entry: Entry = _validator().validate_python(known)
    except ValueError:
        return None
    return replace(entry, extra={name: field for name, field in value.items() if name not in _FIELDS}) if entry.id else None


SCHEMA_VERSION = "1.0.0"
ENTRIES_LIMIT = 1_000
LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    entries: tuple[Entry, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Unknown fields beside `errors`."""
    damage: str = ""
    """Why the file is unusable; empty if it is valid."""


class ErrorLedger:
    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK, *, limit: int = ENTRIES_LIMIT) -> None:
        self.path = path
        self.set_aside_path: Path | None = None
        """New location of a damaged file, if there was one."""
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._clock = clock
        self._limit = limit

    def note(self, errors: Sequence[ErrorOccurrence], at: Sequence[float] = ()) -> None:
        """Record the errors; on disk when this returns. An event loop uses `LedgerWriter` instead. `at`: their times, unless now."""
        times = at or [self._clock.wall()] * len(errors)
        found = zip(errors, times, strict=True)
        new = [first_entry(one, time) for one, time in found if _NOTHING.search(one.error.message[:200]) is None]  # a remark of git
        if new:
            self._change(lambda entries: _merge_entries(entries, new))

    def entries(self) -> list[Entry]:
        """Entries, latest first."""
        contents = self._read()
        if contents.damage:
            contents = self._change(lambda entries: entries)
        return sorted(contents.entries, key=lambda entry: entry.last_seen, reverse=True)

    def set_fixes(self, changes: Mapping[str, Fix]) -> tuple[str, ...]:
        """Record the state of fixes by entry id. Returns the changed ids; unknown ids are ignored."""
        before = {entry.id: entry for entry in self._read().entries}
        after = self._change(lambda entries: tuple(changes[e.id].of(e) if e.id in changes else e for e in entries))
        return tuple(e.id for e in after.entries if e != before.get(e.id, e))

    def _change(self, change: Callable[[tuple[Entry, ...]], tuple[Entry, ...]]) -> _Contents:
        """Read, change and replace the file, one process at a time."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unreadable(self.path.parent, error) from error
        with file_lock(self._lock_path, timeout=LOCK_SECONDS):
            before = self._read()
            entries = change(before.entries)
            if before.damage:
                self.set_aside_path = set_aside(self.path, at=self._clock.wall())
                logger.warning("%s was damaged (%s) and moved to %s.", self.path, before.damage, self.set_aside_path.name)
            latest = {id(entry) for entry in sorted(entries, key=lambda entry: entry.last_seen)[-self._limit :]}
            kept = tuple(entry for entry in entries if id(entry) in latest)
            if kept != before.entries or before.damage or not self.path.exists():
                atomic_write(self.path, _serialised(_Contents(entries=kept, extra=before.extra), self._clock.wall()))
            return _Contents(entries=entries, extra=before.extra)

    def _read(self) -> _Contents:
        try:
            with os.fdopen(open_regular(self.path), "rb") as opened:
                return _parsed(opened.read())
        except FileNotFoundError:
            return _Contents()
        except OSError as error:
            raise _unreadable(self.path, error) from error


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


def _merge_entries(entries: Iterable[Entry], new: Iterable[Entry]) -> tuple[Entry, ...]:
    # Entries of other programs may be similar to one another: each is kept, and the last one is counted.
    merged = list(entries)
    places = {entry.key: place for place, entry in enumerate(merged)}
    for entry in new:
        if (place := places.get(entry.key)) is not None:
            merged[place] = merged[place].absorb(entry)
        else:
            places[entry.key] = len(merged)
            merged.append(entry)
    return tuple(merged)


def _unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"Cannot read {path}: {error.strerror or error}.", code="STORE_UNAVAILABLE", advice="Check its permissions.")


GATHER_SECONDS = 0.05
"""Pause before a write, so that errors of one moment are written together."""
INBOX_LIMIT = 10_000
"""Errors in memory while the file cannot be written; further ones are only counted in the log."""
CLOSE_SECONDS = 5.0


class LedgerWriter:
    """Writes occurrences to the ledger on a thread. What could not be written is kept, and written with the next error or `flush`.

    A program that exits waits for the thread, so that it loses no error."""

    def __init__(self, ledger: ErrorLedger, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.Lock()
        """Guards the inbox and the write; not held during file writes."""
        self._inbox: list[tuple[ErrorOccurrence, float]] = []
        self._thread = ThreadPoolExecutor(1, "remit-ledger")
        self._writing: Future[None] | None = None
        self.trouble = ""
        """Why the last write failed; empty if it succeeded."""

    def post(self, occurrence: ErrorOccurrence) -> None:
        """Record an error soon; callable from any thread."""
        with self._lock:
            if len(self._inbox) >= INBOX_LIMIT:
                logger.error("Too many errors at once, not written to %s: %s", self._ledger.path, occurrence.error.message)
                return
            self._inbox.append((occurrence, self._clock.wall()))
            if self._writing is None:
                self._writing = self._thread.submit(self._write, GATHER_SECONDS)

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until everything posted before is written or has failed. Returns whether all is written."""
        with self._lock:
            if self._writing is None and self._inbox:
                self._writing = self._thread.submit(self._write, 0.0)
            writing = self._writing
        if writing is not None:
            wait([writing], timeout)
        return not self._inbox

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Flush, and end the thread. Returns whether all is written. A later `post` starts another."""
        is_written = self.flush(timeout)
        with self._lock:
            self._thread.shutdown(wait=False)
            self._thread = ThreadPoolExecutor(1, "remit-ledger")
        return is_written

    def _write(self, pause_seconds: float) -> None:
        time.sleep(pause_seconds)
        while True:
            inbox, trouble = list(self._inbox), ""
            try:
                self._ledger.note([error for error, _ in inbox], [at for _, at in inbox])
            except Exception as error:  # noqa: BLE001 - any disk or file error: the errors are kept
                trouble = str(error) or type(error).__name__
                if not self.trouble:
                    logger.warning("Errors cannot be written to %s and are kept in memory: %s", self._ledger.path, error)
            with self._lock:
                self.trouble = trouble
                if not trouble:
                    del self._inbox[: len(inbox)]
                if trouble or not self._inbox:
                    self._writing = None
                    return
