"""A process that is started at once and whose end is waited for: what `run` needs of one, and no more.

Not asyncio's own: cancelled while it starts a process, that kills bubblewrap in a moment when its child waits for it, and for ever; and
then waits itself. Here nothing can come between the start and whoever sees to the end.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from remit.system.processes import MARK, kill_tree_async

END_SECONDS = 3.0
_LOOK_SECONDS = 0.02


class Child:
    def __init__(
        self, argv: Sequence[str], *, stdin: int, stdout: int, stderr: int, kept: Sequence[int], environment: Mapping[str, str]
    ) -> None:
        self._mark = environment.get(MARK)
        self._process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=kept, env=dict(environment), start_new_session=True
        )  # fmt: skip

    async def wait(self) -> None:
        process = self._process
        try:
            handle = os.pidfd_open(process.pid) if process.poll() is None else -1
        except OSError:  # an old kernel
            while process.poll() is None:  # noqa: ASYNC110 - the event is that of another process
                await asyncio.sleep(_LOOK_SECONDS)
            return
        if handle < 0:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(handle, ended.set)
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        process.wait()

    async def end(self) -> None:
        """When this returns nothing of it lives: given some time to end by itself, then killed with all that it has started."""
        await self._wait_shortly()
        if self._process.poll() is None:
            await kill_tree_async(self._process.pid, term_grace=0, limit=END_SECONDS)
            await self._wait_shortly()
        if self._mark and (self._process.returncode or 0) < 0:  # somebody killed it, and it could not take the others along
            await kill_tree_async(None, marker=self._mark, term_grace=0, limit=END_SECONDS)

    async def _wait_shortly(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.wait()


async def seen_through(work: Coroutine[Any, Any, None]) -> None:
    """Done to its end, also when whoever waits for it is cancelled meanwhile, and again; told of it afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
