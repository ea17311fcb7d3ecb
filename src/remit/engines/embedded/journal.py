"""The journal: collects writes during one turn of the loop and commits them together. A write is reported only after it is durable.

With durability "process" the commit runs on the loop, once per turn: no thread hop, about 20 µs. It moves to the writer thread if another
process has the lock, and always with "power", where each group costs an fsync. If the disk is full or broken, waiters get the error;
outcomes are kept and retried until they are written."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from typing import Any, NamedTuple, TypeVar

from remit.core.errors import Unavailable
from remit.core.ports import Store
from remit.core.record import AppendEvent, BeginDelegation, RecordDelegation, SettleDelegation, Write, WriteResult

RETRY_SECONDS = 0.25
PATIENCE_SECONDS = 0.6
"""How long a caller waits for an outcome to be written before it is answered anyway, with a warning."""

CLOSED = Unavailable("The orchestrator has closed.", code="STORE_UNAVAILABLE", advice="Open the project again.")

T = TypeVar("T")
log = logging.getLogger("remit.engine")


class Clash:
    """The session id was taken: draw again."""


class KeyConflict(NamedTuple):
    """The idempotency key belongs to another delegation."""

    session_id: str


class OverBudget(NamedTuple):
    """Its tree or its principal has reached a limit, or passed it with this spending, by what any process has recorded."""

    lack: str
    is_of_tree: bool = False


class OutcomeConflict:
    """A process that took the delegation over recorded another outcome first, which is kept."""


Problem = Clash | KeyConflict | OverBudget | OutcomeConflict | Unavailable | None
Then = Callable[[Problem], None]


class Journal:
    def __init__(
        self, store: Store, loop: asyncio.AbstractEventLoop, context: Context, *, in_loop: bool, before: Callable[[], None] = lambda: None
    ) -> None:
        self.store = store
        self._loop = loop
        self._context = context
        self._in_loop = in_loop
        self._before = before
        """Called before each group that may record a delegation: writes what must be on disk before it runs."""
        self._writes: list[Write] = []
        self._thens: list[Then | None] = []
        self._armed: asyncio.Handle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="remit-journal")
        self._thread_busy = False
        self._calls: list[tuple[Callable[[Store], Any], asyncio.Future[Any]]] = []
        self._unwritten: list[tuple[Write, Then | None, float]] = []
        """Unwritten outcomes and events, and since when."""
        self._error: Unavailable | None = None
        self._is_retry_scheduled = False
        self._was_call = False
        self._patience_armed = False
        self._closed = False

    def write(self, write: Write, then: Then | None = None, *, at_once: bool = False) -> None:
        """`at_once`: commit now instead of at the end of the turn. Useful only if nothing else can join the group."""
        if self._closed:
            if then is not None:
                self._loop.call_soon(_call, then, CLOSED, context=self._context)
            return
        if at_once and self._armed is None and not self._thread_busy:  # nothing else waits then
            self._commit([write], [then])
            return
        self._writes.append(write)
        self._thens.append(then)
        if not at_once:
            if self._armed is None:
                self._arm()
            return
        if self._armed is not None:
            self._armed.cancel()
        self._flush()

    async def written(self, write: Write) -> None:
        """Wait until it is durable. Raises `Unavailable` if it could not be written."""
        written: asyncio.Future[None] = self._loop.create_future()

        def then(problem: Problem) -> None:
            if written.done():
                return
            if isinstance(problem, Unavailable):
                written.set_exception(problem)
            else:
                written.set_result(None)

        self.write(write, then)
        await written

    def call(self, function: Callable[[Store], T]) -> "asyncio.Future[T]":
        """Run `function` on the writer thread, between two groups: only that thread writes to the store."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            future.set_exception(CLOSED)
            return future
        self._calls.append((function, future))
        self._arm()
        return future

    @property
    def owes(self) -> int:
        return len(self._unwritten)

    async def drain(self, seconds: float) -> None:
        """Wait until everything is written, at most `seconds`."""
        end = self._loop.time() + seconds
        while (  # noqa: ASYNC110 - only at shutdown; five conditions do not justify an event
            self._writes or self._calls or self._thread_busy or self._unwritten
        ) and self._loop.time() < end:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.drain(5.0)
        self._closed = True
        thens, self._writes, self._thens = self._thens, [], []
        for then in (*thens, *(then for _, then, _ in self._unwritten)):
            if then is not None:
                _call(then, CLOSED)
        for _, waiter in self._calls:
            if not waiter.done():
                waiter.set_exception(CLOSED)
        self._thread.shutdown(wait=False)

    def _flush(self) -> None:
        self._armed = None
        if self._closed:
            return
        if self._thread_busy:
            self._wait_with_patience()
            return
        if self._calls and not (self._writes and self._was_call):  # alternating: neither delays the other
            self._was_call = True
            self._run_call(*self._calls.pop(0))
            return
        self._was_call = False
        writes, thens = self._writes, self._thens
        if not writes:
            return
        self._writes, self._thens = [], []
        self._commit(writes, thens)

    def _commit(self, writes: list[Write], thens: list[Then | None]) -> None:
        applied = None
        try:
            if len(writes) > 1 or type(writes[0]) is not SettleDelegation:
                self._before()
            if self._in_loop:
                applied = self.store.try_apply(writes)
        except Exception as error:  # noqa: BLE001 - any exception of the store is passed to the waiters
            self._refused(writes, thens, _as_unavailable(error))
            return
        if applied is None:
            self._hand_to_thread(writes, thens)
            return
        self._tell(writes, thens, applied)
        if self._writes or self._calls:
            self._arm()

    def _hand_to_thread(self, writes: list[Write], thens: list[Then | None]) -> None:
        """Write on the thread, however long it takes; finished delegations wait for it only for a limited time."""
        impatient = self._loop.call_later(PATIENCE_SECONDS, self._answer_early, writes, thens, context=self._context)

        def finished(future: Future[WriteResult]) -> None:
            impatient.cancel()
            error = future.exception()
            if error is None:
                self._tell(writes, thens, future.result())
            else:
                self._refused(writes, thens, _as_unavailable(error))

        self._on_thread(self.store.apply, writes, finished)

    def _run_call(self, function: Callable[[Store], Any], waiter: "asyncio.Future[Any]") -> None:
        def finished(future: Future[Any]) -> None:
            if waiter.done():
                return
            error = future.exception()
            if error is None:
                waiter.set_result(future.result())
            else:
                waiter.set_exception(error)

        self._on_thread(function, self.store, finished)

    def _on_thread(self, function: Callable[[Any], Any], argument: Any, finished: Callable[[Future[Any]], None]) -> None:
        """One at a time: while the thread has the store, everything else waits."""
        self._thread_busy = True

        def back(done: Future[Any]) -> None:
            self._thread_busy = False
            finished(done)
            self._go_on()

        def on_thread(done: Future[Any]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(back, done, context=self._context)

        # Neither function refers to the future: a cycle would keep the delegations of the group until the next garbage collection.
        self._thread.submit(function, argument).add_done_callback(on_thread)

    def _go_on(self) -> None:
        if self._writes or self._calls:
            self._arm()

    def _arm(self) -> None:
        """Commit at the end of this turn of the loop."""
        if self._armed is None:
            self._armed = self._loop.call_soon(self._flush, context=self._context)

    def _tell(self, writes: list[Write], thens: list[Then | None], applied: WriteResult) -> None:
        met = any(applied)
        for position, then in enumerate(thens):
            if then is not None:
                try:
                    then(_problem(writes[position], applied) if met else None)
                except Exception:  # one failure must not leave the others of its group waiting
                    log.exception("A callback after a write failed")

    def _wait_with_patience(self) -> None:
        """The thread has the store: answer new waiters when their time ends, if it still has it then."""
        if not self._patience_armed:
            self._patience_armed = True
            self._loop.call_later(PATIENCE_SECONDS, self._patience_ends, context=self._context)

    def _patience_ends(self) -> None:
        self._patience_armed = False
        if self._thread_busy and not self._closed:
            self._answer_early(self._writes, self._thens)

    def _answer_early(self, writes: list[Write], thens: list[Then | None]) -> None:
        """The store is busy: report outcomes before they are recorded, with a warning. They are written nevertheless."""
        busy = Unavailable("the database is busy", code="STORE_UNAVAILABLE", advice="Another process has it locked, or the disk is slow.")
        for position, write in enumerate(writes):
            then = thens[position]
            if isinstance(write, SettleDelegation | RecordDelegation) and then is not None:
                thens[position] = None
                _call(then, busy)

    def _refused(self, writes: list[Write], thens: list[Then | None], error: Unavailable) -> None:
        """The group was not written. Delegations that have not run get the error; outcomes and events are kept and retried."""
        now = self._loop.time()
        lost_starts = {write.session_id for write in writes if isinstance(write, BeginDelegation)}
        for write, then in zip(writes, thens, strict=True):
            if isinstance(write, AppendEvent) or (isinstance(write, SettleDelegation) and write.session_id not in lost_starts):
                self._unwritten.append((write, then, now))
            elif then is not None:
                _call(then, error)
        self._error = error
        self._schedule_retry()

    def _schedule_retry(self) -> None:
        if self._unwritten and not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            self._loop.call_later(RETRY_SECONDS, self._retry_outcomes, context=self._context)

    def _retry_outcomes(self) -> None:
        """Retry unwritten outcomes on the thread; answer those that have waited long enough."""
        self._is_retry_scheduled = False
        if not self._unwritten or self._closed:
            return
        now = self._loop.time()
        for position, (write, then, since) in enumerate(self._unwritten):
            if then is not None and now - since >= PATIENCE_SECONDS:
                self._unwritten[position] = (write, None, since)
                _call(then, self._error)
        if self._thread_busy:
            self._schedule_retry()
            return
        waiting, self._unwritten = self._unwritten, []
        writes, thens = [write for write, _, _ in waiting], [then for _, then, _ in waiting]
        impatient = self._loop.call_later(PATIENCE_SECONDS, self._answer_early, writes, thens, context=self._context)

        def finished(future: Future[WriteResult]) -> None:
            impatient.cancel()
            error = future.exception()
            if error is None:
                self._tell(writes, thens, future.result())
                return
            self._error = _as_unavailable(error)
            # unwritten since then, not since now
            still = [(write, then, since) for (write, _, since), then in zip(waiting, thens, strict=True)]
            self._unwritten = still + self._unwritten
            self._schedule_retry()

        self._on_thread(self.store.apply, writes, finished)


def _call(then: Then, problem: Problem) -> None:
    try:
        then(problem)
    except Exception:  # as in `_tell`
        log.exception("A callback after a write failed")


def _problem(write: Write, applied: WriteResult) -> Problem:
    if isinstance(write, BeginDelegation | RecordDelegation):
        session_id = write.session_id
        if session_id in applied.clashes:
            return Clash()
        if session_id in applied.taken_keys:
            return KeyConflict(applied.taken_keys[session_id])
        if session_id in applied.over_budget:
            return OverBudget(applied.over_budget[session_id])
        if session_id in applied.over_limits:
            return OverBudget(applied.over_limits[session_id], is_of_tree=True)
    elif isinstance(write, AppendEvent) and (lack := applied.overspent.get((write.event.session_id, write.event.number))) is not None:
        return OverBudget(lack, is_of_tree=True)
    elif isinstance(write, SettleDelegation) and write.session_id in applied.already_settled:
        return OutcomeConflict()
    return None


def _as_unavailable(error: BaseException) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    return Unavailable(f"The journal could not be written: {error!r}.", code="STORE_UNAVAILABLE", advice="See `remit config` for its path.")
