"""Delegations that another process runs: watched through the store, cancelled by a request and its owner's bell."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Delegation
from remit.core.errors import Unavailable
from remit.core.events import Event, EventKind
from remit.core.ports import Store
from remit.core.record import CancelRequest, Record
from remit.core.result import Return
from remit.engine.following import ending, follow, known
from remit.engine.owners import ring
from remit.engine.watcher import LOOK_SECONDS
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine

CANCEL_SECONDS = 5.0


async def changes(store: Store) -> AsyncIterator[None]:
    """One turn at once, then one whenever another process has written."""
    stamp: int | None = None
    while True:
        if (seen := store.change_stamp()) != stamp:
            stamp = seen
            yield
        await asyncio.sleep(LOOK_SECONDS)


async def result_of(engine: "EmbeddedEngine", holder: Record) -> Return:
    """The result of a delegation that somebody runs: here, in another process, or, when that has died, here after recovery."""
    if holder.result is not None:
        return holder.result
    return await ending(engine.store, engine.watcher, engine.running.get, holder.session_id)


async def request_cancel(engine: "EmbeddedEngine", run_folder: Path, asked: Record, reason: str, source: str) -> bool:
    """Ask the owner to cancel; whether anybody heard it."""
    request = CancelRequest(session_id=asked.session_id, reason=reason, source=source, at=engine.clock.wall())
    await engine.journal.call(lambda store: store.request_cancel(request))
    return ring(run_folder, asked.owner)


async def acknowledged(store: Store, asked: Record) -> list[dict[str, Any]]:
    """How the nodes of a cancelled tree ended, as their owner records it; bounded, like every wait."""
    nodes = list(_below(asked, await off_loop(store.tree, asked.root_id)))
    now: dict[str, Record] = {}
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            async for _ in changes(store):
                now = {r.session_id: r for r in await off_loop(store.tree, asked.root_id)}
                if all(now[session_id].state.is_settled for session_id in nodes):
                    break
    except TimeoutError:
        pass
    return [await _ack(store, now[session_id]) for session_id in nodes]


def _below(asked: Record, tree: list[Record]) -> Iterator[str]:
    above = {asked.session_id}
    yield asked.session_id
    for record in tree:
        if record.parent_id in above and not record.state.is_settled:
            above.add(record.session_id)
            yield record.session_id


async def _ack(store: Store, record: Record) -> dict[str, Any]:
    state = str(record.state) if record.state.is_settled else "stopping"
    for event in await off_loop(store.events, record.session_id):
        if event.kind is EventKind.CANCEL and record.state.is_settled and event.body["state"] != "requested":
            state = event.body["state"]
    return {"session_id": record.session_id, "agent": record.agent, "state": state}


class ElsewhereHandle:
    """The handle of a delegation that another process runs, met through its idempotency key."""

    __slots__ = ("_delegation", "_engine", "_session_id")

    def __init__(self, engine: "EmbeddedEngine", session_id: str, delegation: Delegation) -> None:
        self._engine = engine
        self._session_id = session_id
        self._delegation = delegation
        """Ours: what we asked for, and how long we wait."""

    @property
    def session_id(self) -> str:
        return self._session_id

    async def result(self) -> Return:
        try:
            async with asyncio.timeout_at(self._delegation.deadline.hard_at):
                return await result_of(self._engine, await known(self._engine.store, self._session_id))
        except TimeoutError:
            raise Unavailable(
                f"{self._session_id} is still run by another process.",
                code="TIMEOUT",
                advice=f"Look at it with `remit show {self._session_id}`.",
            ) from None

    async def stream(self) -> AsyncIterator[Event]:
        """Until it is settled, at most until our own deadline."""
        engine = self._engine
        events = follow(engine.store, engine.watcher, engine.running.get, self._session_id)
        loop = asyncio.get_running_loop()
        while (left := self._delegation.deadline.hard_at - loop.time()) > 0:
            try:
                yield await asyncio.wait_for(anext(events), left)
            except (TimeoutError, StopAsyncIteration):
                return

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        record = await known(self._engine.store, self._session_id)
        await request_cancel(self._engine, self._engine.run_folder, record, reason, "its caller")
        return list(await acknowledged(self._engine.store, record))
