"""Maintenance removes old scratch folders and history, keeps what is needed, and survives errors."""

import asyncio
from pathlib import Path

import pytest

from remit import Context, Remit, agent
from remit.engines.embedded import maintenance
from remit.testing import Scripted, hang
from support.clocks import JumpingClock

HOUR = 3600.0
DAY = 24 * HOUR


@agent("scribbles")
async def scribbles(ctx: Context, keeps: bool = False) -> str:
    """Leaves a file in its scratch folder, and names it in its return when asked to."""
    note = ctx.scratch / "note.txt"
    note.write_text("a note")
    if keeps:
        ctx.artifact(note)
    return str(note.parent)


async def scratch_of(remit: Remit, keeps: bool = False) -> Path:
    return Path((await remit.delegate("scribbles", keeps=keeps)).data)


async def test_scratch_folders_of_old_delegations_are_removed(tmp_path: Path) -> None:
    clock = JumpingClock()
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[scribbles, sleeper], clock=clock.as_clock()) as remit:
        plain, kept = await scratch_of(remit), await scratch_of(remit, keeps=True)
        await remit.start("sleeper")
        await sleeper.called.wait()
        living = sleeper.contexts[0].scratch
        strange = plain.parent / "notes-of-a-person"
        strange.mkdir()
        await remit.engine.clean_up()
        assert plain.is_dir(), "still in the registry"
        clock.jump(2 * HOUR)
        fresh = await scratch_of(remit)
        await remit.engine.clean_up()
        assert not plain.exists()
        assert (kept / "note.txt").is_file(), "an artifact of a return"
        assert living.is_dir()
        assert fresh.is_dir()
        assert strange.is_dir(), "not created by remit"


async def test_history_is_pruned_after_history_days_and_never_by_default(tmp_path: Path) -> None:
    clock = JumpingClock()
    sleeper, worker = Scripted("sleeper", hang()), Scripted("worker")
    caller = Scripted("caller", lambda ctx, _: ctx.delegate("worker"))
    async with Remit.open(tmp_path, agents=[caller, worker, sleeper], clock=clock.as_clock(), settings={"history_days": 30}) as remit:
        old = await remit.delegate("caller")
        living = await remit.start("sleeper")
        clock.jump(31 * DAY)
        young = await remit.delegate("worker")
        await remit.engine.clean_up()
        assert {record.session_id for record in await remit.history()} == {living.session_id, young.session_id}
        assert await remit.events(old.session_id) == []
    async with Remit.open(tmp_path, agents=[worker], clock=clock.as_clock(), settings={"history_days": "none"}) as remit:
        clock.jump(10_000 * DAY)
        await remit.engine.clean_up()
        assert len(await remit.history()) == 2


async def test_cancel_request_with_a_lost_wakeup_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(maintenance, "CANCELS_SECONDS", 0.05)
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[sleeper]) as remit:
        handle = await remit.start("sleeper")
        async with Remit.open(tmp_path, agents=[]) as other:
            for fifo in (tmp_path / ".remit" / "run").glob(f"{remit.owner.owner_id}.bell"):
                fifo.unlink()
            asked = asyncio.create_task(other.cancel(handle.session_id, "not wanted"))
            assert (await asyncio.wait_for(handle.result(), 3)).stop_reason == "cancelled"
            assert [node["state"] for node in await asked] == ["stopped"]
