"""What is declared of an agent that is no Python function: a command, a coding agent, a language model, or a profile that runs on them.

Written by people in `.remit/agents/NAME.md` (under `remit:`) or as `[agents.NAME]` in remit.toml, checked here, and carried out by
`agents.command`, `agents.acp`, `agents.coding` and `agents.model`. Knows no process and no file format; the keys are `table`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from remit.agents.table import ELSEWHERE, NO_SIGNAL, OURS, PROMPT_SCHEMA, DefinitionTable, Kind, PromptBy, faults_of
from remit.core.agents import AgentSpec, Answers, Isolation, Workspace
from remit.core.errors import Misused
from remit.core.spelling import own_spelling

__all__ = [
    "ELSEWHERE", "NO_SIGNAL", "OURS", "PROMPT_SCHEMA", "Definition", "DefinitionTable", "Kind", "PromptBy",
    "checked_parameters", "checked_task", "definition_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    spec: AgentSpec
    kind: Kind
    command: tuple[str, ...] = ()
    """The program and its arguments. Of a `command` its placeholders are filled in: parameters, and what `placeholders.TOLD` names."""
    prompt: PromptBy = PromptBy.STDIN
    folder: str = "."
    """Where it is started, inside its workspace."""
    pass_environment: tuple[str, ...] = ()
    """Names of variables (or patterns: `AWS_*`) that reach it beside the few that every program needs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set for it."""
    instructions: str = ""
    """What stands before every task: the body of an agent file."""
    model: str | None = None
    """What a coding agent is told to use."""
    models: tuple[str, ...] = ()
    """Of a model: which it is, the next one when one fails; none: the project's."""
    tools: tuple[str, ...] | None = None
    """Of a model: which agents and operations it may delegate to (`worker`, `worker.read_file`); None: those that come with remit."""
    requests: int | None = None
    """Of a model: how often it may be asked in one delegation; None: the setting `model_requests`."""
    temperature: float | None = None
    """Of a model; None: the provider's own."""
    allow: tuple[str, ...] = ()
    """Which tools it may use without being asked; everything else is denied, and the denial recorded."""
    delegates: bool = False
    """Whether it is given remit's own tools, so that it can delegate in turn."""
    hand_in: str = "SIGTERM"
    """The signal of the soft deadline, sent only to a program that catches it; `none`: it is not told."""
    options: tuple[str, ...] = ()
    """More arguments for a coding agent's command line."""
    runs_on: str | None = None
    """For a profile: the agent that carries it out; None: the one the settings name, or the first that can."""
    built_in: str | None = None
    """For a profile: the role that comes with remit and carries it out where nobody else is bound (see `agents.builtin.roles`)."""
    address: str = ""
    """Of one elsewhere: `unix:/path` or `host:port` of gRPC, the URL of A2A."""
    remote: str | None = None
    """Of one elsewhere: what it is called there (`worker.read_file`, a skill); None: by its name here."""
    token_variable: str | None = None
    """Of one elsewhere: the variable of the environment that holds our token for it, which itself never stands in a file."""
    ca_file: str | None = None
    """Of one elsewhere: PEM of who signed its certificate, below the project's root unless it is a whole path; None: for gRPC no TLS
    unless the address says so, for HTTPS those that this machine trusts."""
    notes: tuple[str, ...] = ()
    """What its file says that is not done here, or not as it says; told to whoever looks at the agent."""

    @property
    def name(self) -> str:
        return self.spec.name


def definition_of(name: str, table: Mapping[str, Any], *, source: str) -> Definition:
    """What a table declares. Raises `Misused` naming each fault and where it stands."""
    try:
        said = DefinitionTable.model_validate(dict(table))
    except ValidationError as error:
        raise Misused(
            f"{source}: {'; '.join(faults_of(error))}.",
            advice="`remit agents --help` and docs/reference/agents.md say what an agent declares.",
        ) from None
    command = said.words
    kind = said.meant_kind
    is_elsewhere = kind in ELSEWHERE
    spec = AgentSpec(
        name=name,
        description=said.description,
        timeout_seconds=said.timeout,
        idle_seconds=said.idle,
        isolation=Isolation.INLINE if kind is Kind.MODEL or is_elsewhere else Isolation.PROCESS,
        answers=Answers.VALUE if is_elsewhere and "answers" not in said.model_fields_set else said.answers,
        workspace=Workspace.NONE if is_elsewhere else said.workspace,
        merge=said.merge,
        resumable=said.resumable,
        requires_artifacts=said.requires_artifacts,
        retries=said.retries,
        slots=said.slots,
        parameters_schema=said.parameters_schema,
        kind=str(kind),
        output_schema=said.output_schema,
        languages=said.languages,
        operations=said.operations,
        source=source,
    )
    return Definition(
        spec=spec,
        kind=kind,
        command=command,
        prompt=said.prompt,
        folder=said.folder,
        pass_environment=said.pass_environment,
        environment=said.environment,
        instructions=said.instructions,
        model=said.model[0] if said.model and kind is not Kind.MODEL else None,
        models=said.model or () if kind is Kind.MODEL else (),
        tools=said.tools,
        requests=said.requests,
        temperature=said.temperature,
        allow=said.allow,
        delegates=said.delegates,
        hand_in=said.hand_in,
        options=said.options,
        runs_on=said.runs_on,
        built_in=said.built_in,
        address=(said.grpc if kind is Kind.GRPC else said.a2a if kind is Kind.A2A else None) or "",
        remote=said.remote,
        token_variable=said.token_variable,
        ca_file=said.ca_file,
    )


def checked_task(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a prompted agent: its task in words, and whatever else was named."""
    task = parameters.get("task")
    if not isinstance(task, str) or not task.strip():
        fault = "task: it is required" if task is None else f"task must be text that says what is to be done, not {task!r:.60}"
        raise Misused(
            f"Parameters of {name}: {fault}.", code="INVALID_PARAMETERS", advice=f'Say what is to be done: {name} takes task="…".'
        )
    return dict(parameters)


def checked_parameters(spec: AgentSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a command: those that are filled into it, and its task where it has use for one. Raises `Misused`."""
    parameters = own_spelling(parameters, spec.parameters_schema.get("properties", ()), spec.name)
    required = spec.parameters_schema["required"]
    missing = [name for name in required if name != "task" and parameters.get(name) is None]
    if missing:
        raise Misused(
            f"Parameters of {spec.name}: {', '.join(missing)}: required, for its command names {'it' if len(missing) == 1 else 'them'}.",
            code="INVALID_PARAMETERS",
            advice=f"{spec.name} takes {', '.join(f'{name}=…' for name in required)}.",
        )
    return checked_task(spec.name, parameters) if "task" in required or "task" in parameters else dict(parameters)
