"""The state machine of a delegation: one transition table, one end."""

import asyncio
import gc
from pathlib import Path

from remit import Remit, agent
from remit.engines.embedded import delegation_run


@agent(name="echo")
async def echo() -> str:
    return "done"


def runs_in_memory() -> int:
    return sum(type(one) is delegation_run.DelegationRun for one in gc.get_objects())  # a list would keep them alive


async def test_ended_delegation_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[echo]) as remit:
        for _ in range(20):
            await remit.delegate("echo")
        gc.collect()
        others = runs_in_memory()  # from earlier tests
        gc.disable()
        try:
            await asyncio.gather(*(remit.delegate("echo") for _ in range(50)))
            for _ in range(100):
                if (left := runs_in_memory()) <= others:
                    break
                await asyncio.sleep(0.05)
        finally:
            gc.enable()
    assert left <= others
