"""A delegation in the embedded engine: one object with one state machine. The engine owns slots, deadlines and the journal."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any

from remit.core.agents import Isolation
from remit.core.context import Handle, SettledHandle
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, OutOfTime, Stopped, Unavailable
from remit.core.events import EventKind
from remit.core.record import AppendEvent, BeginDelegation, SaveCheckpoint, SettleDelegation, StartDelegation
from remit.core.request import Request
from remit.core.result import Artifact, Return, Status, StopReason, state_of
from remit.core.states import State
from remit.engines.embedded.deadlines import BlockedLoop, RunTimer, let_go
from remit.engines.embedded.handles import Node, WaitedHandle
from remit.engines.embedded.journal import Clash, KeyConflict, OutcomeConflict, OverBudget, Problem
from remit.runtime import reply
from remit.runtime.accept import accept, queue_full, recorded_budget
from remit.runtime.deps import CURRENT, RuntimeDeps, Submission
from remit.runtime.local_context import LocalRun, Output
from remit.runtime.reply import NOTHING_LEFT, PartialWork, Stop, describe_exception, format_traceback
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine
    from remit.engines.embedded.replay import Replay

log = logging.getLogger("remit.engine")

DRAW_SECONDS = 5.0  # so long an outcome waits for its spending to be on record, if others draw from the budget
CHILDREN_SECONDS = 0.9
"""How long an ending caller waits for its children to end."""
PROCESS_GRACE_SECONDS = 0.5
"""Time for SIGTERM, grace and kill of a process agent. With the harvest of up to 0.4 s it must stay below the promised second."""
UNRECORDED_SECONDS = 0.5
OVERDUE_SECONDS = 0.6
"""After this long past its deadline the calls of an agent are refused, even if nothing else can stop it."""
_AT_DEADLINE = Stop(reason=StopReason.DEADLINE, source="its deadline")


class Phase(IntEnum):
    RECORDING = auto()
    """Submitted; being written to the journal."""
    QUEUED = auto()
    """Recorded; waits for a slot."""
    STARTING = auto()
    """Has a slot; being written to the journal."""
    RUNNING = auto()
    STOPPING = auto()
    """Its agent was cancelled and has its grace period."""
    CONCLUDING = auto()
    """Its return is being built and cannot change any more."""
    DRAINING = auto()
    """Stopped here without an outcome: the next process continues it."""
    SETTLED = auto()
    """Its outcome is being written or recorded, or this process has given it up."""


RECORDING, QUEUED, STARTING, RUNNING, STOPPING, CONCLUDING, DRAINING, SETTLED = Phase
TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    RECORDING: frozenset({QUEUED, RUNNING, SETTLED}),
    QUEUED: frozenset({STARTING, DRAINING, SETTLED}),
    STARTING: frozenset({RUNNING, DRAINING, SETTLED}),
    RUNNING: frozenset({STOPPING, CONCLUDING, DRAINING}),
    STOPPING: frozenset({CONCLUDING}),
    CONCLUDING: frozenset({SETTLED}),
    DRAINING: frozenset({SETTLED}),
    SETTLED: frozenset(),
}
_STOPPABLE = frozenset({RECORDING, QUEUED, STARTING, RUNNING})


class Outcome:
    """The return of a delegation, or the error in its place. Set once."""

    __slots__ = ("_done", "_loop", "_recorded", "error", "result", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.result: Return | None = None
        self.error: Exception | None = None
        self.waiter: asyncio.Future[Return] | None = None
        """Future of the one caller that waits in `run`. Cancelling that caller cancels this future only."""
        self._done: asyncio.Future[Return] | None = None
        self._recorded: asyncio.Future[str | None] | None = None

    @property
    def is_known(self) -> bool:
        return self.result is not None or self.error is not None

    @property
    def done(self) -> "asyncio.Future[Return]":
        """For observers. A task that may be cancelled must not await it directly; use `asyncio.wait` or `shield`."""
        if self._done is None:
            self._done = self._loop.create_future()
            if self.result is not None:
                self._done.set_result(self.result)
            elif self.error is not None:
                self._done.set_exception(self.error)
        return self._done

    def get(self) -> Return:
        """The return that the caller got, or raises its error."""
        if self.result is None:
            assert self.error is not None
            raise self.error
        return self.result

    def set(self, result: Return) -> None:
        if self.result is not None or self.error is not None:
            return
        self.result = result
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(result)
        if self._done is not None and not self._done.done():
            self._done.set_result(result)
        if self._recorded is not None:
            self.set_recorded()

    def fail(self, error: Exception) -> None:
        """Set an error: it could not be recorded, so nothing ran."""
        if self.is_known:
            return
        self.error = error
        for future in (self.waiter, self._done):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # retrieved: an unused handle is not an error
        self.set_recorded()

    def set_recorded(self, holder: str | None = None) -> None:
        """Mark it as recorded; `holder`: the session that has its idempotency key, if another one does."""
        if self._recorded is not None and not self._recorded.done():
            self._recorded.set_result(holder)

    def yield_key(self, holder: str) -> bool:
        """Another delegation has its key: inform the caller that started it. False: the caller waits for the return instead."""
        if self._recorded is None:
            return False
        self.set_recorded(holder)
        self.fail(Unavailable("Another delegation has its key.", advice="Ask again with the same key."))
        return True

    async def wait_recorded(self) -> str | None:
        """Wait until it is recorded. Returns the session that has its key, if another one does. Does not depend on its caller."""
        holder: str | None = None
        if not self.is_known:
            self._recorded = self._loop.create_future()
            holder = await asyncio.shield(self._recorded)
        if holder is None and self.error is not None:
            raise self.error
        return holder

    async def wait_recorded_or_done(self) -> None:
        await asyncio.wait([self.done if self._recorded is None else self._recorded], timeout=1.0)


class DelegationRun(LocalRun):
    """One delegation that this engine queues or runs. `submit` starts it, `_settle` writes its outcome, `_finish` answers its caller."""

    # Defaults of attributes that most delegations never set.
    stopped_by: Stop | None = None
    task: "asyncio.Task[None] | None" = None
    callers_elsewhere: tuple[Delegation, ...] = ()  # those in other processes, nearest first
    drawn: "asyncio.Future[None] | None" = None  # its last spending is on record
    tokens: int = 0
    cost: float = 0.0
    replay: "Replay | None" = None
    """The children of a run before a crash, or of a resumed run."""
    _output: Output | None = None

    def __init__(self, submission: Submission, engine: "EmbeddedEngine") -> None:
        super().__init__(submission, engine.config)
        self._engine = engine
        caller = submission.caller
        self.parent = caller if caller is not None and isinstance(caller, DelegationRun) else None  # type: ignore[assignment]
        self.phase = RECORDING
        self.outcome = Outcome(engine.loop)
        self.children: dict[str, Node] = {}
        if submission.earlier is not None:
            self.replay = submission.earlier.replay

    def _move(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"{self.delegation.session_id} cannot go from {self.phase} to {phase}.")
        self.phase = phase

    # ---- what others see of it

    @property
    def engine(self) -> "EmbeddedEngine":
        return self._engine

    @property
    def is_settled(self) -> bool:
        return self.phase is SETTLED

    @property
    def is_recorded(self) -> bool:
        return self.phase is not RECORDING

    @property
    def closing(self) -> str | None:
        """Why it may not delegate any more: it or a caller above it is being stopped or has ended."""
        node: DelegationRun | None = self
        while node is not None:
            if node.stopped_by is not None:
                return f"{node.delegation.agent} is being stopped ({node.stopped_by.source})"
            if node.phase is SETTLED:
                return f"{node.delegation.agent} has ended"
            node = node.parent
        return None

    def ancestors(self) -> list[Delegation]:
        *_, root = self.above()
        return [*super().ancestors(), *root.callers_elsewhere]

    def below(self) -> "Iterator[Node]":
        """Itself and its live children, at every depth."""
        yield self
        for child in list(self.children.values()):
            yield from child.below()

    # ---- from submission to the start of its agent

    def submit(self) -> None:
        """Take a slot or a place in the queue, and record it."""
        engine, scheduler = self._engine, self._engine.scheduler
        has_slot = scheduler.acquire(self)
        if not has_slot:
            if scheduler.is_full:
                self._move(SETTLED)
                self._refuse(queue_full(scheduler.waiting, scheduler.total))
                return
            scheduler.reserve(self)
        is_shared = engine.register(self)
        self.timer = RunTimer(engine.deadlines, self.delegation.deadline.soft_at, self)
        self._record(has_slot, is_shared=is_shared, at_once=self.outcome.waiter is not None and scheduler.is_alone)

    def resubmit(self) -> None:
        """Queue a delegation taken over from a dead process, without recording it again."""
        self._engine.scheduler.reserve(self)
        self._engine.register(self)
        self.timer = RunTimer(self._engine.deadlines, self.delegation.deadline.soft_at, self)
        self._on_recorded(None)

    def _record(self, has_slot: bool, *, is_shared: bool = True, at_once: bool = False) -> None:
        """`is_shared`: other processes may draw from its budget, too."""
        engine, steps, owner_id = self._engine, self.submission.step_times, self.config.owner.owner_id
        steps[5] = now = self.config.deps.clock.wall()
        state, started_at = (State.RUNNING, now) if has_slot else (State.QUEUED, None)
        if has_slot:
            steps[6] = now
        limits = self.budget.tree_limits(self.delegation.lineage.root_id) if is_shared else None
        begin = tuple.__new__(BeginDelegation, (self.delegation, state, owner_id, started_at, steps, None, limits))  # as in `_settle`
        engine.journal.write(begin, self._on_recorded, at_once=at_once)

    def _on_recorded(self, problem: Problem) -> None:
        if problem is not None:
            self._not_recorded(problem)
            return
        try:
            if self.stopped_by is not None:
                self._settle_unstarted()
            elif self._engine.scheduler.has_slot(self):
                self._launch()
            else:
                self._move(QUEUED)
                self._engine.scheduler.enqueue(self, self._engine.loop.time())
        finally:
            if self.outcome.waiter is None:
                self.outcome.set_recorded()  # last: a caller of `start` continues after the agent has started

    def _not_recorded(self, problem: Problem) -> None:
        if isinstance(problem, Clash):  # its id was taken and nothing has run under it: draw another
            self._engine.redraw(self)
            self._record(self._engine.scheduler.has_slot(self))
        elif isinstance(problem, OverBudget):
            self._engine.spawn(self._refuse_over_budget(problem))
        else:
            self._drop(problem)

    async def _refuse_over_budget(self, over: OverBudget) -> None:
        try:
            if not over.is_of_tree and await self._engine.removed_limits(self.submission):
                self._record(self._engine.scheduler.has_slot(self))
            else:
                self._drop(None)
                self._refuse(recorded_budget(self.delegation, over.lack, is_of_tree=over.is_of_tree))
        except Unavailable as error:
            self._drop(error)

    def _drop(self, problem: Problem) -> None:
        self._move(SETTLED)
        self._release()
        self._engine.unregister(self, was_recorded=False)
        if isinstance(problem, Unavailable):
            self.outcome.fail(problem)
        elif isinstance(problem, KeyConflict) and not self.outcome.yield_key(problem.session_id):
            self._engine.spawn(self._engine.answer_from_holder(self, problem.session_id))

    def _refuse(self, error: ErrorInfo) -> None:
        self.submission.refusal = reply.refused_return(self.delegation, error)

        async def answer() -> None:
            self.outcome.set(await self._engine.refuse(self.submission))

        self._engine.spawn(answer())

    def start_from_queue(self) -> None:
        """Called by the scheduler, with a slot."""
        self._move(STARTING)
        steps, now = self.submission.step_times, self._engine.deps.clock.wall()
        steps[6] = now
        self._engine.journal.write(StartDelegation(self.delegation.session_id, now, tuple(steps)), self._on_started)

    def _on_started(self, problem: Problem) -> None:
        if self.phase is not STARTING:
            return
        if isinstance(problem, Unavailable):
            self.stopped_by = Stop(reason=StopReason.UNAVAILABLE, source="the journal", detail=str(problem))
            self._settle_unstarted()
        else:
            self._launch()
            self._notify()

    def _launch(self) -> None:
        engine = self._engine
        self._move(RUNNING)
        self.started_at = self.timer.last_heard = engine.loop.time()
        if self.attempt == 1:
            self.started_wall = self.config.deps.clock.wall()  # a resumed run is measured from its first start
        if self.delegation.idle_seconds is not None:
            self.timer.schedule(self._next_look(), self)  # silence is counted from here
        self.task = engine.loop.create_task(self._perform(), context=engine.neutral.copy())
        if not engine.watchdog.is_awake:
            engine.watchdog.wake()
        if engine.bus.has_listeners:
            engine.bus.started(self.delegation, engine.deps.clock.wall())

    # ---- performing

    async def _perform(self) -> None:
        """The body of its task: perform and end it."""
        CURRENT.set(self)
        late: Return | None = None
        crash: BaseException | None = None
        try:
            late = await self._engine.perform(self)
            if self.drawn is not None:
                await asyncio.wait([self.drawn], timeout=DRAW_SECONDS)
        except asyncio.CancelledError:
            late = self.held
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit and the like from an agent must not end the orchestrator
            crash = error
        if self.phase is not RUNNING and self.phase is not STOPPING:
            return  # abandoned, or drained
        try:
            if self.stopped_by is None and late is not None:
                self._move(CONCLUDING)  # it has its answer, which even its deadline does not take away
                if self.children:
                    await self.end_children()
                self._settle(late)
            else:
                self.stopped_by = self.stopped_by or self._stop_because(crash)
                await self._conclude(late)
        except Exception as error:
            log.exception("The outcome of %s could not be settled", self.delegation.session_id)
            self._report_fault(error)

    def _report_fault(self, error: Exception) -> None:
        """An error of remit itself: its caller must not wait for ever. Its record stays live, and the next process settles it."""
        if self.phase is not SETTLED:
            self.phase = SETTLED
            self._release()
        self._engine.unregister(self)
        message = f"remit could not settle {self.delegation.session_id}: {describe_exception(error)}."
        self.fail(Unavailable(message, advice="This is a fault of remit. Please report it with the log."))

    def _stop_because(self, ended: BaseException | None) -> Stop:
        """Why it ends without an answer: the watchdog, the soft deadline, its budget, or its own code. None: its task was cancelled."""
        if ended is None:
            return Stop(reason=StopReason.CANCELLED, source="its own code", detail="the task of the agent was cancelled")
        if isinstance(ended, OutOfTime):
            said = ended.message.rstrip(".")
            if ended.code == "BUDGET_EXCEEDED":
                return Stop(reason=StopReason.BUDGET, source="the budget", detail=said)
            detail = f"{said}: {self.elapsed():.1f} s of its {self.delegation.deadline.timeout_seconds:g} s were over."
            return Stop(reason=StopReason.DEADLINE, source="the soft deadline", detail=detail)
        if isinstance(ended, BlockedLoop):
            detail = ended.message or self._engine.watchdog.messages.pop(self.delegation.session_id, "")
            return Stop(reason=StopReason.DEADLINE, source="the watchdog", detail=detail, traceback=format_traceback(ended))
        detail = f"{self.delegation.agent} ended the program: {describe_exception(ended)}."
        return Stop(reason=StopReason.CRASHED, source="its own code", detail=detail, traceback=format_traceback(ended))

    # ---- stopping

    def stop(self, why: Stop) -> None:
        """Start to end it and everything below it. Takes effect once; never waits."""
        if self.stopped_by is not None or self.phase not in _STOPPABLE:
            return
        self.stopped_by = why
        if why.reason is StopReason.CANCELLED:
            self.say(EventKind.CANCEL, {"state": "requested", "source": why.source, "reason": why.detail})
        for child in list(self.children.values()):
            child.stop(self._stop_of_child(child, why))
        if self.phase is RUNNING:
            self._move(STOPPING)
            self.timer.release_waiters()
            assert self.task is not None
            self.task.cancel()
            self.timer.schedule(self._engine.loop.time() + self._grace(), self)
        elif self.phase is RECORDING:  # answered in any case, and settled once it is recorded
            self.timer.schedule(self._engine.loop.time() + UNRECORDED_SECONDS, self)
        else:
            self._settle_unstarted()

    def _stop_of_child(self, child: Node, why: Stop) -> Stop:
        """A child whose own deadline has passed was stopped by that; any other by the end of its caller."""
        if why.reason is StopReason.DEADLINE and child.delegation.deadline.hard_at <= self._engine.loop.time() + 0.001:
            return why
        if why.reason is StopReason.CANCELLED:
            return why
        return Stop(reason=StopReason.CANCELLED, source=f"the end of its caller {self.delegation.agent}", detail=why.source)

    def _grace(self) -> float:
        isolation, seconds = self.agent.spec.isolation, self.config.deps.settings.kill_grace_seconds
        if isolation is Isolation.PROCESS:
            return max(PROCESS_GRACE_SECONDS, seconds + 0.25)
        return seconds + (0.1 if isolation is Isolation.THREAD else 0.0)

    async def end_children(self) -> None:
        """Stop all children: none outlives its caller. Bounded."""
        children = list(self.children.values())
        source = f"the end of its caller {self.delegation.agent}"
        for child in children:
            child.stop(Stop(reason=StopReason.CANCELLED, source=source))
        if children:
            await asyncio.wait([child.outcome.done for child in children], timeout=CHILDREN_SECONDS)

    @property
    def ends_at(self) -> float:
        return self.delegation.deadline.hard_at

    def _next_look(self) -> float:
        deadline, idle = self.delegation.deadline, self.delegation.idle_seconds
        at = deadline.hard_at if self.timer.hand_in else deadline.soft_at
        return at if idle is None or not self.started_at else min(at, self.timer.last_heard + idle)

    def look(self, now: float) -> None:
        """Handle its soft or hard deadline, its idle limit, or the end of its grace period."""
        if self.stopped_by is not None:
            self._give_up()
            return
        deadline, idle = self.delegation.deadline, self.delegation.idle_seconds
        if now >= deadline.hard_at:
            self.stop(_AT_DEADLINE)
            return
        if idle is not None and self.started_at and now >= self.timer.last_heard + idle:
            self.stop(Stop(reason=StopReason.IDLE, source="its idle limit"))
            return
        if now >= deadline.soft_at and not self.timer.hand_in:
            self.timer.hand_in = True
            self.timer.release_waiters()
            if self.started_at:
                self.notice(f"Soft deadline: {self.remaining():.1f} s left to return the result so far.")
        self.timer.schedule(max(self._next_look(), now), self)

    def _give_up(self) -> None:
        """The grace period is over: abandon its agent and answer its caller."""
        if self.phase is RECORDING:
            assert self.stopped_by is not None
            left = PartialWork(warnings=("It could not be recorded in time: the database is busy. It did not run.",))
            self.outcome.set(reply.stopped_return(self.delegation, self.stopped_by, left, duration_seconds=0.0))
            self._notify()
        elif self.phase is STOPPING:
            assert self.task is not None
            if not self.is_abandoned:
                gone = self.abandon(f"The {self.agent.spec.isolation} agent {self.delegation.agent}")
                self.task.add_done_callback(lambda _: gone())
                let_go(self.task)
            self._move(CONCLUDING)
            self._engine.spawn(self._conclude(None))

    @property
    def is_abandoned(self) -> bool:
        """Whether its agent could not be stopped and still runs."""
        return self.delegation.session_id in self._engine.abandoned()

    def abandon(self, what: str) -> Callable[[], None]:
        """Record that its agent could not be stopped, until the returned function is called."""
        session_id, left_behind = self.delegation.session_id, self._engine.left_behind
        left_behind[session_id] = what
        self.notice(f"{what} could not be stopped and was abandoned; its work no longer counts.")

        def gone() -> None:
            left_behind.pop(session_id, None)

        return gone

    def cancel_state(self) -> str:
        """How a cancellation ended its agent, unless something else had ended it before."""
        if self.result is not None and self.result.stop_reason is not StopReason.CANCELLED:
            return f"already {self.state}"
        if self.is_abandoned:
            return "abandoned"
        return "killed" if self.agent.spec.isolation is Isolation.PROCESS else "stopped"

    async def cancel_tree(self, reason: str, source: str) -> list[dict[str, Any]]:
        """Cancel it and everything below it. Returns how each node ended."""
        nodes = list(self.below())
        self.stop(Stop(reason=StopReason.CANCELLED, source=source, detail=reason))
        await asyncio.wait([node.outcome.done for node in nodes], timeout=CHILDREN_SECONDS * 3)
        return [
            {
                "session_id": node.delegation.session_id,
                "agent": node.delegation.agent,
                "state": node.cancel_state() if node.outcome.is_known else "stopping",
            }
            for node in nodes
        ]

    # ---- settling

    async def _conclude(self, late: Return | None) -> None:
        """Collect its partial work and settle. The caller gets its answer whatever fails here."""
        from remit.runtime.partial_work import collect_partial_work

        if self.phase is not CONCLUDING:
            self._move(CONCLUDING)
        self.stamp(7)
        why = self.stopped_by
        assert why is not None
        try:
            if self.children:
                await self.end_children()
            foreign = frozenset(path for other in self._engine.declaring if other is not self for path in other.artifacts or ())
            left = await collect_partial_work(self, self._output, late, foreign=foreign)
            left = await self._engine.keep_partial_work(self, left)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the answer is more important than the harvest
            left = PartialWork(warnings=(f"Its partial work could not be collected: {error!r}",))
        if why.reason is StopReason.CANCELLED:
            self.say(EventKind.CANCEL, {"state": self.cancel_state(), "source": why.source, "reason": why.detail})
        result = reply.stopped_return(self.delegation, why, left, duration_seconds=self.elapsed(), resumable=self.agent.spec.resumable)
        self._settle(reply.with_agent_session(result, self.saved))

    def _settle_unstarted(self) -> None:
        """Stopped before its agent was called: there is no work to collect."""
        assert self.stopped_by is not None
        self._settle(reply.stopped_return(self.delegation, self.stopped_by, NOTHING_LEFT, duration_seconds=0.0))

    def _settle(self, result: Return) -> None:
        """Write the outcome, then report it. Once."""
        self._move(SETTLED)
        self.result = result
        engine, steps = self._engine, self.submission.step_times
        steps[11] = steps[12] = now = self.config.deps.clock.wall()
        said = 0 if self._output is None else self._output.count
        session_id = self.delegation.lineage.session_id
        is_usual = result.status is Status.COMPLETED and result.stop_reason is StopReason.FINISHED
        state = State.COMPLETED if is_usual else state_of(result)
        fields = (session_id, state, now, result, tuple(steps), self.tokens, self.cost, said)
        settle = tuple.__new__(SettleDelegation, fields)  # bypasses its Python constructor
        is_alone = engine.scheduler.is_alone
        self.timer.cancel()
        engine.scheduler.leave(self)
        if result.errors and (own := self.own_errors(result.errors)):
            engine.deps.note_errors(self.delegation, own, result.traceback)
        engine.journal.write(settle, self._on_settled, at_once=is_alone)

    def _on_settled(self, problem: Problem) -> None:
        result = self.result
        assert result is not None
        if isinstance(problem, OutcomeConflict):
            self._engine.spawn(self._finish_as_recorded(result))
            return
        if problem is not None:
            result = replace(result, warnings=(*result.warnings, f"Not recorded yet, will be tried again: {problem}"))
        self._finish(result)

    async def _finish_as_recorded(self, ours: Return) -> None:
        """Another process took the delegation over and recorded an outcome first: use that one."""
        try:
            record = await off_loop(self._engine.store.get, self.delegation.session_id)
        except Unavailable:
            record = None
        self._finish(record.result if record is not None and record.result is not None else ours)

    def _finish(self, result: Return) -> None:
        engine = self._engine
        self.result = result
        engine.unregister(self)
        if self.parent is not None:
            self.parent.add_failure(result)
        self.outcome.set(result)
        if self._output is not None:
            self._output.notify()
        if engine.bus.has_listeners:
            engine.bus.ended(self.delegation, result, engine.deps.clock.wall(), self.tokens, self.cost, self.submission.step_times)
        # Each is part of a reference cycle (task, context, backend): break it here, so that memory is freed at once.
        self.task = None
        self._ctx = None

    def fail(self, error: Exception) -> None:
        """This process will not produce a return."""
        self.outcome.fail(error)
        self._notify()

    def _release(self) -> None:
        self.timer.cancel()
        self._engine.scheduler.leave(self)

    # ---- draining

    @property
    def can_be_drained(self) -> bool:
        return self.stopped_by is None and self.phase in (QUEUED, STARTING, RUNNING)

    def drain(self, notice: str) -> "asyncio.Task[None] | None":
        """From here on nothing settles it: its task is cancelled, and its timers are ignored."""
        self.notice(notice)
        self._move(DRAINING)
        if self.task is not None:
            self.task.cancel()
        return self.task

    def hand_over(self, notice: str) -> None:
        """This process gives it up; its record stays live."""
        self._move(SETTLED)
        self._release()
        self._engine.unregister(self)
        self.fail(Unavailable(notice, advice=f"Ask for {self.delegation.session_id} again in a moment."))

    # ---- for its agent and its context

    @property
    def output(self) -> Output:
        if self._output is None:
            self._output = Output(self.config.deps.settings.chunk_limit_bytes)
        return self._output

    @property
    def hand_in(self) -> bool:
        return self.timer.hand_in

    async def wait_hand_in(self) -> None:
        await self.timer.wait_hand_in()

    def must_be_alive(self) -> None:
        overdue = self._engine.loop.time() - self.delegation.deadline.hard_at
        if overdue > OVERDUE_SECONDS or self.phase not in (RUNNING, STOPPING):
            raise Stopped(
                f"The delegation {self.delegation.session_id} of {self.delegation.agent} has ended.", advice="Its agent must stop."
            )

    def say(self, kind: EventKind, body: dict[str, Any]) -> None:
        """Emit a numbered event: kept, written with the next group, and sent to followers."""
        engine = self._engine
        if kind is not EventKind.NOTICE:  # remit's own notices are not a sign of life
            self.heard()
        event = self.output.append(self.delegation.session_id, kind, body, engine.deps.clock.wall())
        limits = engine.spending_limits(self) if kind is EventKind.SPENT else None
        engine.journal.write(AppendEvent(event, limits), self.output.written if limits is None else self._draw())
        self._notify()

    def _draw(self) -> Callable[[Problem], None]:
        """Waits until the store has compared its spending with limits that other processes draw from, too."""
        self.drawn = answered = self._engine.loop.create_future()

        def compared(problem: Problem) -> None:
            self.output.written()
            if isinstance(problem, OverBudget):
                self.stop(Stop(reason=StopReason.BUDGET, source="the budget", detail=problem.lack))
            answered.set_result(None)

        return compared

    def heard(self) -> None:
        """Note a sign of life, for it and for every caller that waits for it."""
        now = self._engine.loop.time()
        for node in self.above():
            node.timer.last_heard = now

    def declare(self, artifact: Artifact) -> None:
        super().declare(artifact)
        self._engine.declaring.add(self)

    def spend(self, tokens: int, cost: float) -> tuple[int, float, str | None]:
        passed = self.budget.charge(tokens=tokens, cost=cost)
        self.tokens += tokens
        self.cost += cost
        return self.tokens, self.cost, passed

    async def save_checkpoint(self, value: Any) -> None:
        await self._engine.journal.written(SaveCheckpoint(self.delegation.session_id, self._engine.deps.clock.wall(), value))

    def _notify(self) -> None:
        if self._output is not None:
            self._output.notify()

    # ---- children

    async def delegate(self, request: Request, deps: RuntimeDeps | None = None) -> Return:
        self.must_be_alive()
        engine = self._engine
        engine.scheduler.lend(self)
        try:
            if self.replay is not None:
                child = await self._replayed(request)
                if child is not None:
                    return child if isinstance(child, Return) else await asyncio.shield(child.outcome.done)
            return await engine.run(accept(request, self, deps or self.config.deps))
        finally:
            engine.scheduler.take_back(self)

    async def start(self, request: Request, deps: RuntimeDeps | None = None) -> Handle:
        self.must_be_alive()
        child = None if self.replay is None else await self._replayed(request)
        if isinstance(child, Return):
            return SettledHandle(child)
        if child is not None:
            return WaitedHandle(self._engine.handle_of(child), self)
        handle = await self._engine.start(accept(request, self, deps or self._engine.deps))
        return handle if isinstance(handle, SettledHandle) else WaitedHandle(handle, self)

    async def _replayed(self, request: Request) -> "Node | Return | None":
        """The result of this call in the earlier run: its recorded return, or the child itself, which continues."""
        record = self.replay.take(request) if self.replay is not None else None
        if record is None:
            return None
        if record.result is None:
            return await self._engine.continue_child(record, self)
        self.notice(f"{record.agent} had finished in the run before ({record.session_id}): its recorded result is used.")
        self.add_failure(record.result)
        return record.result
