"""The executor of agents that speak the Agent Client Protocol: one run is one session with its own process.

Builds the prompts and finds the answer; `acp.session` keeps the session. The protocol library is optional and imported when an agent first
runs."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remit.agents.command import check_own_tools, out_of_time, programs_of, return_file_of, session_prompt, set_aside
from remit.agents.definition import NO_SIGNAL, Definition, checked_task
from remit.agents.prompt import first_prompt, hand_in_prompt
from remit.agents.transcript import find_return
from remit.core.agents import AgentSpec, Answers
from remit.core.context import Context
from remit.core.errors import Failed, RemitError, Stopped
from remit.system.packages import need
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.acp.session import Session, Turn
    from remit.agents.executors import ExecutorDeps


HAND_IN_SECONDS = 3.0
"""With less time left, no further question is asked."""
_WORDS_CHARACTERS = 700


class AcpAgent:
    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self.spec: AgentSpec = definition.spec
        self._definition = definition
        self._pool = programs_of(definition, deps)

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> str:
        if ctx.repair is not None and ctx.hand_in:
            raise out_of_time(self._definition, "gave no valid return when it was asked for one, and there is no time to start it again")
        check_own_tools(self._definition)
        set_aside(ctx)
        await off_loop(need, "remit.agents.acp.session", "acp")  # slow enough to block the loop
        from remit.agents.acp.session import Session

        session = Session(self._definition, ctx)
        try:
            await session.open(self._pool)
            await session.enter_session(ctx.saved)
            first = first_prompt(self._definition, ctx, arguments)
            turn = await self._ask(session, ctx, session_prompt(self._definition, ctx, first, is_known=session.remembers))
            return await self._answer(ctx, turn)
        except asyncio.CancelledError:
            await session.cancel()
            raise
        finally:
            await session.close()

    async def _ask(self, session: "Session", ctx: Context, question: str) -> "Turn":
        """The end of the turn; from the soft deadline on, the turn that hands in. Failures then count as the deadline: the partial work is
        returned."""
        asking = asyncio.ensure_future(session.prompt(question))
        is_told = self._definition.hand_in != NO_SIGNAL and not ctx.hand_in
        soft = asyncio.ensure_future(ctx.wait_hand_in() if is_told else asyncio.Event().wait())
        try:
            await asyncio.wait((asking, soft), return_when=asyncio.FIRST_COMPLETED)
            if asking.done() or not ctx.hand_in:  # a stop also ends the wait, and is about to end this
                return await asking
            ctx.progress("Its time is nearly up: it is asked for its result.")
            await session.cancel()
            turn = await asking  # an agent that continues is heard until it is stopped
            if turn.stop_reason == "end_turn" or ctx.remaining < HAND_IN_SECONDS:
                return turn
            return await session.prompt(hand_in_prompt(ctx, ctx.remaining - 1, self.spec.output_schema))
        except RemitError as error:
            if not ctx.hand_in or isinstance(error, Stopped):
                raise
            raise out_of_time(self._definition, f"could not return its result ({error.message})") from error
        finally:
            for task in (asking, soft):
                task.cancel()
            await asyncio.gather(asking, soft, return_exceptions=True)

    async def _answer(self, ctx: Context, turn: "Turn") -> str:
        """Its last message; all of its text if that alone contains no return. Raises for an interrupted turn without a return."""
        if self.spec.answers is Answers.VALUE:
            answer, is_return = turn.last.strip() or turn.whole.strip(), False
        else:
            answer, is_return = await off_loop(find_return, turn.last, turn.whole, return_file_of(ctx))
        is_late = ctx.repair is not None and ctx.hand_in
        if is_return or (turn.stop_reason == "end_turn" and not is_late):
            return answer
        if ctx.hand_in:
            raise out_of_time(self._definition, "ended without a return when it was asked for its result")
        said = turn.whole.strip()[-_WORDS_CHARACTERS:]
        raise Failed(
            f"{self.spec.name} stopped early ({turn.stop_reason[:60]}).{f' Its last output: {said}' if said else ''}",
            advice="Word the task differently, ask for less at once, or use another model.",
        )
