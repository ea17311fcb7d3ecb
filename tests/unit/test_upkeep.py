"""Upkeep: old scratch folders and old history go, what is still needed stays, and nothing that goes wrong ends it (S2.7)."""

import asyncio
import shutil
from pathlib import Path

import pytest

from remit import Context, Remit, agent, upkeep
from remit.testing import JumpingClock, Scripted, hang
from remit.testing.engine_samples import until

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


@agent("worker")
async def worker() -> str:
    return "done"


@agent("caller")
async def caller(ctx: Context) -> str:
    return str((await ctx.delegate("worker")).data)


async def test_scratch_folders_of_what_left_the_registry_are_removed(tmp_path: Path) -> None:
    clock = JumpingClock()
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[scribbles, sleeper], clock=clock.as_clock()) as remit:
        plain, kept = await scratch_of(remit), await scratch_of(remit, keeps=True)
        await remit.start("sleeper")
        await sleeper.called.wait()
        living = sleeper.contexts[0].scratch
        strange = plain.parent / "notes-of-a-person"
        strange.mkdir()
        await upkeep.clean_up(remit.engine, remit.settings)
        assert plain.is_dir(), "it is still in the registry"
        clock.jump(2 * HOUR)
        fresh = await scratch_of(remit)
        await upkeep.clean_up(remit.engine, remit.settings)
        assert not plain.exists()
        assert (kept / "note.txt").is_file(), "a return names it"
        assert living.is_dir()
        assert fresh.is_dir()
        assert strange.is_dir(), "not ours to remove"


async def test_history_is_forgotten_after_the_days_that_were_asked_for_and_never_otherwise(tmp_path: Path) -> None:
    clock = JumpingClock()
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[caller, worker, sleeper], clock=clock.as_clock(), settings={"history_days": 30}) as remit:
        old = await remit.delegate("caller")
        living = await remit.start("sleeper")
        clock.jump(31 * DAY)
        young = await remit.delegate("worker")
        await upkeep.clean_up(remit.engine, remit.settings)
        assert {record.session_id for record in await remit.history()} == {living.session_id, young.session_id}
        assert await remit.events(old.session_id) == []
    async with Remit.open(tmp_path, agents=[worker], clock=clock.as_clock()) as remit:
        clock.jump(10_000 * DAY)
        await upkeep.clean_up(remit.engine, remit.settings)
        assert len(await remit.history()) == 2


async def test_an_error_of_the_disk_does_not_end_the_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "TURN_SECONDS", 0.02)
    refuses = True
    real = shutil.rmtree

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        if refuses:
            raise PermissionError(13, "Permission denied", str(path))
        real(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    clock = JumpingClock()
    async with Remit.open(tmp_path, agents=[scribbles], clock=clock.as_clock(), settings={"cleanup_seconds": 0.05}) as remit:
        folder = await scratch_of(remit)
        clock.jump(2 * HOUR)
        await until(lambda: "Upkeep went wrong; it goes on" in caplog.text)
        assert folder.is_dir()
        refuses = False
        await until(lambda: not folder.exists())


async def test_a_cancel_whose_bell_was_not_heard_is_carried_out_by_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "TURN_SECONDS", 0.02)
    monkeypatch.setattr(upkeep, "SWEEP_SECONDS", 0.05)
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[sleeper]) as remit:
        handle = await remit.start("sleeper")
        async with Remit.open(tmp_path, agents=[]) as other:
            for bell in remit.engine.run_folder.glob(f"{remit.owner.owner_id}.bell"):
                bell.unlink()
            asked = asyncio.create_task(other.cancel(handle.session_id, "not wanted"))
            assert (await asyncio.wait_for(handle.result(), 3)).stop_reason == "cancelled"
            assert [node["state"] for node in await asked] == ["stopped"]
