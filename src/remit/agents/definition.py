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

from remit.agents.placeholders import parameters_in, places_in
from remit.agents.scripts import code_filled_in
from remit.core.agents import AgentSpec, Answers, Isolation, Workspace
from remit.core.errors import Misused
from remit.core.spelling import own_spelling


class Kind(StrEnum):
    COMMAND = "command"
    """Any command: prompt in, text out."""
    ACP = "acp"
    """A command that speaks the Agent Client Protocol on its standard input and output."""
    CLAUDE = "claude"
    CODEX = "codex"
    OPENCODE = "opencode"
    MODEL = "model"
    """A language model, asked in words; it acts on the world only by delegating."""
    PROFILE = "profile"
    """Instructions (an agent file) carried out by another agent of the directory: `runs_on`."""


class PromptBy(StrEnum):
    STDIN = "stdin"
    ARGUMENT = "argument"
    FILE = "file"


NO_SIGNAL = "none"
OURS = "REMIT_"
"""What the names of the variables begin with that remit alone sets."""
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
    tools: tuple[str, ...] | None = None
    """Of a model: which agents and operations it may delegate to (`worker`, `worker.read_file`); None: those that come with remit."""
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
    built_in: Text | None = None
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

    @field_validator("command")
    @classmethod
    def _words(cls, command: Words | str | None) -> Words | None:
        if not isinstance(command, str):
            return command
        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise ValueError(f"it cannot be taken apart as a shell would ({error}); write it as a list of words") from None

    @field_validator("model")
    @classmethod
    def _no_option(cls, model: str | None) -> str | None:
        if model is not None and model.startswith("-"):
            raise ValueError(f"{model!r} is no model: programs would take it for an option")
        return model

    @field_validator("environment")
    @classmethod
    def _not_ours(cls, environment: dict[str, str]) -> dict[str, str]:
        if taken := sorted(name for name in environment if name.startswith(OURS)):
            raise ValueError(f"{', '.join(taken)}: variables that begin with {OURS} are set by remit alone")
        for name, value in environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} is no variable that a program can be given")
        return environment

    @field_validator("folder")
    @classmethod
    def _a_path(cls, folder: str) -> str:
        if not folder or "\0" in folder:
            raise ValueError(f"{folder!r} is no folder; write one that lies inside of the workspace")
        return folder

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
        if self.command and self.kind in (None, Kind.COMMAND):
            _check_places(self.words, self.prompt)
        return self

    @property
    def words(self) -> Words:
        assert not isinstance(self.command, str)
        return self.command or ()

    @property
    def parameters_schema(self) -> dict[str, Any]:
        """What a delegation to it is given: a task in words; of a command, whatever stands for a parameter in it."""
        named = parameters_in(self.words) if self.kind in (None, Kind.COMMAND) else ()
        if not named:
            return PROMPT_SCHEMA
        # Of one that says how it is prompted, or where, the task is its prompt; any other may do with its parameters.
        is_prompted = "prompt" in self.model_fields_set or {"prompt", "prompt_file"} & set(places_in(self.words))
        filled_in = {name: {"description": f"Stands for {{{name}}} in its command."} for name in named if name != "task"}
        required = [*(["task"] if is_prompted or "task" in named else []), *filled_in]
        return {**PROMPT_SCHEMA, "properties": {**PROMPT_SCHEMA["properties"], **filled_in}, "required": required}


def definition_of(name: str, table: Mapping[str, Any], *, source: str) -> Definition:
    """What a table declares. Raises `Misused` naming each fault and where it stands."""
    try:
        said = DefinitionTable.model_validate(dict(table))
    except ValidationError as error:
        raise Misused(
            f"{source}: {'; '.join(_faults(error))}.",
            advice="`remit agents --help` and docs/reference/agents.md say what an agent declares.",
        ) from None
    command = said.words
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
        parameters_schema=said.parameters_schema,
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
        built_in=said.built_in,
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


def _check_places(words: Words, prompt: PromptBy) -> None:
    """Raises `ValueError` where what is filled in would be carried out as code."""
    places = places_in(words)
    if prompt is PromptBy.ARGUMENT and "prompt" not in places:
        words = (*words, "{prompt}")
    is_input = prompt is PromptBy.STDIN and not {"prompt", "prompt_file"} & set(places)
    fault = code_filled_in(words, prompt_is_input=is_input)
    if fault is not None:
        raise ValueError(
            f'command: {fault}. Pass it as a further argument, and use "$1" in the script: '
            """["sh", "-c", 'grep -c "$1" notes.txt', "sh", "{word}"]; braces that are no placeholder are doubled: {{print}}"""
        )


def _faults(error: ValidationError) -> list[str]:
    faults = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(where, DefinitionTable.model_fields, n=1)
            faults.append(f"{where}: there is no such key" + (f" (did you mean {close[0]}?)" if close else ""))
        else:
            said = fault["msg"].removeprefix("Value error, ")
            faults.append(f"{where}: {said}" if where else said)
    return faults
