"""`remit mcp` as a process: its output, start and end, delegations that outlive their client, and misbehaving clients."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp_project import GREETING, RawClient, is_alive, make_project, owner_pid, request, stdio

from remit import Remit, agent
from remit.core.delegate_requests import NAMES_IN_SCHEMA
from remit.server.mcp import server as mcp_server
from support import cli
from support.pace import wait_until
from support.server import Service


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_stdout_has_only_protocol_messages(project: Path) -> None:
    """Output of agents and of programs that they start goes to stderr; their stdin is empty."""
    client = RawClient(project)
    assert client.call(2, "delegate", target="prints", parameters={})["status"] == "completed"
    assert client.call(3, "delegate", target="reads", parameters={})["data"] == "b''"
    out, err = client.close()
    assert out == ""
    assert "a stray word" in err
    assert "another stray word" in err
    assert client.process.returncode == 0


async def test_delegation_outlives_its_client_and_is_found_by_its_id(project: Path) -> None:
    async with stdio(project) as client:
        begun = await client.call_tool("delegate", {"target": "slow", "parameters": {"seconds": 3}, "wait_ms": 0})
        session_id = begun.structured_content["session_id"]  # type: ignore[union-attr]
        keeper = owner_pid(project, session_id)
    assert is_alive(keeper)
    async with stdio(project, "--answer-after", "20") as client:
        result = await client.call_tool("delegation_result", {"session_id": session_id})
        assert result.structured_content["data"] == "Slept."  # type: ignore[union-attr]
    wait_until(lambda: not is_alive(keeper))


async def test_signal_to_the_server_process_ends_no_delegation(project: Path) -> None:
    """Clients end a server with a signal. `delegation_cancel` of a later client ends the work."""
    running: dict[str, int] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        client = RawClient(project)
        session_id = client.call(2, "delegate", target="slow", parameters={"seconds": 50}, wait_ms=0)["session_id"]
        running[session_id] = owner_pid(project, session_id)
        client.process.send_signal(number)
        client.process.wait(timeout=20)
        assert client.process.returncode in (0, -number)
        client.close()
    await asyncio.sleep(0.5)
    assert all(map(is_alive, running.values()))
    async with stdio(project) as other:
        for session_id in running:
            result = await other.call_tool("delegation_cancel", {"session_id": session_id})
            assert result.structured_content["state"] == "cancelled"  # type: ignore[union-attr]
    wait_until(lambda: not any(map(is_alive, running.values())))


async def test_work_of_a_killed_server_is_settled_on_request(project: Path) -> None:
    client = RawClient(project)
    session_id = client.call(2, "delegate", target="slow", parameters={"seconds": 30}, wait_ms=0)["session_id"]
    os.kill(owner_pid(project, session_id), signal.SIGKILL)
    client.close()
    async with stdio(project) as other:
        status = (await other.call_tool("delegation_status", {"session_id": session_id})).structured_content  # type: ignore[union-attr]
        assert "its process is gone" in status["stuck"]
        result = (await other.call_tool("delegation_result", {"session_id": session_id})).structured_content  # type: ignore[union-attr]
        assert (result["status"], result["errors"][0]["code"]) == ("partial", "AGENT_CRASHED")


async def test_server_started_by_an_agent_delegates_for_that_agent(project: Path) -> None:
    """Its delegations are children of the agent: path, depth and deadline apply."""
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
        assert record.timeout_seconds < 20, "a root would have 60 s"
        assert record.deadline_at <= caller.deadline_at + 0.1


@pytest.mark.parametrize("token", ["anything", "remit1.sess_1700000000_aaaaaa.eHh4.eHh4"])
def test_server_with_an_invalid_caller_token_does_not_start(project: Path, token: str) -> None:
    """An altered or expired token is refused; the server does not become a new root."""
    command = [sys.executable, "-m", "remit", "mcp", "--root", str(project)]
    environment = {**os.environ, "REMIT_CALLER": token}
    done = subprocess.run(command, input=f"{GREETING}\n", env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert "Unset REMIT_CALLER" in done.stderr


def test_server_without_a_client_cancels_its_work_on_sigterm(project: Path) -> None:
    client = RawClient(project)
    session_id = client.call(2, "delegate", target="slow", parameters={"seconds": 30}, wait_ms=0)["session_id"]
    keeper = owner_pid(project, session_id)
    client.close()
    assert is_alive(keeper)
    os.kill(keeper, signal.SIGTERM)
    wait_until(lambda: not is_alive(keeper))
    assert '"cancelled"' in cli.run("show", session_id, "--json", cwd=project).stdout


async def test_progress_notifications_are_sent_for_a_silent_agent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 15 s by default; the test uses a shorter interval."""
    monkeypatch.setattr("remit.server.mcp.delegations.HEARTBEAT_SECONDS", 0.1)
    messages: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    @agent("silent")
    async def silent() -> None:
        await asyncio.sleep(0.5)

    async with Remit.open(project, agents=[silent]) as opened:
        serving = mcp_server.ToolServer(Service(opened), 5.0)
        async with Client(serving, mode="legacy") as client:
            await client.call_tool("delegate", {"target": "silent", "parameters": {}}, progress_callback=note)
    assert len(messages) >= 2
    assert "silent is still running" in messages[0]


