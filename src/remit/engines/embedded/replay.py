"""Delegations brought back from the store: what an earlier run left, and which of its children need not run again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.core.budget import Budget, Limits
from remit.core.deadline import Deadline, grace_seconds
from remit.core.delegation import Delegation, Lineage
from remit.core.errors import ErrorInfo, Misused
from remit.core.events import BEFORE_RUN, Event, EventKind
from remit.core.ports import Store
from remit.core.record import Record
from remit.core.request import Request
from remit.core.result import Artifact, Return, StopReason
from remit.core.states import State
from remit.engines.embedded.running import Running
from remit.runtime import reply
from remit.runtime.accept import GuardInput, budget, expired, normalised_call
from remit.runtime.authorize import pending_again
from remit.runtime.deps import Submission, Tree
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engines.embedded.embedded import EmbeddedEngine


async def restored(engine: "EmbeddedEngine", record: Record, parent: Running | None) -> Running:
    """A delegation of a dead process, running again from its start under its old id and deadline."""
    agent = engine.deps.agents.find(record.agent)
    assert agent is not None
    tree = await off_loop(engine.store.tree, record.root_id)
    budget = _spent_budget(engine, record, tree, parent, await engine.budgets.restore(record) if parent is None else None)
    submission = Submission(
        delegation=delegation_of(record, engine),
        agent=agent,
        arguments=agent.check(dict(record.parameters)),
        tree=parent.tree if parent is not None else Tree(budget),
        budget=budget,
        caller=parent,
        step_times=list(record.step_times),
        warnings=("Resumed after the end of its orchestrator.",),
    )
    submission.pending = pending_again(submission, parent, engine.deps)
    running = Running(submission, engine, parent)
    running.attempt = record.attempt + 1
    running.started_wall = record.started_at or record.created_at
    before = await off_loop(_before, engine, submission)
    saved = await off_loop(engine.store.checkpoint, record.session_id)
    running.saved = before.saved if saved is None else saved
    earlier = before.replay.finished() if before.replay is not None else []
    running.replay = Replay([*earlier, *(r for r in tree if r.parent_id == record.session_id)])
    await _recollect(engine, running, record)
    await engine.journal.call(lambda store: store.requeue(record.session_id, owner=engine.owner.owner_id))
    engine.pending.pop(record.session_id, None)
    engine.resubmit(running)
    running.notice(f"Resumed after the end of its orchestrator; attempt {running.attempt}.")
    return running


def _before(engine: "EmbeddedEngine", submission: Submission) -> "Earlier":
    """What the run it goes on from left; nothing, when that has been forgotten since."""
    try:
        return earlier_of(engine, submission) if submission.delegation.resumes is not None else Earlier(None, None)
    except Misused:
        return Earlier(None, None)


def _spent_budget(engine: "EmbeddedEngine", record: Record, tree: list[Record], parent: Running | None, purse: Budget | None) -> Budget:
    """The scope it draws from. Nothing is refilled: what was drawn before the crash stays drawn."""
    opened_at = engine.loop.time() - max(0.0, engine.clock.wall() - record.created_at)
    if parent is None:
        budget = Budget(engine.deps.rules.budget, opened_at=opened_at, outer=purse)
        _draw(engine.store, budget, tree)
    else:
        budget = parent.budget
        for scope in budget.scopes():
            scope.delegations -= 1  # it was counted with its tree, and enters once more now
    for limits in (_narrower(record, parent), record.limits):
        if limits is not None:
            budget = budget.narrowed(limits, opened_at)
            _draw(engine.store, budget, _below(record, tree))
    return budget


def _narrower(record: Record, parent: Running | None) -> Limits | None:
    """The limits of whoever asked from outside, where they begin to hold: below, they are inherited."""
    above = None if parent is None or parent.delegation.caller_info is None else parent.delegation.caller_info.limits
    return None if record.caller_info is None or record.caller_info.limits == above else record.caller_info.limits


def _draw(store: Store, budget: Budget, records: list[Record]) -> None:
    """What these drew; the first of them enters again by itself, and what was refused has drawn nothing."""
    budget.delegations = sum(record.state is not State.REFUSED for record in records) - 1
    spent = [spent_of(store, record) for record in records]
    budget.tokens = sum(tokens for tokens, _ in spent)
    budget.cost = sum(cost for _, cost in spent)


def _below(record: Record, tree: list[Record]) -> list[Record]:
    """Itself and everything it handed on; callers stand before their children in a tree."""
    found = {record.session_id: record}
    for one in tree:
        if one.parent_id in found:
            found[one.session_id] = one
    return list(found.values())


def said_of(store: Store, record: Record) -> int:
    """How much it said before: the numbers of events go on from there."""
    return max((event.number - BEFORE_RUN for event in store.events(record.session_id) if event.kind is not EventKind.STEP), default=0)


def spent_of(store: Store, record: Record) -> tuple[int, float]:
    """What it drew: on its record once it is settled, told by itself before."""
    if record.result is not None:
        return record.tokens, record.cost
    told = [event.body for event in store.events(record.session_id) if event.kind is EventKind.SPENT]
    return (int(told[-1]["tokens"]), float(told[-1]["cost"])) if told else (record.tokens, record.cost)


async def _recollect(engine: "EmbeddedEngine", running: Running, record: Record) -> None:
    """What it had said, declared, spent and written before the crash is still its own."""
    events = await off_loop(engine.store.events, record.session_id)
    running.chunks = [event for event in events if event.kind is not EventKind.STEP]
    running.said = max((event.number - BEFORE_RUN for event in running.chunks), default=record.chunk_count)
    running.on_record = BEFORE_RUN + running.said
    running.tokens, running.cost = await off_loop(spent_of, engine.store, record)
    declared = [artifact_of(event) for event in running.chunks if event.kind is EventKind.ARTIFACT]
    if declared:
        running.artifacts = {artifact.path: artifact for artifact in declared}
        engine.declared[record.session_id] = set(running.artifacts)
    scratch = engine.scratch_root / record.session_id
    if scratch.is_dir():
        running.scratch_path = scratch


def artifact_of(event: Event) -> Artifact:
    """The artifact that an event declared."""
    return Artifact(type=event.body["type"], path=event.body["path"], summary=event.body.get("summary", ""))


def delegation_of(record: Record, engine: "EmbeddedEngine") -> Delegation:
    """The delegation that was recorded, its deadline moved from the wall clock to the one that does not jump."""
    left = max(0.0, min(record.deadline_at - engine.clock.wall(), record.timeout_seconds))
    hard_at = engine.loop.time() + left
    return Delegation(
        lineage=Lineage(
            session_id=record.session_id, root_id=record.root_id, parent_id=record.parent_id, depth=record.depth, path=record.path
        ),
        agent=record.agent,
        parameters=record.parameters,
        caller=record.caller,
        priority=record.priority,
        deadline=Deadline(hard_at=hard_at, soft_at=hard_at - grace_seconds(left), timeout_seconds=record.timeout_seconds),
        created_at=record.created_at,
        idle_seconds=record.idle_seconds,
        key=record.key,
        accept=record.accept,
        limits=record.limits,
        command=record.command,
        task=record.task,
        resumes=record.resumes,
        caller_info=record.caller_info,
    )


class Replay:
    """The children a caller had in the run before, by call, in the order they were recorded."""

    def __init__(self, children: list[Record]) -> None:
        self._by_call: dict[str, list[Record]] = {}
        for child in children:
            # Those the crash itself ended are no results: their caller asks again, and they run again.
            if child.result is None or child.result.stop_reason not in (StopReason.CRASHED, StopReason.CANCELLED):
                self._by_call.setdefault(normalised_call(child.agent, child.parameters), []).append(child)

    def take(self, request: Request) -> Record | None:
        records = self._by_call.get(normalised_call(request.agent, request.parameters))
        return records.pop(0) if records else None

    def finished(self) -> list[Record]:
        return [record for records in self._by_call.values() for record in records if record.result is not None]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier run left to go on from."""

    saved: Any
    replay: Replay | None


