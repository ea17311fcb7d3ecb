"""remit inside of pydantic-ai, and agents of pydantic-ai inside of remit: against the scripted model server."""

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from framework_stage import Stage, delegate, on_stage
from framework_suite import Check, every_check, told_to_hand_in
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, UsageLimits
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit import Context, Limits, Remit, agent
from remit.agents.pydantic_ai import pydantic_ai_agent
from remit.core.events import EventKind
from remit.runtime.tool.pydantic_ai import delegate_toolset
from remit.testing import Call, Say
from support.pace import allowed

pytestmark = pytest.mark.asyncio(loop_scope="module")


class PydanticStage(Stage):
    package = "pydantic_ai"
    two_turns: ClassVar = {"usage_limits": UsageLimits(request_limit=2)}
    too_many = "request_limit"
    verdict = Call("final_result", good=True, why="It is short.")
    delegate_tool = staticmethod(delegate_toolset)
    own_tool = staticmethod(Tool)
    wrapped = staticmethod(pydantic_ai_agent)

    def agent(self, *tools: Any, at: Any = None, output: Any = None) -> Agent[Any, Any]:
        model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=self.client(at)))
        own = [tool for tool in tools if isinstance(tool, Tool)]
        return Agent(model, name="guest", output_type=output or str, tools=own, toolsets=[tool for tool in tools if tool not in own])

    async def run(self, agent: Any, text: str) -> str:
        return str((await agent.run(text)).output)


stage, nothing_is_left = on_stage(PydanticStage)


@every_check()
async def test_pydantic_ai_keeps_the_promise(check: Check, stage: PydanticStage) -> None:
    await check(stage)


async def test_a_result_is_kept_beside_what_the_model_is_shown_and_a_failure_is_marked_as_one(stage: PydanticStage) -> None:
    @agent("torn")
    async def torn() -> None:
        raise RuntimeError("the sky fell")

    stage.remit.register(torn)
    requests = stage.play([[delegate("echo", text="hi"), delegate("torn")], Say("Done.")])
    guest = stage.agent()
    guest.toolset(lambda ctx: stage.tool())  # one that is made for each run will do
    done = await guest.run("Go.")
    good, bad = (part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart))
    assert good.metadata["taskId"] == json.loads(requests[1].results[0])["taskId"]
    assert bad.outcome == "failed"
    assert "the sky fell" in str(bad.content)


async def test_agents_that_it_runs_itself_are_counted_while_they_run(stage: PydanticStage) -> None:
    """The total of the outer run is shared, as pydantic-ai has it."""
    inner = stage.agent()

    async def ask_inner(ctx: RunContext[Any]) -> str:
        while True:
            await inner.run("Inner?", usage=ctx.usage)
            await asyncio.sleep(0.05)

    stage.play(lambda request: Call("ask_inner") if request.text == "Go." else Say("Inner.").using(200, 50))
    stage.admit("outer", stage.agent(Tool(ask_inner)))
    done = await stage.remit.delegate("outer", task="Go.", budget=Limits(tokens=1000))
    assert (done.status, done.stop_reason) == ("partial", "budget")
    spent = await stage.heard(done, EventKind.SPENT)
    assert spent[0] == 120
    assert (spent[-1] - 120) % 250 == 0
    assert done.metadata.duration_seconds < allowed(10)


@pytest.mark.parametrize("is_given", [True, False])
async def test_money_is_counted_by_the_projects_own_prices(stage: PydanticStage, tmp_path: Path, is_given: bool) -> None:
    """From its file, and as they were given when it was opened."""
    if not is_given:
        (tmp_path / "remit.toml").write_text('[prices."openai:scripted"]\ninput = 1000.0\noutput = 5000.0\n')
    given = {"prices": {"openai:scripted": {"input": 1000.0, "output": 5000.0}}} if is_given else {}
    stage.play([Say("Dear.")])
    async with Remit.open(tmp_path, agents=[stage.wrapped("dear", stage.agent(), timeout=20)], settings=given) as remit:
        done = await remit.delegate("dear", task="Go.")
        spent = [event.body for event in await remit.events(done.session_id) if event.kind is EventKind.SPENT]
        assert spent == [{"tokens": 120, "cost": pytest.approx(0.2)}]


async def test_what_its_tools_raise_is_its_error(stage: PydanticStage) -> None:
    def shaky() -> str:
        raise ModelRetry("not yet")

    stage.play([Call("shaky"), Call("shaky"), Say("Never.")])
    stage.admit("shaken", stage.agent(Tool(shaky)))
    done = await stage.remit.delegate("shaken", task="Go.")
    assert done.status == "failed"
    assert "shaky" in done.errors[0].message


async def test_at_the_soft_deadline_it_is_told_to_hand_in(stage: PydanticStage) -> None:
    """Its tools are given what is made of the `ctx`."""

    async def wait(ctx: RunContext[Context]) -> str:
        await ctx.deps.wait_hand_in()
        return "late"

    stage.admit("patient", stage.agent(Tool(wait)), deps_of=lambda ctx: ctx)
    await told_to_hand_in(stage, "patient")


async def test_it_can_stand_in_a_file_of_the_projects_agents(tmp_path: Path) -> None:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(
        "from pydantic_ai import Agent\nfrom pydantic_ai.models.test import TestModel\n"
        "from remit.agents.pydantic_ai import pydantic_ai_agent\n"
        "mine = pydantic_ai_agent('mine', Agent(TestModel(custom_output_text='Mine.')), description='Says so.')\n"
    )
    async with Remit.open(tmp_path) as remit:
        assert remit.directory.problems == []
        assert (await remit.delegate("mine", task="Who?")).data == "Mine."
        (spec,) = [spec for spec in remit.directory.specs() if spec.name == "mine"]
        assert (spec.kind, spec.description, Path(spec.source.partition(":")[0]).name) == ("pydantic-ai", "Says so.", "mine.py")
