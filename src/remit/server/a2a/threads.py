"""Tasks that wait for input and continue: one A2A task, several delegations, each with `resume=` of the previous one.

A task keeps the id of its first delegation. The keys of later ones are written to the note of the task before each starts, so a crash in
between loses nothing, and a message sent twice runs once. A note is one file, `.remit/a2a/SESSION.json`, readable only by the owner; it is
written under a lock, since several servers may serve one project."""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from a2a.types import Message
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from pydantic import TypeAdapter

from remit.core.delegate_requests import parts_of
from remit.core.ids import is_session_id
from remit.core.record import Record
from remit.core.redaction import is_redacted
from remit.core.states import State
from remit.server.a2a.messages import CONTINUES, IncomingMessage, answer_of, asked_of, context_of, continued_task
from remit.server.service import Call, Service
from remit.system.files import file_lock, private_folder, read_private, write_private
from remit.system.threads import off_loop

LOCK_SECONDS = 5.0
MOST_TURNS = 100
POLL_SECONDS = 2.0
"""Another server of the project may continue a task; its note is read again after this time."""


# ---- notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    keys: tuple[str, ...] = ()
    """Of the later delegations of the task, in order."""
    is_cancelled: bool = False
    """Cancelled while it waited for input."""


EMPTY = Note()
_NOTE: TypeAdapter[Note] = TypeAdapter(Note)


class Notes:
    """The notes of one project. Called off the event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "a2a"

    def of(self, task_id: str) -> Note:
        """A damaged note counts as empty: the delegation itself is recorded elsewhere."""
        data = read_private(self._path(task_id)) if is_session_id(task_id) else None
        with contextlib.suppress(ValueError):
            return EMPTY if data is None else _NOTE.validate_json(data)
        return EMPTY

    def change(self, task_id: str, by: Callable[[Note], Note]) -> Note:
        path = self._path(task_id)
        private_folder(self._folder)
        with file_lock(self._folder / ".lock", timeout=LOCK_SECONDS):
            before = self.of(task_id)
            after = by(before)
            if after == EMPTY:
                path.unlink(missing_ok=True)
            elif after != before:
                write_private(path, _NOTE.dump_json(after))
        return after

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{task_id}.json"


# ---- threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A task with all of its delegations."""

    task_id: str
    records: tuple[Record, ...]
    """In order; the last one has the current state."""
    note: Note

    @property
    def record(self) -> Record:
        return self.records[-1]

    @property
    def is_cancelled(self) -> bool:
        return self.note.is_cancelled and self.record.state is State.BLOCKED

    @property
    def waits(self) -> bool:
        """Whether it waits for input."""
        return self.record.state is State.BLOCKED and not self.note.is_cancelled

    @property
    def is_ended(self) -> bool:
        return self.is_cancelled or (self.record.result is not None and not self.waits)

    def history(self) -> list[Message]:
        """All questions, and the answers to all but the last."""
        found: list[Message] = []
        for record in self.records[:-1]:
            found.append(asked_of(record))
            if (answer := answer_of(record)) is not None:
                found.append(answer)
        return [*found, asked_of(self.record)]


def key_of(call: Call, message_id: str) -> str:
    """The sender and id of a message are its key, so that a repeated message does not run twice."""
    return f"a2a:{_digest(call, message_id)}"


