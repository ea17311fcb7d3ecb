"""The pool of agent processes and commands: it starts them through fork servers and kills them with all they started."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.agents.process import frames
from remit.agents.process.child import Child, Link
from remit.agents.process.program import Program, Spawned, program_to_wire
from remit.agents.process.service import Service
from remit.agents.process.target import Target
from remit.agents.process.wire import delegation_to_wire, repair_to_wire
from remit.core.errors import Misused, Unavailable
from remit.models.questions import TextModel
from remit.runtime.context import Context
from remit.system.interpreter import agent_path
from remit.system.processes import MARK, is_alive, kill_tree_async, padded, process_start

# ---- fork servers

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


class ForkServers:
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


# ---- the pool

TERM_GRACE_SECONDS = 0.25
_GONE_LIMIT = 3.0
"""For a supervisor to kill all and report before that is done without it; usually a few milliseconds."""
_WAIT_LIMIT = 0.2
"""After the grace, how long a caller waits for all to be dead. The killing goes on after that, and is reported."""
_LEAVE_LIMIT = 1.0
"""For a worker that has answered to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is to run."""

    target: Target
    parameters: Mapping[str, Any]
    models: TextModel | None = None
    """What it may ask (`models_of`); the asking is done in the Remit process."""


def marker(project: str, owner_id: str, session_id: str = "") -> str:
    """The mark of one delegation's processes; without a session, what the marks of all of an owner begin with."""
    return f"{project}:{owner_id}:{session_id}"


