"""Tasks over the REST API: start, read, stream, idempotency keys and shutdown, over a real port."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from http_harness import Harness, events_of, http_harness

COUNT = {"target": "text", "operation": "count", "parameters": {"text": "one two three"}}
SLOW = {"target": "slow", "parameters": {"seconds": 30}}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with http_harness(tmp_path_factory.mktemp("served")) as opened:
        yield opened


async def start_task(client: Any, request: dict[str, Any] = SLOW) -> str:
    return str((await client.post("/v1/tasks", json=request)).json()["taskId"])


async def test_post_without_wait_returns_202_and_the_location(harness: Harness) -> None:
    client = await harness.client()
    answer = await client.post("/v1/tasks", json=SLOW)
    assert (answer.status_code, answer.json()["success"]) == (202, False)
    assert answer.json()["taskState"] in ("QUEUED", "RUNNING")
    assert (await client.get(answer.headers["location"])).json()["taskState"] == "RUNNING"


@pytest.mark.parametrize(("body", "status", "code"), [({"target": "unknown"}, 404, "INVALID_TARGET"), ([], 400, "INVALID_PARAMETERS")])
async def test_invalid_request_is_a_problem_document(harness: Harness, body: Any, status: int, code: str) -> None:
    """RFC 9457."""
    answer = await (await harness.client()).post("/v1/tasks", json=body)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["detail"]
    assert problem["details"]


async def test_post_can_start_and_stream_a_task_and_its_events_can_be_read_again(harness: Harness) -> None:
    client = await harness.client()
    async with client.stream("POST", "/v1/tasks", json=COUNT, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        events = await events_of(answer)
    assert events[0][2]["taskId"] == answer.headers["location"].rpartition("/")[2]
    assert (events[-1][0], events[-1][2]["data"]["result"]["data"]) == ("complete", 3)
    async with client.stream("GET", f"{answer.headers['location']}/events?after=0") as answer:
        assert [number for _, number, _ in await events_of(answer)] == [number for _, number, _ in events]
    faulty = await client.post("/v1/tasks", json={"target": "unknown"}, headers={"Accept": "text/event-stream"})
    assert (faulty.status_code, faulty.json()["code"]) == (404, "INVALID_TARGET")


async def test_trailing_slash_and_empty_json_body_make_no_difference(harness: Harness) -> None:
    client = await harness.client()
    task_id = (await client.post("/v1/tasks/", json=SLOW)).json()["taskId"]
    assert (await client.get(f"/v1/tasks/{task_id}/")).json()["taskId"] == task_id
    cancelled = await client.post(f"/v1/tasks/{task_id}/cancel", headers={"Content-Type": "application/json"})
    assert (cancelled.status_code, cancelled.json()["task"]["taskState"]) == (200, "CANCELLED")


async def test_stopping_server_refuses_tasks_and_ends_streams(tmp_path: Path) -> None:
    async with http_harness(tmp_path) as harness:
        await check_shutdown(harness, await harness.client())


async def check_shutdown(harness: Harness, client: Any) -> None:
    task_id = await start_task(client)
    assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    harness.service.is_stopping = True
    assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 503]
    refused = await client.post("/v1/tasks", json=COUNT)
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "STOPPING", "1")
    async with client.stream("GET", f"/v1/tasks/{task_id}/events") as answer:
        lines = answer.aiter_lines()
        async for line in lines:
            if line == "event: data":
                break
        stopping = asyncio.create_task(harness.server.stop(grace_seconds=20))
        rest = [line async for line in lines]
        await stopping
    assert not any(line.startswith(("event: complete", "event: error")) for line in rest)
    assert harness.server.connections == 0
