"""What a model's answer holds: a valid return, or a JSON value. Off the event loop. Used by `agents.model.agent`."""

import json
import re
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.errors import InvalidReturn
from remit.flow.context import Context
from remit.flow.receive import read_answer
from remit.flow.validate import Expected, judge

_FENCED = re.compile(r"^(`{3,}|~{3,})(?:json)?[ \t]*\n(.*?)\n[ \t]*\1", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_SEARCHED_CHARACTERS = 400_000


def holds_return(answer: str, ctx: Context, spec: AgentSpec) -> bool:
    """Whether the flow will take it, which judges for itself."""
    received = read_answer(answer)
    if received.candidate is None:
        return False
    expected = Expected(
        root=ctx.workspace, session_id=ctx.session_id, agent=spec.name, depth=ctx.depth, path=ctx.path, output_schema=spec.output_schema,
        requires_artifacts=spec.requires_artifacts,
    )  # fmt: skip
    try:
        judge(received.candidate, expected)
    except InvalidReturn:
        return False
    return True


def value_in(answer: str) -> Any:
    """The JSON that the answer is, or that its last block holds; the answer itself where there is none."""
    answer = answer.strip()
    for text in (answer, *(found[2] for found in reversed(list(_FENCED.finditer(answer[-_SEARCHED_CHARACTERS:]))))):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    candidate = read_answer(answer).candidate
    return answer if candidate is None else candidate
