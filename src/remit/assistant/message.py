"""One message to the assistant, from the moment it is taken up to the return: held, written down, talked over, ended in time (S5.8).

Whatever happens, and whenever: what was said and done is in the conversation's file before anything else is done with it. The talk itself
is `agents.model.talking`'s; delegating, recording and cancelling the engine's.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from remit.agents.model.bounding import tokens_of_text
from remit.agents.model.talking import Talk, Talked, offer_of, talk
from remit.assistant.answering import Outcome, answered, given_up, out_of_budget, out_of_time
from remit.assistant.conversations import Conversation
from remit.assistant.instructions import instructions_for
from remit.assistant.limit import MessageLimit
from remit.assistant.lines import Spent, Spoken, Started, Stopped, Turn
from remit.assistant.memory import Memory, room_for
from remit.assistant.picking_up import Records, pick_up
from remit.assistant.results import shown_to_model
from remit.assistant.spending import Spending
from remit.assistant.voice import Voice
from remit.core.agents import AgentSpec
from remit.core.errors import Misused, OutOfTime, RemitError
from remit.core.errors import Stopped as HasEnded
from remit.engine.peers import below
from remit.flow.context import Context
from remit.flow.plain import clean
from remit.models.client import Models
from remit.models.messages import Choice, Message, Reply, Result, Said, ToolCall
from remit.settings import Settings
from remit.system.threads import off_loop
from remit.tool.catalogue import DelegateError
from remit.tool.result import DelegateResult
from remit.tool.tool import DelegateTool

WALL_SECONDS = 2.0
"""So long before the engine's deadline it answers by itself: its own return says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What every message is answered with."""

    settings: Settings
    models: Models
    choice: Choice
    tool: DelegateTool
    records: Records
    window: int | None
    """How many tokens its model can read; None: unknown."""
    now: Callable[[], float]


