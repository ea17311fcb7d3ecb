"""A thousand idle streams use no CPU, and each receives the end of its task."""

import asyncio
import os
import resource
from pathlib import Path

from remit import Context, Remit, agent
from remit.server.service import Call, Service
from remit.server.tokens import OWNER

CALL = Call(principal=OWNER, api="test")
GATE: list[asyncio.Event] = []


@agent("quiet", timeout=60)
async def quiet(ctx: Context) -> str:
    GATE.append(asyncio.Event())
    await GATE[-1].wait()
    ctx.progress("The last word.")
    return "Over now."


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def idle_cpu(seconds: float) -> float:
    began = cpu_seconds()
    await asyncio.sleep(seconds)
    return cpu_seconds() - began


async def test_thousand_idle_streams_use_no_cpu_and_receive_the_end(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[quiet]) as remit:
        service = Service(remit)
        handle = await service.begin(CALL, {"target": "quiet"})

        async def read() -> list[str]:
            return [str(chunk.type) async for chunk in service.stream(CALL, handle.session_id)]

        alone = await idle_cpu(0.5)
        readers = [asyncio.ensure_future(read()) for _ in range(1000)]
        await asyncio.sleep(1.0)
        beside = await idle_cpu(0.5)
        GATE[-1].set()
        streams = await asyncio.gather(*readers)
    assert all(chunks[-1] == "complete" and "progress" in chunks for chunks in streams)
    assert beside < alone + 0.15, f"{beside:.3f} s of CPU beside {alone:.3f} s without them ({os.cpu_count()} cores)"
