"""A second engine, written against the port alone: all state is in the memory of one process and lost with it.

It shows that the port suffices. It is simple where the embedded engine is fast: one task per delegation enforces its deadline, slots are
found by scanning the queue, and the store is called for each event.
"""

import asyncio
import bisect
import contextlib
import contextvars
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

from remit import (
    AppendEvent,
    BeginDelegation,
    Budget,
    Delegation,
    EngineConfig,
    ErrorInfo,
    Event,
    EventKind,
    Handle,
    Isolation,
    Limits,
    Misused,
    Owner,
    Record,
    Request,
    Return,
    SaveCheckpoint,
    SettleDelegation,
    StartDelegation,
    State,
    Stopped,
    StopReason,
)
from remit import engine_kit as kit

CHILDREN_SECONDS = 0.9
LOOK_SECONDS = 0.005


class MemoryRun(kit.LocalRun):
    def __init__(self, submission: kit.Submission, engine: "MemoryEngine") -> None:
        super().__init__(submission, engine.config)
        self._engine = engine
        self.parent = submission.caller if isinstance(submission.caller, MemoryRun) else None
        self._output = kit.Output(engine.config.deps.settings.chunk_limit_bytes)
        self.done: asyncio.Future[Return] = engine.loop.create_future()
        self.has_slot = asyncio.Event()
        self.soft = asyncio.Event()
        self.children: list[MemoryRun] = []
        self.stopped_by: kit.Stop | None = None
        self.task: asyncio.Task[None] | None = None
        self.lent = 0
        self.last_heard = 0.0
        self.rank = engine.loop.time() - submission.delegation.priority * engine.config.deps.settings.ageing_seconds
        self.spent = (0, 0.0)

    # ---- public view

    @property
    def engine(self) -> "MemoryEngine":
        return self._engine

    @property
    def output(self) -> kit.Output:
        return self._output

    @property
    def is_settled(self) -> bool:
        return self.result is not None

    @property
    def closing(self) -> str | None:
        for node in self.above():
            if node.stopped_by is not None or node.is_settled:
                return f"{node.delegation.agent} is being stopped or has ended"
        return None

    def below(self) -> "Iterator[MemoryRun]":
        yield self
        for child in [child for child in self.children if not child.is_settled]:
            yield from child.below()

    # ---- lifecycle: one task from the queue to the outcome

    async def live(self) -> None:
        deadline = self.delegation.deadline
        timers = [self.engine.loop.call_at(at, do) for at, do in ((deadline.soft_at, self._at_soft), (deadline.hard_at, self._at_hard))]
        watching = self.engine.spawn(self._watch_silence()) if self.delegation.idle_seconds is not None else None
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self.has_slot.wait()
            if self.stopped_by is None:
                await self._run()
            else:
                self._settle(kit.stopped_return(self.delegation, self.stopped_by, kit.NOTHING_LEFT, duration_seconds=0.0))
        finally:
            for timer in (*timers, *([] if watching is None else [watching])):
                timer.cancel()

    async def _run(self) -> None:
        now = self.deps.clock.wall()
        self.submission.step_times[6] = now
        self.store.apply([StartDelegation(self.delegation.session_id, now, tuple(self.submission.step_times))])
        self.started_at = self.last_heard = self.engine.loop.time()
        self.started_wall = now
        self.engine.bus.started(self.delegation, now)
        context = contextvars.copy_context()
        context.run(kit.CURRENT.set, self)
        agent = self.engine.loop.create_task(self._perform(), context=context)
        late: Return | None = None
        try:
            late = await asyncio.shield(agent)
        except asyncio.CancelledError:
            late = await self._stopped(agent)
        if self.stopped_by is None and late is not None:
            await self.end_children()
            self._settle(late)
            return
        self.stopped_by = self.stopped_by or kit.Stop(reason=StopReason.CANCELLED, source="its own code")
        self.stamp(7)
        try:
            await self.end_children()
            foreign = frozenset(path for other in self.engine.runs.values() if other is not self for path in other.artifacts or ())
            left = await kit.collect_partial_work(self, self.output, late, foreign=foreign)
        except Exception as error:  # noqa: BLE001 - the promise to answer outweighs the harvest
            left = kit.PartialWork(warnings=(repr(error),))
        if self.stopped_by.reason is StopReason.CANCELLED:
            self.say(EventKind.CANCEL, {"state": self._cancel_state(), "source": self.stopped_by.source})
        result = kit.stopped_return(self.delegation, self.stopped_by, left, duration_seconds=self.elapsed())
        self._settle(kit.with_agent_session(result, self.saved))

    async def _perform(self) -> Return | None:
        try:
            return await self.engine.perform(self)
        except kit.OutOfTime as early:
            reason = StopReason.BUDGET if early.code == "BUDGET_EXCEEDED" else StopReason.DEADLINE
            self.stopped_by = self.stopped_by or kit.Stop(reason=reason, source="the soft deadline", detail=early.message)
        except asyncio.CancelledError:
            return self.held
        except BaseException as error:  # noqa: BLE001 - an agent that leaves the program ends only itself
            detail = f"{self.delegation.agent} ended the program: {kit.describe_exception(error)}."
            self.stopped_by = self.stopped_by or kit.Stop(reason=StopReason.CRASHED, source="its own code", detail=detail)
        return None

    async def _stopped(self, agent: "asyncio.Task[Return | None]") -> Return | None:
        """Cancel the agent, wait for its grace period, then abandon it."""
        agent.cancel()
        self.soft.set()
        await asyncio.wait([agent], timeout=0.5 if self.agent.spec.isolation is Isolation.PROCESS else 0.35)
        if agent.done():
            return agent.result()
        gone = self.abandon(f"The {self.agent.spec.isolation} agent {self.delegation.agent}")
        agent.add_done_callback(lambda _: gone())
        return None

    def stop(self, why: kit.Stop) -> None:
        if self.stopped_by is not None or self.is_settled:
            return
        self.stopped_by = why
        if why.reason is StopReason.CANCELLED:
            self.say(EventKind.CANCEL, {"state": "requested", "source": why.source, "reason": why.detail})
        for child in self.children:
            is_own = why.reason is StopReason.CANCELLED or child.remaining() <= 0.001
            source = f"the end of its caller {self.delegation.agent}"
            child.stop(why if is_own else kit.Stop(reason=StopReason.CANCELLED, source=source, detail=why.source))
        assert self.task is not None
        self.task.cancel()

    def _settle(self, result: Return) -> None:
        self.result = result
        steps = self.submission.step_times
        steps[11] = steps[12] = now = self.deps.clock.wall()
        state, (tokens, cost) = kit.state_of(result), self.spent
        count = self.output.count
        self.store.apply([SettleDelegation(self.delegation.session_id, state, now, result, tuple(steps), tokens, cost, count)])
        self.engine.left(self)
        if self.parent is not None:
            self.parent.add_failure(result)
        if own := self.own_errors(result.errors):
            self.deps.note_errors(self.delegation, own, result.traceback)
        self.done.set_result(result)
        self.engine.bus.ended(self.delegation, result, now, tokens, cost, steps)

    def _cancel_state(self) -> str:
        if self.delegation.session_id in self.engine.left_behind:
            return "abandoned"
        return "killed" if self.agent.spec.isolation is Isolation.PROCESS else "stopped"

    async def cancel_tree(self, reason: str, source: str) -> list[dict[str, Any]]:
        nodes = list(self.below())
        self.stop(kit.Stop(reason=StopReason.CANCELLED, source=source, detail=reason))
        await asyncio.wait([node.done for node in nodes], timeout=3 * CHILDREN_SECONDS)
        return [{"session_id": n.delegation.session_id, "agent": n.delegation.agent, "state": n._cancel_state()} for n in nodes]

    # ---- deadlines

    def _at_soft(self) -> None:
        if self.started_at:
            self.notice(f"Soft deadline: {self.remaining():.1f} s left.")
        self.soft.set()

    def _at_hard(self) -> None:
        self.stop(kit.Stop(reason=StopReason.DEADLINE, source="its deadline"))

    async def _watch_silence(self) -> None:
        idle = self.delegation.idle_seconds or 0.0
        while not self.is_settled:
            quiet = self.engine.loop.time() - self.last_heard if self.started_at else 0.0
            if quiet >= idle:
                self.stop(kit.Stop(reason=StopReason.IDLE, source="its idle limit"))
                return
            await asyncio.sleep(idle - quiet)

    @property
    def hand_in(self) -> bool:
        return self.engine.loop.time() >= self.delegation.deadline.soft_at

    async def wait_hand_in(self) -> None:
        await self.soft.wait()

    def heard(self) -> None:
        for node in self.above():
            node.last_heard = self.engine.loop.time()

    def must_be_alive(self) -> None:
        if self.is_settled or self.remaining() < -0.6:
            raise Stopped(f"The delegation {self.delegation.session_id} has ended.", advice="Its agent must stop.")

    # ---- agent and context

    def say(self, kind: EventKind, body: dict[str, Any]) -> None:
        if kind is not EventKind.NOTICE:
            self.heard()
        event = self.output.append(self.delegation.session_id, kind, body, self.deps.clock.wall())
        self.store.apply([AppendEvent(event)])

    def spend(self, tokens: int, cost: float) -> tuple[int, float, str | None]:
        passed = self.budget.charge(tokens=tokens, cost=cost)
        self.spent = (self.spent[0] + tokens, self.spent[1] + cost)
        return *self.spent, passed

    async def save_checkpoint(self, value: Any) -> None:
        self.store.apply([SaveCheckpoint(self.delegation.session_id, self.deps.clock.wall(), value)])

    def abandon(self, what: str) -> Callable[[], None]:
        self.engine.left_behind[self.delegation.session_id] = what
        self.notice(f"{what} could not be stopped and was abandoned.")
        return lambda: self.engine.left_behind.pop(self.delegation.session_id, None) and None

    # ---- children

    async def end_children(self) -> None:
        children = [child for child in self.children if not child.is_settled]
        for child in children:
            child.stop(kit.Stop(reason=StopReason.CANCELLED, source=f"the end of its caller {self.delegation.agent}"))
        if children:
            await asyncio.wait([child.done for child in children], timeout=CHILDREN_SECONDS)

    async def delegate(self, request: Request, deps: kit.RuntimeDeps | None = None) -> Return:
        self.must_be_alive()
        return await self.lending(self.engine.run(kit.accept(request, self, deps or self.deps)))

    async def start(self, request: Request, deps: kit.RuntimeDeps | None = None) -> Handle:
        self.must_be_alive()
        handle = await self.engine.start(kit.accept(request, self, deps or self.deps))
        return MemoryHandle(handle.run, self) if isinstance(handle, MemoryHandle) else handle

    async def lending(self, waiting: Coroutine[Any, Any, Return]) -> Return:
        """Release the slot while the delegation waits for a child."""
        self.lent += 1
        if self.lent == 1:
            self.engine.release(self)
        try:
            return await waiting
        finally:
            self.lent -= 1
            if not self.lent and not self.is_settled:
                self.engine.busy[self.delegation.agent] += 1


