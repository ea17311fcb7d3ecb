"""Work taken from Temporal: workflows and outcomes from the system queue, attempts from the queues of the served agents."""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerTuner,
)

from remit.core.errors import Unavailable
from remit.core.record import CancelRequest
from remit.core.result import StopReason
from remit.engines.embedded.delegation_run import DelegationRun
from remit.engines.temporal.connection import target_of
from remit.engines.temporal.workflow import HANDED_OVER, PERFORM, REFUSED, SETTLE, VERSION, Attempt, DelegationWorkflow, Settlement
from remit.runtime.reply import Stop
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.scheduler import Scheduler
    from remit.engines.temporal.engine import TemporalEngine

log = logging.getLogger("remit.temporal")

GIVE_UP_SHARE = 0.75
"""Share of the heartbeat timeout without an acknowledged heartbeat after which a worker stops its agent. The next attempt starts later."""
FENCE_SHARE = 0.95
"""By now nothing of it may run: the process exits."""
FENCE_SECONDS = 0.05
BEAT_SHARE = 0.2
STORE_SECONDS = 0.5
"""How long an attempt that found no store is kept from the other workers, so that it does not run in circles."""
GRACEFUL = timedelta(days=1)
"""Temporal's own shutdown never cancels an attempt: draining ends them."""
UNSETTLED_SECONDS = 0.25
WORKFLOW_TASKS = 8
"""At once in a process: with more, those that were taken would time out while others are computed."""
ASKED_SECONDS = 10.0
"""For so long a queue that was served is taken to be served."""
LOOKS_ELSEWHERE = 5
"""How often an outcome of an unknown delegation is left to another process, before it is taken to be forgotten."""


class StoreContact:
    """When the store last answered this worker."""

    def __init__(self, engine: "TemporalEngine") -> None:
        self._engine = engine
        self._seconds = engine.temporal.settings.heartbeat_seconds
        self.answered_at = engine.loop.time()

    @property
    def lost_at(self) -> float:
        """From then on this worker takes no work, and stops what it runs: it could record no outcome."""
        return self.answered_at + self._seconds * GIVE_UP_SHARE

    @property
    def is_lost(self) -> bool:
        return self._engine.loop.time() >= self.lost_at

    async def keep(self, on_back: Callable[[], None]) -> None:
        """Ask until cancelled. `on_back`: called when the store answers again."""
        self.answered_at = self._engine.loop.time()
        while True:
            began = self._engine.loop.time()
            with contextlib.suppress(Unavailable):
                await off_loop(self._engine.store.get, "")
                was_lost, self.answered_at = self.is_lost, began
                if was_lost:
                    log.warning("The store answers again; this worker takes work.")
                    on_back()
            await asyncio.sleep(self._seconds * BEAT_SHARE)


class Slots:
    """Slots of the engine for Temporal's workers. Several queues share them, so that a waiting caller lends its slot."""

    def __init__(self, scheduler: "Scheduler", contact: StoreContact) -> None:
        self._scheduler = scheduler
        self._contact = contact
        self._lock = threading.Lock()
        self._freed = asyncio.Event()
        self._pulled = 0
        """Attempts taken from Temporal that are not in the scheduler yet."""

    def notify(self) -> None:
        self._freed.set()

    def has_room(self, target: str, permits: int) -> bool:
        """`permits`: running polls of this queue."""
        return self._scheduler.room(target) - self._pulled > permits and not self._contact.is_lost

    async def wait_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def pulled(self) -> None:
        with self._lock:
            self._pulled += 1

    def placed(self) -> None:
        with self._lock:
            self._pulled -= 1
        self.notify()


class QueueSlots(CustomSlotSupplier):
    """The permits of one task queue."""

    def __init__(self, slots: Slots, target: str) -> None:
        self._slots = slots
        self._target = target
        self._lock = threading.Lock()
        self._permits = 0
        """For running polls."""

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while not self._slots.has_room(self._target, self._permits):
            await self._slots.wait_freed()
        return self._permit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return self._permit() if self._slots.has_room(self._target, self._permits) else None

    def _permit(self) -> SlotPermit:
        with self._lock:
            self._permits += 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        with self._lock:
            self._permits -= 1
        self._slots.pulled()

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        if ctx.slot_info is None:  # never used
            with self._lock:
                self._permits -= 1


class Fence:
    """A thread that exits the process if it is cut off and an agent that cannot be stopped would continue."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        """When nothing of a delegation may run any more."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="remit-fence", daemon=True)
        self._thread.start()

    def extend(self, session_id: str, to: float) -> None:
        self._ends[session_id] = to

    def ended(self, session_id: str) -> None:
        self._ends.pop(session_id, None)

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(FENCE_SECONDS):
            now = time.monotonic()
            late = [session_id for session_id, end in dict(self._ends).items() if now > end]
            if late:
                log.critical("This worker is cut off from Temporal and could not stop %s: it exits.", ", ".join(late))
                os._exit(75)


