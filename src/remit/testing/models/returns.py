"""A return as an agent of remit's should hand it in, made from what the model was asked. For scripts."""

import json
import re
from collections.abc import Sequence
from typing import Any

from remit.testing.models.request import ModelRequest

_TOLD = re.compile(
    r"Take these over as they stand: session_id (?P<session>\S+), agent_type (?P<agent>.+?), "
    r"delegation_depth (?P<depth>\d+), delegation_path (?P<path>\[.*\])\."
)


def valid_return(
    request: ModelRequest,
    summary: str = "Did what was asked. Nothing is left to do.",
    *,
    artifacts: Sequence[str | dict[str, Any]] = (),
    status: str = "completed",
    words: str = "",
    **more: Any,
) -> str:
    """What a good agent answers: the JSON in a fenced block, after `words`. `artifacts` are paths or whole entries; `more` are further
    fields, e.g. `data=…`, `errors=[…]`. Raises `LookupError` when the prompt holds no instruction how to answer."""
    told = list(_TOLD.finditer(request.text))
    if not told:
        raise LookupError("The model was not told how to answer: remit's format instruction does not stand in what it was asked.")
    fields = {
        "status": status,
        "summary": summary,
        "artifacts": [{"type": "report", "path": entry} if isinstance(entry, str) else entry for entry in artifacts],
        "metadata": {
            "session_id": told[-1]["session"],
            "agent_type": told[-1]["agent"],
            "delegation_depth": int(told[-1]["depth"]),
            "delegation_path": json.loads(told[-1]["path"]),
        },
        "errors": [],
        "next_steps": "",
        **more,
    }
    return f"{words}\n\n```json\n{json.dumps(fields, indent=2, ensure_ascii=False)}\n```\n".lstrip()