class MemoryHandle(kit.LiveHandle):
    def __init__(self, run: MemoryRun, caller: MemoryRun | None = None) -> None:
        self.run, self.caller = run, caller

    @property
    def session_id(self) -> str:
        return self.run.delegation.session_id

    @property
    def delegation(self) -> Delegation:
        return self.run.delegation

    @property
    def is_queued(self) -> bool:
        return not self.run.has_slot.is_set()

    async def result(self) -> Return:
        return await self._done() if self.caller is None else await self.caller.lending(self._done())

    async def _done(self) -> Return:
        return await asyncio.shield(self.run.done)

    async def stream(self) -> AsyncIterator[Event]:
        position, run = 0, self.run
        while True:
            while position < len(run.output.events):
                yield run.output.events[position]
                position += 1
            if run.done.done():
                yield kit.final_event(run.done.result(), kit.LAST + run.output.count, run.deps.clock.wall())
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return list(await self.run.cancel_tree(reason, "its caller"))


class MemoryEngine:
    def __init__(self, config: EngineConfig) -> None:
        self.config, self.loop = config, asyncio.get_running_loop()
        self.runs: dict[str, MemoryRun] = {}
        self.left_behind: dict[str, str] = {}
        self.limits: dict[str, int] = {}
        self.busy: Counter[str] = Counter()
        self.waiting: list[MemoryRun] = []
        self.budgets: dict[str, Budget] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.bus = kit.LifecycleBus(config.listeners)
        self.perform: kit.Perform = kit.perform
        for middleware in reversed(config.middleware):
            self.perform = partial(lambda outer, inner, work: outer(work, inner), middleware, self.perform)
        self.is_closed = False
        self.cache = kit.ResultCache(self, config)

    @property
    def owner(self) -> Owner:
        return self.config.owner

    # ---- delegations

    async def run(self, submission: kit.Submission) -> Return:
        if submission.cache is not None:
            return await self.cache.run(submission)
        found = self._refused(submission) if submission.refusal is not None else self._submit(submission)
        if isinstance(found, Return):
            return found
        run, is_new = found
        try:
            async with asyncio.timeout_at(None if is_new else submission.delegation.deadline.hard_at):
                return await asyncio.shield(run.done)
        except asyncio.CancelledError:
            if is_new:
                run.stop(kit.Stop(reason=StopReason.CANCELLED, source="its caller's task"))
            raise

    async def start(self, submission: kit.Submission) -> Handle:
        if submission.cache is not None:
            return await self.cache.start(submission)
        if submission.refusal is not None:
            return kit.SettledHandle(await self.refuse(submission))
        found = self._submit(submission)
        if isinstance(found, Return):
            return kit.SettledHandle(found)
        await asyncio.sleep(0)
        return MemoryHandle(found[0])

    def _submit(self, submission: kit.Submission) -> "Return | tuple[MemoryRun, bool]":
        """Return the run and whether it is new, or the return that answers it at once."""
        if self.is_closed:
            raise Misused("This Remit is closed.")
        delegation, store = submission.delegation, self.config.store
        if delegation.resumes is not None:
            raise Misused("An engine in memory resumes nothing.")
        holder = None if delegation.key is None else store.by_key(delegation.key)
        if holder is not None:
            ours, theirs = (kit.normalised_call(one.agent, one.parameters) for one in (delegation, holder))
            if ours != theirs and not (delegation.key or "").startswith(kit.CACHE_KEYS):
                return self._refused_for(submission, "This idempotency key belongs to another call.", "INVALID_PARAMETERS", "Use one key.")
            return holder.result if holder.result is not None else (self.runs[holder.session_id], False)
        run = MemoryRun(submission, self)
        if not self._has_room(delegation.agent) and len(self.waiting) >= self.config.deps.settings.queue_limit:
            return self._refused_for(submission, "The queue is full.", "QUEUE_FULL", "Raise queue_limit.")
        submission.step_times[5] = self.config.deps.clock.wall()
        while store.apply([BeginDelegation(run.delegation, State.QUEUED, self.owner.owner_id, None, submission.step_times)]).clashes:
            run.redrawn()
        submission.budget.enter()
        self.runs[run.delegation.session_id] = run
        if run.parent is not None:
            run.parent.children.append(run)
        run.task = self.loop.create_task(run.live(), context=contextvars.Context())
        bisect.insort(self.waiting, run, key=lambda one: one.rank)
        self.fill()
        return run, True

    async def refuse(self, submission: kit.Submission) -> Return:
        return self._refused(submission)

    def _refused_for(self, submission: kit.Submission, message: str, code: str, advice: str) -> Return:
        error = ErrorInfo(type=code.lower(), message=message, code=code, recoverable=True, recommendation=advice)
        submission.refusal = kit.refused_return(submission.delegation, error)
        return self._refused(submission)

    def _refused(self, submission: kit.Submission) -> Return:
        refusal, delegation = submission.refusal, submission.delegation
        assert refusal is not None
        if refusal.metadata.session_id == delegation.session_id:
            self.config.deps.note_errors(delegation, refusal.errors, "")
            self._record(submission, refusal, None)
        if isinstance(submission.caller, MemoryRun):
            submission.caller.add_failure(refusal)
        return refusal

    async def record(self, submission: kit.Submission, result: Return) -> Return:
        self._record(submission, result, self.config.deps.clock.wall())
        return result

    def _record(self, submission: kit.Submission, result: Return, started_at: float | None) -> None:
        delegation, now = submission.delegation, self.config.deps.clock.wall()
        submission.step_times[12] = now
        begin = BeginDelegation(delegation._replace(key=None), State.QUEUED, self.owner.owner_id, started_at, submission.step_times)
        steps = tuple(submission.step_times)
        self.config.store.apply([begin, SettleDelegation(delegation.session_id, kit.state_of(result), now, result, steps, 0, 0.0, 0)])
        self.bus.ended(delegation, result, now, 0, 0.0, steps)

    async def cancel(self, session_id: str, reason: str, source: str) -> list[dict[str, Any]]:
        run = self.runs.get(session_id)
        if run is not None:
            return await run.cancel_tree(reason, source)
        record = self._known(session_id)
        return [{"session_id": session_id, "agent": record.agent, "state": f"already {record.state}"}]

    def _known(self, session_id: str) -> Record:
        record = self.config.store.get(session_id)
        if record is None:
            raise Misused(f"There is no delegation {session_id}.", code="INVALID_TARGET")
        return record

    def left(self, run: MemoryRun) -> None:
        del self.runs[run.delegation.session_id]
        run.budget.leave()
        if run.has_slot.is_set() and not run.lent:
            self.busy[run.delegation.agent] -= 1
        elif run in self.waiting:
            self.waiting.remove(run)
        self.fill()

    # ---- slots

    def _has_room(self, agent: str) -> bool:
        limit = self.limits.get(agent)
        return self.busy.total() < self.config.deps.settings.slots_total and (limit is None or self.busy[agent] < limit)

    def fill(self) -> None:
        for run in list(self.waiting) if self.waiting and self.busy.total() < self.config.deps.settings.slots_total else ():
            agent = run.delegation.agent
            if run.is_settled or run.stopped_by is not None:
                self.waiting.remove(run)
            elif self._has_room(agent):
                self.waiting.remove(run)
                self.busy[agent] += 1
                run.has_slot.set()
            elif self.busy.total() >= self.config.deps.settings.slots_total:
                return

    def release(self, run: MemoryRun) -> None:
        self.busy[run.delegation.agent] -= 1
        self.fill()

    def limit_slots(self, agent: str, slots: int | None) -> None:
        self.limits.pop(agent, None)
        if slots is not None:
            self.limits[agent] = slots
        self.fill()

    async def principal_budget(self, principal: str, limits: Limits | None = None) -> Budget:
        budget = self.budgets.setdefault(principal, Budget(Limits(), opened_at=self.loop.time()))
        if limits is not None:
            budget.limits = limits
        return budget

    # ---- queries

    def live(self) -> Mapping[str, MemoryRun]:
        return self.runs

    def find(self, session_id: str) -> MemoryRun | None:
        return self.runs.get(session_id)

    def abandoned(self) -> Mapping[str, str]:
        return self.left_behind

    def message(self, session_id: str, text: str) -> bool:
        run = self.runs.get(session_id)
        if run is not None:
            run.notice(text)
        return run is not None

    async def wait_idle(self) -> None:
        while self.runs:
            await asyncio.wait([run.done for run in self.runs.values()])

    async def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        run = self.runs.get(session_id)
        if run is not None:
            await asyncio.wait([run.done])
        record = self._known(session_id)
        for event in self.config.store.events(session_id, after):
            yield event
        assert record.result is not None
        yield kit.final_event(record.result, kit.LAST + record.chunk_count, record.settled_at or 0.0)

    async def result(self, session_id: str, wait_seconds: float) -> Return | None:
        run = self.runs.get(session_id)
        if run is None:
            return self._known(session_id).result
        await asyncio.wait([run.done], timeout=wait_seconds)
        return run.done.result() if run.done.done() else None

    # ---- the engine's own lifecycle

    async def open(self, *, recover: bool = True) -> kit.Recovered:
        return kit.Recovered()

    async def recover(self) -> kit.Recovered:
        return kit.Recovered()

    async def clean_up(self) -> None:
        pass

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self.loop.create_task(coroutine, context=contextvars.Context())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def drain(self) -> list[str]:
        return []

    async def close(self) -> None:
        self.is_closed = True
        runs = list(self.runs.values())
        for run in runs:
            run.stop(kit.Stop(reason=StopReason.CANCELLED, source="the closing of its orchestrator"))
        if runs:
            await asyncio.wait([run.done for run in runs], timeout=3.0)
        self.bus.close()
        for task in list(self.tasks):
            task.cancel()
