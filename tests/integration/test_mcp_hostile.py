"""`remit mcp` against clients, agents and wires that misbehave: nobody waits for ever, nothing is left behind, no message kills it."""

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
from mcp_project import GREETING, RawClient, is_alive, make_project, request, serving_http, stdio

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


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ('{"name": "delegate", "arguments": {"target": "noop", "parameters": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}}", -32700),
        ('{"name": "delegate", "arguments": {"target" "noop"}}', -32700),
        ("[1, 2]", -32600),
        ('{"name": "delegate", "arguments": {"parameters": {"x": "' + "x" * 5_000_000 + '"}}}', -32600),
    ],
    ids=["nested too deeply", "no JSON", "params that are a list", "too long"],
)
def test_unreadable_request_is_answered_under_its_id(project: Path, params: str, code: int) -> None:
    """A client waits for every id that it sent; the SDK's server would say nothing."""
    with raw(project) as client:
        client.say(f'{{"method": "tools/call", "params": {params}, "jsonrpc": "2.0", "id": 7}}')
        refused = client.hear()
        assert (refused["id"], refused["error"]["code"]) == (7, code)
        client.say(f'{{"jsonrpc": "2.0", "id": "first", "method": "tools/call", "params": {params}}}')
        assert client.hear()["id"] == "first"


def test_lone_surrogate_in_a_request_is_replaced(project: Path) -> None:
    r"""JavaScript writes half of a pair as \ud83d, which strict readers refuse."""
    with raw(project) as client:
        asked = {"target": "text", "operation": "count", "parameters": {"text": "one two \ud83d"}}
        client.say(request(8, "tools/call", name="delegate", arguments=asked))
        assert client.hear()["result"]["structuredContent"]["data"] == 3


@pytest.mark.parametrize("how", ["closes its side", "kills the server"])
def test_a_server_whose_client_stopped_reading_does_not_linger(project: Path, how: str) -> None:
    """The pipe is full and stays open, so that nothing can be written: that alone must keep no process alive."""
    with raw(project) as client:
        keeper = client.keeper()
        for number in range(60):
            client.say(request(10 + number, "tools/list"))
        if how == "kills the server":
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


async def test_a_file_whose_name_is_no_text_harms_no_answer(project: Path) -> None:
    """Whatever an agent leaves is harvested, names of any bytes too; the wire carries text only."""
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
            told = await client.call_tool("delegate", {"target": "leaves", "parameters": {}}, progress_callback=_nothing)
            assert told.model_dump_json()
            assert told.structured_content["status"] == "partial"  # type: ignore[index]
            session_id = told.structured_content["session_id"]  # type: ignore[index]
            page = await client.call_tool("delegation_result", {"session_id": session_id, "offset": 0})
            assert session_id in page.model_dump_json()
            resources = (await client.list_resources()).resources
            assert [one.name for one in resources] == ["half-?.txt"]
            (read,) = (await client.read_resource(str(resources[0].uri))).contents
            assert getattr(read, "text", "") == "kept"


async def _nothing(progress: float, total: float | None, message: str | None) -> None: ...


def test_a_server_over_http_that_is_stopped_says_nothing_of_the_streams_it_cuts(project: Path) -> None:
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


async def test_hundreds_of_agents_are_listed_page_by_page_and_do_not_swell_the_schemas(project: Path) -> None:
    many = NAMES_IN_SCHEMA + 50
    form = '@agent("agent-{0:03}.work")\nasync def work_{0}(path: str, amount: int = 3) -> None:\n    """Works."""'
    code = ["from remit import agent", *(form.format(number) for number in range(many))]
    (project / ".remit" / "agents" / "many.py").write_text("\n".join(code))
    async with stdio(project) as client:
        assert len((await client.list_tools()).model_dump_json()) < 40_000
        found: list[tuple[str, str | None]] = []
        page: dict[str, Any] = {"next_offset": 0}
        while "next_offset" in page:
            told = await client.call_tool("list_agents", {"offset": page["next_offset"]})
            assert len(told.model_dump_json()) < 80_000
            page = told.structured_content or {}
            assert "shortened" not in page
            found += [(one["target"], one["operation"]) for one in page["agents"]]
        assert {(f"agent-{number:03}", "work") for number in range(many)} <= set(found)
        assert len(found) == len(set(found))
