"""remit inside of LangChain and LangGraph, and graphs inside of remit: against the scripted model server."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from framework_stage import Endless, delegate, echo, present
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
from pydantic import BaseModel

from remit import Context, Limits, Misused, Remit, agent
from remit.agents.langgraph import _answered, langgraph_agent
from remit.core.errors import Stopped
from remit.core.events import EventKind
from remit.models.counting import Spent
from remit.testing.models import Call, Fail, Reply, Say, Script, ScriptedModels, Silence, valid_return
from remit.tool.langchain import delegate_tool


def model_at(models: ScriptedModels | Endless, **more: Any) -> ChatOpenAI:
    """Over plain HTTP: no list of authorities is loaded, which takes long."""
    sync, on_loop = DefaultHttpxClient(verify=False), DefaultAsyncHttpxClient(verify=False)
    address: Any = {"base_url": models.openai_url, "api_key": "none", "http_client": sync, "http_async_client": on_loop}
    return ChatOpenAI(model="scripted", max_retries=0, **address, **more)


class Played:
    """A scripted model, a project, and a graph whose only tool is delegate; under its name also an agent of remit's."""

    def __init__(self, script: Script, folder: Path, *, stream_usage: bool = True, output_type: Any = None, **declared: Any) -> None:
        self.models = ScriptedModels(script)
        self._folder, self._stream_usage, self._output, self._declared = folder, stream_usage, output_type, declared

    async def __aenter__(self) -> "Played":
        await self.models.__aenter__()
        self.model = model_at(self.models, stream_usage=self._stream_usage)
        self.remit = await Remit.open(self._folder, agents=[echo]).__aenter__()
        self.tool = delegate_tool(self.remit)
        self.graph = create_agent(self.model, tools=[self.tool], response_format=self._output)
        self.remit.register(langgraph_agent("guest", self.graph, description="A graph.", timeout=20, **self._declared))
        return self

    async def __aexit__(self, *gone: Any) -> None:
        await self.remit.close()
        await self.models.__aexit__(*gone)


def asked(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


# ---- the delegate tool in LangChain


async def test_a_graph_delegates_and_is_told_the_result_as_json(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="hi"), Say("Done.")], tmp_path) as played:
        state = await played.graph.ainvoke(asked("Say hi."))
        assert state["messages"][-1].text == "Done."
        (text,) = played.models.requests[1].results
        assert json.loads(text)["data"] == "echo hi"
        assert {"echo", "worker"} <= set(played.models.requests[0].tools[0].schema["properties"]["target"]["enum"])


async def test_the_tool_can_be_invoked_on_a_thread_and_not_on_the_loop_itself(tmp_path: Path) -> None:
    async with Played([], tmp_path) as played:
        given = {"target": "echo", "parameters": {"text": "hi"}}
        assert json.loads(await played.tool.ainvoke(given))["data"] == "echo hi"
        assert json.loads(await asyncio.to_thread(played.tool.invoke, given))["data"] == "echo hi"
        with pytest.raises(Misused, match="would never end"):
            played.tool.invoke(given)


async def test_a_graph_that_is_run_in_another_thread_delegates_on_our_loop(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="hi"), Say("Done.")], tmp_path) as played:
        state = await asyncio.to_thread(played.graph.invoke, asked("Say hi."))
        assert state["messages"][-1].text == "Done."
        on_its_own_loop = await asyncio.to_thread(
            lambda: asyncio.run(played.tool.ainvoke({"target": "echo", "parameters": {"text": "far"}}))
        )
        assert json.loads(on_its_own_loop)["data"] == "echo far"


