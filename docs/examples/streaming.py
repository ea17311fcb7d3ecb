"""Start, look on, cancel; and a key that makes asking twice the same as asking once."""

import asyncio

from remit import Context, Remit, agent


@agent("counter", timeout=60)
async def counter(ctx: Context) -> None:
    for number in range(1000):
        ctx.emit(number)
        await asyncio.sleep(0.01)


async def main() -> None:
    async with Remit.open(".", agents=[counter]) as remit:
        running = await remit.start("counter", key="count-once")
        async for event in running.stream():
            if event.kind == "data" and event.body["chunk"] == 5:
                print("cancelled:", [node["state"] for node in await running.cancel("seen enough")])
        done = await running.result()
        print(done.status, done.stop_reason, done.data["chunks"][:6])
        again = await remit.delegate("counter", key="count-once")
        print("asked again with its key:", "the same delegation" if again.session_id == done.session_id else "another one")


if __name__ == "__main__":
    asyncio.run(main())
