"""Executes a command file: hands its text to an agent as the command of its name.

The command is routed like built-in ones: `settings_for` adds it to the routing table, unless the settings have a route of that name.
`command_files` finds the files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.agents.declarations import declarations_of
from remit.agents.definition import definition_of
from remit.agents.role_bindings import why_unavailable
from remit.app import Remit
from remit.board.command_files import CommandFile, check_arguments, fill_arguments
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.core.errors import Refused
from remit.core.result import Return
from remit.core.routing import Rule
from remit.core.settings import Settings
from remit.runtime.deps import token_here
from remit.system.settings_files import load_settings
from remit.system.trust import ProjectTrust, load_trust


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCommand:
    """A command and the agent that executes it."""

    settings: Settings
    """The project's settings, with the command in its routing table."""
    agent: str


def bind_command(root: Path, command: CommandFile, trust: ProjectTrust | None = None) -> BoundCommand:
    """Its agent: that of its route, the one it names, else the default for agent files. Raises `Refused` with the lines to add if there is
    none. Blocking; starts nothing. `trust`: the project's approvals, if already read."""
    trust = trust or load_trust(root)
    settings = load_settings(root, trust=trust)
    if command.name in settings.routing.commands:
        routed = settings.routing.commands[command.name][0].agent
        if routed is None:
            advice = f"Name one in [[routing.{command.name}]] of remit.toml."
            raise Refused(f"The route of {command.name} names no agent.", code="TOOL_UNAVAILABLE", advice=advice)
        return BoundCommand(settings=settings, agent=routed)
    declarations = declarations_of(root, settings, trust)
    agent = command.agent
    if agent is None:
        profile = definition_of(command.name, {"description": command.description}, source=command.path)
        binding = declarations.binding(profile)
        if binding.models is not None and token_here() is None:  # a language model executes it, as an agent for this command only
            agent = f"{command.name}-command"  # no name may occur twice in a path, and the command itself is in it
            while agent in declarations.known:
                agent += "-"
            table = {"kind": "model", "description": command.description, "model": list(binding.models)}
            settings = replace(settings, agents={**settings.agents, agent: table})
        elif binding.executor is None:
            fault = why_unavailable(declarations.unavailable(profile.having(runs_on=binding.wanted)))
            raise Refused(fault.message, code=fault.code, advice=fault.advice)
        else:
            agent = binding.executor.name
    routing = settings.routing.extended({command.name: (Rule(agent=agent),)})
    return BoundCommand(settings=replace(settings, routing=routing), agent=agent)


async def run(
    remit: Remit,
    command: CommandFile,
    arguments: Sequence[str],
    found: BoundCommand,
    *,
    timeout: float | None = None,
    waiting: Waiting = wait_for_result,
) -> Return:
    """Delegate it and wait. `remit` is open with `found.settings`. Raises `Misused` for arguments that break the rules of the file."""
    check_arguments(command, arguments)
    text = fill_arguments(command.body, arguments)
    limit = command.timeout if timeout is None else timeout
    # Inside an agent it is that agent's child: only the root of a tree is routed.
    target = f"/{command.name}" if token_here() is None else found.agent
    handle = await remit.start(target, parameters={"task": text}, timeout=limit)
    result = await waiting(remit, handle)
    return replace(result, warnings=(*command.warnings, *result.warnings))


def command_outcome(command: CommandFile, result: Return) -> Outcome:
    metadata = result.metadata
    data = {"command_file": command.path, "agent": metadata.agent_type, "duration_seconds": metadata.duration_seconds, "data": result.data}
    return Outcome.of_return(command.name, result, data=data)