async def test_faults_are_told_as_errors_and_an_agent_that_is_registered_appears(tmp_path: Path) -> None:
    """S5.1, S5.3."""

    @agent("late")
    async def late() -> str:
        return "better"

    @agent("registrar")
    async def registrar() -> None:
        played.remit.register(late)

    script = [delegate("eco", text="x"), Call("delegate", self=1, target="echo"), delegate("registrar"), delegate("late"), Say("Done.")]
    async with Played(script, tmp_path) as played:
        played.remit.register(registrar)
        state = await played.graph.ainvoke(asked("Go."))
        told = [message for message in state["messages"] if message.type == "tool"]
        assert [message.status for message in told] == ["error", "error", "success", "success"]
        assert "Did you mean echo?" in told[0].text
        assert "There is no argument 'self'" in told[1].text
        assert "late" in played.models.requests[3].tools[0].schema["properties"]["target"]["enum"]
        assert "late(" in str(played.models.requests[3].body["tools"])


async def test_twenty_calls_in_one_turn_run_at_once_and_their_results_come_in_call_order(tmp_path: Path) -> None:
    """S5.8."""
    calls = [delegate("echo", text=str(number), wait=0.1 - number / 250) for number in range(20)]
    async with Played([calls, Say("Done.")], tmp_path) as played:
        task = asyncio.create_task(played.graph.ainvoke(asked("All.")))
        await present.until(20)
        await task
        assert [json.loads(text)["data"] for text in played.models.requests[1].results] == [f"echo {number}" for number in range(20)]


async def test_a_cancelled_run_cancels_what_it_delegated(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="long", wait=60), Say("Never.")], tmp_path) as played:
        task = asyncio.create_task(played.graph.ainvoke(asked("Go.")))
        await present.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = await played.remit.history(agent="echo")
        ended = await played.remit.result(record.session_id, wait_seconds=5)
        assert ended is not None
        assert ended.stop_reason == "cancelled"


# ---- graphs as agents of remit's


async def test_a_graph_is_an_agent_of_remits(tmp_path: Path) -> None:
    """What it delegates is its child; its words are streamed, its tokens counted."""
    async with Played([[Say("I ask."), delegate("echo", text="hi")], Say("It said hi.").using(300, 30)], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Say hi.")
        assert (done.status, done.data) == ("completed", "It said hi.")
        root, child = await played.remit.tree(done.session_id)
        assert (child.agent, child.parent_id) == ("echo", root.session_id)
        events = await played.remit.events(done.session_id)
        assert "".join(event.body["chunk"]["text"] for event in events if event.kind is EventKind.DATA) == "I ask.It said hi."
        assert [event.body["message"] for event in events if event.kind is EventKind.PROGRESS] == ["It calls delegate."]
        assert [event.body["tokens"] for event in events if event.kind is EventKind.SPENT] == [120, 450]


class Verdict(BaseModel):
    """A judgement."""

    good: bool
    why: str


async def test_a_structured_response_is_the_data_of_the_return(tmp_path: Path) -> None:
    script = [Say('{"good": true, "why": "It is short."}')]
    async with Played(script, tmp_path) as played:
        graph = StateGraph(Structured)
        graph.add_node("judge", _judge)
        graph.add_edge(START, "judge")
        played.remit.register(langgraph_agent("judge", graph.compile(), timeout=20))
        assert (await played.remit.delegate("judge", task="Judge.")).data == {"good": True, "why": "Judge."}


class Structured(MessagesState):
    structured_response: Verdict


def _judge(state: Structured) -> Any:
    return {"structured_response": Verdict(good=True, why=str(state["messages"][-1].text))}


async def test_beside_a_structured_response_of_openais_the_tool_is_strict(tmp_path: Path) -> None:
    """LangChain binds every tool strictly there: one that is not is refused by the vendor."""
    written = Call("delegate", target="echo", operation=None, parameters='{"text": "hi"}', timeout=None, priority=None)
    async with Played([written, Say('{"good": true, "why": "It is short."}')], tmp_path) as played:
        tool = delegate_tool(played.remit, strict=True)
        graph = create_agent(played.model, tools=[tool], response_format=ProviderStrategy(Verdict))
        state = await graph.ainvoke(asked("Judge."))
        assert state["structured_response"] == Verdict(good=True, why="It is short.")
        offered = played.models.requests[0].body["tools"][0]["function"]
        assert (offered["strict"], offered["parameters"]["required"]) == (True, list(offered["parameters"]["properties"]))
        assert json.loads(played.models.requests[1].results[0])["data"] == "echo hi"


async def test_a_model_that_does_not_answer_is_left_at_the_deadline(tmp_path: Path) -> None:
    """S2.5."""
    async with Played([Silence()], tmp_path) as played:
        late = await played.remit.delegate("guest", task="Wait.", timeout=0.6)
        assert (late.status, late.errors[0].code) == ("partial", "TIMEOUT")
        assert late.metadata.duration_seconds < 3


async def test_cancelling_it_cancels_the_whole_tree(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="deep", wait=60), Say("Never.")], tmp_path) as played:
        handle = await played.remit.start("guest", task="Go.")
        await present.until(1)
        await handle.cancel("enough")
        assert [record.state for record in await played.remit.tree(handle.session_id)] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("stream_usage", [True, False])
