"""The conversation loop with a model: request, execute its calls, send the results, until it answers with text.

Its only tool is `delegate`. An invalid call is answered with text and the loop continues, bounded by the number of requests, the deadline,
the budget and the number of turns without a valid call. Independent of returns and stored conversations: `agents.model.agent` and the
assistant use it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from remit.agents.model.context_window import NAME_CHARACTERS
from remit.core.context import Context, Handle
from remit.core.delegate_requests import DelegateError, DelegateRequest, json_text
from remit.core.delegate_results import DelegateResult, result_of, shorten_result
from remit.core.errors import Failed, OutOfTime, RemitError, Stopped, Unavailable
from remit.core.model_messages import (
    Answer,
    Choice,
    EndReason,
    Message,
    Question,
    Reply,
    ToolCall,
    ToolOffer,
    ToolResult,
    UserMessage,
    repaired,
)
from remit.core.result import StopReason
from remit.models.client import Models
from remit.runtime.tool.delegate_tool import DelegateTool

# ---- calls

CALLS_AT_ONCE = 64
FAULT_CHARACTERS = 3000
CHILDREN_SHARE = 0.3
"""Share of the time left at the soft deadline in which children may still finish."""
CANCEL_SECONDS = 0.15
"""Time limit for a cancelled request to close its connection and to draw what it cost."""
_NOBODY_WAITS = "its caller no longer waits for it"
_TIME_IS_UP = "its caller must return its result"


class HandInSignal(Protocol):
    """When a result is due: a `Context` at its soft deadline, the assistant shortly before the limit of its message."""

    @property
    def hand_in(self) -> bool: ...
    @property
    def remaining(self) -> float: ...
    async def wait_hand_in(self) -> None: ...


Shown = Callable[[DelegateResult], str]
Started = Callable[[ToolCall, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    result: ToolResult
    is_run: bool
    """Whether it ran: it was neither invalid nor refused."""


async def until_hand_in(ending: HandInSignal, tasks: "Sequence[asyncio.Future[Any]]") -> bool:
    """Whether all of them ended before the soft deadline."""
    soft_deadline = asyncio.ensure_future(ending.wait_hand_in())
    try:
        while (pending := [task for task in tasks if not task.done()]) and not soft_deadline.done():
            await asyncio.wait([*pending, soft_deadline], return_when=asyncio.FIRST_COMPLETED)
        return not pending
    finally:
        _discard(soft_deadline)


def _discard(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    task.add_done_callback(_retrieve)


def _retrieve(task: "asyncio.Future[Any]") -> None:
    """Mark its error, if any, as retrieved."""
    if not task.cancelled():
        task.exception()


def _ended(call: ToolCall, outcome: CallOutcome | BaseException) -> CallOutcome:
    if isinstance(outcome, CallOutcome):
        return outcome
    if isinstance(outcome, asyncio.CancelledError):
        return reject(call, "It was stopped before it ended: your time is nearly up.")
    raise outcome


def reject(call: ToolCall, words: str) -> CallOutcome:
    """The outcome of an invalid call: only this message."""
    return CallOutcome(
        result=ToolResult(call_id=call.call_id, name=call.name[:NAME_CHARACTERS], text=words[:FAULT_CHARACTERS], is_error=True),
        is_run=False,
    )


def _words_of(error: RemitError) -> str:
    """The fault and the allowed values, limited in length, so that the model can correct its call."""
    words = f"{error.code}: {error}"
    details = {name: value for name, value in error.details.items() if name != "faults"} if isinstance(error, DelegateError) else {}
    allowed = json_text(details) if details else ""
    return f"{words} {allowed}" if allowed and len(words) + len(allowed) < FAULT_CHARACTERS else words


# ---- the conversation

FAULTY_TURNS = 6
"""Consecutive turns without a valid call after which it is given up."""
HANDING_IN_SHARE = 0.5
"""Share of the time left at the soft deadline in which the model may finish its reply."""

Keep = Callable[[Message], Awaitable[None]]


def answer_now(why: str) -> str:
    """Message to a model that may make no more calls."""
    return f"{why} You can make no more calls: answer now with what you have, and say what is missing."


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    models: Models
    choice: Choice
    ctx: Context
    """Parent of the delegations, and owner of time and money."""
    instructions: str = ""
    messages: list[Message] = field(default_factory=list)
    """The conversation so far; not changed. Pending calls at its end are made first."""
    tool: DelegateTool | None = None
    requests: int = 50
    """Maximum requests; the last one without the tool."""
    hear: Callable[[str], None] | None = None
    """Receives text as it arrives."""
    keep: Keep | None = None
    """Called with each new message, in order, before it counts: a call before it is made, a result before the model sees it."""
    shown: Shown = shorten_result
    temperature: float | None = None
    output_schema: Mapping[str, Any] | None = None
    """Schema of its answer, sent whenever the tool is not offered."""
    before: Callable[[list[Message]], Awaitable[list[Message]]] | None = None
    """Replaces the messages of a request, for long conversations."""
    started: Started | None = None
    """Called with each delegation once it is recorded."""
    closing: Callable[[str], str] = answer_now
    """Message to the model when it must answer now, given the reason."""
    ending: HandInSignal | None = None
    """When that is, if not at the context's soft deadline."""
    is_heard: Callable[[], bool] | None = None
    """Whether a reader is receiving the answer: then it is not interrupted."""
    told: Callable[[Answer], None] | None = None
    """Called after each request with tokens, price and tried models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEnd:
    text: str
    ended: EndReason
    """Why its last reply ended."""


async def talk(talk: ConversationOptions) -> ConversationEnd:
    """The final text. Raises `Unavailable` if no model answers, `OutOfTime` if there was no answer in time, `Failed` if it is given up."""
    return await _Conversation(talk).to_the_end()


class _Conversation:
    def __init__(self, talk: ConversationOptions) -> None:
        self._talk = talk
        self._messages = repaired(talk.messages, keep_pending=True)
        self._ending: HandInSignal = talk.ending or talk.ctx
        self._handles: dict[str, Handle] = {}
        """Running delegations."""
        self._stopping: set[asyncio.Future[Any]] = set()
        """Running cancellations: the loop itself keeps only weak references to tasks."""
        self._asked = 0
        self._faulty = 0
        self._is_closing = False

    async def to_the_end(self) -> ConversationEnd:
        if pending := pending_calls(self._messages):
            await self._call(pending)
        while True:
            await self._close_in_time()
            asked = await self._ask()
            if asked is None:  # the soft deadline came before its answer
                continue
            await self._add(asked.reply)
            if asked.reply.calls:
                await self._call(asked.reply.calls)
            else:
                return ConversationEnd(text=asked.reply.text, ended=asked.ended)

    # ---- asking

    async def _ask(self) -> Answer | None:
        talk = self._talk
        if self._asked >= talk.requests + self._ending.hand_in:
            times = "once" if self._asked == 1 else f"{self._asked} times"
            raise self._given_up(
                f"The model was asked {times} and gave no answer.", "Ask for less at once, or raise the setting model_requests."
            )
        self._asked += 1
        messages = self._messages if talk.before is None else await talk.before(list(self._messages))
        offers = () if talk.tool is None or self._is_closing else (offer_of(talk.tool),)
        question = Question(
            choice=talk.choice,
            instructions=talk.instructions,
            messages=messages if offers else in_words(messages),
            temperature=talk.temperature,
            tools=offers,
            output_schema=None if offers else talk.output_schema,
            hear=talk.hear,
        )
        asked = await self._answered(question)
        if asked is not None and talk.told is not None:
            talk.told(asked)
        return asked

    async def _answered(self, question: Question) -> Answer | None:
        """Its reply; None if it was still replying long after the soft deadline."""
        ending, is_heard = self._ending, self._talk.is_heard
        asking = asyncio.ensure_future(self._talk.models.ask(self._talk.ctx, question))
        try:
            if ending.hand_in:
                return await asking
            if not await until_hand_in(ending, [asking]):
                if is_heard is not None and is_heard():
                    return await asking
                await asyncio.wait([asking], timeout=max(0.0, ending.remaining * HANDING_IN_SHARE))
            return asking.result() if asking.done() else None
        except asyncio.CancelledError:  # what it cost until now is drawn before the delegation ends
            asking.cancel()
            await asyncio.wait([asking], timeout=CANCEL_SECONDS)
            raise
        except Stopped as error:
            if error.code == "BUDGET_EXCEEDED" and not isinstance(error, OutOfTime):
                raise OutOfTime(error.message, code=error.code, advice=error.advice) from error
            raise
        except Unavailable as error:
            if not ending.hand_in:
                raise
            raise OutOfTime(f"No model answered when its result was due: {error.message}", advice="Give it a longer timeout.") from error
        finally:
            _discard(asking)

    async def _close_in_time(self) -> None:
        """Tell it once that it must answer now: its time is nearly up, or this is the last request."""
        talk = self._talk
        if self._ending.hand_in:
            why = f"Time is nearly up: {max(0.0, self._ending.remaining - 1):.0f} seconds are left."
        elif talk.tool is not None and self._asked >= talk.requests - 1:
            why = f"You have asked for work {self._asked} times, which is as often as you may."
        else:
            return
        if not self._is_closing:
            self._is_closing = True
            if self._asked or self._ending.hand_in:
                await self._add(UserMessage(text=talk.closing(why)))

    # ---- calling

    async def _call(self, calls: Sequence[ToolCall]) -> None:
        if self._is_closing or self._ending.hand_in:
            called = [reject(call, "No new work is started: answer now.") for call in calls]
        else:
            called = await self._call_all(calls)
        for one in called:
            await self._add(one.result)
        self._count(called)

    async def _call_all(self, calls: Sequence[ToolCall]) -> list[CallOutcome]:
        """The outcomes in call order. At the soft deadline running calls may finish for a while, then are stopped."""
        alive = self._talk.ctx.budget.alive
        at_once = asyncio.Semaphore(max(1, min(CALLS_AT_ONCE, CALLS_AT_ONCE if alive is None else alive)))
        tasks = [asyncio.ensure_future(self._call_one(call, at_once)) for call in calls]
        try:
            if not await until_hand_in(self._ending, tasks):
                await asyncio.wait(tasks, timeout=max(0.0, self._ending.remaining * CHILDREN_SHARE))
                stopping = [self._cancel(handle, _TIME_IS_UP) for handle in self._handles.values()]
                if stopping:
                    await asyncio.wait(stopping, timeout=max(0.0, self._ending.remaining * CHILDREN_SHARE))
                await asyncio.wait(tasks, timeout=0.1)  # a stopped call returns its partial result
            for task in tasks:
                task.cancel()
            return [_ended(call, one) for call, one in zip(calls, await asyncio.gather(*tasks, return_exceptions=True), strict=True)]
        finally:
            for task in tasks:
                task.cancel()

    async def _call_one(self, call: ToolCall, at_once: asyncio.Semaphore) -> CallOutcome:
        tool = self._talk.tool
        if tool is None:
            return reject(call, f"There is no tool {call.name!r:.80}: you have none. Answer in words.")
        if call.name != tool.name:
            targets = ", ".join(sorted(tool.catalogue.targets())[:30]) or "none"
            usage = f"Your only tool is {tool.name}: call it with target, operation and parameters. Targets: {targets}."
            return reject(call, f"There is no tool {call.name!r:.80}. {usage}")
        if isinstance(call.arguments, str):
            return reject(call, f"The arguments of {call.name} must be one complete JSON object; these are not: {call.arguments!r:.200}")
        try:
            request = tool.read(call.arguments)
        except DelegateError as error:
            return reject(call, _words_of(error))
        async with at_once:
            return await self._delegate(call, request)

    async def _delegate(self, call: ToolCall, request: DelegateRequest) -> CallOutcome:
        ctx = self._talk.ctx
        asked_at = ctx.deadline - ctx.remaining
        try:
            handle = await ctx.start(request.agent, **request.asked())
        except Stopped:
            raise
        except RemitError as error:  # it could not be recorded, or the agent no longer exists
            return reject(call, _words_of(error))
        if self._talk.started is not None:
            self._talk.started(call, handle.session_id)
        self._handles[handle.session_id] = handle
        try:
            returned = await handle.result()
        except asyncio.CancelledError:  # its result would be lost
            self._cancel(handle, _NOBODY_WAITS)
            raise
        finally:
            del self._handles[handle.session_id]
        # It states itself whether it succeeded. Marked as an error, it would be wrapped in JSON again for some models.
        result = ToolResult(call_id=call.call_id, name=call.name, text=self._talk.shown(result_of(returned, asked_at)))
        return CallOutcome(result=result, is_run=returned.stop_reason is not StopReason.REFUSED)

    def _cancel(self, handle: Handle, why: str) -> "asyncio.Future[Any]":
        task = asyncio.ensure_future(handle.cancel(why))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        task.add_done_callback(_retrieve)
        return task

    def _count(self, called: Sequence[CallOutcome]) -> None:
        self._faulty = 0 if any(one.is_run for one in called) else self._faulty + 1
        if self._faulty >= FAULTY_TURNS:
            raise self._given_up(
                f"The model made {self._faulty} turns in a row without a call that could be carried out. "
                f"The last was answered: {called[-1].result.text[:300]}",
                "Give it a more able model, or say in its instructions which agents it may call and what they take.",
            )

    def _given_up(self, message: str, advice: str) -> RemitError:
        """Failures from the soft deadline on count as the deadline."""
        if self._ending.hand_in:
            return OutOfTime(f"It returned nothing when its result was due: {message}", advice="Give it a longer timeout.")
        return Failed(message, advice=advice)

    async def _add(self, message: Message) -> None:
        self._messages.append(message)
        if self._talk.keep is not None:
            await self._talk.keep(message)


def offer_of(tool: DelegateTool) -> ToolOffer:
    """The tool as offered to a model."""
    schema = tool.schema()
    return ToolOffer(name=schema["name"], description=schema["description"], schema=schema["inputSchema"])


def in_words(messages: Sequence[Message]) -> list[Message]:
    """The messages without calls: some providers refuse a history of calls if no tool is offered."""
    plain: list[Message] = []
    for message in messages:
        if isinstance(message, Reply) and message.calls:
            calls = "\n".join(f"(called {call.name}: {json.dumps(call.arguments, ensure_ascii=False)})" for call in message.calls)
            plain.append(Reply(text=f"{message.text}\n{calls}".strip(), model=message.model))
            continue
        one = (
            UserMessage(text=f"{'Error' if message.is_error else 'Result'} of {message.name}: {message.text}")
            if isinstance(message, ToolResult)
            else message
        )
        if isinstance(one, UserMessage) and plain and isinstance(plain[-1], UserMessage):
            one = UserMessage(text=f"{plain.pop().text}\n\n{one.text}")
        plain.append(one)
    return plain


def pending_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls at the end without results, of an interrupted conversation."""
    position = next((number for number in reversed(range(len(messages))) if not isinstance(messages[number], ToolResult)), -1)
    last = messages[position] if position >= 0 else None
    if not isinstance(last, Reply):
        return ()
    return last.calls[len(messages) - 1 - position :]
