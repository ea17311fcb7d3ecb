"""`remit agents`: list the agents of the project, show one, write a first agent file, find installed coding agents."""

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.arguments import Json, Root
from remit.cli.delegate import only_served
from remit.cli.exits import Exit
from remit.cli.project import NO_MCP, find_root, has_mcp, inside, open_directory, project_folder, why_not_loaded
from remit.cli.render import console, count, cut, duration, one_line, printable, put, say, say_aside, say_json, table
from remit.cli.results import agent_document, definition_document
from remit.core.agents import BUILTIN_TARGETS, ROLES, AgentSpec, is_built_in, is_role, rank, type_words
from remit.core.deadline import TimeLimits
from remit.core.errors import Misused, Unavailable

if TYPE_CHECKING:
    from remit.agents.coding.detect import DetectedAgent, KnownAgent
    from remit.agents.definition import Definition
    from remit.agents.directory import Directory
    from remit.core.settings import Settings


HOW_TO_START = """\
This project has no agents of its own yet. A Python function is one, in .remit/agents/hello.py:

    from remit import agent

    @agent("hello")
    async def hello(name: str) -> str:
        return f"Hello, {name}."

and is called so: remit delegate hello name=Ada

A coding agent, or any command, is one by a few lines in remit.toml:

    [agents.claude]
    kind = "claude"
    allow = ["read", "search", "edit"]

and is called so: remit delegate claude "Say what this project does"

A language model with a task of its own is a file: `remit agents new NAME` writes one.

`remit agents --detect` finds the coding agents that are installed here, and prints their lines."""
INSTRUCTION_LINES = 6
"""So many lines of its instructions are shown."""
READING = "worker.read_file, worker.list_files, worker.search_files"
"""The tools of a new agent, if none are named."""
_NEW = "With `new NAME`"


def agents(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME | new NAME]",
            help="Show this agent with its parameters, or this target with its operations; `new` writes a first agent file for a "
            "language model.",
            show_default=False,
        ),
    ] = None,
    detect: Annotated[bool, typer.Option("--detect", help="Find installed coding agents, and print the lines for remit.toml.")] = False,
    model: Annotated[
        str, typer.Option(help="Its model: provider:name, or a name of \\[models]. Default: the project's.", rich_help_panel=_NEW)
    ] = "",
    tools: Annotated[
        str, typer.Option(help="Agents it may delegate to, separated by commas: worker.read_file,researcher.", rich_help_panel=_NEW)
    ] = READING,
    description: Annotated[str, typer.Option(help="What it does, in a sentence.", rich_help_panel=_NEW)] = "",
    edit: Annotated[bool, typer.Option("--edit", help="Open the file in your editor ($VISUAL or $EDITOR).", rich_help_panel=_NEW)] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the agents of the project. `remit agents NAME` shows what one of them accepts, `remit agents new NAME` writes a first file."""
    folder = find_root(root)
    what, *rest = words or [""]
    if what == "new":
        if len(rest) != 1:
            raise Misused("The new agent needs one name.", advice="remit agents new NAME")
        return new(rest[0], model, tools, description, folder, edit=edit, as_json=as_json)
    if detect:
        detect_agents(folder, as_json=as_json)
        return Exit.OK
    names = rest if what == "show" else [what, *rest] if what else []
    if len(names) > 1:
        raise Misused("Only one agent can be shown.", advice=f"remit agents {names[0]}")
    return _show(names[0] if names else None, folder, as_json=as_json)


def _show(name: str | None, folder: Path, *, as_json: bool) -> Exit:
    from remit.system.settings_files import load_settings

    settings = load_settings(folder)
    directory = open_directory(folder)
    known = [*directory.specs(), *only_served(folder, directory.names())]
    specs = sorted(known, key=rank) if name is None else _named(name, known, directory, folder)
    if as_json:
        documents = [
            agent_document(spec, *_timeouts(spec, settings)) | definition_document(_definition(spec.name, directory)) for spec in specs
        ]
        say_json({"agents": documents, "problems": directory.problems})
        return Exit.OK
    if name is None:
        _print_all(specs, settings, folder, directory)
    else:
        _print_named(name, specs, settings, folder, directory)
    for problem in directory.problems:
        say_aside(f"! {printable(problem)}")
    return Exit.OK


def _print_named(name: str, specs: "list[AgentSpec]", settings: "Settings", folder: "Path", directory: "Directory") -> None:
    """An agent, a target with its operations, or both: `researcher` is a role of the board as well."""
    alone = [spec for spec in specs if spec.name == name]
    if operations := [spec for spec in specs if spec.name != name]:
        print_target(name, operations, lambda spec: _timeouts(spec, settings))
        if alone:
            say()
            say(f"And as a role of the board (`remit roles {name}`):")
            say()
    for spec in alone:
        _print_one(spec, settings, _definition(name, directory), folder)


def _print_all(specs: "list[AgentSpec]", settings: "Settings", folder: "Path", directory: "Directory") -> None:
    """The project's own, then those that come with remit; without any of its own, how to make one."""
    own = [spec for spec in specs if not is_built_in(spec)]
    if own:
        _print_table(own, settings, folder, directory)
    if built_in := [spec for spec in specs if is_built_in(spec) and not is_role(spec)]:
        if own:
            say()
        print_built_in(built_in)
    if roles := [spec for spec in specs if is_role(spec)]:
        if own or built_in:
            say()
        print_roles(roles)
    if not own and not directory.problems:
        if built_in or roles:
            say()
        say(HOW_TO_START)