@dataclass(slots=True)
class Answering:
    """A message being answered, in a conversation that is held."""

    tools: Tools
    ctx: Context
    spec: AgentSpec
    conversation: Conversation
    message: str
    delegations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was delegated, by its task id."""
    _spending: Spending = field(init=False)
    _voice: Voice = field(init=False)
    _memory: Memory = field(init=False)
    _limit: MessageLimit = field(init=False)
    _early: OutOfTime | None = None
    """What ended it before it had answered: time or budget."""

    async def to_the_end(self) -> dict[str, Any]:
        """A return. Being cancelled is written down, and passes."""
        tools, settings = self.tools, self.tools.settings.assistant
        instructions = instructions_for(self.ctx.root, tools.now())
        overhead = tokens_of_text(instructions) + tokens_of_text(json.dumps(offer_of(tools.tool).schema))
        room = room_for(settings.compact_tokens, tools.window, overhead, settings.result_characters)
        _must_fit(self.message, room.tokens // 2)
        await pick_up(self.conversation, tools.records, tools.tool, self._show, tools.now)
        self.conversation.append(Turn(at=tools.now(), session_id=self.ctx.session_id, root_id=self.ctx.root_id))
        self.conversation.append(Spoken(at=tools.now(), message=Said(text=self.message)))
        self._memory = Memory(self.conversation, self.message, room, tools.now)
        self._voice = Voice(self.ctx.emit)
        self._spending = Spending(self.ctx, tools.settings)
        left = self.ctx.remaining
        self._limit = MessageLimit(self._seconds(), left - min(WALL_SECONDS, 0.05 * left), self.ctx)
        try:
            returned = await self._talked(instructions)
            await self._count_handed_on()
            if self._early is not None:
                raise OutOfTime(self._early.message, code=self._early.code, answer=returned)
            return returned
        finally:
            self._voice.close()
            if self._spending.is_anything:
                with contextlib.suppress(RemitError):
                    self.conversation.append(Spent(at=tools.now(), tokens=self._spending.tokens, cost=self._spending.cost))

    async def _count_handed_on(self) -> None:
        """What is on record; of those that were stopped with the message, what they had told by then."""
        if self.delegations:
            with contextlib.suppress(RemitError):
                own = self.ctx.session_id
                self._spending.handed_on(r for r in below(await self.tools.records.tree(own), own) if r.session_id != own)

    def _seconds(self) -> float:
        """A person who gives a message its own time means that."""
        usual, given = self.tools.settings.limits_for(self.spec.name), self.ctx.as_dict()["timeout"]
        is_given = self.ctx.depth == 1 and given != usual.default_seconds
        return max(given if is_given else 0.0, self.tools.settings.assistant.message_seconds)

    async def _talked(self, instructions: str) -> dict[str, Any]:
        tools = self.tools
        held = Talk(
            models=tools.models,
            choice=tools.choice,
            ctx=self.ctx,
            instructions=instructions,
            messages=self._memory.messages,
            tool=tools.tool,
            requests=tools.settings.model_requests,
            hear=self._voice.hear,
            keep=self._keep,
            shown=self._show,
            before=self._before,
            started=self._started,
            told=self._spending.asked,
            ending=self._limit,
            is_heard=lambda: bool(self._voice.said),
        )
        try:
            async with self._limit:
                return answered(self._outcome(await talk(held)))
        except TimeoutError:
            if not self._limit.is_over:
                raise
            return self._ended_early(OutOfTime(f"the time for one message was over after {self._limit.elapsed:.0f} s"))
        except OutOfTime as early:
            if early.code == "BUDGET_EXCEEDED":
                self._stop(early.message)
                self._early = early
                return out_of_budget(early.message, self._outcome(None, self._voice.said))
            return self._ended_early(OutOfTime(f"the time was over after {self._limit.elapsed:.0f} s"))
        except HasEnded:
            self._stop("it was stopped")
            raise
        except RemitError as error:
            self._stop(error.message)
            return given_up(error, self.spec, self._outcome(None))
        except asyncio.CancelledError:
            self._stop("it was cancelled" if self.ctx.remaining > 0 else "its deadline was reached")
            raise
        except BaseException:
            self._stop("something unforeseen happened")
            raise

    def _ended_early(self, early: OutOfTime) -> dict[str, Any]:
        said, self._early = self._voice.said, early
        self._stop(early.message)
        for known in self.delegations.values():
            if known["success"] is None:
                known |= {"taskState": "CANCELLED", "success": False}
        return out_of_time(early.message, self._limit.elapsed, self._outcome(None, said))

    def _stop(self, why: str) -> None:
        """What was being said is kept, with why it ended. Where that cannot be written, whatever ended it matters more."""
        with contextlib.suppress(RemitError):
            self.conversation.append(Stopped(at=self.tools.now(), text=self._voice.said, why=clean(" ".join(why.split()))[:500]))

    def _outcome(self, talked: Talked | None, said: str = "") -> Outcome:
        return Outcome(
            text=said if talked is None else talked.text,
            ended=None if talked is None else talked.ended,
            conversation_id=self.conversation.conversation_id,
            delegations=tuple(self.delegations.values()),
        )

    # ---- what the talk tells

    async def _keep(self, message: Message) -> None:
        """Written down before it counts."""
        by = "remit" if isinstance(message, Said) else ""
        session_id = ""
        if isinstance(message, Result):
            self._limit.ended(message.call_id)
            session_id = next((one.session_id for one in reversed(self.conversation.started) if one.call_id == message.call_id), "")
        self.conversation.append(Spoken(at=self.tools.now(), message=message, by=by, session_id=session_id))
        self._memory.grown()
        if isinstance(message, Reply):
            self._voice.end_reply(message.text)
        if self.tools.settings.durability == "power":
            await off_loop(self.conversation.sync)

    def _started(self, call: ToolCall, session_id: str) -> None:
        self.conversation.append(Started(at=self.tools.now(), call_id=call.call_id, session_id=session_id))
        try:
            request = self.tools.tool.read(call.arguments)
        except DelegateError:  # its agent has gone meanwhile: a file was changed
            self.delegations[session_id] = {"taskId": session_id, "taskState": "RUNNING", "success": None}
            return
        limits = self.tools.settings.limits_for(request.agent)
        usual = min(request.spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds)
        self._limit.begun(call.call_id, request.timeout_seconds or usual)
        self.delegations[session_id] = {
            "taskId": session_id, "target": request.target, "operation": request.operation, "taskState": "RUNNING", "success": None,
        }  # fmt: skip

    def _show(self, result: DelegateResult) -> str:
        known = self.delegations.get(result.task_id or "")
        if known is not None:
            known |= {"taskState": str(result.task_state), "success": result.success}
        return shown_to_model(result, self.tools.settings.assistant.result_characters)

    async def _before(self, messages: list[Message]) -> list[Message]:
        return await self._memory.shown(self.tools.models, self._spending, self._limit.left, messages)


def _must_fit(message: str, tokens: int) -> None:
    needed = tokens_of_text(message)
    if needed > tokens:
        raise Misused(
            f"The message is too long: about {needed} tokens ({len(message)} characters), and its model can be told {tokens} at once.",
            advice="Put the text into a file of the project and name the file in the message.",
        )
