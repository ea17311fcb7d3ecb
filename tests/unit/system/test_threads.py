"""Worker threads beside asyncio's: values and exceptions come back, and hanging work blocks no other."""

import asyncio
import os
import threading
from typing import Any

import pytest

from remit.system.threads import off_loop


async def test_work_runs_off_the_loop_and_returns_its_value() -> None:
    def work(a: int, b: int) -> tuple[int, str]:
        return a + b, threading.current_thread().name

    assert await off_loop(work, 1, 2) == (3, "remit-off-loop")


class Odd(BaseException):
    pass


def raises(error: BaseException) -> Any:
    raise error


async def test_exceptions_are_raised_in_the_caller() -> None:
    with pytest.raises(KeyError, match="colour"):
        await off_loop(raises, KeyError("colour"))
    with pytest.raises(Odd):
        await off_loop(raises, Odd())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(off_loop(next, iter(())), 2)  # a future cannot carry StopIteration


async def test_all_work_runs_concurrently() -> None:
    together = threading.Barrier(30)
    places = await asyncio.wait_for(asyncio.gather(*(off_loop(together.wait, 5) for _ in range(30))), 5)
    assert sorted(places) == list(range(30))


async def test_hanging_work_blocks_only_its_caller() -> None:
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


def test_work_that_outlives_its_loop_is_harmless() -> None:
    over, ended = threading.Event(), threading.Event()

    def work() -> None:
        over.wait(10)
        ended.set()

    async def leave() -> None:
        asyncio.create_task(off_loop(work))  # noqa: RUF006 - not awaited on purpose
        await asyncio.sleep(0.01)

    asyncio.run(leave())
    over.set()
    assert ended.wait(2)
    assert asyncio.run(off_loop(lambda: "another loop")) == "another loop"


def test_forked_process_has_its_own_threads() -> None:
    """The threads of its parent do not exist in the child."""
    asyncio.run(off_loop(int, "1"))
    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(asyncio.wait_for(off_loop(int, "2"), 5)) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
