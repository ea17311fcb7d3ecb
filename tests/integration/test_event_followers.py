"""Following a delegation by the numbers of its events: here, from another process, by many, slowly, over a crash."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from remit import Context, Remit, agent
from remit.core.events import Event, EventKind
from support.pace import until


class Talk:
    """An agent that says what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str | None] = asyncio.Queue()

        @agent("talks", isolation="inline", timeout=30)
        async def talks(ctx: Context) -> str:
            while (word := await self.words.get()) is not None:
                ctx.progress(word)
            return "said"

        self.agent = talks

    def say(self, *words: str | None) -> None:
        for word in words:
            self.words.put_nowait(word)


async def all_of(remit: Remit, session_id: str, after: int = 0) -> list[Event]:
    return [event async for event in remit.follow(session_id, after)]


async def read_into(seen: list[Event], remit: Remit, session_id: str) -> None:
    async for event in remit.follow(session_id):
        seen.append(event)  # noqa: PERF401 - each as it comes


async def until_read(events: list[Event], message: str) -> None:
    await until(lambda: any(event.body.get("message") == message for event in events))


def counted(remit: Remit, method: str) -> list[tuple[Any, ...]]:
    """The calls of a method of its store, from now on."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(remit.store, method)

    def called(*given: Any) -> Any:
        calls.append(given)
        return real(*given)

    setattr(remit.store, method, called)
    return calls


async def test_thousand_followers_of_an_idle_delegation_cost_nothing(tmp_path: Path) -> None:
    """Counted in questions to the store, which no busy machine can change."""
    talk = Talk()
    async with Remit.open(tmp_path, agents=[talk.agent]) as remit:
        handle = await remit.start("talks")
        seen: list[Event] = []
        readers = [asyncio.create_task(read_into(seen, remit, handle.session_id)) for _ in range(1000)]
        await until(lambda: len(seen) == 7000)  # the steps before it ran
        asked, looked = counted(remit, "get"), counted(remit, "heads")
        await asyncio.sleep(0.3)
        assert (len(asked), len(looked)) == (0, 0)
        talk.say(None)
        await asyncio.wait_for(asyncio.gather(*readers), 20)
        assert len(seen) == 1000 * len({event.number for event in seen})


async def test_thousand_followers_of_another_process_share_one_query(tmp_path: Path) -> None:
    talk = Talk()

    @agent("quick", isolation="inline")
    async def quick(ctx: Context) -> str:
        return "done"

    async with Remit.open(tmp_path, agents=[talk.agent, quick]) as here, Remit.open(tmp_path, agents=[talk.agent]) as there:
        handle = await here.start("talks")
        reads, looks = counted(there, "get"), counted(there, "heads")
        readers = [asyncio.create_task(all_of(there, handle.session_id)) for _ in range(1000)]
        await until(lambda: len(reads) == 2000)  # each reads, is told once that it was looked at, and reads again
        reads.clear()
        looks.clear()
        await asyncio.sleep(0.2)
        assert (len(reads), len(looks)) == (0, 0), "nothing was written, nothing is looked at"
        for _ in range(3):
            await here.delegate("quick")
            await asyncio.sleep(0.1)
        assert not reads, "somebody wrote, and nothing of theirs"
        assert 1 <= len(looks) <= 8
        talk.say(None)
        await asyncio.wait_for(asyncio.gather(*readers), 20)


async def test_slow_followers_hold_a_bounded_amount_of_output(tmp_path: Path) -> None:
    """Also of what has ended, and is read from the store."""

    @agent("loud")
    async def loud(ctx: Context) -> None:
        for number in range(100):
            ctx.emit(f"{number} {'x' * 20_000}")

    async with Remit.open(tmp_path, agents=[loud]) as remit:
        handle = await remit.start("loud")
        await handle.result()
        slow = [remit.follow(handle.session_id) for _ in range(30)]
        for events in slow:
            assert len([await anext(events) for _ in range(30)]) == 30
        gc.collect()
        held = sum(len(str(one.body)) for one in gc.get_objects() if isinstance(one, Event) and one.session_id == handle.session_id)
        assert held < len(slow) * 200_000
        rest = [event async for event in slow[0]]
        assert len(rest) + 30 == 100 + 13 + 1
        for events in slow:
            await events.aclose()


async def test_events_are_delivered_after_they_are_recorded(tmp_path: Path) -> None:
    """Their numbers mean the same after a crash: who saw one can go on from it."""
    talk = Talk()
    async with Remit.open(tmp_path, agents=[talk.agent]) as remit:
        handle = await remit.start("talks")
        talk.say("one", "two", "three", None)
        async for event in remit.follow(handle.session_id):
            if event.kind is EventKind.PROGRESS:
                assert event in remit.store.events(handle.session_id)


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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - killed in the middle, from here
    try:
        assert process.stdout is not None
        session_id = (await asyncio.to_thread(process.stdout.readline)).strip()
        async with Remit.open(tmp_path, agents=[talks]) as remit:
            seen: list[Event] = []

            reader = asyncio.create_task(read_into(seen, remit, session_id))
            await until_read(seen, "before")
            os.kill(process.pid, signal.SIGKILL)
            process.wait(10)
            await asyncio.wait_for(reader, 15)
            words = [event.body["message"] for event in seen if event.kind is EventKind.PROGRESS]
            assert words == ["before", "after"]
            assert [event.number for event in seen] == sorted({event.number for event in seen})
            assert seen[-1].kind is EventKind.COMPLETE
            again = await all_of(remit, session_id)
            assert [(event.number, event.kind, event.body) for event in again] == [(one.number, one.kind, one.body) for one in seen]
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


async def test_wait_for_another_process_respects_its_timeout(tmp_path: Path) -> None:
    talk = Talk()
    async with Remit.open(tmp_path, agents=[talk.agent]) as here, Remit.open(tmp_path, agents=[talk.agent]) as there:
        handle = await here.start("talks")
        assert await there.result(handle.session_id, wait_seconds=0.2) is None
        waiting = asyncio.create_task(there.result(handle.session_id, wait_seconds=10))
        await asyncio.sleep(0.05)
        talk.say(None)
        assert await asyncio.wait_for(waiting, 5) == await handle.result()


async def test_closing_ends_waits_for_other_processes(tmp_path: Path) -> None:
    talk = Talk()
    async with Remit.open(tmp_path, agents=[talk.agent]) as here:
        handle = await here.start("talks")
        there = Remit.open(tmp_path, agents=[talk.agent])
        async with there:
            looks = counted(there, "heads")
            reader = asyncio.create_task(all_of(there, handle.session_id))
            await until(lambda: bool(looks))
        (outcome,) = await asyncio.wait_for(asyncio.gather(reader, return_exceptions=True), 5)
        assert isinstance(outcome, Exception)
        talk.say(None)
        await handle.result()
