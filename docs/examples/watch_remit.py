"""Starts and ends of delegations, and the span by which other programs' traces go on from it."""

import asyncio

from remit import Context, LifecycleEvent, Remit, agent, span_id_of


@agent("shelf.look")
async def look(ctx: Context, title: str) -> str:
    _, _, span_id, _ = ctx.environment()["TRACEPARENT"].split("-")
    assert span_id == span_id_of(ctx.session_id)
    return f"{title} is on the second shelf."


def show(one: LifecycleEvent) -> None:
    print(one.kind, one.agent, one.state)


async def main() -> None:
    async with Remit.open(".", agents=[look]) as remit:
        remit.on_event(show)
        await remit.delegate("shelf.look", title="Emma")


if __name__ == "__main__":
    asyncio.run(main())