def _digest(call: Call, message_id: str) -> str:
    parts = (call.principal.name, call.principal.parent or "", message_id)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Threads:
    def __init__(self, service: Service, notes: Notes) -> None:
        self._service = service
        self.notes = notes
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def turn(self, task_id: str) -> asyncio.Lock:
        """Locked to continue or cancel a task: one of two answers is used, and a cancelled task does not continue."""
        return self._turns.setdefault(task_id, asyncio.Lock())

    async def changed(self, call: Call, thread: Thread) -> Thread:
        """Waits until a task that waits for input is continued or cancelled."""
        while True:
            change = self._changes.setdefault(thread.task_id, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await change.wait()
            now = await self.of(call, thread.task_id)
            if now.is_cancelled or now.record.session_id != thread.record.session_id:
                return now

    def _tell_change(self, task_id: str) -> None:
        if (change := self._changes.pop(task_id, None)) is not None:
            change.set()

    async def of(self, call: Call, task_id: str) -> Thread:
        """Raises `Misused` (TASK_NOT_FOUND), also for tasks of others."""
        first = await self._service.record(call, task_id)
        origin = continued_task(first.key)
        if origin is not None and is_session_id(origin) and origin != task_id:  # the id of a later delegation
            first = await self._service.record(call, origin)
        return await off_loop(self._thread, first)

    def whole(self, record: Record) -> Thread:
        """The thread of a record that the caller may see. Called off the event loop."""
        origin = continued_task(record.key)
        first = self._service.remit.store.get(origin) if origin is not None and is_session_id(origin) else None
        return self._thread(first if first is not None and first.agent == record.agent else record)

    def _thread(self, first: Record) -> Thread:
        note = self.notes.of(first.session_id)
        found = (self._service.remit.store.by_key(key) for key in note.keys)
        later = [record for record in found if record is not None and record.agent == first.agent]
        return Thread(task_id=first.session_id, records=(first, *later), note=note)

    async def resume(self, call: Call, thread: Thread, message: Message, asked: IncomingMessage) -> Record:
        """Continues a task with the answer of its caller; the record of the new delegation."""
        key = f"{CONTINUES}{thread.task_id}:{_digest(call, message.message_id)}"
        if key in thread.note.keys and (known := await off_loop(self._service.remit.store.by_key, key)) is not None:
            return known  # sent a second time
        await self._service.changeable(call, thread.task_id, "continue")
        if not thread.waits:
            words = "does not wait for input. Send the message without a task id, in its context, to begin another."
            raise UnsupportedOperationError(f"Task {thread.task_id} {words}")
        if len(thread.note.keys) >= MOST_TURNS:
            raise UnsupportedOperationError(f"Task {thread.task_id} was continued {MOST_TURNS} times: begin another one.")
        request = self._service.read(call, {**_arguments(thread.record, asked), "resume": thread.record.session_id})
        await off_loop(self.notes.change, thread.task_id, lambda note: _with_key(note, key, thread.note))
        handle = await self._service.execute(call, replace(request, also={**request.also, "key": key}))
        self._tell_change(thread.task_id)
        return await self._service.record(call, handle.session_id)

    async def give_up(self, thread: Thread) -> None:
        """Cancel a task that waits for input: nothing is running."""
        await off_loop(self.notes.change, thread.task_id, lambda note: replace(note, is_cancelled=True))
        self._tell_change(thread.task_id)


def _arguments(before: Record, asked: IncomingMessage) -> Mapping[str, Any]:
    """The earlier request, changed by the answer."""
    target, operation = parts_of(before.agent)
    given = dict(asked.data or {})
    inner = given.pop("parameters", None)
    options: dict[str, Any] = {name: given.pop(name) for name in ("timeout", "priority", "budget", "idle") if name in given}
    given.pop("target", None)
    given.pop("operation", None)
    parameters = {**before.parameters, **(inner if isinstance(inner, Mapping) else {}), **given}
    if is_redacted(parameters):
        raise InvalidParamsError("Secret parameters are not stored: send them again with the answer.")
    if asked.text:
        spoken = next((name for name in ("task", "message") if name in parameters), None)
        if spoken is None:
            raise InvalidParamsError(f"{before.agent} takes parameters, not text: send a data part with the changes.")
        parameters[spoken] = asked.text
    return {**options, "target": target, "operation": operation, "parameters": parameters}


def _with_key(note: Note, key: str, seen: Note) -> Note:
    """`seen`: the note when the task was found to wait; another server may have continued the task since."""
    if key in note.keys:
        return note
    if note.is_cancelled or note.keys != seen.keys:
        raise UnsupportedOperationError("The task was answered, or cancelled, by another message just now.")
    return replace(note, keys=(*note.keys, key))


def must_fit(thread: Thread, message: Message) -> None:
    """Raises the SDK's error for a context of another task."""
    if message.context_id and message.context_id != context_of(thread.records[0]):
        raise InvalidParamsError(f"Task {thread.task_id} does not belong to context {message.context_id[:80]}.")
