"""The Temporal engine: an embedded engine that hands delegations to workers through Temporal, and as a worker takes them from there.

Temporal assigns each delegation to a worker and detects the loss of that worker. All facts are in the store."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget, Limits
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Misused, Unavailable
from remit.core.policy import Verdict
from remit.core.record import CancelRequest, Record
from remit.core.redaction import is_redacted, redact_parameters, redact_value
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.engines.embedded.delegation_run import CHILDREN_SECONDS, DelegationRun, Phase
from remit.engines.embedded.embedded import STOP_SECONDS, EmbeddedEngine
from remit.engines.embedded.events import known
from remit.engines.embedded.handles import LocalHandle, Node
from remit.engines.embedded.replay import delegation_of
from remit.engines.temporal.connection import (
    POLL_SECONDS,
    TemporalConfig,
    connect,
    identity_of,
    parse_identity,
    poll_times,
    target_of,
)
from remit.engines.temporal.remote_run import RemoteHandle, RemoteRun
from remit.runtime import reply
from remit.runtime.deps import Submission
from remit.runtime.engine import EngineConfig, Perform, Recovered, WorkerInfo
from remit.runtime.reply import PartialWork, Stop
from remit.runtime.shipment import FileShipping
from remit.system.liveness import is_dead, living_owners
from remit.system.processes import is_alive
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from temporalio.client import Client

    from remit.engines.temporal.worker import QueueWorkers
    from remit.engines.temporal.workflow import Attempt, Order
    from remit.runtime.local_context import LocalRun

log = logging.getLogger("remit.temporal")

LAST_TICKET = 2**30
"""Ticket of the process that settles a delegation: no worker claims it afterwards. Should that process die, the next one adds one."""
ENDED_FROM_OUTSIDE = {
    "TERMINATED": "its workflow was terminated in Temporal",
    "CANCELED": "its workflow was cancelled in Temporal",
    "TIMED_OUT": "its workflow timed out in Temporal",
}
SWEEP_SECONDS = 10.0
SWEEP_AT_ONCE = 50
LEFT_SECONDS = 5.0
"""Age at which a delegation without a worker may have lost the process that should start its workflow."""
RETRY_SECONDS = 0.5
RESTORE_SHARE = 0.5
"""Of the heartbeat timeout: so long an attempt may fetch the files of the one before."""
FETCH_SECONDS = 0.9
"""So long after its deadline the return comes without the files that are not here yet."""
STARTS_AT_ONCE = 64
"""Workflows that a process starts at a time: thousands of calls at once would all time out."""
TASK_SECONDS = timedelta(seconds=2)
"""Time after which the workflow task of a dead process is given to another."""
EXIT_SECONDS = 0.3
"""temporalio can crash a process that exits at once after its client was used."""
CALLER_CLOSED = "The orchestrator was closed while it was waited for. It continues on a worker."
CUT_OFF = "Its worker lost the connection to {} and stopped it here. Another worker continues it."


class TemporalEngine(EmbeddedEngine):
    client: "Client"

    def __init__(self, config: EngineConfig, temporal: TemporalConfig, shipping: FileShipping | None = None) -> None:
        if shipping is not None:
            config = config._replace(middleware=(self._perform_and_ship, *config.middleware))
        super().__init__(config)
        self.temporal = temporal
        self.shipping = shipping
        """None: all workers share the project directory."""
        self.remote: dict[str, RemoteRun] = {}
        """Delegations that this process waits for and workers execute."""
        self._workers: QueueWorkers | None = None
        self._unstarted: deque[RemoteRun] = deque()
        """Recorded; their workflows are to be started."""
        self._starters = 0

    # ---- local or remote

    def _is_remote(self, submission: Submission) -> bool:
        """A child runs here if this worker serves its agent and has a slot for it, and always if it shares its caller's workspace."""
        caller, agent = submission.caller, submission.delegation.agent
        serves = self._workers is not None and self._workers.serves(agent)
        if serves and (submission.pending is not None or has_secrets(submission.delegation)):
            return False
        if not isinstance(caller, DelegationRun):
            return True
        assert submission.agent is not None
        spec = submission.agent.spec
        if caller.own_workspace is not None:
            return False
        return not serves or spec.spread or submission.spread or self.scheduler.room(agent) <= 0

    async def _is_refused(self, submission: Submission) -> bool:
        if not await super()._is_refused(submission) and self._is_remote(submission):
            submission.refusal = await self._not_for_workers(submission)
        return submission.refusal is not None

    def _needs_check(self, submission: Submission) -> bool:
        return True

    def _new_run(self, submission: Submission) -> Node:
        return RemoteRun(submission, self) if self._is_remote(submission) else super()._new_run(submission)

    async def _not_for_workers(self, submission: Submission) -> Return | None:
        delegation, limit = submission.delegation, self.config.deps.settings.queue_limit
        if has_secrets(delegation):
            message = "Its parameters contain a secret, which is neither recorded nor sent to a worker."
            advice = "Put the secret into an environment variable of the workers, and pass the name of that variable."
            error = ErrorInfo(
                type="invalid_parameters", message=message, code="INVALID_PARAMETERS", recoverable=False, recommendation=advice
            )
            return reply.refused_return(delegation, error)
        if len(self.remote) <= limit:
            return None
        heads = await off_loop(self.store.heads, list(self.remote))
        waiting = sum(head.state is State.QUEUED for head in heads.values())
        if waiting < limit:
            return None
        message = f"The queue is full: {waiting} delegations of this process wait for a worker."
        advice = "Try again later, delegate less at once (ctx.gather has limit=), start more workers, or raise queue_limit."
        error = ErrorInfo(type="queue_full", message=message, code="QUEUE_FULL", recoverable=True, recommendation=advice)
        return reply.refused_return(delegation, error)

    def handle_of(self, node: Any) -> LocalHandle:
        return RemoteHandle(node) if isinstance(node, RemoteRun) else LocalHandle(node)  # type: ignore[arg-type]

    async def continue_child(self, record: Record, caller: DelegationRun) -> Node:
        if record.queue is None:
            left = min(record.timeout_seconds, caller.remaining())
            return await self.recovery.resume(record, caller, left=left)
        agent = self.deps.agents.find(record.agent)
        left = min(record.timeout_seconds, caller.remaining())
        submission = Submission(
            delegation=delegation_of(record, self.deps, self.loop.time(), left),
            agent=agent,
            arguments=None,
            tree=caller.tree,
            budget=caller.budget,
            caller=caller,
            step_times=list(record.step_times),
        )
        remote = RemoteRun(submission, self)
        remote.adopt()
        return remote

    # ---- workflows

    def start_soon(self, remote: RemoteRun) -> None:
        """Start its workflow; retry until Temporal accepts it, as long as the delegation has time."""
        self._unstarted.append(remote)
        if self._starters < STARTS_AT_ONCE:
            self._starters += 1
            self.spawn(self._start_workflows())

    async def _start_workflows(self) -> None:
        assert self._workers is not None
        try:
            while self._unstarted:
                remote = self._unstarted.popleft()
                delegation = remote.delegation
                if not remote.needs_workflow or delegation.deadline.remaining(self.loop.time()) <= 0:
                    continue
                if self._workers.is_to_be_checked(delegation.agent):
                    self.spawn(self._workers.warn_if_unserved(delegation.agent))
                if not await self.start_workflow(delegation):
                    self._unstarted.append(remote)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._starters -= 1

    async def start_workflow(self, delegation: Delegation) -> bool:
        """Whether Temporal has its workflow."""
        from temporalio.common import WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError
        from temporalio.service import RPCError

        from remit.engines.temporal.workflow import WORKFLOW

        try:
            await self.client.start_workflow(
                WORKFLOW,
                self._order(delegation),
                id=delegation.session_id,
                task_queue=self.temporal.system_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                task_timeout=TASK_SECONDS,
            )
        except WorkflowAlreadyStartedError:
            return True
        except (RPCError, RuntimeError) as error:
            log.warning("Temporal did not take %s (%s); it is tried again.", delegation.session_id, error)
            return False
        return True

    def _order(self, delegation: Delegation) -> "Order":
        from remit.engines.temporal.workflow import Order

        agent = self.deps.agents.find(delegation.agent)
        return Order(
            session_id=delegation.session_id,
            agent=delegation.agent,
            queue=self.temporal.queue_of(delegation.agent),
            definition=self.config.definition(delegation.agent),
            policy=self.deps.policy.fingerprint,
            seconds=delegation.deadline.remaining(self.loop.time()),
            priority=5 - int(delegation.priority),
            resumable=agent is not None and agent.spec.resumable,
            heartbeat_seconds=self.temporal.settings.heartbeat_seconds,
            wait_seconds=self.temporal.settings.worker_wait_seconds,
            ageing_seconds=self.config.deps.settings.ageing_seconds,
        )

    async def _signal_stop(self, session_id: str, reason: str, source: str) -> None:
        """The reliable way: it also reaches a delegation whose worker is lost."""
        from temporalio.service import RPCError

        from remit.engines.temporal.workflow import STOP_SIGNAL

        with contextlib.suppress(RPCError):  # it has ended, or Temporal is unreachable: the request in the store remains
            await self.client.get_workflow_handle(session_id).signal(STOP_SIGNAL, args=[reason, source])

    async def settle(self, session_id: str, stop: Stop) -> Return | None:
        """End a queued delegation permanently, whatever the state of its worker. Returns its recorded return; None: try again later."""
        ticket = max(LAST_TICKET, (await known(self.store, session_id)).ticket + 1)
        before = await self.recovery.claim(session_id, ticket)
        if before is not None:
            if before.started_at is None and stop.reason is StopReason.DEADLINE:
                waited = f"{before.agent} was not started by its deadline: it waited in the task queue {before.queue}."
                stop = stop._replace(detail=f"{waited} `remit workers` lists who takes work from it.")
            await self.recovery.settle_claimed(before, stop)
        return (await known(self.store, session_id)).result

    async def run_claimed(self, before: Record, attempt: "Attempt", left: float) -> DelegationRun | None:
        """Run a claimed delegation under the policy of this worker."""

        def amend(submission: Submission) -> None:
            if shipping is not None:
                shipping.begin(before.session_id, attempt.ticket)
                submission.warnings = (*submission.warnings, *lost)
            if before.parent_id is not None:
                submission.budget.share()
            pending, ours = submission.pending, self.deps.policy.fingerprint
            if pending is None or pending.decision.verdict is not Verdict.DENY or ours == attempt.policy:
                return
            both = f"That is the policy of this worker ({ours}); the policy of its caller ({attempt.policy}) allowed it."
            because = f"{pending.decision.because} {both}"
            decision = pending.decision._replace(because=because, advice="Give all processes of the project the same .remit/policy.cedar.")
            submission.pending = pending._replace(decision=decision)

        shipping, lost = self.shipping, tuple[str, ...]()
        if shipping is not None and before.started_at is not None and left > 0:
            lost = await shipping.restore(before.session_id, min(left, self.temporal.settings.heartbeat_seconds * RESTORE_SHARE))
        run: DelegationRun | None = None
        try:
            run = await self.recovery.run_claimed(before, left, amend)
        finally:
            if shipping is not None and run is None:
                shipping.end(before.session_id)
            elif shipping is not None and run is not None:
                run.outcome.done.add_done_callback(lambda _: shipping.end(before.session_id))
        return run

    # ---- files of other machines

    async def _perform_and_ship(self, work: "LocalRun", inner: "Perform") -> Return:
        assert self.shipping is not None
        return await self.shipping.perform(work, inner, lambda work: isinstance(work, DelegationRun) and work.phase is Phase.DRAINING)

    async def keep_partial_work(self, run: DelegationRun, left: PartialWork) -> PartialWork:
        return left if self.shipping is None else await self.shipping.ship_left(run, left)

    async def find_partial_work(self, record: Record, left: PartialWork) -> PartialWork:
        return left if self.shipping is None else await self.shipping.left_behind(record.session_id, left)

    async def fetch_files(self, delegation: Delegation, result: Return) -> Return:
        if self.shipping is None:
            return result
        return await self.shipping.fetch(delegation.session_id, result, delegation.deadline.hard_at + FETCH_SECONDS)

    # ---- cancelling

    async def end_children_elsewhere(self, callers: Sequence[Record], detail: str) -> None:
        """Bounded: a child whose worker cannot be reached is stopped by its signal later."""
        tree = await off_loop(self.store.tree, callers[0].root_id) if callers else []
        ending = [
            self.spawn(self.cancel(one.session_id, detail, f"the end of its caller {caller.agent}"))
            for caller in callers
            for one in tree
            if one.parent_id == caller.session_id and one.queue is not None and not one.state.is_settled
        ]
        if ending:
            await asyncio.wait(ending, timeout=CHILDREN_SECONDS)

    def _on_cancel_request(self, request: CancelRequest) -> None:
        if self._workers is None or not self._workers.note_cancel(request):
            super()._on_cancel_request(request)

    async def _cancel_elsewhere(self, record: Record, reason: str, source: str) -> list[dict[str, Any]]:
        if record.queue is None:
            return await super()._cancel_elsewhere(record, reason, source)
        session_id = record.session_id
        stop = Stop(reason=StopReason.CANCELLED, source=source, detail=reason)
        self.spawn(self._signal_stop(session_id, reason, source))
        owners = {owner.owner_id: owner for owner in await off_loop(self.store.owners)}
        owner = owners.get(record.owner)
        ticket = 1 if record.ticket == 0 else record.ticket + 1
        if record.ticket == 0 or (owner is not None and is_dead(owner, self.config.folder / "run")):
            before = await self.recovery.claim(session_id, ticket)
            if before is not None:
                await self.recovery.settle_claimed(before, stop)
                return [{"session_id": session_id, "agent": record.agent, "state": "stopped"}]
            record = await known(self.store, session_id)
        await self._peers.request_cancel(record, reason, source, self.deps.clock.wall())
        return await self._peers.wait_cancelled(record)

    # ---- its own life

    async def open(self, *, recover: bool = True) -> Recovered:
        from remit.engines.temporal.worker import QueueWorkers

        if self.shipping is not None:
            await self.shipping.open()
        self.client = await connect(self.temporal, self.identity)
        await self._must_share_the_store()
        recovered = await super().open(recover=recover)
        self._workers = QueueWorkers(self)
        await self._workers.open()
        self.spawn(self._sweep())
        return recovered

    @property
    def identity(self) -> str:
        return identity_of(self.owner.owner_id, self.owner.host, self.temporal.store)

    async def _must_share_the_store(self) -> None:
        """Processes of another project of the same name would take each other's delegations."""
        for identity in await self._heard(self.temporal.system_queue):
            process, store = parse_identity(identity)
            if store and store != self.temporal.store:
                raise Misused(
                    f"Two projects are named {self.temporal.project!r}: the record of this one is in {self.temporal.store}, "
                    f"and that of {process} in {store}.",
                    advice="Give one of them another [engine] project, or stop the other one and wait a minute.",
                )

    async def _heard(self, queue: str, now: datetime | None = None) -> dict[str, float]:
        """Living processes that poll a queue, and the seconds since each did. `now`: by the clock of the server."""
        times = await poll_times(self.client, queue)
        if now is None:  # this process polls, too: a clock that differs from all that is known of the server's is wrong
            now = datetime.now(UTC)
            system = times if queue == self.temporal.system_queue else await poll_times(self.client, self.temporal.system_queue)
            latest = max((*times.values(), *system.values()), default=now)
            now = now if abs((now - latest).total_seconds()) < POLL_SECONDS else latest
        living = await off_loop(living_owners, self.store, self.config.folder / "run")
        seconds = {identity: max(0.0, (now - at).total_seconds()) for identity, at in times.items() if self._is_living(identity, living)}
        return {identity: since for identity, since in seconds.items() if since < POLL_SECONDS}

    def _is_living(self, identity: str, living: Collection[str]) -> bool:
        """Temporal lists ended processes for some more minutes. Those of another record can only be looked for on this host."""
        process, store = parse_identity(identity)
        owner_id, _, host = process.removeprefix("remit ").partition("@")
        if store == self.temporal.store:
            return owner_id in living
        return not store or host != self.owner.host or is_alive(int(owner_id.partition("-")[0]), None)

    async def is_served(self, queue: str, now: datetime | None = None) -> bool:
        return bool(await self._heard(queue, now))

    async def work(self, agents: Collection[str] | None = None) -> None:
        assert self._workers is not None
        names = {target_of(name) for name in self.deps.agents.names()}
        unknown = {target_of(name) for name in agents or ()} - names
        if unknown:
            raise Misused(f"There is no agent named {', '.join(sorted(unknown))}.", advice="`remit agents` lists them.")
        await self._workers.serve(names if agents is None else {target_of(name) for name in agents}, is_open=agents is None)

    async def workers(self) -> list[WorkerInfo]:
        heard: dict[str, dict[str, float]] = {}
        for target in sorted({target_of(name) for name in self.deps.agents.names()}):
            for identity, seconds in (await self._heard(self.temporal.queue_of(target))).items():
                heard.setdefault(parse_identity(identity)[0], {})[target] = seconds
        return [
            WorkerInfo(identity=process, agents=tuple(targets), heard_seconds=min(targets.values()))
            for process, targets in sorted(heard.items())
        ]

    def limit_slots(self, agent: str, slots: int | None) -> None:
        super().limit_slots(agent, slots)
        if self._workers is not None:
            self._workers.serve_later(target_of(agent))

    async def principal_budget(self, principal: str, limits: Limits | None = None) -> Budget:
        """Workers spend too, so their recorded spending is read each time."""
        return await self.budgets.get(principal, limits, is_shared=True)

    async def note_spending(self, submission: Submission) -> None:
        """What other processes spent of its budget is known here, too, from now on. The store compares every draw with the limits."""
        for scope in submission.budget.scopes():
            if scope.session_id is not None:
                spent = await off_loop(self.store.spent_below, submission.delegation.lineage.root_id, scope.session_id)
                scope.tokens, scope.cost = max(scope.tokens, spent.tokens), max(scope.cost, spent.cost)

    def free_slot_listener(self) -> Callable[[], None]:
        return self._on_free_slot

    def _on_free_slot(self) -> None:
        if self._workers is not None:
            self._workers.slots.notify()

    async def release(self, run: DelegationRun, lost: str) -> int:
        """This worker has lost a delegation: stop it without an outcome. Returns the number of agents that could not be stopped."""
        nodes = [node for node in run.below() if node.can_be_drained]
        ending = [node for node in run.below() if isinstance(node, DelegationRun) and not node.can_be_drained]
        self.config.kill([node.delegation.session_id for node in (*nodes, *ending)])
        stubborn = await self._leave(nodes, CUT_OFF.format(lost))
        if ending:
            await asyncio.wait([node.outcome.done for node in ending], timeout=STOP_SECONDS)
        return stubborn + sum(node.is_abandoned for node in ending)

    async def _can_continue_elsewhere(self, run: DelegationRun) -> bool:
        """Claimed work that has not started can start elsewhere. The store is not asked: it may be the reason for draining."""
        may_run_again = not run.started_at or (run.agent.spec.resumable and run.remaining() > 0)
        return run.can_be_drained and may_run_again and not has_secrets(run.delegation)

    async def drain(self) -> list[str]:
        if self._workers is not None:
            self._workers.stop_polling()
        return await super().drain()

    async def close(self) -> None:
        if self._workers is not None:
            self._workers.stop_polling()
        await super().close()
        for remote in list(self.remote.values()):
            remote.hand_over(CALLER_CLOSED)
        if self.shipping is not None:
            await self.shipping.close()
        if self._workers is not None:
            await self._workers.close()
            await asyncio.sleep(EXIT_SECONDS)

    async def _sweep(self) -> None:
        """Find delegations whose caller died before it started their workflow, or whose workflow was ended in Temporal."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except Unavailable:
                pass  # the store is unreachable: retried at the next turn
            except Exception:  # a background task that must not end
                log.exception("The sweep failed; it continues")

    async def sweep(self) -> None:
        old = self.deps.clock.wall() - LEFT_SECONDS
        live = [record for record in await off_loop(self.store.live) if record.queue is not None and record.created_at < old]
        others = [one for one in live if one.session_id not in self.remote][:SWEEP_AT_ONCE]
        alive = await off_loop(living_owners, self.store, self.config.folder / "run") if others else set()
        for record in others:
            if record.ticket == 0 and self.temporal.queue_of(record.agent) == record.queue:
                await self.start_workflow(delegation_of(record, self.deps, self.loop.time()))
            status = await self._workflow_status(record.session_id)
            if status in ENDED_FROM_OUTSIDE:
                stop = Stop(reason=StopReason.CANCELLED, source="Temporal", detail=ENDED_FROM_OUTSIDE[status])
                await self.settle(record.session_id, stop)
            elif record.ticket and record.owner not in alive and status == "COMPLETED":
                detail = f"the process that ended it ({record.owner}) was lost before it recorded the outcome"
                await self.settle(record.session_id, Stop(reason=StopReason.CRASHED, source="the end of its worker", detail=detail))

    async def ended_in_temporal(self, session_id: str) -> str | None:
        """How a person or a timeout ended its workflow; None: it runs, or ended by itself."""
        return ENDED_FROM_OUTSIDE.get(await self._workflow_status(session_id))

    async def _workflow_status(self, session_id: str) -> str:
        """Empty: unknown."""
        from temporalio.service import RPCError

        try:
            status = (await self.client.get_workflow_handle(session_id).describe()).status
        except RPCError:
            return ""
        return "" if status is None else status.name


def has_secrets(delegation: Delegation) -> bool:
    """Whether its record lacks some parameters, so that another process could not run it."""
    return bool(delegation.parameters) and is_redacted(redact_value(redact_parameters(delegation.parameters)))
