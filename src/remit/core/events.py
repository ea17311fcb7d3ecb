"""Events of a delegation, numbered from 1: its thirteen steps, and the output of the agent."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Step(StrEnum):
    ANALYZE_REQUEST = "AnalyzeRequest"
    DETERMINE_COMPLEXITY = "DetermineComplexity"
    CHECK_LANGUAGE = "CheckLanguage"
    PREPARE_ROUTING = "PrepareRouting"
    CHECK_CYCLE_AND_DEPTH = "CheckCycleAndDepth"
    REGISTER_DELEGATION = "RegisterDelegation"
    ROUTE_TO_AGENT = "RouteToAgent"
    MONITOR_DELEGATION = "MonitorDelegation"
    RECEIVE_RESULTS = "ReceiveResults"
    VALIDATE_RETURN = "ValidateReturn"
    PROCESS_RESULTS = "ProcessResults"
    CLEANUP_DELEGATION = "CleanupDelegation"
    RETURN_TO_USER = "ReturnToUser"


STEPS = tuple(Step)
NOT_REACHED = float("nan")
"""Time of a step that was not reached, during collection; the store returns None."""
BEFORE_RUN = 7
"""Number of steps recorded before the agent runs; the others are recorded when it is settled."""
LAST = len(STEPS) + 1
"""Number of the last event of a delegation without output: after all steps."""


class EventKind(StrEnum):
    STEP = "step"
    PROGRESS = "progress"
    """`{message, fraction?}`"""
    DATA = "data"
    """`{chunk}`"""
    ARTIFACT = "artifact"
    """`{type, path, summary?}`: declared while the agent works"""
    NOTICE = "notice"
    """`{message}`: a message from remit itself: soft deadline, retry, repair, an abandoned agent"""
    SPENT = "spent"
    """`{tokens, cost}`: total spending so far"""
    CANCEL = "cancel"
    """`{state, reason, source}`: requested, stopping, stopped or killed"""
    COMPLETE = "complete"
    """`{result}`: the return"""
    ERROR = "error"
    """`{error, result}`: the return, if not completed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a delegation, numbered from 1."""

    session_id: str
    number: int
    at: float
    """Wall clock, seconds."""
    kind: EventKind
    body: dict[str, Any]


def events_of_steps(session_id: str, step_times: tuple[float | None, ...], chunk_count: int) -> list[Event]:
    """The steps of a delegation as numbered events: those before the run come first, the others after the agent's output."""
    events = []
    for position, at in enumerate(step_times):
        if at is not None:
            number = position + 1 + (chunk_count if position >= BEFORE_RUN else 0)
            events.append(Event(session_id=session_id, number=number, at=at, kind=EventKind.STEP, body={"step": STEPS[position]}))
    return events
