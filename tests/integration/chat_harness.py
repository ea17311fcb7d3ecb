"""Projects with a scripted model, and a terminal, for tests of `remit ask` and `remit chat`."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from remit.testing import Call, Fail, ModelRequest, Say, ScriptedModels
from remit.testing import ModelTurn as Turn

AGENTS = """
import asyncio
import os
from remit import agent

@agent("nap", timeout=60)
async def nap(ctx, seconds: float):
    ctx.progress("asleep")
    await asyncio.sleep(seconds)
    return "rested"

@agent("program", timeout=60, isolation="process")
def program(ctx):
    import time
    (ctx.root / "program.pid").write_text(str(os.getpid()))
    time.sleep(50)

@agent("wipe", effects=("delete",), acts_on={"path": "path"})
async def wipe(ctx, path: str, recursive: bool = False):
    return f"removed {path}"
"""


def echo(request: ModelRequest) -> Turn:
    """A model that repeats its input and makes the delegations it is asked for."""
    prompt, last = last_user_message(request), request.messages[-1]
    if last.role == "tool":
        if "wipe" in prompt:
            return Say("It was removed build." if "removed build" in last.text else "It was not removed.")
        return Say("I have looked:\n\n- one\n- two")
    if "fail" in prompt:
        return Fail(400)
    reply = Say(f"You said **{prompt}**." + (" \x1b[2J\x1b]0;mine\x07 \u202egone" if "harm" in prompt else ""))
    if "look" in prompt:
        nap = Call("delegate", target="nap", parameters={"seconds": 0.2})
        return [reply, nap, Call("delegate", target="worker", operation="list_files", parameters={"path": "."})]
    if "wait" in prompt:
        return [reply, Call("delegate", target="nap", parameters={"seconds": 40})]
    if "start" in prompt:
        return [reply, Call("delegate", target="program", parameters={})]
    if "wipe" in prompt:
        return [reply, Call("delegate", target="wipe", parameters={"path": "build", "recursive": True})]
    return reply


@contextlib.contextmanager
def echoing_project(folder: Path) -> Iterator[Path]:
    (folder / ".remit" / "agents").mkdir(parents=True)
    (folder / ".remit" / "agents" / "some.py").write_text(AGENTS)
    with scripted_project(folder, echo):
        yield folder


@contextlib.contextmanager
def scripted_project(folder: Path, script: Callable[[ModelRequest], Turn]) -> Iterator[ScriptedModels]:
    """A project with a scripted model, served from a thread; the key is `CHAT_TEST_KEY`."""
    loop, ready, models = asyncio.new_event_loop(), threading.Event(), ScriptedModels(script)
    stop = asyncio.Event()

    async def serve() -> None:
        async with models:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(60)
    (folder / "remit.toml").write_text(
        f'model = "scripted"\n[models.scripted]\nkind = "openai"\nurl = "{models.openai_url}"\nkey_variable = "CHAT_TEST_KEY"\n'
        "[prices.scripted]\ninput = 1.0\noutput = 2.0\n"
    )
    os.environ["CHAT_TEST_KEY"] = "none"
    try:
        yield models
    finally:
        del os.environ["CHAT_TEST_KEY"]
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def last_user_message(request: ModelRequest) -> str:
    return next(message.text for message in reversed(request.messages) if message.role == "user")


_MAIN = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from remit.cli.main import main
sys.argv[0] = "remit"
main()
"""
"""A process with its own terminal, as a shell starts it."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?>]*[A-Za-z]|\][^\x07]*\x07|[()=>].?)")


class Terminal:
    def __init__(self, folder: Path, *arguments: str, columns: int = 100) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns)
        command = [sys.executable, "-c", _MAIN, *arguments]
        environment = os.environ | {"TERM": "xterm-256color", "PAGER": "cat"}
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    def resize(self, columns: int, lines: int = 30) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def text(self) -> str:
        """Everything printed, without cursor movements and colours."""
        return _ESCAPES.sub("", self.raw)

    def until(self, expected: str, seconds: float = 60.0) -> str:
        """Wait for text that appears after the previous match."""
        end = time.monotonic() + seconds
        while expected not in self.text[self._seen :] and time.monotonic() < end:
            if not self.read(0.1):
                break
        new = self.text[self._seen :]
        assert expected in new, new
        self._seen += new.index(expected) + len(expected)
        return new

    def read(self, seconds: float) -> bool:
        """Whether the terminal is still open."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            try:
                new = os.read(self.master, 65536).decode("utf-8", "replace")
                self.raw += new
                for _ in range(new.count("\x1b[6n")):
                    self.type("\x1b[5;1R")  # the cursor position, as a terminal reports it
            except OSError:
                return False
        return True

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def exit_code(self) -> int:
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        return self.process.wait(60)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        with contextlib.suppress(OSError):
            os.close(self.master)


@contextlib.contextmanager
def terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(folder, *arguments)
    try:
        yield opened
    finally:
        opened.close()
