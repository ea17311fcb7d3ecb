"""Agents in separate processes: answers, errors, warm-up and access to models."""

import os
import sys
import time
from pathlib import Path

import process_agents as agents
import pytest
from recording_backend import ProcessHarness, process_harness_fixture

from remit import AgentCrashed, Context, Deadline, Failed, Remit, RemitError, agent
from remit.testing import Say, ScriptedModels
from support.processes import descendants


def children() -> set[str]:
    """Child processes of this one, zombies included."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


harness = process_harness_fixture(ProcessHarness)


async def test_worker_has_the_soft_deadline(harness: ProcessHarness) -> None:
    now = time.monotonic()
    harness.backend.delegation = harness.backend.delegation._replace(deadline=Deadline(now + 60, now + 0.3, 60.0))
    assert await harness.run(agents.wait_for_hand_in) is True


async def test_exit_is_a_crash_with_code_and_stderr(harness: ProcessHarness) -> None:
    with pytest.raises(AgentCrashed) as crashed:
        await harness.run(agents.leave, code=9)
    assert crashed.value.exit_code == 9
    assert "about to leave" in crashed.value.stderr_tail


async def test_oversized_or_non_json_answer_is_refused(harness: ProcessHarness) -> None:
    assert len(await harness.run(agents.large, megabytes=20)) == 20 * 1024 * 1024
    with pytest.raises(Failed, match="file"):
        await harness.run(agents.large, megabytes=70)
    with pytest.raises(Failed, match="JSON"):
        await harness.run(agents.not_json)


async def test_function_of_a_single_file_can_be_run(harness: ProcessHarness, tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    file = tmp_path / "loner.py"
    file.write_text("def double(x: int) -> int:\n    return 2 * x\n")
    spec = spec_from_file_location("remit_project_agents_loner", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert await harness.run(module.double, x=21) == 42
    file.write_text("raise RuntimeError('broken file')\n")
    with pytest.raises(AgentCrashed, match="broken file") as crashed:
        await harness.run(module.double, x=21)
    assert "RuntimeError" in crashed.value.traceback_text


@agent("prying.ask", isolation="process")
async def pry(ctx: Context) -> str:
    """An agent of the user that tries the model access of the built-in agents."""
    try:
        return str(await ctx.backend.call("write", {"prompt": "Spend money."}))  # type: ignore[attr-defined]
    except RemitError as error:
        return error.code


async def test_user_agent_has_no_access_to_models(tmp_path: Path) -> None:
    async with ScriptedModels(lambda request: Say("No.")) as server:
        known = {"scripted": {"kind": "openai", "url": server.openai_url, "model": "scripted"}}
        async with Remit.open(tmp_path, agents=[pry], settings={"model": "scripted", "models": known}) as remit:
            done = await remit.delegate("prying.ask")
        assert (done.data, server.requests) == ("TOOL_UNAVAILABLE", [])


async def test_each_delegation_has_a_process_with_its_mark_and_session(tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    asked = agent("whose", isolation="process")(agents.whose_process)
    async with Remit.open(tmp_path, agents=[asked]) as remit:
        returns = [await remit.delegate("whose") for _ in range(3)]
        for done in returns:
            assert done.data[1] == done.session_id
            assert done.data[2].strip().endswith(done.session_id)
        assert len({done.data[0] for done in returns}) == 3
    assert set(descendants(os.getpid())) <= before
