"""`RemitPlugin` and `workflow_delegate`: workflows of other people delegate to the agents of a project."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from remit import Context, Remit, RemitPlugin, State, agent, workflow_delegate
from remit.testing import Scripted, hang
from support.temporal_server import TemporalServer


@workflow.defn
class Asks:
    @workflow.run
    async def run(self, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        result = await workflow_delegate(name, timeout=60, options={"budget": {"delegations": 2}}, **parameters)
        return {"status": str(result.status), "data": result.data, "codes": [one.code for one in result.errors]}


@agent("doubles")
async def doubles(ctx: Context, n: int) -> int:
    return 2 * n


@asynccontextmanager
async def serving(temporal: TemporalServer, remit: Remit) -> AsyncIterator[Client]:
    client = await Client.connect(temporal.address)
    async with Worker(
        client,
        task_queue=str(remit.root),
        workflows=[Asks],
        plugins=[RemitPlugin(remit)],
        graceful_shutdown_timeout=timedelta(0),
    ):
        yield client


async def test_workflow_gets_the_return_of_an_agent_whatever_its_status(temporal: TemporalServer, tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[doubles]) as remit, serving(temporal, remit) as client:

        async def asked(name: str, **parameters: Any) -> Any:
            return await client.execute_workflow(
                "Asks", args=[name, parameters], id=f"{tmp_path}-{name}-{parameters}", task_queue=str(tmp_path)
            )

        assert await asked("doubles", n=4) == {"status": "completed", "data": 8, "codes": []}
        assert (await asked("doubles", n="four"))["codes"] == ["INVALID_PARAMETERS"]
        assert (await asked("missing"))["codes"] == ["INVALID_TARGET"]


async def test_cancelled_workflow_cancels_its_delegation(temporal: TemporalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporal tells an activity by the answer to its heartbeat."""
    monkeypatch.setattr("remit.engines.temporal.plugin.HEARTBEAT_SECONDS", 2.0)
    sleeper = Scripted("sleeper", hang())
    async with Remit.open(tmp_path, agents=[sleeper]) as remit, serving(temporal, remit) as client:
        handle = await client.start_workflow("Asks", args=["sleeper", {}], id=f"{tmp_path}-cancelled", task_queue=str(tmp_path))
        await sleeper.called.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, CancelledError)
        (record,) = await remit.history()
        assert record.state is State.CANCELLED
        assert record.result is not None
        assert "its workflow was cancelled" in record.result.errors[0].message


async def test_retried_activity_finds_the_delegation_that_runs(temporal: TemporalServer, tmp_path: Path) -> None:
    """The worker of the workflow ends; the next one, in another process of the project, waits for the same delegation."""
    go = asyncio.Event()
    ran: list[int] = []

    @agent("waits")
    async def waits() -> str:
        ran.append(1)
        await go.wait()
        return "came"

    async with Remit.open(tmp_path, agents=[waits]) as first, Remit.open(tmp_path, agents=[waits]) as second:
        async with serving(temporal, first) as client:
            handle = await client.start_workflow("Asks", args=["waits", {}], id=f"{tmp_path}-retried", task_queue=str(tmp_path))
            while not ran:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with serving(temporal, second):
            go.set()
            assert (await handle.result())["data"] == "came"
        assert [record.state for record in await second.history()] == [State.COMPLETED]
    assert ran == [1]
