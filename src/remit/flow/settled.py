"""The handle of a delegation that is settled already, and the last event of every stream."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from remit.core.events import Event, EventKind
from remit.core.result import Return


def final_event(result: Return, number: int, at: float) -> Event:
    """The last chunk of a stream: the same object `result()` gives (S5.7)."""
    if result.ok:
        return Event(session_id=result.session_id, number=number, at=at, kind=EventKind.COMPLETE, body={"result": result.to_dict()})
    body = {"error": result.errors[0].to_dict() if result.errors else {}, "result": result.to_dict()}
    return Event(session_id=result.session_id, number=number, at=at, kind=EventKind.ERROR, body=body)


class SettledHandle:
    __slots__ = ("_result",)

    def __init__(self, result: Return) -> None:
        self._result = result

    @property
    def session_id(self) -> str:
        return self._result.session_id

    async def result(self) -> Return:
        return self._result

    async def stream(self) -> AsyncIterator[Event]:
        yield final_event(self._result, 1, 0.0)

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        return []
