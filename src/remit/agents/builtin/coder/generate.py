"""`coder.generate_code`: code from a specification, by a coding agent that the settings name, or by a model. Has neither itself.

Asked in this order: a model that a program or a package brought (`use_model`, entry point group `remit.code_models`), the coding agent
that `generate_on` names, the model of the project (`model`). Nothing that costs money is used unasked: without these it is blocked.
"""

import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.core.errors import Failed, Misused, Unavailable
from remit.core.result import Return, Status
from remit.flow.context import Context
from remit.models.optional import Writes
from remit.system.threads import off_loop

ENTRY_POINTS = "remit.code_models"
SPEC_LIMIT = 200_000
FILES_LIMIT = 200
FILES_SHOWN = 20
_WORD = re.compile(r"^[\w .+#/@-]{1,80}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAsked:
    """What a model is asked to write."""

    spec: str
    language: str | None = None
    framework: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeWritten:
    """What it wrote."""

    files: Mapping[str, str]
    """Text by path, relative, below nothing but a folder of the delegation's own."""
    notes: str = ""
    tokens: int = 0
    cost: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


class CodeModel(Protocol):
    """A port: writes code when asked. Implementations come with a model layer, or with a package."""

    @property
    def name(self) -> str: ...
    async def write(self, asked: CodeAsked) -> CodeWritten: ...


_models: list[CodeModel] = []


def use_model(model: CodeModel | None) -> None:
    """For programs and tests: this model and no other; None: back to what is installed."""
    _models[:] = [model] if model is not None else []


def find_model() -> CodeModel | None:
    if _models:
        return _models[0]
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            found: CodeModel = entry.load()()
        except (ImportError, AttributeError, TypeError) as error:
            raise Unavailable(
                f"The model {entry.name} cannot be loaded: {error}.", code="TOOL_UNAVAILABLE", advice="Install it anew, or remove it."
            ) from None
        return found
    return None


def generating(on: str | None, models: Writes) -> FunctionAgent:
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
        asked = _asked(spec, language, framework)
        model = find_model()
        if model is not None:
            return await _by_model(ctx, model, asked)
        if on is not None:
            return await _by_agent(ctx, on, asked)
        if models.is_configured():
            from remit.agents.builtin.coder.generated_files import Order, generate_files  # here, as it needs parsers

            order = Order(spec=asked.spec, language=asked.language, framework=asked.framework)
            return await generate_files(ctx, models, order, _listed(files), overwrite=overwrite)
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


def _asked(spec: str, language: str | None, framework: str | None) -> CodeAsked:
    faults = []
    if not spec.strip():
        faults.append("spec is empty")
    elif len(spec) > SPEC_LIMIT:
        faults.append(f"spec has {len(spec):,} characters, at most {SPEC_LIMIT:,} are taken")
    words = {"language": language, "framework": framework}
    faults += [f"{name} must be a word or two" for name, word in words.items() if word is not None and not _WORD.match(word)]
    if faults:
        raise Misused(
            f"Parameters of coder.generate_code: {'; '.join(faults)}.",
            code="INVALID_PARAMETERS",
            advice="Say in spec what is to be written.",
        )
    return CodeAsked(spec=spec, language=language, framework=framework)


# ---- by a model


async def _by_model(ctx: Context, model: CodeModel, asked: CodeAsked) -> dict[str, Any]:
    written = await model.write(asked)
    if written.tokens or written.cost:
        ctx.spend(tokens=written.tokens, cost=written.cost)
    if not written.files:
        raise Failed(f"{model.name} wrote no file.", code="VALIDATION_FAILED", advice="Say in the specification what files are wanted.")
    paths = await off_loop(lambda: _kept(ctx.scratch, written.files))
    for path in paths:
        ctx.artifact(path, "implementation", f"Written by {model.name}.")
    count = len(paths)
    return {
        "status": "completed",
        "summary": f"{model.name} wrote {count} file{'s' * (count != 1)} from the specification. Nothing was run or put into the project.",
        "data": {"by": model.name, "files": sorted(written.files), "notes": written.notes[:20_000], **written.facts},
    }


def _kept(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Below the folder and nowhere else: a model's names are not trusted."""
    from remit.agents.builtin.coder.generated_files import checked_path, keep_files

    if len(files) > FILES_LIMIT:
        words = f"The model wrote {len(files)} files; at most {FILES_LIMIT} are taken."
        raise Failed(words, code="VALIDATION_FAILED", advice="Ask for less at once.")
    return list(keep_files(folder, {checked_path(name): text for name, text in files.items()}).values())


# ---- by a coding agent of the project


async def _by_agent(ctx: Context, name: str, asked: CodeAsked) -> dict[str, Any]:
    ctx.progress(f"{name} writes it")
    returned = await ctx.delegate(name, task=prompt_of(asked))
    missing = next((error for error in returned.errors if error.code in ("INVALID_TARGET", "AGENT_UNAVAILABLE")), None)
    if missing is not None and returned.status is not Status.COMPLETED:
        raise Unavailable(
            f"The setting generate_on names {name!r}, which cannot be reached here: {missing.message}",
            code="TOOL_UNAVAILABLE",
            advice="Name an agent of this project (`remit agents`), or take the setting out.",
        )
    return _handed_on(name, returned)


def prompt_of(asked: CodeAsked) -> str:
    """What a coding agent is told."""
    wishes = [f"Language: {asked.language}"] if asked.language else []
    wishes += [f"Framework: {asked.framework}"] if asked.framework else []
    parts = [
        "Write the code that this specification describes, in the project you work in. Follow the conventions you find there, add tests "
        "where the project has tests, and change nothing that the specification does not ask for. Name every file you wrote among the "
        "artifacts.",
        *(["\n".join(wishes)] if wishes else []),
        f"## Specification\n\n{asked.spec.strip()}",
    ]
    return "\n\n".join(parts)


def _handed_on(name: str, returned: Return) -> dict[str, Any]:
    """Its return as ours: the metadata are this delegation's own."""
    return {
        "status": str(returned.status),
        "summary": returned.summary,
        "artifacts": [{"type": one.type, "path": one.path, "summary": one.summary} for one in returned.artifacts],
        "errors": [error.to_dict() for error in returned.errors],
        "next_steps": returned.next_steps,
        "data": {"by": name, "sessionId": returned.metadata.session_id, "answer": _plain(returned.data)},
    }


def _plain(data: Any) -> Any:
    return json.loads(json.dumps(data, default=str))
