"""Who is told what happens, and how it went in numbers."""

import asyncio

from remit import Remit, agent


@agent("shelf.look")
async def look(title: str) -> str:
    return f"{title} is on the second shelf."


@agent("shelf.lend")
async def lend(title: str) -> str:
    raise LookupError(f"{title} is lent out")


async def main() -> None:
    async with Remit.open(".", agents=[look, lend]) as remit:
        stop = remit.on_event(lambda one: print(one.kind, one.target, one.operation, one.error.message if one.error else ""))
        await remit.delegate("shelf.look", title="Emma")
        await remit.delegate("shelf.lend", title="Emma")
        stop()
        metrics = await remit.metrics(since_seconds=3600)
        print(f"{metrics.total} delegations, {metrics.success.count} of {metrics.success.total} completed")
        for alert in metrics.alerts():
            print("alert:", alert.metric.name, alert.of or "", f"{alert.value:.0%}")


if __name__ == "__main__":
    asyncio.run(main())
