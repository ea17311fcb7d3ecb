"""Hostile agents: everything an agent can do to hang, outlive or deceive its caller. For tests.

Each is a function and the isolations in which it can do harm without ending the test (`os._exit` inline ends the program, about which
nothing can be promised). `hostile_agents()` declares them; `tests/chaos` checks what the caller sees. Never call one of these yourself."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from remit import FunctionAgent, Isolation, agent, call
from remit.system.processes import MARK

FOREVER_SECONDS = 3600.0
_MEGABYTE = 1024 * 1024

DAEMON_NAME = "remit-hostile-daemon"
"""Name of a daemon without any of remit's marks, so that a census can find it."""

Function = Callable[..., Any]
HOSTILE: dict[str, tuple[Function, tuple[Isolation, ...]]] = {}
"""By name: the function, and its isolations."""

_INLINE, _THREAD, _PROCESS = Isolation.INLINE, Isolation.THREAD, Isolation.PROCESS


def _hostile(*isolations: Isolation) -> Callable[[Function], Function]:
    def note(function: Function) -> Function:
        HOSTILE[function.__name__.replace("_", "-")] = (function, isolations)
        return function

    return note


def hostile_agents(*isolations: Isolation) -> list[FunctionAgent]:
    """All of them in these isolations (all when none is named): `busy-loop.process`, `busy-loop.thread`, …"""
    wanted = isolations or tuple(Isolation)
    return [
        agent(f"{name}.{isolation}", isolation=isolation, workspace="scratch")(function)
        for name, (function, possible) in HOSTILE.items()
        for isolation in possible
        if isolation in wanted
    ]


# ---- not stopping


@_hostile(_THREAD, _PROCESS)
def busy_loop() -> None:
    while True:
        pass


@_hostile(_INLINE, _PROCESS)
async def busy_loop_async() -> None:
    while True:
        pass


@_hostile(_THREAD, _PROCESS)
def sleep() -> None:
    time.sleep(FOREVER_SECONDS)


@_hostile(_INLINE, _PROCESS)
async def sleep_on_the_loop() -> None:
    time.sleep(FOREVER_SECONDS)  # noqa: ASYNC251 - the harm it is here to do


@_hostile(_THREAD, _PROCESS)
def swallow() -> None:
    """Continues whatever is raised in it."""
    end = time.monotonic() + FOREVER_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            time.sleep(0.02)


@_hostile(_INLINE, _PROCESS)
async def swallow_cancellation() -> None:
    while True:
        try:
            await asyncio.sleep(FOREVER_SECONDS)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise


@_hostile(_INLINE, _PROCESS)
async def raise_while_cancelled() -> None:
    try:
        await asyncio.sleep(FOREVER_SECONDS)
    except asyncio.CancelledError:
        raise ValueError("while being cancelled") from None


@_hostile(_PROCESS)
def ignore_sigterm() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def stop_itself() -> None:
    """SIGSTOP cannot be caught, and a stopped process answers nothing."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def leave_threads() -> str:
    """Answers, and leaves threads that would keep an interpreter from ending."""
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(FOREVER_SECONDS,)).start()
    return "answered"


# ---- outliving its end


def _daemon(*, with_exec: bool) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if with_exec:
                os.execve("/bin/sleep", [f"{DAEMON_NAME} {os.environ.get(MARK, '')}", str(int(FOREVER_SECONDS))], {})
            time.sleep(FOREVER_SECONDS)
        os._exit(0)
    os.wait()


@_hostile(_PROCESS)
def daemonise() -> None:
    _daemon(with_exec=False)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def daemonise_with_exec() -> None:
    """The daemon has none of remit's marks: not the session, not the parent, not the environment."""
    _daemon(with_exec=True)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def daemonise_and_answer() -> str:
    _daemon(with_exec=False)
    _daemon(with_exec=True)
    return "answered"


@_hostile(_PROCESS)
def fork_many() -> None:
    for _ in range(20):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(FOREVER_SECONDS)
            os._exit(0)
    time.sleep(FOREVER_SECONDS)


# ---- ending without a word


@_hostile(_PROCESS)
def exit_in_the_middle() -> None:
    print("about to leave", file=sys.stderr, flush=True)
    os._exit(3)


@_hostile(_THREAD, _PROCESS)
def exit_politely() -> None:
    sys.exit(3)


@_hostile(_PROCESS)
def kill_supervisor() -> None:
    _daemon(with_exec=False)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def stop_supervisor() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def kill_fork_server() -> str:
    with open(f"/proc/{os.getppid()}/stat") as file:
        server = int(file.read().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    return "answered"


@_hostile(_PROCESS)
def close_pipes() -> None:
    os.closerange(0, 256)
    time.sleep(FOREVER_SECONDS)


@_hostile(_PROCESS)
def garbage_on_the_pipe() -> None:
    """Sends garbage to every open socket, including its channel."""
    for fd in range(3, 64):
        try:
            socket.socket(fileno=os.dup(fd)).send(b"\x00\x00\x00\x05hello\xff\xff\xff\xff")
        except OSError:
            continue
    time.sleep(FOREVER_SECONDS)


# ---- too much


@_hostile(_PROCESS)
def shout() -> str:
    """100 MB of output."""
    block = "x" * _MEGABYTE
    for _ in range(100):
        print(block)
    return "answered"


@_hostile(_THREAD, _PROCESS)
def flood(ctx: Any) -> str:
    """100 MB of chunks."""
    block = "x" * _MEGABYTE
    for _ in range(100):
        ctx.emit(block)
    return "answered"


@_hostile(_THREAD, _PROCESS)
def vast_answer() -> str:
    """100 MB of answer."""
    return "x" * (100 * _MEGABYTE)


@_hostile(_THREAD, _PROCESS)
def endless_answer() -> Any:
    return itertools.count()


@_hostile(_INLINE, _PROCESS)
async def doubling_answer() -> Any:
    """Small in memory, 2**60 values on paper."""
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    return value


@_hostile(_INLINE, _PROCESS)
async def never_stop_talking(ctx: Any) -> None:
    """A return that never ends: it is alive and streams for ever."""
    for number in itertools.count():
        ctx.emit(number)
        await asyncio.sleep(0.001)


@_hostile(_THREAD, _PROCESS)
def recurse_in_python() -> int:
    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    return deeper(0)


# ---- too many


@_hostile(_INLINE, _PROCESS)
async def call_itself(ctx: Any) -> Any:
    """Recursion: refused each time, and it keeps calling."""
    return [(await ctx.delegate(ctx.path[-1])).errors[0].code for _ in range(50)]


@_hostile(_INLINE, _PROCESS)
async def ping(ctx: Any) -> Any:
    """A → B → A."""
    return (await ctx.delegate(ctx.path[-1].replace("ping", "pong"))).data


@_hostile(_INLINE, _PROCESS)
async def pong(ctx: Any) -> Any:
    refused = await ctx.delegate(ctx.path[-1].replace("pong", "ping"))
    return refused.errors[0].code if refused.errors else refused.data


@_hostile(_INLINE)
async def leaf() -> None:
    await asyncio.sleep(0)


@_hostile(_INLINE, _PROCESS)
async def fan_out(ctx: Any) -> Any:
    """Thousands of children at once, beyond every limit."""
    results = await ctx.gather(*(call("leaf.inline") for _ in range(3000)), limit=3000)
    return sum(result.ok for result in results)
