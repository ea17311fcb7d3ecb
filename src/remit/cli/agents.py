"""`remit agents`: list the agents of the project, or show one."""

import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli import completion
from remit.cli.delegate import only_served
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, count, cut, duration, harmless, one_line, put, say, say_aside, say_json, table
from remit.cli.results import agent_document, definition_document
from remit.core.agents import BUILTIN_TARGETS, AgentSpec, is_built_in, is_role, rank, type_words
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.agents.definition import Definition

HOW_TO_START = """\
This project has no agents of its own yet. A Python function can be one, in .remit/agents/hello.py:

    from remit import agent

    @agent("hello")
    async def hello(name: str) -> str:
        return f"Hello, {name}."

Call it: remit delegate hello name=Ada

A coding agent, or any command, needs a few lines in remit.toml:

    [agents.claude]
    kind = "claude"
    allow = ["read", "search", "edit"]

Call it: remit delegate claude "Say what this project does"

An agent file, .remit/agents/NAME.md, makes one of a language model: `remit meta TEXT` writes one.

`remit init` finds installed coding agents and writes their lines."""
INSTRUCTION_LINES = 6
"""Lines of an agent's instructions that are shown."""

# ---- list, show


def agents(
    project: Project,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this agent, or the operations of this target.", show_default=False, autocompletion=completion.agents
        ),
    ] = None,
    detect: Annotated[bool, typer.Option("--detect", hidden=True)] = False,
) -> Exit:
    """List the agents of the project. `remit agents NAME` shows the parameters of one."""
    if detect:
        raise Misused("`remit agents --detect` was removed.", advice="`remit init` finds installed coding agents and shows their lines.")
    directory = project.directory
    known = [*directory.specs(), *only_served(project.root, directory.names())]
    specs = sorted(known, key=rank) if name is None else _named(name, known, project)
    if project.as_json:
        documents = [
            agent_document(spec, *_timeouts(spec, project))
            | definition_document(_definition(spec.name, project))
            | {"unavailable": directory.missing(spec)}
            for spec in specs
        ]
        say_json({"agents": documents, "problems": directory.problems})
        return Exit.OK
    if name is None:
        _print_all(specs, project)
    else:
        _print_named(name, specs, project)
    for problem in directory.problems:
        say_aside(f"! {problem}")
    return Exit.OK


def _named(name: str, specs: list[AgentSpec], project: Project) -> list[AgentSpec]:
    """The agent of that name, or all operations of that target."""
    alone = [spec for spec in specs if spec.name == name]
    operations = [spec for spec in specs if spec.name.startswith(f"{name}.")]
    if alone and not (operations and is_role(alone[0])):
        return alone
    if operations:
        return [*operations, *alone]
    if fault := project.why_not_loaded(name):
        raise Misused(fault, code="INVALID_TARGET", advice="Fix that file; `remit agents` lists what is loaded.")
    names = [spec.name for spec in specs]
    close = get_close_matches(name, [*names, *{known.partition(".")[0] for known in names}], n=1)
    advice = f"Did you mean {close[0]}? `remit agents` lists all." if close else "`remit agents` lists all."
    raise Misused(f"There is no agent named {name!r}.", code="INVALID_TARGET", advice=advice)


def _timeouts(spec: AgentSpec, project: Project) -> tuple[float, float]:
    limits = project.settings.limits_for(spec.name)
    return min(spec.timeout_seconds or limits.default_seconds, limits.maximum_seconds), limits.maximum_seconds


def _definition(name: str, project: Project) -> "Definition | None":
    """The declaration of an agent that is not a Python function."""
    return getattr(project.directory.find(name), "definition", None)


def _kind(spec: AgentSpec, definition: "Definition | None") -> str:
    """`inline function`, `command`, …; for a profile also the agent that executes it."""
    if definition is None:
        return f"{spec.isolation} {spec.kind}" if spec.kind == "function" else spec.kind
    if spec.kind == "profile":
        return "profile without an agent"
    return spec.kind if definition.runs_on is None else f"profile on {definition.runs_on}"


def _print_all(specs: list[AgentSpec], project: Project) -> None:
    """Print the project's own agents, then the built-in ones. Without own agents, print how to write one."""
    own = [spec for spec in specs if not is_built_in(spec)]
    built_in = [spec for spec in specs if is_built_in(spec) and not is_role(spec)]
    roles = [spec for spec in specs if is_role(spec)]
    if own:
        shown = table("agent", "does", "kind", "timeout", "from", shrinking=("does", "from"))
        for spec in own:
            timeout, kind = duration(_timeouts(spec, project)[0]), _kind(spec, _definition(spec.name, project))
            kind = "unavailable" if project.directory.missing(spec) else kind
            shown.add_row(spec.name, cut(spec.description), kind, timeout, cut(project.inside(spec.source)))
        console().print(shown)
    if built_in:
        say("\nBuilt in:\n" if own else "Built in:\n")
        _print_operations(built_in, _harmless(built_in).name.partition(".")[0])
    if roles:
        say(("\n" if own or built_in else "") + f"Roles of the board: {', '.join(spec.name for spec in roles)}\n\nWho is who   remit roles")
    if not own and not project.directory.problems:
        say(("\n" if built_in or roles else "") + HOW_TO_START)


