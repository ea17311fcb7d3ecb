"""A remit server for A2A in its own process: `python a2a_remote_server.py ROOT`. Prints its URL and tokens as JSON.

The agent `relay` delegates to `near`, the server at NEAR_URL; `slow` records that it was stopped.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from remit import Context, agent
from support.server import Permission


@agent("place")
async def place(ctx: Context) -> dict[str, Any]:
    return {"depth": ctx.depth, "path": list(ctx.path), "left": ctx.remaining}


@agent("relay")
async def relay(ctx: Context) -> dict[str, Any]:
    """Delegates back to the calling server."""
    back = await ctx.delegate("near")
    return {"status": str(back.status), "codes": [error.code for error in back.errors], "words": back.summary}


@agent("slow")
async def slow(ctx: Context) -> str:
    ctx.progress("Working.")
    try:
        await asyncio.sleep(60)
    finally:
        Path("stopped").write_text(ctx.session_id)  # noqa: ASYNC240 - the agent ends here
    return "never"


async def main(root: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from a2a_harness import a2a_harness

    os.chdir(root)
    near = {"a2a": os.environ["NEAR_URL"], "remote": "far-relay", "token_variable": "NEAR_TOKEN"}
    async with a2a_harness(root, [place, relay, slow], agents={"near": near}) as harness:
        trusted = harness.token("near", frozenset({Permission.DELEGATE, Permission.RELAY}))
        print(json.dumps({"url": harness.url, "trusted": trusted, "stranger": harness.token("stranger")}), flush=True)
        with contextlib.suppress(EOFError):
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the test closes stdin


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
