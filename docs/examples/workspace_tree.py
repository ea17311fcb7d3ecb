"""A writer in a worktree, and those it hands work to: they work in the same folder."""

import asyncio
import subprocess
from pathlib import Path

from remit import Context, Remit, agent

SHOP = Path("shop")


@agent("writer", workspace="worktree", merge=True, timeout=60)
async def writer(ctx: Context) -> str:
    (ctx.workspace / "menu.txt").write_text("soup\n")
    await ctx.delegate("pricer")
    await ctx.delegate("baker")
    print("in the worktree:", files(ctx.workspace))
    print("in the shop:", files(SHOP))
    return "The menu has grown."


@agent("pricer", timeout=30)
async def pricer(ctx: Context) -> str:
    """Shared, with its caller: it works in the writer's worktree."""
    menu = ctx.workspace / "menu.txt"
    menu.write_text(menu.read_text().replace("soup", "soup, 4 euros"))
    return "Priced."


@agent("baker", workspace="worktree", merge=True, timeout=30)
async def baker(ctx: Context) -> str:
    """Declared with a worktree, which it has only when no caller has one: it works in the writer's, too."""
    print("the baker reads:", (ctx.workspace / "menu.txt").read_text().strip())
    (ctx.workspace / "bread.txt").write_text("rye\n")
    return "Baked."


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.txt"))


async def main() -> None:
    async with Remit.open("shop", agents=[writer, pricer, baker]) as remit:
        result = await remit.delegate("writer")
    print(result.status, "in the shop:", files(SHOP))


def new_shop() -> None:
    """A repository with one commit, for the example."""
    SHOP.mkdir()
    (SHOP / "open.txt").write_text("from nine to five\n")
    someone = ("-c", "user.name=you", "-c", "user.email=you@example.org")
    for command in (("init", "-q"), ("add", "."), (*someone, "commit", "-q", "-m", "Open the shop")):
        subprocess.run(["git", *command], cwd=SHOP, check=True)


if __name__ == "__main__":
    new_shop()
    asyncio.run(main())
