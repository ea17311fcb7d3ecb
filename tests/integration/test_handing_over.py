"""A runtime that is told to stop hands over what can be run again."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, Unavailable, agent


@agent("steps", resumable=True)
async def steps(ctx: Context, count: int = 3) -> str:
    done = ctx.saved or 0
    if done == 0:
        await ctx.checkpoint(1)
        await asyncio.sleep(30)
    return f"Went on from {done}."


@agent("once")
async def once(ctx: Context) -> str:
    await asyncio.sleep(30)
    return "Never."


async def test_what_can_be_run_again_is_left_to_the_next_who_opens_the_project(tmp_path: Path) -> None:
    remit = Remit.open(tmp_path, agents=[steps, once])
    async with remit:
        handle = await remit.start("steps")
        other = await remit.start("once")
        await asyncio.sleep(0.1)
        await remit.close(hand_over=True)
    async with Remit.open(tmp_path, agents=[steps, once], recover=False) as looking:
        assert (await looking.describe(handle.session_id)).state == "running"
        assert (await looking.describe(other.session_id)).state == "cancelled"
    async with Remit.open(tmp_path, agents=[steps, once]) as after:
        assert after.recovered.resumed == [handle.session_id]
        done = await after.result(handle.session_id, wait_seconds=10)
        assert done is not None
        assert done.data == "Went on from 1."


async def test_whoever_waits_hears_that_it_was_handed_over(tmp_path: Path) -> None:
    remit = Remit.open(tmp_path, agents=[steps])
    async with remit:
        waiting = asyncio.ensure_future(remit.delegate("steps"))
        await asyncio.sleep(0.1)
        await remit.close(hand_over=True)
        (heard,) = await asyncio.gather(waiting, return_exceptions=True)
    assert "Handed over" in str(heard)


@agent("many", resumable=True)
async def many(ctx: Context) -> str:
    runs = await asyncio.to_thread(_counted, ctx.root / "runs")
    if runs < 3:
        await asyncio.sleep(30)
    return f"Run {runs}."


def _counted(path: Path) -> int:
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


async def test_what_was_handed_over_once_can_be_handed_over_again(tmp_path: Path) -> None:
    handle = None
    for _ in range(2):
        remit = Remit.open(tmp_path, agents=[many])
        async with remit:
            handle = handle or await remit.start("many")
            await asyncio.sleep(0.2)
            assert await remit.close(hand_over=True) == [handle.session_id]
    async with Remit.open(tmp_path, agents=[many]) as after:
        assert handle is not None
        done = await after.result(handle.session_id, wait_seconds=10)
        assert done is not None
        assert done.data == "Run 3."


async def test_what_waits_for_a_slot_is_handed_over_as_waiting_and_nothing_is_begun_to_be_stopped(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[steps, noted], slots=1) as remit:
        await remit.start("steps")
        waiting = await remit.start("steps", count=1)
        plain = await remit.start("noted")
        await asyncio.sleep(0.1)
        assert len(await remit.close(hand_over=True)) == 2
    assert not (tmp_path / "began").exists()
    async with Remit.open(tmp_path, agents=[steps, noted], recover=False) as looking:
        assert (await looking.describe(waiting.session_id)).state == "queued"
        assert (await looking.describe(plain.session_id)).state == "cancelled"


@agent("noted")
async def noted(ctx: Context) -> None:
    (ctx.root / "began").touch()


STUBBORN = """
import asyncio, sys
from remit import Context, Remit, Unavailable, agent

@agent("stubborn", resumable=True)
async def stubborn(ctx: Context) -> None:
    while True:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            pass

async def main():
    async with Remit.open(sys.argv[1], agents=[stubborn]) as remit:
        await remit.start("stubborn")
        await asyncio.sleep(0.1)
        print(len(await remit.close(hand_over=True)))

asyncio.run(main())
"""


def test_a_program_ends_although_what_it_handed_over_will_not_be_stopped(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STUBBORN, str(tmp_path)], timeout=20, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


LONG = """
import asyncio
from remit import agent

@agent("long", resumable=True, timeout=600)
async def long() -> None:
    await asyncio.sleep(500)
"""


class Heard:
    """What whoever listens to a server is told, by name."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.told.append(name)


async def left_behind(root: Path) -> str:
    """What an earlier server handed over."""
    (root / ".remit" / "agents").mkdir(parents=True)
    (root / ".remit" / "agents" / "some.py").write_text(LONG)
    async with Remit.open(root) as remit:
        handle = await remit.start("long")
        await remit.close(hand_over=True)
    return handle.session_id


async def lives(root: Path, session_id: str) -> bool:
    async with Remit.open(root, recover=False) as looking:
        return not (await looking.describe(session_id)).state.is_settled


async def test_a_server_that_cannot_listen_ends_nothing_that_it_resumed(tmp_path: Path) -> None:
    from remit.server.run import serve

    session_id = await left_behind(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"serve": {"grpc": f"127.0.0.1:{taken.getsockname()[1]}", "doors": ["grpc"]}}
        with pytest.raises(Unavailable, match="listen"):
            await serve(tmp_path, settings, Heard())
    assert await lives(tmp_path, session_id)


async def test_a_server_told_to_stop_while_it_recovers_stops_and_leaves_that_to_the_next(tmp_path: Path) -> None:
    from remit.server.run import serve

    session_id = await left_behind(tmp_path)
    heard = Heard()
    serving = asyncio.ensure_future(serve(tmp_path, {"serve": {"doors": ["grpc"]}}, heard))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 10)
    assert heard.told == ["stopped"]
    assert await lives(tmp_path, session_id)
