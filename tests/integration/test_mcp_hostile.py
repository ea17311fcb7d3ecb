"""`remit mcp` with misbehaving clients, agents and connections: every request is answered, and no process is left behind."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp.client.client import Client
from mcp_project import GREETING, RawClient, is_alive, make_project, request, serving_http

from remit import Context, Remit, agent
from remit.core.delegate_requests import NAMES_IN_SCHEMA
from remit.server.mcp.server import ToolServer
from remit.server.service import Service
from support.pace import wait_until


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


def test_unreadable_request_is_answered_under_its_id(project: Path) -> None:
    """A client waits for every id that it sent; the SDK's server would not answer. Later requests are served."""
    deep = '{"name": "delegate", "arguments": {"target": "noop", "parameters": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}}"
    long = '{"name": "delegate", "arguments": {"parameters": {"x": "' + "x" * 5_000_000 + '"}}}'
    invalid = '{"name": "delegate", "arguments": {"target" "noop"}}'
    with raw(project) as client:
        for params, code in ((deep, -32700), (invalid, -32700), ("[1, 2]", -32600), (long, -32600)):
            client.send(f'{{"method": "tools/call", "params": {params}, "jsonrpc": "2.0", "id": 7}}')
            refused = client.receive()
            assert (refused["id"], refused["error"]["code"]) == (7, code), params[:80]
            client.send(f'{{"jsonrpc": "2.0", "id": "first", "method": "tools/call", "params": {params}}}')
            assert client.receive()["id"] == "first"
        assert "larger than" in refused["error"]["message"]
        client.send("this is not JSON")
        client.send("")
        # JavaScript writes half of a surrogate pair as \ud83d, which strict parsers refuse: it is replaced.
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


@pytest.mark.parametrize("closed", [0, 1])
def test_closed_stdin_or_stdout_is_a_one_line_error(project: Path, closed: int) -> None:
    code = f"import os, sys; os.close({closed}); os.execv(sys.executable, [sys.executable, '-m', 'remit', 'mcp'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode in (2, 7)
    assert "closed" in done.stderr
    assert "Traceback" not in done.stderr


async def test_artifact_with_a_non_utf8_name_is_linked(project: Path) -> None:
    """File names may contain any bytes; the protocol carries text only."""
    name = os.fsdecode(b"half-\xff.txt")

    @agent("leaves")
    async def leaves(ctx: Context) -> str:
        """Half a character: \ud800"""
        (ctx.root / name).write_text("kept")
        ctx.artifact(name, "data", "Half a character: \ud800")
        raise ValueError("broken \ud800")

    async with Remit.open(project, agents=[leaves]) as opened:
        server = ToolServer(Service(opened), 5.0)
        async with Client(server, mode="legacy") as client:
            assert (await client.list_tools()).model_dump_json()
            result = await client.call_tool("delegate", {"target": "leaves", "parameters": {}}, progress_callback=ignore)
            assert result.model_dump_json()
            assert result.structured_content["status"] == "partial"  # type: ignore[index]
            session_id = result.structured_content["session_id"]  # type: ignore[index]
            page = await client.call_tool("delegation_result", {"session_id": session_id, "offset": 0})
            assert session_id in page.model_dump_json()
            assert [getattr(one, "name", "") for one in result.content[1:]] == ["half-?.txt"]


async def ignore(progress: float, total: float | None, message: str | None) -> None: ...


def test_stopping_http_server_prints_nothing_about_open_streams(project: Path) -> None:
    with serving_http(project) as (address, process):
        place = urlsplit(address)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=10)
        connection.request("POST", "/mcp", GREETING, headers)
        answer = connection.getresponse()
        answer.read()
        session = answer.headers["mcp-session-id"]
        listening = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=10)
        listening.request("GET", "/mcp", headers={"Accept": "text/event-stream", "mcp-session-id": session})
        assert listening.getresponse().status == 200
        with socket.create_connection(("127.0.0.1", place.port or 0)) as slow:
            slow.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        connection.close()
        listening.close()


async def test_hundreds_of_agents_are_listed_in_pages_and_not_in_the_schemas(tmp_path: Path) -> None:
    count = NAMES_IN_SCHEMA + 50

    async def work(path: str, amount: int = 3) -> None:
        """Works."""

    agents = [agent(f"agent-{number:03}.work")(work) for number in range(count)]
    async with Remit.open(tmp_path, agents=agents) as opened, Client(ToolServer(Service(opened), 5.0), mode="legacy") as client:
        assert len((await client.list_tools()).model_dump_json()) < 40_000
        found: list[tuple[str, str | None]] = []
        page: dict[str, Any] = {"next_offset": 0}
        while "next_offset" in page:
            result = await client.call_tool("list_agents", {"offset": page["next_offset"]})
            assert len(result.model_dump_json()) < 80_000
            page = result.structured_content or {}
            assert "shortened" not in page
            found += [(one["target"], one["operation"]) for one in page["agents"]]
        assert {(f"agent-{number:03}", "work") for number in range(count)} <= set(found)
        assert len(found) == len(set(found))
