"""`remit agents`: which agents the project has, where they come from and what they accept. Starts none of them.

Those that come with remit stand apart, by target: see `targets`. A new one is written in `agents_new`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from remit.cli.commands import Commands, Listed
from remit.cli.declaring import for_typer
from remit.cli.exits import Exit
from remit.cli.options import Json, Root
from remit.cli.output import answering

if TYPE_CHECKING:
    from pathlib import Path

    from remit.agents.definition import Definition
    from remit.agents.directory import Directory
    from remit.core.agents import AgentSpec
    from remit.core.deadline import TimeLimits
    from remit.settings import Settings

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


class AgentsCommands(Commands):
    """`remit agents` alone lists them; a name behind it shows that one."""

    table: ClassVar = {
        "show": Listed("agents:show", ""),
        "new": Listed("agents_new:new", ""),
    }

    def otherwise(self, name: str, args: list[str]) -> tuple[str, Any, list[str]] | None:
        return "show", self.get_command(None, "show"), args

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Options that stand before the name hold for what comes behind it."""
        name, command, rest = super().resolve_command(ctx, args)
        root = ctx.params.get("root")
        given = [*(["--json"] if ctx.params.get("as_json") else []), *(["--root", str(root)] if root is not None else [])]
        return name, command, [*rest, *given]


app = typer.Typer(
    cls=AgentsCommands, invoke_without_command=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False
)


@app.callback(subcommand_metavar="[NAME | new NAME]")
@for_typer
def agents(
    context: typer.Context,
    root: Root = None,
    as_json: Json = False,
    detect: Annotated[bool, typer.Option("--detect", help="Find installed coding agents, and print the lines for remit.toml.")] = False,
) -> None:
    """List the agents of the project. `remit agents NAME` shows what one of them accepts, `remit agents new NAME` writes a first file."""
    if context.invoked_subcommand is None:
        answering(_listed)(root=root, as_json=as_json, detect=detect)


def _listed(*, root: Root = None, as_json: Json = False, detect: bool = False) -> Exit:
    if detect:
        from remit.cli.detect import detect_agents
        from remit.cli.project import find_root

        detect_agents(find_root(root), as_json=as_json)
        return Exit.OK
    return show(None, root, as_json)


def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One of them with its parameters, or a target with its operations.", show_default=False),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show what an agent accepts and what is declared of it, or a target with its operations."""
    from remit.cli.documents import agent_document, definition_document
    from remit.cli.output import say_aside, say_json
    from remit.cli.project import find_root, open_directory
    from remit.cli.served import only_served
    from remit.cli.words import printable
    from remit.core.agents import rank
    from remit.settings import load_settings

    folder = find_root(root)
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
    from remit.cli.output import say
    from remit.cli.targets import print_target

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
    from remit.cli.output import say
    from remit.cli.targets import print_built_in, print_roles
    from remit.core.agents import is_built_in, is_role

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
    from difflib import get_close_matches

    from remit.cli.project import why_not_loaded
    from remit.core.agents import is_role
    from remit.core.errors import Misused

    alone = [spec for spec in specs if spec.name == name]
    operations = [spec for spec in specs if spec.name.startswith(f"{name}.")]
    if alone and not (operations and is_role(alone[0])):
        return alone
    if operations:
        return [*operations, *alone]
    if fault := why_not_loaded(name, directory, root):
        raise Misused(fault, code="INVALID_TARGET", advice="Mend it there; `remit agents` lists what is loaded.")
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
    from remit.cli.output import console
    from remit.cli.project import inside
    from remit.cli.tables import cut, table
    from remit.cli.words import duration, one_line

    shown = table("agent", "does", "kind", "timeout", "from", shrinking=("does", "from"))
    for spec in specs:
        timeout, kind = duration(_timeouts(spec, settings)[0]), _kind(spec, _definition(spec.name, directory))
        shown.add_row(spec.name, cut(one_line(spec.description, 120)), kind, timeout, cut(inside(spec.source, root)))
    console().print(shown)


def _print_definition(spec: "AgentSpec", definition: "Definition", settings: "Settings") -> None:
    import shlex

    from remit.agents.definition import Kind
    from remit.agents.uncarried import why_uncarried
    from remit.cli.output import say
    from remit.cli.words import printable

    if definition.kind is Kind.PROFILE:
        say(f"  missing    {why_uncarried(definition)}")
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
    from remit.cli.output import say
    from remit.cli.words import printable
    from remit.core.agents import COME_WITH_REMIT

    if definition.models:
        model = ", else ".join(definition.models)
    elif settings.model:
        model = f"{', else '.join(settings.model)} ({settings.source_of('model')})"
    else:
        model = 'none is configured: put model = "anthropic:…" at the top of remit.toml, or REMIT_MODEL into the environment'
    tools = COME_WITH_REMIT if definition.tools is None else definition.tools
    say(f"  model      {printable(model)}")
    say(f"  delegates  to {printable(', '.join(tools)) if tools else 'nobody: it answers by itself'}")
    say(f"  requests   {definition.requests or settings.model_requests} at most")
    if definition.temperature is not None:
        say(f"  warmth     temperature {definition.temperature:g}")


def _print_abilities(spec: "AgentSpec") -> None:
    """What it is for, and what it hands back."""
    from remit.agents.routing import routed_words
    from remit.cli.output import say
    from remit.cli.words import printable

    if spec.operations:
        say(f"  takes      {printable(routed_words(spec))}")
    elif spec.languages:
        say(f"  languages  {printable(', '.join(spec.languages))}")
    if spec.output_schema is not None:
        names = ", ".join(map(str, spec.output_schema.get("properties", {})))
        say(f"  hands back data of its output schema{f': {printable(names)}' if names else ''}")


def _print_instructions(instructions: str) -> None:
    from remit.cli.output import console, put
    from remit.cli.words import count, one_line

    lines = [line for line in instructions.splitlines() if line.strip()]
    label = "  told       "
    for line in lines[:INSTRUCTION_LINES]:
        put(console(), one_line(line, 200), label)
        label = " " * len(label)
    if len(lines) > INSTRUCTION_LINES:
        put(console(), f"… and {count(len(lines) - INSTRUCTION_LINES, 'line')} more", label)


def _print_one(spec: "AgentSpec", settings: "Settings", definition: "Definition | None", root: "Path") -> None:
    from remit.cli.output import console, put, say
    from remit.cli.project import inside
    from remit.cli.tables import table
    from remit.cli.words import duration, printable
    from remit.core.agents import type_words

    timeout, maximum = _timeouts(spec, settings)
    say(f"{spec.name}: {printable(spec.description) or 'no description'}")
    put(console(), inside(spec.source, root), "  from       ")
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
