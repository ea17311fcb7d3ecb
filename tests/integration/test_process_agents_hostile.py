"""Hostile agents in a process pool, beyond those that `chaos/test_hostile_processes` delegates to."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import process_agents as agents
import pytest
import pytest_asyncio
from recording_backend import ProcessHarness, RecordingBackend

from remit import AgentCrashed
from support import hostile
from support.pace import allowed, wait_until
from support.processes import descendants, is_alive, marked, process_start

pytestmark = pytest.mark.asyncio(loop_scope="module")
Known = frozenset[tuple[int, str | None]]


class HostileHarness(ProcessHarness):
    fork_servers: Known = frozenset()

    async def open(self) -> None:
        await self.run(agents.add, a=1, b=1)
        self.fork_servers = below(os.getpid())

    async def close(self) -> None:
        await super().close()
        assert alive(self.fork_servers) == []

    async def run(self, function: Callable[..., Any], **parameters: Any) -> Any:
        self.backend = RecordingBackend(self.root)
        return await super().run(function, **parameters)

    async def stop_after(self, seconds: float, function: Callable[..., Any], **parameters: Any) -> float:
        """Run it, cancel it after `seconds`, check that none of its processes is alive; return the duration of the cancellation."""
        running = asyncio.create_task(self.run(function, **parameters))
        await asyncio.sleep(seconds)
        seen = below(os.getpid()) - self.fork_servers
        assert seen, "the agent has already ended"
        began = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        took = time.monotonic() - began
        if self.noted("abandoned"):  # on a busy machine the killing continues and is reported
            await asyncio.to_thread(wait_until, lambda: not alive(seen) and not self.left(), allowed(1.0))
        assert alive(seen) == []
        assert self.left() == []
        return took


def below(pid: int) -> Known:
    return frozenset((child, process_start(child)) for child in descendants(pid))


def alive(known: Iterable[tuple[int, str | None]]) -> list[int]:
    return [pid for pid, started in known if started is not None and is_alive(pid, started)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostileHarness]:
    made = HostileHarness(tmp_path_factory.mktemp("project"))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def harness(opened: HostileHarness) -> HostileHarness:
    """One pool for all tests: an agent must not affect the next one."""
    opened.fork_servers = below(os.getpid())
    return opened


@pytest.mark.parametrize(("function", "after"), [(agents.stop_supervisor, 0.2), (agents.start_programs, 0.5)])
async def test_stubborn_agent_and_its_processes_end_within_the_grace_period(
    harness: HostileHarness, function: Callable[..., Any], after: float
) -> None:
    """Its supervisor is stopped, or it has started fifty programs in new sessions."""
    assert await harness.stop_after(after, function) < allowed(0.75)


async def test_cooperative_agent_saves_its_work_on_cancellation(harness: HostileHarness, tmp_path: Path) -> None:
    note = tmp_path / "note"
    assert await harness.stop_after(0.3, agents.snooze_and_note, path=str(note)) < allowed(0.25)
    assert note.read_text() == "saved"
    assert await harness.stop_after(0.3, agents.snooze_async) < allowed(0.25)
    assert harness.backend.saved == "saved on the way out"


async def test_daemon_has_the_mark_of_its_delegation(harness: HostileHarness) -> None:
    """Recovery uses the mark after supervisor, fork server and Remit process have died."""
    running = asyncio.create_task(harness.run(agents.daemonise))
    await asyncio.to_thread(wait_until, lambda: len(marked(f"test:{harness.owner}:{harness.backend.delegation.session_id}")) == 3, 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert harness.left() == []


async def test_fork_bomb_is_killed_without_blocking_the_caller(harness: HostileHarness) -> None:
    running = asyncio.create_task(harness.run(agents.fork_bomb))
    await asyncio.sleep(0.15)
    began = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began < allowed(1.0)
    await asyncio.to_thread(wait_until, lambda: not harness.left() and below(os.getpid()) <= harness.fork_servers, 5)


async def test_killed_fork_server_is_replaced(harness: HostileHarness) -> None:
    assert await harness.run(agents.kill_fork_server) == "killed it"
    assert await harness.run(agents.add, a=1, b=2) == 3


async def test_cancellation_during_startup_leaves_no_process(harness: HostileHarness) -> None:
    for delay in (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008):
        running = asyncio.create_task(harness.run(hostile.sleep))
        await asyncio.sleep(delay)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert harness.left() == []


async def test_closing_the_pool_ends_running_agents(tmp_path: Path) -> None:
    before = below(os.getpid())
    harness = HostileHarness(tmp_path)
    await harness.open()
    running = asyncio.create_task(harness.run(hostile.sleep))
    await asyncio.sleep(0.1)
    seen = below(os.getpid()) - before
    await harness.pool.close()
    with pytest.raises(AgentCrashed):
        await running
    assert alive(seen) == []


async def test_runs_leak_no_descriptor_and_no_process(harness: HostileHarness) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert await asyncio.gather(*(harness.run(agents.add, a=n, b=1) for n in range(20))) == list(range(1, 21))
    assert len(os.listdir("/proc/self/fd")) <= before
    assert alive(below(os.getpid()) - harness.fork_servers) == []


PARENT = """
import asyncio, sys
from pathlib import Path
import process_agents as agents
from recording_backend import RecordingBackend
from remit.agents.process.pool import Job, ProcessPool
from remit.agents.process.target import target_of
from support import hostile

async def main():
    pool = ProcessPool(project="test", owner_id=sys.argv[1])
    jobs = [hostile.busy_loop, hostile.ignore_sigterm, agents.daemonise, hostile.fork_many]
    runs = [pool.run(Job(target_of(f).to_wire()), RecordingBackend(Path("/")).context()) for f in jobs]
    await asyncio.gather(*runs)

asyncio.run(main())
"""


async def test_no_process_survives_kill_9_of_the_main_process() -> None:
    await asyncio.to_thread(kill_main_process)


def kill_main_process() -> None:
    owner = uuid.uuid4().hex[:8]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, owner], env=environment)
    wait_until(lambda: len(descendants(parent.pid)) >= 1 + 4 * 2 + 2 + 20, 10)
    seen = below(parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not alive(seen) and not marked(f"test:{owner}:"), 3)
