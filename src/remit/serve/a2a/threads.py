"""Tasks that wait for input and continue: one A2A task, several delegations, each with `resume=` of the one before.

A task keeps the id of its first delegation. The keys of the later ones are written to the note of the task before each begins, so a crash
in between loses nothing, and a message sent twice runs once. A note is one file, `.remit/a2a/SESSION.json`, readable by the owner alone,
because it holds callers' tokens; it is written under a lock, since several servers may serve one project."""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from a2a.types import Message
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from remit.access.private import private_folder, read_private, write_private
from remit.access.visitor import Doing
from remit.core.errors import Refused
from remit.core.ids import is_session_id
from remit.core.record import Record
from remit.core.secrets import is_redacted
from remit.core.states import State
from remit.serve.a2a.messages import Asked
from remit.serve.a2a.tasks import ON, context_of, origin_in
from remit.serve.service import Call, Service
from remit.system.files import file_lock
from remit.system.threads import off_loop
from remit.tool.catalogue import parts_of

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


MOST_TURNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A task with everything that went on in it."""

    task_id: str
    records: tuple[Record, ...]
    """In their order; the last one is how it stands."""
    note: Note

    @property
    def record(self) -> Record:
        return self.records[-1]

    @property
    def is_cancelled(self) -> bool:
        return self.note.is_cancelled and self.record.state is State.BLOCKED

    @property
    def waits(self) -> bool:
        """For an answer of its caller's."""
        return self.record.state is State.BLOCKED and not self.note.is_cancelled


def key_of(call: Call, message_id: str) -> str:
    """A client's retry of a message does not run twice: whoever sends it, and the id it gave it, are one key."""
    return f"a2a:{_digest(call.visitor.principal, call.visitor.parent or '', message_id)}"


def key_on(call: Call, task_id: str, message_id: str) -> str:
    return f"{ON}{task_id}:{_digest(call.visitor.principal, call.visitor.parent or '', message_id)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Threads:
    def __init__(self, service: Service, notes: Notes) -> None:
        self._service = service
        self.notes = notes
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, task_id: str) -> asyncio.Lock:
        """Held by whoever goes on with a task, or gives it up: of two answers one is taken, and what is cancelled does not go on."""
        return self._turns.setdefault(task_id, asyncio.Lock())

    async def own(self, call: Call, task_id: str) -> Thread:
        """One that is the caller's to change. Raises `Misused` (TASK_NOT_FOUND), or `Refused` where it may only look at it."""
        thread = await self.of(call, task_id)
        if not self.may_change(call, thread):
            raise Refused(f"Task {thread.task_id} is not {call.visitor.principal}'s.", code="FORBIDDEN")
        return thread

    async def of(self, call: Call, task_id: str) -> Thread:
        """Raises `Misused` (TASK_NOT_FOUND), also where it is somebody else's."""
        first = await self._service.record(call, task_id)
        origin = origin_in(first.key)
        if origin is not None and is_session_id(origin) and origin != task_id:  # it was asked for by the id of a later part
            first = await self._service.record(call, origin)
        return await off_loop(self._followed, first)

    def whole(self, record: Record) -> Thread:
        """The thread that a record belongs to, which was found to be the caller's. Called off the event loop."""
        origin = origin_in(record.key)
        first = self._service.remit.store.get(origin) if origin is not None and is_session_id(origin) else None
        return self._followed(first if first is not None and first.agent == record.agent else record)

    def may_change(self, call: Call, thread: Thread) -> bool:
        """Whose task it is, and whoever owns the project."""
        first, visitor = thread.records[0], call.visitor
        if visitor.parent is not None:
            return first.parent_id == visitor.parent
        return visitor.may(Doing.CANCEL_ALL) or (first.came is not None and first.came.principal == visitor.principal)

    def _followed(self, first: Record) -> Thread:
        note = self.notes.of(first.session_id)
        found = (self._service.remit.store.by_key(key) for key in note.keys)
        later = [record for record in found if record is not None and record.agent == first.agent]
        return Thread(task_id=first.session_id, records=(first, *later), note=note)

    async def go_on(self, call: Call, thread: Thread, message: Message, asked: Asked) -> Record:
        """With what its caller answers; the delegation that goes on."""
        key = key_on(call, thread.task_id, message.message_id)
        if key in thread.note.keys and (known := await off_loop(self._service.remit.store.by_key, key)) is not None:
            return known  # sent a second time
        if not self.may_change(call, thread):
            raise Refused(f"Task {thread.task_id} is not {call.visitor.principal}'s to go on with.", code="FORBIDDEN")
        if not thread.waits:
            raise UnsupportedOperationError(
                f"Task {thread.task_id} does not wait for an answer. Send the message without a task id, in its context, to begin another."
            )
        if len(thread.note.keys) >= MOST_TURNS:
            raise UnsupportedOperationError(f"Task {thread.task_id} was gone on with {MOST_TURNS} times: begin another one.")
        request = self._service.read(call, {**self._arguments(thread.record, asked), "resume": thread.record.session_id})
        await off_loop(self.notes.change, thread.task_id, lambda note: _with_key(note, key, thread.note))
        handle = await self._service.execute(call, replace(request, also={**request.also, "key": key}))
        return await self._service.record(call, handle.session_id)

    async def give_up(self, thread: Thread) -> None:
        """It waited, and is cancelled: nothing runs that could be stopped."""
        await off_loop(self.notes.change, thread.task_id, lambda note: replace(note, is_cancelled=True))

    def _arguments(self, before: Record, asked: Asked) -> Mapping[str, Any]:
        """As it was asked before, with what is said now."""
        target, operation = parts_of(before.agent)
        parameters = dict(before.parameters)
        given = dict(asked.data or {})
        inner = given.pop("parameters", None)
        parameters |= inner if isinstance(inner, Mapping) else {}
        taken: dict[str, Any] = {name: given.pop(name) for name in ("timeout", "priority", "budget", "idle") if name in given}
        given.pop("target", None)
        given.pop("operation", None)
        parameters |= given
        if is_redacted(parameters):
            raise InvalidParamsError("What is secret of its parameters is not kept: send them again with the answer.")
        if asked.text:
            spoken = next((name for name in ("task", "message") if name in parameters), None)
            if spoken is None:
                raise InvalidParamsError(f"{before.agent} takes parameters, no words: send a data part with what changed.")
            parameters[spoken] = asked.text
        return {**taken, "target": target, "operation": operation, "parameters": parameters}


def _with_key(note: Note, key: str, seen: Note) -> Note:
    """`seen`: as it was when it was found to wait; another server of this project may have gone on with it since."""
    if key in note.keys:
        return note
    if note.is_cancelled or note.keys != seen.keys:
        raise UnsupportedOperationError("The task was answered, or cancelled, by another message just now.")
    return replace(note, keys=(*note.keys, key))


def must_fit(thread: Thread, message: Message) -> None:
    """A context that is not the task's is a mistake of the client's."""
    if message.context_id and message.context_id != context_of(thread.records[0]):
        raise InvalidParamsError(f"Task {thread.task_id} does not belong to context {message.context_id[:80]}.")
