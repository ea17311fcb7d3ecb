"""Who is told when a delegation starts and ends (S5.9). Where nobody listens, the engine asks an empty list and makes nothing.

Listeners are called on the event loop, after the thing is on record: they must not block, and what they raise is theirs. `Happenings` is
the same as an iterator, with room for so many that nobody has read yet. Used by `Remit.on_event` and `Remit.happenings`.
"""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from remit.core.delegation import Delegation
from remit.core.happening import Happening, HappeningKind
from remit.core.result import Return
from remit.core.states import State
from remit.flow.reply import state_of

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine
    from remit.engine.running import Running

ROOM = 10_000
_LOG = logging.getLogger("remit")

Listener = Callable[[Happening], None]


class Listeners(list[Listener]):
    """A plain list for the engine, whose emptiness is asked on every call; and those who wait for the end of it."""

    def __init__(self) -> None:
        super().__init__()
        self._readers: weakref.WeakSet[Happenings] = weakref.WeakSet()

    def hear(self, listener: Listener) -> Callable[[], None]:
        """Until what is given back is called."""
        self.append(listener)
        return partial(_forget, self, listener)

    def read(self) -> "Happenings":
        reader = Happenings(self)
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        self.clear()
        for reader in list(self._readers):
            reader.close()

    def tell(self, happening: Happening) -> None:
        for listener in tuple(self):
            try:
                listener(happening)
            except Exception:  # noqa: BLE001 - users' code: whatever it raises must not become the delegation's
                _LOG.warning("A listener of remit's events raised.", exc_info=True)


class Happenings:
    """What happens from now on, in order. Ends when the `Remit` is closed, or this is."""

    def __init__(self, listeners: Listeners, room: int = ROOM) -> None:
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

        weakref.finalize(self, listeners.hear(take))

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


def tell_started(engine: "EmbeddedEngine", running: "Running") -> None:
    engine.listeners.tell(_of(HappeningKind.STARTED, running.delegation, engine.clock.wall(), State.RUNNING))


def tell_ended(engine: "EmbeddedEngine", delegation: Delegation, result: Return, tokens: int = 0, cost: float = 0.0) -> None:
    now, kind = engine.clock.wall(), HappeningKind.COMPLETED if result.ok else HappeningKind.FAILED
    engine.listeners.tell(_of(kind, delegation, now, state_of(result), result, tokens, cost))


def _of(
    kind: HappeningKind, delegation: Delegation, at: float, state: State, result: Return | None = None, tokens: int = 0, cost: float = 0.0
) -> Happening:
    lineage = delegation.lineage
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
    )


def _forget(listeners: Listeners, listener: Listener) -> None:
    if listener in listeners:
        listeners.remove(listener)
