"""`remit agents`: list the agents of the project, show one, write a first agent file, find installed coding agents."""

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typer import Argument, Option

from remit.agents.coding.detect import DetectedAgent, KnownAgent, detect
from remit.agents.definition import COMMA, Definition, Kind
from remit.agents.model_agents import reach_of, resolved, unreached
from remit.agents.role_bindings import why_unavailable
from remit.cli import completion
from remit.cli.delegate import advice_for_unknown, only_served
from remit.cli.exits import Exit
from remit.cli.init import agent_lines, write_settings
from remit.cli.project import NO_MCP, Project, has_mcp
from remit.cli.render import console, count, cut, duration, harmless, one_line, put, say, say_aside, say_json, table
from remit.cli.results import agent_document, definition_document
from remit.core.agents import BUILTIN_TARGETS, ROLES, AgentSpec, agent_name, is_built_in, is_role, rank, type_words
from remit.core.errors import Misused
from remit.system.trust import create_approved

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

`remit agents new NAME` writes an agent file for a language model.

`remit init` finds installed coding agents and writes their lines."""
INSTRUCTION_LINES = 6
"""Lines of an agent's instructions that are shown."""
READING = "worker.read_file, worker.list_files, worker.search_files"
"""Default tools of a new agent: read only."""
PURPOSE = "Answers questions about this project by looking at its files."
TEMPLATE = """\
---
description: {description}
# Language model: provider:name, a name of [models] in remit.toml, or a list of them (the next one when one fails).
# Default: `model` in remit.toml, or REMIT_MODEL.
{model}
# Agents, or single operations, that it may delegate to. It can reach nothing else.
# Default: worker, researcher and coder. `remit agents` lists all.
tools: {tools}
remit:
  kind: model
  timeout: 600                  # seconds
  # requests: 20                # requests to the model in one delegation, at most
  # requires_artifacts: true    # it must write a file: add worker.write_file to tools
  # languages: [python]         # which languages of tasks it is for
  # output_schema:              # schema of its data: JSON schema, or the path of a .json file in the project
  #   type: object
  #   properties: {{ findings: {{ type: array, items: {{ type: string }} }} }}
  #   required: [findings]
---
You are {name}, an agent of this project. Your purpose: {purpose}

## How you work

1. Read the task, and read the files it mentions before you say anything about them.
2. Name the path and line of everything you found.
3. Say what you could not find out. Do not guess.

## Your answer

A summary of two to five sentences: your answer first, then what you read.
"""


# ---- list, show


def agents(
    project: Project,
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Show this agent, or the operations of this target.", autocompletion=completion.agents)
    ] = None,
    detect: Annotated[bool, Option("--detect", help="Find installed coding agents, and print the lines for remit.toml.")] = False,
    write: Annotated[bool, Option("--write", help="With --detect: write the lines into remit.toml. Shows the change and asks.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --write: do not ask.")] = False,
) -> Exit:
    """List the agents of the project. `remit agents NAME` shows the parameters of one, `remit agents new NAME` writes a first file."""
    if (write and not detect) or (yes and not write):
        raise Misused("--write needs --detect, and --yes needs --write.", advice="Write them: remit agents --detect --write")
    if detect:
        return detect_agents(project, write=write, yes=yes)
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
    advice = advice_for_unknown(name, [spec.name for spec in specs]) or "`remit agents` lists all."
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
    if spec.languages:
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


# ---- new


def new(
    project: Project,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the agent and its file.")],
    model: Annotated[str, Option(help="Its model: provider:name, or a name of \\[models]. Default: the project's.")] = "",
    tools: Annotated[str, Option(help="Agents it may delegate to, separated by commas: worker.read_file,researcher.")] = READING,
    description: Annotated[str, Option(help="Its purpose, in a sentence.")] = "",
) -> Exit:
    """Write a first agent file for a language model, .remit/agents/NAME.md; never overwrites."""
    name = agent_name(name.strip())
    _check_name(name, project)
    models = [one.strip() for one in model.split(",") if one.strip()]
    _check_models(models, project)
    chosen = _check_tools(tools, project)
    words = " ".join(description.split()) or PURPOSE
    line = f"model: {models[0] if len(models) < 2 else json.dumps(models)}" if models else "# model: anthropic:claude-sonnet-5"
    quoted = json.dumps(words, ensure_ascii=False)
    text = TEMPLATE.format(name=name, description=quoted, purpose=words, model=line, tools=", ".join(chosen) or "[]")
    place = write_agent_file(project, name, text)
    lines = [
        f"Written: {place}",
        f"Look at it     remit agents {name}",
        f'Ask it         remit delegate {name} "Say what this project does"',
    ]
    if not models and not project.settings.model:
        lines.append('It has no model yet: write model = "anthropic:claude-sonnet-5" (or openai:…, ollama:…) at the top of remit.toml.')
    return project.answer({"name": name, "written": place}, "\n".join(lines))


