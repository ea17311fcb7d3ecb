"""Sync functions on threads. A thread cannot be killed: at its end it is asked to stop, and abandoned if it does not.

What can be done is done: an exception is raised in it at its next Python instruction, its `ctx` refuses everything, and nobody waits.
Threads are daemons and are used again, so that neither start-up nor exit costs anything.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any

from remit.agents.function import FunctionAgent
from remit.core.agents import AgentSpec
from remit.core.errors import AgentCrashed, Stopped
from remit.runtime.context import BlockingContext, Context
from remit.runtime.reply import describe_exception

IDLE_SECONDS = 10.0


class _StopThread(BaseException):
    """Raised in a thread whose delegation has ended."""


class Job:
    """One call of an agent's function, and how its waiter is told that it came to nothing."""

    __slots__ = ("call", "is_stopped", "skipped")

    def __init__(self, call: Callable[[], None], skipped: Callable[[], None]) -> None:
        self.call = call
        self.skipped = skipped
        self.is_stopped = False


class ThreadPool:
    """Daemon threads, started when needed, kept while they are."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, job: Job) -> "_Worker":
        with self._lock:
            worker = self._idle.pop() if self._idle else _Worker(self)
        worker.jobs.put(job)
        return worker

    def take_back(self, worker: "_Worker") -> None:
        with self._lock:
            self._idle.append(worker)

    def leave(self, worker: "_Worker") -> bool:
        """Whether an idle worker may go: not if it has just been given a job."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.jobs.put(None)


class _Worker:
    """One thread. It can be interrupted during a job and at no other time: between two it must not lose its place in the pool."""

    def __init__(self, pool: ThreadPool) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._pool = pool
        self._current: Job | None = None
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._work, name="remit-agent", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._pool.leave(self):
                    return
                continue
            if job is None:
                return
            with contextlib.suppress(_StopThread):
                if self._begin(job):
                    job.call()
            self._end()
            if job.is_stopped:
                job.skipped()
            self._pool.take_back(self)

    def _begin(self, job: Job) -> bool:
        with self._lock:
            self._current = None if job.is_stopped else job
        return not job.is_stopped

    def _end(self) -> None:
        """After this nothing can be raised in the thread, and nothing that was on its way is left."""
        while True:
            try:
                with self._lock:
                    self._current = None
                _raise_in(threading.get_ident(), None)
                return
            except _StopThread:
                continue

    def interrupt(self, job: Job) -> None:
        """Raise in the thread at its next Python instruction; code that stands in C is not reached."""
        with self._lock:
            job.is_stopped = True
            if self._current is job and self.thread.ident is not None:
                _raise_in(self.thread.ident, _StopThread)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error))


class ThreadAgent:
    """Carries out a `FunctionAgent` on a thread."""

    __slots__ = ("_agent", "_grace_seconds", "_pool", "spec")

    def __init__(self, agent: FunctionAgent, pool: ThreadPool, grace_seconds: float) -> None:
        self._agent = agent
        self._pool = pool
        self._grace_seconds = grace_seconds
        self.spec: AgentSpec = agent.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return self._agent.check(parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        blocking = BlockingContext(ctx, loop)
        agent = self._agent
        inherited = contextvars.copy_context()

        def run() -> None:
            try:
                args = (blocking,) if agent.takes_context else ()
                value = inherited.run(agent.function, *args, **arguments)
            except _StopThread:
                raise  # the worker tells, where nothing more can be raised
            except BaseException as error:  # noqa: BLE001 - whatever the agent raises goes to `perform`; SystemExit ends no thread of ours
                _tell(loop, answer, None, error if isinstance(error, Exception) else _ended(agent.spec.name, error))
            else:
                _tell(loop, answer, value, None)

        stopped = Stopped("The thread was stopped.")
        job = Job(run, lambda: _tell(loop, answer, None, stopped))
        worker = self._pool.run(job)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._stop(worker, job, answer, ctx)
            raise

    async def _stop(self, worker: _Worker, job: Job, answer: "asyncio.Future[Any]", ctx: Context) -> None:
        worker.interrupt(job)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((answer,), timeout=self._grace_seconds)
        if not answer.done():
            gone = ctx.backend.abandoned(f"The thread of {self.spec.name}")
            answer.add_done_callback(lambda _: gone())


def _ended(name: str, error: BaseException) -> AgentCrashed:
    return AgentCrashed(f"{name} ended the program: {describe_exception(error)}.", advice="Let it return instead of leaving.")


def _tell(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    def on_loop() -> None:
        if answer.done():
            return
        if isinstance(error, StopIteration):  # no future can carry it
            answer.set_exception(RuntimeError(describe_exception(error)))
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop has gone: nobody waits any more
        loop.call_soon_threadsafe(on_loop)
