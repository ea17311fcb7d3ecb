"""Approve a project: its agents run nothing before that, and a change asks again."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from remit import Remit

SETTINGS = '[agents.shout]\ncommand = "tr a-z A-Z"\nanswers = "value"\n'
os.environ.pop("REMIT_TRUST", None)


async def ask() -> str:
    async with Remit.open(".") as remit:
        done = await remit.delegate("shout", task="hello")
        return done.errors[0].code if done.errors else str(done.data)


def trust(*options: str) -> None:
    """A person would type `remit trust` and answer the question."""
    print("$ remit trust", *options, flush=True)
    subprocess.run([sys.executable, "-m", "remit", "trust", *options], check=False)


Path("remit.toml").write_text(SETTINGS)
print("cloned:", asyncio.run(ask()))
trust("--yes")
print("approved:", asyncio.run(ask()))
Path("remit.toml").write_text(SETTINGS.replace("tr a-z A-Z", "rev"))
print("changed:", asyncio.run(ask()))
trust("--list")
