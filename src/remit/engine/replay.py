"""Replay: a caller that is run again after a crash gets the recorded results of its finished children (design 4).

Its n-th delegation with the same agent and parameters returns the n-th recorded result instead of running again; a child that had not
finished and is resumable goes on under its own id, with its own children's results at hand.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.core.errors import ErrorInfo, Misused
from remit.core.record import Record
from remit.core.result import Return, StopReason
from remit.core.states import State
from remit.flow import reply
from remit.flow.accept import normalised_call
from remit.flow.guard import Case, budget, expired
from remit.flow.house import Order
from remit.flow.request import Request
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine


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


async def look_back(engine: "EmbeddedEngine", order: Order) -> bool:
    """Gather what the run that `order` resumes left; False, and a refusal in the order, when it cannot be gone on from."""
    try:
        order.earlier = await off_loop(earlier_of, engine, order)
    except Misused as fault:
        error = ErrorInfo(type="invalid_parameters", message=fault.message, code=fault.code, recoverable=False, recommendation=fault.advice)
        order.refusal = reply.refused(order.delegation, error)
        return False
    order.refusal = _refused_meanwhile(engine, order)
    return order.refusal is None


def _refused_meanwhile(engine: "EmbeddedEngine", order: Order) -> Return | None:
    """Looking back took time: what the guards saw before may no longer hold."""
    case = Case(
        target=order.delegation.agent,
        now=engine.loop.time(),
        caller_path=order.delegation.lineage.path[:-1],
        caller_depth=order.delegation.lineage.depth - 1,
        caller_hard_at=None if order.caller is None else order.caller.delegation.deadline.hard_at,
        max_depth=engine.house.rules.max_depth,
        budget=order.budget,
        closing=None if order.caller is None else order.caller.closing,
    )
    error = expired(case) or budget(case)
    return None if error is None else reply.refused(order.delegation, error)


def earlier_of(engine: "EmbeddedEngine", order: Order) -> Earlier:
    assert order.agent is not None
    session_id, agent = order.delegation.resumes, order.delegation.agent
    saved: Any = None
    children: list[Record] = []
    for _ in range(CHAIN_LIMIT):
        if session_id is None:
            break
        record = engine.store.get(session_id)
        if record is None and session_id != order.delegation.resumes:
            break  # forgotten by the history: what came after it is still there
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
    return Earlier(saved, Replay(children) if order.agent.spec.resumable else None)
