"""`DelegateTool`: the tool with which models and programs delegate, independent of the transport.

    tool = DelegateTool(remit)
    result = await tool.call({"target": "worker", "operation": "read_file", "parameters": {"path": "README.md"}})

An invalid request raises `DelegateError` and nothing runs. Everything else, also an unreachable agent, is a `DelegateResult`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from remit.core.agents import AgentSpec
from remit.core.context import Handle, SettledHandle
from remit.core.deadline import Clock
from remit.core.delegate_requests import Catalogue, DelegateError, DelegateRequest, Reader, parameters_schema, tool_definition
from remit.core.delegate_results import (
    Chunk,
    DelegateResult,
    chunk_of,
    final_chunk,
    is_paused,
    result_of,
    result_of_error,
    result_of_record,
    started_chunk,
)
from remit.core.errors import Misused, RemitError
from remit.core.events import Event, EventKind
from remit.core.ports import AgentPort
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.core.states import State

if TYPE_CHECKING:
    from remit.core.settings import Settings

# ---- the tool


class Agents(Protocol):
    """The directory."""

    def specs(self) -> Sequence[AgentSpec]: ...
    def find(self, name: str) -> AgentPort | None: ...
    def includes(self, listed: str, name: str) -> bool:
        """Whether a list of agents or a grant that names `listed` includes the agent `name`."""
        ...


class Delegator(Protocol):
    """An open `Remit`. Inside an agent, its delegations are children of that agent."""

    @property
    def directory(self) -> Agents: ...
    @property
    def settings(self) -> "Settings": ...
    @property
    def clock(self) -> Clock: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it was opened on."""
        ...

    async def delegate(self, agent: str, /, **asked: Any) -> Return: ...
    async def start(self, agent: str, /, **asked: Any) -> Handle: ...
    async def describe(self, session_id: str) -> Record: ...
    async def events(self, session_id: str, after: int = 0) -> list[Event]: ...


_FAULTS = frozenset({"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"})


class DelegateTool:
    name = "delegate"

    def __init__(self, remit: Delegator, among: Callable[[AgentSpec], bool] | None = None) -> None:
        """`remit` is open; inside an agent its delegations are children of that agent. `among`: the offered agents; others are unknown."""
        self._remit = remit
        self.catalogue = Catalogue(remit.directory.specs if among is None else lambda: list(filter(among, remit.directory.specs())))
        self._reader = Reader(self.catalogue, remit.directory.find, remit.settings.limits_for)

    def schema(self) -> dict[str, Any]:
        """Name, description and `inputSchema` for the current directory."""
        return tool_definition(self.catalogue)

    def read(self, arguments: object, *also: str) -> DelegateRequest:
        """Parse and validate a request; nothing runs. `also`: arguments that an API accepts beside the tool's
        own. Raises `DelegateError`."""
        return self._reader.read(arguments, *also)

    async def call(self, arguments: object) -> DelegateResult:
        """Run a delegation and return its result, by its deadline whatever the agent does. Cancelling the call cancels the delegation."""
        return await self.perform(self.read(arguments))

    async def perform(self, request: DelegateRequest) -> DelegateResult:
        """Like `call`, for a parsed request."""
        asked_at = self._now()
        try:
            returned = await self._remit.delegate(request.agent, **request.asked())
        except Misused:
            raise
        except RemitError as error:
            return result_of_error(error, request.agent, asked_at, self._now())
        return self._result(request, returned, asked_at)

    async def stream(self, arguments: object) -> AsyncIterator[Chunk]:
        """Stream its output as it runs; the last chunk contains the result that `call` returns.

        Closing the stream does not stop the delegation: each chunk names it, and `Remit.cancel` stops it."""
        async for chunk in self.streamed(self.read(arguments)):
            yield chunk

    async def streamed(self, request: DelegateRequest) -> AsyncIterator[Chunk]:
        """Like `stream`, for a parsed request."""
        asked_at = self._now()
        try:
            handle = await self._remit.start(request.agent, **request.asked())
        except Misused:
            raise
        except RemitError as error:
            yield final_chunk(result_of_error(error, request.agent, asked_at, self._now()))
            return
        if isinstance(handle, SettledHandle):
            yield final_chunk(self._result(request, await handle.result(), asked_at))
            return
        yield started_chunk(handle.session_id, request.agent)
        async for chunk in self._follow(handle):
            yield chunk
        try:
            returned = await handle.result()
        except Misused:
            raise
        except RemitError as error:
            yield final_chunk(result_of_error(error, request.agent, asked_at, self._now(), handle.session_id))
            return
        yield final_chunk(self._result(request, returned, asked_at))

    async def look(self, task_id: str) -> DelegateResult:
        """The current state of a delegation: for APIs that poll."""
        return await self.look_at(await self._remit.describe(task_id))

    async def look_at(self, record: Record) -> DelegateResult:
        """The same for a record that was just read."""
        if record.state is not State.RUNNING:
            return result_of_record(record)
        return result_of_record(record, is_paused=is_paused(await self._remit.events(record.session_id)))

    async def _follow(self, handle: Handle) -> AsyncIterator[Chunk]:
        """Chunks until the end. If its events cannot be followed, only the end is awaited."""
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
        """Raise a refusal of the request's content like any other fault of a request: nothing has run."""
        first = returned.errors[0] if returned.errors else None
        if returned.stop_reason is StopReason.REFUSED and first is not None and first.code in _FAULTS:
            details = {"agent": request.agent, "parameters": parameters_schema(request.spec), "taskId": returned.session_id}
            raise DelegateError(first.message, code=first.code, advice=first.recommendation, details=details)

    def _now(self) -> float:
        return self._remit.clock.wall()
