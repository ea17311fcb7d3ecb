"""A program that kills itself (kill -9) while its agent works or during a merge.

Run by test_workspaces, test_workspace_command and test_landing.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from landing_harness import GREEN, Writer, writes

from remit import Board, Context, Remit, agent
from remit import implement_task as implement
from remit.runtime import workspaces
from remit.system.git import Git
from support.boards import merge_work
from support.repository import git

PROJECT, WHERE = sys.argv[1:]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@agent("dies", workspace="worktree", merge=True, timeout=30)
async def dies(ctx: Context) -> str:
    if WHERE == "unchanged":
        die()
    (ctx.workspace / "half.txt").write_text("half\n")
    if WHERE == "agent":
        die()
    return "done"


@agent("queues", workspace="worktree", merge="queue", timeout=30)
async def queues(ctx: Context) -> str:
    (ctx.workspace / "half.txt").write_text("half\n")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    git(Path(PROJECT), *identity, "commit", "-q", "--allow-empty", "-m", "meanwhile")  # so that its work lands under another commit
    return "done"


class DyingGit(Git):
    """A git that kills the program at the moment in question."""

    __slots__ = ()

    def run(self, *arguments: str, **more: object) -> bytes:
        if (arguments[0], WHERE) == ("merge", "before"):
            die()
        answer = super().run(*arguments, **more)  # type: ignore[arg-type]
        if arguments[0] == "merge" and WHERE in ("after", "task after", "queued"):
            die()
        return answer

    def asks(self, *arguments: str) -> bool:
        if arguments[0] == "merge-base" and WHERE == "joined":
            die()
        return super().asks(*arguments)


async def implement_task() -> None:
    """Of a board: killed while its worktree is set up or its work is accepted, or when it has landed."""
    dying = f"sleep 60.{os.getpid():09} & sleep 0.2; kill -9 {os.getpid()}; wait"
    accept = f"if test -e new.txt; then {dying}; fi" if WHERE == "task accepting" else GREEN
    workspace = {"accept": [accept], "setup": [dying] if WHERE == "task setting up" else []}
    settings = {"workspace": workspace, "accept_in": "host"}
    async with Remit.open(PROJECT, agents=Writer(writes("new.txt")).agents(), settings=settings) as remit:
        await (merge_work if WHERE == "task after" else implement)(remit, Board(Path(PROJECT)), 1)


async def main() -> None:
    workspaces.Git = DyingGit  # type: ignore[misc]
    if WHERE.startswith("task"):
        await implement_task()
        return
    settings = {"workspace": {"accept": ["test -e half.txt"]}}
    if WHERE == "accepting":
        settings = {"workspace": {"accept": [f"sleep 60.{os.getpid():09} & kill -9 {os.getpid()}; wait"]}, "accept_in": "host"}
    async with Remit.open(PROJECT, agents=[dies, queues], settings=settings) as remit:
        name = "queues" if WHERE in ("queued", "accepting") else "dies"
        await remit.delegate(name)


asyncio.run(main())