def _named(name: str, specs: "list[AgentSpec]", directory: "Directory", root: "Path") -> "list[AgentSpec]":
    """The agent of that name, or all operations of that target."""
    alone = [spec for spec in specs if spec.name == name]
    operations = [spec for spec in specs if spec.name.startswith(f"{name}.")]
    if alone and not (operations and is_role(alone[0])):
        return alone
    if operations:
        return [*operations, *alone]
    if fault := why_not_loaded(name, directory, root):
        raise Misused(fault, code="INVALID_TARGET", advice="Fix that file; `remit agents` lists what is loaded.")
    names = [spec.name for spec in specs]
    close = get_close_matches(name, [*names, *{known.partition(".")[0] for known in names}], n=1)
    advice = f"Did you mean {close[0]}? `remit agents` lists all." if close else "`remit agents` lists all."
    raise Misused(f"There is no agent named {name!r}.", code="INVALID_TARGET", advice=advice)


def _timeouts(spec: "AgentSpec", settings: "Settings") -> tuple[float, float]:
    limits: TimeLimits = settings.limits_for(spec.name)
    return min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds), limits.maximum_seconds


def _definition(name: str, directory: "Directory") -> "Definition | None":
    """Of an agent that is no Python function: what was declared of it."""
    return getattr(directory.find(name), "definition", None)


def _kind(spec: "AgentSpec", definition: "Definition | None") -> str:
    """`inline function`, `command`, …; of a profile who carries it out."""
    if definition is None:
        return f"{spec.isolation} {spec.kind}" if spec.kind == "function" else spec.kind
    if spec.kind == "profile":
        return "profile on nobody"
    return spec.kind if definition.runs_on is None else f"profile on {definition.runs_on}"


def _print_table(specs: "list[AgentSpec]", settings: "Settings", root: "Path", directory: "Directory") -> None:
    shown = table("agent", "does", "kind", "timeout", "from", shrinking=("does", "from"))
    for spec in specs:
        timeout, kind = duration(_timeouts(spec, settings)[0]), _kind(spec, _definition(spec.name, directory))
        shown.add_row(spec.name, cut(spec.description), kind, timeout, cut(inside(spec.source, root)))
    console().print(shown)


