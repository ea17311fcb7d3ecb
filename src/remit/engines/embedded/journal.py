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
CLOSE_SECONDS = 5.0
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
_BUSY = Unavailable("the database is busy", code="STORE_UNAVAILABLE", advice="Another process has it locked, or the disk is slow.")


class _Group(NamedTuple):
    """Writes that are committed together, and who is told. Emptied then: what still refers to it keeps no delegation."""

    writes: list[Write]
    thens: list[Then | None]


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
        self._next = _Group([], [])
        self._armed: asyncio.Handle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="remit-journal")
        self._thread_busy = False
        self._calls: list[tuple[Callable[[Store], Any], asyncio.Future[Any]]] = []
        self._owed: list[_Group] = []
        """Outcomes and events that the store refused: tried again until it takes them."""
        self._was_call = False
        self._closed = False

    def write(self, write: Write, then: Then | None = None, *, at_once: bool = False) -> None:
        """`at_once`: commit now instead of at the end of the turn. Useful only if nothing else can join the group."""
        if self._closed:
            if then is not None:
                self._loop.call_soon(_call, then, CLOSED, context=self._context)
            return
        if at_once and self._armed is None and not self._thread_busy:  # nothing else waits then
            self._commit(_Group([write], [then]))
            return
        if self._thread_busy and not self._next.writes:
            self._limit_wait(self._next, _BUSY)
        self._next.writes.append(write)
        self._next.thens.append(then)
        if at_once and self._armed is not None:
            self._armed.cancel()
            self._flush()
        else:
            self._arm()

    async def written(self, write: Write) -> None:
        """Wait until it is durable. Raises `Unavailable` if it could not be written."""
        problem = await self.problem_of(write)
        if isinstance(problem, Unavailable):
            raise problem

    def problem_of(self, write: Write, *, at_once: bool = False) -> "asyncio.Future[Problem]":
        future: asyncio.Future[Problem] = self._loop.create_future()
        self.write(write, lambda problem: None if future.done() else future.set_result(problem), at_once=at_once)
        return future

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
        return len(self._owed)

    async def close(self) -> None:
        end = self._loop.time() + CLOSE_SECONDS
        while (self._next.writes or self._calls or self._thread_busy or self._owed) and self._loop.time() < end:  # noqa: ASYNC110 - only at shutdown
            await asyncio.sleep(0.005)
        self._closed = True
        for group in (self._next, *self._owed):
            for then in group.thens:
                if then is not None:
                    _call(then, CLOSED)
        for _, waiter in self._calls:
            if not waiter.done():
                waiter.set_exception(CLOSED)
        self._thread.shutdown(wait=False)

    def _flush(self) -> None:
        self._armed = None
        if self._closed or self._thread_busy:
            return
        if self._calls and not (self._next.writes and self._was_call):  # alternating: neither delays the other
            self._was_call = True
            self._run_call(*self._calls.pop(0))
            return
        self._was_call = False
        group = self._next
        if group.writes:
            self._next = _Group([], [])
            self._commit(group)

    def _commit(self, group: _Group) -> None:
        writes, applied = group.writes, None
        try:
            if len(writes) > 1 or type(writes[0]) is not SettleDelegation:
                self._before()
            if self._in_loop:
                applied = self.store.try_apply(writes)
        except Exception as error:  # noqa: BLE001 - any exception of the store is passed to the waiters
            self._refused(group, _as_unavailable(error))
            return
        if applied is None:
            self._hand_to_thread(group)
            return
        self._tell(group, applied)
        self._go_on()

    def _hand_to_thread(self, group: _Group) -> None:
        """Write on the thread, however long it takes; finished delegations wait for it only for a limited time."""

        def finished(future: Future[WriteResult]) -> None:
            error = future.exception()
            if error is None:
                self._tell(group, future.result())
            else:
                self._refused(group, _as_unavailable(error))

        self._limit_wait(group, _BUSY)
        self._on_thread(self.store.apply, list(group.writes), finished)

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
        if self._next.writes:
            self._limit_wait(self._next, _BUSY)

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
        if self._next.writes or self._calls:
            self._arm()

    def _arm(self) -> None:
        """Commit at the end of this turn of the loop."""
        if self._armed is None:
            self._armed = self._loop.call_soon(self._flush, context=self._context)

    def _tell(self, group: _Group, applied: WriteResult) -> None:
        met = any(applied)
        for write, then in zip(group.writes, group.thens, strict=True):
            if then is not None:
                _call(then, _problem(write, applied) if met else None)
        group.writes.clear()
        group.thens.clear()

    def _limit_wait(self, group: _Group, error: Unavailable) -> None:
        """Report the outcomes of a group after a time even if they are not recorded, with a warning. They are written nevertheless."""
        self._loop.call_later(PATIENCE_SECONDS, self._answer_early, group, error, context=self._context)

    def _answer_early(self, group: _Group, error: Unavailable) -> None:
        for position, (write, then) in enumerate(zip(group.writes, group.thens, strict=True)):
            if then is not None and isinstance(write, SettleDelegation | RecordDelegation) and not self._closed:
                group.thens[position] = None
                _call(then, error)

    def _refused(self, group: _Group, error: Unavailable) -> None:
        """The group was not written. Delegations that have not run get the error; outcomes and events are kept and retried."""
        owed = _Group([], [])
        lost_starts = {write.session_id for write in group.writes if isinstance(write, BeginDelegation)}
        for write, then in zip(group.writes, group.thens, strict=True):
            if isinstance(write, AppendEvent) or (isinstance(write, SettleDelegation) and write.session_id not in lost_starts):
                owed.writes.append(write)
                owed.thens.append(then)
            elif then is not None:
                _call(then, error)
        group.writes.clear()  # its timer may be running: who is owed an outcome hears of it once
        group.thens.clear()
        if owed.writes:
            self._limit_wait(owed, error)
            self._owed.append(owed)
            if len(self._owed) == 1:
                self._retry_later()

    def _retry_later(self) -> None:
        self._loop.call_later(RETRY_SECONDS, self._retry, context=self._context)

    def _retry(self) -> None:
        """Write on the thread what is owed."""
        if self._closed:
            return
        if self._thread_busy:
            self._retry_later()
            return
        groups = list(self._owed)

        def finished(future: Future[WriteResult]) -> None:
            if future.exception() is None:
                for group in groups:
                    self._tell(group, future.result())
                del self._owed[: len(groups)]
            if self._owed:
                self._retry_later()

        self._on_thread(self.store.apply, [write for group in groups for write in group.writes], finished)


def _call(then: Then, problem: Problem) -> None:
    try:
        then(problem)
    except Exception:  # one failure must not leave the others of its group waiting
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
