"""The talk with a model: it is asked, what it calls is done, it is told what came of it, until it answers in words (S5.8).

Its only tool is `delegate`. A call that cannot be made is answered in words too, and the talk goes on; but not for ever: the requests, the
deadline, the budget and the number of turns without a valid call bound it. Knows neither returns nor conversations that are stored:
`agents.model.agent` and the assistant hold talks.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.agents.model.calling import Called, Caller, Ending, Shown, Started, faulty, until_hand_in
from remit.agents.model.taking import taken
from remit.core.errors import Failed, OutOfTime, RemitError, Stopped, Unavailable
from remit.flow.context import Context
from remit.models.client import Models
from remit.models.messages import Asked, Choice, Ended, Message, Question, Reply, Result, Said, ToolCall, ToolOffer, repaired
from remit.tool.shortening import shortened
from remit.tool.tool import DelegateTool

FAULTY_TURNS = 6
"""So many turns in a row in which nothing was called that could be done, and it is given up."""
EMPTY_TURNS = 2
HANDING_IN_SHARE = 0.5
"""Of the time that is left at the soft deadline: so long the model may still finish what it is saying."""
_EMPTY = "Your answer was empty. Answer in words, or call your tool."

Keep = Callable[[Message], Awaitable[None]]


def answer_now(why: str) -> str:
    """What a model is told when it may call nothing any more."""
    return f"{why} You can call nothing any more: answer now, with what you have, and say what is missing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    models: Models
    choice: Choice
    ctx: Context
    """Whose children the delegations are, whose time and money is spent."""
    instructions: str = ""
    messages: list[Message] = field(default_factory=list)
    """What was said so far; not changed. If calls at its end have no results, they are made first."""
    tool: DelegateTool | None = None
    requests: int = 50
    """So often the model may be asked; the last time without the tool."""
    hear: Callable[[str], None] | None = None
    """The words as they come."""
    keep: Keep | None = None
    """Told each new message, in order, before it counts: a call before it is made, a result before the model sees it."""
    shown: Shown = shortened
    temperature: float | None = None
    output_schema: Mapping[str, Any] | None = None
    """Of its answer, asked for whenever the tool is not offered."""
    before: Callable[[list[Message]], Awaitable[list[Message]]] | None = None
    """What is asked instead of all that was said: for conversations that grow."""
    started: Started | None = None
    """Told of each delegation when it is on record."""
    closing: Callable[[str], str] = answer_now
    """What the model is told when it must answer now, given why."""
    ending: Ending | None = None
    """When that is, if not at the context's soft deadline."""
    is_heard: Callable[[], bool] | None = None
    """Whether somebody hears an answer being given: that is not interrupted by being told to answer."""
    told: Callable[[Asked], None] | None = None
    """What came of each question: its tokens, its price, who was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talked:
    text: str
    messages: list[Message]
    """All of it, with what was there before."""
    asked: int
    """How often the model was asked."""
    ended: Ended
    """Why its last reply ended."""


async def talk(talk: Talk) -> Talked:
    """The answer in words. Raises `Unavailable` when no model answers, `OutOfTime` when none came in time, `Failed` when it is given up."""
    return await _Talking(talk).to_the_end()


class _Talking:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._messages = repaired(talk.messages, keep_pending=True)
        self._ending: Ending = talk.ending or talk.ctx
        self._caller = Caller(ctx=talk.ctx, tool=talk.tool, shown=talk.shown, started=talk.started, ending=self._ending)
        self._asked = 0
        self._faulty = self._empty = 0
        self._is_closing = False

    async def to_the_end(self) -> Talked:
        if pending := unanswered(self._messages):
            await self._call(pending)
        while True:
            await self._close_in_time()
            asked = await self._ask()
            if asked is None:  # the soft deadline came before it had answered
                continue
            reply, note = taken(asked.reply)
            await self._add(reply)
            if reply.calls:
                await self._call(reply.calls, note)
            elif asked.reply.text.strip() or asked.ended is Ended.REFUSED or not await self._is_asked_again():
                return Talked(text=asked.reply.text, messages=self._messages, asked=self._asked, ended=asked.ended)

    # ---- asking

    async def _ask(self) -> Asked | None:
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

    async def _answered(self, question: Question) -> Asked | None:
        """Its reply; None where it was still speaking at the soft deadline, and for long after."""
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
        except Stopped as error:
            if error.code == "BUDGET_EXCEEDED" and not isinstance(error, OutOfTime):
                raise OutOfTime(error.message, code=error.code, advice=error.advice) from error
            raise
        except Unavailable as error:
            if not ending.hand_in:
                raise
            raise OutOfTime(f"No model answered when it was to hand in: {error.message}", advice="Give it a longer timeout.") from error
        finally:
            asking.cancel()
            asking.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _close_in_time(self) -> None:
        """Told once that it must answer now: when its time is nearly up, or this is the last time that it is asked."""
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
                await self._add(Said(text=talk.closing(why)))

    async def _is_asked_again(self) -> bool:
        """An empty answer is no answer; but it is not asked for ever."""
        self._empty += 1
        if self._empty >= EMPTY_TURNS or self._asked >= self._talk.requests:
            return False
        await self._add(Said(text=_EMPTY))
        return True

    # ---- calling

    async def _call(self, calls: Sequence[ToolCall], note: str = "") -> None:
        if self._is_closing or self._ending.hand_in:
            called = [faulty(call, "Nothing new is started: you are to answer now.") for call in calls]
        else:
            called = await self._caller.call_all(calls)
        for one in called:
            await self._add(one.result)
        if note:
            await self._add(Said(text=note))
        self._count(called)

    def _count(self, called: Sequence[Called]) -> None:
        self._faulty = 0 if any(one.is_run for one in called) else self._faulty + 1
        if self._faulty >= FAULTY_TURNS:
            raise self._given_up(
                f"The model made {self._faulty} turns in a row without a call that could be carried out. "
                f"The last was answered: {called[-1].result.text[:300]}",
                "Give it a more able model, or say in its instructions which agents it may call and what they take.",
            )

    def _given_up(self, message: str, advice: str) -> RemitError:
        """What goes wrong from the soft deadline on is the deadline's (S2.6)."""
        if self._ending.hand_in:
            return OutOfTime(f"It handed in nothing when it was told to: {message}", advice="Give it a longer timeout.")
        return Failed(message, advice=advice)

    async def _add(self, message: Message) -> None:
        self._messages.append(message)
        if self._talk.keep is not None:
            await self._talk.keep(message)


