"""What is declared of an agent that is no Python function: a command, a coding agent, or a profile that runs on one of them.

Written by people in `.remit/agents/NAME.md` (under `remit:`) or as `[agents.NAME]` in remit.toml, checked here, and carried out by
`agents.command`, `agents.acp` and `agents.coding`. Knows no process and no file format.
"""

import difflib
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from remit.core.agents import AgentSpec, Answers, Isolation, Workspace
from remit.core.errors import Misused


class Kind(StrEnum):
    COMMAND = "command"
    """Any command: prompt in, text out."""
    ACP = "acp"
    """A command that speaks the Agent Client Protocol on its standard input and output."""
    CLAUDE = "claude"
    CODEX = "codex"
    OPENCODE = "opencode"
    PROFILE = "profile"
    """Instructions (an agent file) carried out by another agent of the directory: `runs_on`."""


class PromptBy(StrEnum):
    STDIN = "stdin"
    ARGUMENT = "argument"
    FILE = "file"


NO_SIGNAL = "none"
PROMPT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What is to be done, in words.", "minLength": 1}},
    "required": ["task"],
    "additionalProperties": True,
}
"""What every prompted agent takes: its task, and whatever else its caller names; that is put into the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    spec: AgentSpec
    kind: Kind
    command: tuple[str, ...] = ()
    """The program and its arguments. `{prompt}`, `{prompt_file}`, `{session_id}`, `{scratch}`, `{return_file}` are filled in."""
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

    @property
    def name(self) -> str:
        return self.spec.name


Text = Annotated[str, Field(strict=True)]
Words = tuple[Text, ...]
Seconds = Annotated[float, Field(gt=0, lt=float("inf"))]


class DefinitionTable(BaseModel):
    """The same, as it is written in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind | None = None
    description: Text = ""
    command: Words | Text | None = None
    prompt: PromptBy = PromptBy.STDIN
    folder: Text = "."
    pass_environment: Words = ()
    environment: dict[str, Text] = {}
    instructions: Text = ""
    model: Text | None = None
    allow: Words = ()
    delegates: bool = False
    hand_in: Text = "SIGTERM"
    options: Words = ()
    runs_on: Text | None = None
    timeout: Seconds | None = None
    idle: Seconds | None = None
    isolation: Isolation = Isolation.PROCESS
    answers: Answers = Answers.RETURN
    workspace: Workspace = Workspace.SHARED
    merge: bool = False
    resumable: bool = False
    requires_artifacts: bool = False
    retries: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    slots: Annotated[int, Field(ge=1, strict=True)] | None = None

    @field_validator("hand_in")
    @classmethod
    def _a_signal(cls, name: str) -> str:
        if name != NO_SIGNAL and name not in signal.Signals.__members__:
            raise ValueError(f"{name!r} is no signal; write e.g. SIGTERM, SIGINT, SIGUSR1, or none")
        return name

    @field_validator("isolation")
    @classmethod
    def _a_process(cls, isolation: Isolation) -> Isolation:
        if isolation is not Isolation.PROCESS:
            raise ValueError("a command is always a process of its own: leave it out, or write process")
        return isolation

    @model_validator(mode="after")
    def _fits(self) -> "DefinitionTable":
        if self.merge and self.workspace is not Workspace.WORKTREE:
            raise ValueError('merge = true needs workspace = "worktree"')
        if self.kind in (Kind.COMMAND, Kind.ACP) and not self.command:
            raise ValueError(f'kind = "{self.kind}" needs a command')
        return self


def definition_of(name: str, table: Mapping[str, Any], *, source: str) -> Definition:
    """What a table declares. Raises `Misused` naming each fault and where it stands."""
    try:
        said = DefinitionTable.model_validate(dict(table))
    except ValidationError as error:
        raise Misused(
            f"{source}: {'; '.join(_faults(error))}.",
            advice="`remit agents --help` and docs/reference/agents.md say what an agent declares.",
        ) from None
    command = tuple(shlex.split(said.command)) if isinstance(said.command, str) else said.command or ()
    kind = said.kind or (Kind.COMMAND if command else Kind.PROFILE)
    spec = AgentSpec(
        name=name,
        description=said.description,
        timeout_seconds=said.timeout,
        idle_seconds=said.idle,
        isolation=Isolation.PROCESS,
        answers=said.answers,
        workspace=said.workspace,
        merge=said.merge,
        resumable=said.resumable,
        requires_artifacts=said.requires_artifacts,
        retries=said.retries,
        slots=said.slots,
        parameters_schema=PROMPT_SCHEMA,
        kind=str(kind),
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
        model=said.model,
        allow=said.allow,
        delegates=said.delegates,
        hand_in=said.hand_in,
        options=said.options,
        runs_on=said.runs_on,
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


def _faults(error: ValidationError) -> list[str]:
    faults = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for part in fault["loc"]) or "it"
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(where, DefinitionTable.model_fields, n=1)
            faults.append(f"{where}: there is no such key" + (f" (did you mean {close[0]}?)" if close else ""))
        else:
            faults.append(f"{where}: {fault['msg'].removeprefix('Value error, ')}")
    return faults
