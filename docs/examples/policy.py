"""Rules of one's own: who may do what to which files, and when a person is asked."""

import asyncio
from pathlib import Path

from remit import Context, Remit, agent

RULES = """
@id("agents-may-work")
permit (principal, action, resource);

@id("docs-only")
@because("{caller} writes documents, and {path} is none.")
@advice("Write below docs/.")
forbid (principal == Agent::"writer", action in Action::"write", resource)
unless { context has path && context.path like "docs/*" };

@id("ask-before-publishing")
@ask("{caller} wants to publish {path}.")
permit (principal, action == Action::"publish", resource);
"""


@agent
async def writer(ctx: Context) -> None:
    for path in ("docs/guide.md", "setup.py"):
        written = await ctx.delegate("worker.write_file", path=path, content="# Guide\n", createParents=True)
        print(path, written.status, *(error.message for error in written.errors))
    published = await ctx.delegate("publish", path="docs/guide.md")
    print("publish", published.status)


@agent(effects=("network",), acts_on={"path": "path"})
async def publish(ctx: Context, path: str) -> str:
    return "published"


class Somebody:
    """Asks a person: here one who always says yes."""

    async def approve(self, asked: object, decision: object, seconds: float) -> tuple[bool, str]:
        print("?", getattr(decision, "question", ""))
        return True, "Ada"


async def main() -> None:
    async with Remit.open(".", agents=[writer, publish], approver=Somebody()) as remit:
        await remit.delegate("writer")


if __name__ == "__main__":
    Path(".remit").mkdir(exist_ok=True)
    Path(".remit/policy.cedar").write_text(RULES)
    asyncio.run(main())
