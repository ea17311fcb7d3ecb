"""How a delegation looks from outside: whether somebody still runs it, when it was last heard of, whether it seems stuck.

Reads the store only, so it judges the same whichever process runs the delegation. The one judgement for everybody who shows
delegations; each has words of its own for it.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from remit.core.ports import Store
from remit.core.record import Record
from remit.core.states import State
from remit.engine.owners import is_dead

QUIET_SECONDS = 60.0
QUIET_SHARE = 0.5
"""Of its timeout: nothing heard for longer than this, or than `QUIET_SECONDS`, looks stuck."""
LATE_SECONDS = 2.0
"""So long after its deadline everything has been stopped, unless whoever runs it is gone."""


class Stuck(StrEnum):
    """Why it looks stuck."""

    GONE = "gone"
    """Its process is: nobody runs it any more."""
    LATE = "late"
    """Past its deadline, and not ended."""
    QUIET = "quiet"
    """Nothing was heard of it for long."""


def living_owners(store: Store, run_folder: Path) -> set[str]:
    """Those who may still be running something."""
    return {owner.owner_id for owner in store.owners() if not is_dead(owner, run_folder)}


def is_gone(record: Record, living: Collection[str]) -> bool:
    return not record.state.is_settled and record.owner not in living


def stuck(record: Record, now: float, heard_at: float, living: Collection[str]) -> Stuck | None:
    """Why it looks stuck; None when it does not."""
    if record.state.is_settled:
        return None
    if is_gone(record, living):
        return Stuck.GONE
    if now > record.deadline_at + LATE_SECONDS:
        return Stuck.LATE
    quiet = now - heard_at
    if record.state is State.RUNNING and (quiet > QUIET_SECONDS or quiet > QUIET_SHARE * record.timeout_seconds):
        return Stuck.QUIET
    return None


def signs_with_children(records: Iterable[Record], signs: Mapping[str, float]) -> dict[str, float]:
    """When each was last heard of, a sign of a child counting for its callers: who waits for a busy child is not stuck."""
    known = list(records)
    heard = {record.session_id: signs.get(record.session_id, record.created_at) for record in known}
    for record in sorted(known, key=lambda r: -r.depth):
        if record.parent_id in heard:
            heard[record.parent_id] = max(heard[record.parent_id], heard[record.session_id])
    return heard


def below(records: Iterable[Record], session_id: str) -> list[Record]:
    """A delegation and everything under it, out of its whole tree (callers come before their children)."""
    inside = {session_id}
    found = []
    for record in records:
        if record.session_id in inside or record.parent_id in inside:
            inside.add(record.session_id)
            found.append(record)
    return found
