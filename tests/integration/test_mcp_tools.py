"""The six tools of `remit mcp`, called by the SDK's client: descriptions, results, refusals and progress."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_project import make_project
from mcp_types import CallToolResult

from remit import Remit
from remit.server.mcp.server import ToolServer
from support.apis.agents import ROLES
from support.server import Service

ANSWER_AFTER = 1.5
LARGEST_ANSWER = 80_000
"""Characters: Claude Code cuts a tool's answer at 25,000 tokens."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("served"))


@pytest.fixture
async def server(project: Path) -> AsyncIterator[ToolServer]:
    async with Remit.open(project) as remit:
        yield ToolServer(Service(remit), ANSWER_AFTER)


@pytest.fixture
async def ask(server: ToolServer) -> Any:
    """Call a tool. Each call has its own client: the only state is the session id."""

    async def asked(tool: str, arguments: Any = None, **more: Any) -> CallToolResult:
        async with Client(server) as client:
            result = await client.call_tool(tool, arguments, **more)
            assert isinstance(result, CallToolResult)
            assert json.loads(result.content[0].text) == result.structured_content, "structure and text are the same document"
            assert len(result.model_dump_json(by_alias=True)) < LARGEST_ANSWER
            return result

    return asked


def code_of(result: CallToolResult) -> str:
    assert result.is_error
    return str(result.structured_content["errors"][0]["code"])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tool_schemas_list_the_agents_in_old_and_new_protocol_revisions(server: ToolServer, mode: str) -> None:
    """Target and operation lists are generated; every tool has schemas, a title and hints."""
    async with Client(server, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"delegate", "delegate_many", "delegation_status", "delegation_result", "delegation_cancel", "list_agents"}
        for tool in tools.values():
            assert tool.title
            assert tool.description
            assert tool.output_schema is not None
            assert tool.output_schema["type"] == "object"
            assert not {"oneOf", "anyOf", "allOf"} & set(tool.input_schema), "model vendors refuse alternatives at the top"
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (tool.name in {"delegation_status", "delegation_result", "list_agents"})
        properties = tools["delegate"].input_schema["properties"]
        own = {"caller", "fails", "large", "nested", "noop", "prints", "reads", "slow", "text"}
        assert set(properties["target"]["enum"]) == own | {"worker", "researcher", "coder", "compose", "assistant", "results", *ROLES}
        assert {"count", "write", "read_file", "deep_research", "analyze_code"} <= set(properties["operation"]["enum"])
        assert "- text.count(text: string, minLength?: integer) — Counts the words of a text." in (tools["delegate"].description or "")


@pytest.mark.parametrize(
    ("asked", "code", "named"),
    [
        ({"parameters": {}}, "INVALID_TARGET", "slow"),
        ({"target": "text", "parameters": {}}, "INVALID_OPERATION", "count, write"),
        ({"target": "text", "operation": "count", "parameters": [1]}, "INVALID_PARAMETERS", "object"),
        ({"target": "noop", "parameters": {}, "accept": "true"}, "INVALID_PARAMETERS", "accept"),
        ({"target": "noop", "parameters": {}, "wait_ms": True}, "INVALID_PARAMETERS", "wait_ms"),
        ({"target": "noop", "parameters": {}, "waitMs": 1, "wait_ms": 1}, "INVALID_PARAMETERS", "twice"),
    ],
)
async def test_invalid_arguments_are_refused_with_the_allowed_values(ask: Any, asked: dict[str, Any], code: str, named: str) -> None:
    """A refusal before dispatch: not a protocol error, no traceback."""
    result = await ask("delegate", asked)
    assert code_of(result) == code
    assert named in result.content[0].text
    assert "Traceback" not in result.content[0].text


async def test_results_have_the_fields_of_the_delegate_tool(ask: Any) -> None:
    shape = {"success", "taskId", "taskState", "data", "output", "error", "metadata"}
    inner = {"target", "operation", "createdAt", "completedAt", "duration", "agentId"}
    asked = (
        {"target": "worker", "operation": "list_files", "parameters": {"path": "."}},
        {"target": "fails"},
        {"target": "slow", "parameters": {"seconds": 30}, "wait_ms": 1},
        {"target": "no-such-agent"},
    )
    documents = [(await ask("delegate", arguments)).structured_content for arguments in asked]
    for document in documents:
        assert shape <= document.keys()
        assert inner <= document["metadata"].keys()
    done, failed, running, refused = documents
    assert (done["success"], done["taskState"], done["taskId"]) == (True, "COMPLETED", done["session_id"])
    assert (done["output"], done["error"]) == (done["summary"], None)
    assert done["metadata"]["agentId"] == done["metadata"]["agent_type"] == "worker.list_files"
    assert (failed["success"], failed["taskState"], failed["error"]["code"]) == (False, "FAILED", "TASK_FAILED")
    assert failed["error"]["details"]["code"] == failed["errors"][0]["code"]
    assert running["taskState"] in ("QUEUED", "RUNNING")
    assert (refused["success"], refused["taskId"], refused["metadata"]["agentId"]) == (False, None, "no-such-agent")
    await ask("delegation_cancel", {"session_id": running["session_id"]})


