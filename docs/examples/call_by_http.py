"""A client of `remit serve` over HTTP: one piece of work, its events, one that outlives the connection, and a faulty request."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

AGENTS = '''
import asyncio

from remit import Context, agent


@agent("text.count")
async def count(ctx: Context, words: str) -> int:
    """Counts words."""
    ctx.progress("Counting.")
    return len(words.split())


@agent("sleeper", timeout=60)
async def sleeper(ctx: Context, seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "Awake."
'''


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[httpx.AsyncClient]:
    """`remit serve` here, and a client with the token of its owner."""
    command = [sys.executable, "-m", "remit", "serve", "--api", "http", "--http", "127.0.0.1:0", "--json", "--root", "."]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    said = json.loads(await server.stdout.readuntil(b"\n}\n"))
    token = Path(said["token_file"]).read_text().strip()  # noqa: ASYNC240 - a line
    try:
        async with httpx.AsyncClient(base_url=said["apis"]["http"], headers={"Authorization": f"Bearer {token}"}) as client:
            yield client
    finally:
        server.terminate()
        await server.wait()


async def main() -> None:
    async with serving() as client:
        # Begin it and wait: 201 when it has ended.
        counting = {"target": "text", "operation": "count", "parameters": {"words": "to be or not to be"}}
        done = await client.post("tasks?wait=30", json=counting)
        print(done.status_code, done.json()["taskState"], done.json()["data"])

        # Begin it and follow it in one: server-sent events.
        async with client.stream("POST", "tasks", json=counting, headers={"Accept": "text/event-stream"}) as stream:
            events = [line.removeprefix("event: ") async for line in stream.aiter_lines() if line.startswith("event: ")]
        print("events:", *events)

        # Begin it and leave: 202, and where it will be. The key makes asking again safe.
        sleeping = {"target": "sleeper", "parameters": {"seconds": 1}}
        begun = await client.post("tasks", json={**sleeping, "key": "nap-1"})
        again = await client.post("tasks", json={**sleeping, "key": "nap-1"})
        print(begun.status_code, "the same task:", begun.headers["location"] == again.headers["location"])
        later = await client.get(f"tasks/{begun.json()['taskId']}?wait=30", timeout=60)
        print("later:", later.json()["data"])

        # A request that cannot be carried out says what would be right.
        wrong = await client.post("tasks", json={"target": "text", "operation": "cuont"})
        print(wrong.status_code, wrong.json()["code"], "-", wrong.json()["advice"])


if __name__ == "__main__":
    folder = Path(".remit", "agents")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(AGENTS)
    asyncio.run(main())
