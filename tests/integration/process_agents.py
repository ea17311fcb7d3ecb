"""Agents for `test_process_agents*`, well-behaved and hostile. Imported by the workers, so importing has no side effects."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

from remit import Stopped
from support.processes import mark_of


def add(a: int, b: int) -> int:
    return a + b


def leave(code: int) -> None:
    print("about to leave", file=sys.stderr)
    os._exit(code)


async def snooze_async(ctx: Any) -> None:
    try:
        await asyncio.sleep(600)
    finally:
        await ctx.checkpoint("saved on the way out")


def snooze_and_note(path: str) -> None:
    try:
        time.sleep(600)
    except Stopped:
        with open(path, "w") as file:
            file.write("saved")
        raise


def daemonise() -> None:
    """Leaves session, group and parent, without exec and with; the second one without our environment."""
    for with_exec in (False, True):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if with_exec:
                    os.execve("/bin/sleep", ["sleep", "600"], {})
                time.sleep(600)
            os._exit(0)
        os.wait()
    time.sleep(600)


def start_programs() -> None:
    for _ in range(50):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(600)


def kill_fork_server() -> str:
    with open(f"/proc/{os.getppid()}/stat") as file:
        server = int(file.read().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGKILL)
    return "killed it"


def large(megabytes: int) -> str:
    return "x" * (megabytes * 1024 * 1024)


def not_json() -> object:
    return object()


async def wait_for_hand_in(ctx: Any) -> bool:
    await ctx.wait_hand_in()
    return bool(ctx.hand_in)


def fork_bomb() -> None:
    """Fork bomb in the same group and in new ones; bounded so that a failing test stays harmless."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        try:
            if os.fork() == 0 and time.monotonic_ns() % 3 == 0:
                os.setsid()
        except OSError:
            continue
        time.sleep(0.02)


def stop_supervisor() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


def whose_process() -> tuple[int, str, str | None]:
    """Its pid, the session of its environment, and its mark."""
    return os.getpid(), os.environ["REMIT_SESSION"], mark_of(os.getpid())
