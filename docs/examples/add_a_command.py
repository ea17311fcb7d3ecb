"""A command file of the project, called with arguments."""

import asyncio
from pathlib import Path

from remit import Remit, agent, bind_command, find_command, run_command

COMMAND = """\
---
description: Say what a file is about
agent: librarian
argument-hint: "[file] [words]"
timeout: 60
---
Say in one sentence what $1 is about. Asked for in particular: $ARGUMENTS
"""


@agent("librarian")
async def librarian(task: str) -> str:
    """Answers; a coding agent would do it better."""
    return f"I was asked:\n{task}"


async def main() -> None:
    command = find_command(Path.cwd(), "about")
    assert command is not None
    found = bind_command(Path.cwd(), command)
    async with Remit.open(".", agents=[librarian], settings=found.settings) as remit:
        result = await run_command(remit, command, ["README.md", "cost $5 and $ARGUMENTS"], found)
        print(result.data)
        record = await remit.describe(result.session_id)
        print(" → ".join(record.path))


Path(".remit/commands").mkdir(parents=True)
Path(".remit/commands/about.md").write_text(COMMAND)
asyncio.run(main())
