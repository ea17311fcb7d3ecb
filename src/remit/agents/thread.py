"""Sync functions on threads. A thread cannot be killed: it is asked to stop, and abandoned if it does not.

An exception is raised in it at its next Python instruction, its `ctx` refuses all calls, and it is not awaited. Threads are daemons: an
abandoned one does not prevent the program from exiting."""

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import Any

from remit.agents.function import FunctionAgent
from remit.core.agents import AgentSpec
from remit.core.context import BlockingContext, Context, ContextBackend
from remit.core.errors import AgentCrashed, Stopped
from remit.runtime.reply import describe_exception


class _StopThread(BaseException):
    """Raised in a thread whose delegation has ended."""


class _Call:
    """One call of an agent's function on its own thread. It can be interrupted only while the function runs."""

    def __init__(self, run: Callable[[], None], stopped: Callable[[], None]) -> None:
        """`stopped` is called on the thread after an interrupt."""
        self._run = run
        self._stopped = stopped
        self._lock = threading.Lock()
        self._is_running = self._is_stopped = False
        self._thread = threading.Thread(target=self._main, name="remit-agent", daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        """Raise in the thread at its next Python instruction; C code is not interrupted."""
        with self._lock:
            self._is_stopped = True
            if self._is_running and self._thread.ident is not None:
                _raise_in(self._thread.ident, _StopThread)

    def _main(self) -> None:
        with contextlib.suppress(_StopThread):
            if self._begin():
                self._run()
        self._end()
        if self._is_stopped:
            self._stopped()

    def _begin(self) -> bool:
        with self._lock:
            self._is_running = not self._is_stopped
        return not self._is_stopped

    def _end(self) -> None:
        """After this nothing can be raised in the thread, and no exception is pending."""
        while True:
            try:
                with self._lock:
                    self._is_running = False
                _raise_in(threading.get_ident(), None)
                return
            except _StopThread:
                continue


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error))


class ThreadAgent:
    """Executes a `FunctionAgent` on a thread."""

    __slots__ = ("_agent", "_grace_seconds", "spec")

    def __init__(self, agent: FunctionAgent, grace_seconds: float) -> None:
        self._agent = agent
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
                agent.check_result(value)
            except _StopThread:
                raise  # reported by `_Call`, after which nothing more can be raised
            except BaseException as error:  # noqa: BLE001 - any exception of the agent goes to `perform`; SystemExit ends no thread of remit
                _settle(loop, answer, None, error if isinstance(error, Exception) else _ended(agent.spec.name, error))
            else:
                _settle(loop, answer, value, None)

        stopped = Stopped("The thread was stopped.")
        thread = _Call(run, lambda: _settle(loop, answer, None, stopped))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            thread.interrupt()
            await wait_stopped(answer, ctx.backend, f"The thread of {self.spec.name}", self._grace_seconds)
            raise


async def wait_stopped(answer: "asyncio.Future[Any]", backend: ContextBackend, what: str, seconds: float) -> None:
    """Wait for the last answer of an agent that was asked to stop, and report it as abandoned if none comes."""
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait((answer,), timeout=seconds)
    if not answer.done():
        gone = backend.abandoned(what)
        answer.add_done_callback(lambda _: gone())


def _ended(name: str, error: BaseException) -> AgentCrashed:
    crashed = AgentCrashed(f"{name} ended the program: {describe_exception(error)}.", advice="Return from it instead of exiting.")
    crashed.__cause__ = error
    return crashed


def _settle(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    def on_loop() -> None:
        if answer.done():
            return
        if isinstance(error, StopIteration):  # no future can carry it
            answer.set_exception(RuntimeError(describe_exception(error)).with_traceback(error.__traceback__))
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(on_loop)
