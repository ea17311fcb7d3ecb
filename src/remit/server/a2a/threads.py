"""Tasks that wait for input and continue: one A2A task, several delegations, each with `resume=` of the previous one.

A task keeps the id of its first delegation. The idempotency keys of the later ones begin with that id, so that the record tells which they
are, and a message sent twice runs once."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from a2a.types import Message
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from remit.core.delegate_requests import parts_of
from remit.core.ids import is_session_id
from remit.core.record import Record
from remit.core.redaction import is_redacted
from remit.core.states import State
from remit.server.a2a.messages import CONTINUES, IncomingMessage, answer_of, asked_of, context_of, continued_task
from remit.server.service import Call, Service
from remit.system.threads import off_loop

MOST_TURNS = 100
POLL_SECONDS = 1.0
"""Between two looks at a task that waits for input, whichever server continues it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A task with all of its delegations."""

    task_id: str
    records: tuple[Record, ...]
    """In order; the last one has the current state."""

    @property
    def record(self) -> Record:
        return self.records[-1]

    @property
    def waits(self) -> bool:
        """Whether it waits for input."""
        return self.record.state is State.BLOCKED

    @property
    def is_ended(self) -> bool:
        return self.record.result is not None and not self.waits

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
    def __init__(self, service: Service) -> None:
        self._service = service
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, task_id: str) -> asyncio.Lock:
        """Locked to continue or cancel a task: one of two answers is used, and a cancelled task does not continue."""
        return self._turns.setdefault(task_id, asyncio.Lock())

    async def changed(self, call: Call, thread: Thread) -> Thread:
        """Waits until a task that waits for input is continued."""
        now = thread
        while now.record.session_id == thread.record.session_id:
            await asyncio.sleep(POLL_SECONDS)
            now = await self.of(call, thread.task_id)
        return now

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
        store = self._service.remit.store
        found = (store.get(session_id) for session_id in store.keys(f"{CONTINUES}{first.session_id}:", MOST_TURNS).values())
        later = [record for record in found if record is not None and record.agent == first.agent]
        return Thread(task_id=first.session_id, records=(first, *sorted(later, key=lambda record: record.created_at)))

    async def resume(self, call: Call, thread: Thread, message: Message, asked: IncomingMessage) -> Record:
        """Continues a task with the answer of its caller; the record of the new delegation."""
        key = f"{CONTINUES}{thread.task_id}:{_digest(call, message.message_id)}"
        known = next((record for record in thread.records if record.key == key), None)
        if known is not None:
            return known  # sent a second time
        await self._service.changeable(call, thread.task_id, "continue")
        if not thread.waits:
            words = "does not wait for input. Send the message without a task id, in its context, to begin another."
            raise UnsupportedOperationError(f"Task {thread.task_id} {words}")
        if len(thread.records) >= MOST_TURNS:
            raise UnsupportedOperationError(f"Task {thread.task_id} was continued {MOST_TURNS} times: begin another one.")
        request = self._service.read(call, {**_arguments(thread.record, asked), "resume": thread.record.session_id})
        handle = await self._service.execute(call, replace(request, also={**request.also, "key": key}))
        return await self._service.record(call, handle.session_id)


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


def must_fit(thread: Thread, message: Message) -> None:
    """Raises the SDK's error for a context of another task."""
    if message.context_id and message.context_id != context_of(thread.records[0]):
        raise InvalidParamsError(f"Task {thread.task_id} does not belong to context {message.context_id[:80]}.")