class QueueWorkers:
    """The Temporal workers of this process: one for the system queue, and one for each target that it serves."""

    def __init__(self, engine: "TemporalEngine") -> None:
        self._engine = engine
        self._activities = Activities(engine, self)
        self.contact = StoreContact(engine)
        self.slots = Slots(engine.scheduler, self.contact)
        self.fence = Fence() if engine.temporal.exits_when_cut_off else None
        self._running: dict[str, tuple[Worker, asyncio.Task[None]]] = {}
        self._targets: set[str] = set()
        self._is_open_ended = False
        """Whether agents registered later are served too."""
        self._is_stopping = False
        self._ending: list[asyncio.Task[None]] = []
        self._served_until: dict[str, float] = {}
        """Targets of other workers, as far as it was asked."""

    def serves(self, agent: str) -> bool:
        return target_of(agent) in self._targets

    async def open(self) -> None:
        engine = self._engine
        system = Worker(
            engine.client,
            task_queue=engine.temporal.system_queue,
            workflows=[DelegationWorkflow],
            activities=[self._activities.settle],
            workflow_runner=UnsandboxedWorkflowRunner(),
            identity=engine.identity,
            max_cached_workflows=0,
            max_concurrent_workflow_tasks=WORKFLOW_TASKS,
            max_concurrent_activities=32,
            graceful_shutdown_timeout=timedelta(seconds=2),
        )
        self._start("", system)

    async def serve(self, targets: Collection[str], *, is_open: bool) -> None:
        if not self._targets:
            self._engine.spawn(self.contact.keep(self.slots.notify))
        self._is_open_ended = is_open
        for target in sorted(targets):
            self._serve(target)

    def serve_later(self, target: str) -> None:
        if self._is_open_ended and not self._is_stopping:
            self._serve(target)

    def _serve(self, target: str) -> None:
        if target in self._targets:
            return
        self._targets.add(target)
        engine = self._engine
        fixed = FixedSizeSlotSupplier(1)
        tuner = WorkerTuner.create_composite(
            workflow_supplier=fixed, activity_supplier=QueueSlots(self.slots, target), local_activity_supplier=fixed, nexus_supplier=fixed
        )
        worker = Worker(
            engine.client,
            task_queue=engine.temporal.queue_of(target),
            activities=[self._activities.perform],
            identity=engine.identity,
            tuner=tuner,
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(maximum=2),
            graceful_shutdown_timeout=GRACEFUL,
            disable_eager_activity_execution=True,
        )
        self._start(target, worker)

    def is_to_be_checked(self, agent: str) -> bool:
        """Whether it is unknown if a worker serves it."""
        target = target_of(agent)
        return target not in self._targets and self._engine.loop.time() >= self._served_until.get(target, 0.0)

    async def warn_if_unserved(self, agent: str) -> None:
        if not self.is_to_be_checked(agent):  # several were started before the first check
            return
        target = target_of(agent)
        self._served_until[target] = self._engine.loop.time() + ASKED_SECONDS
        queue = self._engine.temporal.queue_of(target)
        with contextlib.suppress(RPCError, Unavailable):  # Temporal or the store is away: another warning says so
            if not await self._engine.is_served(queue):
                log.warning("No worker takes work from the task queue %s. Start one: remit worker --agents %s", queue, target)

    def note_cancel(self, request: CancelRequest) -> bool:
        """Of a delegation that this worker has claimed, and does not run yet."""
        if request.session_id not in self._activities.claimed:
            return False
        self._activities.claimed[request.session_id] = request
        return True

    def _start(self, name: str, worker: Worker) -> None:
        self._running[name] = worker, asyncio.get_running_loop().create_task(worker.run())

    def stop_polling(self) -> None:
        """Take no more attempts; the engine ends those that run."""
        self._is_stopping = True
        self._targets.clear()
        for name in [name for name in self._running if name]:
            worker, _ = self._running.pop(name)
            self._ending.append(asyncio.get_running_loop().create_task(worker.shutdown()))

    async def close(self) -> None:
        self.stop_polling()
        for worker, _ in self._running.values():
            self._ending.append(asyncio.get_running_loop().create_task(worker.shutdown()))
        if self._ending:
            await asyncio.wait(self._ending, timeout=5)
        if self.fence is not None:
            self.fence.close()


