"""One budget for a whole tree: children draw from it and cannot refill it."""

import asyncio

from remit import Context, Remit, agent


@agent("ask", timeout=10)
async def ask(ctx: Context, question: str) -> str:
    ctx.spend(tokens=400, cost=0.01)  # what the model reported
    return f"An answer to {question}"


@agent("study", timeout=60)
async def study(ctx: Context) -> list[str]:
    answers: list[str] = []
    for number in range(10):
        done = await ctx.delegate("ask", question=f"question {number}")
        if not done.ok:
            ctx.emit({"refused": done.errors[0].code})
            break
        answers.append(done.data)
    return answers


async def main() -> None:
    async with Remit.open(".", agents=[ask, study]) as remit:
        done = await remit.delegate("study", budget={"delegations": 4, "tokens": 100_000, "cost": 1.0})
        print(f"{done.status}: {len(done.data)} answers")
        print(done.warnings[0])


if __name__ == "__main__":
    asyncio.run(main())
