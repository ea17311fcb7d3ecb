"""An agent in a process of its own delegates by the command line and by the library: one tree, under one set of limits."""

import asyncio
import subprocess
import sys

from remit import Remit, agent, run


@agent("shout")
async def shout(word: str) -> str:
    return word.upper()


@agent("whisper")
async def whisper(word: str) -> str:
    return f"({word})"


@agent("shell", isolation="process", timeout=60)
def shell() -> list[str]:
    words = [sys.executable, "-m", "remit", "delegate", "shout", "word=hello"]
    by_command = subprocess.run(words, cwd="/", capture_output=True, check=False)
    by_library = run("whisper", word="hello")  # executed by the owner of the tree
    by_library_again = run("shell")  # itself: a cycle, here as anywhere
    return [f"exit {by_command.returncode}", by_library.data, by_library_again.errors[0].code]


async def main() -> None:
    async with Remit.open(".", agents=[shout, whisper, shell]) as remit:
        done = await remit.delegate("shell")
        print(done.data)
        for record in await remit.tree(done.session_id):
            print(f"{'  ' * record.depth}{record.agent}: {record.state}")


if __name__ == "__main__":
    asyncio.run(main())
