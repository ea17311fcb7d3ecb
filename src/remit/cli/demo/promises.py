"""The three children of the demo that misbehave, each in its way, so that what remit promises can be seen.

Function agents like any other. `demo.stuck` is carried out in a process of its own: only a process can be stopped whatever it does.
"""

import json
from typing import Any

from remit.agents.blocking import BlockingContext
from remit.agents.function import agent
from remit.flow.context import Context

STUCK_SECONDS = 3.0
HALF_FILE = "findings.md"


@agent("demo.stuck", isolation="process", workspace="scratch", timeout=STUCK_SECONDS, description="Writes half a file, then never ends.")
def stuck(ctx: BlockingContext) -> str:
    ctx.progress("writing findings.md", 0.5)
    with open(ctx.scratch / HALF_FILE, "w", encoding="utf-8") as file:
        file.write("# Findings\n\n1. The first half of this file was written before its author got stuck.\n2. The second half wa")
    ctx.progress("stuck in an endless loop")
    while True:
        pass


@agent("demo.prose", answers="return", workspace="none", timeout=20, description="Answers in prose, until it is told what is missing.")
async def prose(ctx: Context, files: int) -> str:
    """Plays a language model that forgets the format: the ladder of S3.7 asks it once more, with the exact faults."""
    if ctx.repair is None:
        ctx.progress("answering in prose")
        return f"Sure! I had a look around and counted {files} files. It all looks fine to me, let me know if you need more."
    ctx.progress(f"asked again: {ctx.repair.faults[0]}")
    answer = {
        "status": "completed",
        "summary": f"Counted {files} files. The first answer was prose, so this one was asked for.",
        "artifacts": [],
        "metadata": {
            "session_id": ctx.session_id,
            "agent_type": "demo.prose",
            "delegation_depth": ctx.depth,
            "delegation_path": list(ctx.path),
        },
        "errors": [],
        "data": {"files": files},
    }
    return f"My apologies, here it is:\n\n```json\n{json.dumps(answer, indent=2)}\n```\n"


@agent("demo.circle", workspace="none", timeout=20, description="Asks the agent that called it to do its work.")
async def circle(ctx: Context) -> dict[str, Any]:
    """The target stands in its own path: the guard refuses, and nothing runs (S1.4, S1.5)."""
    ctx.progress("delegating back to demo.survey")
    refused = await ctx.delegate("demo.survey", folder=".")
    error = refused.errors[0]
    return {
        "status": "completed",
        "summary": f"Asked demo.survey, its own caller. The answer was {error.code}.",
        "data": {"stop_reason": str(refused.stop_reason), "code": error.code, "message": error.message},
    }
