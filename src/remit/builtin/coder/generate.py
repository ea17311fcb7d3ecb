"""`coder.generate_code`: code from a specification, by a coding agent that the settings name, or by a model. Has neither itself.

Asked in this order: the coding agent that `generate_on` names, the model of the project (`model`). Nothing that costs money is used
unasked: without these it is blocked.
"""

import json
import re
from typing import Annotated, Any

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.core.errors import Misused, Unavailable
from remit.core.result import Status
from remit.models.questions import TextModel
from remit.runtime.context import Context

SPEC_LIMIT = 200_000
FILES_SHOWN = 20
_WORD = re.compile(r"^[\w .+#/@-]{1,80}$")
_REQUEST = (
    "Write the code that this specification describes, in the project you work in. Follow the conventions you find there, add tests where "
    "the project has tests, and change nothing that the specification does not ask for. Name every file you wrote among the artifacts."
)


def generating(on: str | None, models: TextModel) -> FunctionAgent:
    """The operation; `on`: the coding agent that the settings name for it (`generate_on`), wherever they were set."""

    @agent(
        "coder.generate_code",
        effects=("read", "write"),
        description="Write code from a specification. Needs a model, or a coding agent that the setting generate_on names.",
    )
    async def generate_code(
        ctx: Context,
        spec: Annotated[str, Field(description="What is to be written, in your words.")],
        language: Annotated[str | None, Field(description="E.g. python.")] = None,
        framework: Annotated[str | None, Field(description="E.g. fastapi.")] = None,
        files: Annotated[list[str] | str | None, Field(description="Files that a model is to see; at most 20.")] = None,
        overwrite: Annotated[bool, Field(description="Whether files that are there may be replaced by what a model writes.")] = False,
    ) -> dict[str, Any]:
        """Write code from a specification; what is written is handed back as artifacts."""
        specification = _specification(spec, {"Language": language, "Framework": framework})
        if on is not None:
            return await _by_agent(ctx, on, specification)
        if models.is_configured():
            from remit.builtin.coder.generated_files import generate_files  # here, as it needs parsers

            return await generate_files(ctx, models, specification, _listed(files), overwrite=overwrite)
        raise Unavailable(
            "There is no language model here that could write code.",
            code="TOOL_UNAVAILABLE",
            advice='Set model = "PROVIDER:MODEL" in remit.toml (or REMIT_MODEL) to have a model write it, or generate_on = "NAME" to have '
            "a coding agent of the project do it (`remit agents --detect` shows which are installed), or hand the specification to one "
            "yourself: remit delegate NAME task=…",
        )

    return generate_code


def _listed(files: list[str] | str | None) -> list[str]:
    """One file may be given as text, several with commas between."""
    named = [part.strip() for part in files.split(",")] if isinstance(files, str) else files or []
    named = list(dict.fromkeys(name for name in named if name.strip()))
    if len(named) > FILES_SHOWN:
        raise Misused(
            f"files: {len(named)} were given, at most {FILES_SHOWN} are shown to a model.",
            code="INVALID_PARAMETERS",
            advice="Name those that matter most.",
        )
    return named


def _specification(spec: str, wishes: dict[str, str | None]) -> str:
    """What is to be written, in words. Raises `Misused`."""
    faults = []
    if not spec.strip():
        faults.append("spec is empty")
    elif len(spec) > SPEC_LIMIT:
        faults.append(f"spec has {len(spec):,} characters, at most {SPEC_LIMIT:,} are taken")
    faults += [f"{name.lower()} must be a word or two" for name, word in wishes.items() if word is not None and not _WORD.match(word)]
    if faults:
        raise Misused(
            f"Parameters of coder.generate_code: {'; '.join(faults)}.",
            code="INVALID_PARAMETERS",
            advice="Say in spec what is to be written.",
        )
    lines = [f"{name}: {word}" for name, word in wishes.items() if word]
    return "\n\n".join(part for part in ("\n".join(lines), f"## Specification\n\n{spec.strip()}") if part)


async def _by_agent(ctx: Context, name: str, specification: str) -> dict[str, Any]:
    """Its return as ours: the metadata are this delegation's own."""
    ctx.progress(f"{name} writes it")
    returned = await ctx.delegate(name, task=f"{_REQUEST}\n\n{specification}")
    missing = next((error for error in returned.errors if error.code in ("INVALID_TARGET", "AGENT_UNAVAILABLE")), None)
    if missing is not None and returned.status is not Status.COMPLETED:
        raise Unavailable(
            f"The setting generate_on names {name!r}, which cannot be reached here: {missing.message}",
            code="TOOL_UNAVAILABLE",
            advice="Name an agent of this project (`remit agents`), or take the setting out.",
        )
    answer = json.loads(json.dumps(returned.data, default=str))
    return {**returned.forwarded(), "data": {"by": name, "sessionId": returned.metadata.session_id, "answer": answer}}
