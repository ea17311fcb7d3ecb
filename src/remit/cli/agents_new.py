"""`remit agents new NAME`: a first agent file for a language model, that works at once and says in itself what can be changed."""

from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from pathlib import Path

    from remit.agents.directory import Directory
    from remit.settings import Settings

LOOKING = "worker.read_file, worker.list_files, worker.search_files"
"""What a new one may do unless it is said: it looks, and changes nothing."""
TEMPLATE = """\
---
description: {description}
# Which language model it is: provider:name, a name of [models] in remit.toml, or a list of them (the next one when one fails).
# Left out: the project's, which `model` in remit.toml or REMIT_MODEL names.
{model}
# Whom it may delegate to: agents, or single operations of one. Nothing else can be reached.
# Left out: worker, researcher and coder, with all that they can do. `remit agents` lists who there is.
tools: {tools}
remit:
  kind: model
  timeout: 600                  # seconds
  # requests: 20                # how often the model may be asked in one delegation
  # requires_artifacts: true    # it is done only when it has written a file: add worker.write_file to tools
  # languages: [python]         # with operations: the commands of the board that it takes, for tasks in these languages
  # operations: [review]
  # output_schema:              # what its data must be: JSON schema, or the path of a .json file in the project
  #   type: object
  #   properties: {{ findings: {{ type: array, items: {{ type: string }} }} }}
  #   required: [findings]
---
You are {name}, an agent of this project. What you are for: {purpose}

## How you work

1. Read what you are given, and look at the files it speaks of before you say anything about them.
2. Say what you found with its place: a path and a line.
3. What you could not find out, you say too. You do not guess.

## What you hand back

A summary of two to five sentences with your answer first, then what you looked at.
"""
OUR_WORDS = ("new", "show")
"""What may stand behind `remit agents` beside a name."""
PURPOSE = "Answers questions about this project by looking at its files."


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What it is called, and its file: .remit/agents/NAME.md.", show_default=False)
    ],
    model: Annotated[str, typer.Option(help="Which model it is: provider:name, or a name of \\[models]. Else the project's.")] = "",
    tools: Annotated[str, typer.Option(help="Whom it may delegate to, with commas between: worker.read_file,researcher.")] = LOOKING,
    description: Annotated[str, typer.Option(help="What it does, in a sentence.")] = "",
    edit: Annotated[bool, typer.Option("--edit", help="Open the file in your editor ($VISUAL or $EDITOR).")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Write a first agent file for a language model; never overwrites."""
    from remit.agents.function import agent_name
    from remit.cli.output import say_aside, say_json
    from remit.cli.project import find_root, inside, open_directory
    from remit.cli.words import printable
    from remit.settings import load_settings

    folder = find_root(root)
    settings, directory = load_settings(folder), open_directory(folder)
    name = agent_name(name.strip())
    _must_be_free(name, directory, folder)
    if model:
        _check_model(model, settings)
    chosen = _check_tools(tools, directory)
    editor = _editor() if edit else []
    place = _written(folder, name, _text(name, model, chosen, description))
    if edit:
        _edit(editor, place)
    directory = open_directory(folder)
    shown = inside(str(place), folder)
    problems = [problem for problem in directory.problems if problem.startswith(str(place))]
    if as_json:
        say_json({"name": name, "written": shown, "problems": problems})
    else:
        _tell(name, shown, settings, has_model=bool(model))
        for problem in problems:
            say_aside(f"! {printable(problem)}")
    return Exit.OK


def _must_be_free(name: str, directory: "Directory", folder: "Path") -> None:
    from remit.cli.project import inside, project_folder
    from remit.core.agents import ROLES
    from remit.core.errors import Misused

    if name.startswith("_") or name.casefold() == "readme":
        raise Misused(f"{name}.md would not be read as an agent.", advice="Take a name that does not begin with _ and is not README.")
    if name in OUR_WORDS:
        raise Misused(f"`remit agents {name}` is a command, so nobody could look at an agent of that name.", advice="Take another name.")
    place = project_folder(folder) / "agents" / f"{name}.md"
    if place.exists() or place.is_symlink():
        raise Misused(f"{inside(str(place), folder)} exists already.", advice="Edit that one, or take another name.")
    if name in ROLES:
        raise Misused(
            f"{name!r} is a role of the board, which a first file like this one could not fill.",
            advice=f"`remit roles {name} --write` writes the file of the role, to be edited; "
            f'[roles] {name} = "model" in remit.toml lets a language model have it.',
        )
    known = directory.find(name)
    targets = {one.partition(".")[0] for one in directory.names() if "." in one}
    if known is not None or name in targets or "." in name:
        where = f" in {inside(known.spec.source, folder)}" if known is not None else ""
        fault = (
            f"There is an agent {name!r}{where}." if "." not in name else f"{name!r} would be an operation of {name.partition('.')[0]!r}."
        )
        raise Misused(fault, advice="Take another name; `remit agents` lists who there is.")


def _check_model(model: str, settings: "Settings") -> None:
    from remit.agents.modelling import resolved
    from remit.core.errors import Misused

    try:
        resolved([one.strip() for one in model.split(",") if one.strip()], settings, is_guest=False, source="--model")
    except Misused as error:
        raise Misused(
            error.message.removeprefix("--model: model: "), advice="Nothing was written. `remit models` lists what can be named."
        ) from None


def _check_tools(tools: str, directory: "Directory") -> tuple[str, ...]:
    from remit.agents.reaching import reach_of, unreached
    from remit.agents.table import COMMA
    from remit.core.errors import Misused

    names = tuple(one.strip() for one in COMMA.split(tools) if one.strip())
    reached = reach_of(names)
    faults = [*reached.notes, *(f"tools: {fault}" for fault in unreached(reached.tools or (), directory.names(), ()))]
    if faults:
        raise Misused(faults[0].rstrip(".") + ".", advice="Nothing was written. `remit agents` lists who there is.")
    return names


def _text(name: str, model: str, tools: tuple[str, ...], description: str) -> str:
    import json

    words = " ".join(description.split()) or PURPOSE
    quoted = json.dumps(words, ensure_ascii=False)
    models = [one.strip() for one in model.split(",") if one.strip()]
    line = f"model: {', '.join(models) if len(models) < 2 else json.dumps(models)}" if models else "# model: anthropic:claude-sonnet-5"
    return TEMPLATE.format(name=name, description=quoted, purpose=words, model=line, tools=", ".join(tools) or "[]")


def _written(folder: "Path", name: str, text: str) -> "Path":
    from remit.cli.project import project_folder
    from remit.core.errors import Misused, Unavailable

    place = project_folder(folder) / "agents" / f"{name}.md"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.parent.resolve().is_relative_to(folder.resolve()):
            raise Misused(
                f"{place.parent} is a link that leads out of the project.", advice="Nothing was written: files there are not read."
            )
        with place.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Misused(f"{place} exists already.", advice="Edit that one, or take another name.") from None
    except OSError as error:
        raise Unavailable(f"{place} cannot be written: {error.strerror or error}.", advice="Check the folder.") from None
    return place


def _editor() -> list[str]:
    import os
    import shlex

    from remit.core.errors import Misused

    said = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(said)
    except ValueError:
        words = []
    if not words:
        raise Misused("--edit needs an editor.", advice="Nothing was written. Set VISUAL or EDITOR, or leave --edit out.")
    return words


def _edit(editor: list[str], place: "Path") -> None:
    import subprocess

    from remit.core.errors import Unavailable

    try:
        subprocess.run([*editor, str(place)], check=False)
    except OSError as error:
        raise Unavailable(f"{editor[0]} could not be started: {error.strerror or error}.", advice=f"The file is written: {place}") from None


def _tell(name: str, shown: str, settings: "Settings", *, has_model: bool) -> None:
    from remit.cli.output import say

    say(f"Written: {shown}")
    say(f"Look at it     remit agents {name}")
    say(f'Ask it         remit delegate {name} "Say what this project does"')
    if not has_model and not settings.model:
        say('It has no model yet: put model = "anthropic:claude-sonnet-5" (or openai:…, ollama:…) at the top of remit.toml.')
