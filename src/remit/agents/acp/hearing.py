"""What an agent says while it works, told on: text as chunks and as its answer, plan and tools as progress, usage as spending.

Reads plain mappings, not the library's models: an agent newer than the library may say what that does not know, and is understood as
far as it goes. Answers its requests for permission by `acp.permission`. One per conversation; used by `acp.conversation`.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS

from remit.agents.acp.permission import AskedTool, Offered, decide, passed
from remit.agents.tail import Tail
from remit.agents.telling import CALLS_KEPT, OVER, ToolCalls, Words, tell_plan
from remit.core.errors import Stopped
from remit.flow.context import Context

CHUNK_CHARACTERS = 1024
CHUNK_SECONDS = 0.3
THINKING_SECONDS = 5.0
_CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


class Hearing:
    """The connection's handler."""

    def __init__(self, ctx: Context, allow: Sequence[str]) -> None:
        self.ctx = ctx
        self._allow = allow
        self.is_replay = False
        """While a session is loaded the agent says again what it said before: nothing of that is new."""
        self.is_over = False
        self.whole, self.last = Tail(), Tail()
        self._message_id: Any = None
        self._tools = ToolCalls(ctx)
        self._words = Words(ctx)
        self._announced: dict[str, asyncio.TimerHandle] = {}
        """Calls that are not told of yet: many are announced before it is known what they are for."""
        self._spoken: list[str] = []
        self._spoken_size = 0
        self._flushing: asyncio.TimerHandle | None = None
        self._thought_at = -math.inf
        self._context, self._cost = 0, 0.0
        """Of the session, as the agent counts them: tokens that its context holds, and what it has cost."""
        self._turn_tokens = 0
        """Spent in this turn."""

    async def __call__(self, method: str, params: Any, is_notification: bool) -> Any:
        given = _mapping(params)
        if method == CLIENT_METHODS["session_update"]:
            try:
                self._update(_mapping(given.get("update")))
            except Stopped:
                self.is_over = True
            return None
        if method == CLIENT_METHODS["session_request_permission"]:
            return await self._permission(given)
        if is_notification:
            return None
        raise RequestError.method_not_found(method)

    def begin_turn(self) -> None:
        self.whole.clear()
        self.last.clear()
        self._message_id = None
        self._turn_tokens = 0

    def end(self) -> None:
        """Nothing that comes later counts."""
        for timer in self._announced.values():
            timer.cancel()
        self._end_message()
        self.is_over = True

    def end_turn(self) -> None:
        """What it said last is its answer."""
        self.flush()
        self._guarded(self._words.end_turn)

    def flush(self) -> None:
        """Hand on the text that waited for more."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._spoken:
            text, self._spoken, self._spoken_size = "".join(self._spoken), [], 0
            self._guarded(lambda: self._words.say(text))

    def _end_message(self) -> None:
        self.flush()
        self._guarded(self._words.end_message)

    def _guarded(self, tell: Callable[[], None]) -> bool:
        """Whether it was told: whoever it is told to may have ended."""
        try:
            tell()
        except Stopped:
            self.is_over = True
        return not self.is_over

    def count_turn(self, tokens: Any) -> None:
        """What the turn took in all; what of it was spent while it ran is not spent again."""
        if _is_number(tokens) and tokens > self._turn_tokens:
            self._spend(int(tokens) - self._turn_tokens, 0.0)

    def _count(self, used: Any, cost: Any) -> None:
        """Its context has grown, the session has cost more: the differences are spent as they are told."""
        tokens = max(0, int(used) - self._context) if _is_number(used) else 0
        money = max(0.0, float(cost) - self._cost) if _is_number(cost) else 0.0
        self._context += tokens
        self._cost += money
        if not self.is_replay and (tokens or money):
            self._spend(tokens, money)

    def _spend(self, tokens: int, cost: float) -> None:
        self._turn_tokens += tokens
        self.ctx.spend(tokens=tokens, cost=cost)

    # ---- what it says

    def _update(self, update: Mapping[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if self.is_over:
            return
        if kind == "usage_update":
            cost = _mapping(update.get("cost"))
            self._count(update.get("used"), cost.get("amount") if cost.get("currency", "USD") == "USD" else None)
        elif self.is_replay:
            return
        elif kind == "agent_message_chunk":
            self._message(update)
        elif kind == "agent_thought_chunk":
            self._thought()
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(update)
        elif kind == "plan":
            self._plan(update.get("entries"))
        elif kind == "plan_update":
            self._plan(_mapping(update.get("plan")).get("entries"))

    def _message(self, update: Mapping[str, Any]) -> None:
        text = _text_of(_mapping(update.get("content")))
        if not text:
            return
        message_id = update.get("messageId")
        if message_id is not None and message_id != self._message_id:
            self._end_message()
            self.last.clear()
            self._message_id = message_id
        self.whole.add(text)
        self.last.add(text)
        self._spoken.append(text)
        self._spoken_size += len(text)
        if self._spoken_size >= CHUNK_CHARACTERS:
            self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(CHUNK_SECONDS, self._flush_waiting)

    def _flush_waiting(self) -> None:
        self._flushing = None
        self.flush()

    def _thought(self) -> None:
        """Not told on, but a sign of life."""
        now = asyncio.get_running_loop().time()
        if now - self._thought_at >= THINKING_SECONDS:
            self._thought_at = now
            self.ctx.progress("It is thinking.")

    def _tool(self, update: Mapping[str, Any]) -> None:
        self._end_message()
        self.last.clear()  # what it says after a tool is a message of its own
        call_id, status = _word(update.get("toolCallId")), _word(update.get("status"))
        call = self._tools.known(call_id, kind=_word(update.get("kind")), title=_word(update.get("title")))
        if status in OVER:
            self._hush(call_id)
            self._tools.end(call_id, status)
        elif status == "in_progress":
            self._hush(call_id)
            self._tools.begin(call_id)
        elif not call.is_told and call_id not in self._announced and len(self._announced) < CALLS_KEPT:
            self._announced[call_id] = asyncio.get_running_loop().call_later(CHUNK_SECONDS, self._begin, call_id)

    def _begin(self, call_id: str) -> None:
        self._hush(call_id)
        if not self.is_over:
            self._guarded(lambda: self._tools.begin(call_id))

    def _hush(self, call_id: str) -> None:
        timer = self._announced.pop(call_id, None)
        if timer is not None:
            timer.cancel()

    def _plan(self, entries: Any) -> None:
        listed = entries[:200] if isinstance(entries, list) else []
        tell_plan(self.ctx, [(_word(one.get("content")), _word(one.get("status"))) for one in map(_mapping, listed)])

    # ---- what it asks

    async def _permission(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if self.is_over:
            return _CANCELLED
        asked = _mapping(given.get("toolCall"))
        call_id = _word(asked.get("toolCallId"))
        call = self._tools.known(call_id, kind=_word(asked.get("kind")), title=_word(asked.get("title")))
        listed = given.get("options")
        offered = [
            Offered(option_id=str(one["optionId"]), kind=_word(one.get("kind")))
            for one in map(_mapping, listed if isinstance(listed, list) else ())
            if "optionId" in one
        ]
        tool = AskedTool(kind=call.kind, title=call.title)
        decision = decide(self._allow, tool, offered)
        if decision.allowed:
            try:
                decision = await passed(self.ctx, tool, asked, offered, decision)
            except Stopped:
                self.is_over = True
                return _CANCELLED
        word = "allowed" if decision.allowed else "denied"
        self._end_message()
        is_told = self._guarded(
            lambda: self._tools.decide(call_id, kind=call.kind, title=call.title, decision=word, because=decision.because)
        )
        if not is_told or decision.option_id is None:
            return _CANCELLED
        return {"outcome": {"outcome": "selected", "optionId": decision.option_id}}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value < 1e15


def _text_of(content: Mapping[str, Any]) -> str:
    text = content.get("text")
    if content.get("type") == "text" and isinstance(text, str):
        return text
    inner = _mapping(content.get("resource")).get("text")
    return inner if isinstance(inner, str) else ""
