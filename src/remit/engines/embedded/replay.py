"""Results of earlier runs: children that need not run again, and the delegation of a record."""

from typing import Any, NamedTuple

from remit.core.budget import grace_seconds
from remit.core.deadline import Deadline
from remit.core.delegation import Delegation, Lineage, on_behalf_of
from remit.core.errors import ErrorInfo, Misused
from remit.core.ports import Store
from remit.core.record import Record, common_fields
from remit.core.request import Request
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.runtime import reply
from remit.runtime.accept import GuardInput, first_refusal, normalised_call
from remit.runtime.deps import RuntimeDeps, Submission, facts_of_records

CHAIN_LIMIT = 100
"""Maximum length of a chain of resumed runs."""


class Replay:
    """The children of an earlier run, by call, in recording order."""

    def __init__(self, children: list[Record]) -> None:
        self._by_call: dict[str, list[Record]] = {}
        for child in children:
            # Children that the crash ended have no results: their caller calls again, and they run again.
            if child.result is None or child.result.stop_reason not in (StopReason.CRASHED, StopReason.CANCELLED):
                self._by_call.setdefault(normalised_call(child.agent, child.parameters), []).append(child)

    def take(self, request: Request) -> Record | None:
        records = self._by_call.get(normalised_call(request.agent, request.parameters))
        return records.pop(0) if records else None

    def finished(self) -> list[Record]:
        return [record for records in self._by_call.values() for record in records if record.result is not None]


class EarlierRun(NamedTuple):
    """The state that a resumed run left."""

    saved: Any
    replay: Replay | None
    trees: tuple[list[Record], ...] = ()

    def note_facts(self, submission: Submission, deps: RuntimeDeps) -> None:
        """Apply the policy facts of those trees to the resuming one."""
        for tree in self.trees:
            facts_of_records(tree, deps.agents.find, submission.tree)
            submission.tree.note_words(tree[0].parameters)


def earlier_run(store: Store, submission: Submission) -> EarlierRun:
    """The state of the run that `submission` resumes, and of those it resumed. Raises `Misused`. Blocking."""
    assert submission.agent is not None
    session_id, agent = submission.delegation.resumes, submission.delegation.agent
    saved: Any = None
    children: list[Record] = []
    trees: dict[str, list[Record]] = {}
    for _ in range(CHAIN_LIMIT):
        if session_id is None:
            break
        record = store.get(session_id)
        if record is None and session_id != submission.delegation.resumes:
            break  # pruned from the history: later runs are still there
        if record is None or not _may_resume(submission, record):
            raise Misused(f"There is no delegation {session_id} to resume.", code="INVALID_TARGET", advice="`remit history` lists them.")
        if record.agent != agent:
            raise Misused(
                f"{session_id} was handed to {record.agent}, not to {agent}.", advice=f"Resume it by delegating to {record.agent}."
            )
        if record.state is State.REFUSED:
            raise Misused(f"{session_id} was refused: it never ran.", advice="Delegate without resume.")
        if not record.state.is_settled:
            raise Misused(f"{session_id} has not ended.", advice=f"Wait for it, or `remit cancel {session_id}` first.")
        saved = store.checkpoint(session_id) if saved is None else saved
        # Only completed children are reused.
        children = [child for child in store.children(session_id) if child.result is not None and child.result.ok] + children
        trees.setdefault(record.root_id, store.tree(record.root_id))
        session_id = record.resumes
    return EarlierRun(saved, Replay(children) if submission.agent.spec.resumable else None, tuple(trees.values()))


def _may_resume(submission: Submission, record: Record) -> bool:
    """An agent may resume delegations of its own tree or of its principal. Roots are checked at the API."""
    own = submission.delegation
    is_own_tree = submission.caller is None or record.root_id == own.lineage.root_id
    return is_own_tree or on_behalf_of(record.caller_info) == on_behalf_of(own.caller_info)


def refused_for(submission: Submission, fault: Misused) -> Return:
    """The refusal of a request whose fault only the store could reveal."""
    error = ErrorInfo(type="invalid_parameters", message=fault.message, code=fault.code, recoverable=False, recommendation=fault.advice)
    return reply.refused_return(submission.delegation, error)


def refused_meanwhile(submission: Submission, deps: RuntimeDeps, now: float) -> Return | None:
    """Reading the earlier run took time: guards that passed before may refuse now."""
    delegation, caller = submission.delegation, submission.caller
    case = GuardInput(
        target=delegation.agent,
        now=now,
        caller_path=delegation.lineage.path[:-1],
        caller_depth=delegation.lineage.depth - 1,
        caller_hard_at=None if caller is None else caller.delegation.deadline.hard_at,
        max_depth=deps.rules.max_depth,
        budget=submission.budget,
        closing=None if caller is None else caller.closing,
        ancestor_tasks=(),  # a cycle was looked for before
    )
    error = first_refusal(case)
    return None if error is None else reply.refused_return(delegation, error)


def delegation_of(record: Record, deps: RuntimeDeps, now: float, left: float | None = None) -> Delegation:
    """The recorded delegation, with its deadline converted from the wall clock to the monotonic clock. `left`: remaining seconds if
    measured by another machine's clock."""
    left = max(0.0, min(record.deadline_at - deps.clock.wall() if left is None else left, record.timeout_seconds))
    hard_at = now + left
    return Delegation(
        lineage=Lineage(record.session_id, record.root_id, record.parent_id, record.depth, record.path),
        deadline=Deadline(hard_at=hard_at, soft_at=hard_at - grace_seconds(left), timeout_seconds=record.timeout_seconds),
        key=record.key,
        **common_fields(record),
    )
