"""The embedded engine: runs delegations on one event loop and records them in a store that other processes may share.

`delegation_run` implements the life of a delegation; this module connects the parts."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget, Limits, TreeLimits
from remit.core.cache import CACHE_KEYS
from remit.core.context import Handle, RecordedHandle, SettledHandle
from remit.core.delegation import Lineage
from remit.core.errors import Misused, Unavailable
from remit.core.events import Event
from remit.core.ports import Store
from remit.core.record import CancelRequest, Owner, Record, RecordDelegation, common_fields
from remit.core.redaction import is_redacted
from remit.core.result import Return, StopReason, state_of
from remit.core.states import State
from remit.engines.embedded.budgets import PrincipalBudgets
from remit.engines.embedded.deadlines import Deadlines, Watchdog, let_go
from remit.engines.embedded.delegation_run import DelegationRun
from remit.engines.embedded.events import EventStreams, known
from remit.engines.embedded.handles import LocalHandle, Node
from remit.engines.embedded.journal import Clash, Journal, OverBudget
from remit.engines.embedded.maintenance import Maintenance
from remit.engines.embedded.peers import PeerProcesses
from remit.engines.embedded.recovery import Recovery
from remit.engines.embedded.replay import earlier_run, refused_for, refused_meanwhile
from remit.engines.embedded.scheduler import Scheduler
from remit.runtime import reply
from remit.runtime.accept import normalised_call, recorded_budget, redraw_session_id
from remit.runtime.deps import CURRENT, RuntimeDeps, Submission
from remit.runtime.engine import EngineConfig, Perform, Recovered, WorkerInfo
from remit.runtime.lifecycle import LifecycleBus
from remit.runtime.perform import perform
from remit.runtime.reply import PartialWork, Stop
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.runtime.result_cache import ResultCache

STOP_SECONDS = 1.5
"""How long drained agents have to end."""
LEAVE_SECONDS = 1.5
"""How long the store may take to answer a process that ends."""
CLOSE_SECONDS = 3.0
"""How long closing waits for workspaces that are being removed. Maintenance removes the rest."""
_NO_QUEUE = 'Set [engine] kind = "temporal" and project = "NAME" in remit.toml to spread work over several processes.'
DRAINED = "Handed over: its orchestrator is stopping. It continues when the project is served or opened again."


class EmbeddedEngine:
    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        self.neutral = contextvars.copy_context()
        self.neutral.run(CURRENT.set, None)
        self._runs: dict[str, DelegationRun] = {}
        self.declaring: set[DelegationRun] = set()
        """Delegations that declared artifacts."""
        self.left_behind: dict[str, str] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        settings = config.deps.settings
        self.journal = Journal(config.store, self.loop, self.neutral, in_loop=config.commit_in_loop, before=config.deps.policy.write_out)
        self.deadlines = Deadlines(self.loop, self.neutral)
        self.scheduler = Scheduler(
            settings.slots_total,
            queue_limit=settings.queue_limit,
            ageing_seconds=settings.ageing_seconds,
            start=DelegationRun.start_from_queue,
            on_free=self.free_slot_listener(),
        )
        self.watchdog = Watchdog(self.loop, self.deadlines, settings.block_limit_seconds, self.live)
        self.bus = LifecycleBus(config.listeners)
        self.budgets = PrincipalBudgets(self.journal, config.deps.clock, self.loop)
        self.streams = EventStreams(config.store, config.folder / "run", self.find, self.recover)
        self.perform: Perform = perform
        for middleware in reversed(config.middleware):
            self.perform = partial(lambda outer, inner, work: outer(work, inner), middleware, self.perform)
        self.recovery = Recovery(self)
        self._peers = PeerProcesses(self.journal, config.folder / "run", self.owner.owner_id, self._on_cancel_request)
        self._maintenance = Maintenance(self, self._peers.take_cancels)

    @property
    def deps(self) -> RuntimeDeps:
        return self.config.deps

    @property
    def owner(self) -> Owner:
        return self.config.owner

    @property
    def store(self) -> Store:
        return self.config.store

    def free_slot_listener(self) -> Callable[[], None] | None:
        """Called when a slot becomes free, for engines that take work from a queue."""
        return None

    # ---- delegations

    async def run(self, submission: Submission) -> Return:
        if submission.cache is not None:
            return await self._result_cache.run(submission)
        if self._needs_check(submission) and await self._is_refused(submission):
            return await self.refuse(submission)
        waiter: asyncio.Future[Return] = self.loop.create_future()
        run = self._submit(submission, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            run.stop(Stop(reason=StopReason.CANCELLED, source="its caller's task"))
            raise

    async def start(self, submission: Submission) -> Handle:
        if submission.cache is not None:
            return await self._result_cache.start(submission)
        if self._needs_check(submission) and await self._is_refused(submission):
            # Completes even if its caller leaves. Not a task that closing cancels, because that would cancel the caller.
            return SettledHandle(await asyncio.shield(self.loop.create_task(self.refuse(submission))))
        run = self._submit(submission, None)
        holder = await run.outcome.wait_recorded()
        if holder is None:
            return self.handle_of(run)
        try:
            record = await self._holder(run, holder)
        except Misused as fault:
            return SettledHandle(await self._refuse_key(run, fault))
        until = run.delegation.deadline.hard_at
        return RecordedHandle(self, holder, until) if record.result is None else SettledHandle(record.result)

    def _needs_check(self, submission: Submission) -> bool:
        return submission.refusal is not None or submission.delegation.resumes is not None

    async def _is_refused(self, submission: Submission) -> bool:
        """Whether a guard refused it, or it cannot be resumed: then the refusal is in the submission."""
        if submission.refusal is None and submission.delegation.resumes is not None:
            try:
                submission.earlier = await off_loop(earlier_run, self.store, submission)
            except Misused as fault:
                submission.refusal = refused_for(submission, fault)
            else:
                submission.earlier.note_facts(submission, self.deps)
                submission.refusal = refused_meanwhile(submission, self.deps, self.loop.time())
        return submission.refusal is not None

    def _submit(self, submission: Submission, waiter: "asyncio.Future[Return] | None") -> Node:
        if self.is_closed:
            raise Misused("This Remit is closed.", advice="Open it again: async with Remit.open(…).")
        run = self._new_run(submission)
        run.outcome.waiter = waiter
        run.submit()
        return run

    def _new_run(self, submission: Submission) -> Node:
        return DelegationRun(submission, self)

    async def continue_child(self, record: Record, caller: DelegationRun) -> Node:
        """Continue a child of an earlier attempt of `caller` that has not ended."""
        return await self.recovery.resume(record, caller)

    async def end_children_elsewhere(self, callers: Sequence[Record], detail: str) -> None:
        """Stop live children of these in other processes; their callers, which no longer run, are about to be settled."""

    async def keep_partial_work(self, run: DelegationRun, left: PartialWork) -> PartialWork:
        """Of a delegation that was stopped here, before its outcome is recorded."""
        return left

    async def find_partial_work(self, record: Record, left: PartialWork) -> PartialWork:
        """Of a delegation whose process was lost. `left`: what is here."""
        return left

    def handle_of(self, node: Any) -> LocalHandle:
        return LocalHandle(node)

    async def refuse(self, submission: Submission) -> Return:
        """Record a refusal, unless it was answered from memory and so is already recorded."""
        refusal = submission.refusal
        assert refusal is not None
        if refusal.metadata.session_id == submission.delegation.session_id:
            submission.step_times[12] = self.deps.clock.wall()
            refusal = await self._record_unrun(submission, refusal)
            self.deps.note_errors(submission.delegation, refusal.errors, "")
            if self.bus.has_listeners:
                self.bus.ended(submission.delegation, refusal, self.deps.clock.wall(), 0, 0.0, submission.step_times)
        if isinstance(submission.caller, DelegationRun):
            submission.caller.add_failure(refusal)
        return refusal

    async def record(self, submission: Submission, result: Return) -> Return:
        if self.is_closed:
            raise Misused("This Remit is closed.", advice="Open it again: async with Remit.open(…).")
        steps = submission.step_times
        steps[5] = steps[11] = steps[12] = self.deps.clock.wall()
        result = await self._record_unrun(submission, result)
        if self.bus.has_listeners and submission.refusal is None:
            self.bus.started(submission.delegation, submission.delegation.created_at)
            self.bus.ended(submission.delegation, result, self.deps.clock.wall(), 0, 0.0, steps)
        return result

    @cached_property
    def _result_cache(self) -> "ResultCache":
        from remit.runtime.result_cache import ResultCache

        return ResultCache(self, self.config)

    async def _record_unrun(self, submission: Submission, result: Return) -> Return:
        record = _settled_record(submission, result, self.owner.owner_id)
        limits = submission.budget.tree_limits(record.root_id)
        problem = await self.journal.problem_of(RecordDelegation(record, limits), at_once=not self._runs)  # nothing would join its group
        if isinstance(problem, Clash):
            redraw_session_id(submission, self.deps.policy)
            metadata = result.metadata._replace(session_id=submission.delegation.session_id)
            return await self._record_unrun(submission, replace(result, metadata=metadata))
        if isinstance(problem, OverBudget):  # a cached result counts as a delegation, too
            error = recorded_budget(submission.delegation, problem.lack, is_of_tree=problem.is_of_tree)
            submission.refusal = reply.refused_return(submission.delegation, error)
            for scope in submission.budget.scopes():
                scope.delegations -= 1
            return await self.refuse(submission)
        if isinstance(problem, Unavailable):
            return replace(result, warnings=(*result.warnings, f"Not recorded: {problem}"))
        return result

    # ---- idempotency keys

    async def _holder(self, asked: Node, session_id: str) -> Record:
        """The delegation that has the key of `asked`. Raises `Misused` if it is a different call."""
        record = await off_loop(self.store.get, session_id)
        delegation = asked.delegation
        if record is None:
            raise Unavailable("The delegation with this key no longer exists.", advice="Try again.")
        ours, theirs = (normalised_call(one.agent, one.parameters) for one in (delegation, record))
        if ours != theirs and not (delegation.key or "").startswith(CACHE_KEYS):
            raise Misused(
                f"This idempotency key (messageId in A2A) belongs to another call ({record.agent}, {session_id}).",
                advice="Use one key for one call.",
            )
        return record

    async def _refuse_key(self, asked: Node, fault: Misused) -> Return:
        asked.submission.refusal = refused_for(asked.submission, fault)
        return await self.refuse(asked.submission)

    async def answer_from_holder(self, asked: Node, session_id: str) -> None:
        """Answer the caller of `asked` with the return of the delegation that has its key."""
        outcome = asked.outcome
        try:
            record = await self._holder(asked, session_id)
            async with asyncio.timeout_at(asked.delegation.deadline.hard_at):
                outcome.set(record.result if record.result is not None else await self.streams.outcome(session_id))
        except TimeoutError:
            outcome.set(_still_running(asked, record))
        except Misused as fault:
            outcome.set(await self._refuse_key(asked, fault))
        except Unavailable as error:
            outcome.fail(error)
        finally:
            outcome.fail(Unavailable("The orchestrator was closed while it was waited for.", advice="Ask again with the same key."))

    # ---- cancelling

    async def cancel(self, session_id: str, reason: str, source: str) -> list[dict[str, Any]]:
        run = self._runs.get(session_id)
        if run is not None:
            return await run.cancel_tree(reason, source)
        record = await known(self.store, session_id)
        if record.state.is_settled:
            return [{"session_id": session_id, "agent": record.agent, "state": f"already {record.state}"}]
        return await self._cancel_elsewhere(record, reason, source)

    async def _cancel_elsewhere(self, record: Record, reason: str, source: str) -> list[dict[str, Any]]:
        """Cancel a live delegation that this process does not run."""
        if not await self._peers.request_cancel(record, reason, source, self.deps.clock.wall()):
            stop = Stop(reason=StopReason.CANCELLED, source=source, detail=reason)
            return await self.recovery.cancel_left_behind(record, stop)
        return await self._peers.wait_cancelled(record)

    def _on_cancel_request(self, request: CancelRequest) -> None:
        """Handle a request of another process."""
        run = self._runs.get(request.session_id)
        if self.recovery.has(request.session_id):
            self.recovery.note_cancel(request)
        elif run is not None:
            self.spawn(run.cancel_tree(request.reason, request.source))

    # ---- reading

    def live(self) -> Mapping[str, DelegationRun]:
        return MappingProxyType(self._runs)

    def find(self, session_id: str) -> DelegationRun | None:
        return self._runs.get(session_id)

    def abandoned(self) -> Mapping[str, str]:
        return self.left_behind

    def message(self, session_id: str, text: str) -> bool:
        run = self._runs.get(session_id)
        if run is None or run.is_settled:
            return False
        run.notice(text)
        return True

    async def wait_idle(self) -> None:
        while runs := list(self._runs.values()):
            await asyncio.wait([run.outcome.done for run in runs])
            await asyncio.sleep(0)

    def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.streams.follow(session_id, after)

    async def result(self, session_id: str, wait_seconds: float) -> Return | None:
        return await self.streams.result(session_id, wait_seconds)

    # ---- limits

    def limit_slots(self, agent: str, slots: int | None) -> None:
        self.scheduler.limit(agent, slots)

    def spending_limits(self, run: DelegationRun) -> TreeLimits | None:
        """What the store compares with its spending; None: only this process draws from its budget."""
        root_id, info = run.delegation.lineage.root_id, run.delegation.caller_info
        limits = run.budget.tree_limits(root_id)
        if info is None or not self.budgets.limits_spending(info.principal):
            return limits
        return (limits or TreeLimits(root_id, ()))._replace(principal=info.principal)

    async def removed_limits(self, submission: Submission) -> bool:
        """Limits of its principal that the store has from before are removed, if the request came without any. Then it is within them."""
        info = submission.delegation.caller_info
        if info is None or self.budgets.includes(info.principal, submission.budget):
            return False
        await self.journal.call(lambda store: store.set_limits(info.principal, Limits()))
        return True

    async def principal_budget(self, principal: str, limits: Limits | None = None) -> Budget:
        """Other processes of the project spend too: what they recorded is read each time, if there is a limit."""
        return await self.budgets.get(principal, limits, is_shared=limits is not None and limits != Limits())

    # ---- its own life

    async def open(self, *, recover: bool = True) -> Recovered:
        """Register and become reachable by other processes before anything runs."""
        self._peers.open()
        self.spawn(self._peers.answer_wakeups())
        await self.journal.call(lambda store: store.register_owner(self.owner))
        recovered = await self.recover() if recover else Recovered()
        self.spawn(self._maintenance.run())
        return recovered

    async def recover(self) -> Recovered:
        return await self.recovery.run()

    async def clean_up(self) -> None:
        await self._maintenance.clean_up()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self.loop.create_task(coroutine, context=self.neutral.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def work(self, agents: Collection[str] | None = None) -> None:
        raise Misused(
            "The embedded engine runs delegations in the process that creates them, so there is no queue to take work from.",
            advice=_NO_QUEUE,
        )

    async def workers(self) -> list[WorkerInfo]:
        raise Misused("The embedded engine has no workers.", advice=_NO_QUEUE)

    async def drain(self) -> list[str]:
        """When this returns, nothing of them runs except code that cannot be stopped; it ends with the process and is ignored."""
        await self.recovery.shut()
        self.scheduler.shut()
        roots: list[DelegationRun] = []
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                roots = [run for run in list(self._runs.values()) if run.parent is None and await self._can_continue_elsewhere(run)]
        nodes = [node for root in roots if root.can_be_drained for node in root.below() if node.can_be_drained]
        await self._leave(nodes, DRAINED)
        return [root.delegation.session_id for root in roots if root in nodes]

    async def _leave(self, nodes: Sequence[Node], notice: str) -> int:
        """Stop these without an outcome; their records stay live. Returns the number of agents that could not be stopped."""
        tasks = [task for node in nodes if (task := node.drain(notice)) is not None]
        _, stubborn = await asyncio.wait(tasks, timeout=STOP_SECONDS) if tasks else (set(), set())
        for task in stubborn:
            let_go(task)
        for node in nodes:
            node.hand_over(notice)
        return len(stubborn)

    async def _can_continue_elsewhere(self, run: DelegationRun) -> bool:
        """Whether it is resumable, has time left, and all its parameters are recorded."""
        if not run.can_be_drained or not run.agent.spec.resumable or run.remaining() <= 0:
            return False
        record = await off_loop(self.store.get, run.delegation.session_id)
        return record is not None and not is_redacted(record.parameters)

    async def close(self) -> None:
        self.is_closed = True
        await self.recovery.shut()  # nothing is resumed from here on
        live = list(self._runs.values())
        for run in live:
            run.stop(Stop(reason=StopReason.CANCELLED, source="the closing of its orchestrator"))
        if live:
            await asyncio.wait([run.outcome.done for run in live], timeout=CLOSE_SECONDS)
        await self.journal.close()
        await asyncio.sleep(0)  # callers answered by that continue before their tasks are cancelled
        for run in list(self._runs.values()):
            run.fail(Unavailable("The orchestrator closed before it was settled.", advice="`remit recover` settles it."))
        self.bus.close()
        self.streams.close()
        self.watchdog.close()
        self.deadlines.close()
        for task in list(self._tasks):
            task.cancel()
        self._peers.close(has_left=await self._leave_store())

    async def _leave_store(self) -> bool:
        """Unregister. The next process settles outcomes that are not written."""
        if self.journal.owes or self._runs:
            return False
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await off_loop(self.store.remove_owner, self.owner.owner_id)
            return True
        return False

    # ---- what its delegations share

    def register(self, run: DelegationRun) -> bool:
        """Whether other processes draw from its budget, too."""
        self._runs[run.delegation.lineage.session_id] = run
        if run.parent is not None:
            run.parent.children[run.delegation.lineage.session_id] = run
        return run.budget.enter()

    def unregister(self, run: DelegationRun, *, was_recorded: bool = True) -> None:
        session_id = run.delegation.lineage.session_id
        if self._runs.pop(session_id, None) is None:
            return  # already done
        if was_recorded:
            run.budget.leave()
        else:
            run.budget.undo_enter()
        self.declaring.discard(run)
        if run.parent is not None:
            run.parent.children.pop(session_id, None)

    def redraw(self, run: DelegationRun) -> None:
        """Give it another session id."""
        taken = run.delegation.session_id
        run.redrawn()
        drawn = run.delegation.session_id
        self._runs[drawn] = self._runs.pop(taken)
        if run.parent is not None:
            run.parent.children.pop(taken, None)
            run.parent.children[run.delegation.lineage.session_id] = run


def _still_running(asked: Node, holder: Record) -> Return:
    """Answer a caller whose deadline is earlier than that of the delegation with its key, which continues."""
    lineage = Lineage(holder.session_id, holder.root_id, holder.parent_id, holder.depth, holder.path)
    seconds = round(asked.delegation.deadline.timeout_seconds, 2)
    detail = f"{holder.agent} was delegated with the same key before and still runs after the {seconds:g} s it was waited for."
    stop = Stop(reason=StopReason.DEADLINE, source="its deadline", detail=detail)
    return reply.stopped_return(asked.delegation._replace(lineage=lineage), stop, reply.NOTHING_LEFT, duration_seconds=seconds)


def _settled_record(submission: Submission, result: Return, owner_id: str) -> Record:
    """The record of a delegation whose agent did not run. Without its idempotency key: a refusal does not consume it."""
    delegation, settled_at = submission.delegation, submission.step_times[12]
    state = state_of(result)
    return Record(
        **delegation.lineage._asdict(),
        **common_fields(delegation),
        state=state,
        timeout_seconds=delegation.deadline.timeout_seconds,
        deadline_at=delegation.deadline_wall,
        owner=owner_id,
        started_at=None if state is State.REFUSED else settled_at,
        settled_at=settled_at,
        step_times=tuple(submission.step_times),
        result=result,
    )
