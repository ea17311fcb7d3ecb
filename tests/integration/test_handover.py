"""Handover: a runtime that stops leaves resumable delegations to the next process."""

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


async def test_handover_leaves_resumable_work_to_the_next_process(tmp_path: Path) -> None:
    remit = Remit.open(tmp_path, agents=[steps, once])
    async with remit:
        handle = await remit.start("steps")
        other = await remit.start("once")
        waiting = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0.1)
        await remit.close(hand_over=True)
        (raised,) = await asyncio.gather(waiting, return_exceptions=True)
        assert "Handed over" in str(raised)
    async with Remit.open(tmp_path, agents=[steps, once], recover=False) as looking:
        assert (await looking.describe(handle.session_id)).state == "running"
        assert (await looking.describe(other.session_id)).state == "cancelled"
    async with Remit.open(tmp_path, agents=[steps, once]) as after:
        assert after.recovered.resumed == [handle.session_id]
        done = await after.result(handle.session_id, wait_seconds=10)
        assert done is not None
        assert done.data == "Went on from 1."


@agent("many", resumable=True)
async def many(ctx: Context) -> str:
    runs = await asyncio.to_thread(count_runs, ctx.root / "runs")
    if runs < 3:
        await asyncio.sleep(30)
    return f"Run {runs}."


def count_runs(path: Path) -> int:
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


async def test_delegation_can_be_handed_over_twice(tmp_path: Path) -> None:
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


async def test_queued_delegation_is_handed_over_without_being_started(tmp_path: Path) -> None:
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


def test_program_exits_although_a_handed_over_agent_ignores_cancellation(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STUBBORN, str(tmp_path)], timeout=20, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


LONG = """
import asyncio
from remit import agent

@agent("long", resumable=True, timeout=600)
async def long() -> None:
    await asyncio.sleep(500)
"""


class Listener:
    """Records the names of the methods that a server calls on its listener."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


async def handed_over_session(root: Path) -> str:
    """A delegation that an earlier server handed over."""
    (root / ".remit" / "agents").mkdir(parents=True)
    (root / ".remit" / "agents" / "some.py").write_text(LONG)
    async with Remit.open(root) as remit:
        handle = await remit.start("long")
        await remit.close(hand_over=True)
    return handle.session_id


async def is_live(root: Path, session_id: str) -> bool:
    async with Remit.open(root, recover=False) as looking:
        return not (await looking.describe(session_id)).state.is_settled


async def test_server_without_a_free_port_leaves_resumed_work_running(tmp_path: Path) -> None:
    from remit.server.run import serve

    session_id = await handed_over_session(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"serve": {"grpc": f"127.0.0.1:{taken.getsockname()[1]}", "doors": ["grpc"]}}
        with pytest.raises(Unavailable, match="listen"):
            await serve(tmp_path, settings, Listener())
    assert await is_live(tmp_path, session_id)


async def test_sigterm_during_recovery_leaves_the_work_to_the_next_server(tmp_path: Path) -> None:
    from remit.server.run import serve

    session_id = await handed_over_session(tmp_path)
    listener = Listener()
    serving = asyncio.ensure_future(serve(tmp_path, {"serve": {"doors": ["grpc"]}}, listener))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 10)
    assert listener.calls == ["stopped"]
    assert await is_live(tmp_path, session_id)
