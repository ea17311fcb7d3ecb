"""What a caller holds while a delegation runs: its handle, here or in another process; the holder of an idempotency key; refusals."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Delegation, Lineage
from remit.core.errors import ErrorInfo, Misused, Unavailable
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.ports import Store
from remit.core.record import CancelRequest, Record, RecordDelegation
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.engines.embedded.ending import cancel_tree
from remit.engines.embedded.events import LOOK_SECONDS
from remit.engines.embedded.journal import Clash, Problem
from remit.engines.embedded.running import Running
from remit.runtime import reply
from remit.runtime.accept import normalised_call, redrawn
from remit.runtime.context import Handle, RecordedHandle, SettledHandle, final_event
from remit.runtime.deps import Submission
from remit.runtime.engine import LiveHandle
from remit.runtime.liveness import wake
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine


class LocalHandle(LiveHandle):
    __slots__ = ("_caller", "_engine", "_running")

    def __init__(self, running: Running, engine: "EmbeddedEngine", caller: Running | None = None) -> None:
        self._running = running
        self._engine = engine
        self._caller = caller
        """The delegation that waits for it with this handle: it lends its slot meanwhile."""

    def waited_for_by(self, caller: Running) -> "LocalHandle":
        return LocalHandle(self._running, self._engine, caller)

    @property
    def session_id(self) -> str:
        return self._running.delegation.session_id

    @property
    def delegation(self) -> Delegation:
        return self._running.delegation

    @property
    def is_queued(self) -> bool:
        """It waits for a slot."""
        return self._running.is_queued

    async def result(self) -> Return:
        """The return; waiting for it here does not tie its life to the waiter's."""
        done = self._running.done
        if done.done():
            return done.result()
        with self._waiting():
            return await asyncio.shield(done)

    async def result_within(self, seconds: float) -> Return | None:
        """The return, when it is there within so long. The first who waits is told directly: by a shield it would hear two turns later."""
        running, loop = self._running, self._engine.loop
        if running.is_told or running.waiter is not None or self._caller is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.result()
            return None
        waiter: asyncio.Future[Return] = loop.create_future()
        running.waiter = waiter
        giving_up = loop.call_later(seconds, _give_up, waiter)
        try:
            return await waiter
        except TimeoutError:
            return None
        finally:
            giving_up.cancel()
            running.waiter = None

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """A caller that waits for its child lends its slot, in whichever way it waits."""
        caller = self._caller
        if caller is None:
            yield
            return
        self._engine.lend_slot(caller)
        try:
            yield
        finally:
            self._engine.take_slot_back(caller)

    async def stream(self) -> AsyncIterator[Event]:
        running, position = self._running, 0
        while True:
            chunks = running.chunks or []
            while position < len(chunks):
                yield chunks[position]
                position += 1
            if running.told is not None:
                yield final_event(running.told, BEFORE_RUN + running.said + 7, self._engine.clock.wall())
                return
            with self._waiting():
                await running.woken()

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await cancel_tree(self._engine, self._running, reason, "its caller"))


async def until_recorded(running: Running) -> str | None:
    """Until it is on record, or refused; the session that holds its key, when another does. Raises what kept it from being recorded.

    Whoever is cancelled here leaves it as it is: it goes on."""
    holder: str | None = None
    if not running.is_told:
        running.recorded = running.engine.loop.create_future()
        try:
            holder = await running.recorded
        except asyncio.CancelledError:
            running.recorded = running.engine.loop.create_future()  # for those who follow it: the other one went with its caller
            raise
    if holder is None and running.trouble is not None:
        raise running.trouble
    return holder


