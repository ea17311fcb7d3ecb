"""remit inside of the OpenAI Agents SDK, and its agents inside of remit: against the scripted model server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents.strict_schema import ensure_strict_json_schema
from agents.tracing import add_trace_processor
from agents.tracing.processor_interface import TracingProcessor
from framework_stage import Endless, delegate, echo, present
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    function_tool,
)
from remit import Context, Limits, Remit, agent
from remit.agents.openai_agents import openai_agents_agent
from remit.core.events import EventKind
from remit.testing.models import Api, Call, Fail, ModelRequest, Reply, Say, Script, ScriptedModels, Silence, Stray, Turn, valid_return
from remit.tool.openai_agents import delegate_tool
from remit.tool.plain import Toolbox

UNTRACED = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")


def client_of(models: ScriptedModels | Endless) -> AsyncOpenAI:
    """Over plain HTTP: no list of authorities is loaded, which takes long."""
    return AsyncOpenAI(base_url=models.openai_url, api_key="none", max_retries=0, http_client=DefaultAsyncHttpxClient(verify=False))


class Played:
    """A scripted model, a project, and an agent of the SDK whose only tool is delegate; under its name also an agent of remit's."""

    def __init__(self, script: Script, folder: Path, *, api: Api = Api.CHAT, output_type: Any = None, **declared: Any) -> None:
        self.models = ScriptedModels(script)
        self._folder, self._api, self._output, self._declared = folder, api, output_type, declared

    async def __aenter__(self) -> "Played":
        await self.models.__aenter__()
        self._client = client_of(self.models)
        kind = OpenAIResponsesModel if self._api is Api.RESPONSES else OpenAIChatCompletionsModel
        settings = ModelSettings(include_usage=True)
        model = kind("scripted", self._client)
        self.agent: Agent[Any] = Agent(name="Guest", model=model, output_type=self._output, model_settings=settings)
        guest = openai_agents_agent("guest", self.agent, timeout=20, **self._declared)
        self.remit = await Remit.open(self._folder, agents=[echo, guest]).__aenter__()
        self.agent.tools.append(delegate_tool(self.remit))
        return self

    async def __aexit__(self, *gone: Any) -> None:
        await self.remit.close()
        await self._client.close()
        await self.models.__aexit__(*gone)


# ---- the delegate tool in the SDK


@pytest.mark.parametrize("api", [Api.CHAT, Api.RESPONSES])
async def test_an_agent_of_the_sdk_delegates_and_is_told_the_result_as_json(tmp_path: Path, api: Api) -> None:
    async with Played([delegate("echo", text="hi"), Say("Done.")], tmp_path, api=api) as played:
        assert (await Runner.run(played.agent, "Say hi.", run_config=UNTRACED)).final_output == "Done."
        (text,) = played.models.requests[1].results
        assert json.loads(text)["data"] == "echo hi"
        assert {"echo", "worker"} <= set(played.models.requests[0].tools[0].schema["properties"]["target"]["enum"])


async def test_faults_are_told_and_an_agent_that_is_registered_appears(tmp_path: Path) -> None:
    """S5.1, S5.3."""

    @agent("late")
    async def late() -> str:
        return "better"

    @agent("registrar")
    async def registrar() -> None:
        played.remit.register(late)

    script = [delegate("eco", text="x"), delegate("echo"), delegate("registrar"), delegate("late"), Say("Done.")]
    async with Played(script, tmp_path) as played:
        played.remit.register(registrar)
        await Runner.run(played.agent, "Go.", run_config=UNTRACED)
        told = [request.results[-1] for request in played.models.requests[1:]]
        assert "Did you mean echo?" in told[0]
        assert "it is required" in told[1]
        assert json.loads(told[3])["data"] == "better"
        assert "late" in played.models.requests[3].tools[0].schema["properties"]["target"]["enum"]
        assert "late(" in str(played.models.requests[3].body["tools"])


async def test_twenty_calls_in_one_turn_run_at_once_and_their_results_come_in_call_order(tmp_path: Path) -> None:
    """S5.8."""
    calls = [delegate("echo", text=str(number), wait=0.1 - number / 250) for number in range(20)]
    async with Played([calls, Say("Done.")], tmp_path) as played:
        task = asyncio.create_task(Runner.run(played.agent, "All.", run_config=UNTRACED))
        await present.until(20)
        await task
        assert [json.loads(text)["data"] for text in played.models.requests[1].results] == [f"echo {number}" for number in range(20)]


