"""The same fault in each isolation: a blocking call that lasts longer than the deadline."""

import asyncio
import time

from remit import Remit, agent


@agent("inline", timeout=1)
async def blocks_the_loop() -> None:
    time.sleep(20)  # noqa: ASYNC251 - the fault this example is about


@agent("thread", timeout=1)
def sleeps_on_a_thread() -> None:
    time.sleep(20)


@agent("process", timeout=1, isolation="process")
def sleeps_in_a_process() -> None:
    time.sleep(20)


async def main() -> None:
    async with Remit.open(".", agents=[blocks_the_loop, sleeps_on_a_thread, sleeps_in_a_process]) as remit:
        for name in ("inline", "thread", "process"):
            done = await remit.delegate(name)
            print(f"{name}: {done.status} after {done.metadata.duration_seconds:.0f} s: {done.errors[0].message}")
        print("left behind:", list(remit.export_state()["abandoned"].values()))


if __name__ == "__main__":
    asyncio.run(main())
