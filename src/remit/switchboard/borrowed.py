"""An agent that only an attached process has, as the owner of the tree runs it: guarded, timed and recorded here, carried out there.

To the engine it is an agent like any other. When the line is lost it has crashed; at its end it is told to stop, and abandoned if it does
not. The other side is `lent`.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from remit.agents.process.errors import AgentRaised
from remit.agents.process.wire import delegation_to_wire, repair_to_wire
from remit.core.agents import AgentSpec
from remit.core.errors import AgentCrashed, Failed, Misused, RemitError, Unavailable
from remit.engine.context_backend import EngineDesk
from remit.flow.context import Context
from remit.system.processes import process_start

if TYPE_CHECKING:
    from remit.switchboard.visit import Visit


class BorrowedAgent:
    __slots__ = ("_fault", "_grace_seconds", "_visit", "spec")

    def __init__(self, spec: AgentSpec, visit: "Visit", fault: RemitError | None, grace_seconds: float) -> None:
        self.spec = spec
        self._visit = visit
        self._fault = fault
        """What its owner found wrong with the parameters: only there they can be checked."""
        self._grace_seconds = grace_seconds

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if self._fault is not None:
            raise self._fault
        return parameters

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        desk = ctx._desk
        assert isinstance(desk, EngineDesk)
        visit, running = self._visit, desk.running
        if visit.pid is not None:
            running.carrier = (visit.pid, process_start(visit.pid) or "")
        run = visit.begin_run(running)
        telling: asyncio.Task[None] | None = None
        try:
            number, answer = visit.line.question("perform", {"agent": self.spec.name, "run": run, "facts": _facts(ctx)})
            telling = running.engine.spawn(self._tell_hand_in(ctx, run))
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                await self._stop(number, answer, ctx)
                raise
        except Unavailable as error:
            if visit.line.is_lost:
                raise self._crashed() from None
            raise _as_failed(error) from None
        except (Failed, Misused, AgentRaised):
            raise
        except RemitError as error:
            raise _as_failed(error) from None
        finally:
            if telling is not None:
                telling.cancel()
            visit.end_run(run)

    async def _stop(self, number: int, answer: "asyncio.Future[Any]", ctx: Context) -> None:
        self._visit.line.withdraw(number)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((answer,), timeout=self._grace_seconds)
        if not answer.done():
            gone = ctx._desk.abandoned(f"{self.spec.name} in process {self._visit.pid}")
            answer.add_done_callback(lambda _: gone())

    async def _tell_hand_in(self, ctx: Context, run: int) -> None:
        with contextlib.suppress(RemitError):
            await ctx.wait_hand_in()
            if ctx.hand_in:  # a stop, too, ends the wait
                self._visit.line.question("hand_in", {"run": run})

    def _crashed(self) -> AgentCrashed:
        return AgentCrashed(
            f"The process {self._visit.pid} that carried out {self.spec.name} has ended or closed the line.",
            advice="See how the process that delegated it ended.",
        )


def _as_failed(error: RemitError) -> Failed:
    """A refusal or unavailability the agent met and let through is how the *agent* failed."""
    return Failed(error.message, code=error.code, advice=error.advice)


def _facts(ctx: Context) -> dict[str, Any]:
    """Everything its context there can be asked for without asking us: over there a question must not be waited for on the loop."""
    desk = ctx._desk
    return {
        "delegation": delegation_to_wire(desk.delegation),
        "root": str(desk.root),
        "workspace": str(desk.workspace),
        "scratch": str(desk.scratch),
        "repair": repair_to_wire(desk.repair),
        "saved": desk.saved,
        "environment": desk.environment(),
        "budget": desk.budget_left().to_dict(),
    }
