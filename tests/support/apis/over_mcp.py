"""The MCP API through the MCP SDK's client: the tools of `remit mcp` over streamable HTTP or stdio."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.apis.client import ApiFault, Page, Said, Seen
from support.apis.traits import MCP

WAIT_MS = 20_000


class McpClient:
    def __init__(self, client: Client) -> None:
        self.traits = MCP
        self._client = client

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        given = {name: value for name, value in arguments.items() if name != "session"}
        return str((await self._called("delegate", {**given, "wait_ms": 0}))["session_id"])

    async def status(self, task_id: str) -> Seen:
        return await self._seen(await self._called("delegation_result", {"session_id": task_id, "wait_ms": 0}))

    async def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        """Wait for the task and yield its progress notifications."""
        heard: asyncio.Queue[Said | None] = asyncio.Queue()

        async def progress(fraction: float, total: float | None, message: str | None) -> None:
            heard.put_nowait(Said(kind="progress", value=message))

        async def ended() -> dict[str, Any]:
            try:
                return await self._called("delegation_result", {"session_id": task_id, "wait_ms": WAIT_MS}, progress)
            finally:
                heard.put_nowait(None)

        waiting = asyncio.ensure_future(ended())
        try:
            while (said := await heard.get()) is not None:
                yield said
            yield Said(kind="end", seen=await self._seen(await waiting))
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        await self._called("delegation_cancel", {"session_id": task_id, "reason": reason})
        return await self.status(task_id)

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        return Page([one["session_id"] for one in (await self._called("delegation_status", {}))["delegations"]], None)

    async def agents(self) -> Sequence[str]:
        found = (await self._called("list_agents", {}))["agents"]
        return [one["target"] if one["operation"] is None else f"{one['target']}.{one['operation']}" for one in found]

    async def _called(self, tool: str, arguments: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        """A tool error without a session is a request fault; any other tool error is the outcome of a delegation."""
        answer = await self._client.call_tool(tool, arguments, progress_callback=progress)
        document = dict(answer.structured_content or {})
        if answer.is_error and "session_id" not in document:
            error = document["errors"][0]
            raise ApiFault(error["code"], None, error["message"])
        return document

    async def _seen(self, document: Mapping[str, Any]) -> Seen:
        if "shortened" in document:
            document = {"state": document["state"], **await self._whole(document["session_id"])}
        errors = document.get("errors") or []
        return Seen(
            task_id=document["session_id"] if "session_id" in document else document["metadata"]["session_id"],
            shown=document["state"],
            status=document.get("status"),
            stop_reason=document.get("stop_reason"),
            data=document.get("data"),
            summary=document.get("summary", ""),
            code=errors[0]["code"] if errors else None,
            artifacts=tuple(artifact["path"] for artifact in document.get("artifacts") or ()),
        )

    async def _whole(self, session_id: str) -> dict[str, Any]:
        text = ""
        offset: int | None = 0
        while offset is not None:
            asked = {"session_id": session_id, "offset": offset, "wait_ms": 0}
            page = (await self._called("delegation_result", asked))["page"]
            text, offset = text + page["text"], page.get("next_offset")
        return dict(json.loads(text))


async def mcp_client(closing: contextlib.AsyncExitStack, url: str, token: str) -> McpClient:
    """`url`: URL of the server's `/mcp`."""
    headers, is_tls = {"Authorization": f"Bearer {token}"}, url.startswith("https:")
    http = await closing.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=30, verify=is_tls))
    client = await closing.enter_async_context(Client(streamable_http_client(url, http_client=http)))
    return McpClient(client)
