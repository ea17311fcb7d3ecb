"""`remit agents` and `remit roles`: list and show agents and roles, write their files, find installed coding agents."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typer import Argument, Option

from remit.agents.coding.detect import DetectedAgent, KnownAgent, detect
from remit.agents.definition import Definition, Kind
from remit.agents.role_bindings import role_info, role_infos, why_unavailable
from remit.cli import completion
from remit.cli.delegate import advice_for_unknown, close_match
from remit.cli.exits import Exit
from remit.cli.init import agent_lines, write_settings
from remit.cli.project import NO_MCP, Project, has_mcp
from remit.cli.render import duration, say, say_aside, say_table
from remit.cli.results import agent_document, definition_document, say_document
from remit.core.agents import ROLES, AgentSpec, agent_name, is_built_in, is_role, rank, type_words
from remit.core.errors import Misused
from remit.system.trust import create_approved

HOW_TO_START = """\
This project has no agents of its own yet. A Python function can be one, in .remit/agents/hello.py: `from remit import agent`, and
`@agent("hello")` above it. A coding agent, or any command, needs a few lines in remit.toml:

    [agents.claude]
    kind = "claude"

Call them: remit delegate hello name=Ada, remit delegate claude "Say what this project does"

`remit init` finds installed coding agents and writes their lines; `remit agents new NAME` writes an agent file for a language model."""
PURPOSE = "Answers questions about this project by looking at its files."
TEMPLATE = """\
---
description: {description}
# Default: `model` in remit.toml, or REMIT_MODEL.
# model: anthropic:claude-sonnet-5
# Agents, or single operations, that it may delegate to. Default: worker, researcher and coder.
tools: worker.read_file, worker.list_files, worker.search_files
remit:
  kind: model
  timeout: 600                  # seconds
  # requests: 20                # requests to the model in one delegation, at most
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
    known = directory.specs()
    specs = sorted(known, key=rank) if name is None else _named(name, known, project)
    documents = [
        agent_document(spec, *_timeouts(spec, project))
        | definition_document(_definition(spec.name, project))
        | {"unavailable": directory.missing(spec)}
        for spec in specs
    ]

    def shown() -> None:
        if name is not None and len(specs) == 1:
            _print_one(specs[0], documents[0], project)
        else:
            _print_all(specs, project)
        for problem in directory.problems:
            say_aside(f"! {problem}")

    return project.answer({"agents": documents, "problems": directory.problems}, shown)


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
    roles = [spec.name for spec in specs if is_role(spec)]
    if own:
        say_table([_row(spec, project) for spec in own], shrinking=("does", "from"))
    if built_in:
        say("\nBuilt in:\n")
        say_table([{"agent": spec.name, "does": spec.description} for spec in built_in], shrinking=("does",))
    if roles:
        say(f"\nRoles of the board: {', '.join(roles)}\nWho is who: remit roles")
    say("\nParameters of one: remit agents NAME" if own or project.directory.problems or not roles else f"\n{HOW_TO_START}")


def _row(spec: AgentSpec, project: Project) -> dict[str, str]:
    kind = "unavailable" if project.directory.missing(spec) else _kind(spec, _definition(spec.name, project))
    source, timeout = project.inside(spec.source), duration(_timeouts(spec, project)[0])
    return {"agent": spec.name, "does": spec.description, "kind": kind, "timeout": timeout, "from": source}


def _print_one(spec: AgentSpec, document: dict[str, Any], project: Project) -> None:
    definition = _definition(spec.name, project)
    is_open = definition is not None and definition.kind is Kind.PROFILE
    shown = {name: value for name, value in document.items() if name not in ("parameters", "output_schema", "built_in")}
    shown |= {"kind": _kind(spec, definition), "source": project.inside(spec.source)}
    shown |= {name: duration(shown[name]) for name in ("timeout", "maximum", "idle") if shown[name] is not None}
    shown["missing"] = str(why_unavailable(definition)) if definition is not None and is_open else ""
    say_document(shown)
    properties, required = spec.parameters_schema.get("properties", {}), spec.parameters_schema.get("required", [])
    rows = []
    for name, schema in properties.items():
        kinds = [one for one in (schema, *schema.get("anyOf", ())) if isinstance(one, Mapping)]
        about = next((str(one["description"]) for one in kinds if one.get("description")), "")
        default = "required" if name in required else repr(schema.get("default"))
        rows.append({"parameter": name, "type": type_words(schema), "default": default, "about": about})
    if rows:
        say()
        say_table(rows, shrinking=("type",), folding="about")
    say(f"\nremit delegate {spec.name} {' '.join(f'{name}=…' for name in required or list(properties)[:1])}")


