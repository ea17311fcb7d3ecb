"""What is started for a prompt: the command with its placeholders filled in, its folder, and how the prompt reaches it.

Knows no process. Used by `agents.command.agent`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.agents.command.environment import environment_for, return_file_of
from remit.agents.definition import Definition, PromptBy
from remit.agents.placeholders import filled, places_in
from remit.agents.process.program import Program
from remit.core.errors import Misused, Unavailable
from remit.flow.context import Context
from remit.flow.harvest import GIVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    program: Program
    input: bytes | None
    """What is written to its standard input; None: nothing, and it is empty."""


def prepared(definition: Definition, ctx: Context, parameters: Mapping[str, Any], prompt: str) -> Prepared:
    """What is filled in are the parameters and, before them, what we tell ourselves.

    Raises `Misused` for a folder outside of the workspace, `Unavailable` when the prompt cannot be written."""
    held = prompt.encode("utf-8", "replace")
    environment = environment_for(definition, ctx)
    places = set(places_in(definition.command))
    by_argument = "prompt" in places or definition.prompt is PromptBy.ARGUMENT
    values = {
        **parameters,
        "prompt": held.decode().removesuffix("\n"),
        "session_id": ctx.session_id,
        "scratch": environment["REMIT_SCRATCH"],
        "return_file": environment["REMIT_RETURN_FILE"],
        "workspace": str(ctx.workspace),
    }
    if "prompt_file" in places or definition.prompt is PromptBy.FILE:
        values["prompt_file"] = environment["REMIT_PROMPT_FILE"] = str(_written(ctx, held))
    argv = filled(definition.command, values)
    if by_argument and "prompt" not in places:
        argv.append(values["prompt"])
    is_input = definition.prompt is PromptBy.STDIN and not places & {"prompt", "prompt_file"}
    program = Program(argv=tuple(argv), environment=environment, folder=folder_of(definition, ctx), takes_input=is_input)
    return Prepared(program=program, input=held if is_input else None)


def folder_of(definition: Definition, ctx: Context) -> Path:
    """Where it is started. Raises `Misused` for a folder outside of the workspace."""
    workspace = ctx.workspace
    folder = workspace / definition.folder
    if definition.folder != "." and not folder.resolve().is_relative_to(workspace.resolve()):
        raise Misused(
            f"The folder of {definition.name}, {definition.folder}, is not inside its workspace {workspace}.",
            advice="Name a folder below the project's root.",
        )
    return folder


def set_aside(ctx: Context) -> None:
    """A return file of an earlier run must not be taken for this one's; it is kept beside."""
    path = return_file_of(ctx)
    try:
        path.replace(path.with_name("return-before.json"))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Unavailable(f"{path} of an earlier run cannot be moved: {error.strerror}.", advice="See to the disk, try again.") from None


def _written(ctx: Context, prompt: bytes) -> Path:
    path = ctx.scratch / GIVEN / "prompt.md"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(prompt)
    except OSError as error:
        raise Unavailable(f"The prompt could not be written to {path}: {error.strerror}.", advice="See to the disk, try again.") from None
    return path