def _print_named(name: str, specs: list[AgentSpec], project: Project) -> None:
    """Print an agent, a target with its operations, or both: `researcher` is also a role of the board."""
    alone = [spec for spec in specs if spec.name == name]
    if operations := [spec for spec in specs if spec.name != name]:
        timeout, maximum = map(duration, _timeouts(operations[0], project))
        origin = ", built in" if all(map(is_built_in, operations)) else ""
        say(f"{name}: {count(len(operations), 'operation')}{origin}; {timeout} each by default, at most {maximum}\n")
        _print_operations(operations, _harmless(operations).name)
        if alone:
            say(f"\nAnd as a role of the board (`remit roles {name}`):\n")
    for spec in alone:
        _print_one(spec, project)


def _print_operations(specs: Sequence[AgentSpec], closer: str) -> None:
    """One line for each operation, below its target."""
    shown = table("target", "operation", "takes", "does", shrinking=("takes", "does"))
    before = ""
    for spec in specs:
        target, _, operation = spec.name.partition(".")
        required = spec.parameters_schema.get("required", ())
        takes = ", ".join(name if name in required else f"{name}?" for name in spec.parameters_schema.get("properties", {}))
        shown.add_row("" if target == before else target, operation, cut(takes), cut(spec.description))
        before = target
    console().print(shown)
    spec = _harmless(specs)
    required = [f"{name}=…" for name in spec.parameters_schema.get("required", ())]
    say(f"\nCall one     remit delegate {' '.join([*spec.name.split('.', 1), *required])}\nLook closer  remit agents {closer}")


def _harmless(specs: Sequence[AgentSpec]) -> AgentSpec:
    """An operation for an example: one that only reads and takes a parameter."""
    reading = (spec for spec in specs if spec.effects == ("read",) and spec.parameters_schema.get("required"))
    return next(reading, specs[0])


def _print_one(spec: AgentSpec, project: Project) -> None:
    definition = _definition(spec.name, project)
    timeout, maximum = map(duration, _timeouts(spec, project))
    say(f"{spec.name}: {harmless(spec.description) or 'no description'}")
    lines = [("from", project.inside(spec.source)), ("kind", _kind(spec, definition)), ("timeout", f"{timeout}, at most {maximum}")]
    if definition is not None:
        lines += _definition_lines(spec, definition, project)
    if spec.operations:
        from remit.agents.routing import routed_words

        lines.append(("takes", routed_words(spec)))
    elif spec.languages:
        lines.append(("languages", ", ".join(spec.languages)))
    if spec.output_schema is not None:
        names = ", ".join(map(str, spec.output_schema.get("properties", {})))
        lines.append(("returns", f"data of its output schema{f': {names}' if names else ''}"))
    lines += [("requires", ", ".join(spec.requires)), ("missing", project.directory.missing(spec))]
    traits = [("resumable", spec.resumable), ("requires artifacts", spec.requires_artifacts), (f"retries {spec.retries}", spec.retries)]
    lines.append(("declared", ", ".join(trait for trait, value in traits if value)))
    for label, words in lines:
        if words:
            put(words, f"  {label:<9}  ")
    _print_parameters(spec)


def _definition_lines(spec: AgentSpec, definition: "Definition", project: Project) -> list[tuple[str, str]]:
    from remit.agents.definition import Kind
    from remit.agents.role_bindings import why_unavailable

    settings = project.settings
    lines = [("missing", str(why_unavailable(definition)) if definition.kind is Kind.PROFILE else "")]
    lines.append(("command", shlex.join(definition.command)))
    lines.append(("workspace", f"{spec.workspace}{', merged by the queue' if spec.merge == 'queue' else ', merged' if spec.merge else ''}"))
    if definition.kind is Kind.MODEL:
        model = ", else ".join(definition.models) or (
            f"{', else '.join(settings.model)} ({settings.source_of('model')})" if settings.model else ""
        )
        tools = BUILTIN_TARGETS if definition.tools is None else definition.tools
        lines += [
            ("model", model or 'none is configured: write model = "anthropic:…" at the top of remit.toml, or set REMIT_MODEL'),
            ("delegates", f"to {', '.join(tools)}" if tools else "to no agent: it answers by itself"),
            ("requests", f"{definition.requests or settings.model_requests} at most"),
            ("sampling", "" if definition.temperature is None else f"temperature {definition.temperature:g}"),
        ]
    else:
        lines += [("model", definition.model or ""), ("may use", ", ".join(definition.allow))]
    lines += [("delegates", "with remit's own tools" if definition.delegates else ""), *(("note", note) for note in definition.notes)]
    prompt = [one_line(line, 200) for line in definition.instructions.splitlines() if line.strip()]
    more = [f"… and {count(len(prompt) - INSTRUCTION_LINES, 'line')} more"] if len(prompt) > INSTRUCTION_LINES else []
    lines += [("" if place else "prompt", line) for place, line in enumerate([*prompt[:INSTRUCTION_LINES], *more])]
    return lines


def _print_parameters(spec: AgentSpec) -> None:
    properties, required = spec.parameters_schema.get("properties", {}), spec.parameters_schema.get("required", [])
    if not properties:
        say("  It takes no parameters.")
        return
    shown = table("parameter", "type", "default", "about")
    shown.columns[0].min_width = max(map(len, properties))  # names are never cut; descriptions wrap
    shown.columns[2].min_width = len("required")
    for column in (shown.columns[1], shown.columns[3]):
        column.no_wrap = False
    for name, schema in properties.items():
        kinds = [one for one in (schema, *schema.get("anyOf", ())) if isinstance(one, Mapping)]
        about = next((str(one["description"]) for one in kinds if one.get("description")), "")
        shown.add_row(name, type_words(schema), "required" if name in required else repr(schema.get("default")), harmless(about))
    console().print(shown)
    say(f"remit delegate {spec.name} {' '.join(f'{name}=…' for name in required or list(properties)[:1])}")