def _print_definition(spec: "AgentSpec", definition: "Definition", settings: "Settings") -> None:
    from remit.agents.definition import Kind
    from remit.agents.role_bindings import why_unavailable

    if definition.kind is Kind.PROFILE:
        say(f"  missing    {why_unavailable(definition)}")
    if definition.command:
        say(f"  command    {printable(shlex.join(definition.command))}")
    say(f"  workspace  {spec.workspace}{', merged' if spec.merge else ''}")
    if definition.kind is Kind.MODEL:
        _print_model(definition, settings)
    else:
        for label, value in (("model", definition.model or ""), ("may use", ", ".join(definition.allow))):
            if value:
                say(f"  {label:9}  {printable(value)}")
    if definition.delegates:
        say("  delegates  with remit's own tools")
    for note in definition.notes:
        say(f"  note       {printable(note)}")
    _print_instructions(definition.instructions)


def _print_model(definition: "Definition", settings: "Settings") -> None:
    if definition.models:
        model = ", else ".join(definition.models)
    elif settings.model:
        model = f"{', else '.join(settings.model)} ({settings.source_of('model')})"
    else:
        model = 'none is configured: put model = "anthropic:…" at the top of remit.toml, or REMIT_MODEL into the environment'
    tools = BUILTIN_TARGETS if definition.tools is None else definition.tools
    say(f"  model      {printable(model)}")
    say(f"  delegates  to {printable(', '.join(tools)) if tools else 'nobody: it answers by itself'}")
    say(f"  requests   {definition.requests or settings.model_requests} at most")
    if definition.temperature is not None:
        say(f"  warmth     temperature {definition.temperature:g}")


def _print_abilities(spec: "AgentSpec") -> None:
    """What it is for, and what it hands back."""
    from remit.agents.routing import routed_words

    if spec.operations:
        say(f"  takes      {printable(routed_words(spec))}")
    elif spec.languages:
        say(f"  languages  {printable(', '.join(spec.languages))}")
    if spec.output_schema is not None:
        names = ", ".join(map(str, spec.output_schema.get("properties", {})))
        say(f"  hands back data of its output schema{f': {printable(names)}' if names else ''}")


def _print_instructions(instructions: str) -> None:
    lines = [line for line in instructions.splitlines() if line.strip()]
    label = "  told       "
    for line in lines[:INSTRUCTION_LINES]:
        put(one_line(line, 200), label)
        label = " " * len(label)
    if len(lines) > INSTRUCTION_LINES:
        put(f"… and {count(len(lines) - INSTRUCTION_LINES, 'line')} more", label)


def _print_one(spec: "AgentSpec", settings: "Settings", definition: "Definition | None", root: "Path") -> None:
    timeout, maximum = _timeouts(spec, settings)
    say(f"{spec.name}: {printable(spec.description) or 'no description'}")
    put(inside(spec.source, root), "  from       ")
    say(f"  kind       {_kind(spec, definition)}")
    say(f"  timeout    {duration(timeout)}, at most {duration(maximum)}")
    if definition is not None:
        _print_definition(spec, definition, settings)
    _print_abilities(spec)
    traits = [("resumable", spec.resumable), ("requires artifacts", spec.requires_artifacts), ("retries", spec.retries)]
    if held := [f"{trait} {value}" if not isinstance(value, bool) else trait for trait, value in traits if value]:
        say(f"  declared   {', '.join(held)}")
    properties = spec.parameters_schema.get("properties", {})
    if not properties:
        say("  It takes no parameters.")
        return
    required = spec.parameters_schema.get("required", [])
    shown = table("parameter", "type", "default", "about")
    shown.columns[0].min_width = max(map(len, properties))  # names are never cut; what is said of them goes on below
    shown.columns[2].min_width = len("required")
    for column in (shown.columns[1], shown.columns[3]):
        column.no_wrap = False
    for name, schema in properties.items():
        default = "required" if name in required else repr(schema.get("default"))
        shown.add_row(name, type_words(schema), default, printable(_about(schema)))
    console().print(shown)
    say(f"remit delegate {spec.name} {' '.join(f'{name}=…' for name in required or list(properties)[:1])}")


