"""The delegate tool in the OpenAI Agents SDK, against the scripted model server."""

import json
from pathlib import Path
from typing import Any

import pytest
from agents.strict_schema import ensure_strict_json_schema
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
from remit import Toolbox
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


async def test_schema_is_already_strict_and_strict_calls_are_read(harness: ChatHarness) -> None:
    """Checked by the rules of the SDK; optional values are null, parameters are text."""
    toolbox = Toolbox(harness.remit, strict=True)
    (tool,) = toolbox.for_openai_responses()
    assert tool["strict"] is True
    assert ensure_strict_json_schema(json.loads(json.dumps(tool["parameters"]))) == tool["parameters"]
    assert set(tool["parameters"]["required"]) == set(tool["parameters"]["properties"])
    written = {"target": "echo", "operation": None, "parameters": '{"text": "hi"}', "timeout": None, "priority": None}
    assert json.loads(await toolbox.call("delegate", json.dumps(written)))["data"] == "echo hi"
    for text in ("not JSON", "[1]", '"{}"', "[" * 100_000):
        assert json.loads(await toolbox.call("delegate", {**written, "parameters": text}))["success"] is False
    assert (toolbox.for_openai_chat()[0]["function"]["strict"], toolbox.for_anthropic()[0]["strict"]) == (True, True)
