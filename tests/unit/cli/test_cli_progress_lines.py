"""Progress lines on stderr without a terminal."""

import asyncio
import re
from pathlib import Path

import pytest

from remit import Context, Remit, agent
from remit.cli import live


async def test_times_are_monotonic_even_if_a_slow_child_is_reported_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE_SECONDS", 0.3)

    @agent("slow")
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(0.8)

    @agent("boss")
    async def boss(ctx: Context) -> None:
        child = await ctx.start("slow")
        for number in range(6):
            ctx.progress(f"Step {number}.")
            await asyncio.sleep(0.1)
        await child.result()

    async with Remit.open(tmp_path, agents=[slow, boss]) as remit:
        handle = await remit.start("boss")
        await live.await_return(remit, handle, live.Lines(), signals=())
    said = capsys.readouterr().err
    times = [float(found) for found in re.findall(r"^ *([0-9.]+) s  ", said, re.MULTILINE)]
    assert "slow" in said
    assert times == sorted(times)
