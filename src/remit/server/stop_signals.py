"""Signals that stop a server, and waiting for its work or a signal, whichever comes first."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Iterator
from typing import Any

STOP_SECONDS = 2.0


class Signals:
    """Signals that this process received."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.at_once = asyncio.Event()

    def request_stop(self) -> None:
        (self.at_once if self.stop.is_set() else self.stop).set()


async def first_of(*waited: Awaitable[Any], timeout: float | None = None) -> None:
    """Until one of them is done; raises its error. The others are cancelled."""
    futures = [asyncio.ensure_future(one) for one in waited]
    try:
        done, _ = await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        await asyncio.wait(futures, timeout=STOP_SECONDS)


@contextlib.contextmanager
def on_signals(*ignored: signal.Signals) -> Iterator[Signals]:
    """SIGINT and SIGTERM stop the server. `ignored`: these do nothing."""
    loop, signals = asyncio.get_running_loop(), Signals()
    actions = {signal.SIGINT: signals.request_stop, signal.SIGTERM: signals.request_stop} | dict.fromkeys(ignored, lambda: None)
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield signals
    finally:
        for number in actions:
            loop.remove_signal_handler(number)
