"""remit inside of LangChain and LangGraph, and graphs inside of remit: against the scripted model server."""

import asyncio
import json
import threading
from typing import Any, ClassVar

import pytest
from framework_stage import Stage, Verdict, delegate, echo, on_stage
from framework_suite import Check, every_check
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from remit import Context, Limits, Misused
from remit.agents.langgraph import _answered, langgraph_agent
from remit.core.errors import Stopped
from remit.core.events import EventKind
from remit.models.pricing import TokenUsage
from remit.runtime.tool.langchain import delegate_tool
from remit.testing import Call, Say

pytestmark = pytest.mark.asyncio(loop_scope="module")


class GraphStage(Stage):
    package = "langgraph"
    two_turns: ClassVar = {"config": {"recursion_limit": 4}}
    too_many = "Recursion limit of 4"
    verdict = Call("Verdict", good=True, why="It is short.")
    delegate_tool = staticmethod(delegate_tool)
    own_tool = staticmethod(langchain_tool)
    wrapped = staticmethod(langgraph_agent)

    def agent(self, *tools: Any, at: Any = None, output: Any = None) -> Any:
        return create_agent(self.model(at), tools=list(tools), response_format=ToolStrategy(output) if output else None)

    def model(self, at: Any = None, **more: Any) -> ChatOpenAI:
        """Over plain HTTP, as `client`."""
        sync, on_loop = DefaultHttpxClient(verify=False), DefaultAsyncHttpxClient(verify=False)
        address: Any = {"base_url": (at or self.models).openai_url, "api_key": "none", "http_client": sync, "http_async_client": on_loop}
        return ChatOpenAI(model="scripted", max_retries=0, **address, **{"stream_usage": True, **more})

    async def run(self, agent: Any, text: str) -> str:
        return str((await agent.ainvoke(asked(text)))["messages"][-1].text)


