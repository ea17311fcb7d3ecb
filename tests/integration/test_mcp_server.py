"""`remit mcp` as a process: what it prints, how it starts and ends, and how a delegation outlives the client that began it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_project import GREETING, RawClient, is_alive, make_project, owner_pid, request, stdio

from forking import run
from remit import Remit, agent
from remit.server.mcp import server as mcp_server
from remit.server.service import Service
from support.pace import wait_until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_nothing_but_the_protocol_is_on_stdout(project: Path) -> None:
    """Whatever agents, code below them or programs they start print goes to stderr; and what they read is empty."""
    client = RawClient(project)
    assert client.call(2, "delegate", target="prints", parameters={})["status"] == "completed"
    assert client.call(3, "delegate", target="reads", parameters={})["data"] == "b''"
    out, err = client.leave()
    assert out == ""
    assert "a stray word" in err
    assert "another stray word" in err
    assert client.process.returncode == 0


def test_a_line_that_is_too_long_is_refused_and_the_next_one_is_heard(project: Path) -> None:
    client = RawClient(project)
    client.say(request(7, "tools/call", name="delegate", arguments={"target": "noop", "parameters": {"x": "x" * 5_000_000}}))
    refused = client.hear()
    assert (refused["id"], refused["error"]["code"]) == (7, -32600)
    assert "larger than" in refused["error"]["message"]
    client.say("this is no JSON at all")
    client.say("")
    assert client.call(8, "delegate", target="noop", parameters={})["status"] == "completed"
    client.leave()


async def test_a_delegation_goes_on_when_its_client_leaves_and_is_found_by_its_id(project: Path) -> None:
    async with stdio(project) as client:
        begun = await client.call_tool("delegate", {"target": "slow", "parameters": {"seconds": 3}, "wait_ms": 0})
        session_id = begun.structured_content["session_id"]  # type: ignore[union-attr]
        keeper = owner_pid(project, session_id)
    assert is_alive(keeper)
    async with stdio(project, "--answer-after", "20") as client:
        told = await client.call_tool("delegation_result", {"session_id": session_id})
        assert told.structured_content["data"] == "Slept."  # type: ignore[union-attr]
    wait_until(lambda: not is_alive(keeper))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_whatever_ends_the_process_the_client_started_ends_no_delegation(project: Path, number: signal.Signals) -> None:
    """Clients end their servers by signals, with the whole group; `delegation_cancel` from the next one ends the work."""
    client = RawClient(project)
    session_id = client.call(2, "delegate", target="slow", parameters={"seconds": 30}, wait_ms=0)["session_id"]
    keeper = owner_pid(project, session_id)
    client.process.send_signal(number)
    client.process.wait(timeout=10)
    assert client.process.returncode in (0, -number)
    client.leave()
    await asyncio.sleep(0.5)
    assert is_alive(keeper)
    async with stdio(project) as other:
        told = await other.call_tool("delegation_cancel", {"session_id": session_id})
        assert told.structured_content["state"] == "cancelled"  # type: ignore[union-attr]
    wait_until(lambda: not is_alive(keeper))


async def test_work_of_a_dead_server_is_settled_when_it_is_asked_for(project: Path) -> None:
    client = RawClient(project)
    session_id = client.call(2, "delegate", target="slow", parameters={"seconds": 30}, wait_ms=0)["session_id"]
    os.kill(owner_pid(project, session_id), signal.SIGKILL)
    client.leave()
    async with stdio(project) as other:
        status = (await other.call_tool("delegation_status", {"session_id": session_id})).structured_content  # type: ignore[union-attr]
        assert "its process is gone" in status["stuck"]
        told = (await other.call_tool("delegation_result", {"session_id": session_id})).structured_content  # type: ignore[union-attr]
        assert (told["status"], told["errors"][0]["code"]) == ("partial", "AGENT_CRASHED")


async def test_a_server_that_an_agent_started_delegates_for_that_agent(project: Path) -> None:
    """Item 8: whatever is delegated over it is the agent's child; path, depth and deadline hold."""
    calls = [
        {"target": "text", "operation": "count", "parameters": {"text": "one two"}},
        {"target": "nested", "parameters": {"calls": []}},
        {"target": "slow", "parameters": {"seconds": 1}, "wait_ms": 100},
    ]
    async with Remit.open(project) as opened:
        done = await opened.delegate("nested", calls=calls, timeout=20)
        assert done.ok, done
        child, cycle, handle = done.data
        assert child["metadata"]["delegation_path"] == ["orchestrator", "nested", "text.count"]
        assert (child["data"], child["metadata"]["delegation_depth"]) == (2, 2)
        assert cycle["errors"][0]["code"] == "CYCLE_DETECTED"
        assert handle["state"] in ("queued", "running")
        caller, record = await opened.describe(done.session_id), await opened.describe(handle["session_id"])
        assert (record.parent_id, record.root_id) == (done.session_id, done.session_id)
        assert record.timeout_seconds < 20, "not the 60 s that it would have as a root"
        assert record.deadline_at <= caller.deadline_at + 0.1


