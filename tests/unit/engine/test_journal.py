"""The journal on a slow, full or locked store: every writer gets an answer, and no outcome is lost."""

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from remit import MemoryStore, RecordDelegation, State, Unavailable, Write, WriteResult
from remit.engines.embedded.journal import PATIENCE_SECONDS, RETRY_SECONDS, Clash, Journal, Problem
from remit.testing.engine_samples import until
from remit.testing.store_samples import outcome, record, said, session


class BadStore(MemoryStore):
    """A store that can be full or locked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.attempts = 0
        self.free = threading.Event()
        self.free.set()

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        return self.apply(writes) if self.free.is_set() else None

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        self.attempts += 1
        assert self.free.wait(10)
        if self.is_full:
            raise Unavailable("The disk is full.", code="STORE_UNAVAILABLE", advice="Free some space.")
        return super().apply(writes)

    def state_of(self, number: int) -> State | None:
        found = self.get(session(number))
        return None if found is None else found.state


@asynccontextmanager
async def journal_on(store: BadStore) -> AsyncIterator[Journal]:
    journal = Journal(store, asyncio.get_running_loop(), contextvars.copy_context(), in_loop=True)
    try:
        yield journal
    finally:
        store.is_full = False
        store.free.set()
        await journal.close()


class Answers:
    """Answers to the writers of a group, in order."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def __call__(self, problem: Problem) -> None:
        self.problems.append(problem)


def breaks(_problem: Problem) -> None:
    raise RuntimeError("can't start new thread")


async def test_failing_callback_does_not_leave_its_group_waiting() -> None:
    answers = Answers()
    async with journal_on(BadStore()) as journal:
        journal.write(RecordDelegation(record(1)), breaks)
        journal.write(RecordDelegation(record(2)), answers)
        await until(lambda: answers.problems == [None])
        journal.write(RecordDelegation(record(3)), answers)
        await until(lambda: answers.problems == [None, None])


async def test_clash_is_reported_to_its_own_writer_only() -> None:
    answers, other = Answers(), Answers()
    async with journal_on(BadStore()) as journal:
        journal.write(RecordDelegation(record(1)))
        await journal.drain(1)
        journal.write(RecordDelegation(record(1)), answers)
        journal.write(RecordDelegation(record(2)), other)
        await until(lambda: bool(answers.problems and other.problems))
    assert (answers.problems, other.problems) == ([Clash()], [None])


async def test_writes_to_a_full_disk_are_retried_by_one_timer() -> None:
    store = BadStore()
    async with journal_on(store) as journal:
        store.is_full = True
        for number in range(1, 41):  # each is a group
            journal.write(said(1, number))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await until(lambda: journal.owes == 40)
        store.attempts, began = 0, time.monotonic()
        await asyncio.sleep(RETRY_SECONDS * 3)
        assert 1 <= store.attempts <= (time.monotonic() - began) / RETRY_SECONDS + 1
        store.is_full = False
        await until(lambda: len(store.events(session(1))) == 40)


async def test_outcomes_on_a_full_disk_are_reported_in_time_and_written_later() -> None:
    store, began, ended = BadStore(), Answers(), Answers()
    async with journal_on(store) as journal:
        journal.write(RecordDelegation(record(1)))
        await journal.drain(1)
        store.is_full = True
        journal.write(outcome(1), ended)
        journal.write(RecordDelegation(record(2)), began)
        await until(lambda: bool(began.problems), PATIENCE_SECONDS / 2)
        assert isinstance(began.problems[0], Unavailable), "a start that cannot be recorded fails at once: nothing has run"
        assert not ended.problems
        await until(lambda: bool(ended.problems), PATIENCE_SECONDS + 2 * RETRY_SECONDS)
        assert isinstance(ended.problems[0], Unavailable)
        store.is_full = False
        await until(lambda: store.state_of(1) is State.COMPLETED)
    assert len(ended.problems) == 1, "reported once"


async def test_outcomes_on_a_locked_store_are_reported_in_time_and_written_later() -> None:
    """Applies to writes in progress and to writes behind them; patience counts from each request."""
    store, first, second = BadStore(), Answers(), Answers()
    async with journal_on(store) as journal:
        journal.write(RecordDelegation(record(1)))
        journal.write(RecordDelegation(record(2)))
        await journal.drain(1)
        store.free.clear()
        journal.write(outcome(1), first)
        await asyncio.sleep(0.1)
        journal.write(outcome(2), second)
        await until(lambda: bool(first.problems and second.problems))
        assert all(isinstance(problem, Unavailable) for problem in (*first.problems, *second.problems))
        assert store.state_of(1) is State.RUNNING
        store.free.set()
        await until(lambda: store.state_of(1) is store.state_of(2) is State.COMPLETED)
    assert (len(first.problems), len(second.problems)) == (1, 1)


async def test_calls_and_writes_take_turns() -> None:
    done_before: list[int] = []
    async with journal_on(BadStore()) as journal:
        calls = [journal.call(lambda store: store.count()) for _ in range(50)]
        journal.write(RecordDelegation(record(1)), lambda _problem: done_before.append(sum(call.done() for call in calls)))
        await asyncio.gather(*calls)
    assert done_before[0] <= 2
