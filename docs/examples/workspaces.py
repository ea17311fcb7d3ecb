"""Work in a git worktree: looked at, proven and merged, or kept on a branch when it cannot be."""

import asyncio
import subprocess
from pathlib import Path

from remit import Context, Remit, agent

PRICE = Path("shop/price.txt")


@agent("price", workspace="worktree", merge=True, timeout=60)
async def price(ctx: Context, euros: int) -> str:
    (ctx.workspace / "price.txt").write_text(f"{euros} euros\n")
    return f"The price is {euros} euros."


def in_the_shop() -> str:
    return PRICE.read_text().strip()


def edit_by_hand() -> None:
    PRICE.write_text("not committed yet\n")


async def main() -> None:
    async with Remit.open("shop", agents=[price]) as remit:
        good = await remit.delegate("price", euros=12, accept=["grep -q 12 price.txt"])
        print(good.status, good.evidence, in_the_shop(), sep=", ")

        bad = await remit.delegate("price", euros=99, accept=["grep -q 12 price.txt"])
        print(bad.status, bad.errors[0].code, in_the_shop(), sep=", ")

        edit_by_hand()
        late = await remit.delegate("price", euros=13)
        print(late.status, late.errors[0].code, in_the_shop(), sep=", ")
        print("kept on its branch:", late.extra["workspace"]["branch"] == f"remit/{late.session_id}")


def new_shop() -> None:
    """A repository with one commit, for the example."""
    Path("shop").mkdir()
    PRICE.write_text("10 euros\n")
    someone = ("-c", "user.name=you", "-c", "user.email=you@example.org")
    for command in (("init", "-q"), ("add", "."), (*someone, "commit", "-q", "-m", "Open the shop")):
        subprocess.run(["git", *command], cwd="shop", check=True)


if __name__ == "__main__":
    new_shop()
    asyncio.run(main())
