"""`DelegateTool`: the one tool by which work is handed out, over whatever transport. A door translates its requests to it.

    tool = DelegateTool(remit)
    result = await tool.call({"target": "worker", "operation": "read_file", "parameters": {"path": "README.md"}})

A faulty request raises `DelegateError` and nothing runs. Everything else, also what could not be reached, is a `DelegateResult`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from remit.core.agents import AgentSpec
from remit.core.clock import Clock
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused, RemitError
from remit.core.events import Event, EventKind
from remit.core.ports import AgentPort
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.runtime.context import Handle, SettledHandle
from remit.runtime.tool.catalogue import Catalogue, DelegateError
from remit.runtime.tool.request import DelegateRequest, Reader, announced, parameters_schema
from remit.runtime.tool.result import Chunk, DelegateResult, begun, chunk_of, ended, is_paused, result_of, result_of_error, result_of_record


class Agents(Protocol):
    """The directory."""

    def specs(self) -> Sequence[AgentSpec]: ...
    def find(self, name: str) -> AgentPort | None: ...


class Limiting(Protocol):
    """The settings."""

    @property
    def model_requests(self) -> int: ...
    def limits_for(self, name: str) -> TimeLimits: ...


class Office(Protocol):
    """An open `Remit`. Called from inside of an agent, what it is handed is that agent's child."""

    @property
    def directory(self) -> Agents: ...
    @property
    def settings(self) -> Limiting: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The one it was opened on."""
        ...

    async def delegate(self, agent: str, /, **asked: Any) -> Return: ...
    async def start(self, agent: str, /, **asked: Any) -> Handle: ...
    async def describe(self, session_id: str) -> Record: ...
    async def events(self, session_id: str, after: int = 0) -> list[Event]: ...


_FAULTS = frozenset({"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"})


class DelegateTool:
    name = "delegate"

    def __init__(self, remit: Office, among: Callable[[AgentSpec], bool] | None = None) -> None:
        """Of an open `Remit`. Inside of an agent what it delegates is that agent's child, as everywhere.

        `among`: which agents it offers; any other is unknown to it.
        """
        self._remit = remit
        self.catalogue = Catalogue(remit.directory.specs if among is None else lambda: list(filter(among, remit.directory.specs())))
        self._reader = Reader(self.catalogue, remit.directory.find, remit.settings.limits_for)

    def schema(self) -> dict[str, Any]:
        """Name, description and `inputSchema`, as the directory is now."""
        return announced(self.catalogue, self._remit.settings.limits_for)

    def plain_schema(self) -> dict[str, Any]:
        """The same without conditions, for models' vendors that take none."""
        return announced(self.catalogue)

    def read(self, arguments: object, *also: str) -> DelegateRequest:
        """The request, judged; nothing runs. `also`: arguments that a door takes beside the tool's own. Raises `DelegateError`."""
        return self._reader.read(arguments, *also)

    async def call(self, arguments: object) -> DelegateResult:
        """Have it done and give the result: by its deadline, whatever the agent does. Cancelling the call cancels the delegation."""
        return await self.perform(self.read(arguments))

    async def perform(self, request: DelegateRequest) -> DelegateResult:
        """`call`, for a request that has been read."""
        asked_at = self._now()
        try:
            returned = await self._remit.delegate(request.agent, **request.asked())
        except Misused:
            raise
        except RemitError as error:
            return result_of_error(error, request.agent, asked_at, self._now())
        return self._result(request, returned, asked_at)

    async def stream(self, arguments: object) -> AsyncIterator[Chunk]:
        """What it says while it runs, as it says it; the last chunk has the object that `call` gives.

        Whoever stops listening does not stop the delegation: each chunk names it, and `Remit.cancel` ends it.
        """
        async for chunk in self.streamed(self.read(arguments)):
            yield chunk

    async def streamed(self, request: DelegateRequest) -> AsyncIterator[Chunk]:
        """`stream`, for a request that has been read."""
        asked_at = self._now()
        try:
            handle = await self._remit.start(request.agent, **request.asked())
        except Misused:
            raise
        except RemitError as error:
            yield ended(result_of_error(error, request.agent, asked_at, self._now()))
            return
        if isinstance(handle, SettledHandle):
            yield ended(self._result(request, await handle.result(), asked_at))
            return
        yield begun(handle.session_id, request.agent)
        async for chunk in self._told(handle):
            yield chunk
        try:
            returned = await handle.result()
        except Misused:
            raise
        except RemitError as error:
            yield ended(result_of_error(error, request.agent, asked_at, self._now(), handle.session_id))
            return
        yield ended(self._result(request, returned, asked_at))

    async def look(self, task_id: str) -> DelegateResult:
        """How a delegation stands now, whoever began it: for doors that are asked again and again."""
        return await self.look_at(await self._remit.describe(task_id))

    async def look_at(self, record: Record) -> DelegateResult:
        """The same, of a record that was read just now."""
        if record.state is not State.RUNNING:
            return result_of_record(record)
        return result_of_record(record, is_paused=is_paused(await self._remit.events(record.session_id)))

    async def _told(self, handle: Handle) -> AsyncIterator[Chunk]:
        """Until it ends; where its events cannot be followed (any more), its end is waited for all the same."""
        events = handle.stream()
        while True:
            try:
                event = await anext(events)
            except (StopAsyncIteration, RemitError):
                return
            if event.kind in (EventKind.COMPLETE, EventKind.ERROR):
                return
            if (chunk := chunk_of(event)) is not None:
                yield chunk

    def _result(self, request: DelegateRequest, returned: Return, asked_at: float) -> DelegateResult:
        self.must_be_faultless(request, returned)
        return result_of(returned, asked_at)

    def must_be_faultless(self, request: DelegateRequest, returned: Return) -> None:
        """A refusal for what the request says is raised, like every fault of a request: nothing has run."""
        first = returned.errors[0] if returned.errors else None
        if returned.stop_reason is StopReason.REFUSED and first is not None and first.code in _FAULTS:
            details = {"agent": request.agent, "parameters": parameters_schema(request.spec), "taskId": returned.session_id}
            raise DelegateError(first.message, code=first.code, advice=first.recommendation, details=details)

    def _now(self) -> float:
        return self._remit.clock.wall()