async def test_a_budget_of_tokens_stops_it_in_the_middle_of_its_run(tmp_path: Path, stream_usage: bool) -> None:
    """S8: it would go on for ever. Where its model does not say what it used, that is estimated."""
    async with Played(lambda request: delegate("echo", text=str(request.turn)), tmp_path, stream_usage=stream_usage) as played:
        done = await played.remit.delegate("guest", task="Go on.", budget=Limits(tokens=300))
        assert (done.status, done.stop_reason, done.errors[0].code) == ("partial", "budget", "BUDGET_EXCEEDED")
        assert len(played.models.requests) < 10


async def test_a_reply_that_never_ends_passes_a_budget_of_tokens_too(tmp_path: Path) -> None:
    """S8: it is told what it used when it is whole."""
    async with Endless() as models:
        talker = create_agent(model_at(models))
        async with Remit.open(tmp_path, agents=[langgraph_agent("talker", talker, timeout=20)]) as remit:
            done = await remit.delegate("talker", task="Talk.", budget=Limits(tokens=100))
            assert (done.status, done.stop_reason) == ("partial", "budget")
            assert done.metadata.duration_seconds < 10


async def test_a_sync_node_that_was_left_behind_asks_no_more(tmp_path: Path) -> None:
    """S2.5: its thread cannot be ended."""
    began, ended = threading.Event(), threading.Event()
    raised: list[Exception] = []

    def work(state: MessagesState) -> Any:
        try:
            while True:
                played.model.invoke("Again.")
                began.set()
        except Exception as error:
            raised.append(error)
            ended.set()
            raise

    async with Played(lambda request: Say("Again."), tmp_path) as played:
        graph = StateGraph(MessagesState)
        graph.add_node("work", work)
        graph.add_edge(START, "work")
        played.remit.register(langgraph_agent("endless", graph.compile(), timeout=20))
        handle = await played.remit.start("endless", task="Go.")
        assert await asyncio.to_thread(began.wait, 20)
        await handle.cancel("enough")
        assert (await handle.result()).stop_reason == "cancelled"
        assert await asyncio.to_thread(ended.wait, 20)
        assert isinstance(raised[0], Stopped)


async def test_several_answers_to_one_question_are_counted_once() -> None:
    """Each of them is told what all cost."""
    used: Any = {"input_tokens": 10, "output_tokens": 6, "total_tokens": 16, "input_token_details": {"cache_read": 4}}
    both = [ChatGeneration(message=AIMessage(text, usage_metadata=used)) for text in ("One.", "Two.")]
    assert _answered(both).used == Spent(input_tokens=10, output_tokens=6, cached_tokens=4)


