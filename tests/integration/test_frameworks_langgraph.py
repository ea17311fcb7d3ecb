"""The delegate tool in LangChain and LangGraph, against the scripted model server."""

from typing import Any

import pytest
from framework_harness import Harness, harness_fixtures
from framework_suite import Check, every_check
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from remit import langchain_tool as delegate_tool

pytestmark = pytest.mark.asyncio(loop_scope="module")


class GraphHarness(Harness):
    package = "langgraph"
    delegate_tool = staticmethod(delegate_tool)
    own_tool = staticmethod(langchain_tool)

    def agent(self, *tools: Any, at: Any = None, output: Any = None) -> Any:
        return create_agent(self.model(at), tools=list(tools), response_format=ToolStrategy(output) if output else None)

    def model(self, at: Any = None, **more: Any) -> ChatOpenAI:
        """A client over plain HTTP."""
        sync, on_loop = DefaultHttpxClient(verify=False), DefaultAsyncHttpxClient(verify=False)
        address: Any = {"base_url": (at or self.models).openai_url, "api_key": "none", "http_client": sync, "http_async_client": on_loop}
        return ChatOpenAI(model="scripted", max_retries=0, **address, **{"stream_usage": True, **more})

    async def run(self, agent: Any, text: str) -> str:
        return str((await agent.ainvoke(request(text)))["messages"][-1].text)


def request(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


harness, no_agent_left = harness_fixtures(GraphHarness)


@every_check()
async def test_langgraph_passes_the_framework_suite(check: Check, harness: GraphHarness) -> None:
    await check(harness)
