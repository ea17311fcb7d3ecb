"""Four mistakes of agents, and what their returns say about them."""

import asyncio

from remit import Context, Remit, RemitError, agent


@agent("ratio", isolation="process")
def ratio(of: int, to: int) -> float:
    """Raises in a process of its own."""
    return of / to


@agent("count")
async def count() -> int:
    """Returns what its annotation does not promise."""
    return "three"  # type: ignore[return-value]


@agent("report")
async def report(ctx: Context) -> str:
    """Forgets to await."""
    ctx.delegate("count")  # type: ignore[unused-coroutine]
    return "Counted."


async def main() -> None:
    async with Remit.open(".", agents=[ratio, count, report]) as remit:
        for name, parameters in (("ratio", {"of": 1, "to": 0}), ("count", {}), ("report", {})):
            done = await remit.delegate(name, **parameters)
            print(done.status, done.errors[0].code, done.errors[0].message)
            print("".join(line for line in done.traceback.splitlines(keepends=True) if "File" not in line), end="")
    try:
        agent("slow", timout=5)  # type: ignore[call-overload]
    except RemitError as error:
        print(error)


if __name__ == "__main__":
    asyncio.run(main())
