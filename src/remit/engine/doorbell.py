"""Requests of other processes: an owner is rung and looks what it is asked to cancel. See `owners` for the bell itself.

However often it is rung while it looks, one more look is enough; whoever rings without end is heard in turns. Used by `app`.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from remit.core.errors import Unavailable
from remit.core.result import StopReason
from remit.engine.owners import Bell
from remit.flow.reply import Stop

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine

RING_SECONDS = 0.01


class Doorbell:
    def __init__(self, engine: "EmbeddedEngine") -> None:
        self._engine = engine
        self._is_answering = self._is_rung = False
        self._bell = Bell(engine.run_folder, engine.owner.owner_id, self._answer)

    def close(self) -> None:
        self._bell.close()

    async def carry_out_cancels(self) -> None:
        engine = self._engine
        with contextlib.suppress(Unavailable):  # asked again at the next ring, or by the sweep
            for request in await engine.journal.call(lambda store: store.take_cancels(engine.owner.owner_id)):
                if request.session_id in engine.pending:
                    stop = Stop(reason=StopReason.CANCELLED, source=request.source, detail=request.reason)
                    engine.pending[request.session_id] = stop
                else:
                    engine.spawn(engine.cancel(request.session_id, request.reason, request.source))

    def _answer(self) -> None:
        self._is_rung = True
        if not self._is_answering:
            self._is_answering = True
            self._engine.spawn(self._answer_while_rung())

    async def _answer_while_rung(self) -> None:
        while self._is_rung:
            self._is_rung = False
            await self.carry_out_cancels()
            await asyncio.sleep(RING_SECONDS)
        self._is_answering = False
