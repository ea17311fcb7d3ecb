"""Lifecycle events of one engine, and their listeners, which are called on the event loop."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Misused
from remit.core.events import NOT_REACHED
from remit.core.lifecycle import OUTCOMES, LifecycleEvent, LifecycleKind
from remit.core.result import Return, state_of
from remit.core.states import State

_LOG = logging.getLogger("remit")

Listener = Callable[[LifecycleEvent], None]


class LifecycleBus:
    """Publishes lifecycle events. Events without a listener are not created."""

    def __init__(self, listeners: Iterable[tuple[Listener, Iterable[LifecycleKind]]] = ()) -> None:
        self._listeners: list[tuple[Listener, frozenset[LifecycleKind]]] = []
        self._wanted: frozenset[LifecycleKind] = frozenset()
        self.has_listeners = False
        for listener, kinds in listeners:
            self.listen(listener, kinds)

    def listen(self, listener: Listener, kinds: Iterable[LifecycleKind] = OUTCOMES) -> Callable[[], None]:
        """Call `listener` for these kinds until the returned function is called."""
        try:
            entry = (listener, frozenset(map(LifecycleKind, (kinds,) if isinstance(kinds, str) else kinds)))
        except ValueError as error:
            raise Misused(f"{error}.", advice=f"Use {', '.join(LifecycleKind)}.") from None
        self._listeners.append(entry)
        self._update_wanted()
        return partial(self._remove, entry)

    def close(self) -> None:
        self._listeners.clear()
        self._update_wanted()

    def publish(self, event: LifecycleEvent) -> None:
        for listener, kinds in tuple(self._listeners):
            if event.kind not in kinds:
                continue
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - user code must not break the delegation
                _LOG.warning("A listener of remit's events raised.", exc_info=True)

    # ---- what an engine reports

    def started(self, delegation: Delegation, at: float) -> None:
        self.publish(_make_event(LifecycleKind.STARTED, delegation, at, State.RUNNING))

    def ended(
        self, delegation: Delegation, result: Return, at: float, tokens: int, cost: float, step_times: Sequence[float | None]
    ) -> None:
        event = _make_event(
            LifecycleKind.COMPLETED if result.ok else LifecycleKind.FAILED,
            delegation,
            at,
            state_of(result),
            duration_seconds=max(0.0, at - delegation.created_at),
            success=result.ok,
            error=result.errors[0] if result.errors else None,
            tokens=tokens,
            cost=cost,
            result=result,
            step_times=tuple(NOT_REACHED if step is None else step for step in step_times),
        )
        self.publish(event)

    def access(self, api: str, principal: str | None, at: float, error: ErrorInfo | None = None) -> None:
        """A request that an API admitted, or refused with `error`."""
        kind = LifecycleKind.ADMITTED if error is None else LifecycleKind.TURNED_AWAY
        if kind in self._wanted:
            self.publish(LifecycleEvent(kind=kind, at=at, door=api, principal=principal, success=error is None, error=error))

    def _remove(self, entry: tuple[Listener, frozenset[LifecycleKind]]) -> None:
        if entry in self._listeners:
            self._listeners.remove(entry)
            self._update_wanted()

    def _update_wanted(self) -> None:
        self._wanted = frozenset().union(*(kinds for _, kinds in self._listeners))
        self.has_listeners = bool(self._listeners)


def _make_event(kind: LifecycleKind, delegation: Delegation, at: float, state: State, **more: Any) -> LifecycleEvent:
    lineage, caller_info = delegation.lineage, delegation.caller_info
    target, _, operation = delegation.agent.partition(".")
    return LifecycleEvent(
        kind=kind,
        at=at,
        session_id=lineage.session_id,
        root_id=lineage.root_id,
        parent_id=lineage.parent_id,
        depth=lineage.depth,
        target=target,
        operation=operation or None,
        state=str(state),
        principal=None if caller_info is None else caller_info.principal,
        door=(caller_info.door or None) if caller_info is not None else None,
        delegation=delegation,
        **more,
    )
