"""An agent of pydantic-ai as an agent of remit's: `Remit.open(agents=[pydantic_ai_agent("writer", writer, timeout=60)])`.

Deadline, cancellation and budget reach into its run, its words are streamed, and what it delegates is its child. The other way round, the
delegate tool for an agent of pydantic-ai, is `remit.runtime.tool.pydantic_ai`. Needs `pip install 'remit[pydantic-ai]'`.
"""

from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

from remit.agents.framework import Answered, Declared, Errand, guest, unreachable
from remit.agents.function import FunctionAgent
from remit.core.errors import Misused, Stopped
from remit.models.pricing import Spent
from remit.runtime.context import Context
from remit.runtime.tool.delegate_tool import needs

with needs("pydantic-ai", "pydantic_ai"):
    from pydantic_ai import RunContext, RunUsage, UsageLimits
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded
    from pydantic_ai.messages import (
        AgentStreamEvent,
        FunctionToolCallEvent,
        ModelMessage,
        ModelResponse,
        ModelResponsePartDelta,
        PartDeltaEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
        ToolCallPartDelta,
    )
    from pydantic_ai.models import ModelRequestContext

__all__ = ["pydantic_ai_agent"]

_OWN = "own"
"""Its requests follow one another."""
DepsOf = Callable[[Context], Any]


def pydantic_ai_agent(
    name: str,
    agent: AbstractAgent[Any, Any],
    *,
    deps: Any = None,
    deps_of: DepsOf | None = None,
    usage_limits: UsageLimits | None = None,
    streams: bool = True,
    **declared: Unpack[Declared],
) -> FunctionAgent:
    """`agent` under `name`. It takes `task`, in words, and whatever else its caller names.

    `deps`: as its runs get them, or `deps_of`, a function of the `ctx` that makes them. `streams`: whether its model is asked to stream;
    False for one that cannot. Its structured output is the `data` of the return.
    """
    if not isinstance(agent, AbstractAgent):
        raise Misused(f"{name}: {agent!r:.80} is no agent of pydantic-ai.", advice="Pass a pydantic_ai.Agent.")
    wanted = _Guest(agent=agent, deps=deps, deps_of=deps_of, usage_limits=usage_limits, streams=streams)
    return guest(name, "pydantic-ai", wanted.run, declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    agent: AbstractAgent[Any, Any]
    deps: Any
    deps_of: DepsOf | None
    usage_limits: UsageLimits | None
    streams: bool

    async def run(self, errand: Errand) -> Any:
        before: Sequence[ModelMessage] | None = errand.before
        usage = RunUsage()  # also of agents that it runs with `usage=ctx.usage`
        errand.follow(lambda: usage.total_tokens)
        try:
            result = await self.agent.run(
                errand.prompt(),
                message_history=before,
                deps=self.deps if self.deps_of is None else self.deps_of(errand.ctx),
                usage=usage,
                usage_limits=self.usage_limits,
                capabilities=[_Watch(errand)],
                event_stream_handler=_listener(errand) if self.streams else None,
                infer_name=False,
            )
        except UsageLimitExceeded as error:
            return errand.partial(str(error), "Raise its usage limits, or ask for less.")
        except AgentRunError as error:
            if (unavailable := unreachable(error)) is not None:
                raise unavailable from error
            raise
        finally:
            _count(errand, usage)
        errand.keep(result.all_messages())
        return result.output


class _Watch(AbstractCapability[Any]):
    """Beside each request: the soft deadline is told before it, what it cost is drawn after it."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        _count(self._errand, ctx.usage)
        self._errand.begins(_OWN, sum(map(_said, request_context.messages)))
        words = self._errand.handing_in()
        if words is not None:
            ctx.enqueue(words)
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        usage = response.usage
        provider = f"{response.provider_name}:" if response.provider_name else ""
        one = Answered(
            used=Spent(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cache_read_tokens,
                written_tokens=usage.cache_write_tokens,
            ),
            model=f"{provider}{response.model_name}" if response.model_name else "",
            cost=None if usage.cost is None else float(usage.cost),
            written=len(str(response.parts)),
            total=ctx.usage.total_tokens,
        )
        self._errand.answered(_OWN, one)
        return response

    async def after_tool_execute(self, ctx: RunContext[Any], *, result: Any, **called: Any) -> Any:
        _count(self._errand, ctx.usage)
        return result


def _count(errand: Errand, usage: RunUsage) -> None:
    with suppress(Stopped):
        errand.total(usage.total_tokens, None if usage.cost is None else float(usage.cost))


def _listener(errand: Errand) -> Callable[[RunContext[Any], AsyncIterable[AgentStreamEvent]], Any]:
    async def listen(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                errand.weigh(len(event.part.content))
                errand.hear(event.part.content)
            elif isinstance(event, PartDeltaEvent):
                errand.weigh(_size(event.delta))
                if isinstance(event.delta, TextPartDelta):
                    errand.hear(event.delta.content_delta)
            elif isinstance(event, FunctionToolCallEvent):
                errand.step(f"It calls {event.part.tool_name}.")

    return listen


def _said(message: ModelMessage) -> int:
    """Characters of a message, about."""
    return sum(len(str(getattr(part, "content", None) or "")) + len(str(getattr(part, "args", None) or "")) for part in message.parts)


def _size(delta: ModelResponsePartDelta) -> int:
    """Also of thoughts, and of what it calls."""
    return len(str(delta.args_delta or "")) if isinstance(delta, ToolCallPartDelta) else len(getattr(delta, "content_delta", None) or "")