def offer_of(tool: DelegateTool) -> ToolOffer:
    """The tool as a model is offered it."""
    schema = tool.plain_schema()
    return ToolOffer(
        name=schema["name"],
        description=schema["description"],
        schema=schema["inputSchema"],
        strict=lambda: tool.schema()["inputSchema"],
    )


def in_words(messages: Sequence[Message]) -> list[Message]:
    """The same without calls: some providers refuse a history of calls where no tool is offered."""
    told: list[Message] = []
    for message in messages:
        if isinstance(message, Reply) and message.calls:
            calls = "\n".join(f"(called {call.name}: {json.dumps(call.arguments, ensure_ascii=False)})" for call in message.calls)
            told.append(Reply(text=f"{message.text}\n{calls}".strip(), model=message.model))
            continue
        one = (
            Said(text=f"{'Error' if message.is_error else 'Result'} of {message.name}: {message.text}")
            if isinstance(message, Result)
            else message
        )
        if isinstance(one, Said) and told and isinstance(told[-1], Said):
            one = Said(text=f"{told.pop().text}\n\n{one.text}")
        told.append(one)
    return told


def unanswered(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls at the end that have no results yet: those of a talk that was interrupted."""
    position = next((number for number in reversed(range(len(messages))) if not isinstance(messages[number], Result)), -1)
    last = messages[position] if position >= 0 else None
    if not isinstance(last, Reply):
        return ()
    return last.calls[len(messages) - 1 - position :]
