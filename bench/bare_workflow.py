"""A worker with one workflow of one activity, without remit: the floor of `bench.remote`."""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


@activity.defn
async def one() -> int:
    return 1


@workflow.defn(name="bare", sandboxed=False)
class Bare:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(one, start_to_close_timeout=timedelta(seconds=30))


async def main(address: str) -> None:
    worker = Worker(
        await Client.connect(address),
        task_queue="bare",
        workflows=[Bare],
        activities=[one],
        workflow_runner=UnsandboxedWorkflowRunner(),
        disable_eager_activity_execution=True,
    )
    async with worker:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