CHAIN_LIMIT = 100
"""How many runs back a chain of resumed runs is followed."""


async def look_back(engine: "EmbeddedEngine", submission: Submission) -> bool:
    """Gather what the run that `submission` resumes left; False, and a refusal in the submission, when it cannot be gone on from."""
    try:
        submission.earlier = await off_loop(earlier_of, engine, submission)
    except Misused as fault:
        error = ErrorInfo(type="invalid_parameters", message=fault.message, code=fault.code, recoverable=False, recommendation=fault.advice)
        submission.refusal = reply.refused_return(submission.delegation, error)
        return False
    submission.refusal = _refused_meanwhile(engine, submission)
    return submission.refusal is None


def _refused_meanwhile(engine: "EmbeddedEngine", submission: Submission) -> Return | None:
    """Looking back took time: what the guards saw before may no longer hold."""
    case = GuardInput(
        target=submission.delegation.agent,
        now=engine.loop.time(),
        caller_path=submission.delegation.lineage.path[:-1],
        caller_depth=submission.delegation.lineage.depth - 1,
        caller_hard_at=None if submission.caller is None else submission.caller.delegation.deadline.hard_at,
        max_depth=engine.deps.rules.max_depth,
        budget=submission.budget,
        closing=None if submission.caller is None else submission.caller.closing,
    )
    error = expired(case) or budget(case)
    return None if error is None else reply.refused_return(submission.delegation, error)


def earlier_of(engine: "EmbeddedEngine", submission: Submission) -> "Earlier":
    assert submission.agent is not None
    session_id, agent = submission.delegation.resumes, submission.delegation.agent
    saved: Any = None
    children: list[Record] = []
    for _ in range(CHAIN_LIMIT):
        if session_id is None:
            break
        record = engine.store.get(session_id)
        if record is None and session_id != submission.delegation.resumes:
            break  # forgotten by the history: what caller_info after it is still there
        if record is None:
            raise Misused(f"There is no delegation {session_id} to resume.", code="INVALID_TARGET", advice="`remit history` lists them.")
        if record.agent != agent:
            raise Misused(
                f"{session_id} was handed to {record.agent}, not to {agent}.", advice=f"Resume it by delegating to {record.agent}."
            )
        if record.state is State.REFUSED:
            raise Misused(f"{session_id} was refused: it never ran.", advice="Delegate without resume.")
        if not record.state.is_settled:
            raise Misused(f"{session_id} has not ended.", advice=f"Wait for it, or `remit cancel {session_id}` first.")
        saved = engine.store.checkpoint(session_id) if saved is None else saved
        # What its own end stopped is no result: only what was completed is not done again.
        children = [child for child in engine.store.children(session_id) if child.result is not None and child.result.ok] + children
        session_id = record.resumes
    return Earlier(saved, Replay(children) if submission.agent.spec.resumable else None)
