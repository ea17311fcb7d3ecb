"""Every step of a delegation, as it is reached, and the span by which other programs' traces go on from it."""

import asyncio

from remit import Context, LifecycleEvent, LifecycleKind, Remit, agent, span_id_of


@agent("shelf.look")
async def look(ctx: Context, title: str) -> str:
    ctx.progress("looking")
    _, _, span_id, _ = ctx.environment()["TRACEPARENT"].split("-")
    assert span_id == span_id_of(ctx.session_id)
    return f"{title} is on the second shelf."


def show(one: LifecycleEvent) -> None:
    print(one.kind, one.body.get("step") or one.body.get("message") or one.state)


async def main() -> None:
    async with Remit.open(".", agents=[look]) as remit:
        remit.on_event(show, frozenset(LifecycleKind))
        await remit.delegate("shelf.look", title="Emma")


if __name__ == "__main__":
    asyncio.run(main())