def asked(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def one_node(work: Any, **compiled: Any) -> Any:
    """A graph of one step."""
    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph.compile(**compiled)


stage, nothing_is_left = on_stage(GraphStage)


@every_check()
async def test_langgraph_keeps_the_promise(check: Check, stage: GraphStage) -> None:
    await check(stage)


async def test_faults_are_marked_as_errors(stage: GraphStage) -> None:
    stage.play([delegate("eco", text="x"), Call("delegate", self=1, target="echo"), delegate("echo", text="right"), Say("Done.")])
    state = await stage.guest.ainvoke(asked("Go."))
    assert [message.status for message in state["messages"] if message.type == "tool"] == ["error", "error", "success"]


async def test_the_tool_can_be_invoked_on_a_thread_and_not_on_the_loop_itself(stage: GraphStage) -> None:
    tool, given = stage.tool(), {"target": "echo", "parameters": {"text": "hi"}}
    assert json.loads(await tool.ainvoke(given))["data"] == "echo hi"
    assert json.loads(await asyncio.to_thread(tool.invoke, given))["data"] == "echo hi"
    with pytest.raises(Misused, match="would never end"):
        tool.invoke(given)


async def test_a_graph_that_is_run_in_another_thread_delegates_on_our_loop(stage: GraphStage) -> None:
    stage.play([delegate("echo", text="hi"), Say("Done.")])
    state = await asyncio.to_thread(stage.guest.invoke, asked("Say hi."))
    assert state["messages"][-1].text == "Done."
    tool, given = stage.tool(), {"target": "echo", "parameters": {"text": "far"}}
    on_its_own_loop = await asyncio.to_thread(lambda: asyncio.run(tool.ainvoke(given)))
    assert json.loads(on_its_own_loop)["data"] == "echo far"


class Structured(MessagesState):
    structured_response: Verdict


async def test_a_structured_response_of_any_graph_is_the_data_of_the_return(stage: GraphStage) -> None:
    def judge(state: Structured) -> Any:
        return {"structured_response": Verdict(good=True, why=str(state["messages"][-1].text))}

    graph = StateGraph(Structured)
    graph.add_node("judge", judge)
    graph.add_edge(START, "judge")
    stage.admit("arbiter", graph.compile())
    assert (await stage.remit.delegate("arbiter", task="Judge.")).data == {"good": True, "why": "Judge."}


async def test_beside_a_structured_response_of_openais_the_tool_is_strict(stage: GraphStage) -> None:
    """LangChain binds every tool strictly there: one that is not is refused by the vendor."""
    written = Call("delegate", target="echo", operation=None, parameters='{"text": "hi"}', timeout=None, priority=None)
    requests = stage.play([written, Say('{"good": true, "why": "It is short."}')])
    graph = create_agent(stage.model(), tools=[stage.tool(strict=True)], response_format=ProviderStrategy(Verdict))
    state = await graph.ainvoke(asked("Judge."))
    assert state["structured_response"] == Verdict(good=True, why="It is short.")
    offered = requests[0].body["tools"][0]["function"]
    assert (offered["strict"], offered["parameters"]["required"]) == (True, list(offered["parameters"]["properties"]))
    assert json.loads(requests[1].results[0])["data"] == "echo hi"


async def test_where_its_model_does_not_say_what_it_used_that_is_estimated(stage: GraphStage) -> None:
    """A budget stops it all the same."""
    requests = stage.play(lambda request: delegate("echo", text=str(request.turn)))
    stage.admit("silent", create_agent(stage.model(stream_usage=False), tools=[stage.tool()]))
    done = await stage.remit.delegate("silent", task="Go on.", budget=Limits(tokens=300))
    assert (done.status, done.stop_reason, done.errors[0].code) == ("partial", "budget", "BUDGET_EXCEEDED")
    assert len(requests) < 10


async def test_a_sync_node_that_was_left_behind_asks_no_more(stage: GraphStage) -> None:
    """Its thread cannot be ended."""
    began, ended = threading.Event(), threading.Event()
    raised: list[Exception] = []
    model = stage.model()

    def work(state: MessagesState) -> Any:
        try:
            while True:
                model.invoke("Again.")
                began.set()
        except Exception as error:
            raised.append(error)
            ended.set()
            raise

    stage.play(lambda request: Say("Again."))
    stage.admit("endless", one_node(work))
    handle = await stage.remit.start("endless", task="Go.")
    assert await asyncio.to_thread(began.wait, 20)
    await handle.cancel("enough")
    assert (await handle.result()).stop_reason == "cancelled"
    assert await asyncio.to_thread(ended.wait, 20)
    assert isinstance(raised[0], Stopped)


async def test_several_answers_to_one_question_are_counted_once() -> None:
    """Each of them is told what all cost."""
    used: Any = {"input_tokens": 10, "output_tokens": 6, "total_tokens": 16, "input_token_details": {"cache_read": 4}}
    both = [ChatGeneration(message=AIMessage(text, usage_metadata=used)) for text in ("One.", "Two.")]
    assert _answered(both, 0).used == TokenUsage(input_tokens=10, output_tokens=6, cached_tokens=4)


async def test_sync_nodes_on_threads_are_counted_and_what_they_delegate_is_a_child(stage: GraphStage) -> None:
    """Callbacks come from another thread there; the context travels with it."""
    model, tool = stage.model(), stage.tool()

    def work(state: MessagesState) -> Any:
        said = model.invoke("Say half.")
        result = json.loads(tool.invoke({"target": "echo", "parameters": {"text": "deep"}}))
        return {"messages": [AIMessage(f"{said.text} {result['data']}")]}

    stage.play([Say("Half of it.").using(40, 2)])
    stage.admit("threads", one_node(work))
    done = await stage.remit.delegate("threads", task="Go.")
    assert done.data == "Half of it. echo deep"
    assert [record.agent for record in await stage.remit.tree(done.session_id)] == ["threads", "echo"]
    assert await stage.heard(done, EventKind.SPENT) == [42]


async def test_a_graph_that_asks_a_person_is_partial_and_says_what_it_asks(stage: GraphStage) -> None:
    def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage(str(interrupt("Shall I?")))]}

    stage.admit("asker", one_node(ask, checkpointer=InMemorySaver()))
    done = await stage.remit.delegate("asker", task="Go.")
    assert done.status == "partial"
    assert "Shall I?" in done.errors[0].message


async def test_anything_that_langchain_runs_will_do_with_its_own_input_and_output(stage: GraphStage) -> None:
    def input_of(ctx: Context, prompt: str) -> Any:
        return {"name": ctx.parameters["name"], "prompt": prompt}

    def output_of(state: Any) -> Any:
        return {"greeting": state}

    greet: RunnableLambda[Any, str] = RunnableLambda(lambda given: f"Hello {given['name']}")
    stage.admit("greet", greet, input_of=input_of, output_of=output_of)
    assert (await stage.remit.delegate("greet", task="Greet.", name="Ada")).data == {"greeting": "Hello Ada"}
    with pytest.raises(Misused, match="nothing that LangGraph runs"):
        langgraph_agent("wrong", echo)  # type: ignore[arg-type]
