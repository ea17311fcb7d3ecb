"""Agents in separate processes: answers, errors, warm-up and access to models."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import process_agents as agents
import pytest
from recording_backend import ProcessHarness, process_harness_fixture

from remit import AgentCrashed, Context, Deadline, Failed, Remit, RemitError, agent
from remit.testing import Say, ScriptedModels
from support.pace import allowed
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


async def test_forked_ahead_worker_serves_one_delegation_with_its_mark(tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    asked = agent("whose", isolation="process")(agents.whose_process)
    async with Remit.open(tmp_path, agents=[asked]) as remit:
        pids = set()
        for _ in range(20):  # a worker is forked ahead once the fork server has loaded the agent
            await remit.delegate("whose")
            with contextlib.suppress(TimeoutError):
                await wait_for_processes(4, before, seconds=1.0)  # two fork servers, a supervisor and its idle worker
                break
        for _ in range(5):
            done = await remit.delegate("whose")
            pid, session_id, mark = done.unwrap()
            assert session_id == done.session_id
            assert mark.strip().endswith(done.session_id)
            pids.add(pid)
        assert len(pids) == 5
        for below in (0, 1):  # the worker, then the supervisor of the next one
            waiting = await wait_for_processes(4, before)
            os.kill(next(pid for pid in waiting if len(descendants(pid)) == below), signal.SIGKILL)
            await wait_for_processes(2, before)
            assert (await remit.delegate("whose")).ok
    assert set(descendants(os.getpid())) <= before


async def wait_for_processes(count: int, before: set[int], seconds: float = 30.0) -> set[int]:
    async with asyncio.timeout(allowed(seconds)):
        while len(found := set(descendants(os.getpid())) - before) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found
