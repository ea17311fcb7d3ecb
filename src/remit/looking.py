"""What can be asked of an open `Remit`, and who is told what happens in it: the half of the door that changes nothing.

Reads the store, which all processes of the project share, so it answers for them all; only the events are of this process alone. `app`
makes a `Remit` of it.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.deadline import Clock
from remit.core.errors import ErrorInfo, Misused
from remit.core.events import Event
from remit.core.lifecycle import OUTCOMES, LifecycleEvent, LifecycleKind
from remit.core.ports import Store
from remit.core.record import HistoryQuery, Record, history_query, registry_entry
from remit.core.result import Return
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.core.metrics import Metrics
    from remit.core.settings import Settings
    from remit.engines.embedded.embedded import EmbeddedEngine
    from remit.engines.embedded.events import LifecycleEvents, Listeners, Watcher


class Looking:
    settings: "Settings"
    clock: Clock
    store: Store
    engine: "EmbeddedEngine"
    """Not of a `Remit` that an agent opened: the owner of its tree runs everything."""
    folder: Path
    _attachment: Any
    _own_watcher: "Watcher | None" = None
    """Of one that an agent opened."""
    _is_open: bool

    async def describe(self, session_id: str) -> Record:
        """What is known of a delegation."""
        from remit.engines.embedded.events import known

        return await known(self.store, session_id)

    async def tree(self, session_id: str) -> list[Record]:
        """The whole tree a delegation belongs to, callers before their children."""
        record = await self.describe(session_id)
        return await off_loop(self.store.tree, record.root_id)

    async def children(self, session_id: str) -> list[Record]:
        return await off_loop(self.store.children, session_id)

    async def events(self, session_id: str, after: int = 0) -> list[Event]:
        return await off_loop(self.store.events, session_id, after)

    async def live(self) -> list[Record]:
        """Everything queued or running in this project, whichever process runs it."""
        return await off_loop(self.store.live)

    async def history(self, *, status: str | None = None, **query: Any) -> list[Record]:
        """Finished and living delegations, newest first: by root_id, agent, status, task_number, since, until; paged by before_session."""
        return await off_loop(self.store.history, history_query(status, query))

    async def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """The events of a delegation as they come, also of another process's, from the one after number `after`; the last is its return.

        Nothing waits for whoever reads slowly, and nothing is kept for it."""
        from remit.engines.embedded.events import follow

        async with contextlib.aclosing(follow(self.store, self._watcher(), self._running_here().get, session_id, after)) as events:
            async for event in events:
                yield event

    async def result(self, session_id: str, *, wait_seconds: float = 0.0) -> Return | None:
        """The return of a delegation, waiting up to `wait_seconds` for it."""
        from remit.engines.embedded.events import settled

        return await settled(self.store, self._watcher(), self._running_here().get, session_id, wait_seconds)

    async def metrics(self, since_seconds: float | None = None) -> "Metrics":
        """Of the delegations asked for in the last `since_seconds`, or of all on record, whoever ran them."""
        from remit.core.metrics import metrics_of

        now = self.clock.wall()
        since = None if since_seconds is None else now - since_seconds
        return metrics_of(await off_loop(self.store.tally, since), since=since, until=now)

    def on_event(self, listener: Callable[[LifecycleEvent], None], kinds: Iterable[LifecycleKind] = OUTCOMES) -> Callable[[], None]:
        """Call `listener` when a delegation starts or ends here, on the event loop, until what is given back is called.

        `kinds`: what to listen for instead; `EVERYTHING` is also each step of the flow, what delegations say, and who came to a door."""
        return self._listeners().hear(listener, kinds)

    def happenings(self, kinds: Iterable[LifecycleKind] = OUTCOMES) -> "LifecycleEvents":
        """The same as an iterator, `async for`: what happens from now on, until this is closed."""
        return self._listeners().read(kinds)

    def note_visit(self, door: str, principal: str | None, error: ErrorInfo | None = None) -> None:
        """A door says that a request was let in, or (`error`) was not: to whoever listens for it."""
        if self.engine.listeners:
            from remit.engines.embedded.events import tell_at_door

            tell_at_door(self.engine.listeners, door=door, principal=principal, at=self.clock.wall(), error=error)

    def _listeners(self) -> "Listeners":
        self._must_be_open()
        if self._attachment is not None:
            raise Misused("An agent's own Remit runs nothing itself.", advice="Listen where its tree is run.")
        return self.engine.listeners

    def _watcher(self) -> "Watcher":
        if self._attachment is None:
            return self.engine.watcher
        if self._own_watcher is None:
            from remit.engines.embedded.events import Watcher

            self._own_watcher = Watcher(self.store, self.folder / "run")
        return self._own_watcher

    def _running_here(self) -> Mapping[str, Any]:
        return self.engine.running if self._attachment is None else {}

    def export_state(self) -> dict[str, Any]:
        """The registry: what is active, how many are known, and the list with those settled within the retention.

        At most the newest 1,000 settled ones; `history` has them all.
        """
        kept_since = self.clock.wall() - self.settings.retention_seconds
        live = self.store.live()
        begun_since = kept_since - self.settings.longest_timeout_seconds
        newest = self.store.history(HistoryQuery(since=begun_since, limit=1000))
        recent = [record for record in newest if record.settled_at is not None and record.settled_at >= kept_since]
        return {
            "active": len(live),
            "total": self.store.count(),
            "abandoned": dict(self.engine.abandoned) if self._attachment is None else {},
            "list": [registry_entry(record) for record in (*live, *recent)],
        }

    def _must_be_open(self) -> None:
        if not self._is_open:
            raise Misused("This Remit is not open.", advice="Use it inside `async with Remit.open(…) as remit:`.")
