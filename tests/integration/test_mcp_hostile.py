"""`remit mcp` with misbehaving clients, agents and connections: every request is answered, and no process is left behind."""

import json
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
from mcp_project import GREETING, RawClient, is_alive, make_project, request

from remit import Remit, agent
from remit.core.delegate_requests import NAMES_IN_SCHEMA
from remit.server.mcp.server import ToolServer
from support.pace import wait_until
from support.server import Service


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


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


async def ignore(progress: float, total: float | None, message: str | None) -> None: ...


async def test_hundreds_of_agents_are_listed_by_target_and_not_in_the_schemas(tmp_path: Path) -> None:
    count = NAMES_IN_SCHEMA + 50

    async def work(path: str, amount: int = 3) -> None:
        """Works."""

    agents = [agent(f"agent-{number:03}.work")(work) for number in range(count)]
    async with Remit.open(tmp_path, agents=agents) as opened, Client(ToolServer(Service(opened), 5.0), mode="legacy") as client:
        assert len((await client.list_tools()).model_dump_json()) < 40_000
        result = await client.call_tool("list_agents", {})
        assert len(result.model_dump_json()) < 80_000
        listed = result.structured_content or {}
        left = next(f"agent-{number:03}" for number in range(count) if f"agent-{number:03}" in listed["message"])
        named = (await client.call_tool("list_agents", {"target": left})).structured_content or {}
        assert [(one["target"], one["operation"]) for one in named["agents"]] == [(left, "work")]
