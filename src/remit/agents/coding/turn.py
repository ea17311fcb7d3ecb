"""One run of a coding agent's program: its prompt written, its stream read line by line, and its turn interrupted at the soft deadline.

Whatever way it is left, the pool has killed the program and all it started. Used by `agent` alone.
"""

import asyncio
import contextlib
import json
import signal
from dataclasses import dataclass
from typing import Any

from remit.agents.coding.dialect import Dialect
from remit.agents.coding.hearing import Hearing
from remit.agents.process.pool import ProcessPool
from remit.agents.process.program import Program
from remit.agents.process.spawned import Spawned
from remit.core.errors import Stopped
from remit.flow.context import Context

SETTLE_SECONDS = 2.0
"""For a program that was interrupted, or has said that it is done, to write its session down and end."""
_BREATH = 32
"""After so many lines the loop is given to others: a flood must not hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int | None
    """Its exit code; None: it was not waited for."""
    stderr: str
    was_interrupted: bool


class Run:
    def __init__(self, dialect: Dialect, ctx: Context, hearing: Hearing, *, is_told: bool) -> None:
        """`is_told`: whether it is interrupted at the soft deadline."""
        self._dialect = dialect
        self._ctx = ctx
        self._hearing = hearing
        self._is_told = is_told and not ctx.hand_in
        self._was_interrupted = False

    async def to_the_end(self, pool: ProcessPool, program: Program, prompt: str) -> Ran:
        tasks: list[asyncio.Task[Any]] = []
        code, stderr, is_whole = None, "", False
        spawned: Spawned | None = None
        try:
            async with pool.spawn(program, self._ctx) as spawned:
                running = asyncio.create_task(self._listen(spawned))
                tasks = [running, asyncio.create_task(self._run_out(spawned)), asyncio.create_task(_feed(spawned, prompt))]
                await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                code = running.result() if running.done() else None
                is_whole = self._hearing.is_over or (code == 0 and not self._hearing.is_broken)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stderr = spawned.stderr_tail() if spawned is not None else ""
            self._hearing.end(is_whole=is_whole, stderr=stderr)
        with contextlib.suppress(Stopped):
            await self._hearing.keep()
        return Ran(code=code, stderr=stderr, was_interrupted=self._was_interrupted)

    @property
    def _is_hopeless(self) -> bool:
        return self._hearing.trouble is not None and self._hearing.trouble.is_hopeless

    async def _listen(self, spawned: Spawned) -> int | None:
        """Its exit code, which may come long after its last word; None: it is not worth waiting for."""
        await self._read(spawned.stdout)
        return None if self._is_hopeless else await spawned.wait()

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        """To the end of the stream, not of the turn: a program may say that it is done and have others at work still."""
        lines = 0
        while not self._is_hopeless:
            lines += 1
            if lines % _BREATH == 0:
                await asyncio.sleep(0)
            try:
                line = await stdout.readline()
            except ValueError:
                self._ctx.progress("A line of its stream was too long to be read.")
                continue
            if not line:
                return
            await self._hear(line)

    async def _hear(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        try:
            said = json.loads(text) if text.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("type"), str):
            self._hearing.hear_plain(text)
            return
        for heard in self._dialect.read(said):
            await self._hearing.hear(heard)

    async def _run_out(self, spawned: Spawned) -> None:
        """Gives back when it is not to be waited for any longer, which is never before the soft deadline (S2.4).

        Then its turn is ended, so that it can be asked to hand in. One that has said that it is done, and stays all the same, is left:
        its answer must not be lost with it.
        """
        await self._ctx.wait_hand_in()
        if self._ctx.hand_in and self._is_told and self._may_interrupt():  # a stop, too, ends the wait
            self._ctx.progress("Its time is nearly up: it is interrupted, to hand in what it has.")
            self._was_interrupted = True
            spawned.signal(signal.SIGINT)
            await asyncio.sleep(SETTLE_SECONDS)
            return
        await self._hearing.over.wait()
        await asyncio.sleep(min(SETTLE_SECONDS, max(0.0, self._ctx.remaining / 2)))

    def _may_interrupt(self) -> bool:
        """Not where no time is left for one more question, nor where there is no session to ask it in; then it just goes on."""
        is_worth_it = self._ctx.remaining >= self._dialect.hand_in_seconds and self._hearing.session is not None
        return is_worth_it and not self._hearing.is_over


async def _feed(spawned: Spawned, prompt: str) -> None:
    """A program that does not read its input, or not all of it, is none the worse for it."""
    stdin = spawned.stdin
    assert stdin is not None
    with contextlib.suppress(OSError):
        stdin.write(prompt.encode("utf-8", "replace"))
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()