class ProcessPool:
    def __init__(
        self, *, project: str, owner_id: str, term_grace: float = TERM_GRACE_SECONDS, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment` is what workers find in theirs beside what they inherit: settings that their agents read."""
        self._environment = dict(environment or {})
        self._project = project
        self._owner_id = owner_id
        self._term_grace = term_grace
        self._fork_servers = ForkServers(mark_prefix=marker(project, owner_id))
        self._warming: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wards: dict[Child | Spawned, str] = {}
        """What runs, and for which delegation."""
        self._is_closed = False

    def warm_up(self, targets: Sequence[Target], *, for_commands: bool = False) -> None:
        """Load the targets' modules ahead, and have what starts commands ready, in the background. Nothing waits for it. Asked for again,
        it is done again when the first is done."""
        if not self._is_closed:
            self._warming = asyncio.create_task(self._warm_up(targets, for_commands, self._warming))

    async def wait_warm(self) -> None:
        if self._warming is not None:
            await asyncio.shield(self._warming)

    async def run(self, job: Job, ctx: Context) -> Any:
        if self._is_closed:
            raise Misused("The process pool is closed.", advice="Open a new Remit.")
        mark = marker(self._project, self._owner_id, ctx.session_id)
        child = Child(Service(ctx, job.models))
        self._wards[child] = ctx.session_id
        told: asyncio.Task[None] | None = None
        start = self._own(self._start(child, mark, job, ctx))
        try:
            await asyncio.shield(start)
            told = self._own(_tell_hand_in(child, ctx))
            await child.wait_spoken()
            await child.wait_ended(_LEAVE_LIMIT)
        finally:
            if told is not None:
                told.cancel()
            await self._leave(child, mark, start, ctx)
            if printed := child.printed():
                ctx.backend.printed(printed)
        return child.outcome()

    @contextlib.asynccontextmanager
    async def spawn(self, program: Program, ctx: Context) -> AsyncIterator[Spawned]:
        """A command that runs. When the block is left, by whatever way, it and all its descendants are dead.

        Raises `Unavailable` when it cannot be started, and `Misused` when what it is given cannot be passed to a program.
        """
        if self._is_closed:
            raise Misused("The process pool is closed.", advice="Open a new Remit.")
        mark = marker(self._project, self._owner_id, ctx.session_id)
        wire = program_to_wire(program, {MARK: mark})
        spawned = Spawned(program)
        self._wards[spawned] = ctx.session_id
        start = self._own(self._launch(spawned, mark, wire, ctx))
        try:
            await asyncio.shield(start)
            await spawned.wait_begun()
            yield spawned
        finally:
            await self._leave(spawned, mark, start, ctx)

    def stop_at_once(self, session_ids: Collection[str]) -> None:
        """Kill what runs for these delegations, without the grace of a SIGTERM; whoever waits for them sees to the rest."""
        for ward, session_id in self._wards.items():
            if session_id in session_ids:
                ward.order_stop(0.0)
                if ward.link.pid is not None:
                    ward.link.wake()

    async def close(self) -> None:
        """End everything; nothing of ours is left when this returns."""
        self._is_closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        for ward in self._wards:
            ward.order_stop(0.0)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._fork_servers.close()

    def _own(self, coroutine: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._disown)
        return task

    def _disown(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits it gets it; when nobody does any more, it has no one to tell

    async def _warm_up(self, targets: Sequence[Target], for_commands: bool, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        # A warm start is a convenience: without it workers import for themselves, and say what went wrong.
        with contextlib.suppress(Unavailable, ZygoteGone):
            if for_commands:
                await self._fork_servers.forker()
            if targets:
                await self._fork_servers.preload(targets)

    async def _start(self, child: Child, mark: str, job: Job, ctx: Context) -> None:
        try:
            sockets = [*socket.socketpair(), *socket.socketpair()]
        except OSError as error:
            raise Unavailable(f"No process could be started: {error}.", advice="Raise the limit of open files.") from None
        channel, channel_end, link, link_end = sockets
        try:
            await child.connect(channel, link)
            child.send(_job_frame(job, ctx, self._environment))
            fds = {"channel": channel_end.fileno(), "link": link_end.fileno()}
            child.link.know(await self._fork_servers.fork(mark=mark, session_id=ctx.session_id, **fds))
        finally:
            channel_end.close()
            link_end.close()

    async def _launch(self, spawned: Spawned, mark: str, wire: dict[str, Any], ctx: Context) -> None:
        with contextlib.ExitStack() as theirs:
            link, streams = await spawned.open(theirs)
            spawned.send(wire)
            spawned.link.know(await self._fork_servers.launch(mark=mark, session_id=ctx.session_id, link=link, streams=streams))

    async def _leave(self, ward: Child | Spawned, mark: str, start: "asyncio.Task[Any]", ctx: Context) -> None:
        # Owned by the pool: neither a second cancellation nor the end of our patience ends the killing.
        ending = self._own(self._end(ward, mark, start))
        await asyncio.wait([ending], timeout=self._term_grace + _WAIT_LIMIT)
        if not ending.done():
            gone = ctx.backend.abandoned("its processes are still being killed")
            ending.add_done_callback(lambda _: gone())

    async def _end(self, ward: Child | Spawned, mark: str, start: "asyncio.Task[Any]") -> None:
        """Everything of this process is dead, and every descriptor of it closed, when this returns."""
        link = ward.link
        await asyncio.wait([start])
        try:
            if link.pid is not None and not await link.wait_gone(0.0):
                ward.order_stop(self._term_grace)
                link.wake()
                if not await link.wait_gone(self._term_grace + _GONE_LIMIT):
                    await self._kill_without_supervisor(link, mark)
            await link.wait_dead()
        finally:
            await ward.close(limit=0.1)
            self._wards.pop(ward, None)

    async def _kill_without_supervisor(self, link: Link, mark: str) -> None:
        """The supervisor was killed or is stuck. Its worker died with it; what it had adopted fell to the zygote."""
        await kill_tree_async(link.pid, started=link.started, marker=mark, term_grace=0.0, limit=1.0)
        await self._fork_servers.sweep()


async def _tell_hand_in(child: Child, ctx: Context) -> None:
    """The soft deadline."""
    await ctx.wait_hand_in()
    if ctx.hand_in:  # a stop, too, ends the wait
        child.send({"k": "hand_in"})


def _job_frame(job: Job, ctx: Context, environment: Mapping[str, str]) -> dict[str, Any]:
    backend = ctx.backend  # carrying a context over a pipe needs what stands behind it
    return {
        "target": job.target.to_wire(),
        "parameters": job.parameters,
        "sys_path": agent_path(),
        "folder": os.getcwd(),
        "environment": {**environment, **backend.environment()},
        "facts": {
            "delegation": delegation_to_wire(backend.delegation),
            "root": str(backend.root),
            "workspace": str(backend.workspace),
            "repair": repair_to_wire(backend.repair),
            "saved": backend.saved,
            "has_model": job.models is not None and job.models.is_configured(),
        },
    }