def write_agent_file(project: Project, name: str, text: str) -> str:
    """Create an approved file in `.remit/agents` and return its path in the project."""
    place = project.folder / "agents" / f"{name}.md"
    try:
        create_approved(project.root, place, text.encode())
    except FileExistsError:
        raise Misused(f"{project.inside(str(place))} exists already.", advice="Edit that file, or choose another name.") from None
    return project.inside(str(place))


def _check_name(name: str, project: Project) -> None:
    if name.startswith("_") or name.casefold() == "readme":
        raise Misused(f"{name}.md would not be read as an agent.", advice="Choose a name that does not begin with _ and is not README.")
    if name == "new":
        raise Misused("`remit agents new` is a command, so it could not show an agent of that name.", advice="Choose another name.")
    if name in ROLES:
        raise Misused(
            f"{name!r} is a role of the board, which needs more than this first file.",
            advice=f"`remit roles {name} --write` writes the file of the role, to be edited; "
            f'[roles] {name} = "model" in remit.toml gives it to a language model.',
        )
    known = project.directory.find(name)
    if "." in name:
        raise Misused(f"{name!r} would be an operation of {name.partition('.')[0]!r}.", advice="Choose a name without a dot.")
    if known is not None or name in {one.partition(".")[0] for one in project.directory.names() if "." in one}:
        where = f" in {project.inside(known.spec.source)}" if known is not None else ""
        raise Misused(f"There is an agent {name!r}{where}.", advice="Choose another name; `remit agents` lists all.")


def _check_models(models: list[str], project: Project) -> None:
    if not models:
        return
    try:
        resolved(models, project.settings, is_guest=False, source="--model")
    except Misused as error:
        message = error.message.removeprefix("--model: model: ")
        raise Misused(message, advice="Nothing was written. `remit models` lists the models.") from None


def _check_tools(tools: str, project: Project) -> tuple[str, ...]:
    names = tuple(one.strip() for one in COMMA.split(tools) if one.strip())
    reached, directory = reach_of(names), project.directory
    faults = [*reached.notes, *(f"tools: {fault}" for fault in unreached(reached.tools or (), directory.names(), (), directory.includes))]
    if faults:
        raise Misused(faults[0].rstrip(".") + ".", advice="Nothing was written. `remit agents` lists all agents.")
    return names


# ---- detect


def detect_agents(project: Project, *, write: bool = False, yes: bool = False) -> Exit:
    found, missing = asyncio.run(detect())
    if write:
        return write_settings(project, found, yes=yes, with_model=False)
    lines = agent_lines(project, found)
    document = {
        "found": [_found_document(one, lines[one.known.name]) for one in found],
        "missing": [{"name": one.name, "install": one.install} for one in missing],
        "can_delegate": has_mcp(),
    }
    return project.answer(document, lambda: _print_detected(found, missing, lines))


def _found_document(found: "DetectedAgent", lines: list[str]) -> dict[str, Any]:
    return {
        "name": found.known.name,
        "kind": str(found.known.kind),
        "program": found.path,
        "version": found.version,
        "usable": found.is_usable,
        "login": found.login or None,
        "fault": found.fault or None,
        "remit_toml": "\n".join(lines) + "\n",
    }


def _print_detected(found: "Sequence[DetectedAgent]", missing: "Sequence[KnownAgent]", lines: dict[str, list[str]]) -> None:
    if found:
        shown = table("agent", "version", "usable", "login", "program", shrinking=("login", "program"))
        for one in found:
            usable = "no" if one.fault else "not logged in?" if not one.login else "yes"
            seen = harmless(one.fault) or (f"by {one.login}" if one.login else "none seen")
            shown.add_row(one.known.name, harmless(one.version) or "-", usable, cut(seen), cut(harmless(one.path)))
        console().print(shown)
    else:
        say("No coding agent was found on PATH.")
    if startable := [one for one in found if not one.fault]:
        if unknown := [one.known.name for one in startable if not one.login]:
            say(f"\nNo login was found for {', '.join(unknown)}: log in once there, or set the key.")
        say("\nFor remit.toml (`remit init` writes them); remove what an agent must not do:\n")
        for one in startable:
            say("\n".join(lines[one.known.name]) + "\n")
        say(f'Then: remit delegate {startable[0].known.name} "Say what this project does"')
    if missing:
        say(f"\nNot found: {', '.join(one.name for one in missing)}.")
    for known in missing:
        say(f"  {known.name}: {known.install}")
    if found and not has_mcp():
        say(f"\n{NO_MCP}; then add delegates = true to each.")