class Activities:
    def __init__(self, engine: "TemporalEngine", workers: QueueWorkers) -> None:
        self._engine = engine
        self._workers = workers
        self.claimed: dict[str, CancelRequest | None] = {}
        """Delegations that are claimed and do not run yet; with a cancellation that came meanwhile."""

    @activity.defn(name=PERFORM)
    async def perform(self, attempt: Attempt) -> str:
        """Run one attempt: claim it in the store, run it, and settle it there before this returns."""
        engine, info, began = self._engine, activity.info(), self._engine.loop.time()
        self.claimed[attempt.session_id] = cancelled = None
        try:
            self._check(attempt)
            if self._workers.contact.is_lost:
                raise Unavailable("no answer")
            async with asyncio.timeout_at(began + attempt.heartbeat_seconds * GIVE_UP_SHARE):  # later, another worker may have it
                before = await engine.recovery.claim(attempt.session_id, attempt.ticket)
                if before is None:
                    return await self._not_claimed(attempt)
                if before.agent != attempt.agent:  # what was checked is not what would run
                    raise _refusal(f"{attempt.session_id} is a delegation to {before.agent}, not to {attempt.agent}.")
                waited = (info.started_time - info.current_attempt_scheduled_time).total_seconds()
                run = await engine.run_claimed(before, attempt, attempt.seconds - max(0.0, waited))
        except (Unavailable, TimeoutError) as error:
            await asyncio.sleep(STORE_SECONDS)
            raise _handed_over(f"The worker {engine.owner.owner_id} could not reach the store: {error}") from None
        finally:
            cancelled = self.claimed.pop(attempt.session_id, None)  # delivered twice, the other one has taken it
            self._workers.slots.placed()
        if run is None:
            return "settled"
        if cancelled is not None:
            engine.spawn(run.cancel_tree(cancelled.reason, cancelled.source))
        handle = engine.client.get_async_activity_handle(task_token=info.task_token)
        return await Lease(engine, run, handle, attempt.heartbeat_seconds, began).hold(self._workers.contact, self._workers.fence)

    async def _not_claimed(self, attempt: Attempt) -> str:
        engine = self._engine
        if await off_loop(engine.store.get, attempt.session_id) is None:
            raise _refusal(f"The record of the worker {engine.owner.owner_id} is in {engine.temporal.store}, without this delegation.")
        return "settled, or claimed by another worker"

    def _check(self, attempt: Attempt) -> None:
        """Raise an error that makes the workflow try another worker."""
        engine = self._engine
        if attempt.version > VERSION:
            raise _refusal(
                f"{attempt.session_id} was submitted by a newer remit (payload version {attempt.version}, this worker knows {VERSION}). "
                "Upgrade this worker: pip install --upgrade remit."
            )
        ours = engine.config.definition(attempt.agent) if engine.deps.agents.find(attempt.agent) is not None else "none"
        if ours != attempt.definition:
            raise _refusal(
                f"The worker {engine.owner.owner_id} has another definition of {attempt.agent} ({ours}) "
                f"than its caller ({attempt.definition}). Give both the same version of the project."
            )

    @activity.defn(name=SETTLE)
    async def settle(self, asked: Settlement) -> str:
        """`settled`; empty if it can still be executed."""
        engine = self._engine
        record = await off_loop(engine.store.get, asked.session_id)
        if record is None and activity.info().attempt < LOOKS_ELSEWHERE:
            raise ApplicationError(f"The record in {engine.temporal.store} has no {asked.session_id}.", type=REFUSED)
        if record is None or record.state.is_settled:
            return "settled"
        match asked.reason:
            case "crashed" if record.started_at is None:
                return ""  # its worker died before the agent started
            case "crashed":
                detail = f"{record.agent} was running when its worker ended ({record.owner}): no heartbeat arrived in time."
                stop = Stop(reason=StopReason.CRASHED, source="the end of its worker", detail=detail)
            case "deadline":
                stop = Stop(reason=StopReason.DEADLINE, source="its deadline")
            case "unavailable":
                if not asked.detail and await engine.is_served(asked.queue, activity.info().started_time):
                    return ""
                waited = f"no worker serves its task queue {asked.queue}. Start one: remit worker --agents {target_of(record.agent)}."
                detail = asked.detail or waited
                stop = Stop(reason=StopReason.UNAVAILABLE, source="the queue", detail=detail, code="AGENT_UNAVAILABLE")
            case _:
                stop = Stop(reason=StopReason.CANCELLED, source=asked.source or "Temporal", detail=asked.detail)
        if await engine.settle(asked.session_id, stop) is None:
            raise ApplicationError(f"Another process settles {asked.session_id}.", type=REFUSED)  # looked at again after a second
        return "settled"


