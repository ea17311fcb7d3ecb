"""A group hands each task to the member that succeeded most with tasks of its language."""

import asyncio

from remit import Context, Remit, agent


def _language(ctx: Context) -> str:
    return (ctx.task and ctx.task.language) or "general"


@agent("alpha", effects=("read",))
async def alpha(ctx: Context) -> str:
    if _language(ctx) != "python":
        raise ValueError("alpha only knows Python")
    return "alpha"


@agent("beta", effects=("read",))
async def beta(ctx: Context) -> str:
    if _language(ctx) != "lean":
        raise ValueError("beta only knows Lean")
    return "beta"


async def main() -> None:
    groups = {"agents": {"coders": {"group": ["alpha", "beta"], "by": "success"}}}
    async with Remit.open(".", agents=[alpha, beta], settings=groups) as remit:
        for language in ("lean", "lean", "python", "lean"):
            done = await remit.delegate("coders", task={"language": language})
            tried = [one["member"] for one in done.metadata.extra["route"]["tried"]]
            print(f"{language}: {done.data}, after {tried}")


asyncio.run(main())
