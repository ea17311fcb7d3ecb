"""The worker: the process in which an agent's function runs. Takes one job off its channel, answers, ends.

An async function gets the async `Context` on a loop of its own. A sync one runs on the main thread, so that it can be interrupted,
and gets the blocking twin. SIGTERM cancels the one and raises `Stopped` in the other: time to save what there is.
"""

import asyncio
import contextlib
import importlib
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from remit.agents.process import frames
from remit.agents.process.remote import Channel, RemoteBackend
from remit.agents.process.target import Target
from remit.agents.process.wire import error_to_wire
from remit.core.agents import AgentSpec
from remit.core.errors import Stopped
from remit.core.jsonable import to_jsonable
from remit.runtime.context import Context

BROKEN = 70
"""Exit code of a worker that could not even report."""


def import_ahead() -> None:
    """In the zygote: what every worker needs, so that none pays for it."""
    importlib.import_module("remit.agents.blocking")
    _declared(_rehearsal).check({"word": ""})  # pydantic imports most of itself when it is first used


def _rehearsal(ctx: Context, word: str = "") -> None: ...


def enter_path(sys_path: list[str]) -> None:
    """Find modules where the Remit process finds them."""
    sys.path[:] = sys_path


def work(sock: socket.socket) -> NoReturn:
    job = frames.receive(sock)
    if job is None:
        os._exit(BROKEN)
    channel = Channel(sock)
    channel.listen()
    try:
        enter_path(job["sys_path"])
        os.environ.update(job["environment"])
        with contextlib.suppress(OSError):
            os.chdir(job["folder"])
        found = Target.from_wire(job["target"]).load()
    except BaseException as error:  # noqa: BLE001 - an agent's module may raise anything at import; the caller must hear it
        _end(channel, {"k": "broken", "error": error_to_wire(error, with_traceback=True)})
    _perform(channel, job, found)


def _perform(channel: Channel, job: Mapping[str, Any], found: Any) -> NoReturn:
    try:
        agent = _declared(found)
        function: Callable[..., Any] = agent.function
        arguments = agent.check(job["parameters"])
        backend = RemoteBackend(channel, job["facts"]) if agent.takes_context else None
        if inspect.iscoroutinefunction(function):
            value = asyncio.run(_run_async(channel, function, backend, arguments))
        else:
            value = _run_sync(channel, function, backend, arguments)
        message = {"k": "answer", "value": to_jsonable(value)}
    except SystemExit as leaving:
        _leave(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
    except BaseException as error:  # noqa: BLE001 - whatever the agent raises is its outcome
        message = {"k": "raised", "error": error_to_wire(error, with_traceback=True)}
    _end(channel, message)


async def _run_async(channel: Channel, function: Callable[..., Any], backend: RemoteBackend | None, arguments: Mapping[str, Any]) -> Any:
    task = asyncio.ensure_future(function(*_context(backend), **arguments))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        value = await task
    except BaseException as error:  # noqa: BLE001 - as above
        if task.done() and not task.cancelled() and isinstance(leaving := task.exception(), SystemExit):
            raise leaving from None  # it ended the loop, which cancelled us: `error` says only that
        _end(channel, {"k": "raised", "error": error_to_wire(error, with_traceback=True)})
    # Answered from here: tasks the function left behind must not be able to hold the answer back while the loop closes.
    _end(channel, {"k": "answer", "value": to_jsonable(value)})


def _context(backend: RemoteBackend | None) -> tuple[Any, ...]:
    return () if backend is None else (Context(backend),)


def _run_sync(channel: Channel, function: Callable[..., Any], backend: RemoteBackend | None, arguments: Mapping[str, Any]) -> Any:
    def stop(*_: object) -> None:
        if not channel.stop_would_break_a_frame():
            raise Stopped("The delegation is being stopped.")

    signal.signal(signal.SIGTERM, stop)
    if backend is None:
        return function(**arguments)
    from remit.agents.blocking import BlockingContext  # here, as `agents.function` imports this package

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="remit-loop", daemon=True).start()
    return function(BlockingContext(Context(backend), loop), **arguments)


def _declared(found: Any) -> Any:
    """The agent. A plain function of that name was declared elsewhere, `agent("name")(function)`: its signature says the rest."""
    if hasattr(found, "check"):
        return found
    from remit.agents.function import FunctionAgent  # here, so that this package does not need it to be imported

    return FunctionAgent(found, AgentSpec(name=getattr(found, "__name__", "agent")))


def _end(channel: Channel, message: dict[str, Any]) -> NoReturn:
    """Hand the outcome in and go, at once: threads and exit hooks of the agent are not waited for."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        channel.send(message)
    except Exception as error:  # noqa: BLE001 - a value that is no JSON, or too much of it: said instead of the value
        with contextlib.suppress(Exception):
            channel.send({"k": "raised", "error": error_to_wire(error, with_traceback=True)})
    _leave(0)


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
