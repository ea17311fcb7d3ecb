"""The delegate tool in the OpenAI Agents SDK, against the scripted model server."""

from pathlib import Path
from typing import Any

import pytest
from framework_harness import Harness, harness_fixtures
from framework_suite import Check, agent_delegates_and_gets_the_result_as_json, delegation_inside_an_agent_is_a_child, every_check

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from remit import openai_agents_tool as delegate_tool

pytestmark = pytest.mark.asyncio(loop_scope="module")
UNTRACED = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")


class ChatHarness(Harness):
    """Over chat completions."""

    package = "agents"
    delegate_tool = staticmethod(delegate_tool)
    own_tool = staticmethod(function_tool)
    kind: type[Any] = OpenAIChatCompletionsModel

    def agent(self, *tools: Any, at: Any = None, output: Any = None) -> Agent[Any]:
        model, settings = self.kind("scripted", self.client(at)), ModelSettings(include_usage=True)
        return Agent(name="Guest", model=model, output_type=output, model_settings=settings, tools=list(tools))

    async def run(self, agent: Any, text: str) -> str:
        return str((await Runner.run(agent, text, run_config=UNTRACED)).final_output)


class ResponsesHarness(ChatHarness):
    kind = OpenAIResponsesModel


harness, no_agent_left = harness_fixtures(ChatHarness)


@every_check()
async def test_openai_agents_sdk_passes_the_framework_suite(check: Check, harness: ChatHarness) -> None:
    await check(harness)


@every_check((agent_delegates_and_gets_the_result_as_json, delegation_inside_an_agent_is_a_child))
async def test_openai_agents_sdk_passes_the_framework_suite_over_responses(check: Check, tmp_path: Path) -> None:
    async with ResponsesHarness(tmp_path) as harness:
        await check(harness)