async def test_an_agent_that_delegates_to_itself_is_refused_and_told_so(tmp_path: Path) -> None:
    """S1.4."""
    async with Played([delegate("guest", task="You do it."), Say("Then I do it.")], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Do it.")
        assert done.data == "Then I do it."
        assert "CYCLE_DETECTED" in played.models.requests[1].results[0]


async def test_too_many_steps_give_a_partial_return(tmp_path: Path) -> None:
    script: Script = lambda request: [Say("So far. "), delegate("echo", text="again")]  # noqa: E731
    async with Played(script, tmp_path, config={"recursion_limit": 5}) as played:
        done = await played.remit.delegate("guest", task="Go on.")
        assert done.status == "partial"
        assert str(done.data["text"]).startswith("So far.")
        assert "Recursion limit of 5" in done.errors[0].message


async def test_a_provider_that_fails_is_told_in_words(tmp_path: Path) -> None:
    async with Played([Fail(401)], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Go.")
        assert (done.status, done.errors[0].code) == ("failed", "AGENT_UNAVAILABLE")
        assert "invalid x-api-key" in done.errors[0].message


async def test_asked_for_a_return_it_is_told_how_and_repaired_once_in_the_same_conversation(tmp_path: Path) -> None:
    """S3.7, S3.8."""
    script = [Say("All is well."), Reply(lambda request: Say(valid_return(request, data={"n": 1})))]
    async with Played(script, tmp_path, answers="return") as played:
        done = await played.remit.delegate("guest", task="Look.")
        assert (done.status, done.data) == ("completed", {"n": 1})
        second = played.models.requests[1]
        assert [message.text for message in second.messages if message.role == "assistant"] == ["All is well."]
        assert "could not be accepted" in second.asked


async def test_sync_nodes_on_threads_are_counted_and_what_they_delegate_is_a_child(tmp_path: Path) -> None:
    """Callbacks come from another thread there; the context travels with it."""
    async with Played([Say("Half of it.").using(40, 2)], tmp_path) as played:

        def work(state: MessagesState) -> Any:
            said = played.model.invoke("Say half.")
            result = json.loads(played.tool.invoke({"target": "echo", "parameters": {"text": "deep"}}))
            return {"messages": [AIMessage(f"{said.text} {result['data']}")]}

        graph = StateGraph(MessagesState)
        graph.add_node("work", work)
        graph.add_edge(START, "work")
        graph.add_edge("work", END)
        played.remit.register(langgraph_agent("threads", graph.compile(), timeout=20))
        done = await played.remit.delegate("threads", task="Go.")
        assert done.data == "Half of it. echo deep"
        assert [record.agent for record in await played.remit.tree(done.session_id)] == ["threads", "echo"]
        events = await played.remit.events(done.session_id)
        assert [event.body["tokens"] for event in events if event.kind is EventKind.SPENT] == [42]


async def test_a_graph_that_asks_a_person_is_partial_and_says_what_it_asks(tmp_path: Path) -> None:
    async with Played([], tmp_path) as played:

        def ask(state: MessagesState) -> Any:
            return {"messages": [AIMessage(str(interrupt("Shall I?")))]}

        graph = StateGraph(MessagesState)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        played.remit.register(langgraph_agent("asker", graph.compile(checkpointer=InMemorySaver()), timeout=20))
        done = await played.remit.delegate("asker", task="Go.")
        assert done.status == "partial"
        assert "Shall I?" in done.errors[0].message


async def test_anything_that_langchain_runs_will_do_with_its_own_input_and_output(tmp_path: Path) -> None:
    async with Played([], tmp_path) as played:

        def input_of(ctx: Context, prompt: str) -> Any:
            return {"name": ctx.parameters["name"], "prompt": prompt}

        def output_of(state: Any) -> Any:
            return {"greeting": state}

        greet = RunnableLambda(lambda given: f"Hello {given['name']}")
        played.remit.register(langgraph_agent("greet", greet, input_of=input_of, output_of=output_of))
        assert (await played.remit.delegate("greet", task="Greet.", name="Ada")).data == {"greeting": "Hello Ada"}
        with pytest.raises(Misused, match="nothing that LangGraph runs"):
            langgraph_agent("wrong", echo)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    yield
    assert present.names == set()
