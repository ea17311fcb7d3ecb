"""The embedded engine: one event loop, slots, a deadline heap and a journal. Runs delegations and keeps them (design 3).

The life of a delegation here: `submit` ► recorded ► slot ► `_launch` ► `flow.perform` under its deadline ► `settle` ► recorded ► told.
How it is ended before its time is in `ending`; how a dead process's delegations are found again in `recovery`.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from remit.core.budget import Budget, Limits
from remit.core.deadline import Clock
from remit.core.errors import ErrorInfo, Misused, Unavailable
from remit.core.events import Event
from remit.core.lifecycle import OUTCOMES, LifecycleKind
from remit.core.record import BeginDelegation, SettleDelegation, StartDelegation
from remit.core.result import Return, StopReason
from remit.core.states import State, move
from remit.engines.embedded import ending, handles, recovery
from remit.engines.embedded.context_backend import EngineBackend
from remit.engines.embedded.deadlines import Deadlines, Watchdog
from remit.engines.embedded.events import EventStreams
from remit.engines.embedded.handles import LocalHandle, until_recorded
from remit.engines.embedded.journal import Clash, Journal, KeyTaken, Overruled, Problem
from remit.engines.embedded.maintenance import Maintenance
from remit.engines.embedded.peers import WakeupPipe
from remit.engines.embedded.replay import look_back
from remit.engines.embedded.running import Running
from remit.engines.embedded.slots import PrincipalBudgets, Slots
from remit.runtime import reply
from remit.runtime.accept import redrawn
from remit.runtime.context import Context, Handle, SettledHandle
from remit.runtime.deps import Submission
from remit.runtime.engine import CURRENT, EngineConfig, Middleware, Perform, Recovered
from remit.runtime.lifecycle import LifecycleBus, LifecycleEvents, Listener
from remit.runtime.liveness import closed_path, remove_dead_pipes
from remit.runtime.perform import Work, perform
from remit.system.threads import off_loop

WAKEUP_SECONDS = 0.01
"""Between two looks for cancel requests, however often this process is woken."""


class EmbeddedEngine:
    def __init__(self, config: EngineConfig) -> None:
        deps, store, options = config.deps, config.store, config.options
        self.deps = deps
        self.root = deps.root
        self.clock: Clock = deps.clock
        self.store = store
        self.owner = config.owner
        self.caller_token = config.caller_token
        self.scratch_root = config.folder / "scratch"
        self.run_folder = config.folder / "run"
        self.options = options
        self.chunk_limit_bytes = options.chunk_limit_bytes
        self.loop = asyncio.get_running_loop()
        self._neutral = contextvars.copy_context()
        self._neutral.run(CURRENT.set, None)
        self.journal = Journal(store, self.loop, self._neutral, in_loop=options.commit_in_loop, before=deps.policy.write_out)
        self.deadlines = Deadlines(self.loop, self._neutral)
        self.slots = Slots(options.slots_total, queue_limit=options.queue_limit, ageing_seconds=options.ageing_seconds)
        self.watchdog = Watchdog(self.loop, self.deadlines, options.block_limit_seconds, lambda: self.running)
        self.running: dict[str, Running] = {}
        self.unstoppable: dict[str, str] = {}
        """Agents that could not be stopped, by session: what is left of them no longer counts."""
        self.bus = LifecycleBus(config.listeners)
        self.declared: dict[str, set[str]] = {}
        """The paths of artifacts that living delegations declared as theirs, by session."""
        self.pending: dict[str, reply.Stop | None] = {}
        """Taken over from a dead process and not run again yet; with the cancellation that came meanwhile, if one did."""
        self.streams = EventStreams(store, self.run_folder, self.find, self.recover)
        self.budgets = PrincipalBudgets(store, self.clock, self.loop)
        self.perform = _wrapped(config)
        self._reap = config.reap
        self._kill = config.kill
        self._pipe: WakeupPipe | None = None
        self._wakeups = asyncio.Event()
        self.recovers_again_at = 0.0
        """When delegations that wait for their agent to come back are looked at again."""
        self._recovery: asyncio.Task[Recovered] | None = None
        self._maintenance = Maintenance(
            config,
            self.journal,
            lambda session_id: session_id in self.running or session_id in self.pending,
            lambda: list(self.unstoppable),
            self.take_cancels,
        )
        self.tasks: set[asyncio.Task[Any]] = set()
        self.clearing: set[asyncio.Task[Any]] = set()
        self.is_closed = False

    # ---- the port

    def live(self) -> Mapping[str, Running]:
        return self.running

    def find(self, session_id: str) -> Running | None:
        return self.running.get(session_id)

    def abandoned(self) -> Mapping[str, str]:
        return self.unstoppable

    def message(self, session_id: str, text: str) -> bool:
        running = self.running.get(session_id)
        if running is None or running.is_settled:
            return False
        running.notice(text)
        return True

    async def wait_idle(self) -> None:
        while running := list(self.running.values()):
            await asyncio.wait([one.done for one in running])
            await asyncio.sleep(0)

    def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.streams.follow(session_id, after)

    async def result(self, session_id: str, wait_seconds: float) -> Return | None:
        return await self.streams.result(session_id, wait_seconds)

    def listen(self, listener: Listener, kinds: Iterable[LifecycleKind] = OUTCOMES) -> Callable[[], None]:
        return self.bus.listen(listener, kinds)

    def lifecycle_events(self, kinds: Iterable[LifecycleKind] = OUTCOMES) -> LifecycleEvents:
        return self.bus.read(kinds)

    def report_access(self, api: str, principal: str | None, error: ErrorInfo | None = None) -> None:
        self.bus.access(api, principal, self.clock.wall(), error)

    def limit_slots(self, agent: str, slots: int | None, *, is_default: bool = False) -> None:
        self.slots.limit(agent, slots, is_default=is_default)
        self._fill()

    async def principal_budget(self, principal: str, limits: Limits | None = None) -> Budget:
        return await self.budgets.get(principal, limits)

    async def clean_up(self) -> None:
        await self._maintenance.clean_up()

    async def open(self, *, recover: bool = True) -> Recovered:
        """Enrolled and reachable by other processes before anything runs."""
        self._pipe = WakeupPipe(self.run_folder, self.owner.owner_id, self._wakeups.set)
        self.spawn(self._take_cancels_when_woken())
        await self.journal.call(lambda store: store.enrol(self.owner))
        recovered = await self.recover() if recover else Recovered()
        self.spawn(self._maintenance.run())
        return recovered

    async def recover(self) -> Recovered:
        if self._recovery is None or self._recovery.done():
            remove_dead_pipes(self.run_folder)
            self._recovery = self.spawn(recovery.recover(self, self.run_folder, self._reap))
        try:
            return await asyncio.shield(self._recovery)  # shared: a caller that stops waiting does not stop it half-way
        except asyncio.CancelledError:
            if self._recovery.cancelled() and self.is_closed:
                raise Misused("This Remit was closed while it recovered.", advice="Open it again.") from None
            raise

    async def drain(self) -> list[str]:
        if self._recovery is not None and not self._recovery.done():  # the next process recovers the rest
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        return await recovery.drain(self)

    async def _take_cancels_when_woken(self) -> None:
        while True:
            await self._wakeups.wait()
            self._wakeups.clear()
            await self.take_cancels()
            await asyncio.sleep(WAKEUP_SECONDS)

    async def take_cancels(self) -> None:
        """Carry out what other processes asked for."""
        with contextlib.suppress(Unavailable):  # asked again at the next wake-up, or by maintenance
            for request in await self.journal.call(lambda store: store.take_cancels(self.owner.owner_id)):
                if request.session_id in self.pending:
                    self.pending[request.session_id] = reply.Stop(reason=StopReason.CANCELLED, source=request.source, detail=request.reason)
                elif (running := self.running.get(request.session_id)) is not None:
                    self.spawn(ending.cancel_tree(self, running, request.reason, request.source))

    async def run(self, submission: Submission) -> Return:
        if submission.delegation.resumes is not None and not await look_back(self, submission):
            return await self.refuse(submission)
        running = self.submit(submission)
        running.waiter = self.loop.create_future()
        try:
            return await running.waiter
        except asyncio.CancelledError:
            ending.stop(self, running, reply.Stop(reason=StopReason.CANCELLED, source="its caller's task"))
            raise

    async def start(self, submission: Submission) -> Handle:
        if submission.refusal is not None or (submission.delegation.resumes is not None and not await look_back(self, submission)):
            return SettledHandle(await handles.refuse_whole(self, submission))
        running = self.submit(submission)
        holder = await until_recorded(running)
        return LocalHandle(running, self) if holder is None else await handles.handle_of_holder(self, running, holder)

    async def refuse(self, submission: Submission) -> Return:
        return await handles.refuse(self, submission)

    async def cancel(self, session_id: str, reason: str, source: str, *, force: bool = False) -> list[dict[str, Any]]:
        return await recovery.cancel_anywhere(self, session_id, reason, source, self._reap, self._kill if force else None)

    def stop(self, running: Running, stop: reply.Stop) -> None:
        ending.stop(self, running, stop)

    def lend_slot(self, running: Running) -> None:
        """Waiting for a child, its caller lends its slot, so that callers cannot starve their own children."""
        running.waiting_for += 1
        if running.waiting_for == 1 and running.has_slot:
            self.slots.give(running.delegation.agent)
            self._fill()

    def take_slot_back(self, running: Running) -> None:
        running.waiting_for -= 1
        if running.waiting_for == 0 and running.has_slot:
            self.slots.take(running.delegation.agent)

    # ---- the life of a delegation

    def submit(self, submission: Submission) -> Running:
        if self.is_closed:
            raise Misused("This Remit is closed.", advice="Open it again: async with Remit.open(…).")
        parent = submission.caller if isinstance(submission.caller, Running) else None
        running = Running(submission, self, parent)
        agent = submission.delegation.agent
        if self.slots.is_free(agent):
            self.slots.take(agent)
            running.has_slot = True
        elif self.slots.is_full:
            handles.refuse_for_lack_of_room(self, running)
            return running
        else:
            self._reserve(running)
        self._register(running)
        running.be_looked_at(running.next_look())
        self._record(running)
        return running

    def _reserve(self, running: Running) -> None:
        running.is_queued = True
        self.slots.reserve()

    def resubmit(self, running: Running) -> None:
        """A delegation that was recorded by a dead process and taken over: it is queued again, not recorded again."""
        self._reserve(running)
        self._register(running)
        running.be_looked_at(running.next_look())
        self._recorded(running, None)
        self.streams.watcher.tell(running.delegation.session_id)

    def _register(self, running: Running) -> None:
        running.budget.enter()
        session_id = running.delegation.session_id
        self.running[session_id] = running
        parent = running.parent
        if parent is not None:
            if parent.live_children is None:
                parent.live_children = {}
            parent.live_children[session_id] = running

    def _record(self, running: Running) -> None:
        now = self.clock.wall()
        running.step_times[5] = now
        if running.has_slot:
            running.state = State.RUNNING
            running.step_times[6] = now
        begun = BeginDelegation(
            running.delegation, running.state, self.owner.owner_id, now if running.has_slot else None, running.step_times
        )
        self.journal.write(begun, partial(self._recorded, running))

    def _recorded(self, running: Running, problem: Problem) -> None:
        if problem is not None:
            self._not_recorded(running, problem)
            return
        running.is_recorded = True
        try:
            self._go_on(running)
        finally:
            running.note_recorded()  # last: whoever began it goes on after its agent has begun

    def _go_on(self, running: Running) -> None:
        if running.stop is not None:
            ending.conclude_unstarted(self, running)
        elif running.has_slot:
            self._launch(running)
        else:
            running.place = self.slots.enqueue(running.delegation.agent, running.delegation.priority, self.loop.time(), running)
            if self.bus.wants_details:
                running.publish_steps(State.QUEUED)
            self._fill()

    def _not_recorded(self, running: Running, problem: Problem) -> None:
        if isinstance(problem, Clash):
            self._redraw(running)
            return
        running.is_settled = True
        self._unregister(running)
        self._leave(running)
        if isinstance(problem, KeyTaken):
            if running.recorded is not None:
                running.give_way(problem.session_id)
            else:
                self.spawn(handles.answer_from_holder(self, running, problem.session_id))
        else:
            assert isinstance(problem, Unavailable)
            running.tell_trouble(problem)

    def _redraw(self, running: Running) -> None:
        """Its id was taken: nothing has run under it, so it simply gets another."""
        taken = running.delegation.session_id
        redrawn(running.submission, self.deps.policy)
        running.delegation = running.submission.delegation
        drawn = running.delegation.session_id
        self.running[drawn] = self.running.pop(taken)
        if running.parent is not None and running.parent.live_children is not None:
            running.parent.live_children[drawn] = running.parent.live_children.pop(taken)
        self._record(running)

    def _unregister(self, running: Running) -> None:
        session_id = running.delegation.session_id
        if self.running.pop(session_id, None) is None:
            return  # done already
        running.budget.leave()
        if running.artifacts:
            self.declared.pop(session_id, None)
        parent = running.parent
        if parent is not None and parent.live_children is not None:
            parent.live_children.pop(session_id, None)

    def _launch(self, running: Running) -> None:
        running.state = State.RUNNING
        running.started_at = running.last_heard = self.loop.time()
        if running.attempt == 1:
            running.started_wall = self.clock.wall()  # a resumed run is measured by its first start
        running.ctx = Context(EngineBackend(running))
        if running.delegation.idle_seconds is not None:
            running.be_looked_at(running.next_look())  # silence is counted from here
        running.task = self.loop.create_task(ending.perform_to_the_end(self, running), context=self._context_of(running))
        self.watchdog.started()
        if self.bus.has_listeners:
            running.publish_steps(State.RUNNING)
            self.bus.started(running.delegation, self.clock.wall())

    def _context_of(self, running: Running) -> contextvars.Context:
        context = self._neutral.copy()
        context.run(CURRENT.set, running)
        return context

    def settle(self, running: Running, result: Return) -> None:
        """The outcome: written, then told. Once."""
        if running.is_settled:
            return
        running.is_settled = True
        running.result = result
        steps = running.step_times
        steps[11] = steps[12] = now = self.clock.wall()
        settled = SettleDelegation(
            running.delegation.session_id,
            move(running.state, reply.state_of(result)),
            now,
            result,
            tuple(steps),
            running.tokens,
            running.cost,
            running.said,
        )
        self.journal.write(settled, partial(self._settled, running))
        self._leave(running)
        if running.started_at:
            self.watchdog.ended()
        if result.errors:
            ending.note_own_errors(self, running, result.errors)

    def _settled(self, running: Running, problem: Problem) -> None:
        result = running.result
        assert result is not None
        if isinstance(problem, Unavailable):
            result = replace(result, warnings=(*result.warnings, f"Not recorded yet, will be tried again: {problem}"))
        elif isinstance(problem, Overruled):
            self.spawn(self._tell_what_stands(running, result))
            return
        self._tell(running, result)

    async def _tell_what_stands(self, running: Running, ours: Return) -> None:
        """Another process took the delegation over and recorded an outcome first: that one counts."""
        try:
            record = await off_loop(self.store.get, running.delegation.session_id)
        except Unavailable:
            record = None
        self._tell(running, record.result if record is not None and record.result is not None else ours)

    def _tell(self, running: Running, result: Return) -> None:
        running.result = result
        self._unregister(running)
        if running.parent is not None:
            running.parent.add_failure(result)
        running.rouse()
        running.tell(result)
        if self.bus.has_listeners:
            running.publish_steps(reply.state_of(result))
            self.bus.ended(running.delegation, result, self.clock.wall(), running.tokens, running.cost, running.step_times)
        # Each closes a circle (task, context, backend): opened here, so that what has ended is freed at once, not by the collector.
        running.task = None
        running.ctx = None  # type: ignore[assignment]

    def _leave(self, running: Running) -> None:
        """It needs neither slot nor place in the queue nor the clock any more."""
        if running.entry is not None:
            self.deadlines.forget(running.entry)
            running.entry = None
        if running.is_queued:
            running.is_queued = False
            self.slots.release()
            if running.place is not None:
                running.place[2] = None
        if running.has_slot:
            running.has_slot = False
            if running.waiting_for == 0:
                self.slots.give(running.delegation.agent)
        if self.slots.waiting:
            self._fill()

    def _fill(self) -> None:
        """Give free slots to those who wait."""
        while self.slots.waiting:
            running = self.slots.next(_is_waiting)
            if running is None:
                return
            self.slots.take(running.delegation.agent)
            self.slots.release()
            running.is_queued = False
            running.has_slot = True
            now = self.clock.wall()
            running.step_times[6] = now
            started = StartDelegation(running.delegation.session_id, now, tuple(running.step_times))
            self.journal.write(started, partial(self._started, running))

    def _started(self, running: Running, problem: Problem) -> None:
        if running.is_settled or running.concluding:
            return
        if running.stop is None and isinstance(problem, Unavailable):
            running.stop = reply.Stop(reason=StopReason.UNAVAILABLE, source="the journal", detail=str(problem))
        if running.stop is not None:
            ending.conclude_unstarted(self, running)
        else:
            self._launch(running)
            running.rouse()

    def look(self, running: Running, now: float) -> None:
        """What the clock asks for: hand in, idle, the end; or the end of patience with one that does not stop."""
        if running.stop is not None:
            ending.abandon(self, running)
            return
        deadline, idle = running.delegation.deadline, running.delegation.idle_seconds
        if now >= deadline.hard_at:
            ending.stop(self, running, reply.Stop(reason=StopReason.DEADLINE, source="its deadline"))
            return
        if idle is not None and running.started_at and now >= running.last_heard + idle:
            ending.stop(self, running, reply.Stop(reason=StopReason.IDLE, source="its idle limit"))
            return
        if now >= deadline.soft_at and not running.hand_in:
            ending.tell_hand_in(running)
        running.be_looked_at(max(running.next_look(), now))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """A task of the engine's own: owned here, ended with the engine."""
        task = self.loop.create_task(coroutine, context=self._neutral.copy())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def close(self) -> None:
        """Stop what still runs, write everything, end every task of ours."""
        self.is_closed = True
        live = list(self.running.values())
        for running in live:
            ending.stop(self, running, reply.Stop(reason=StopReason.CANCELLED, source="the closing of its orchestrator"))
        if live:
            await asyncio.wait([running.done for running in live], timeout=3.0)
        await self.journal.close()
        await asyncio.sleep(0)  # whoever was answered by that goes on before it is ended
        for running in list(self.running.values()):
            running.tell_trouble(Unavailable("The orchestrator closed before it was settled.", advice="`remit recover` settles it."))
        await ending.cleared(self)
        self.bus.close()
        self.streams.close()
        self.watchdog.close()
        self.deadlines.close()
        for task in list(self.tasks):
            task.cancel()
        await self._leave_store()
        if self._pipe is not None:
            self._pipe.close()

    async def _leave_store(self) -> None:
        """Outcomes that are not written yet are found and settled by the next process."""
        with contextlib.suppress(Unavailable):
            if not self.journal.owes and not self.running:
                await off_loop(self.store.dismiss, self.owner.owner_id)
                return
        with contextlib.suppress(OSError):
            closed_path(self.run_folder, self.owner.owner_id).touch()


def _is_waiting(running: Running) -> bool:
    return not running.is_settled and running.stop is None


def _wrapped(config: EngineConfig) -> Perform:
    """`perform` with the middleware around it."""
    found: Perform = perform
    for middleware in reversed(config.middleware):
        found = partial(_call, middleware, found)
    return found


def _call(middleware: Middleware, inner: Perform, work: Work) -> Awaitable[Return]:
    return middleware(work, inner)