@pytest.mark.parametrize("token", ["anything", "remit1.sess_1700000000_aaaaaa.eHh4.eHh4"])
def test_server_with_an_invalid_caller_token_does_not_start(project: Path, token: str) -> None:
    """Item 8: altered or expired, it is refused; it does not become a new root."""
    command = [sys.executable, "-m", "remit", "mcp", "--root", str(project)]
    environment = {**os.environ, "REMIT_CALLER": token}
    done = subprocess.run(command, input=f"{GREETING}\n", env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert "Unset REMIT_CALLER" in done.stderr


def test_a_missing_extra_is_named(project: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; sys.argv = ['remit', 'mcp']; from remit.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "pip install 'remit[mcp]'" in done.stderr


def remit(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(["-m", "remit", *arguments], project)


async def test_a_server_that_an_agent_started_draws_on_the_budget_of_the_agent(project: Path) -> None:
    noop, slow = {"target": "noop", "parameters": {}}, {"target": "slow", "parameters": {"seconds": 1}}
    async with Remit.open(project) as opened:
        few = await opened.delegate("nested", calls=[noop, noop], budget={"delegations": 2}, timeout=30)
        done, refused = few.data
        assert (done["status"], refused["state"], refused["errors"][0]["code"]) == ("completed", "refused", "BUDGET_EXCEEDED")
        spent = await opened.delegate("nested", calls=[slow], budget={"tokens": 3}, timeout=30)
        tree = await opened.tree(spent.session_id)
    assert [(record.agent, record.result.stop_reason) for record in tree if record.result][-1] == ("slow", "budget")


def test_a_server_that_outlives_its_client_stops_its_work_on_sigterm(project: Path) -> None:
    client = RawClient(project)
    session_id = client.call(2, "delegate", target="slow", parameters={"seconds": 30}, wait_ms=0)["session_id"]
    keeper = owner_pid(project, session_id)
    client.leave()
    assert is_alive(keeper)
    os.kill(keeper, signal.SIGTERM)
    wait_until(lambda: not is_alive(keeper))
    assert '"cancelled"' in remit(project, "show", session_id, "--json").stdout


async def test_clients_are_notified_when_the_agents_change(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_server, "LOOK_SECONDS", 0.1)
    told = asyncio.Event()

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    @agent("newcomer")
    async def newcomer() -> None:
        return None

    async with Remit.open(project) as opened:
        serving = mcp_server.ToolServer(Service(opened), 5.0)
        async with serving.watch(), Client(serving, mode="legacy", message_handler=note) as client:
            await client.list_tools()
            opened.register(newcomer)
            await asyncio.wait_for(told.wait(), 10)
            tools = (await client.list_tools(cache_mode="bypass")).tools
            assert "newcomer" in tools[0].input_schema["properties"]["target"]["enum"]


async def test_a_client_that_asks_for_progress_hears_that_a_silent_agent_lives(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least each 15 s; here in less time."""
    monkeypatch.setattr("remit.server.mcp.delegations.HEARTBEAT_SECONDS", 0.1)
    told: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    @agent("silent")
    async def silent() -> None:
        await asyncio.sleep(0.5)

    async with Remit.open(project, agents=[silent]) as opened:
        serving = mcp_server.ToolServer(Service(opened), 5.0)
        async with Client(serving, mode="legacy") as client:
            await client.call_tool("delegate", {"target": "silent", "parameters": {}}, progress_callback=note)
    assert len(told) >= 2
    assert "silent is still running" in told[0]
