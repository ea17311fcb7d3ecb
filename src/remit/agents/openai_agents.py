"""An agent of the OpenAI Agents SDK as an agent of remit's: `Remit.open(agents=[openai_agents_agent("writer", writer, timeout=60)])`.

Deadline, cancellation and budget reach into its run, its words are streamed, and what it delegates is its child. The SDK sends traces of
every run to its vendor: not of these. The other way round, the delegate tool for an agent of the SDK, is
`remit.runtime.tool.openai_agents`.
Needs `pip install 'remit[openai-agents]'`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Unpack

from remit.agents.frameworks import AgentOptions, CompletedRequest, FrameworkRun, framework_agent, unreachable
from remit.agents.function import FunctionAgent
from remit.core.context import Context
from remit.core.errors import Misused, Stopped
from remit.models.pricing import TokenUsage
from remit.runtime.tool.delegate_tool import needs

with needs("openai-agents", "agents", "openai"):
    from agents import Agent, MaxTurnsExceeded, RunConfig, RunHooks, Runner, RunResultStreaming

__all__ = ["openai_agents_agent"]

MOST_TURNS = 50
END_SECONDS = 1.0
"""How long a cancelled run may take to end its own tasks; the deadline does not wait for it."""
ContextOf = Callable[[Context], Any]


def openai_agents_agent(
    name: str,
    agent: Agent[Any],
    *,
    context: Any = None,
    context_of: ContextOf | None = None,
    max_turns: int = MOST_TURNS,
    run_config: RunConfig | None = None,
    **declared: Unpack[AgentOptions],
) -> FunctionAgent:
    """`agent` under `name`. It takes `task`, in words, and whatever else its caller names.

    `context`: as its runs get it, or `context_of`, a function of the `ctx` that makes it. After `max_turns` its return is partial.
    A structured output is the `data` of the return. Whatever `run_config` says, nothing is traced.
    """
    if not isinstance(agent, Agent):
        raise Misused(f"{name}: {agent!r:.80} is no agent of the OpenAI Agents SDK.", advice="Pass an agents.Agent.")
    config = run_config or RunConfig(tool_not_found_behavior="return_error_to_model")
    wanted = _Guest(agent=agent, context=context, context_of=context_of, max_turns=max_turns, config=config)
    if agent.handoff_description:
        declared = {"description": agent.handoff_description, **declared}
    return framework_agent(name, "openai-agents", wanted.run, declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    agent: Agent[Any]
    context: Any
    context_of: ContextOf | None
    max_turns: int
    config: RunConfig

    async def run(self, run: FrameworkRun) -> Any:
        said: Any = {"role": "user", "content": run.prompt()}
        running = Runner.run_streamed(
            self.agent,
            [*(run.before or ()), said],
            context=self.context if self.context_of is None else self.context_of(run.ctx),
            max_turns=self.max_turns,
            hooks=_Watch(run),
            run_config=replace(self.config, tracing_disabled=True, call_model_input_filter=self._told_to_hand_in(run)),
        )
        usage = running.context_wrapper.usage  # also of agents that are its tools
        run.follow(lambda: usage.total_tokens)
        try:
            await _listen(running, run)
        except MaxTurnsExceeded as error:
            return run.partial(str(error), "Allow it more turns (max_turns), or ask for less.")
        except Exception as error:
            if (unavailable := unreachable(error)) is not None:
                raise unavailable from error
            raise
        finally:
            await _ended(running)
            with suppress(Stopped):
                run.total(usage.total_tokens)
        run.keep(running.to_input_list())
        return running.final_output

    def _told_to_hand_in(self, run: FrameworkRun) -> Callable[[Any], Any]:
        """The SDK lets what the model is shown be changed before each request: from the soft deadline on it is told so there."""
        own = self.config.call_model_input_filter

        async def change(data: Any) -> Any:
            shown = data.model_data
            if own is not None:
                filtered: Any = own(data)
                shown = await filtered if asyncio.iscoroutine(filtered) else filtered
            words = run.handing_in()
            return shown if words is None else replace(shown, input=[*shown.input, {"role": "user", "content": words}])

        return change


class _Watch(RunHooks[Any]):
    """What each request cost is drawn as soon as it has been answered; tools are told of as they are called."""

    def __init__(self, run: FrameworkRun) -> None:
        self._run = run
        self._asked = 0

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]) -> None:
        self._run.begins()
        self._asked = len(system_prompt or "") + sum(len(str(item)) for item in input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        usage = response.usage
        cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details is not None else 0
        model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", "")
        name = str(model or "")
        one = CompletedRequest(
            used=TokenUsage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=cached or 0),
            model=name if ":" in name or not name else f"openai:{name}",
            asked=self._asked,
            written=len(str(response.output)),
            total=context.usage.total_tokens,
        )
        self._run.answered(one)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._run.total(context.usage.total_tokens)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._run.step(f"It calls {tool.name}.")

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._run.step(f"{from_agent.name} hands over to {to_agent.name}.")


async def _listen(running: RunResultStreaming, run: FrameworkRun) -> None:
    async for event in running.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            run.stream(len(event.data.delta))
            run.hear(event.data.delta)


async def _ended(running: RunResultStreaming) -> None:
    """Its loop is a task of its own, which ends only when it is told to."""
    task = running.run_loop_task
    if task is None or task.done():
        return
    running.cancel(mode="immediate")
    await asyncio.wait([task], timeout=END_SECONDS)