async def test_a_cancelled_run_cancels_what_it_delegated(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="long", wait=60), Say("Never.")], tmp_path) as played:
        task = asyncio.create_task(Runner.run(played.agent, "Go.", run_config=UNTRACED))
        await present.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = await played.remit.history(agent="echo")
        ended = await played.remit.result(record.session_id, wait_seconds=5)
        assert ended is not None
        assert ended.stop_reason == "cancelled"


async def test_a_strict_schema_leaves_nothing_to_be_made_strict_and_its_calls_are_read(tmp_path: Path) -> None:
    """By the rules of the SDK that enforces them; what may be left out is null, parameters are text."""
    async with Remit.open(tmp_path, agents=[echo]) as remit:
        toolbox = Toolbox(remit, strict=True)
        (tool,) = toolbox.for_openai_responses()
        assert tool["strict"] is True
        assert ensure_strict_json_schema(json.loads(json.dumps(tool["parameters"]))) == tool["parameters"]
        assert set(tool["parameters"]["required"]) == set(tool["parameters"]["properties"])
        written = {"target": "echo", "operation": None, "parameters": '{"text": "hi"}', "timeout": None, "priority": None}
        assert json.loads(await toolbox.call("delegate", json.dumps(written)))["data"] == "echo hi"
        for text in ("not JSON", "[1]", '"{}"', "[" * 100_000):
            assert json.loads(await toolbox.call("delegate", {**written, "parameters": text}))["success"] is False
        assert (toolbox.for_openai_chat()[0]["function"]["strict"], toolbox.for_anthropic()[0]["strict"]) == (True, True)


# ---- agents of the SDK as agents of remit's


@pytest.mark.parametrize("api", [Api.CHAT, Api.RESPONSES])
async def test_an_agent_of_the_sdk_is_an_agent_of_remits(tmp_path: Path, api: Api) -> None:
    """What it delegates is its child; its words are streamed, its tokens counted."""
    script = [[Say("I ask."), delegate("echo", text="hi")], Say("It said hi.").using(300, 30)]
    async with Played(script, tmp_path, api=api) as played:
        done = await played.remit.delegate("guest", task="Say hi.")
        assert (done.status, done.data) == ("completed", "It said hi.")
        root, child = await played.remit.tree(done.session_id)
        assert (child.agent, child.parent_id) == ("echo", root.session_id)
        events = await played.remit.events(done.session_id)
        assert "".join(event.body["chunk"]["text"] for event in events if event.kind is EventKind.DATA) == "I ask.It said hi."
        assert [event.body["message"] for event in events if event.kind is EventKind.PROGRESS] == ["It calls delegate."]
        assert [event.body["tokens"] for event in events if event.kind is EventKind.SPENT] == [120, 450]


class Verdict(BaseModel):
    good: bool
    why: str


async def test_a_structured_output_is_the_data_of_the_return(tmp_path: Path) -> None:
    async with Played([Say('{"good": true, "why": "It is short."}')], tmp_path, output_type=Verdict) as played:
        assert (await played.remit.delegate("guest", task="Judge.")).data == {"good": True, "why": "It is short."}


async def test_a_model_that_does_not_answer_is_left_at_the_deadline(tmp_path: Path) -> None:
    """S2.5; and none of the SDK's tasks goes on."""
    async with Played([Silence()], tmp_path) as played:
        before = asyncio.all_tasks()
        late = await played.remit.delegate("guest", task="Wait.", timeout=0.6)
        assert (late.status, late.errors[0].code) == ("partial", "TIMEOUT")
        assert late.metadata.duration_seconds < 3
        assert [task for task in asyncio.all_tasks() - before if "agents" in repr(task.get_coro())] == []


async def test_cancelling_it_cancels_the_whole_tree(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="deep", wait=60), Say("Never.")], tmp_path) as played:
        handle = await played.remit.start("guest", task="Go.")
        await present.until(1)
        await handle.cancel("enough")
        assert [record.state for record in await played.remit.tree(handle.session_id)] == ["cancelled", "cancelled"]
        assert len(played.models.requests) == 1


async def test_a_budget_of_tokens_stops_it_in_the_middle_of_its_run(tmp_path: Path) -> None:
    """S8: it would go on for ever."""
    async with Played(lambda request: delegate("echo", text=str(request.turn)), tmp_path) as played:
        done = await played.remit.delegate("guest", task="Go on.", budget=Limits(tokens=300))
        assert (done.status, done.stop_reason, done.errors[0].code) == ("partial", "budget", "BUDGET_EXCEEDED")
        assert len(played.models.requests) == 3


