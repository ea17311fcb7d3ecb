"""Two agents fail; their errors become one task with a diagnosis and a plan."""

import asyncio

from remit import Board, Remit, agent, errors_to_task


@agent("reader")
async def reader(path: str) -> str:
    """Reads what is not there."""
    raise FileNotFoundError(f"no such file: {path}")


@agent("counter")
async def counter() -> int:
    """Cannot count."""
    raise ZeroDivisionError("division by zero")


@agent("error-diagnostics-agent")
async def diagnose(task: str) -> dict[str, object]:
    """Stands in for a coding agent or a model."""
    return {"status": "completed", "summary": "A file is missing. A divisor is 0.", "data": {"report": "# Diagnosis\n\nTwo causes.\n"}}


async def main() -> None:
    async with Remit.open(".", agents=[reader, counter]) as remit:
        for path in ("a.txt", "b.txt"):
            await remit.delegate("reader", path=path)
        await remit.delegate("counter")
    async with Remit.open(".", agents=[diagnose]) as remit:
        outcome = await errors_to_task(remit, Board(remit.root))
        print(f"task {outcome.task_number} [{outcome.task_status}]")
        for group in outcome.data["groups"]:
            print(f"- {group['name']}: {len(group['errors'])} in the ledger")
        print({entry.fix_status for entry in remit.ledger.entries()})
        print((await errors_to_task(remit, Board(remit.root))).summary)


if __name__ == "__main__":
    asyncio.run(main())
