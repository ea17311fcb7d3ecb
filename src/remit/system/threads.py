"""Threads for blocking work: separate from asyncio's default executor, which agents share and can fill.

Daemons: a hanging file system does not prevent a program from exiting. Threads are reused; there are as many as parallel jobs."""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

IDLE_SECONDS = 10.0
MOST = 128
"""Beyond it work waits: by then the disk, not the number of threads, is the bottleneck."""

T = TypeVar("T")

_jobs: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
_guard = threading.Lock()
_idle = 0
_alive = 0
_waiting = 0
"""Jobs that no thread has taken yet; counted with `_idle`, so that a thread about to work does not count as free."""


def _forget() -> None:
    """A forked process has none of these threads."""
    global _jobs, _guard, _idle, _alive, _waiting
    _jobs, _guard = queue.SimpleQueue(), threading.Lock()
    _idle = _alive = _waiting = 0


os.register_at_fork(after_in_child=_forget)


async def off_loop(function: Callable[..., T], *args: Any) -> T:
    """Run `function(*args)` on a thread. If cancelled, it is no longer awaited; it ends by itself."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def job() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = function(*args)
        except StopIteration as stop:  # no future can carry it
            error = RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:  # noqa: BLE001 - raised in the caller
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_deliver, answer, value, error)

    _put(job)
    return await answer


async def finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end even if the caller is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


def _deliver(answer: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)


def _put(job: Callable[[], None]) -> None:
    global _alive, _waiting
    with _guard:
        _waiting += 1
        _jobs.put(job)
        if _idle >= _waiting or _alive >= MOST:
            return
        _alive += 1
    try:
        threading.Thread(target=_work, name="remit-off-loop", daemon=True).start()
    except RuntimeError:  # the system gives no more threads: those that run take the job
        with _guard:
            _alive -= 1
            if not _alive:
                raise


def _work() -> None:
    global _alive, _idle, _waiting
    while True:
        with _guard:
            _idle += 1
        try:
            job = _jobs.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with _guard:
                _idle -= 1
                if not _jobs.empty():
                    continue
                _alive -= 1
                return
        with _guard:
            _idle -= 1
            _waiting -= 1
        job()