async def test_failed_delegation_is_an_error_and_a_partial_one_is_not(ask: Any) -> None:
    failed = await ask("delegate", {"target": "fails", "parameters": {}})
    assert failed.is_error
    assert "it broke" in failed.structured_content["errors"][0]["message"]
    partial = await ask("delegate", {"target": "slow", "parameters": {"seconds": 30}, "timeout": 400})
    assert not partial.is_error
    content = partial.structured_content
    assert (content["status"], content["state"], content["errors"][0]["code"]) == ("partial", "timeout", "TIMEOUT")


async def test_artifacts_are_linked_as_files(ask: Any, project: Path) -> None:
    result = await ask("delegate", {"target": "text", "operation": "write", "parameters": {"path": "note.md", "content": "Hello."}})
    link = result.content[1]
    assert (link.type, link.uri, link.name, link.size) == ("resource_link", (project / "note.md").as_uri(), "note.md", 6)


async def test_large_result_is_shortened_and_can_be_read_in_pages(ask: Any) -> None:
    result = await ask("delegate", {"target": "large", "parameters": {"rows": 3000}})
    content = result.structured_content
    assert len(result.model_dump_json(by_alias=True)) < 60_000
    assert content["data"]["rows"][0]["number"] == 0, "the shape is the same"
    assert "delegation_result" in content["shortened"]
    text, offset = "", 0
    while True:
        page = await ask("delegation_result", {"session_id": content["session_id"], "offset": offset, "limit": 1_000_000})
        assert len(page.model_dump_json(by_alias=True)) < 70_000
        text += page.structured_content["page"]["text"]
        if "next_offset" not in page.structured_content["page"]:
            break
        offset = page.structured_content["page"]["next_offset"]
    assert len(json.loads(text)["data"]["rows"]) == 3000


async def test_long_delegation_is_answered_with_a_handle(ask: Any) -> None:
    result = await ask("delegate", {"target": "caller", "parameters": {"seconds": 50}})
    handle = result.structured_content
    assert not result.is_error
    assert handle["state"] == "running"
    assert handle["ask_again"] == {"tool": "delegation_result", "arguments": {"session_id": handle["session_id"]}}
    status = (await ask("delegation_status", {"session_id": handle["session_id"]})).structured_content
    assert (status["state"], status["agent"], status["stuck"]) == ("running", "caller", None)
    assert status["tokens_in_all"] > 0
    assert status["children"][0]["doing"].startswith("step ")
    live = (await ask("delegation_status")).structured_content
    assert handle["session_id"] in [one["session_id"] for one in live["delegations"]]
    await ask("delegation_cancel", {"session_id": handle["session_id"]})
    started = await ask("delegate", {"target": "caller", "parameters": {"seconds": 0.5}, "wait_ms": 0})
    while started.structured_content["state"] in ("queued", "running"):
        started = await ask("delegation_result", {"session_id": started.structured_content["session_id"], "wait_ms": 1500})
    assert started.structured_content["data"] == "Slept."


async def test_progress_notifications_have_the_messages_of_the_agent(server: ToolServer) -> None:
    notes: list[tuple[float, str]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        notes.append((progress, message or ""))

    async with Client(server, mode="legacy") as client:
        await client.call_tool("delegate", {"target": "slow", "parameters": {"seconds": 1}}, progress_callback=note)
    assert [progress for progress, _ in notes] == sorted({progress for progress, _ in notes})
    assert any("step 5" in message for _, message in notes)


async def test_delegate_many_returns_all_results_if_some_fail(ask: Any) -> None:
    """Results are in the order of the calls."""
    delegations = [
        {"target": "slow", "parameters": {"seconds": 30}},
        {"target": "fails", "parameters": {}},
        {"target": "unknown", "parameters": {}},
        {"target": "slow", "parameters": {"seconds": 0.5}},
        {"target": "text", "operation": "count", "parameters": {"text": "one two"}},
        "nonsense",
    ]
    result = await ask("delegate_many", {"delegations": delegations})
    assert not result.is_error
    content = result.structured_content
    assert [one["state"] for one in content["results"]] == ["running", "failed", "refused", "completed", "completed", "refused"]
    assert (content["finished"], content["running"], content["results"][4]["data"]) == (5, 1, 2)
    await ask("delegation_cancel", {"session_id": content["results"][0]["session_id"]})
