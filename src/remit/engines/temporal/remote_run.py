"""A delegation executed by a worker of its task queue, as seen by the process that created it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from remit.core.agents import Isolation
from remit.core.delegation import Delegation
from remit.core.errors import Misused, Unavailable
from remit.core.events import Event, EventKind
from remit.core.record import BeginDelegation, Record
from remit.core.result import Return, StopReason, state_of
from remit.core.states import State
from remit.engines.embedded.delegation_run import DelegationRun, Outcome
from remit.engines.embedded.handles import LocalHandle
from remit.engines.embedded.journal import CLOSED, Clash, KeyConflict, OverBudget, Problem
from remit.runtime.accept import recorded_budget, redraw_session_id
from remit.runtime.deps import Submission
from remit.runtime.reply import PartialWork, Stop, refused_return, stopped_return
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.temporal.engine import TemporalEngine

CALLER_SECONDS = 0.7
"""Time after its deadline at which its caller records the timeout, if its worker has not."""
AGAIN_SECONDS = 0.2
ANSWER_SECONDS = 0.25
"""How long the store may take to answer then. Later, its caller gets a return that is not recorded."""
SETTLE_SECONDS = 10.0
_AT_DEADLINE = Stop(reason=StopReason.DEADLINE, source="its deadline")


class RemoteRun:
    """`submit` records it and starts its workflow; its outcome comes from the store, written by any process.

    Thousands may be in flight: until its outcome is recorded, a delegation without a caller costs no task."""

    def __init__(self, submission: Submission, engine: "TemporalEngine") -> None:
        self.submission = submission
        self.outcome = Outcome(engine.loop)
        self.parent = submission.caller if isinstance(submission.caller, DelegationRun) else None
        self._engine = engine
        self._stopped_by: Stop | None = None
        self._is_entered = False
        self._is_recorded = False
        self._is_left = False
        """Handed over: the next process of its caller waits for it."""
        self._timer: asyncio.TimerHandle | None = None
        self._end_watch: Callable[[], None] | None = None

    @property
    def delegation(self) -> Delegation:
        return self.submission.delegation

    @property
    def engine(self) -> "TemporalEngine":
        return self._engine

    # ---- its life

    def submit(self) -> None:
        """Draws its budget at once, so that nothing else is accepted in between."""
        self.submission.budget.enter()
        self._register()
        self._record()

    def adopt(self) -> None:
        """It was submitted by an earlier attempt of its caller: wait for it from now on."""
        for scope in self.submission.budget.scopes():
            scope.alive += 1
        self._is_recorded = True
        self._register()
        self._engine.spawn(self._wait())

    def _register(self) -> None:
        self._is_entered = True
        self._engine.remote[self.delegation.session_id] = self
        if self.parent is not None:
            self.submission.budget.share()
            self.parent.children[self.delegation.lineage.session_id] = self

    def _unregister(self, *, was_recorded: bool = True) -> None:
        if self._is_entered:
            self._is_entered = False
            if was_recorded:
                self.submission.budget.leave()
            else:
                self.submission.budget.undo_enter()
        self._engine.remote.pop(self.delegation.session_id, None)
        if self.parent is not None:
            self.parent.children.pop(self.delegation.session_id, None)

    def _record(self) -> None:
        steps = self.submission.step_times
        steps[5] = self._engine.deps.clock.wall()
        limits = self.submission.budget.tree_limits(self.delegation.lineage.root_id)
        queue = self._engine.temporal.queue_of(self.delegation.agent)
        begin = BeginDelegation(self.delegation, State.QUEUED, "", None, steps, queue, limits)
        self._timer = self._engine.loop.call_at(self._gives_up_at, self._on_unrecorded)
        self._engine.journal.write(begin, self._on_recorded)

    def _on_recorded(self, problem: Problem) -> None:
        self._unwatch()
        if isinstance(problem, Clash):
            self._unregister(was_recorded=False)
            redraw_session_id(self.submission, self._engine.deps.policy)
            self.submit()
        elif problem is None:
            self._is_recorded = True
            if self._stopped_by is not None:
                self._engine.spawn(self._cancel(self._stopped_by))
            self._engine.start_soon(self)
            if self.parent is None:
                self._watch()
            else:
                self._engine.spawn(self._wait())
            self.outcome.set_recorded()
        elif isinstance(problem, OverBudget):
            self._engine.spawn(self._refuse(problem))
        else:
            self._unregister(was_recorded=False)
            if not isinstance(problem, KeyConflict):
                assert isinstance(problem, Unavailable)
                self.outcome.fail(problem)
            elif not self.outcome.yield_key(problem.session_id):
                self._engine.spawn(self._engine.answer_from_holder(self, problem.session_id))

    async def _refuse(self, over: OverBudget) -> None:
        """Its tree or its principal has no budget left."""
        with contextlib.suppress(Unavailable):
            if not over.is_of_tree and await self._engine.removed_limits(self.submission):
                self._record()
                return
        self._unregister(was_recorded=False)
        error = recorded_budget(self.delegation, over.lack, is_of_tree=over.is_of_tree)
        self.submission.refusal = refused_return(self.delegation, error)
        try:
            self.outcome.set(await self._engine.refuse(self.submission))
        finally:
            self.outcome.fail(CLOSED)

    def _watch(self) -> None:
        """Wait from when its outcome is recorded, its deadline has passed, or nothing is known of it."""
        engine = self._engine
        self._timer = engine.loop.call_at(self._gives_up_at, self._on_news)
        self._end_watch = engine.streams.watcher.call_when_settled(self.delegation.session_id, self._on_news)

    def _on_news(self) -> None:
        self._unwatch()
        self._engine.spawn(self._wait())

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None

    async def _wait(self) -> None:
        """Wait until the outcome is recorded; this caller gives up last."""
        engine, session_id = self._engine, self.delegation.session_id
        following = engine.spawn(self._relay_signs()) if self.parent is not None else None
        try:
            result: Return | None = None
            while result is None:
                try:
                    async with asyncio.timeout_at(self._gives_up_at):
                        result = await engine.streams.outcome(session_id)
                except TimeoutError:
                    result = await self._settle_late()
                except (Unavailable, Misused):  # the store is unreachable, or this process handed it over
                    if engine.is_closed or self._is_left:
                        raise
                    await asyncio.sleep(AGAIN_SECONDS)
            await self._finish(result)
        except (Unavailable, Misused) as error:
            self._unregister()
            self.outcome.fail(error)
        finally:
            if following is not None:
                following.cancel()

    async def _settle_late(self) -> Return | None:
        """Neither its worker nor anyone else has recorded an outcome. None: try again."""
        engine, session_id = self._engine, self.delegation.session_id
        record: Record | None = None
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(ANSWER_SECONDS):
                record = await off_loop(engine.store.get, session_id)
        if record is None:
            return self._unrecorded(f"The record could not be reached by then: `remit show {session_id}` says how it ended.")
        with contextlib.suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(SETTLE_SECONDS):
                if (result := await engine.settle(session_id, _AT_DEADLINE)) is not None:
                    return result
                await asyncio.sleep(AGAIN_SECONDS)
        return None

    def _unrecorded(self, warning: str) -> Return:
        left = PartialWork(warnings=(warning,))
        return stopped_return(self.delegation, _AT_DEADLINE, left, duration_seconds=self.delegation.deadline.timeout_seconds)

    def _on_unrecorded(self) -> None:
        """If the store takes it later, it is settled then."""
        self._answer(self._unrecorded("It could not be recorded in time. It did not run."))

    async def _finish(self, result: Return) -> None:
        if self._is_left or self.outcome.is_known:
            return
        if self.parent is not None:
            record = await off_loop(self._engine.store.get, self.delegation.session_id)
            if record is not None and (record.tokens or record.cost):
                await self._engine.note_spending(self.submission)
        self._answer(await self._engine.fetch_files(self.delegation, result))

    def _answer(self, result: Return) -> None:
        self._unregister()
        if self.parent is not None:
            self.parent.add_failure(result)
        self.outcome.set(result)

    async def _relay_signs(self) -> None:
        """Output of a child is a sign of life of its callers."""
        assert self.parent is not None
        async for _ in self._engine.streams.follow(self.delegation.session_id):
            self.parent.heard()

    # ---- interface for its caller and the engine

    @property
    def _gives_up_at(self) -> float:
        return self.delegation.deadline.hard_at + CALLER_SECONDS

    @property
    def needs_workflow(self) -> bool:
        return self._is_left or not self.outcome.is_known

    @property
    def is_queued(self) -> bool:
        """As far as it is known here."""
        head = self._engine.streams.watcher.head(self.delegation.session_id)
        return not self.outcome.is_known and (head is None or head.state is State.QUEUED)

    def below(self) -> "Iterator[RemoteRun]":
        """Its own children are known to its worker."""
        yield self

    def stop(self, why: Stop) -> None:
        if self._stopped_by is None and not self.outcome.is_known and not self._is_left:
            self._stopped_by = why
            if self._is_recorded:
                self._engine.spawn(self._cancel(why))

    async def _cancel(self, why: Stop) -> None:
        while not self.outcome.is_known:
            with contextlib.suppress(Unavailable):
                await self._engine.cancel(self.delegation.session_id, why.detail, why.source)
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def cancel_state(self) -> str:
        result = self.outcome.result
        if result is not None and result.stop_reason is not StopReason.CANCELLED:
            return f"already {state_of(result)}"
        assert self.submission.agent is not None
        return "killed" if self.submission.agent.spec.isolation is Isolation.PROCESS else "stopped"

    @property
    def can_be_drained(self) -> bool:
        return not self.outcome.is_known

    def drain(self, notice: str) -> None:
        """It continues: the next attempt of its caller finds it."""
        self._is_left = True

    def hand_over(self, notice: str) -> None:
        self._unwatch()
        self._unregister()
        self.outcome.fail(Unavailable(notice, advice=f"Ask for {self.delegation.session_id} again in a moment."))


class RemoteHandle(LocalHandle):
    """The handle of a delegation executed by a worker."""

    __slots__ = ()
    _run: RemoteRun  # type: ignore[assignment]

    @property
    def is_queued(self) -> bool:
        return self._run.is_queued

    async def stream(self) -> AsyncIterator[Event]:
        async for event in self._run.engine.follow(self.session_id):
            if event.kind is not EventKind.STEP:
                yield event

    async def cancel(self, reason: str = "") -> list[dict[str, str]]:  # type: ignore[override]
        return await self._run.engine.cancel(self.session_id, reason, "its caller")
