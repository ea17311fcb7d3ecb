"""Who is told what happens (S5.9, S4): that delegations start and end; to those who ask for more, every step and word of them too.

Where nobody listens, the engine asks an empty list and makes nothing; the steps are made only for those who want them. Listeners are
called on the event loop, after the thing is on record (what is said on the way: as it is said): they must not block, and what they raise
is theirs. `Happenings` is the same as an iterator, with room for so many that nobody has read yet. Used by `Remit.on_event`,
`Remit.happenings`, and `signals`.
"""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo, Misused
from remit.core.events import NOT_REACHED, STEPS, Event
from remit.core.happening import AT_DOORS, OUTCOMES, Happening, HappeningKind
from remit.core.result import Return
from remit.core.states import State
from remit.flow.reply import state_of

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine
    from remit.engine.running import Running

ROOM = 10_000
NOTHING_SAID: Mapping[str, Any] = MappingProxyType({})
_LOG = logging.getLogger("remit")

Listener = Callable[[Happening], None]


class Listeners(list[tuple[Listener, frozenset[HappeningKind]]]):
    """A plain list for the engine, whose emptiness is asked on every call; and those who wait for the end of it."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: frozenset[HappeningKind] = frozenset()
        """What anybody listens for."""
        self.wants_more = False
        """Somebody listens for more of delegations than starts and ends."""
        self._readers: weakref.WeakSet[Happenings] = weakref.WeakSet()

    def hear(self, listener: Listener, kinds: Iterable[HappeningKind] = OUTCOMES) -> Callable[[], None]:
        """Until what is given back is called."""
        heard = (listener, _known(kinds))
        self.append(heard)
        self.reckon()
        return partial(_forget, self, heard)

    def read(self, kinds: Iterable[HappeningKind] = OUTCOMES) -> "Happenings":
        reader = Happenings(self, kinds=kinds)
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        self.clear()
        self.reckon()
        for reader in list(self._readers):
            reader.close()

    def reckon(self) -> None:
        self.wanted = frozenset().union(*(kinds for _, kinds in self))
        self.wants_more = not self.wanted <= OUTCOMES | AT_DOORS

    def tell(self, happening: Happening) -> None:
        for listener, kinds in tuple(self):
            if happening.kind not in kinds:
                continue
            try:
                listener(happening)
            except Exception:  # noqa: BLE001 - users' code: whatever it raises must not become the delegation's
                _LOG.warning("A listener of remit's events raised.", exc_info=True)


class Happenings:
    """What happens from now on, in order. Ends when the `Remit` is closed, or this is."""

    def __init__(self, listeners: Listeners, room: int = ROOM, kinds: Iterable[HappeningKind] = OUTCOMES) -> None:
        self.lost = 0
        """So many were not read in time; the oldest were dropped for newer ones."""
        self._kept: deque[Happening] = deque()
        self._room = room
        self._is_closed = False
        self._news = asyncio.Event()
        itself = weakref.ref(self)  # whoever forgets it is not listened for any more

        def take(happening: Happening) -> None:
            reader = itself()
            if reader is not None:
                reader._take(happening)

        weakref.finalize(self, listeners.hear(take, kinds))

    def __aiter__(self) -> "Happenings":
        return self

    async def __anext__(self) -> Happening:
        while not self._kept:
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._kept.popleft()

    def close(self) -> None:
        """What was kept can still be read."""
        self._is_closed = True
        self._news.set()

    def _take(self, happening: Happening) -> None:
        if self._is_closed:
            return
        if len(self._kept) >= self._room:
            self._kept.popleft()
            self.lost += 1
        self._kept.append(happening)
        self._news.set()


def tell_queued(engine: "EmbeddedEngine", running: "Running") -> None:
    """The steps up to its being on record; it waits for a slot."""
    _tell_steps(engine.listeners, running.delegation, running.step_times, running, State.QUEUED)


def tell_started(engine: "EmbeddedEngine", running: "Running") -> None:
    _tell_steps(engine.listeners, running.delegation, running.step_times, running, State.RUNNING)
    engine.listeners.tell(_of(HappeningKind.STARTED, running.delegation, engine.clock.wall(), State.RUNNING))


def tell_reached(running: "Running") -> None:
    """Steps on the way; asked for where `wants_more`."""
    _tell_steps(running.engine.listeners, running.delegation, running.step_times, running, running.state)


def tell_said(running: "Running", event: Event) -> None:
    """What it says, as it says it; asked for where `wants_more`."""
    listeners, kind = running.engine.listeners, HappeningKind(f"delegation.{event.kind}")
    if kind in listeners.wanted:
        listeners.tell(_of(kind, running.delegation, event.at, running.state, body=event.body))


def tell_settled(engine: "EmbeddedEngine", running: "Running", result: Return) -> None:
    _tell_steps(engine.listeners, running.delegation, running.step_times, running, state_of(result))
    tell_ended(engine, running.delegation, result, running.tokens, running.cost, running.step_times)


def tell_refused(engine: "EmbeddedEngine", delegation: Delegation, refusal: Return, step_times: Sequence[float | None]) -> None:
    _tell_steps(engine.listeners, delegation, step_times, None, State.REFUSED)
    tell_ended(engine, delegation, refusal, step_times=step_times)


def tell_ended(
    engine: "EmbeddedEngine",
    delegation: Delegation,
    result: Return,
    tokens: int = 0,
    cost: float = 0.0,
    step_times: Sequence[float | None] = (),
) -> None:
    now, kind = engine.clock.wall(), HappeningKind.COMPLETED if result.ok else HappeningKind.FAILED
    steps = tuple(NOT_REACHED if at is None else at for at in step_times)
    engine.listeners.tell(_of(kind, delegation, now, state_of(result), result, tokens, cost, step_times=steps))


def tell_at_door(listeners: Listeners, *, door: str, principal: str | None, at: float, error: ErrorInfo | None = None) -> None:
    """Of a request that was let in, or was not."""
    kind = HappeningKind.ADMITTED if error is None else HappeningKind.TURNED_AWAY
    if kind in listeners.wanted:
        listeners.tell(Happening(kind=kind, at=at, door=door, principal=principal, success=error is None, error=error))


def _tell_steps(
    listeners: Listeners, delegation: Delegation, step_times: Sequence[float | None], running: "Running | None", state: State
) -> None:
    """Those that were reached and not told yet, in their order, each with its own time."""
    if HappeningKind.STEP not in listeners.wanted:
        return
    begin, told = 0 if running is None else running.steps_told, 0
    for position in range(begin, len(step_times)):
        at = step_times[position]
        if at is not None and at == at:  # reached: neither None nor NOT_REACHED
            told = position + 1
            listeners.tell(_of(HappeningKind.STEP, delegation, at, state, body={"step": str(STEPS[position])}))
    if running is not None and told:
        running.steps_told = told


def _of(
    kind: HappeningKind,
    delegation: Delegation,
    at: float,
    state: State,
    result: Return | None = None,
    tokens: int = 0,
    cost: float = 0.0,
    *,
    body: Mapping[str, Any] = NOTHING_SAID,
    step_times: tuple[float, ...] = (),
) -> Happening:
    lineage, came = delegation.lineage, delegation.came
    target, _, operation = delegation.agent.partition(".")
    return Happening(
        kind=kind,
        at=at,
        session_id=lineage.session_id,
        root_id=lineage.root_id,
        parent_id=lineage.parent_id,
        depth=lineage.depth,
        target=target,
        operation=operation or None,
        state=str(state),
        duration_seconds=None if result is None else max(0.0, at - delegation.created_at),
        success=None if result is None else result.ok,
        error=result.errors[0] if result is not None and result.errors else None,
        tokens=tokens,
        cost=cost,
        principal=None if came is None else came.principal,
        door=(came.door or None) if came is not None else None,
        body=body,
        delegation=delegation,
        result=result,
        step_times=step_times,
    )


def _known(kinds: Iterable[HappeningKind]) -> frozenset[HappeningKind]:
    try:
        return frozenset(map(HappeningKind, (kinds,) if isinstance(kinds, str) else kinds))
    except ValueError as error:
        raise Misused(f"{error}.", advice=f"Use {', '.join(HappeningKind)}.") from None


def _forget(listeners: Listeners, heard: tuple[Listener, frozenset[HappeningKind]]) -> None:
    if heard in listeners:
        listeners.remove(heard)
        listeners.reckon()
