"""Agent files that nobody here can carry out: they are listed, and say what is missing when they are asked for.

Who could carry them out is decided in `profiles`; here stand the words and the lines of remit.toml that put it right.
"""

import re
from typing import Any

from remit.agents.builtin.roles import BUILT_INS
from remit.agents.definition import Definition, checked_task
from remit.agents.modelling import MODEL
from remit.agents.profiles import BUILT_IN
from remit.core.agents import COME_WITH_REMIT, ROLES
from remit.core.errors import ErrorInfo, Unavailable
from remit.flow.context import Context

_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""What TOML takes as a key without quotes."""
MODEL_LINE = 'model = "anthropic:claude-sonnet-5"'
"""The line that gives a project a language model; any provider, address or file of its own will do."""
_OR_A_MODEL = f"Or let a language model do it, at the top of remit.toml: {MODEL_LINE}"
_MODEL_ADVICE = f"Put {MODEL_LINE} at the top of remit.toml, or REMIT_MODEL into the environment; `remit models` says which answer."
_CODE = "TOOL_UNAVAILABLE"
"""Somebody must do something before it can be carried out: blocked, never a failure of whoever asked."""


class Uncarried:
    """A profile that nobody here can carry out: it is listed, and says what is missing when it is asked for."""

    __slots__ = ("definition", "spec")

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        error = why_uncarried(self.definition)
        info = ErrorInfo(type="tool_unavailable", message=error.message, code=error.code, recoverable=True, recommendation=error.advice)
        summary = f"Nothing was done. {error.message}"[:400]
        return {
            "status": "blocked", "summary": summary, "artifacts": [], "errors": [info.to_dict()], "next_steps": error.advice,
            "metadata": {
                "session_id": ctx.session_id, "agent_type": self.spec.name, "delegation_depth": ctx.depth,
                "delegation_path": list(ctx.path),
            },
        }  # fmt: skip


def why_uncarried(definition: Definition) -> Unavailable:
    """What is missing, and the lines that put it right."""
    wanted = definition.runs_on
    if definition.name in ROLES:
        return _role_uncarried(definition.name, wanted)
    if wanted == MODEL:
        return Unavailable(f"{definition.name} runs on a language model, and the project names none.", code=_CODE, advice=_MODEL_ADVICE)
    is_free = wanted is not None and wanted != BUILT_IN
    lines = f'[agents.{wanted if is_free else "claude"}] with kind = "claude" (or codex, opencode, acp)'
    missing = "no agent of that name is declared that could carry it out" if is_free else "has none"
    fault = (
        f"{definition.name} runs on {wanted!r}, and {missing}."
        if wanted
        else f"{definition.name} is an agent file, and no coding agent is declared that could carry it out, and no language model."
    )
    advice = f"Put {lines} into remit.toml; `remit agents --detect` prints the lines for what is installed here."
    return Unavailable(fault, code=_CODE, advice=f"{advice} {_OR_A_MODEL}")


def _role_uncarried(name: str, wanted: str | None) -> Unavailable:
    if wanted == BUILT_IN:
        fault = f"The role {name} is bound to {BUILT_IN!r}, and remit has no built-in for it: it takes a coding agent or a language model."
    elif wanted == MODEL:
        fault = f"The role {name} is bound to the project's language model, and the project names none."
    elif wanted:
        fault = f"The role {name} is bound to {wanted!r}, and no agent of that name is declared that could carry it out."
    else:
        fault = f"No agent is configured for the role {name}: it takes a coding agent or a language model."
    return Unavailable(fault, code=_CODE, advice=lines_for(name, wanted))


def lines_for(role: str, wanted: str | None = None) -> str:
    """The lines of remit.toml that give a role somebody to carry it out."""
    if wanted == MODEL:
        return _MODEL_ADVICE
    # A role or a target cannot be carried by what has its own name: a table of that name would take its place.
    is_free = wanted is not None and wanted.casefold() not in (BUILT_IN, *ROLES, *COME_WITH_REMIT) and _KEY.fullmatch(wanted)
    agent = wanted if is_free else "claude"
    lines = [
        f"[agents.{agent}]", 'kind = "claude"', 'allow = ["read", "search", "edit", "execute"]', "", "[roles]", f'{role} = "{agent}"',
    ]  # fmt: skip
    said = "\n".join(f"    {line}" if line else "" for line in lines)
    detected = "`remit agents --detect` prints the first lines for the agents that are installed here."
    ours = f' [roles] {role} = "{BUILT_IN}" takes the one that comes with remit.' if role in BUILT_INS else ""
    return f"Add to remit.toml:\n\n{said}\n\n{detected}{ours} {_OR_A_MODEL}"