# ---- misbehaving clients, and many agents


@contextmanager
def raw(project: Path) -> Iterator[RawClient]:
    client = RawClient(project)
    try:
        yield client
    finally:
        for stream in (client.process.stdin, client.process.stdout, client.process.stderr):
            stream.close()  # type: ignore[union-attr]
        client.process.wait(timeout=20)


def test_half_of_a_surrogate_pair_is_replaced(project: Path) -> None:
    """JavaScript writes it as \\ud83d, which strict parsers refuse: the SDK's server would not answer."""
    with raw(project) as client:
        client.send('{"name" "delegate"}')
        client.send("")
        asked = {"target": "text", "operation": "count", "parameters": {"text": "one two \ud83d"}}
        client.send(request(8, "tools/call", name="delegate", arguments=asked))
        assert client.receive()["result"]["structuredContent"]["data"] == 3


@pytest.mark.parametrize("how", ["close", "kill"])
def test_server_ends_after_its_client_stopped_reading(project: Path, how: str) -> None:
    """The pipe is full and stays open: a blocked write must not keep the process alive."""
    with raw(project) as client:
        keeper = client.child_pid()
        for number in range(60):
            client.send(request(10 + number, "tools/list"))
        if how == "kill":
            client.process.send_signal(signal.SIGKILL)
        else:
            client.process.stdin.close()  # type: ignore[union-attr]
        wait_until(lambda: not is_alive(keeper))


def test_one_socket_is_input_and_output(project: Path) -> None:
    """As sshd starts programs. The client may leave before it has read every answer."""
    client, server = socket.socketpair()
    command = [sys.executable, "-m", "remit", "mcp", "--root", str(project)]
    process = subprocess.Popen(command, stdin=server, stdout=server, stderr=subprocess.PIPE, text=True)
    server.close()
    client.settimeout(30)
    with client.makefile("rw") as lines:
        for number, line in enumerate((GREETING, request(2, "ping"), request(3, "ping")), 1):
            lines.write(line + "\n")
            lines.flush()
            assert json.loads(lines.readline())["id"] == number
        lines.write(request(4, "tools/list") + "\n")
        lines.flush()
        select.select([client], [], [], 30)
    client.close()
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", 0)


async def test_hundreds_of_agents_are_listed_by_target_and_not_in_the_schemas(tmp_path: Path) -> None:
    count = NAMES_IN_SCHEMA + 50

    async def work(path: str, amount: int = 3) -> None:
        """Works."""

    agents = [agent(f"agent-{number:03}.work")(work) for number in range(count)]
    async with Remit.open(tmp_path, agents=agents) as opened, Client(mcp_server.ToolServer(Service(opened), 5.0), mode="legacy") as client:
        assert len((await client.list_tools()).model_dump_json()) < 40_000
        result = await client.call_tool("list_agents", {})
        assert len(result.model_dump_json()) < 80_000
        listed = result.structured_content or {}
        left = next(f"agent-{number:03}" for number in range(count) if f"agent-{number:03}" in listed["message"])
        named = (await client.call_tool("list_agents", {"target": left})).structured_content or {}
        assert [(one["target"], one["operation"]) for one in named["agents"]] == [(left, "work")]
