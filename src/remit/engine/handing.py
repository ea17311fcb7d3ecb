"""Handing over: a runtime that is told to stop leaves what can be run again to whoever opens the project next, unsettled (issue 7, item 4).

Its agents are stopped and their processes killed, as at every end; but no outcome is written, so that recovery, in another process or at
the next start, finds them like those of a crash: resumable ones run again with their finished children replayed. What cannot be run again
is not handed over: it is stopped and settled, with what it did. Used by `Remit.close`.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from remit.core.errors import Unavailable
from remit.core.secrets import is_redacted
from remit.engine.ending import let_go
from remit.engine.running import Running
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine

STOP_SECONDS = 1.5
NOTICE = "Handed over: its orchestrator was told to stop. It goes on when the project is served or opened again."


async def hand_over(engine: "EmbeddedEngine") -> list[str]:
    """The sessions of the roots that are left to others. Nothing runs of them when this returns, but for code that will not be stopped:
    that ends with the process, and nothing is heard of it any more."""
    engine.slots.is_shut = True
    roots = [running for running in list(engine.running.values()) if running.parent is None and await _can_go_on(engine, running)]
    roots = [root for root in roots if _is_free(root)]  # time has passed
    nodes = [node for root in roots for node in _below(root)]
    for node in nodes:
        node.notice(NOTICE)
        node.concluding = True  # from here on nothing ends it: neither its task, which is cancelled, nor the clock
    tasks = [node.task for node in reversed(nodes) if node.task is not None]
    for task in tasks:
        task.cancel()
    _, stubborn = await asyncio.wait(tasks, timeout=STOP_SECONDS) if tasks else (set(), set())
    for task in stubborn:
        let_go(task)
    for node in nodes:
        node.is_settled = True  # for this process; on record it lives
        engine._leave(node)
        engine._unregister(node)
        node.rouse()
        node.tell_trouble(Unavailable(NOTICE, advice=f"Ask for {node.delegation.session_id} again in a moment."))
    return [root.delegation.session_id for root in roots]


async def _can_go_on(engine: "EmbeddedEngine", running: Running) -> bool:
    """It declared itself resumable, has time left, and everything it was given is on record."""
    if not _is_free(running) or not running.agent.spec.resumable or running.remaining() <= 0:
        return False
    record = await off_loop(engine.store.get, running.delegation.session_id)
    return record is not None and not is_redacted(record.parameters)


def _is_free(running: Running) -> bool:
    return running.is_recorded and not running.is_settled and not running.concluding and running.stop is None


def _below(running: Running) -> Iterator[Running]:
    yield running
    for child in list((running.live_children or {}).values()):
        if not child.is_settled and not child.concluding:
            yield from _below(child)
