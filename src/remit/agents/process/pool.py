"""The pool: runs agents in processes of their own, one per delegation, for one Remit. The door of this package.

`run` gives the worker's raw answer or raises how it failed; `spawn` gives a command that runs. When either is cancelled or left, it
goes on only after the process and everything it started are dead. Deadlines are the caller's: the pool knows none.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.agents.process.child import Child
from remit.agents.process.link import Link
from remit.agents.process.nursery import Nursery, ZygoteGone
from remit.agents.process.program import Program, program_to_wire
from remit.agents.process.service import Service
from remit.agents.process.spawned import Spawned
from remit.agents.process.target import Target
from remit.agents.process.wire import delegation_to_wire, repair_to_wire
from remit.core.errors import Misused, Unavailable
from remit.flow.context import Context
from remit.models.optional import Writes
from remit.system.interpreter import agent_path
from remit.system.processes import MARK, kill_tree_async

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
    models: Writes | None = None
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
        self._nursery = Nursery(mark_prefix=marker(project, owner_id))
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
                ctx._desk.printed(printed)
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
        await self._nursery.close()

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
                await self._nursery.forker()
            if targets:
                await self._nursery.preload(targets)

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
            child.link.know(await self._nursery.fork(mark=mark, session_id=ctx.session_id, **fds))
        finally:
            channel_end.close()
            link_end.close()

    async def _launch(self, spawned: Spawned, mark: str, wire: dict[str, Any], ctx: Context) -> None:
        with contextlib.ExitStack() as theirs:
            link, streams = await spawned.open(theirs)
            spawned.send(wire)
            spawned.link.know(await self._nursery.launch(mark=mark, session_id=ctx.session_id, link=link, streams=streams))

    async def _leave(self, ward: Child | Spawned, mark: str, start: "asyncio.Task[Any]", ctx: Context) -> None:
        # Owned by the pool: neither a second cancellation nor the end of our patience ends the killing.
        ending = self._own(self._end(ward, mark, start))
        await asyncio.wait([ending], timeout=self._term_grace + _WAIT_LIMIT)
        if not ending.done():
            gone = ctx._desk.abandoned("its processes are still being killed")
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
        await self._nursery.sweep()


async def _tell_hand_in(child: Child, ctx: Context) -> None:
    """The soft deadline (S2.4)."""
    await ctx.wait_hand_in()
    if ctx.hand_in:  # a stop, too, ends the wait
        child.send({"k": "hand_in"})


def _job_frame(job: Job, ctx: Context, environment: Mapping[str, str]) -> dict[str, Any]:
    desk = ctx._desk  # carrying a context over a pipe needs what stands behind it
    return {
        "target": job.target.to_wire(),
        "parameters": job.parameters,
        "sys_path": agent_path(),
        "folder": os.getcwd(),
        "environment": {**environment, **desk.environment()},
        "facts": {
            "delegation": delegation_to_wire(desk.delegation),
            "root": str(desk.root),
            "workspace": str(desk.workspace),
            "repair": repair_to_wire(desk.repair),
            "saved": desk.saved,
            "has_model": job.models is not None and job.models.is_configured(),
        },
    }