def _give_up(waiter: "asyncio.Future[Return]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


async def handle_of_holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> Handle:
    """The delegation that holds the key: here, settled, or in another process."""
    record = await _holder(engine, asked, session_id)
    if record.result is not None:
        return SettledHandle(record.result)
    ours = engine.running.get(session_id)
    return LocalHandle(ours, engine) if ours is not None else RecordedHandle(engine, session_id, asked.delegation.deadline.hard_at)


async def answer_from_holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> None:
    """Answer whoever asked with what becomes of the delegation that holds the key."""
    try:
        record = await _holder(engine, asked, session_id)
        async with asyncio.timeout_at(asked.delegation.deadline.hard_at):
            asked.tell(await result_of(engine, record))
    except TimeoutError:
        asked.tell(_still_running(asked, record))
    except (Unavailable, Misused) as error:
        asked.tell_trouble(error)
    finally:
        asked.tell_trouble(Unavailable("The orchestrator was closed while it was waited for.", advice="Ask again with the same key."))


def _still_running(asked: Running, holder: Record) -> Return:
    """Whoever asked for less time than the holder has gets its answer by its own deadline; the holder goes on."""
    lineage = Lineage(holder.session_id, holder.root_id, holder.parent_id, holder.depth, holder.path)
    seconds = round(asked.delegation.deadline.timeout_seconds, 2)
    detail = f"{holder.agent} was delegated with the same key before and still runs after the {seconds:g} s it was waited for."
    stop = reply.Stop(reason=StopReason.DEADLINE, source="its deadline", detail=detail)
    return reply.stopped_return(asked.delegation._replace(lineage=lineage), stop, reply.NOTHING_LEFT, duration_seconds=seconds)


async def _holder(engine: "EmbeddedEngine", asked: Running, session_id: str) -> Record:
    record = await off_loop(engine.store.get, session_id)
    delegation = asked.delegation
    if record is None:
        raise Unavailable("The delegation with this key has gone.", advice="Try again.")
    if normalised_call(record.agent, record.parameters) != normalised_call(delegation.agent, delegation.parameters):
        raise Misused(
            f"This idempotency key (messageId in A2A) belongs to another call ({record.agent}, {session_id}).",
            advice="Use one key for one call.",
        )
    return record


async def refuse(engine: "EmbeddedEngine", submission: Submission) -> Return:
    """Recorded as refused, unless it was answered from memory: then it is on record already."""
    refusal = submission.refusal
    assert refusal is not None
    if refusal.metadata.session_id == submission.delegation.session_id:
        refusal = await _recorded(engine, submission, refusal)
        engine.deps.note_errors(submission.delegation, refusal.errors, "")
        if engine.bus.has_listeners:
            engine.bus.steps(submission.delegation, State.REFUSED, submission.step_times)
            engine.bus.ended(submission.delegation, refusal, engine.clock.wall(), 0, 0.0, submission.step_times)
    if isinstance(submission.caller, Running):
        submission.caller.add_failure(refusal)
    return refusal


async def refuse_whole(engine: "EmbeddedEngine", submission: Submission) -> Return:
    """`refuse`, also where its caller leaves meanwhile. No task that the closing of the engine ends: the caller, whom nobody ended, would
    be ended by that; and the journal answers it also then."""
    return await asyncio.shield(engine.loop.create_task(refuse(engine, submission)))


def refuse_for_lack_of_room(engine: "EmbeddedEngine", running: Running) -> None:
    """The queue is full: said at once, and worth another try later."""
    error = ErrorInfo(
        type="queue_full",
        message=f"The queue is full: {engine.slots.waiting} delegations wait for {engine.slots.total} slots.",
        code="QUEUE_FULL",
        recoverable=True,
        recommendation="Try again when some have ended, delegate less at once (ctx.gather has limit=), or raise queue_limit or slots.",
    )
    running.is_settled = True
    submission = running.submission
    submission.refusal = reply.refused_return(submission.delegation, error)

    async def answer() -> None:
        running.tell(await refuse(engine, submission))

    engine.spawn(answer())


async def _recorded(engine: "EmbeddedEngine", submission: Submission, refusal: Return) -> Return:
    now = engine.clock.wall()
    submission.step_times[12] = now
    written: asyncio.Future[Problem] = engine.loop.create_future()
    record = _record_of(submission, refusal, engine.owner.owner_id, now)
    engine.journal.write(RecordDelegation(record), lambda problem: None if written.done() else written.set_result(problem))
    problem = await written
    if isinstance(problem, Clash):
        redrawn(submission, engine.deps.policy)
        metadata = refusal.metadata._replace(session_id=submission.delegation.session_id)
        return await _recorded(engine, submission, replace(refusal, metadata=metadata))
    if isinstance(problem, Unavailable):
        return replace(refusal, warnings=(*refusal.warnings, f"Not recorded: {problem}"))
    return refusal


def _record_of(submission: Submission, refusal: Return, owner_id: str, settled_at: float) -> Record:
    """Without its idempotency key: a refusal does not use it up."""
    delegation = submission.delegation
    lineage = delegation.lineage
    timeout_seconds = delegation.deadline.timeout_seconds
    return Record(
        session_id=lineage.session_id,
        root_id=lineage.root_id,
        parent_id=lineage.parent_id,
        depth=lineage.depth,
        path=lineage.path,
        agent=delegation.agent,
        parameters=delegation.parameters,
        caller=delegation.caller,
        priority=delegation.priority,
        state=State.REFUSED,
        created_at=delegation.created_at,
        timeout_seconds=timeout_seconds,
        deadline_at=delegation.created_at + timeout_seconds,
        owner=owner_id,
        settled_at=settled_at,
        command=delegation.command,
        task=delegation.task,
        accept=delegation.accept,
        limits=delegation.limits,
        idle_seconds=delegation.idle_seconds,
        caller_info=delegation.caller_info,
        step_times=tuple(submission.step_times),
        result=refusal,
    )


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
    return await engine.streams.outcome(holder.session_id)


async def request_cancel(engine: "EmbeddedEngine", run_folder: Path, asked: Record, reason: str, source: str) -> bool:
    """Ask the owner to cancel; whether anybody heard it."""
    request = CancelRequest(session_id=asked.session_id, reason=reason, source=source, at=engine.clock.wall())
    await engine.journal.call(lambda store: store.request_cancel(request))
    return wake(run_folder, asked.owner)


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