def _about(schema: Mapping[str, Any]) -> str:
    """What a parameter is for; of one that may be left out, it may stand with the kind it has when it is given."""
    kinds = [one for one in schema.get("anyOf", ()) if isinstance(one, Mapping)]
    return next((str(one["description"]) for one in (schema, *kinds) if one.get("description")), "")


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


def new(name: str, model: str, tools: str, description: str, folder: Path, *, edit: bool, as_json: bool) -> Exit:
    """Write a first agent file for a language model; never overwrites."""
    from remit.core.agents import agent_name
    from remit.system.settings_files import load_settings

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
    from remit.agents.model_agents import resolved

    try:
        resolved([one.strip() for one in model.split(",") if one.strip()], settings, is_guest=False, source="--model")
    except Misused as error:
        raise Misused(
            error.message.removeprefix("--model: model: "), advice="Nothing was written. `remit models` lists what can be named."
        ) from None


def _check_tools(tools: str, directory: "Directory") -> tuple[str, ...]:
    from remit.agents.definition import COMMA
    from remit.agents.model_agents import reach_of, unreached

    names = tuple(one.strip() for one in COMMA.split(tools) if one.strip())
    reached = reach_of(names)
    faults = [*reached.notes, *(f"tools: {fault}" for fault in unreached(reached.tools or (), directory.names(), ()))]
    if faults:
        raise Misused(faults[0].rstrip(".") + ".", advice="Nothing was written. `remit agents` lists who there is.")
    return names


def _text(name: str, model: str, tools: tuple[str, ...], description: str) -> str:
    words = " ".join(description.split()) or PURPOSE
    quoted = json.dumps(words, ensure_ascii=False)
    models = [one.strip() for one in model.split(",") if one.strip()]
    line = f"model: {', '.join(models) if len(models) < 2 else json.dumps(models)}" if models else "# model: anthropic:claude-sonnet-5"
    return TEMPLATE.format(name=name, description=quoted, purpose=words, model=line, tools=", ".join(tools) or "[]")


def _written(folder: "Path", name: str, text: str) -> "Path":
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
    said = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(said)
    except ValueError:
        words = []
    if not words:
        raise Misused("--edit needs an editor.", advice="Nothing was written. Set VISUAL or EDITOR, or leave --edit out.")
    return words


def _edit(editor: list[str], place: "Path") -> None:
    try:
        subprocess.run([*editor, str(place)], check=False)
    except OSError as error:
        raise Unavailable(f"{editor[0]} could not be started: {error.strerror or error}.", advice=f"The file is written: {place}") from None


def _tell(name: str, shown: str, settings: "Settings", *, has_model: bool) -> None:
    say(f"Written: {shown}")
    say(f"Look at it     remit agents {name}")
    say(f'Ask it         remit delegate {name} "Say what this project does"')
    if not has_model and not settings.model:
        say('It has no model yet: put model = "anthropic:claude-sonnet-5" (or openai:…, ollama:…) at the top of remit.toml.')


def print_built_in(specs: "Sequence[AgentSpec]") -> None:
    """One line for each operation, below its target."""
    say("Built in:")
    say()
    console().print(_table(specs))
    shown = _harmless(specs)
    _print_next(shown, _target(shown))


def print_roles(specs: "Sequence[AgentSpec]") -> None:
    """By name alone: what each is for and who carries it out is `remit roles`' to tell."""
    say(f"Roles of the board: {', '.join(spec.name for spec in specs)}")
    say()
    say("Who is who   remit roles")


def print_target(target: str, specs: "Sequence[AgentSpec]", timeouts: "Callable[[AgentSpec], tuple[float, float]]") -> None:
    """What one target can do, and how long it is given."""
    timeout, maximum = timeouts(specs[0])
    origin = ", built in" if all(map(is_built_in, specs)) else ""
    say(f"{target}: {count(len(specs), 'operation')}{origin}; {duration(timeout)} each by default, at most {duration(maximum)}")
    say()
    console().print(_table(specs))
    shown = _harmless(specs)
    _print_next(shown, shown.name)


