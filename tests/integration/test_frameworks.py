"""The delegate tool in pydantic-ai, the OpenAI Agents SDK and LangGraph, against the scripted model server."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from framework_harness import Harness, running
from framework_suite import CHECKS, Check
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_own_tool
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agents import Agent as OpenAIAgent
from agents import ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool
from remit import langchain_tool, openai_agents_tool, pydantic_ai_toolset

pytestmark = pytest.mark.asyncio(loop_scope="module")


class PydanticHarness(Harness):
    package = "pydantic_ai"
    delegate_tool = staticmethod(pydantic_ai_toolset)
    own_tool = staticmethod(Tool)

    def agent(self, *tools: Any) -> Agent[Any, Any]:
        model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=self.client()))
        own = [tool for tool in tools if isinstance(tool, Tool)]
        return Agent(model, name="guest", tools=own, toolsets=[tool for tool in tools if tool not in own])

    async def run(self, agent: Any, text: str) -> str:
        return str((await agent.run(text)).output)


class ChatHarness(Harness):
    """The Agents SDK over chat completions."""

    package = "agents"
    delegate_tool = staticmethod(openai_agents_tool)
    own_tool = staticmethod(function_tool)
    kind: type[Any] = OpenAIChatCompletionsModel

    def agent(self, *tools: Any) -> OpenAIAgent[Any]:
        settings = ModelSettings(include_usage=True)
        return OpenAIAgent(name="Guest", model=self.kind("scripted", self.client()), model_settings=settings, tools=list(tools))

    async def run(self, agent: Any, text: str) -> str:
        untraced = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")
        return str((await Runner.run(agent, text, run_config=untraced)).final_output)


class ResponsesHarness(ChatHarness):
    kind = OpenAIResponsesModel


class GraphHarness(Harness):
    package = "langgraph"
    delegate_tool = staticmethod(langchain_tool)
    own_tool = staticmethod(langchain_own_tool)

    def agent(self, *tools: Any) -> Any:
        plain: Any = {"http_client": DefaultHttpxClient(verify=False), "http_async_client": DefaultAsyncHttpxClient(verify=False)}
        address: Any = {"base_url": self.models.openai_url, "api_key": "none", "stream_usage": True}
        return create_agent(ChatOpenAI(model="scripted", max_retries=0, **address, **plain), tools=list(tools))

    async def run(self, agent: Any, text: str) -> str:
        return str((await agent.ainvoke({"messages": [HumanMessage(text)]}))["messages"][-1].text)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=(PydanticHarness, ChatHarness, ResponsesHarness, GraphHarness))
async def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    """Shared by all checks of a framework."""
    async with request.param(tmp_path_factory.mktemp("project")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_agent_left() -> Iterator[None]:
    yield
    assert running.names == set()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_framework_passes_the_suite(check: Check, harness: Harness) -> None:
    await check(harness)
