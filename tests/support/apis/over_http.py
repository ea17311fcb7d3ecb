"""The REST API through httpx."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx

from support.apis.client import ApiFault, Page, Said, Seen
from support.apis.traits import HTTP


class HttpClient:
    traits = HTTP

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        """`http` has the server's address as its base URL; the caller closes it."""
        self._http = http
        self._headers = {"authorization": f"Bearer {token}"}

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        return str((await self._asked("POST", "/v1/tasks", json=dict(arguments)))["taskId"])

    async def status(self, task_id: str) -> Seen:
        return _seen(await self._asked("GET", f"/v1/tasks/{task_id}"))

    async def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        headers = self._headers | ({"last-event-id": str(after)} if after else {})
        async with self._http.stream("GET", f"/v1/tasks/{task_id}/events", headers=headers) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise _fault(answer)
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                elif "event" in fields:
                    yield _said(fields["event"], int(fields.get("id", 0)), json.loads(fields["data"])["data"])
                    fields = {}

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        return _seen((await self._asked("POST", f"/v1/tasks/{task_id}/cancel", json={"reason": reason}))["task"])

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        asked = {"session": session, "state": shown, "agent": agent, "limit": size, "cursor": page}
        answer = await self._asked("GET", "/v1/tasks", params={name: value for name, value in asked.items() if value is not None})
        return Page([task["taskId"] for task in answer["tasks"]], answer["next"])

    async def agents(self) -> Sequence[str]:
        return [one["name"] for one in (await self._asked("GET", "/v1/agents"))["agents"]]

    async def _asked(self, method: str, path: str, **more: Any) -> Any:
        answer = await self._http.request(method, path, headers=self._headers, **more)
        if answer.status_code >= 400:
            raise _fault(answer)
        return answer.json()


def _seen(task: Mapping[str, Any]) -> Seen:
    error, meta = task["error"], task["metadata"]
    return Seen(
        task_id=task["taskId"],
        shown=task["taskState"],
        status=meta["status"],
        stop_reason=meta["stopReason"],
        data=task["data"],
        summary=task["output"],
        code=None if error is None else error.get("details", {}).get("code"),
        artifacts=tuple(artifact["path"] for artifact in task["artifacts"]),
    )


def _said(event: str, number: int, data: Mapping[str, Any]) -> Said:
    if event in ("complete", "error"):
        return Said(kind="end", number=number, seen=_seen(data["result"]))
    return Said(kind=event, number=number, value=data["chunk"] if event == "data" else data["message"])


def _fault(answer: httpx.Response) -> ApiFault:
    problem = answer.json()
    return ApiFault(problem["code"], answer.status_code, problem["detail"])
