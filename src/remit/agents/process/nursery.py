"""The parent's side of the zygotes: starting them, giving them orders, replacing one that died or does not answer.

The first zygote has no agent's module in it and serves at once. `preload` grows a second one from it that has imported the
agents' modules; from the moment that one is ready it serves, and if it never is, the first goes on. Commands are started by a
`forker` beside them, which is ready sooner and quicker to fork, as it holds no more than that takes. Used by `pool` alone.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from remit.agents.process import frames
from remit.agents.process.target import Target
from remit.core.errors import Unavailable
from remit.system.interpreter import agent_path
from remit.system.prctl import padded
from remit.system.processes import MARK, is_alive, process_start

_START = "import json,sys; sys.path[:]=json.loads(sys.argv.pop(1)); from remit.agents.process.zygote import main; main()"
_START_FORKER = """\
import json, sys, types
for name, path in json.loads(sys.argv.pop(1)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from remit.agents.process.forker import main
main()
"""
"""Packages without what their `__init__` imports: the modules below them are then imported one by one, as they are needed."""
_PACKAGES = ("remit", "remit.agents", "remit.agents.process", "remit.system")
_START_LIMIT = 20.0
_ORDER_LIMIT = 5.0
_PRELOAD_LIMIT = 120.0
_CLOSE_LIMIT = 1.0
_REAP_LIMIT = 0.5

log = logging.getLogger(__name__)


class ZygoteGone(Exception):
    """It died, or did not answer in time."""


class Zygote:
    """One zygote as seen from here: one order at a time, each answered."""

    def __init__(self, control: socket.socket, pid: int, process: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self._control = control
        self._started = process_start(pid)
        self._process = process
        self._order = asyncio.Lock()
        self.is_gone = False

    async def order(self, message: dict[str, Any], fds: Sequence[int] = (), *, limit: float = _ORDER_LIMIT) -> dict[str, Any]:
        """Not to be cancelled in the middle: shield it, or the next order gets this one's answer."""
        async with self._order:
            if self.is_gone:
                raise ZygoteGone
            try:
                socket.send_fds(self._control, [frames.pack(message)], list(fds))
                return await self.hear(limit)
            except OSError:
                self.end()
                raise ZygoteGone from None

    async def hear(self, limit: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        unpacker = frames.Unpacker()
        try:
            async with asyncio.timeout(limit):
                while data := await loop.sock_recv(self._control, 65536):
                    messages = unpacker.feed(data)
                    if messages:
                        return messages[0]
        except (TimeoutError, OSError, frames.Garbled):
            pass
        self.end()
        raise ZygoteGone

    def end(self) -> None:
        """Workers it forked live on: each is watched by its own supervisor."""
        self.is_gone = True
        self._control.close()
        if is_alive(self.pid, self._started):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.poll()

    async def close(self) -> None:
        self.is_gone = True
        self._control.close()  # the zygote ends by itself when it sees that
        for _ in range(int(_CLOSE_LIMIT / 0.005)):
            if self._process is not None:
                self._process.poll()
            if not is_alive(self.pid, self._started):
                break
            await asyncio.sleep(0.005)
        else:
            self.end()
        await self.wait_reaped()

    async def wait_reaped(self) -> None:
        """After its end: what was killed is a moment later a zombie, and stays one until we ask for it."""
        for _ in range(int(_REAP_LIMIT / 0.002)):
            if self._process is None or self._process.poll() is not None:
                return
            await asyncio.sleep(0.002)


class Nursery:
    def __init__(self, *, mark_prefix: str) -> None:
        self._mark = f"{mark_prefix}zygote"
        self._first: Zygote | None = None
        self._grown: Zygote | None = None
        self._forker: Zygote | None = None
        self._starting = asyncio.Lock()
        self._starting_forker = asyncio.Lock()

    async def fork(self, *, mark: str, session_id: str, channel: int, link: int) -> int:
        """A supervisor with a worker; the supervisor's pid."""
        return await self._make({"op": "fork", "mark": mark, "session_id": session_id}, [channel, link], self._serving)

    async def launch(self, *, mark: str, session_id: str, link: int, streams: Sequence[int]) -> int:
        """A supervisor that takes a program off its link and starts it; the supervisor's pid. `streams`: its output, and its input."""
        return await self._make({"op": "exec", "mark": mark, "session_id": session_id}, [link, *streams], self.forker)

    async def forker(self) -> "Zygote":
        """The one that starts commands, started if need be."""
        async with self._starting_forker:
            if self._forker is None or self._forker.is_gone:
                self._forker = await self._start(_spawn_forker)
            return self._forker

    async def _first_zygote(self) -> "Zygote":
        async with self._starting:
            if self._first is None or self._first.is_gone:
                self._first = await self._start(_spawn)
            return self._first

    async def _make(self, order: dict[str, Any], fds: Sequence[int], choose: Callable[[], Awaitable["Zygote"]]) -> int:
        """A zygote that fails is replaced once."""
        for _ in range(3):  # the grown one, the first one, a new one
            zygote = await choose()
            try:
                answer = await zygote.order(order, fds)
            except ZygoteGone:
                continue
            if "pid" in answer:
                return int(answer["pid"])
            raise Unavailable(f"No process could be started: {answer.get('error')}.", advice="Free processes or memory, try again.")
        raise Unavailable("No process could be started: the zygote dies each time.", advice="Try again; see the log.")

    async def sweep(self) -> None:
        """Kill what fell to the zygotes because its supervisor was killed."""
        for zygote in (self._grown, self._first, self._forker):
            if zygote is not None and not zygote.is_gone:
                with contextlib.suppress(ZygoteGone):
                    await zygote.order({"op": "sweep"})

    async def preload(self, targets: Sequence[Target]) -> dict[str, str]:
        """Grow a zygote that has imported the targets' modules; what could not be imported, and why."""
        first = await self._first_zygote()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            answer = await asyncio.shield(first.order({"op": "grow", "mark": self._mark}, [theirs.fileno()]))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        if "pid" not in answer:
            ours.close()
            return {}
        grown = Zygote(ours, int(answer["pid"]), None)
        try:
            plan = {"sys_path": agent_path(), "folder": os.getcwd(), "targets": [target.to_wire() for target in targets]}
            await asyncio.get_running_loop().sock_sendall(ours, frames.pack(plan))
            ready = await grown.hear(_PRELOAD_LIMIT)
        except BaseException:
            grown.end()
            raise
        before, self._grown = self._grown, grown
        if before is not None:
            await before.close()
        failures: dict[str, str] = ready.get("failures", {})
        for name, why in failures.items():
            log.warning("The agent %s could not be loaded ahead: %s", name, why)
        return failures

    async def close(self) -> None:
        for zygote in (self._grown, self._first, self._forker):
            if zygote is not None:
                await zygote.close()
        self._grown = self._first = self._forker = None

    async def _serving(self) -> Zygote:
        grown = self._grown
        if grown is not None and not grown.is_gone:
            return grown
        return await self._first_zygote()

    async def _start(self, spawn: "Callable[[socket.socket, str], subprocess.Popen[bytes]]") -> Zygote:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = spawn(theirs, self._mark)
        zygote = Zygote(ours, process.pid, process)
        assert process.stderr is not None
        try:
            await zygote.hear(_START_LIMIT)
        except ZygoteGone:
            await zygote.wait_reaped()
            words = process.stderr.read().decode(errors="replace").strip()
            raise Unavailable(
                f"The process that starts agents did not start: {words[-500:] or 'it said nothing'}",
                advice="Check that this Python can import remit outside of this program.",
            ) from None
        except BaseException:
            zygote.end()
            await zygote.wait_reaped()
            raise
        finally:
            process.stderr.close()
        return zygote


def _spawn(control: socket.socket, mark: str) -> "subprocess.Popen[bytes]":
    return _popen(["-c", _START, json.dumps(agent_path())], {**os.environ, MARK: padded(mark)}, control)


def _spawn_forker(control: socket.socket, mark: str) -> "subprocess.Popen[bytes]":
    packages = [(name, list(sys.modules[name].__path__)) for name in _PACKAGES]
    return _popen(["-S", "-c", _START_FORKER, json.dumps(packages)], {MARK: padded(mark)}, control)


def _popen(arguments: list[str], environment: dict[str, str], control: socket.socket) -> "subprocess.Popen[bytes]":
    with control:
        return subprocess.Popen(
            [sys.executable, "-I", *arguments, str(control.fileno()), str(os.getpid())],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[control.fileno()],
            start_new_session=True,
        )