async def test_a_reply_that_never_ends_passes_a_budget_of_tokens_too(tmp_path: Path) -> None:
    """S8: it is told what it used when it is whole."""
    async with Endless() as models, client_of(models) as client:
        talker: Agent[Any] = Agent(name="Talker", model=OpenAIChatCompletionsModel("endless", client))
        async with Remit.open(tmp_path, agents=[openai_agents_agent("talker", talker, timeout=20)]) as remit:
            done = await remit.delegate("talker", task="Talk.", budget=Limits(tokens=100))
            assert (done.status, done.stop_reason) == ("partial", "budget")
            assert done.metadata.duration_seconds < 10


async def test_agents_that_are_its_tools_are_counted_and_a_count_below_nothing_is_none(tmp_path: Path) -> None:
    """S8. Each request once; where a server's count cannot be one, it is estimated."""

    def script(request: ModelRequest) -> Turn:
        if request.text == "Inner.":
            return Say("From inside.").using(200, 50)
        return Say("Done.").using(-1000, -1000) if request.results else Call("ask_inner", input="Inner.")

    async with Played(script, tmp_path) as played:
        inner = Agent[Any](name="Inner", model=played.agent.model, model_settings=ModelSettings(include_usage=True))
        played.agent.tools.append(inner.as_tool("ask_inner", "Asks it."))
        done = await played.remit.delegate("guest", task="Go.")
        assert done.data == "Done."
        spent = [event.body["tokens"] for event in await played.remit.events(done.session_id) if event.kind is EventKind.SPENT]
        assert spent[:2] == [120, 370]
        assert 370 < spent[2] < 1000


async def test_an_agent_that_delegates_to_itself_is_refused_and_told_so(tmp_path: Path) -> None:
    """S1.4."""
    async with Played([delegate("guest", task="You do it."), Say("Then I do it.")], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Do it.")
        assert done.data == "Then I do it."
        assert "CYCLE_DETECTED" in played.models.requests[1].results[0]


async def test_too_many_turns_give_a_partial_return(tmp_path: Path) -> None:
    script: Script = lambda request: [Say("So far. "), delegate("echo", text="again")]  # noqa: E731
    async with Played(script, tmp_path, max_turns=2) as played:
        done = await played.remit.delegate("guest", task="Go on.")
        assert (done.status, done.data) == ("partial", {"text": "So far. So far."})
        assert "Max turns (2) exceeded" in done.errors[0].message


async def test_a_tool_that_does_not_exist_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    async with Played([Stray("bash", command="ls"), Say("Then not.")], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Go.")
        assert done.data == "Then not."
        assert "bash" in played.models.requests[1].results[0]


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


async def test_at_the_soft_deadline_it_is_told_to_hand_in(tmp_path: Path) -> None:
    """S2.4: a tool of its own waited for it."""

    def script(request: ModelRequest) -> Turn:
        return Say("What I have.") if request.results else Call("wait")

    async with Played(script, tmp_path, context_of=lambda ctx: ctx) as played:

        @function_tool
        async def wait(ctx: RunContextWrapper[Context]) -> str:
            await ctx.context.wait_hand_in()
            return "late"

        played.agent.tools.append(wait)
        await played.remit.delegate("guest", task="Go on.", timeout=2)
        assert "Time is nearly up" in played.models.requests[1].asked


async def test_a_sync_tool_of_its_own_that_delegates_on_a_thread_makes_a_child(tmp_path: Path) -> None:
    """The context travels with the thread: limits cannot be stepped around."""
    async with Played([Call("through_a_thread"), Say("Done.")], tmp_path) as played:
        box = Toolbox(played.remit)

        @function_tool
        def through_a_thread() -> str:
            return box.call_blocking("delegate", {"target": "echo", "parameters": {"text": "deep"}})

        played.agent.tools.append(through_a_thread)
        done = await played.remit.delegate("guest", task="Go.")
        assert [record.agent for record in await played.remit.tree(done.session_id)] == ["guest", "echo"]


class Spy(TracingProcessor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_trace_start(self, trace: Any) -> None:
        self.seen.append(trace)

    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None:
        self.seen.append(span)

    def on_span_end(self, span: Any) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


async def test_nothing_of_its_runs_is_traced_whatever_the_configuration_says(tmp_path: Path) -> None:
    """The SDK sends its traces to its vendor. Nor of what its tools run themselves."""
    spy = Spy()
    add_trace_processor(spy)
    config = RunConfig(tracing_disabled=False, workflow_name="seen")
    async with Played([Call("run_inner"), Say("Inner."), Say("Done.")], tmp_path, run_config=config) as played:

        @function_tool
        async def run_inner() -> str:
            return str((await Runner.run(Agent(name="Inner", model=played.agent.model), "Go.")).final_output)

        played.agent.tools.append(run_inner)
        assert (await played.remit.delegate("guest", task="Go.")).data == "Done."
    assert spy.seen == []


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    yield
    assert present.names == set()
