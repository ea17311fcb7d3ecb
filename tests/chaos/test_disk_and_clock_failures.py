"""Full disk and clock jumps: a clear error with advice, and no data loss."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from remit import (
    Remit,
    State,
    StopReason,
    Unavailable,
)
from remit.testing import Scripted, answer, hang, wait
from support.clocks import JumpingClock
from support.engine_samples import until
from support.pace import allowed

HOUR = 3600.0
BULK = "x" * 200_000
"""Larger than the free pages that a full database may still have."""


def fill_disk(store: Any) -> None:
    """Simulate a full disk for SQLite: the database cannot grow."""
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count={pages}")


def free_disk(store: Any) -> None:
    store._writer.execute("PRAGMA max_page_count=1000000")


async def test_full_disk_blocks_new_work_and_defers_writing_outcomes(tmp_path: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go, answer({"long": BULK})), answer("later"))
    async with Remit.open(tmp_path, agents=[worker]) as remit:
        handle = await remit.start("worker")
        await worker.called.wait()
        fill_disk(remit.store)
        with pytest.raises(Unavailable) as caught:
            await remit.delegate("worker", text=BULK)
        assert caught.value.code == "STORE_UNAVAILABLE"
        assert "Check the space" in caught.value.advice
        assert len(worker.calls) == 1, "a delegation that cannot be recorded must not run"
        go.set()
        began = time.monotonic()
        result = await handle.result()
        assert time.monotonic() - began < allowed(2)
        assert result.ok
        assert "Not recorded yet" in " ".join(result.warnings)
        assert (await remit.describe(handle.session_id)).state is State.RUNNING
        free_disk(remit.store)
        await until(lambda: _state_of(remit, handle.session_id) is State.COMPLETED)
        assert (await remit.delegate("worker", text=BULK)).data == "later"
        record = await remit.describe(handle.session_id)
        assert record.result is not None
        assert record.result.data == {"long": BULK}


def _state_of(remit: Remit, session_id: str) -> State | None:
    record = remit.store.get(session_id)
    return None if record is None else record.state


async def test_outcome_unwritten_at_close_is_settled_by_the_next_process(tmp_path: Path) -> None:
    worker = Scripted("worker", answer({"long": BULK}))
    async with Remit.open(tmp_path, agents=[worker]) as remit:
        await remit.delegate("worker", n=1)
        go = asyncio.Event()
        worker.turns = (wait(go, answer({"long": BULK})),)
        handle = await remit.start("worker", n=2)
        fill_disk(remit.store)
        go.set()
        assert (await handle.result()).warnings
    async with Remit.open(tmp_path, agents=[worker]) as remit:
        record = await remit.describe(handle.session_id)
        assert record.state.is_settled, "its process is alive, so no other process settles it"


# ---- the clock


async def test_wall_clock_jump_changes_timestamps_but_not_durations(tmp_path: Path) -> None:
    clock = JumpingClock()
    sleeper, worker = Scripted("sleeper", hang()), Scripted("worker", answer(1))
    async with Remit.open(tmp_path, agents=[sleeper, worker], clock=clock.as_clock()) as remit:
        for jump in (-6 * HOUR, 12 * HOUR, -0.5, 30 * 24 * HOUR, -60 * 24 * HOUR):
            began = time.monotonic()
            waiting = asyncio.create_task(remit.delegate("sleeper", timeout=0.3))
            await asyncio.sleep(0.1)
            clock.jump(jump)
            result = await waiting
            assert 0.3 <= time.monotonic() - began < allowed(1.3)
            assert result.stop_reason is StopReason.DEADLINE
            assert 0.2 < result.metadata.duration_seconds < allowed(1.3)
            assert (await remit.delegate("worker")).ok
        records = await remit.history()
        assert len(records) == 10
        assert all(record.state.is_settled for record in records)
        assert remit.export_state()["active"] == 0


async def test_recovered_work_ends_in_time_when_the_clock_was_set_back(tmp_path: Path) -> None:
    """The wall clock is a day early at recovery. The new deadline never exceeds the requested timeout."""
    clock = JumpingClock()
    worker = Scripted("worker", hang(), resumable=True)
    async with Remit.open(tmp_path, agents=[worker]) as first:
        handle = await first.start("worker", timeout=1)
        await worker.called.wait()
        clock.jump(-24 * HOUR)
        async with Remit.open(tmp_path, agents=[worker], clock=clock.as_clock()) as second:
            assert second.recovered.is_empty, "the first process is alive regardless of the clock"
        assert (await handle.result()).stop_reason is StopReason.DEADLINE
