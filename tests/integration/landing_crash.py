"""A program that implements task 1 of a project and kills itself (kill -9) at the named point. Run by test_landing."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from landing_harness import GREEN, Writer, writes

from remit import Board, Remit
from remit import implement_task as implement
from remit.runtime import workspaces
from remit.system.git import Git
from support.boards import merge_work

PROJECT, WHERE = Path(sys.argv[1]), sys.argv[2]


class DyingGit(Git):
    """A git that kills the program as soon as work has landed."""

    __slots__ = ()

    def run(self, *arguments: str, **more: object) -> bytes:
        answer = super().run(*arguments, **more)  # type: ignore[arg-type]
        if (arguments[0], WHERE) == ("merge", "landed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


async def main() -> None:
    workspaces.Git = DyingGit  # type: ignore[misc]
    dying = f"sleep 60.{os.getpid():09} & sleep 0.2; kill -9 {os.getpid()}; wait"
    accept = f"if test -e new.txt; then {dying}; fi" if WHERE == "accepting" else GREEN
    workspace = {"accept": [accept], "setup": [dying] if WHERE == "setting up" else []}
    writer = Writer(writes("new.txt"))
    async with Remit.open(PROJECT, agents=writer.agents(), settings={"workspace": workspace, "accept_in": "host"}) as remit:
        await (merge_work if WHERE == "landed" else implement)(remit, Board(PROJECT), 1)


asyncio.run(main())
