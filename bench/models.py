"""models: cost of `delegate` for a caller that is a pydantic-ai agent, compared with a tool of its own that returns at once.

Both use the same agent with an in-process model that only calls its tool, one call per turn: once with a tool that does nothing, once
with the delegate tool and an agent that does nothing, durable like any delegation. The runs alternate; a turn is timed from one model
request to the next. The figure is the median over all rounds of the difference between the two medians of a round: both run in the
same minute, so a machine that slows down meanwhile does not count as cost.
"""

import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from bench.figures import Figure, median, microseconds, percentile
from bench.sizes import Sizes
from remit import DelegateTool, Remit, agent

TARGET_SECONDS = 0.001
_WARM = 3
_CALL = {"target": "noop", "parameters": {}}


@agent("noop")
async def noop() -> None:
    return None


async def delegate(target: str, parameters: dict[str, Any]) -> str:
    """Returns at once: the floor."""
    return '{"success":true}'


def _through(tool: DelegateTool) -> Callable[[str, dict[str, Any]], Awaitable[str]]:
    async def delegate(target: str, parameters: dict[str, Any]) -> str:
        """The same by the delegate tool."""
        return (await tool.call({"target": target, "parameters": parameters})).to_json()

    return delegate


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=[noop]) as remit:
            callers = {
                "floor": Caller(FunctionToolset([delegate]), sizes.model_calls),
                "remit": Caller(FunctionToolset([_through(DelegateTool(remit))]), sizes.model_calls),
            }
            taken = await _in_turns(callers, sizes)
    added = median([one - least for one, least in zip(taken["remit"], taken["floor"], strict=True)])
    floor, ours = (microseconds(median(taken[name])) for name in ("floor", "remit"))
    return [
        Figure(section="models", what="floor: a turn with a tool of pydantic-ai's that returns at once, p50", measured=floor),
        Figure(section="models", what="remit, a turn with delegate to an agent that does nothing, p50", measured=ours),
        Figure(
            section="models",
            what="added by remit to a call, p50",
            measured=microseconds(added),
            target=f"≤ {TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= TARGET_SECONDS,
        ),
    ]


async def _in_turns(callers: dict[str, "Caller"], sizes: Sizes) -> dict[str, list[float]]:
    """The median turn of each, per round."""
    taken: dict[str, list[float]] = {name: [] for name in callers}
    for caller in callers.values():
        for _ in range(_WARM):
            await caller.run()
    for _ in range(sizes.rounds):
        seconds: dict[str, list[float]] = {name: [] for name in callers}
        for _ in range(sizes.model_runs):
            for name, caller in callers.items():
                seconds[name] += await caller.run()
        for name in callers:
            taken[name].append(percentile(seconds[name], 0.5))
    return taken


class Caller:
    """An agent whose model calls the tool a given number of times, one call per turn, and then ends."""

    def __init__(self, toolset: AbstractToolset[None], calls: int) -> None:
        self._calls = calls
        self._asked: list[float] = []
        self._agent: Agent[None, str] = Agent(FunctionModel(self._answer), toolsets=[toolset])

    async def run(self) -> list[float]:
        """Seconds from one model request to the next: one turn with one call."""
        self._asked.clear()
        done = await self._agent.run("Go.", usage_limits=UsageLimits(request_limit=None))
        results = [part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
        assert len(results) == self._calls
        assert all('"success":true' in str(part.content) for part in results)  # a refusal would look fast
        return [after - before for before, after in pairwise(self._asked)]

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self._asked.append(time.perf_counter())
        return ModelResponse(parts=[ToolCallPart("delegate", _CALL) if len(self._asked) <= self._calls else TextPart("Done.")])