# ---- new


def new(
    project: Project,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the agent and its file.")],
    description: Annotated[str, Option(help="Its purpose, in a sentence.")] = "",
) -> Exit:
    """Write a first agent file for a language model, .remit/agents/NAME.md; never overwrites."""
    name = agent_name(name.strip())
    _check_name(name, project)
    purpose = " ".join(description.split()) or PURPOSE
    text = TEMPLATE.format(name=name, description=json.dumps(purpose, ensure_ascii=False), purpose=purpose)
    file = project.folder / "agents" / f"{name}.md"
    place = project.inside(str(file))
    try:
        create_approved(project.root, file, text.encode())
    except FileExistsError:
        raise Misused(f"{place} exists already.", advice="Edit that file, or choose another name.") from None
    lines = f'Written: {place}\nLook at it     remit agents {name}\nAsk it         remit delegate {name} "Say what this project does"'
    if not project.settings.model:
        lines += '\nIt has no model yet: write model = "anthropic:claude-sonnet-5" (or openai:…, ollama:…) at the top of remit.toml.'
    return project.answer({"name": name, "written": place}, lines)


def _check_name(name: str, project: Project) -> None:
    if name in ROLES:
        raise Misused(
            f"{name!r} is a role of the board, which needs more than this first file.",
            advice=f"`remit roles {name}` prints the file of the role: save it in .remit/agents, and edit it.",
        )
    if name in ("new", "readme") or name.startswith("_") or "." in name:
        raise Misused(f"{name!r} cannot be the name of an agent file.", advice="Choose a name without a dot or a leading underscore.")
    if name in {part for one in project.directory.names() for part in (one, one.partition(".")[0])}:
        raise Misused(f"There is an agent {name!r}.", advice="Choose another name; `remit agents` lists all.")


# ---- detect


def detect_agents(project: Project, *, write: bool = False, yes: bool = False) -> Exit:
    found, missing = asyncio.run(detect())
    if write:
        return write_settings(project, found, yes=yes, with_model=False)
    lines = agent_lines(project, found)
    document = {
        "found": [_found_document(one, lines[one.known.name]) for one in found],
        "missing": [{"name": one.name, "program": one.name, "install": one.install} for one in missing],
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
    rows = [{"agent": one.known.name, "version": one.version, "login": one.login or "none seen", "fault": one.fault} for one in found]
    if rows:
        say_table(rows, shrinking=("login", "fault"))
    if startable := [one.known.name for one in found if not one.fault]:
        say("\nFor remit.toml (`remit init` writes them); remove what an agent must not do:\n")
        say("\n\n".join("\n".join(lines[name]) for name in startable))
        say(f'\nThen: remit delegate {startable[0]} "Say what this project does"')
    for known in missing:
        say(f"Not found: {known.name}; {known.install}")
    if found and not has_mcp():
        say(f"\n{NO_MCP}; then add delegates = true to each.")


# ---- roles


HOW_TO_BIND = """
Bind one       [roles] in remit.toml: planner = "claude" (an agent of `remit agents`), "model" (the project's), or "built-in"
Replace one    remit roles planner > .remit/agents/planner.md, then edit and approve it: remit trust"""


def roles(
    project: Project, name: Annotated[str | None, Argument(metavar="NAME", help="Print the file of this role, to be edited.")] = None
) -> Exit:
    """List the roles of the board: the purpose of each, which agent carries it out here, and why."""
    directory = project.directory
    if name is None:
        found, problems = [one.to_dict() for one in role_infos(directory)], directory.problems
        return project.answer({"roles": found, "problems": problems}, lambda: _print_roles(found, problems))
    role = role_info(directory, name) if name in ROLES else None
    if role is None:
        advice = close_match(name, ROLES) or f"There are {', '.join(ROLES)}, unless the setting builtin_agents leaves them out."
        raise Misused(f"There is no role named {name!r}.", code="INVALID_TARGET", advice=advice)
    text = None if role.file is None else role.file.read_text(encoding="utf-8", errors="replace")
    return project.answer({**role.to_dict(), "text": text}, None if text is None else text.rstrip("\n"))


def _print_roles(found: list[dict[str, str]], problems: list[str]) -> None:
    if found:
        say_table(
            [{"role": one["name"], "carried out by": one["carried_by"], "because": one["because"]} for one in found], shrinking=("because",)
        )
    if advice := next((one["advice"] for one in found if one["advice"]), ""):
        say(f"\n{advice}")
    say(HOW_TO_BIND)
    for problem in problems:
        say_aside(f"! {problem}")
