"""A command file carried out: its text handed to an agent as the command of its name, files that it names read by the policy's leave.

The command is routed like those that come with remit: `settings_for` puts it into the routing table, unless the settings have a route of
that name. `command_files` finds the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.agents.attach_client import token_here
from remit.agents.declarations import Declarations, declarations_of
from remit.agents.definition import definition_of
from remit.agents.model_agents import resolved
from remit.agents.role_bindings import why_unavailable
from remit.app import Remit
from remit.board.command_files import MAX_INCLUDED, CommandFile, fill_arguments
from remit.board.command_lifecycle import new_error
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.core.errors import ErrorInfo
from remit.core.result import Return
from remit.core.routing import Rule
from remit.core.settings import Settings
from remit.system.settings_files import load_settings
from remit.system.threads import off_loop
from remit.system.trust import ProjectTrust, load_trust

FILE_BYTES = 100_000
ALL_BYTES = 300_000
READER = "worker.read_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCommand:
    """A command and the agent that carries it out."""

    settings: Settings
    """Of the project, with the command in its routing table."""
    agent: str | None
    """None: no agent is configured for it."""
    warnings: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    """Why there is no agent."""


def bind_command(root: Path, command: CommandFile, trust: ProjectTrust | None = None) -> BoundCommand:
    """Its agent: that of its route, the one it names, else the one that carries out agent files. Blocking; starts nothing. `trust`: what
    is approved of the project, where that was read already."""
    trust = trust or load_trust(root)
    settings = load_settings(root, trust=trust)
    if command.name in settings.routing.commands:
        rule = settings.routing.commands[command.name][0]
        return BoundCommand(settings=settings, agent=rule.agent)
    declarations = declarations_of(root, settings, trust)
    agent: str | None = command.agent
    warnings: tuple[str, ...] = ()
    if agent is not None and not command.is_ours and agent not in declarations.known:
        # `build` of OpenCode and `general-purpose` of Claude live in those tools alone.
        warnings = (f"{command.path} names the agent {agent!r}, which is not one of this project: another one does it.",)
        agent = None
    if agent is None:
        profile = definition_of(command.name, {"description": command.description}, source=command.path)
        binding = declarations.binding(profile)
        if binding.models is not None and token_here() is None:
            return _on_a_model(command, declarations, binding.models, warnings)
        if binding.executor is None:
            fault = why_unavailable(replace(profile, runs_on=binding.wanted, not_approved=declarations.unapproved_executor))
            error = new_error("tool_unavailable", fault.code, fault.message, fault.advice)
            return BoundCommand(settings=settings, agent=None, warnings=warnings, error=error)
        agent = binding.executor.name
    if command.model:
        warnings += (f"{command.path}: model is left to the agent that carries it out: {command.model[:60]!r} is not used.",)
    routing = settings.routing.extended({command.name: (Rule(agent=agent),)})
    return BoundCommand(settings=replace(settings, routing=routing), agent=agent, warnings=warnings)


def _on_a_model(command: CommandFile, declarations: Declarations, models: Sequence[str], warnings: tuple[str, ...]) -> BoundCommand:
    """The language model does it, as an agent that is there for this command alone. Raises `Misused`."""
    settings = declarations.settings
    own, notes = resolved([command.model] if command.model else [], settings, is_guest=not command.is_ours, source=command.path)
    name = f"{command.name}-command"  # no name may occur twice in a path, and the command itself is in it
    while name in declarations.known:
        name += "-"
    table = {"kind": "model", "description": command.description, "model": list(own or models)}
    routing = settings.routing.extended({command.name: (Rule(agent=name),)})
    settings = replace(settings, routing=routing, agents={**settings.agents, name: table})
    return BoundCommand(settings=settings, agent=name, warnings=(*warnings, *(f"{command.path}: {note}." for note in notes)))


def unavailable_outcome(command: CommandFile, found: BoundCommand) -> Outcome:
    """Blocked: no agent is configured."""
    error = found.error
    return Outcome(
        command=command.name,
        status="blocked",
        summary=f"Nothing was done. {error.message if error else f'The route of {command.name} names no agent.'}",
        errors=(error,) if error else (),
        next_steps=error.recommendation if error else f"Name one in [[routing.{command.name}]] of remit.toml.",
        warnings=(*found.warnings, *command.warnings),
        data={"command_file": command.path},
    )


async def run(
    remit: Remit,
    command: CommandFile,
    arguments: Sequence[str],
    found: BoundCommand,
    *,
    timeout: float | None = None,
    waiting: Waiting = wait_for_result,
) -> Return:
    """Hand it over and wait. `remit` is open with `found.settings`."""
    ready = fill_arguments(command.body, arguments)
    included, warnings = await _included(remit, ready.files)
    text = f"{ready.text}\n\n{included}" if included else ready.text
    limit = command.timeout if timeout is None else timeout
    # Inside of an agent it is that agent's child: only the root of a tree is routed.
    target = f"/{command.name}" if token_here() is None or found.agent is None else found.agent
    handle = await remit.start(target, parameters={"task": text}, timeout=limit)
    result = await waiting(remit, handle)
    said = (*found.warnings, *command.warnings, *ready.warnings, *warnings, *result.warnings)
    return replace(result, warnings=tuple(dict.fromkeys(said)))


def dry_run_command(command: CommandFile, arguments: Sequence[str], found: BoundCommand) -> Outcome:
    """What would be handed over, and to whom; nothing is read or started."""
    ready = fill_arguments(command.body, arguments)
    limits = found.settings.limits_for(command.name)
    return Outcome(
        command=command.name,
        status="completed",
        summary=f"{command.path} would be handed to {found.agent}.",
        warnings=(*found.warnings, *command.warnings, *ready.warnings),
        data={
            "dry_run": True,
            "command_file": command.path,
            "agent": found.agent,
            "text": ready.text,
            "files": list(ready.files),
            "timeout_seconds": limits.default_seconds if command.timeout is None else command.timeout,
        },
    )


async def _included(remit: Remit, paths: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The files as text, read as `worker` reads: inside the project, and by the policy."""
    parts: list[str] = []
    warnings: list[str] = []
    left = ALL_BYTES
    for path in paths[:MAX_INCLUDED]:
        if not await off_loop(_is_file, remit.root / path):
            if "/" in path or "." in path:
                warnings.append(f"@{path} is no file of the project: only its name was handed over.")
            continue
        size = min(FILE_BYTES, left)
        if size <= 0:
            warnings.append(f"@{path} was not handed over: the files named before it hold {ALL_BYTES:,} bytes.")
            continue
        read = await remit.delegate(READER, path=path, limit=size)
        if not read.ok or not isinstance(read.data, dict) or read.data.get("encoding") == "base64":
            why = read.errors[0].message if read.errors else "it is not text"
            warnings.append(f"@{path} was not handed over: {why}")
            continue
        cut = f" (the first {read.data['bytesRead']:,} of {read.data['sizeBytes']:,} bytes)" if read.data.get("truncated") else ""
        left -= int(read.data["bytesRead"])
        parts.append(f"--- {path}{cut}\n{str(read.data['content']).rstrip()}\n")
    if len(paths) > MAX_INCLUDED:
        warnings.append(f"The command names {len(paths)} files: the first {MAX_INCLUDED} were handed over.")
    return ("## Files named above\n\n" + "\n".join(parts) if parts else ""), tuple(warnings)


def _is_file(place: Path) -> bool:
    """False also for words that cannot be a file name: any text may follow an `@`."""
    try:
        return place.is_file()
    except (OSError, ValueError):
        return False


def command_outcome(command: CommandFile, result: Return) -> Outcome:
    metadata = result.metadata
    data = {"command_file": command.path, "agent": metadata.agent_type, "duration_seconds": metadata.duration_seconds, "data": result.data}
    return Outcome.of_return(command.name, result, data=data)
