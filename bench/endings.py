"""Termination: overrun of hostile agents, time to kill a process tree, orphans after a thousand aborts."""

import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from bench.agents import HOSTILE, grows_tree, is_aborted
from bench.census import Census, running
from bench.figures import Figure, median, milliseconds, percentile
from bench.sizes import Sizes
from remit import Remit
from remit.core.context import Handle
from remit.core.events import EventKind
from remit.core.result import StopReason

OVERRUN_TARGET = 1.0
KILL_TARGET = 0.5
_HOSTILE_SECONDS = 0.6
_READY_LIMIT = 20.0
_SETTLE_SECONDS = 2.0
_LOOKS = 10


async def measure_overrun(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    """Time from the hard deadline until the caller has the return of an agent that resists being stopped."""
    late: dict[str, list[float]] = {one.spec.name: [] for one in HOSTILE}
    census = Census()
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=HOSTILE) as remit:
            await remit.delegate("sleeps", timeout=_HOSTILE_SECONDS)  # the first start pays for the fork server
            for _ in range(sizes.hostile_repeats):
                for names in batched(late, sizes.hostile_at_once):
                    for name, seconds in zip(names, await asyncio.gather(*(_overrun(remit, name) for name in names)), strict=True):
                        late[name].append(seconds)
    left = await _left(census)
    every = [seconds for each in late.values() for seconds in each]
    worst = max(late, key=lambda name: max(late[name]))
    return [
        Figure(
            section="hostile",
            what=f"{len(late)} kinds of hostile agent × {sizes.hostile_repeats}, return late by, max",
            measured=f"{milliseconds(max(every))} ({worst}; p50 {milliseconds(median(every))})",
            target=f"≤ {milliseconds(OVERRUN_TARGET)}",
            is_met=max(every) <= OVERRUN_TARGET,
        ),
        Figure(section="hostile", what="processes left after them", measured=str(left), target="0", is_met=left == 0),
    ]


def batched(names: Iterable[str], size: int) -> Iterator[tuple[str, ...]]:
    every = iter(names)
    while batch := tuple(islice(every, size)):
        yield batch


async def _overrun(remit: Remit, name: str) -> float:
    due = time.monotonic() + _HOSTILE_SECONDS
    done = await remit.delegate(name, timeout=_HOSTILE_SECONDS)
    late = time.monotonic() - due
    assert done.stop_reason is StopReason.DEADLINE, done
    return late


async def measure_kill(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    """Time from the cancel request until the last process of the tree is dead and the caller is informed."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[grows_tree]) as remit:
            for _ in range(sizes.tree_repeats):
                for is_deaf, seconds in taken.items():
                    seconds.append(await _kill_seconds(remit, sizes.tree, is_deaf=is_deaf))
    return [
        Figure(
            section="kill",
            what=f"a tree of {sizes.tree} processes{' that ignore SIGTERM' if is_deaf else ''}, cancelled, all dead after, max",
            measured=f"{milliseconds(max(seconds))} (p50 {milliseconds(median(seconds))})",
            target=f"< {milliseconds(KILL_TARGET)}",
            is_met=max(seconds) < KILL_TARGET,
        )
        for is_deaf, seconds in taken.items()
    ]


async def _kill_seconds(remit: Remit, processes: int, *, is_deaf: bool) -> float:
    handle = await remit.start("grows_tree", processes=processes, is_deaf=is_deaf, timeout=60)
    tree: list[int] = await _wait_ready(handle)
    assert len(running(tree)) == processes, f"{len(running(tree))} processes instead of {processes}"
    began = time.monotonic()
    await handle.cancel("enough")
    while running(tree) and time.monotonic() < began + 10:  # noqa: ASYNC110 - no event reports the death of a process that is not a child
        await asyncio.sleep(0.001)
    return time.monotonic() - began


async def measure_orphans(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    """Cancel agents that leave daemons behind in the middle of their work, several at a time; then count the remaining processes."""
    census = Census()
    taken: list[float] = []
    left_to_do = sizes.aborts
    sightings = Sightings(census)
    end = time.monotonic() + sizes.seconds_each * 0.8
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[is_aborted]) as remit:

            async def worker() -> None:
                nonlocal left_to_do
                while left_to_do > 0 and time.monotonic() < end:
                    left_to_do -= 1
                    taken.append(await _abort_seconds(remit, sightings))

            async with asyncio.TaskGroup() as group:
                for _ in range(sizes.aborts_at_once):
                    group.create_task(worker())
    left = await _left(census)
    sightings.must_be_of_both_kinds()
    return [
        Figure(
            section="orphans",
            what=f"processes left after {len(taken):,} aborts, {sizes.aborts_at_once} at a time, each with two daemons",
            measured=str(left),
            target=f"0 of {sizes.aborts:,}",
            is_met=left == 0 and len(taken) == sizes.aborts,
        ),
        Figure(
            section="orphans",
            what="an abort, from the order until it is acknowledged, p50",
            measured=f"{milliseconds(median(taken))} (p99 {milliseconds(percentile(taken, 0.99))})",
        ),
    ]


class Sightings:
    """Samples the census while the daemons are alive: a census that finds none then proves nothing afterwards."""

    def __init__(self, census: Census) -> None:
        self.census = census
        self._looks = 0
        self._seen: set[str] = set()

    def look(self, daemon: int) -> None:
        self._looks += 1
        if self._looks > _LOOKS:
            return
        if daemon in self.census.with_environment():
            self._seen.add("environment")
        if self.census.with_program():
            self._seen.add("program")

    def must_be_of_both_kinds(self) -> None:
        if len(self._seen) < 2:
            raise RuntimeError(f"the census is blind: it saw processes only by {self._seen or 'nothing'}")


async def _abort_seconds(remit: Remit, sightings: Sightings) -> float:
    handle = await remit.start("is_aborted", program=sightings.census.program, timeout=60)
    sightings.look(await _wait_ready(handle))
    began = time.monotonic()
    await handle.cancel("aborted")
    return time.monotonic() - began


async def _wait_ready(handle: Handle) -> Any:
    """The message that the agent emits in the middle of its work."""
    async with asyncio.timeout(_READY_LIMIT):
        async for event in handle.stream():
            if event.kind is EventKind.DATA:
                return event.body["chunk"]
    raise RuntimeError(f"it ended before it was ready: {await handle.result()}")


async def _left(census: Census) -> int:
    """Processes that remain after closing; checks again after a moment to skip those that are exiting."""
    end = time.monotonic() + _SETTLE_SECONDS
    while (left := census.pids()) and time.monotonic() < end:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    return len(left)
