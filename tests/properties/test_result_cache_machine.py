"""The result cache compared with uncached reads: random reads, writes, crashes and external edits, and never a stale result.

A result depends on the file that `reads` names and on a second one that it does not name. Writes of delegations are visible at once, an
external edit of the second file after the time limit.
"""

import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from remit import BeginDelegation, Context, Deadline, Delegation, Lineage, MemoryStore, Owner, Priority, Remit, State, agent, new_session_id
from support.clocks import JumpingClock
from support.lab import rounds
from support.processes import pid_space

TTL = 3600.0
STEPS = 100
NAMES = st.sampled_from(("a", "b"))
TEXTS = st.sampled_from(("0", "1", "2"))
RARELY = st.sampled_from((False, False, False, False, True))
DEAD = Owner(owner_id="dead", pid=2**22 + 7, pid_started="gone", pid_space=pid_space(), host="gone", opened_at=0.0)


class CachedReads(RuleBasedStateMachine):
    hits = 0

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.clock = JumpingClock()
        self.store = MemoryStore()
        self.older: dict[str, float] = {}
        """Former contents of the second file after an external edit, and until when they may still be returned."""
        self.go = asyncio.Event()
        self.writing: Any = None
        for name in ("a", "b", "second"):
            (self.root / name).write_text("0")
        self.remit = Remit.open(self.root, agents=self._agents(), store=self.store, clock=self.clock.as_clock())
        self._run(self.remit.__aenter__())

    def _agents(self) -> list[Any]:
        @agent("reader", cache=TTL, reads=("path",), effects=("read",))
        async def reader(ctx: Context, path: str) -> list[str]:
            return [(ctx.workspace / path).read_text(), (ctx.workspace / "second").read_text()]

        @agent("writer", effects=("write",))
        async def writer(ctx: Context, path: str, text: str, waits: bool = False) -> None:
            (ctx.workspace / path).write_text(text)
            if waits:
                await self.go.wait()
                (ctx.workspace / path).write_text(text + "!")

        return [reader, writer]

    def _run(self, waiting: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(waiting)

    def _read(self, path: str) -> None:
        """Compare with the files themselves."""
        now = self.clock.wall()
        seconds = {(self.root / "second").read_text(), *(text for text, until in self.older.items() if until >= now)}
        first = (self.root / path).read_text()
        result = self._run(self.remit.delegate("reader", path=path))
        assert result.ok
        assert result.data[0] == first
        assert result.data[1] in seconds
        type(self).hits += "cached_from" in result.metadata.extra

    @rule(path=NAMES, times=st.integers(1, 4))
    def read(self, path: str, times: int) -> None:
        for _ in range(times):
            self._read(path)

    @rule(path=NAMES, text=TEXTS)
    def edit_named_file(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    @rule(text=TEXTS, passes=st.booleans())
    def edit_second_file(self, text: str, passes: bool) -> None:
        self._read("a")
        self.older[(self.root / "second").read_text()] = self.clock.wall() + TTL
        (self.root / "second").write_text(text)
        if passes:
            self.let_time_pass(TTL + 1)

    @rule(path=st.sampled_from(("a", "b", "second")), text=TEXTS)
    def write(self, path: str, text: str) -> None:
        self._run(self.remit.delegate("writer", path=path, text=text))
        self.older.clear()

    @rule(path=NAMES, text=TEXTS)
    def read_and_write_at_once(self, path: str, text: str) -> None:
        async def both() -> None:
            reads = [asyncio.create_task(self.remit.delegate("reader", path=path)) for _ in range(2)]
            await self.remit.delegate("writer", path="second", text=text)
            await asyncio.gather(*reads)

        self._run(both())
        self.older.clear()
        self._read(path)

    @rule(text=TEXTS, stays=RARELY)
    def begin_to_write(self, text: str, stays: bool) -> None:
        if self.writing is None:
            self.go.clear()
            self.writing = self._run(self.remit.start("writer", path="second", text=text, waits=True))
            self._run(asyncio.sleep(0))
            self.older.clear()
            self._read("a")
            if not stays:
                self.end_writing()
                self._read("a")

    @rule()
    def end_writing(self) -> None:
        if self.writing is not None:
            self.go.set()
            self._run(self.writing.result())
            self.writing = None
            self.older.clear()

    @rule(path=NAMES, text=TEXTS, stays=RARELY)
    def crash_while_writing(self, path: str, text: str, stays: bool) -> None:
        """A process killed during a write: alive in the record until it is recovered."""
        now = self.clock.wall()
        lineage = Lineage.root(new_session_id(now), "writer")
        deadline = Deadline(hard_at=self.loop.time() + 60, soft_at=self.loop.time() + 54, timeout_seconds=60.0)
        dead = Delegation(lineage, "writer", {"path": "second", "text": text}, "orchestrator", Priority.NORMAL, deadline, now)
        self.store.register_owner(DEAD)
        self.store.apply([BeginDelegation(dead, State.RUNNING, "dead", now, [None] * 13)])
        self._read(path)
        (self.root / "second").write_text(text)
        self.older.clear()
        self._read(path)
        if not stays:
            self.recover(path)

    @rule(path=NAMES)
    def recover(self, path: str) -> None:
        self._run(self.remit.recover())
        self._read(path)
        self._read(path)

    @rule(seconds=st.sampled_from((1.0, TTL / 2, TTL + 1)))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self._read("a")

    def teardown(self) -> None:
        self.end_writing()
        self._run(self.remit.close())
        self.loop.close()
        self.folder.cleanup()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(rounds(1, lab=20)))
def test_no_result_is_stale(part: int) -> None:
    """The cache must be used, too. In the lab: 20 parts of 52 runs with 100 steps each, a few of which end early."""
    CachedReads.hits = 0
    examples = settings(max_examples=rounds(12, lab=52), stateful_step_count=STEPS)
    run_state_machine_as_test(CachedReads, settings=examples)
    assert CachedReads.hits > 0
