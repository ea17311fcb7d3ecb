"""A project on a Temporal server with worker processes whose agents write their actions to a log."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from remit import Handle, Remit, State
from support.processes import is_alive, mark_of, marked
from support.worker_processes import WorkerForks, WorkerProcess

HEARTBEAT = 3.0
STOPPED_SECONDS = 10.0
"""Upper bound for stopping children on other workers after their caller's worker is lost. The wait ends as soon as they stop."""
NOTE = """
import asyncio, os, time
from pathlib import Path
from remit import Context, agent, call

def note(ctx, what):
    line = f"{what} {ctx.session_id} {os.getpid()} {time.monotonic()}\\n".encode()
    log = os.open(ctx.root / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, line)
    os.close(log)
"""


class Line(NamedTuple):
    """One logged action of an agent."""

    what: str
    session_id: str
    pid: int
    at: float


class Cluster:
    def __init__(self, root: Path, address: str, forks: WorkerForks, agents: str, **settings: Any) -> None:
        self.root = root
        self._settings = settings
        self.heartbeat_seconds = HEARTBEAT
        self._forks = forks
        self._address = address
        folder = root / ".remit" / "agents"
        folder.mkdir(parents=True)
        (folder / "work.py").write_text(NOTE + agents)
        (root / "remit.toml").write_text("builtin_agents = []\ndescribe_seconds = 30\n")
        self.workers: list[WorkerProcess] = []

    def settings(self, address: str = "", **more: Any) -> dict[str, Any]:
        temporal = {"address": address or self._address, "heartbeat_seconds": self.heartbeat_seconds, "worker_wait_seconds": 30.0}
        engine = {"kind": "temporal", "project": f"{self.root.name}-{crc32(bytes(self.root))}", "temporal": temporal}
        return {"engine": engine, "builtin_agents": (), "describe_seconds": 30.0, **self._settings, **more}

    async def start(
        self, count: int = 1, *, address: str = "", slots: int = 256, settings: dict[str, Any] | None = None, **more: Any
    ) -> list[WorkerProcess]:
        """Start workers and wait until they accept work. `more`: as in `WorkerForks.start`."""
        chosen = self.settings(address, slots_total=slots, **(settings or {}))
        started = [self._forks.start(self.root, chosen, **more) for _ in range(count)]
        self.workers += started
        for worker in started:
            await worker.wait_ready()
        return started

    @asynccontextmanager
    async def restarting(self, count: int, **more: Any) -> AsyncIterator[None]:
        """Run `count` workers and replace each one that exits, like a service manager. A worker exits if the machine stalls for longer
        than its heartbeat allows."""

        async def restart() -> None:
            while True:
                await asyncio.sleep(0.2)
                if sum(is_alive(worker.pid, None) for worker in self.workers) < count:
                    await self.start(**more)

        await self.start(count, **more)
        task = asyncio.create_task(restart())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def open(self, **more: Any) -> Remit:
        return Remit.open(self.root, settings=self.settings(**more))

    def lines(self, what: str = "") -> list[Line]:
        path = self.root / "log.txt"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [Line(said, session_id, int(pid), float(at)) for said, session_id, pid, at in words if what in ("", said)]

    async def until(self, what: str, count: int = 1, seconds: float = 60) -> list[Line]:
        end = time.monotonic() + seconds
        while len(found := self.lines(what)) < count:
            assert time.monotonic() < end, f"no {what}: {self.lines()}"
            await asyncio.sleep(0.005)
        return found

    # ---- invariants after a run

    def overlaps(self) -> list[str]:
        """Sessions on which two processes worked at the same time. A process may make several attempts, with others in between."""
        spans: dict[str, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
        attempts: Counter[tuple[str, int]] = Counter()
        for line in self.lines():
            attempts[line.session_id, line.pid] += line.what == "begin"
            spans[line.session_id][line.pid, attempts[line.session_id, line.pid]].append(line.at)
        return [session_id for session_id, by in spans.items() if _overlap(sorted((min(at), max(at)) for at in by.values()))]

    async def wrong(self, remit: Remit, *handles: Handle) -> list[str]:
        """Violations: each delegation of these trees is settled once, never runs afterwards or in two processes, and leaves no process."""
        last = first = {one.session_id: one for handle in handles for one in await remit.tree(handle.session_id)}
        left = await self.processes_left(remit)
        end = time.monotonic() + STOPPED_SECONDS
        while last is first or (any(one.settled_at is None for one in last.values()) and time.monotonic() < end):
            await asyncio.sleep(0.02)
            last = {one.session_id: one for handle in handles for one in await remit.tree(handle.session_id)}
        offset = time.time() - time.monotonic()
        at_work = {line.session_id: line.at + offset for line in self.lines()}
        found = [f"process {pid} is left" for pid in left] + [f"two at work on {session_id}" for session_id in self.overlaps()]
        for session_id, record in last.items():
            name = f"{session_id} of {record.agent}"
            if record.settled_at is None:
                found.append(f"{name} is {record.state}")
            elif (known := first.get(session_id)) is None or (known.settled_at is not None and known != record):
                found.append(f"{name} was settled twice, or began after the end of its caller")
            elif record.state is State.COMPLETED and at_work.get(session_id, 0.0) > record.settled_at + 0.01:
                found.append(f"{name} was at work after its outcome was recorded")
        return found

    async def processes_left(self, remit: Remit, seconds: float = 5.0) -> list[int]:
        """Living processes of this project's agents; waits for those that are exiting."""
        end = time.monotonic() + seconds
        while left := [pid for pid in marked(f"{remit._project}:") if ":sess_" in (mark_of(pid) or "") and is_alive(pid, None)]:
            if time.monotonic() > end:
                break
            await asyncio.sleep(0.05)
        return left

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()


def _overlap(spans: list[tuple[float, float]]) -> bool:
    return any(ended >= began for (_, ended), (began, _) in pairwise(spans))


def cluster(root: Path, address: str, forks: WorkerForks, agents: str, **settings: Any) -> closing[Cluster]:
    return closing(Cluster(root, address, forks, agents, **settings))
