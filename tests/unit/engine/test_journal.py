"""The journal: what a store refused is written later, and told once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from remit import LifecycleEvent, MemoryStore, Remit, Unavailable, agent
from remit.core.record import SettleDelegation, Write, WriteResult
from remit.engines.embedded.journal import PATIENCE_SECONDS


class OutcomesRefusedOnce(MemoryStore):
    """Gives outcomes to the thread, and refuses them there the first time."""

    refusals = 1

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        return None if any(isinstance(one, SettleDelegation) for one in writes) else super().try_apply(writes)

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        if self.refusals and any(isinstance(one, SettleDelegation) for one in writes):
            self.refusals -= 1
            raise Unavailable("The disk is full.", code="STORE_UNAVAILABLE")
        return super().apply(writes)


@agent("look")
async def look() -> str:
    return "books"


async def test_outcome_that_the_store_refused_at_first_is_told_once(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look], store=OutcomesRefusedOnce()) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(heard.append)
        result = await remit.delegate("look")
        await asyncio.sleep(2 * PATIENCE_SECONDS)
    assert result.warnings == ()
    assert [str(one.kind) for one in heard] == ["delegation.started", "delegation.completed"]
