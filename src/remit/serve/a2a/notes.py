"""What is kept of an A2A task beside its delegation: by which messages it was gone on with, and who is to be notified of it.

One small file for each task that has any, `.remit/a2a/SESSION.json`, readable by the owner alone: it holds callers' tokens. Survives the
server; written whole, under a lock, since several servers may serve one project. Used by `continuing` and `pushing`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.access.private import private_folder, read_private, write_private
from remit.core.ids import is_session_id
from remit.system.files import file_lock

LOCK_SECONDS = 5.0
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Somebody who is to be told when the state of a task changes."""

    config_id: str
    url: str
    token: str = ""
    scheme: str = ""
    credentials: str = ""
    session: str = ""
    """Of the delegation that it was last told of, when the task has several."""
    told: int = 0
    """The number of the last event it was told of."""
    is_done: bool = False
    """It was told of the end, or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    keys: tuple[str, ...] = ()
    """Of the delegations that go on with it, in their order: written down before each is begun."""
    is_cancelled: bool = False
    """It was cancelled while it waited for an answer, when nothing ran."""
    watchers: tuple[Watcher, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        watchers = [{name: getattr(watcher, name) for name in Watcher.__dataclass_fields__} for watcher in self.watchers]
        return {"keys": list(self.keys), "is_cancelled": self.is_cancelled, "watchers": watchers}


NOTHING = Note()


class Notes:
    """Of one project. Called off the event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "a2a"

    def of(self, task_id: str) -> Note:
        return _understood(read_private(self._path(task_id))) if is_session_id(task_id) else NOTHING

    def change(self, task_id: str, by: Callable[[Note], Note]) -> Note:
        """`by` gives the new one; the same one: nothing is written."""
        path = self._path(task_id)
        private_folder(self._folder)
        with file_lock(self._folder / ".lock", timeout=LOCK_SECONDS):
            before = _understood(read_private(path))
            after = by(before)
            if after == NOTHING:
                path.unlink(missing_ok=True)
            elif after != before:
                write_private(path, json.dumps(after.to_dict()).encode())
        return after

    def all(self) -> Iterator[str]:
        """The tasks that have one, the newest first."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in sorted(names, reverse=True):
            if name.endswith(_SUFFIX) and is_session_id(name.removesuffix(_SUFFIX)):
                yield name.removesuffix(_SUFFIX)

    def prune(self, *, older_than_seconds: float, is_known: Callable[[str], bool]) -> None:
        """Forget those whose delegation is no longer known."""
        now = time.time()
        for task_id in self.all():
            path = self._path(task_id)
            try:
                if now - path.stat().st_mtime > older_than_seconds and not is_known(task_id):
                    path.unlink()
            except FileNotFoundError:
                continue

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{task_id}{_SUFFIX}"


def with_watcher(note: Note, watcher: Watcher) -> Note:
    """In the place of the one with its id, or at the end."""
    known = [one.config_id for one in note.watchers]
    if watcher.config_id not in known:
        return replace(note, watchers=(*note.watchers, watcher))
    return replace(note, watchers=tuple(watcher if one.config_id == watcher.config_id else one for one in note.watchers))


def without_watcher(note: Note, config_id: str) -> Note:
    return replace(note, watchers=tuple(one for one in note.watchers if one.config_id != config_id))


def _understood(data: bytes | None) -> Note:
    """A damaged one counts as none: nothing of the delegation itself is in it."""
    try:
        held: Mapping[str, Any] = json.loads(data or b"{}")
        watchers = tuple(Watcher(**one) for one in held.get("watchers", ()))
        return Note(keys=tuple(map(str, held.get("keys", ()))), is_cancelled=held.get("is_cancelled") is True, watchers=watchers)
    except (ValueError, TypeError, AttributeError):
        return NOTHING
