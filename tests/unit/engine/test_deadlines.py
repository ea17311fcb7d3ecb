"""The deadline heap: entries are checked in time, forgotten ones are dropped."""

import asyncio
import contextvars
import gc
import weakref

from remit.engines.embedded.deadlines import Deadlines


class Timed:
    def __init__(self, looks: list[str], name: str, ends_at: float = 0.0) -> None:
        self.looks, self.name, self.ends_at = looks, name, ends_at

    def look(self, now: float) -> None:
        self.looks.append(self.name)


def heap() -> Deadlines:
    return Deadlines(asyncio.get_running_loop(), contextvars.copy_context())


async def test_forgotten_entry_is_neither_checked_nor_referenced() -> None:
    looks: list[str] = []
    deadlines, now = heap(), asyncio.get_running_loop().time()
    forgotten = Timed(looks, "forgotten", ends_at=now + 0.01)
    reference = weakref.ref(forgotten)
    deadlines.forget(deadlines.push(now + 0.01, forgotten))
    deadlines.push(now + 0.02, Timed(looks, "stays", ends_at=now + 9))
    del forgotten
    gc.collect()
    assert reference() is None
    assert deadlines.earliest_end() == now + 9, "an ended delegation has no deadline"
    await asyncio.sleep(0.04)
    assert looks == ["stays"]
    assert deadlines.earliest_end() is None


async def test_thousands_of_forgotten_entries_are_removed() -> None:
    looks: list[str] = []
    deadlines, later = heap(), asyncio.get_running_loop().time() + 100
    entries = [deadlines.push(later + n, Timed(looks, str(n))) for n in range(5000)]
    for entry in entries:
        deadlines.forget(entry)
    assert len(deadlines._heap) < 600
    deadlines.close()
