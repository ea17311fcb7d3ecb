"""Models and MCP callers continue an ended delegation with `resume` and stop silent ones with `idle`."""

import asyncio
import json
from pathlib import Path
from typing import Any

from assistant_harness import project

from remit import CallerInfo, Context, DelegateTool, Remit, agent, ask
from remit.testing import Call, ModelRequest, Say
from support.server import ORIGIN, Delegations, Origin, Progress, Service


@agent("steps", resumable=True)
async def steps(ctx: Context, last: int = 2) -> int:
    """One step per run."""
    done = (ctx.saved or 0) + 1
    await ctx.checkpoint(done)
    if done < last:
        await asyncio.sleep(60)
    return done


@agent("silent")
async def silent() -> None:
    await asyncio.sleep(60)


@agent("resumes")
async def resumes(ctx: Context, session: str) -> list[str]:
    done = await ctx.delegate("steps", resume=session)
    return [str(done.stop_reason), done.errors[0].message if done.errors else ""]


AGENTS = [steps, silent, resumes]
SHORT = {"target": "steps", "parameters": {}, "timeout": 400}


async def test_delegate_tool_continues_the_session_of_its_result(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        tool = DelegateTool(remit)
        stopped = (await tool.call(SHORT)).to_dict()
        assert stopped["continueWith"] == {"target": "steps", "resume": stopped["taskId"]}
        done = await tool.call({**stopped["continueWith"], "parameters": {}})
        assert (done.success, done.data, done.continue_with) == (True, 2, None)
        quiet = (await tool.call({"target": "silent", "parameters": {}, "idle": 200})).to_dict()
        assert (quiet["taskState"], quiet["metadata"]["stopReason"]) == ("TIMEOUT", "idle")
        assert "continueWith" not in quiet, "it would start from the beginning"


async def test_mcp_caller_continues_the_session_of_its_result(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        tools = Delegations(Service(remit), 60.0)

        async def call(arguments: dict[str, Any]) -> Any:
            return (await tools.call("delegate", arguments, Progress(None, None))).structured_content  # type: ignore[arg-type]

        named = (await call(SHORT))["continue_with"]
        assert named["tool"] == "delegate"
        assert (await call({**named["arguments"], "parameters": {}}))["data"] == 2
        assert (await call({"target": "silent", "parameters": {}, "idle": 200}))["stop_reason"] == "idle"
        assert (await call({"target": "silent", "parameters": {}, "resume": "x"}))["errors"][0]["code"] == "INVALID_PARAMETERS"


async def test_model_continues_its_own_child(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Call | Say:
        if not request.results:
            return Call("delegate", **SHORT)
        if len(request.results) == 1:
            return Call("delegate", **json.loads(request.results[0])["continueWith"], parameters={})
        return Say("Two steps are done. Nothing is left.")

    async with project(tmp_path, script, agents=AGENTS) as (remit, models):
        await ask(remit, "Take both steps.")
        assert '"data":2' in models.requests[2].results[1].replace(" ", "")


async def test_agent_cannot_resume_work_of_another_principal(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        mine = await remit.delegate("steps", timeout=0.4)
        ORIGIN.set(Origin(caller_info=CallerInfo("token:other")))
        refused = await remit.delegate("resumes", session=mine.session_id)
        ORIGIN.set(None)
        assert refused.data == ["refused", f"There is no delegation {mine.session_id} to resume."]
        assert (await remit.delegate("resumes", session=mine.session_id)).data == ["finished", ""]