class Lease:
    """A delegation that this worker owns while its heartbeats are acknowledged."""

    def __init__(
        self, engine: "TemporalEngine", run: DelegationRun, handle: AsyncActivityHandle, heartbeat_seconds: float, began: float
    ) -> None:
        self._engine = engine
        self._run = run
        self._handle = handle
        self._seconds = heartbeat_seconds
        self._acked = began

    @property
    def _lost_at(self) -> float:
        return self._acked + self._seconds * GIVE_UP_SHARE

    async def hold(self, contact: StoreContact, fence: Fence | None) -> str:
        """Wait until its outcome is recorded. Raises an error that tells the workflow that another worker must continue."""
        session_id, done = self._run.delegation.session_id, self._run.outcome.done
        try:
            while True:
                activity.heartbeat()  # for the SDK, which cancels an activity that sends none by it; what counts is `_beat`
                if fence is not None:
                    fence.extend(session_id, self._acked + self._seconds * FENCE_SHARE)
                ends = [self._lost_at, contact.lost_at] if self._run.can_be_drained else [self._lost_at]
                seconds = min(self._seconds * BEAT_SHARE, max(0.0, min(ends) - self._engine.loop.time()))
                try:
                    await asyncio.wait([done], timeout=seconds)
                    if done.done() and await self._is_on_record():
                        return "settled"
                    if contact.is_lost and self._run.can_be_drained:
                        await self._give_up("the store")
                    await self._beat()
                except asyncio.CancelledError:  # the server informed the SDK before remit's next heartbeat
                    details = activity.cancellation_details()
                    if details is not None and details.cancel_requested:
                        self._stop("its workflow was asked to stop")
                    else:
                        await self._lost()
        finally:
            if fence is not None and not self._run.is_abandoned:
                fence.ended(session_id)

    async def _is_on_record(self) -> bool:
        """An outcome that the store has not accepted yet keeps its lease."""
        if isinstance(error := self._run.outcome.error, Unavailable):
            raise _handed_over(error.message)
        try:
            record = await off_loop(self._engine.store.get, self._run.delegation.session_id)
        except Unavailable:
            record = None
        if record is None or not record.state.is_settled:
            await asyncio.sleep(UNSETTLED_SECONDS)
            return record is not None and record.owner != self._engine.owner.owner_id
        return True

    async def _beat(self) -> None:
        """Send one heartbeat and wait for its acknowledgement, or end this lease."""
        began = self._engine.loop.time()
        try:
            async with asyncio.timeout_at(self._lost_at):
                await self._handle.heartbeat(rpc_timeout=timedelta(seconds=self._seconds * GIVE_UP_SHARE))
            self._acked = began
        except AsyncActivityCancelledError:
            self._acked = began
            self._stop("its workflow was asked to stop")
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                await self._lost()
            elif self._engine.loop.time() < self._lost_at:
                await asyncio.sleep(self._seconds * BEAT_SHARE / 4)
            else:
                await self._give_up("Temporal")
        except TimeoutError:
            await self._give_up("Temporal")

    def _stop(self, detail: str) -> None:
        if not self._run.outcome.is_known:
            self._run.stop(Stop(reason=StopReason.CANCELLED, source="Temporal", detail=detail))

    async def _lost(self) -> None:
        """Temporal no longer waits for this attempt: it timed out there, or the workflow was ended."""
        ended = await self._engine.ended_in_temporal(self._run.delegation.session_id)
        if ended is None:
            await self._give_up("Temporal")
        else:
            self._acked = self._engine.loop.time()
            self._stop(ended)
            await asyncio.wait([self._run.outcome.done], timeout=self._seconds)

    async def _give_up(self, lost: str) -> None:
        """Stop it here: this worker has lost `lost`."""
        if self._run.outcome.is_known:
            return
        log.warning("This worker lost the connection to %s and stops %s.", lost, self._run.delegation.session_id)
        stubborn = await self._engine.release(self._run, lost)
        if stubborn and self._engine.temporal.exits_when_cut_off:
            log.critical("An agent of %s could not be stopped: this worker exits.", self._run.delegation.session_id)
            os._exit(75)
        raise _handed_over(f"Its worker {self._engine.owner.owner_id} lost the connection to {lost}.")


def _refusal(message: str) -> ApplicationError:
    return ApplicationError(message, type=REFUSED, non_retryable=True, category=ApplicationErrorCategory.BENIGN)


def _handed_over(message: str) -> ApplicationError:
    return ApplicationError(message, type=HANDED_OVER, non_retryable=True, category=ApplicationErrorCategory.BENIGN)
