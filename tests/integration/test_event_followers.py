"""Following a delegation by event numbers: in process, from another process, by many, slowly, across a crash."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from remit import Context, Event, EventKind, Remit, agent
from support.pace import until


class TextAgent:
    """An agent that emits the texts it is given, on request."""

    def __init__(self) -> None:
        self.texts: asyncio.Queue[str | None] = asyncio.Queue()

        @agent("talks", isolation="inline", timeout=30)
        async def talks(ctx: Context) -> str:
            while (part := await self.texts.get()) is not None:
                ctx.progress(part)
            return "said"

        self.agent = talks

    def emit(self, *parts: str | None) -> None:
        for part in parts:
            self.texts.put_nowait(part)


async def all_of(remit: Remit, session_id: str, after: int = 0) -> list[Event]:
    return [event async for event in remit.follow(session_id, after)]


async def read_into(observed: list[Event], remit: Remit, session_id: str) -> None:
    async for event in remit.follow(session_id):
        observed.append(event)  # noqa: PERF401 - an async generator


async def wait_for_read(events: list[Event], message: str) -> None:
    await until(lambda: any(event.body.get("message") == message for event in events))


def counted(remit: Remit, method: str) -> list[tuple[Any, ...]]:
    """Count the calls of a store method from now on."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(remit.store, method)

    def called(*passed: Any) -> Any:
        calls.append(passed)
        return real(*passed)

    setattr(remit.store, method, called)
    return calls


async def test_thousand_followers_of_another_process_share_one_query(tmp_path: Path) -> None:
    source = TextAgent()

    @agent("quick", isolation="inline")
    async def quick(ctx: Context) -> str:
        return "done"

    async with Remit.open(tmp_path, agents=[source.agent, quick]) as local, Remit.open(tmp_path, agents=[source.agent]) as remote:
        handle = await local.start("talks")
        reads, checks = counted(remote, "get"), counted(remote, "heads")
        readers = [asyncio.create_task(all_of(remote, handle.session_id)) for _ in range(1000)]
        await until(lambda: len(reads) == 2000)  # each follower reads, is notified once, and reads again
        reads.clear()
        checks.clear()
        await asyncio.sleep(0.2)
        assert (len(reads), len(checks)) == (0, 0), "without writes there are no queries"
        for _ in range(3):
            await local.delegate("quick")
            await asyncio.sleep(0.1)
        assert not reads, "a write of another delegation needs no query"
        assert 1 <= len(checks) <= 8
        source.emit(None)
        assert len({len(events) for events in await asyncio.wait_for(asyncio.gather(*readers), 60)}) == 1, "each reads everything"


CHILD = """
import asyncio, sys
from remit import Remit, agent

@agent("talks", isolation="inline", timeout=60, resumable=True)
async def talks(ctx):
    ctx.progress("before")
    print(ctx.session_id, flush=True)
    await asyncio.sleep(60)

async def main():
    async with Remit.open(sys.argv[1], agents=[talks]) as remit:
        await remit.delegate("talks")

asyncio.run(main())
"""


async def test_follower_of_a_killed_process_recovers_its_work_and_continues(tmp_path: Path) -> None:
    @agent("talks", isolation="inline", timeout=60, resumable=True)
    async def talks(ctx: Context) -> str:
        ctx.progress("after")
        return "done"

    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - killed by this test
    try:
        assert process.stdout is not None
        session_id = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with Remit.open(tmp_path, agents=[talks]) as remit:
            observed: list[Event] = []

            reader = asyncio.create_task(read_into(observed, remit, session_id))
            await wait_for_read(observed, "before")
            os.kill(process.pid, signal.SIGKILL)
            process.wait(60)
            await asyncio.wait_for(reader, 60)
            parts = [event.body["message"] for event in observed if event.kind is EventKind.PROGRESS]
            assert parts == ["before", "after"]
            assert [event.number for event in observed] == sorted({event.number for event in observed})
            assert observed[-1].kind is EventKind.COMPLETE
            again = await all_of(remit, session_id)
            assert [(event.number, event.kind, event.body) for event in again] == [(one.number, one.kind, one.body) for one in observed]
    finally:
        process.kill()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
