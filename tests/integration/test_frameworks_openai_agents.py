"""remit inside of the OpenAI Agents SDK, and its agents inside of remit: against the scripted model server."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from agents.strict_schema import ensure_strict_json_schema
from agents.tracing import add_trace_processor
from agents.tracing.processor_interface import TracingProcessor
from framework_stage import Stage, on_stage
from framework_suite import Check, every_check, it_delegates_and_is_told_the_result_as_json, it_is_an_agent_of_remits, told_to_hand_in

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
from remit import Context
from remit.agents.openai_agents import openai_agents_agent
from remit.core.events import EventKind
from remit.runtime.tool.delegate_tool import Toolbox
from remit.runtime.tool.openai_agents import delegate_tool
from remit.testing import Call, ModelRequest, Say
from remit.testing.models.turns import Turn

pytestmark = pytest.mark.asyncio(loop_scope="module")
UNTRACED = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")


class ChatStage(Stage):
    """Over chat completions."""

    package = "agents"
    two_turns: ClassVar = {"max_turns": 2}
    too_many = "Max turns (2) exceeded"
    verdict = Say('{"good": true, "why": "It is short."}')
    delegate_tool = staticmethod(delegate_tool)
    own_tool = staticmethod(function_tool)
    wrapped = staticmethod(openai_agents_agent)
    kind: type[Any] = OpenAIChatCompletionsModel

    def agent(self, *tools: Any, at: Any = None, output: Any = None) -> Agent[Any]:
        model, settings = self.kind("scripted", self.client(at)), ModelSettings(include_usage=True)
        return Agent(name="Guest", model=model, output_type=output, model_settings=settings, tools=list(tools))

    async def run(self, agent: Any, text: str) -> str:
        return str((await Runner.run(agent, text, run_config=UNTRACED)).final_output)


class ResponsesStage(ChatStage):
    kind = OpenAIResponsesModel


stage, nothing_is_left = on_stage(ChatStage)


@every_check()
async def test_the_openai_agents_sdk_keeps_the_promise(check: Check, stage: ChatStage) -> None:
    await check(stage)


@every_check((it_delegates_and_is_told_the_result_as_json, it_is_an_agent_of_remits))
async def test_the_openai_agents_sdk_keeps_the_promise_over_responses(check: Check, tmp_path: Path) -> None:
    async with ResponsesStage(tmp_path) as stage:
        await check(stage)


async def test_a_strict_schema_leaves_nothing_to_be_made_strict_and_its_calls_are_read(stage: ChatStage) -> None:
    """By the rules of the SDK that enforces them; what may be left out is null, parameters are text."""
    toolbox = Toolbox(stage.remit, strict=True)
    (tool,) = toolbox.for_openai_responses()
    assert tool["strict"] is True
    assert ensure_strict_json_schema(json.loads(json.dumps(tool["parameters"]))) == tool["parameters"]
    assert set(tool["parameters"]["required"]) == set(tool["parameters"]["properties"])
    written = {"target": "echo", "operation": None, "parameters": '{"text": "hi"}', "timeout": None, "priority": None}
    assert json.loads(await toolbox.call("delegate", json.dumps(written)))["data"] == "echo hi"
    for text in ("not JSON", "[1]", '"{}"', "[" * 100_000):
        assert json.loads(await toolbox.call("delegate", {**written, "parameters": text}))["success"] is False
    assert (toolbox.for_openai_chat()[0]["function"]["strict"], toolbox.for_anthropic()[0]["strict"]) == (True, True)


async def test_agents_that_are_its_tools_are_counted_and_a_count_below_nothing_is_none(stage: ChatStage) -> None:
    """Each request once; where a server's count cannot be one, it is estimated."""

    def script(request: ModelRequest) -> Turn:
        if request.text == "Inner.":
            return Say("From inside.").using(200, 50)
        return Say("Done.").using(-1000, -1000) if request.results else Call("ask_inner", input="Inner.")

    stage.play(script)
    stage.admit("outer", stage.agent(stage.agent().as_tool("ask_inner", "Asks it.")))
    done = await stage.remit.delegate("outer", task="Go.")
    assert done.data == "Done."
    spent = await stage.heard(done, EventKind.SPENT)
    assert spent[:2] == [120, 370]
    assert 370 < spent[2] < 1000


async def test_at_the_soft_deadline_it_is_told_to_hand_in(stage: ChatStage) -> None:
    """Its tools are given what is made of the `ctx`."""

    @function_tool
    async def wait(ctx: RunContextWrapper[Context]) -> str:
        await ctx.context.wait_hand_in()
        return "late"

    stage.admit("patient", stage.agent(wait), context_of=lambda ctx: ctx)
    await told_to_hand_in(stage, "patient")


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


async def test_nothing_of_its_runs_is_traced_whatever_the_configuration_says(stage: ChatStage) -> None:
    """The SDK sends its traces to its vendor. Nor of what its tools run themselves."""
    spy = Spy()
    add_trace_processor(spy)

    @function_tool
    async def run_inner() -> str:
        return str((await Runner.run(stage.agent(), "Inner?")).final_output)

    stage.play({"Inner?": [Say("Inner.")], "Go.": [Call("run_inner"), Say("Done.")]})
    stage.admit("seen", stage.agent(run_inner), run_config=RunConfig(tracing_disabled=False, workflow_name="seen"))
    assert (await stage.remit.delegate("seen", task="Go.")).data == "Done."
    assert spy.seen == []