def _print_next(spec: "AgentSpec", closer: str) -> None:
    say()
    say(f"Call one     remit delegate {_example(spec)}")
    say(f"Look closer  remit agents {closer}")


def _table(specs: "Sequence[AgentSpec]") -> object:
    shown = table("target", "operation", "takes", "does", shrinking=("takes", "does"))
    before = ""
    for spec in specs:
        target, _, operation = spec.name.partition(".")
        shown.add_row("" if target == before else target, operation, cut(_takes(spec)), cut(spec.description))
        before = target
    return shown


def _harmless(specs: "Sequence[AgentSpec]") -> "AgentSpec":
    """For an example: one that only reads, and takes something."""
    reading = (spec for spec in specs if spec.effects == ("read",) and spec.parameters_schema.get("required"))
    return next(reading, specs[0])


def _takes(spec: "AgentSpec") -> str:
    """`path, offset?, limit?`"""
    required = spec.parameters_schema.get("required", ())
    return ", ".join(name if name in required else f"{name}?" for name in spec.parameters_schema.get("properties", {}))


def _target(spec: "AgentSpec") -> str:
    return spec.name.partition(".")[0]


def _example(spec: "AgentSpec") -> str:
    target, _, operation = spec.name.partition(".")
    required = spec.parameters_schema.get("required", ())
    return " ".join([target, operation, *(f"{name}=…" for name in required)])


def detect_agents(root: Path, *, as_json: bool) -> None:
    from remit.agents.coding.detect import detect, lines_for

    found, missing = asyncio.run(detect())
    is_git = any((folder / ".git").exists() for folder in (root, *root.parents))
    lines = {one.known.name: lines_for(one, is_git=is_git) for one in found}
    if as_json:
        say_json(
            {
                "found": [_document(one, lines[one.known.name]) for one in found],
                "missing": [{"name": one.name, "program": one.program, "install": one.install} for one in missing],
                "can_delegate": has_mcp(),
            }
        )
        return
    _print_found(found)
    _print_lines(found, lines)
    _print_missing(missing)
    if found and not has_mcp():
        say(f"\n{NO_MCP}")


def _document(found: "DetectedAgent", lines: list[str]) -> dict[str, Any]:
    return {
        "name": found.known.name,
        "kind": str(found.known.kind),
        "program": found.path,
        "version": found.version,
        "usable": found.is_usable,
        "login": found.login or None,
        "tried": found.known.is_tried,
        "fault": found.fault or None,
        "remit_toml": "\n".join(lines) + "\n",
    }


def _print_found(found: "Sequence[DetectedAgent]") -> None:
    if not found:
        say("No coding agent was found on PATH.")
        return
    shown = table("agent", "version", "usable", "login", "program", shrinking=("login", "program"))
    for one in found:
        usable = "no" if one.fault else "not logged in?" if not one.login else "yes" if one.known.is_tried else "yes, not tried by us"
        seen = printable(one.fault) or (f"by {one.login}" if one.login else "none seen")
        shown.add_row(one.known.name, printable(one.version) or "-", usable, cut(seen), cut(printable(one.path)))
    console().print(shown)


def _print_lines(found: "Sequence[DetectedAgent]", lines: dict[str, list[str]]) -> None:
    startable = [one for one in found if not one.fault]
    if not startable:
        return
    if unknown := [one.known.name for one in startable if not one.login]:
        say(f"\nNo login was seen of {', '.join(unknown)}: log in once there, or set the key.")
    say("\nFor remit.toml; take out what it must not do:\n")
    for one in startable:
        say("\n".join(lines[one.known.name]) + "\n")
    say(f'Then: remit delegate {startable[0].known.name} "Say what this project does"')


def _print_missing(missing: "Sequence[KnownAgent]") -> None:
    if missing:
        say(f"\nNot found: {', '.join(one.program for one in missing)}.")
    for one in missing:
        if one.install and one.program in ("claude", "codex", "opencode"):
            say(f"  {one.program}: {one.install}")
