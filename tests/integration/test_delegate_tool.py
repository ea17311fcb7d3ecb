"""The delegate tool: schema, calls, chunks, outcomes, command line, and an additional target."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from remit import Context, DelegateError, DelegateTool, Remit, agent


class Span(BaseModel):
    first_line: int
    last_line: int = 3


@agent("text.cut")
async def cut(ctx: Context, text: str, span: Span, keep_ends: bool = False, how: Literal["head", "tail"] = "head") -> str:
    """Cut a text."""
    ctx.progress("cutting", 0.5)
    ctx.emit({"piece": 1})
    return text[span.first_line : span.last_line]


@agent("hello")
async def hello(name: str = "you") -> str:
    """Greet."""
    return f"Hello, {name}."


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[DelegateTool]:
    async with Remit.open(tmp_path, agents=[cut, hello], settings={"builtin_agents": []}) as remit:
        yield DelegateTool(remit)


def asks(operation: str, **parameters: Any) -> dict[str, Any]:
    return {"target": "text", "operation": operation, "parameters": parameters}


# ---- the schema


async def test_schema_is_built_from_the_directory_in_camel_case(tool: DelegateTool) -> None:
    described = tool.schema()
    schema = described["inputSchema"]
    Draft202012Validator.check_schema(schema)
    assert described["name"] == "delegate"
    assert schema["properties"]["target"]["enum"] == ["hello", "text"]
    assert schema["properties"]["operation"]["enum"] == ["cut"]
    assert "- text.cut(text: string, span: Span, keepEnds?: boolean, how?: 'head' or 'tail') — Cut a text." in described["description"]
    assert not {"allOf", "anyOf", "oneOf", "$defs"} & set(schema)


# ---- calling and streaming


async def test_stream_reports_events_and_ends_with_the_result_of_a_call(tool: DelegateTool) -> None:
    arguments = asks("cut", text="hello there", span={"first_line": 0, "last_line": 5})
    chunks = [chunk async for chunk in tool.stream(arguments)]
    assert [chunk.type for chunk in chunks] == ["progress", "progress", "data", "complete"]
    assert dict(chunks[1].data) == {"message": "cutting", "fraction": 0.5}
    assert dict(chunks[2].data) == {"chunk": {"piece": 1}}
    assert len({chunk.task_id for chunk in chunks}) == 1
    done = await tool.call(arguments)
    assert (done.success, done.task_state, done.data) == (True, "COMPLETED", "hello")
    assert (done.metadata.target, done.metadata.operation, done.metadata.agent_id) == ("text", "cut", "text.cut")
    assert done.task_id is not None
    called = done.to_dict()
    assert (await tool.look(done.task_id)).to_dict() == called
    streamed = json.loads(json.dumps(chunks[-1].to_dict()))["data"]["result"]
    assert set(called) == set(streamed)
    for document in (called, streamed):
        del document["taskId"]
        for name in ("createdAt", "completedAt", "duration"):
            del document["metadata"][name]
    assert called == streamed


async def test_call_waiting_for_approval_is_paused(tmp_path: Path) -> None:
    is_asked = asyncio.Event()

    class Person:
        async def approve(self, request: Any, decision: Any, seconds: float) -> tuple[bool, str]:
            is_asked.set()
            await asyncio.sleep(60)
            return False, "Ada"

    rules = '@ask("may it?") permit (principal, action, resource);'
    async with Remit.open(tmp_path, agents=[hello], approver=Person(), policy=rules) as remit:
        handle = await remit.start("hello")
        await asyncio.wait_for(is_asked.wait(), 60)
        assert (await DelegateTool(remit).look(handle.session_id)).task_state == "PAUSED"
        await handle.cancel("enough")


async def test_delegation_by_a_tool_inside_an_agent_is_its_child(tmp_path: Path) -> None:
    @agent("outer")
    async def outer(ctx: Context) -> Any:
        async with Remit.open(tmp_path) as inner:
            within = DelegateTool(inner)
            assert "hello" in within.catalogue.targets()
            done = await within.call({"target": "hello", "parameters": {"name": "Ada"}})
            with pytest.raises(DelegateError) as caught:
                await within.call({"target": "hello", "parameters": {"nme": "Ada"}})
            return [done.data, caught.value.code, any(spec.source.startswith("remit.") for spec in inner.directory.specs())]

    async with Remit.open(tmp_path, agents=[outer, hello]) as remit:
        done = await remit.delegate("outer")
        assert done.data == ["Hello, Ada.", "INVALID_PARAMETERS", True]
        assert {record.agent for record in await remit.children(done.session_id)} == {"hello"}


async def test_alternative_parameter_spelling_does_not_bypass_the_policy(tmp_path: Path) -> None:

    @agent("files.read", effects=("read",), acts_on={"file_path": "path"})
    async def read(file_path: str) -> str:
        return f"read {file_path}"

    async with Remit.open(tmp_path, agents=[read]) as remit:
        for name in ("file_path", "filePath", "FilePath", "File_Path"):
            assert (await remit.delegate("files.read", **{name: "fine.txt"})).data == "read fine.txt"
            for secret in (".env", "../outside.txt", "/etc/shadow"):
                refused = await remit.delegate("files.read", **{name: secret})
                assert (name, secret, refused.errors[0].code) == (name, secret, "POLICY_DENIED")
            assert (await DelegateTool(remit).call({"target": "files.read", "parameters": {name: ".env"}})).success is False
        both = await remit.delegate("files.read", file_path="fine.txt", filePath=".env")
        assert both.errors[0].code in ("INVALID_PARAMETERS", "POLICY_DENIED")
