"""A delegation tree across processes: delegations made by an agent in another process are its children, under its limits."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tree_project import PYTHON, clean_environment, make_project, secret_in

from remit import Context, Remit, Return, State, agent
from support.pace import until
from support.processes import marked

WAYS = ("context", "library", "command line")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


async def delegated(project: Path, agent: str, **asked: Any) -> tuple[Return, list[Any]]:
    async with Remit.open(project) as remit:
        result = await remit.delegate(agent, **asked)
        return result, await remit.tree(result.session_id)


@pytest.mark.parametrize("way", WAYS)
async def test_depth_limit_applies_to_context_library_and_command_line(project: Path, way: str) -> None:
    """An agent at depth 3 cannot delegate further, from another process either."""
    result, tree = await delegated(project, "one", way=way, names=["two", "three", "four"])
    assert [(r.agent, r.depth, r.state) for r in tree] == [
        ("one", 1, State.COMPLETED), ("two", 2, State.COMPLETED), ("three", 3, State.COMPLETED), ("four", 4, State.REFUSED),
    ]  # fmt: skip
    assert tree[3].path == ("orchestrator", "one", "two", "three", "four")
    assert [r.parent_id for r in tree] == [None, *(r.session_id for r in tree[:3])]
    assert {r.root_id for r in tree} == {result.session_id}
    assert result.data["data"]["data"]["codes"][0] == "MAX_DEPTH_EXCEEDED"


async def test_cycles_budgets_and_deadlines_apply_across_processes(project: Path) -> None:
    async with Remit.open(project) as remit:

        async def delegated(names: list[str], **asked: Any) -> tuple[Return, list[Any]]:
            result = await remit.delegate("one", way="library", names=names, **asked)
            return result, await remit.tree(result.session_id)

        result, tree = await delegated(["two", "one"])
        assert [(r.agent, r.state) for r in tree] == [("one", State.COMPLETED), ("two", State.COMPLETED), ("one", State.REFUSED)]
        assert "CYCLE_DETECTED" in result.data["data"]["codes"]
        result, tree = await delegated(["two", "echo"], budget={"delegations": 2})
        assert [r.state for r in tree] == [State.COMPLETED, State.COMPLETED, State.REFUSED]
        assert result.data["data"]["codes"] == ["BUDGET_EXCEEDED"]
        assert "delegations" in result.data["data"]["said"], "the refusal names the limit"
        result, tree = await delegated(["two", "four"], budget={"tokens": 50})
        assert (tree[2].tokens, tree[2].result.stop_reason) == (60, "budget")
        _, tree = await delegated(["two", "echo"], options={"timeout": 50}, timeout=30)
        assert tree[0].timeout_seconds == 30
        assert all(child.timeout_seconds < 30 for child in tree[1:])
        assert tree[0].deadline_at >= tree[1].deadline_at - 0.1 >= tree[2].deadline_at - 0.2


async def test_commands_run_by_an_agent_use_its_tree(project: Path) -> None:
    commands = [["delegate", "echo", "word=hi"], ["history", "--json"], ["show", "last"], ["status", "--json"], ["agents", "--json"]]
    result, tree = await delegated(project, "runs", commands=commands)
    delegate, history, show, status, agents = result.data
    assert [code for code, _, _ in result.data] == [0] * 5
    assert delegate[1].startswith("✓ completed  echo")
    assert [one["agent"] for one in json.loads(history[1])["delegations"]] == ["runs"]
    assert "runs" in show[1]
    assert "echo" in show[1]
    assert result.session_id in status[1]
    assert "threaded" in agents[1]
    assert [r.agent for r in tree] == ["runs", "echo"]


async def test_agent_can_cancel_a_delegation_of_its_tree(project: Path) -> None:
    """A second command over another connection finds the delegation by its id."""

    @agent("both")
    async def both(ctx: Context) -> list[Any]:
        handle = await ctx.start("one", way="command line", names=["lasts"])
        (child,) = await until_running(remit, "lasts")
        done = await ctx.delegate("runs", commands=[["cancel", child, "--json"]])
        return [json.loads(done.data[0][1]), (await handle.result()).data["codes"]]

    async with Remit.open(project, agents=[both]) as remit:
        result = await remit.delegate("both")
        cancelled, codes = result.data
        assert cancelled["nodes"][0]["agent"] == "lasts"
        assert codes == ["CANCELLED"]
        (record,) = [r for r in await remit.tree(result.session_id) if r.agent == "lasts"]
        assert record.result is not None
        assert "runs" in record.result.summary, "the record names the caller that cancelled it"


async def until_running(remit: Remit, name: str) -> list[str]:
    def running() -> list[str]:
        return [r.session_id for r in remit.store.live() if r.agent == name and r.state is State.RUNNING]

    found: list[str] = await until(running)
    return found


@pytest.mark.parametrize("name", ["threaded", "inline"])
async def test_remit_opened_by_an_inline_or_threaded_agent_joins_the_tree(project: Path, name: str) -> None:
    result, tree = await delegated(project, name, names=["echo", name])
    assert [one["status"] for one in result.data] == ["completed", "failed"]
    assert result.data[1]["codes"] == ["CYCLE_DETECTED"]
    assert [(r.agent, r.depth) for r in tree] == [(name, 1), ("echo", 2), (name, 2)]


async def test_command_agents_that_delegate_form_one_tree(project: Path) -> None:
    """Delegations that a program makes by the command line are its children, also from a daemon."""
    line = f"{PYTHON} -m remit delegate"
    outer = f"cat > /dev/null; {line} inner task=go"
    daemon = f"(setsid sh -c '{line} echo word=deep > deep.part; mv deep.part deep' &)"
    inner = f"cat > /dev/null; {daemon}; while [ ! -e deep ]; do sleep 0.05; done"
    table = {"answers": "value", "pass_environment": ["PYTHON*"]}
    agents = {"outer": {"command": ["sh", "-c", outer], **table}, "inner": {"command": ["sh", "-c", inner], **table}}
    async with Remit.open(project, settings={"agents": agents}) as remit:
        result = await remit.delegate("outer", task="go", timeout=40)
        tree = await remit.tree(result.session_id)
    assert [(r.agent, r.depth, r.state) for r in tree] == [
        ("outer", 1, State.COMPLETED), ("inner", 2, State.COMPLETED), ("echo", 3, State.COMPLETED),
    ], result  # fmt: skip
    words = [PYTHON, "-m", "remit", "show", result.session_id]
    shown = subprocess.run(words, cwd=project, env=clean_environment(), capture_output=True, text=True).stdout  # noqa: ASYNC221
    assert shown.index("outer") < shown.index("inner") < shown.index("echo")


async def test_cancelling_the_root_ends_all_processes_and_records(project: Path) -> None:
    async with Remit.open(project) as remit:
        handle = await remit.start("one", way="command line", names=["two", "lasts"])
        await until_running(remit, "lasts")
        await remit.cancel(handle.session_id, "enough")
        assert await remit.live() == []
        states = {r.agent: r.state for r in await remit.tree(handle.session_id)}
        assert states == {"one": State.CANCELLED, "two": State.CANCELLED, "lasts": State.CANCELLED}
        mark = f"{remit._project}:{remit.owner.owner_id}:sess_"
        assert marked(mark) == []


async def test_interrupted_client_cancels_its_delegation(project: Path) -> None:
    """Ctrl-C at `remit delegate` inside an agent cancels, as it does for a root."""

    @agent("interrupts", timeout=40)
    async def interrupts(ctx: Context) -> Any:
        words = [PYTHON, "-m", "remit", "delegate", "lasts", "word=w", "--json"]
        client = await asyncio.create_subprocess_exec(*words, env={**clean_environment(), **ctx.environment()}, stdout=subprocess.PIPE)
        await until_running(remit, "lasts")
        await asyncio.sleep(0.3)  # the client handles SIGINT a moment after the delegation runs
        client.send_signal(signal.SIGINT)
        out, _ = await client.communicate()
        return [client.returncode, json.loads(out)["stop_reason"]]

    async with Remit.open(project, agents=[interrupts]) as remit:
        result = await remit.delegate("interrupts")
        tree = await remit.tree(result.session_id)
    assert result.data == [130, "cancelled"]
    assert [(r.agent, r.state) for r in tree] == [("interrupts", State.COMPLETED), ("lasts", State.CANCELLED)]


async def test_killed_client_does_not_cancel_its_delegation(project: Path) -> None:
    """A lost connection is not a cancellation."""

    @agent("watches", timeout=40)
    async def watches(ctx: Context) -> Any:
        words = [PYTHON, "-m", "remit", "delegate", "lasts", "word=kept", "seconds=3", "--json"]
        environment = {**clean_environment(), **ctx.environment()}
        client = await asyncio.create_subprocess_exec(*words, env=environment, stdout=subprocess.DEVNULL)
        (child,) = await until_running(remit, "lasts")
        client.kill()
        await client.wait()
        done = await remit.result(child, wait_seconds=20)
        return None if done is None else done.data

    async with Remit.open(project, agents=[watches]) as remit:
        result = await remit.delegate("watches")
        tree = await remit.tree(result.session_id)
    assert result.data == "kept"
    assert [(r.agent, r.state) for r in tree] == [("watches", State.COMPLETED), ("lasts", State.COMPLETED)]


async def test_caller_token_is_never_written_to_disk(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = tmp_path_factory.mktemp("beside") / "token"
    result, tree = await delegated(project, "tells", file=str(kept))
    secret = secret_in(kept).secret
    assert result.ok
    assert "[token]" in result.data["REMIT_CALLER"]
    assert secret not in result.to_json()
    assert "[token]" in tree[1].parameters["word"]
    files = [path for path in (project / ".remit").rglob("*") if path.is_file()]
    assert any(path.name == "remit.db" for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


async def test_acceptance_commands_have_no_caller_token(project: Path) -> None:
    """They run for the caller, not for the agent."""
    async with Remit.open(project) as remit:
        result = await remit.delegate("echo", word="w", accept=['test -z "$REMIT_CALLER"', 'test -n "$REMIT_MARK"'])
    assert result.ok, result.errors
