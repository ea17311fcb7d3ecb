"""Recovery: resumes delegations of dead processes if their agent is resumable, else settles them with their partial work.

Nothing runs twice: an owner is dead only if its process is gone and its pipe has no reader."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remit.core.errors import Misused, Stopped
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.ports import Store
from remit.core.record import CancelRequest, Record, SettleDelegation
from remit.core.redaction import is_redacted
from remit.core.result import Artifact, StopReason, state_of
from remit.engines.embedded.budgets import lineage_of, recovered_budget, spent_of
from remit.engines.embedded.delegation_run import DelegationRun
from remit.engines.embedded.journal import OutcomeConflict
from remit.engines.embedded.replay import EarlierRun, Replay, delegation_of, earlier_run
from remit.runtime import reply
from remit.runtime.authorize import pending_after_restart
from remit.runtime.deps import Submission, facts_of_records
from remit.runtime.engine import Recovered
from remit.runtime.reply import PartialWork, Stop
from remit.system.liveness import below, closed_path, is_dead, left_to_queues, remove_dead_pipes
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine

log = logging.getLogger("remit.engine")


class Recovery:
    def __init__(self, engine: "EmbeddedEngine") -> None:
        self._engine = engine
        self._deps = engine.deps
        self._store = engine.store
        self._owner_id = engine.owner.owner_id
        self._run_folder = engine.config.folder / "run"
        self._taken: dict[str, Stop | None] = {}
        """Taken over and not running yet; with a cancellation that arrived meanwhile."""
        self._task: asyncio.Task[Recovered] | None = None
        self._is_shut = not engine.config.may_recover

    def has(self, session_id: str) -> bool:
        """Whether it was taken over and does not run yet."""
        return session_id in self._taken

    def note_cancel(self, request: CancelRequest) -> None:
        self._taken[request.session_id] = Stop(reason=StopReason.CANCELLED, source=request.source, detail=request.reason)

    async def run(self) -> Recovered:
        """One run at a time: concurrent callers share it, and cancelling one waiter does not interrupt it."""
        if self._is_shut:  # work drained here still belongs to this process and must not be settled
            return Recovered()
        if self._task is None or self._task.done():
            remove_dead_pipes(self._run_folder)
            self._task = self._engine.spawn(self._recover())
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled() and self._is_shut:
                raise Misused("This Remit was closed while it recovered.", advice="Open it again.") from None
            raise

    async def shut(self) -> None:
        """Stop recovering permanently: the next process recovers the rest."""
        self._is_shut = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _recover(self) -> Recovered:
        report = Recovered()
        # Read live delegations first, then owners: an owner that registers in between is seen, and its work is not treated as orphaned.
        live = await off_loop(_recoverable, self._store)
        owners = await off_loop(self._store.owners)
        dead = [owner.owner_id for owner in owners if owner.owner_id != self._owner_id and is_dead(owner, self._run_folder)]
        unknown = {record.owner for record in live} - {owner.owner_id for owner in owners}
        for record in live:  # recorded for this process but not running: left by an interrupted recovery
            if record.owner == self._owner_id and not self._is_known(record.session_id):
                latest = await off_loop(self._store.get, record.session_id)
                if latest is not None and not latest.state.is_settled:
                    await self._settle_crashed(record, record.owner)
                    report.settled.append(record.session_id)
        for owner_id in (*dead, *sorted(unknown)):
            report.killed += await off_loop(self._engine.config.reap, owner_id, "")
            await self._take_over(owner_id, report)
            await self._engine.journal.call(lambda store, owner_id=owner_id: store.remove_owner(owner_id))  # type: ignore[misc]
            closed_path(self._run_folder, owner_id).unlink(missing_ok=True)
            report.owners.append(owner_id)
        return report

    def _is_known(self, session_id: str) -> bool:
        return session_id in self._taken or self._engine.find(session_id) is not None

    async def _take_over(self, owner_id: str, report: Recovered) -> None:
        def take(store: Store) -> list[Record]:
            left = [record.session_id for record in _recoverable(store) if record.owner == owner_id]
            return store.take_over(left, of=owner_id, to=self._owner_id)

        taken = await self._engine.journal.call(take)
        self._taken.update({record.session_id: None for record in taken})
        now = self._deps.clock.wall()
        kept = self._resumable([record for record in taken if record.deadline_at > now])
        report.settled += await self._settle_others(taken, kept, owner_id)
        children = [record for record in taken if record.session_id in kept]
        for record in children:
            if record.parent_id is None:
                resumed = await self._resume_root(record, [one for one in children if one.root_id == record.root_id], owner_id)
                (report.resumed if resumed else report.settled).append(record.session_id)

    async def _resume_root(self, record: Record, tree: list[Record], owner_id: str) -> bool:
        """Resume a root unless it was cancelled meanwhile. If that fails, settle it: it must not prevent the project from opening."""
        stop = self._taken.get(record.session_id)
        if stop is None:
            try:
                run = await self.resume(record, None)
                self._engine.spawn(self._settle_unclaimed(run, tree, owner_id))
                return True
            except Exception:
                log.exception("%s could not be resumed", record.session_id)
        for one in sorted(tree, key=lambda r: -r.depth):
            if stop is not None:
                await self._settle(one, stop)
            else:
                await self._settle_crashed(one, owner_id)
        return False

    async def _settle_others(self, taken: list[Record], kept: set[str], owner_id: str) -> list[str]:
        """Settle those that will not run again, children first. Returns their sessions."""
        settled = []
        for record in sorted(taken, key=lambda r: -r.depth):
            if record.session_id not in kept:
                await self._settle_crashed(record, owner_id)
                settled.append(record.session_id)
        return settled

    def _resumable(self, taken: list[Record], claimed: str | None = None) -> set[str]:
        """Resumable roots (or claimed ones), and their resumable children, which continue when their caller calls them again."""
        kept: set[str] = set()
        for record in sorted(taken, key=lambda r: r.depth):
            is_top = record.parent_id is None if claimed is None else record.session_id == claimed
            if (is_top or record.parent_id in kept) and self._can_run_again(record):
                kept.add(record.session_id)
        return kept

    # ---- delegations of a task queue

    async def claim(self, session_id: str, ticket: int) -> Record | None:
        """Take the delegation and return its previous record; None: it has ended, or another worker was given this ticket."""
        return await self._engine.journal.call(lambda store: store.claim(session_id, ticket=ticket, owner=self._owner_id))

    async def run_claimed(self, before: Record, left: float, amend: Callable[[Submission], None]) -> DelegationRun | None:
        """Run a claimed delegation with `left` seconds; None: it ran before, cannot run again, and was settled.

        `amend`: called with its submission before it runs."""
        if before.ticket == 0:
            return await self.resume(before, None, left=left, is_first=True, amend=amend)
        taken = await self._take_below(before)
        if before.started_at is None:  # it was given to a worker that died before starting it
            return await self.resume(before, None, left=left, amend=amend)
        kept = self._resumable([before, *taken], before.session_id) if left > 0 else set()
        ended = [record for record in (before, *taken) if record.session_id not in kept]
        await self._engine.end_children_elsewhere(ended, "the end of its worker")
        await self._settle_others(ended, set(), before.owner)
        if before.session_id not in kept:
            return None
        run = await self.resume(before, None, left=left, amend=amend)
        self._engine.spawn(self._settle_unclaimed(run, [record for record in taken if record.session_id in kept], before.owner))
        return run

    async def settle_claimed(self, before: Record, stop: Stop) -> None:
        """Settle a claimed delegation that no longer runs, after its children."""
        taken = await self._take_below(before)
        await self._engine.end_children_elsewhere([before, *taken], stop.detail)
        below_it = Stop(reason=StopReason.CANCELLED, source=f"the end of its caller {before.agent}", detail=stop.detail)
        for record in sorted(taken, key=lambda r: -r.depth):
            await self._settle(record, below_it)
        await self._settle(before, stop)

    async def _take_below(self, before: Record) -> list[Record]:
        """Take over what the previous owner ran below a claimed delegation. If that owner is on this machine, kill its processes."""
        tree = await off_loop(self._store.tree, before.root_id)
        live = [one for one in below(tree, before.session_id)[1:] if not one.state.is_settled]
        given = left_to_queues(live)
        ours = [one.session_id for one in live if one.session_id not in given and one.owner == before.owner]
        for session_id in (before.session_id, *ours):
            await off_loop(self._engine.config.reap, before.owner, session_id)
        return await self._engine.journal.call(lambda store: store.take_over(ours, of=before.owner, to=self._owner_id)) if ours else []

    def _can_run_again(self, record: Record) -> bool:
        """Whether its agent exists, is resumable, and still accepts the recorded parameters, including secrets."""
        agent = self._deps.agents.find(record.agent)
        if agent is None or not agent.spec.resumable or is_redacted(record.parameters):
            return False
        try:
            agent.check(dict(record.parameters))
        except Misused:
            return False
        return True

    async def resume(
        self,
        record: Record,
        caller: DelegationRun | None,
        *,
        left: float | None = None,
        is_first: bool = False,
        amend: Callable[[Submission], None] = lambda _submission: None,
    ) -> DelegationRun:
        """Run a delegation of a dead process again from its start, with its old id and deadline.

        `left`: remaining seconds, measured by another machine's clock; `is_first`: it has not run before."""
        engine, deps, store = self._engine, self._deps, self._store
        agent = deps.agents.find(record.agent)
        assert agent is not None
        tree = await off_loop(store.tree, record.root_id)
        elapsed = deps.clock.wall() - record.created_at if left is None else record.timeout_seconds - left
        opened_at = engine.loop.time() - max(0.0, elapsed)
        outer = await engine.budgets.restore(record) if caller is None else None
        budget = recovered_budget(store, record, tree, caller, deps.rules.budget, outer, opened_at)
        submission = Submission(
            delegation=delegation_of(record, deps, engine.loop.time(), left),
            agent=agent,
            arguments=agent.check(dict(record.parameters)),
            tree=caller.tree if caller is not None else facts_of_records(tree, deps.agents.find),
            budget=budget,
            caller=caller,
            step_times=list(record.step_times),
            warnings=() if is_first else ("Resumed after the end of its orchestrator.",),
        )
        submission.pending = pending_after_restart(submission, caller, deps)
        amend(submission)
        run = DelegationRun(submission, engine)
        if caller is None:
            now = engine.loop.time()
            run.callers_elsewhere = tuple(delegation_of(one, deps, now) for one in reversed(lineage_of(record, tree)[:-1]))
        await self._restore(run, record, tree)
        if is_first:
            run.attempt = record.attempt
        else:
            await engine.journal.call(lambda store: store.requeue(record.session_id, owner=self._owner_id))
        if caller is not None and (closing := caller.closing) is not None:  # it is settled when its root has ended
            raise Stopped(f"{record.agent} was not resumed: {closing}.", advice="Its caller must stop.")
        self._taken.pop(record.session_id, None)
        run.resubmit()
        engine.streams.watcher.tell(record.session_id)
        if not is_first:
            run.notice(f"Resumed after the end of its orchestrator; attempt {run.attempt}.")
        return run

    async def _restore(self, run: DelegationRun, record: Record, tree: list[Record]) -> None:
        """Restore its checkpoint, finished children, output, spending and files from before the crash."""
        store = self._store
        run.attempt = record.attempt + 1
        run.started_wall = record.started_at or record.created_at
        earlier = await off_loop(self._earlier_run, run.submission)
        earlier.note_facts(run.submission, self._deps)
        saved = await off_loop(store.checkpoint, record.session_id)
        run.saved = earlier.saved if saved is None else saved
        finished = earlier.replay.finished() if earlier.replay is not None else []
        run.replay = Replay([*finished, *(r for r in tree if r.parent_id == record.session_id)])
        events = [event for event in await off_loop(store.events, record.session_id) if event.kind is not EventKind.STEP]
        run.output.restore(events, max((event.number - BEFORE_RUN for event in events), default=record.chunk_count))
        run.tokens, run.cost = await off_loop(spent_of, store, record)
        declared = [_artifact_of(event) for event in events if event.kind is EventKind.ARTIFACT]
        for artifact in declared:
            run.declare(artifact)
        scratch = run.scratch_root / record.session_id
        if scratch.is_dir():
            run.scratch_path = scratch

    def _earlier_run(self, submission: Submission) -> EarlierRun:
        """The run that it resumed; empty if that was pruned."""
        try:
            return earlier_run(self._store, submission) if submission.delegation.resumes is not None else EarlierRun(None, None)
        except Misused:
            return EarlierRun(None, None)

    async def cancel_left_behind(self, asked: Record, stop: Stop) -> list[dict[str, Any]]:
        """Cancel work of a dead process: settle it as cancelled with its partial work; it never runs again."""
        await off_loop(self._engine.config.reap, asked.owner, "")

        def take(store: Store) -> list[Record]:
            nodes = [
                asked.session_id,
                *(r.session_id for r in below(store.tree(asked.root_id), asked.session_id) if not r.state.is_settled),
            ]
            return store.take_over(sorted(set(nodes)), of=asked.owner, to=self._owner_id)

        taken = await self._engine.journal.call(take)
        for record in sorted(taken, key=lambda r: -r.depth):
            await self._settle(record, stop)
        return [{"session_id": record.session_id, "agent": record.agent, "state": "stopped"} for record in taken]

    # ---- settling what does not run again

    async def _settle_unclaimed(self, root: DelegationRun, kept: list[Record], owner_id: str) -> None:
        """After a resumed root has ended, settle the children it did not call again: nothing stays live without a process."""
        await asyncio.wait([root.outcome.done])
        if root.outcome.result is None:
            return  # drained or not recorded: the next process continues all of it
        for record in kept:
            if self._engine.find(record.session_id) is None:
                known = await off_loop(self._store.get, record.session_id)
                if known is not None and known.result is None:
                    await self._settle_crashed(record, owner_id)

    async def _settle_crashed(self, record: Record, owner_id: str) -> None:
        pid = owner_id.partition("-")[0]
        detail = (
            f"{record.agent} was running when its orchestrator ended (process {pid})."
            if record.started_at is not None
            else f"{record.agent} was still queued when its orchestrator ended: it never ran."
        )
        agent = self._deps.agents.find(record.agent)
        if agent is not None and agent.spec.resumable and is_redacted(record.parameters):
            detail += " It was not run again: secrets among its parameters are not on record. Delegate it again with them."
        await self._settle(record, Stop(reason=StopReason.CRASHED, source="the end of its orchestrator", detail=detail))

    async def _settle(self, record: Record, stop: Stop) -> None:
        engine, store, clock = self._engine, self._store, self._deps.clock
        delegation = delegation_of(record, self._deps, engine.loop.time())
        agent = self._deps.agents.find(record.agent)
        duration = max(0.0, min(clock.wall() - record.created_at, record.timeout_seconds))
        left = await engine.find_partial_work(record, await self._partial_work(record)) if record.started_at else reply.NOTHING_LEFT
        resumable = agent is not None and agent.spec.resumable
        result = reply.stopped_return(delegation, stop, left, duration_seconds=duration, resumable=resumable)
        result = reply.with_agent_session(result, (left.data or {}).get("checkpoint"))
        tokens, cost = await off_loop(spent_of, store, record)
        said = [event.number for event in await off_loop(store.events, record.session_id) if event.kind is not EventKind.STEP]
        count = max(said, default=BEFORE_RUN) - BEFORE_RUN
        now = clock.wall()
        steps = (*record.step_times[:12], now)
        settle = SettleDelegation(record.session_id, state_of(result), now, result, steps, tokens, cost, count)
        problem = await engine.journal.problem_of(settle)
        self._taken.pop(record.session_id, None)
        engine.streams.watcher.tell(record.session_id)
        if isinstance(problem, OutcomeConflict):  # it had ended after all: that outcome counts and was reported
            return
        self._deps.note_errors(delegation, result.errors, "")
        if engine.bus.has_listeners:
            engine.bus.ended(delegation, result, now, tokens, cost, steps)

    async def _partial_work(self, record: Record) -> PartialWork:
        """Only declared project files are certainly its own: others have worked there since."""
        from remit.runtime.harvest import HarvestRequest, harvest
        from remit.runtime.workspace_session import describe_workspace, kept_message, left_in_workspace
        from remit.runtime.workspaces import find_workspace

        events = await off_loop(self._store.events, record.session_id)
        scratch = self._engine.config.folder / "scratch" / record.session_id
        request = HarvestRequest(
            root=self._deps.root,
            scratch=scratch if scratch.is_dir() else None,
            since=record.started_at or record.created_at,
            declared=tuple(_artifact_of(e) for e in events if e.kind is EventKind.ARTIFACT),
            scan_root=False,
            foreign=frozenset(),
        )
        data: dict[str, Any] = {}
        if chunks := [e.body["chunk"] for e in events if e.kind is EventKind.DATA]:
            data["chunks"] = chunks
        if (saved := await off_loop(self._store.checkpoint, record.session_id)) is not None:
            data["checkpoint"] = saved
        workspace = await off_loop(find_workspace, self._deps.root, record.session_id)
        if workspace is None:
            found = await harvest(request)
            return PartialWork(artifacts=found.artifacts, warnings=found.warnings, data=data or None)
        found = await left_in_workspace(workspace, request, scratch, record.agent)
        warnings = (kept_message(workspace), *found.warnings)
        return PartialWork(artifacts=found.artifacts, warnings=warnings, data=data or None, workspace=describe_workspace(workspace))


def _recoverable(store: Store) -> list[Record]:
    """Live delegations that recovery takes over if their owner dies. Blocking."""
    live = store.live()
    left = left_to_queues(live)
    return [record for record in live if record.session_id not in left] if left else live


def _artifact_of(event: Event) -> Artifact:
    """The artifact that an event declared."""
    return Artifact(type=event.body["type"], path=event.body["path"], summary=event.body.get("summary", ""))
