"""How records, agents and states look in the REST API. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.lineage import ROOT_CALLER
from remit.core.record import Record
from remit.core.states import State
from remit.settings.values import Settings
from remit.tool.catalogue import parts_of
from remit.tool.result import DelegateResult, result_of_record
from remit.tool.schema import parameters_schema

_STATES: dict[str, tuple[State, ...]] = {
    "QUEUED": (State.QUEUED,),
    "RUNNING": (State.RUNNING,),
    "COMPLETED": (State.COMPLETED,),
    "FAILED": (State.FAILED, State.PARTIAL, State.BLOCKED, State.REFUSED),
    "CANCELLED": (State.CANCELLED,),
    "TIMEOUT": (State.TIMEOUT,),
}


def states_shown_as(shown: Sequence[str]) -> tuple[State, ...]:
    """Which states of the record are shown as one of those."""
    return tuple(state for one in dict.fromkeys(shown) for state in _STATES[one])


def task_view(record: Record, result: DelegateResult | None = None) -> dict[str, Any]:
    """`result`: how it stands, where more than the record was looked at."""
    came = record.came
    lineage = {
        "rootId": record.root_id,
        "parentId": record.parent_id,
        "depth": record.depth,
        "path": list(record.path),
        "priority": record.priority.name.lower(),
        "deadline": datetime.fromtimestamp(record.deadline_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "principal": came.principal if came is not None else ROOT_CALLER,
        "session": came.session if came is not None else None,
    }
    return {**(result or result_of_record(record)).to_dict(), "lineage": lineage}


def agent_view(spec: AgentSpec, settings: Settings) -> dict[str, Any]:
    limits = settings.limits_for(spec.name)
    target, operation = parts_of(spec.name)
    return {
        "name": spec.name,
        "target": target,
        "operation": operation,
        "description": spec.description,
        "parameters": parameters_schema(spec),
        "timeout": 1000 * min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds),
        "maxTimeout": 1000 * limits.maximum_seconds,
    }
