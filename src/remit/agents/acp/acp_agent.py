"""The executor of agents that speak the Agent Client Protocol: one delegation is one session with its own process.

Builds the prompts and finds the answer; `acp.connection` keeps the session. Created by `agents.executors` for a definition of kind `acp`.
The protocol library is optional and imported when an agent first runs."""

import asyncio
import contextlib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remit.agents.command import (
    STARTED_AGAIN,
    STARTS,
    check_own_tools,
    is_start_collision,
    out_of_time,
    programs_of,
    return_file_of,
    session_prompt,
    set_aside,
)
from remit.agents.definition import NO_SIGNAL, Definition, checked_task
from remit.agents.prompt import first_prompt, hand_in_prompt
from remit.agents.transcript import holds_return
from remit.core.agents import AgentSpec, Answers
from remit.core.context import Context
from remit.core.errors import AgentCrashed, RemitError, Stopped, Unavailable
from remit.runtime.receive import read_answer
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.acp.connection import Session, Turn
    from remit.agents.executors import ExecutorDeps


HAND_IN_SECONDS = 3.0
"""With less time left, no further question is asked."""
_PARKED_SECONDS = 10.0


class AcpAgent:
    def __init__(self, definition: Definition, deps: "ExecutorDeps", *, start_seconds: float = 30.0) -> None:
        """`start_seconds`: time limit for its process to initialize the protocol."""
        self.spec: AgentSpec = definition.spec
        self._definition = definition
        self._pool = programs_of(definition, deps)
        self._start_seconds = start_seconds
        self._parked: dict[str, Session] = {}
        """Sessions whose answer will be refused: the same session is asked again at once."""
        self._closing: set[asyncio.Task[None]] = set()

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> str:
        check_own_tools(self._definition)
        set_aside(ctx)
        parked = self._parked.pop(ctx.session_id, None)
        conversation = parked if parked is not None else await self._opened(ctx)
        is_parked = False
        try:
            first = first_prompt(self._definition, ctx, arguments)
            is_known = conversation.remembers or (parked is not None and ctx.repair is not None)
            turn = await self._asked(conversation, ctx, session_prompt(self._definition, ctx, first, is_known=is_known))
            answer = await off_loop(_answer, turn, self.spec.answers)
            is_valid = not self._is_read or await off_loop(holds_return, answer, ctx, self.spec, return_file_of(ctx))
            self._check_end(ctx, turn, is_return=self._is_read and is_valid)
            if not is_valid and ctx.repair is None:
                if ctx.hand_in and ctx.remaining < HAND_IN_SECONDS:
                    raise out_of_time(self._definition, "gave no valid return, and there is no time to ask again")
                is_parked = self._park(conversation, ctx)
            elif not is_valid and ctx.hand_in:
                raise out_of_time(self._definition, "gave no valid return when it was asked for one")
            return answer
        except asyncio.CancelledError:
            await conversation.cancel()
            raise
        finally:
            if not is_parked:
                await conversation.close()

    # ---- what it is asked

    async def _opened(self, ctx: Context) -> "Session":
        try:
            await off_loop(importlib.import_module, "remit.agents.acp.connection")  # slow enough to block the loop
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "acp":
                raise
            raise Unavailable(
                "The Agent Client Protocol needs a package that is not installed.", advice="pip install 'remit[acp]'"
            ) from None
        conversation = await self._started(ctx)
        try:
            await conversation.enter_session(ctx.saved)
        except BaseException:
            await conversation.close()
            raise
        return conversation

    async def _started(self, ctx: Context, starts: int = STARTS) -> "Session":
        from remit.agents.acp.connection import Session

        conversation = Session(self._definition, ctx)
        try:
            await conversation.open(self._pool, start_seconds=self._start_seconds)
        except AgentCrashed as error:
            if starts <= 1 or not is_start_collision(error.exit_code, error.stderr_tail):
                raise
            ctx.progress(STARTED_AGAIN)
            return await self._started(ctx, starts - 1)
        return conversation

    async def _asked(self, conversation: "Session", ctx: Context, question: str) -> "Turn":
        """The end of the turn; from the soft deadline on, its final answer."""
        asking = asyncio.create_task(conversation.prompt(question))
        waits = {asking}
        if self._definition.hand_in != NO_SIGNAL and not ctx.hand_in:
            waits.add(asyncio.create_task(ctx.wait_hand_in()))  # type: ignore[arg-type]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if not ctx.hand_in:  # a stop also ends the wait, and is about to end this
                return await asking
            return await self._handed_in(conversation, ctx, asking)
        finally:
            for task in waits:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(waits)
            _seen(asking)

    async def _handed_in(self, conversation: "Session", ctx: Context, asking: "asyncio.Task[Turn]") -> "Turn":
        """Failures from now on count as the deadline: the partial work is returned."""
        ctx.progress("Its time is nearly up: it is asked for its result.")
        await conversation.cancel()
        try:
            so_far = await asking  # an agent that continues is heard until it is stopped
            if so_far.stop_reason == "end_turn" or ctx.remaining < HAND_IN_SECONDS:
                return so_far
            handed_in = await conversation.prompt(hand_in_prompt(ctx, ctx.remaining - 1, self.spec.output_schema))
        except Stopped:
            raise
        except RemitError as error:
            raise out_of_time(self._definition, f"could not return its result ({error.message})") from error
        return handed_in if handed_in.whole.strip() else so_far

    # ---- what comes of the answer

    def _check_end(self, ctx: Context, turn: "Turn", *, is_return: bool) -> None:
        """An interrupted turn is not an answer, unless it contains a return."""
        if turn.stop_reason == "end_turn" or is_return:
            return
        if ctx.hand_in:
            raise out_of_time(self._definition, "ended without a return when it was asked for its result")
        from remit.agents.acp.connection import stopped_early

        raise stopped_early(self.spec.name, turn.stop_reason, turn.whole)

    @property
    def _is_read(self) -> bool:
        return self.spec.answers is Answers.RETURN

    def _park(self, conversation: "Session", ctx: Context) -> bool:
        """Kept until `runtime.perform`, in this same task, asks again; closed at the latest with the task."""
        task = asyncio.current_task()
        if task is None:
            return False
        session_id = ctx.session_id
        self._parked[session_id] = conversation
        task.add_done_callback(lambda _: self._leave(session_id, conversation))
        asyncio.get_running_loop().call_later(_PARKED_SECONDS, self._leave, session_id, conversation)
        return True

    def _leave(self, session_id: str, conversation: "Session") -> None:
        if self._parked.get(session_id) is conversation:
            del self._parked[session_id]
            closing = asyncio.get_running_loop().create_task(conversation.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _answer(turn: "Turn", answers: Answers) -> str:
    """Its last message; all of its text if that alone contains no return."""
    if answers is Answers.VALUE:
        return turn.last.strip() or turn.whole.strip()
    return turn.last if read_answer(turn.last).candidate is not None else turn.whole


def _seen(task: "asyncio.Task[Any]") -> None:
    """Mark its error, if any, as retrieved."""
    if task.done() and not task.cancelled():
        task.exception()
