"""`remit worker` as a separate process."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path


@contextlib.asynccontextmanager
async def worker_command(
    root: Path, environment: Mapping[str, str] | None = None, *options: str
) -> "AsyncIterator[asyncio.subprocess.Process]":
    """Yields when the worker accepts work; kills it at the end unless it has exited."""
    words = [sys.executable, "-m", "remit", "worker", "--json", *options]
    process = await asyncio.create_subprocess_exec(
        *words, cwd=root, env={**os.environ, **(environment or {})}, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readuntil(b"\n}\n"), 120)
        assert json.loads(said).get("event") == "working", said
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
