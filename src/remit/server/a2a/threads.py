"""Tasks that wait for input and continue: one A2A task, several delegations, each with `resume=` of the previous one.

A task keeps the id of its first delegation. The key of a later one is that id and its number, so it is found after a crash and by other
servers of the project."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from a2a.types import Message
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from remit.core.delegate_requests import parts_of
from remit.core.errors import Refused
from remit.core.ids import is_session_id
from remit.core.record import Record
from remit.core.redaction import is_redacted
from remit.core.states import State
from remit.server.a2a.messages import CONTINUES, IncomingMessage, answer_of, asked_of, context_of, continued_task
from remit.server.service import Call, Service
from remit.server.tokens import Permission
from remit.system.threads import off_loop

MOST_TURNS = 100
POLL_SECONDS = 0.5
"""How often a subscription to a task that waits for input looks whether it was continued."""


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
    parts = (call.principal.name, call.principal.parent or "", message_id)
    return f"a2a:{hashlib.sha256(chr(0).join(parts).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


class Threads:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, task_id: str) -> asyncio.Lock:
        """Locked to continue or cancel a task: one of two answers is used."""
        return self._turns.setdefault(task_id, asyncio.Lock())

    async def continued(self, call: Call, thread: Thread) -> Thread:
        """Waits until a task that waits for input is continued."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            now = await self.of(call, thread.task_id)
            if now.record.session_id != thread.record.session_id:
                return now

    async def of(self, call: Call, task_id: str) -> Thread:
        """Raises `Misused` (TASK_NOT_FOUND), also for tasks of others."""
        first = await self._service.record(call, task_id)
        origin = continued_task(first.key)
        if origin is not None and is_session_id(origin) and origin != task_id:  # the id of a later delegation
            first = await self._service.record(call, origin)
        return await off_loop(self._thread, first)

    def is_current(self, record: Record) -> bool:
        """Whether it is the last delegation of its task. Called off the event loop."""
        if record.state is not State.BLOCKED:
            return True
        first = self._service.remit.store.get(continued_task(record.key) or record.session_id)
        return first is None or self._thread(first).record.session_id == record.session_id

    def _thread(self, first: Record) -> Thread:
        records = [first]
        while records[-1].state is State.BLOCKED and len(records) <= MOST_TURNS:
            found = self._service.remit.store.by_key(f"{CONTINUES}{first.session_id}:{len(records)}")
            if found is None or found.agent != first.agent:
                break
            records.append(found)
        return Thread(task_id=first.session_id, records=tuple(records))

    async def resume(self, call: Call, thread: Thread, asked: IncomingMessage) -> Record:
        """Continues a task with the answer of its caller; the record of the new delegation."""
        if not self._may_change(call, thread):
            raise Refused(f"Task {thread.task_id} is not {call.principal.name}'s to continue.", code="FORBIDDEN")
        if not thread.waits:
            if len(thread.records) > 1 and _arguments(thread.records[-2], asked)["parameters"] == thread.record.parameters:
                return thread.record  # sent a second time
            words = "does not wait for input. Send the message without a task id, in its context, to begin another."
            raise UnsupportedOperationError(f"Task {thread.task_id} {words}")
        if len(thread.records) > MOST_TURNS:
            raise UnsupportedOperationError(f"Task {thread.task_id} was continued {MOST_TURNS} times: begin another one.")
        request = self._service.read(call, {**_arguments(thread.record, asked), "resume": thread.record.session_id})
        key = f"{CONTINUES}{thread.task_id}:{len(thread.records)}"
        handle = await self._service.execute(call, replace(request, also={**request.also, "key": key}))
        return await self._service.record(call, handle.session_id)

    def _may_change(self, call: Call, thread: Thread) -> bool:
        first, principal = thread.records[0], call.principal
        if principal.parent is not None:
            return first.parent_id == principal.parent
        return principal.may(Permission.CANCEL_ALL) or (first.caller_info is not None and first.caller_info.principal == principal.name)


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
