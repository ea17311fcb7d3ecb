"""The delegate tool in pydantic-ai, against the scripted model server."""

import json
from typing import Any

import pytest
from framework_harness import Harness, delegate, harness_fixtures
from framework_suite import Check, every_check
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit import agent
from remit import pydantic_ai_toolset as delegate_toolset
from remit.testing import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")


class PydanticHarness(Harness):
    package = "pydantic_ai"
    delegate_tool = staticmethod(delegate_toolset)
    own_tool = staticmethod(Tool)

    def agent(self, *tools: Any, at: Any = None, output: Any = None) -> Agent[Any, Any]:
        model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=self.client(at)))
        own = [tool for tool in tools if isinstance(tool, Tool)]
        return Agent(model, name="guest", output_type=output or str, tools=own, toolsets=[tool for tool in tools if tool not in own])

    async def run(self, agent: Any, text: str) -> str:
        return str((await agent.run(text)).output)


harness, no_agent_left = harness_fixtures(PydanticHarness)


@every_check()
async def test_pydantic_ai_passes_the_framework_suite(check: Check, harness: PydanticHarness) -> None:
    await check(harness)


async def test_tool_result_keeps_the_return_and_marks_failures(harness: PydanticHarness) -> None:
    @agent("torn")
    async def torn() -> None:
        raise RuntimeError("the sky fell")

    harness.remit.register(torn)
    requests = harness.play([[delegate("echo", text="hi"), delegate("torn")], Say("Done.")])
    guest = harness.agent()
    guest.toolset(lambda ctx: harness.tool())  # a toolset per run works too
    done = await guest.run("Go.")
    good, bad = (part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart))
    assert good.metadata["taskId"] == json.loads(requests[1].results[0])["taskId"]
    assert bad.outcome == "failed"
    assert "the sky fell" in str(bad.content)
