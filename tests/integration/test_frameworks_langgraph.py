"""The delegate tool in LangChain and LangGraph, against the scripted model server."""

import asyncio
import json
from typing import Any

import pytest
from framework_harness import Harness, harness_fixtures
from framework_suite import Check, every_check
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from remit import Misused
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


def one_node(work: Any, **compiled: Any) -> Any:
    """A graph of one node."""
    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph.compile(**compiled)


harness, no_agent_left = harness_fixtures(GraphHarness)


@every_check()
async def test_langgraph_passes_the_framework_suite(check: Check, harness: GraphHarness) -> None:
    await check(harness)


async def test_tool_can_be_invoked_on_a_thread_but_not_on_the_event_loop(harness: GraphHarness) -> None:
    tool, arguments = harness.tool(), {"target": "echo", "parameters": {"text": "hi"}}
    assert json.loads(await tool.ainvoke(arguments))["data"] == "echo hi"
    assert json.loads(await asyncio.to_thread(tool.invoke, arguments))["data"] == "echo hi"
    with pytest.raises(Misused, match="would never end"):
        tool.invoke(arguments)


async def test_delegation_by_a_sync_node_is_a_child(harness: GraphHarness) -> None:
    """The context is carried across the thread."""
    tool = harness.tool()

    def work(state: MessagesState) -> Any:
        result = json.loads(tool.invoke({"target": "echo", "parameters": {"text": "deep"}}))
        return {"messages": [AIMessage(result["data"])]}

    harness.register("threads", one_node(work))
    done = await harness.remit.delegate("threads", task="Go.")
    assert done.data == "echo deep"
    assert [record.agent for record in await harness.remit.tree(done.session_id)] == ["threads", "echo"]
