"""The error ledger's file: read, changed and replaced as a whole, under a lock, by any number of processes; and written without waiting.

Created when missing. What cannot be read as a ledger is set aside, never overwritten; its sound entries are carried over.
At most 1,000 entries stand in it: those not seen for longest move to `errors.archive.jsonl` beside it."""

import atexit
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from remit.core.clock import SYSTEM_CLOCK, Clock, iso
from remit.core.errors import Misused, Unavailable
from remit.runtime.ledger.entry import FIX_STATUSES, RELATED_LIMIT, Entry, Fix, Noted, Tallies, Tally, entry_from, first_entry
from remit.system.files import append_line, atomic_write, file_lock, set_aside

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

    def note(self, errors: Sequence[Noted]) -> None:
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
        self._inbox: deque[tuple[Noted, float] | _Mark] = deque()
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

    def post(self, noted: Noted) -> None:
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
