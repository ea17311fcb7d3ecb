"""Agents registered with the server of a project are available at the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

from remote_agent_harness import joined, remote_agent_harness

from forking import run
from support.server import announce, withdraw

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}


async def test_registered_agent_is_listed_and_delegated_to_by_the_cli(tmp_path: Path) -> None:
    async def remit(*words: str) -> Any:
        return await asyncio.to_thread(run, ["-m", "remit", *words], tmp_path)

    (tmp_path / "remit.toml").write_text("")
    async with remote_agent_harness(tmp_path) as harness:
        announce(tmp_path / ".remit" / "run", grpc=harness.address, http=None, token_file=None)
        far = await joined(harness, schema=SCHEMA)
        done = await remit("delegate", "words.count", "text=one two three", "--json")
        assert (done.returncode, json.loads(done.stdout)["data"]) == (0, 3), done.stderr
        session_id = json.loads(done.stdout)["metadata"]["session_id"]
        assert (await harness.remit.describe(session_id)).agent == "words.count"  # the server ran it
        assert len(far.orders) == 1
        apart, wrong, unknown = await asyncio.gather(
            remit("delegate", "words", "count", "text=one two"),
            remit("delegate", "words.count", "words=one"),
            remit("delegate", "wods.count", "text=one"),
        )
        assert apart.returncode == 0
        assert "'text' is required" in wrong.stderr
        assert "There is no agent named 'wods.count'" in unknown.stdout
        shown = await remit("agents", "words.count")
        assert "Counts words." in shown.stdout
        assert "the server of this project" in shown.stdout
        withdraw(tmp_path / ".remit" / "run")
    gone = await remit("delegate", "words.count", "text=one")
    assert "There is no agent named 'words.count'" in gone.stdout
