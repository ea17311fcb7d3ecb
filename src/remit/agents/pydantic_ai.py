"""An agent of pydantic-ai as an agent of remit's: `Remit.open(agents=[pydantic_ai_agent("writer", writer, timeout=60)])`.

Deadline, cancellation and budget reach into its run, its words are streamed, and what it delegates is its child. The other way round, the
delegate tool for an agent of pydantic-ai, is `remit.runtime.tool.pydantic_ai`. Needs `pip install 'remit[pydantic-ai]'`.
"""

from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Unpack

from remit.agents.frameworks import AgentOptions, CompletedRequest, FrameworkRun, framework_agent, unreachable
from remit.agents.function import FunctionAgent
from remit.core.context import Context
from remit.core.errors import Misused, Stopped
from remit.models.pricing import TokenUsage
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
        PartDeltaEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
    )
    from pydantic_ai.models import ModelRequestContext

__all__ = ["pydantic_ai_agent"]

DepsOf = Callable[[Context], Any]


def pydantic_ai_agent(
    name: str,
    agent: AbstractAgent[Any, Any],
    *,
    deps: Any = None,
    deps_of: DepsOf | None = None,
    usage_limits: UsageLimits | None = None,
    streams: bool = True,
    **declared: Unpack[AgentOptions],
) -> FunctionAgent:
    """`agent` under `name`. It takes `task`, in words, and whatever else its caller names.

    `deps`: as its runs get them, or `deps_of`, a function of the `ctx` that makes them. `streams`: whether its model is asked to stream;
    False for one that cannot. Its structured output is the `data` of the return.
    """
    if not isinstance(agent, AbstractAgent):
        raise Misused(f"{name}: {agent!r:.80} is no agent of pydantic-ai.", advice="Pass a pydantic_ai.Agent.")
    wanted = _Guest(agent=agent, deps=deps, deps_of=deps_of, usage_limits=usage_limits, streams=streams)
    return framework_agent(name, "pydantic-ai", wanted.run, declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    agent: AbstractAgent[Any, Any]
    deps: Any
    deps_of: DepsOf | None
    usage_limits: UsageLimits | None
    streams: bool

    async def run(self, run: FrameworkRun) -> Any:
        before: Sequence[ModelMessage] | None = run.before
        usage = RunUsage()  # also of agents that it runs with `usage=ctx.usage`
        run.follow(lambda: usage.total_tokens)
        try:
            result = await self.agent.run(
                run.prompt(),
                message_history=before,
                deps=self.deps if self.deps_of is None else self.deps_of(run.ctx),
                usage=usage,
                usage_limits=self.usage_limits,
                capabilities=[_Watch(run)],
                event_stream_handler=_listener(run) if self.streams else None,
                infer_name=False,
            )
        except UsageLimitExceeded as error:
            return run.partial(str(error), "Raise its usage limits, or ask for less.")
        except AgentRunError as error:
            if (unavailable := unreachable(error)) is not None:
                raise unavailable from error
            raise
        finally:
            _count(run, usage)
        run.keep(result.all_messages())
        return result.output


class _Watch(AbstractCapability[Any]):
    """Beside each request: the soft deadline is told before it, what it cost is drawn after it."""

    def __init__(self, run: FrameworkRun) -> None:
        self._run = run

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        _count(self._run, ctx.usage)
        self._run.begins()
        words = self._run.handing_in()
        if words is not None:
            ctx.enqueue(words)
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        usage = response.usage
        provider = f"{response.provider_name}:" if response.provider_name else ""
        one = CompletedRequest(
            used=TokenUsage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cache_read_tokens,
                written_tokens=usage.cache_write_tokens,
            ),
            model=f"{provider}{response.model_name}" if response.model_name else "",
            cost=None if usage.cost is None else float(usage.cost),
            asked=sum(len(str(message.parts)) for message in request_context.messages),
            written=len(str(response.parts)),
            total=ctx.usage.total_tokens,
        )
        self._run.answered(one)
        return response

    async def after_tool_execute(self, ctx: RunContext[Any], *, result: Any, **called: Any) -> Any:
        _count(self._run, ctx.usage)
        return result


def _count(run: FrameworkRun, usage: RunUsage) -> None:
    with suppress(Stopped):
        run.total(usage.total_tokens, None if usage.cost is None else float(usage.cost))


def _listener(run: FrameworkRun) -> Callable[[RunContext[Any], AsyncIterable[AgentStreamEvent]], Any]:
    async def listen(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                run.stream(len(event.part.content))
                run.hear(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                run.stream(len(event.delta.content_delta))
                run.hear(event.delta.content_delta)
            elif isinstance(event, FunctionToolCallEvent):
                run.step(f"It calls {event.part.tool_name}.")

    return listen
