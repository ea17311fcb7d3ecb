"""Delegates to an operation of the coder with a scripted model server."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remit import Remit, Return
from remit.testing import ModelTurn as Turn
from remit.testing import ScriptedModels


async def run_operation(root: Path, script: Sequence[Turn], operation: str, **parameters: Any) -> tuple[Return, list[str]]:
    """The return, and the requests to the model. The last turn of the script repeats."""
    turns = list(script)
    async with ScriptedModels(lambda request: turns.pop(0) if len(turns) > 1 else turns[0]) as server:
        known = {"scripted": {"kind": "openai", "url": server.openai_url, "model": "scripted"}}
        async with Remit.open(root, settings={"model": "scripted", "models": known}) as remit:
            done = await remit.delegate(operation, parameters=parameters, timeout=60)
        return done, [json.dumps(request.body, ensure_ascii=False) for request in server.requests]
