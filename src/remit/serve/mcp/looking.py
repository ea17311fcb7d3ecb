"""How a delegation is doing, as a document: its step, age, last sign of life, spend, children, and whether it looks stuck.

Reads the store only, so it tells the same whichever process runs the delegation. Used by the tool `delegation_status`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.core.events import STEPS, EventKind
from remit.core.ports import Store
from remit.core.record import Record
from remit.engine.vitals import Stuck, below, living_owners, signs_with_children, stuck

GONE = "its process is gone; delegation_result recovers it"
LIVING = 50
"""So many are listed when all are asked for."""


def status_document(store: Store, run_folder: Path, record: Record, now: float) -> dict[str, Any]:
    """Of one delegation, with everything below it."""
    tree = below(store.tree(record.root_id), record.session_id)
    heard = _heard(store, tree)
    living = living_owners(store, run_folder)
    lines = {one.session_id: _line(store, one, heard, living, now) for one in tree}
    children = [lines[one.session_id] for one in tree if one.session_id != record.session_id]
    return {
        **lines[record.session_id],
        "parent_id": record.parent_id,
        "root_id": record.root_id,
        "path": list(record.path),
        "tokens_in_all": sum(line["tokens"] for line in lines.values()),
        "cost_in_all": sum(line["cost"] for line in lines.values()),
        "children": children,
    }


def living_document(store: Store, run_folder: Path, now: float, is_shown: Callable[[Record], bool] = lambda _: True) -> dict[str, Any]:
    """Of everything queued or running in the project that is the caller's to see."""
    records = list(filter(is_shown, store.live()))
    heard = _heard(store, records)
    living = living_owners(store, run_folder) if records else set()
    lines = [_line(store, record, heard, living, now) for record in records[:LIVING]]
    return {"active": len(records), "delegations": lines}


def _heard(store: Store, records: Sequence[Record]) -> Mapping[str, float]:
    return signs_with_children(records, store.last_sign([record.session_id for record in records]))


def _line(store: Store, record: Record, heard: Mapping[str, float], living: Collection[str], now: float) -> dict[str, Any]:
    heard_at = heard[record.session_id]
    tokens, cost, doing = _said(store, record)
    end = record.settled_at or now
    return {
        "session_id": record.session_id,
        "state": str(record.state),
        "agent": record.agent,
        "depth": record.depth,
        "step": next((str(STEPS[at]) for at in reversed(range(len(STEPS))) if record.step_times[at] is not None), ""),
        "doing": doing,
        "age_seconds": round(max(0.0, end - record.created_at), 1),
        "left_seconds": 0.0 if record.state.is_settled else round(max(0.0, record.deadline_at - now), 1),
        "heard_seconds_ago": round(max(0.0, now - heard_at), 1),
        "tokens": tokens,
        "cost": cost,
        "stuck": _stuck(record, now, heard_at, living),
    }


def _said(store: Store, record: Record) -> tuple[int, float, str]:
    """Spent so far, and the last thing it said."""
    tokens, cost, doing = record.tokens, record.cost, ""
    if record.state.is_settled:
        return tokens, cost, doing
    for event in store.events(record.session_id):
        if event.kind is EventKind.SPENT:
            tokens, cost = event.body.get("tokens", 0), event.body.get("cost", 0.0)
        elif event.kind in (EventKind.PROGRESS, EventKind.NOTICE):
            doing = str(event.body.get("message", ""))[:300]
    return tokens, cost, doing


def _stuck(record: Record, now: float, heard_at: float, living: Collection[str]) -> str | None:
    match stuck(record, now, heard_at, living):
        case Stuck.GONE:
            return GONE
        case Stuck.LATE:
            return "past its deadline"
        case Stuck.QUIET:
            return f"nothing heard for {now - heard_at:.0f} s"
    return None
