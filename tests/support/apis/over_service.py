"""The reference: the service behind every api, called in this process, without any protocol."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.core.errors import RemitError
from remit.core.record import HistoryQuery
from remit.core.states import State
from remit.runtime.tool.delegate_requests import parts_of
from remit.runtime.tool.delegate_results import ChunkType, DelegateResult
from remit.server.service import Call, Service
from remit.server.tokens import Principal
from support.apis.client import ApiFault, Page, Said, Seen, Standing
from support.apis.traits import IN_PROCESS

_STATES = {"CANCELLED": (State.CANCELLED,), "COMPLETED": (State.COMPLETED,), "RUNNING": (State.RUNNING,), "TIMEOUT": (State.TIMEOUT,)}


def seen_of(result: DelegateResult) -> Seen:
    error, meta = result.error, result.metadata
    return Seen(
        task_id=result.task_id or "",
        shown=str(result.task_state),
        status=meta.status,
        stop_reason=meta.stop_reason,
        data=result.data,
        summary=result.output,
        code=None if error is None else str(error.details.get("code", "")),
        artifacts=tuple(artifact.path for artifact in result.artifacts),
    )


class ServiceClient:
    traits = IN_PROCESS

    def __init__(self, service: Service, principal: Principal, standing: Standing | None = None) -> None:
        self._service = service
        self._call = Call(principal=principal, api="grpc")
        if standing is not None:
            left = standing.seconds_left
            ends_at = None if left is None else time.time() + left
            self._call = replace(self._call, depth=standing.depth, path=standing.path, deadline_at=ends_at)

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        given = dict(arguments)
        call = replace(self._call, session=given.pop("session", None))
        try:
            if given.get("target") is None:
                given["target"], given["operation"] = parts_of(self._service.choose(call, given.get("operation") or ""))
            return (await self._service.begin(call, given)).session_id
        except RemitError as error:
            raise _fault(error) from error

    async def status(self, task_id: str) -> Seen:
        try:
            return seen_of(await self._service.look(self._call, task_id))
        except RemitError as error:
            raise _fault(error) from error

    async def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        try:
            async for chunk in self._service.stream(self._call, task_id, after):
                if chunk.result is not None:
                    yield Said(kind="end", number=chunk.number, seen=seen_of(chunk.result))
                else:
                    value = chunk.data["chunk"] if chunk.type is ChunkType.DATA else chunk.data["message"]
                    yield Said(kind=str(chunk.type), number=chunk.number, value=value)
        except RemitError as error:
            raise _fault(error) from error

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        try:
            return seen_of((await self._service.cancel(self._call, task_id, reason))[0])
        except RemitError as error:
            raise _fault(error) from error

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        states = _STATES[shown] if shown is not None else ()
        query = HistoryQuery(conversation=session, states=states, agent=agent, limit=size, before_session=page)
        found = await self._service.list(self._call, query)
        return Page([record.session_id for record in found.records], found.next_page)

    async def agents(self) -> Sequence[str]:
        return [spec.name for spec in self._service.agents(self._call)]


def _fault(error: RemitError) -> ApiFault:
    return ApiFault(error.code, None, error.message)
