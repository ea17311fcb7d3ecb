"""The parent's answers to a worker: each question of its `ctx` is put to the real `ctx`. The worker is not trusted.

Whatever a worker asks, the answer is a value or an error of remit's tree on the wire; nothing it sends raises here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from remit.agents.process.wire import asked_to_wire, event_to_wire, request_from_wire
from remit.core.errors import Misused, Unavailable
from remit.core.events import Event
from remit.core.request import Request
from remit.models.questions import TextModel
from remit.runtime.context import Context, Handle

STREAMS_AT_ONCE = 256
MOST_QUESTIONS, QUESTIONS_AT_ONCE = 64, 4
"""To a model, of one worker. Few at once, as each draws on the budget only when it is answered."""
LONGEST_QUESTION = 1_000_000
"""Characters, with its schema."""


class Service:
    """What one worker may ask and say."""

    def __init__(self, ctx: Context, models: TextModel | None = None) -> None:
        self._ctx = ctx
        self._models = models
        self._questions = 0
        self._asking = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._handles: dict[str, Handle] = {}
        self._streams: dict[int, AsyncIterator[Event]] = {}
        self._calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "delegate": self._delegate,
            "start": self._start,
            "gather": self._gather,
            "result": self._result,
            "stream": self._stream,
            "next": self._next,
            "stop": self._stop,
            "checkpoint": self._checkpoint,
            "scratch": self._scratch,
            "budget": self._budget,
            "environment": self._environment,
            "permit": self._permit,
            "permitted": self._permitted,
            "session_diff": self._session_diff,
            "write": self._write,
        }
        self._tells: dict[str, Callable[..., None]] = {
            "progress": ctx.progress,
            "emit": ctx.emit,
            "artifact": ctx.artifact,
            "spend": ctx.spend,
        }

    async def call(self, name: object, body: object) -> Any:
        return await _found(self._calls, name)(**_arguments(body))

    def tell(self, name: object, body: object) -> None:
        _found(self._tells, name)(**_arguments(body))

    async def _delegate(self, request: object) -> Any:
        agent, asked = _asked(request_from_wire(request))
        return (await self._ctx.delegate(agent, **asked)).to_dict()

    async def _start(self, request: object) -> str:
        agent, asked = _asked(request_from_wire(request))
        handle = await self._ctx.start(agent, **asked)
        self._handles[handle.session_id] = handle
        return handle.session_id

    async def _gather(self, requests: list[object], limit: int | None = None) -> Any:
        returns = await self._ctx.gather(*map(request_from_wire, requests), limit=limit)
        return [one.to_dict() for one in returns]

    async def _result(self, session_id: str) -> Any:
        return (await self._handle(session_id).result()).to_dict()

    async def _stream(self, session_id: str) -> int:
        if len(self._streams) >= STREAMS_AT_ONCE:
            raise Misused(f"More than {STREAMS_AT_ONCE} streams are open.", advice="Read each to its end.")
        number = max(self._streams, default=0) + 1
        self._streams[number] = self._handle(session_id).stream()
        return number

    async def _next(self, stream: int) -> Any:
        events = self._streams.get(stream)
        event = await anext(events, None) if events is not None else None
        if event is None:
            self._streams.pop(stream, None)
            return None
        return event_to_wire(event)

    async def _stop(self, session_id: str, reason: str = "") -> Any:
        return await self._handle(session_id).cancel(reason)

    async def _checkpoint(self, value: Any) -> None:
        await self._ctx.checkpoint(value)

    async def _scratch(self) -> str:
        return str(self._ctx.scratch)

    async def _budget(self) -> Any:
        return self._ctx.budget.to_dict()

    async def _environment(self) -> Any:
        return self._ctx.environment()

    async def _permit(self, action: str, facts: dict[str, Any]) -> None:
        if not isinstance(facts, dict) or not all(isinstance(name, str) for name in facts):
            raise Misused("What is asked for is described by names and values.")
        await self._ctx.permit(str(action), **facts)

    async def _permitted(self, paths: list[str]) -> list[str]:
        if not isinstance(paths, list):
            raise Misused("Paths are a list.")
        return await self._ctx.permitted(paths)

    async def _session_diff(self, session_id: str) -> str:
        return await self._ctx.backend.session_diff(str(session_id))

    async def _write(self, prompt: str, instructions: str = "", schema: dict[str, Any] | None = None) -> Any:
        """A question to a model: asked here, where the models, their keys and what they cost are known."""
        if self._models is None:
            raise Unavailable("No model is at hand here.", code="TOOL_UNAVAILABLE", advice="Delegate to a model agent.")
        if not isinstance(prompt, str) or not isinstance(instructions, str) or not isinstance(schema, dict | None):
            raise Misused("A model is asked in words.")
        if len(prompt) + len(instructions) + len(str(schema or "")) > LONGEST_QUESTION:
            raise Misused(f"A question to a model has at most {LONGEST_QUESTION:,} characters.", advice="Ask about less at once.")
        if self._questions >= MOST_QUESTIONS:
            raise Misused(f"More than {MOST_QUESTIONS} questions to a model.", advice="Ask less, or delegate to a model agent.")
        self._questions += 1
        async with self._asking:
            return asked_to_wire(await self._models.write(self._ctx, prompt, instructions=instructions, schema=schema))

    def _handle(self, session_id: str) -> Handle:
        try:
            return self._handles[session_id]
        except (KeyError, TypeError):
            raise Misused(f"{session_id!r} was not started by this agent.", advice="Use the handle that ctx.start gave.") from None


def _found(table: Mapping[str, Any], name: object) -> Any:
    if not isinstance(name, str) or name not in table:
        raise Misused(f"A context has no {name!r}.")
    return table[name]


def _arguments(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Misused("A question carries its arguments by name.")
    return body


def _asked(request: Request) -> tuple[str, dict[str, Any]]:
    asked = request.to_dict()
    agent: str = asked.pop("agent")
    return agent, {name: value for name, value in asked.items() if name == "parameters" or value is not None}
