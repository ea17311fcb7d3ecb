"""Waiting for delegations on behalf of a client: bounded, with signs of life, and without tying their lives to its patience.

Clients give up after a minute of silence, and some however much they hear: so progress is told at least each 15 s where it was asked
for, and whoever calls here is given back control in time to answer with a handle.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from remit.core.errors import RemitError
from remit.core.events import Event, EventKind
from remit.flow.plain import clean

HEARTBEAT_SECONDS = 10.0
BURST = 20
"""So many notifications at once; then at most one each `GAP_SECONDS`: an agent that never stops talking floods nobody."""
GAP_SECONDS = 0.1
_WORDS = 300

T = TypeVar("T")


class Reporter(Protocol):
    """Of the SDK's session: tells the client, if it asked for that."""

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...


class Progress:
    """The progress of one request: rising seconds, and what was last heard."""

    def __init__(self, reporter: Reporter, meta: Mapping[str, Any] | None) -> None:
        self.is_wanted = meta is not None and "progress_token" in meta
        self._reporter = reporter
        self._began = time.monotonic()
        self._last = 0.0
        self._allowance = float(BURST)
        self._refilled = self._began

    async def say(self, message: str, *, must: bool = False) -> None:
        now = time.monotonic()
        self._allowance = min(float(BURST), self._allowance + (now - self._refilled) / GAP_SECONDS)
        self._refilled = now
        if self._allowance < 1 and not must:
            return
        self._allowance -= 1
        self._last = max(self._last + 0.001, round(now - self._began, 3))  # it must rise, also within a millisecond
        await self._reporter.report_progress(self._last, None, clean(message[:_WORDS]))

    async def tell(self, name: str, events: AsyncIterator[Event]) -> None:
        """What a delegation says, as it says it."""
        with contextlib.suppress(RemitError):  # what is told on the way may end early; the return does not come this way
            async for event in events:
                if words := _words(event):
                    await self.say(f"{name}: {words}")

    async def beat(self, doing: Callable[[], str]) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self.say(f"{doing()} ({time.monotonic() - self._began:.0f} s)", must=True)


def _words(event: Event) -> str:
    match event.kind:
        case EventKind.PROGRESS:
            fraction = event.body.get("fraction")
            return ("" if fraction is None else f"{fraction:.0%} ") + str(event.body.get("message", ""))
        case EventKind.NOTICE:
            return str(event.body.get("message", ""))
        case EventKind.ARTIFACT:
            return f"wrote {event.body.get('path')}"
    return ""


async def settled_within(
    seconds: float, waited: Iterable[Awaitable[T]], told: Iterable[Awaitable[None]] = ()
) -> "list[asyncio.Future[T] | None]":
    """Wait for all of `waited`, at most so long: in their order, the future of each that is done. `told` goes on meanwhile."""
    futures = [asyncio.ensure_future(one) for one in waited]
    telling = [asyncio.ensure_future(one) for one in told]
    try:
        if futures:
            await asyncio.wait(futures, timeout=seconds)
        return [future if future.done() else None for future in futures]
    finally:
        # Only our own waiting is cancelled: a delegation goes on, whoever waited for it.
        for future in (*futures, *telling):
            future.cancel()
        asyncio.gather(*telling, return_exceptions=True)  # heard out, not waited for: we may be cancelled ourselves
