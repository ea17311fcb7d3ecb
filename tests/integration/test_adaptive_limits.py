"""Adaptive limits in `remit limits`, `remit show` and unapproved settings."""

import asyncio
from pathlib import Path

import pytest

from remit import Context, Remit, agent
from support.cli import run


@agent("talker")
async def talker(ctx: Context) -> None:
    for number in range(3):
        ctx.progress(str(number))
        await asyncio.sleep(0.001)


async def _run_talker(folder: Path, times: int) -> None:
    async with Remit.open(folder, agents=[talker]) as remit:
        for _ in range(times):
            await remit.delegate("talker")


def test_learned_limits_are_shown_with_their_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no cell is truncated
    assert "nothing was learned" in run("limits", cwd=tmp_path).stdout
    asyncio.run(_run_talker(tmp_path, 19))
    assert "1 more completed runs are needed" in run("limits", cwd=tmp_path).stdout
    asyncio.run(_run_talker(tmp_path, 2))
    (found,) = run("limits", "--json", cwd=tmp_path).json()["agents"]
    assert (found["agent"], found["completed"], found["learned_idle"], found["learned_timeout"]) == ("talker", 21, 30.0, None)
    asyncio.run(_run_talker(tmp_path, 1))
    assert "idle 30 s with adaptive_limits on: learned from 21 completed runs" in run("show", cwd=tmp_path).stdout
    assert run("limits", "nobody", cwd=tmp_path).code != 0
