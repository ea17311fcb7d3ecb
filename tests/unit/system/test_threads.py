"""Threads of our own beside asyncio's: work leaves the loop, comes back, and is held up by nobody."""

import asyncio
import os
import threading
from typing import Any

import pytest

from remit.system.threads import off_loop


async def test_work_is_done_off_the_loop_and_its_value_comes_back() -> None:
    def work(a: int, b: int) -> tuple[int, str]:
        return a + b, threading.current_thread().name

    assert await off_loop(work, 1, 2) == (3, "remit-off-loop")


class Odd(BaseException):
    pass


def raises(error: BaseException) -> Any:
    raise error


async def test_what_it_raises_comes_back() -> None:
    with pytest.raises(KeyError, match="colour"):
        await off_loop(raises, KeyError("colour"))
    with pytest.raises(Odd):
        await off_loop(raises, Odd())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(off_loop(next, iter(())), 2)  # no future can carry it as it is


async def test_as_many_run_at_once_as_there_is_work() -> None:
    together = threading.Barrier(30)
    places = await asyncio.wait_for(asyncio.gather(*(off_loop(together.wait, 5) for _ in range(30))), 5)
    assert sorted(places) == list(range(30))


async def test_one_that_hangs_holds_up_only_whoever_waits_for_it() -> None:
    over = threading.Event()
    waiting = asyncio.create_task(off_loop(over.wait, 10))
    await asyncio.sleep(0.01)
    try:
        assert await asyncio.wait_for(off_loop(lambda: "done"), 2) == "done"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 1)
    finally:
        over.set()
    assert await off_loop(lambda: "still here") == "still here"


def test_work_that_ends_after_its_loop_is_told_to_nobody() -> None:
    over, ended = threading.Event(), threading.Event()

    def work() -> None:
        over.wait(10)
        ended.set()

    async def leave() -> None:
        asyncio.create_task(off_loop(work))  # noqa: RUF006 - left alone on purpose
        await asyncio.sleep(0.01)

    asyncio.run(leave())
    over.set()
    assert ended.wait(2)
    assert asyncio.run(off_loop(lambda: "another loop")) == "another loop"


def test_a_forked_process_has_threads_of_its_own() -> None:
    """Those of its parent are not there: whoever counted on them would wait for ever."""
    asyncio.run(off_loop(int, "1"))
    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(asyncio.wait_for(off_loop(int, "2"), 5)) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
