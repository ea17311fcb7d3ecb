"""Several delegations declared as one: results are passed on by reference, without a model or a program in between."""

import asyncio
from pathlib import Path

from remit import Remit, agent, call, each, first, parallel, sequence


@agent("count")
def count(path: str) -> dict[str, int]:
    return {"words": len(Path(path).read_text().split())}


@agent("report")
async def report(counts: list[dict[str, int]], title: str = "Words") -> str:
    return f"{title}: {', '.join(str(one['words']) for one in counts)}"


@agent("slow", timeout=30)
async def slow() -> str:
    await asyncio.sleep(20)
    return "slow"


async def main() -> None:
    async with Remit.open(".", agents=[count, report, slow]) as remit:
        done = await remit.delegate(
            sequence(
                call("worker.list_files", path="notes", pattern="*.txt"),
                counts=each(call("count", path={"$": "item#/path"}), over="0#/entries", limit=4),
                text=call("report", counts={"$": "counts"}),
                result="text",
            ),
            timeout=60,
        )
        print(done.status, done.data)

        both = await remit.delegate(parallel(call("count", path="notes/a.txt"), call("count", path="lost.txt"), need="any"))
        print(both.status, both.data)

        quick = await remit.delegate(first("slow", call("count", path="notes/b.txt")))
        print(quick.data, [one.state.value for one in await remit.children(quick.session_id)])

        wrong = await remit.delegate(sequence("slow", call("report", counts={"$": "count"})))
        print(wrong.errors[0].message)

        one, two = await remit.gather(call("count", path="notes/a.txt"), call("count", path="notes/b.txt"), limit=2)
        print(one.data, two.data)


if __name__ == "__main__":
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("one two")
    Path("notes/b.txt").write_text("three four five")
    asyncio.run(main())
